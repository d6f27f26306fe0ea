"""texture_rows: all textures as bytes, from builtin patterns, one image or six images, top row first.

A cube has six faces, one below the other (right, left, up, down, front, back), or one face that is repeated. A file
outside the model's folder that may not be opened becomes one white pixel, with a warning.

Source: MuJoCo "XML reference", texture; `mjCTexture` of 3.8.1.
"""

import warnings
from typing import Any

import numpy as np

from diffsim.base.enums import ColorSpace, TextureType
from diffsim.compiler.assets.patterns import Pattern, pattern_pixels
from diffsim.compiler.assets.png import SIGNATURE, png_is_srgb, png_pixels
from diffsim.compiler.draft import Draft, Node, addresses
from diffsim.mjcf.resources import MOST_PIXELS, MOST_TEXELS, AssetError, OutsideError, check_count, kind_of

Array = np.ndarray

# attributes with the files of a cube's faces, in the order of its faces
FACES = ("fileright", "fileleft", "fileup", "filedown", "filefront", "fileback")
# letters of the faces in attribute 'gridlayout', in the same order
LETTERS = "RLUDFB"
# media types by the extension of a file
KINDS = {".png": "image/png", ".ktx": "image/ktx"}
# legal numbers of channels
CHANNELS = (1, 3, 4)


def texture_rows(draft: Draft) -> None:
    """tex_type, tex_width ... and tex_data, the bytes of all textures."""
    images = []
    total = 0
    for node in draft.nodes["texture"]:
        try:
            image, space = _texture(draft, node)
            total += image.shape[0] * image.shape[1]
            check_count(total, MOST_TEXELS, "pixels together with the textures before it")
        except AssetError as error:
            draft.refuse(node, error)
            continue
        images.append(image)
        height, width, channels = image.shape
        kind = int(node.e.type)
        node.row = {"tex_type": kind, "tex_colorspace": int(space), "tex_height": height, "tex_width": width}
        node.row["tex_nchannel"] = channels
    draft.problems.raise_if_any()
    draft.columns("texture")
    lengths = np.array([image.size for image in images], int)
    data = np.empty(lengths.sum(), np.uint8)
    starts = addresses(lengths)
    for image, start in zip(images, starts, strict=True):
        data[start : start + image.size].reshape(image.shape)[:] = image
    # a topology takes arrays that nothing can write into without copying them
    data.flags.writeable = False
    draft.fields.update(ntex=len(images), ntexdata=len(data), tex_adr=starts, tex_data=data)


def _texture(draft: Draft, node: Node) -> tuple[Array, ColorSpace]:
    """Pixels (height, width, channels) and the colour space. Raises AssetError."""
    e = node.e
    if e.nchannel not in CHANNELS:
        raise AssetError(f"attribute 'nchannel': must be 1, 3 or 4, not {e.nchannel}")
    try:
        if e.builtin != "none":
            return _builtin(e), e.colorspace
        if e.file_:
            image, space = _image(draft, node, "file_")
            return (image if e.type == TextureType.TWO_D else _cube_of_one(e, image)), space
        return _cube_of_six(draft, node)
    except AssetError as error:
        if isinstance(error.__cause__, OutsideError):
            place = f"{node.source.file}:{node.source.line} {node.source.label}"
            warnings.warn(f"{place} is white: {error.__cause__} ({error.__cause__.hint})", stacklevel=2)
            return np.full((1, 1, 3), 255, np.uint8), e.colorspace
        raise


def _builtin(e: Any) -> Array:
    """Pixels (height, width, channels) of a builtin pattern."""
    if e.nchannel != 3 and (e.nchannel < 3 or e.type != TextureType.TWO_D):
        raise AssetError(f"attribute 'nchannel': a builtin texture needs 3 channels, not {e.nchannel}")
    flat = e.type == TextureType.TWO_D
    faces, height = (1, e.height) if flat else (6, e.width)
    check_count(faces * e.width * height, MOST_PIXELS, f"pixels ({e.width} by {faces * height})")
    first, second, mark = (tuple(np.asarray(colour, float).tolist()) for colour in (e.rgb1, e.rgb2, e.markrgb))
    pattern = Pattern(
        builtin=e.builtin,
        mark=e.mark,
        rgb1=first,
        rgb2=second,
        markrgb=mark,
        random=float(e.random),
        faces=faces,
        width=e.width,
        height=height,
    )
    pixels = pattern_pixels(pattern)
    # as in MuJoCo, a fourth channel is not interleaved: its bytes come after all others, as zeros
    spare = np.zeros((e.nchannel - 3) * faces * height * e.width, np.uint8)
    return np.concatenate([pixels.ravel(), spare]).reshape(faces * height, e.width, e.nchannel)


