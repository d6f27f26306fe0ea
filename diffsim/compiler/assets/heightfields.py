"""hfield_rows: height fields from numbers in the XML, a PNG image or a binary file, scaled to [0, 1].

Rows of hfield_data go from -y to +y, columns from -x to +x. hfield_size is (half width in x, half width in y, height at
elevation 1, thickness of the base), in m. In the XML, as in images, the first row is the one at +y.
Source: MuJoCo "XML reference", hfield.
"""

import numpy as np

from diffsim.compiler.assets.png import png_gray
from diffsim.compiler.draft import Draft, Node, addresses
from diffsim.mjcf.resources import MOST_IN_ALL, MOST_PIXELS, AssetError, check_count, kind_of

Array = np.ndarray

# the two formats of height fields, by their media type
PNG = "image/png"
BINARY = "image/vnd.mujoco.hfield"
# media types by the extension of a file; all but PNG are listed so that the message can name what is refused
KINDS = {
    ".png": PNG,
    ".ktx": "image/ktx",
    ".stl": "model/stl",
    ".obj": "model/obj",
    ".msh": "model/vnd.mujoco.msh",
}

# a height field whose elevations differ by less, in units of the file, is flat (mjEPS)
FLAT = 1e-14


def hfield_rows(draft: Draft) -> None:
    """Rows of all height fields."""
    grids = []
    total = 0
    for node in draft.nodes["hfield"]:
        try:
            if not (np.asarray(node.e.size) > 0).all():
                raise AssetError("attribute 'size': all four numbers must be positive")
            grid = _elevation(draft, node)
            total += grid.size
            check_count(total, MOST_IN_ALL, "elevations together with the height fields before it")
            grids.append(_normalized(grid))
        except AssetError as error:
            draft.refuse(node, error)
    draft.problems.raise_if_any()
    counts = np.array([grid.size for grid in grids], int)
    draft.fields.update(
        nhfield=len(grids),
        nhfielddata=int(counts.sum()),
        hfield_nrow=np.array([len(grid) for grid in grids], int),
        hfield_ncol=np.array([grid.shape[1] for grid in grids], int),
        hfield_adr=addresses(counts),
        hfield_size=np.array([node.e.size for node in draft.nodes["hfield"]], float).reshape(-1, 4),
        hfield_data=np.concatenate([np.zeros(0, np.float32), *(grid.ravel() for grid in grids)]),
    )


def _elevation(draft: Draft, node: Node) -> Array:
    """(rows, columns) float32: elevations, the row at -y first."""
    e = node.e
    if e.file_:
        data = draft.contents(node)
        # a file with an unknown extension counts as a binary file
        kind = e.content_type and kind_of(e.file_, e.content_type, KINDS)
        kind = kind or KINDS.get(kind_of(e.file_, None, {}), BINARY)
        if kind not in (PNG, BINARY):
            raise AssetError(f"'{kind}' is not a supported kind of height field", "use PNG or MuJoCo's binary format")
        if kind == PNG:
            return png_gray(data)[::-1].astype(np.float32)
        # two counts, then the elevations row by row
        if len(data) < 8:
            raise AssetError("is not a height field: the header is missing")
        rows, columns = (int(number) for number in np.frombuffer(data, "<i4", 2))
        if rows < 1 or columns < 1:
            raise AssetError(f"is not a height field: it has {rows} rows and {columns} columns")
        check_count(rows * columns, MOST_PIXELS, f"elevations ({rows} by {columns})")
        if len(data) != 8 + 4 * rows * columns:
            raise AssetError(f"is damaged: it has {len(data)} bytes for {rows} by {columns} elevations")
        return np.frombuffer(data, "<f4", rows * columns, 8).reshape(rows, columns)
    if e.nrow < 1 or e.ncol < 1:
        raise AssetError("a height field needs attribute 'file', or 'nrow' and 'ncol'")
    check_count(e.nrow * e.ncol, MOST_PIXELS, f"elevations ({e.nrow} by {e.ncol})")
    if e.elevation is None:
        return np.zeros((e.nrow, e.ncol), np.float32)
    with np.errstate(over="ignore"):
        return e.elevation.astype(np.float32).reshape(e.nrow, e.ncol)[::-1]


def _normalized(grid: Array) -> Array:
    """Elevations scaled to [0, 1]; all 0 if they are equal."""
    if not np.isfinite(grid).all():
        row, column = np.argwhere(~np.isfinite(grid))[0]
        raise AssetError(f"an elevation (row {row} from the lowest y, column {column}) is not finite")
    lowest, highest = grid.min(), grid.max()
    with np.errstate(over="ignore"):
        span = highest - lowest
    if not np.isfinite(span):
        raise AssetError("the range of the elevations is too large for float32")
    return (grid - lowest) / (span if span > FLAT else np.float32(1))