def _image(draft: Draft, node: Node, attribute: str) -> tuple[Array, ColorSpace]:
    """Pixels of a file, flipped by `hflip` and `vflip`, and their colour space."""
    e = node.e
    name = getattr(node.e, attribute)
    data = draft.contents(node, attribute)
    kind = kind_of(name, e.content_type, KINDS)
    srgb = False
    if kind == KINDS[".png"]:
        pixels = png_pixels(data, e.nchannel)
        srgb = png_is_srgb(data)
    elif kind == KINDS[".ktx"]:
        space = ColorSpace.LINEAR if e.colorspace == ColorSpace.AUTO else e.colorspace
        return np.frombuffer(data, np.uint8).reshape(1, -1, 1), space
    else:
        # MuJoCo's own format: width and height as integers, then the pixels
        width, height = np.frombuffer(data[:8].ljust(8, b"\0"), "<i4").tolist()
        check_count(max(width, 0) * max(height, 0), MOST_PIXELS, f"pixels ({width} by {height})")
        if min(width, height) < 1 or len(data) != 8 + 3 * width * height:
            wrong = "is a damaged PNG file" if data[:8] == SIGNATURE else "is neither PNG nor MuJoCo's format"
            raise AssetError(f"{wrong}: {len(data)} bytes for {width} by {height} pixels")
        pixels = np.frombuffer(data, np.uint8, offset=8).reshape(height, width, 3)
    space = e.colorspace if e.colorspace != ColorSpace.AUTO else ColorSpace.SRGB if srgb else ColorSpace.LINEAR
    return pixels[:: -1 if e.vflip else 1, :: -1 if e.hflip else 1], space


def _cube_of_one(e: Any, image: Array) -> Array:
    """A cube from one image: each face is a square of it. An image of a single square is used for all faces."""
    rows, columns = (int(number) for number in e.gridsize)
    height, width, channels = image.shape
    if min(rows, columns) < 1 or rows * columns > len(e.gridlayout):
        raise AssetError(f"attribute 'gridsize': must give 1 to 12 squares, not {rows} by {columns}")
    if height % rows or width % columns or height // rows != width // columns:
        raise AssetError(f"an image of {width} by {height} pixels is not a grid of {rows} by {columns} squares")
    _check_colours(channels)
    if rows * columns == 1:
        return image
    side = width // columns
    faces = {}
    for square, letter in enumerate(e.gridlayout[: rows * columns]):
        if letter not in LETTERS + ".":
            raise AssetError(f"attribute 'gridlayout': has '{letter}', which is not one of {LETTERS}.")
        top = side * (square // columns)
        left = side * (square % columns)
        faces[letter] = image[top : top + side, left : left + side]
    return _joined(e, [faces.get(letter) for letter in LETTERS], side)


def _cube_of_six(draft: Draft, node: Node) -> tuple[Array, ColorSpace]:
    """A cube from a file for each face."""
    e = node.e
    faces = []
    space = ColorSpace.AUTO
    if e.type == TextureType.TWO_D:
        raise AssetError("a 2d texture needs attribute 'file' or 'builtin'")
    for face in FACES:
        image, space_of_face = _image(draft, node, face) if getattr(e, face) else (None, space)
        faces.append(image)
        # the colour space of the first image counts
        space = space_of_face if space == ColorSpace.AUTO else space
    shapes = {face.shape for face in faces if face is not None}
    if not shapes:
        raise AssetError("a texture needs attribute 'builtin' or 'file', or a file for each face")
    height, width, channels = next(iter(shapes))
    if len(shapes) > 1 or height != width:
        raise AssetError("the faces of a cube must be square and of the same size")
    _check_colours(channels)
    return _joined(e, faces, width), e.colorspace if e.colorspace != ColorSpace.AUTO else space


def _check_colours(channels: int) -> None:
    if channels != 3:
        raise AssetError(f"the images of a cube must have 3 channels, not {channels}")


def _joined(e: Any, faces: list[Array | None], side: int) -> Array:
    """Six faces, one below the other; missing faces have the colour rgb1."""
    plain = np.broadcast_to((255 * np.asarray(e.rgb1, float)).astype(np.uint8), (side, side, 3))
    return np.concatenate([plain if face is None else face for face in faces])
