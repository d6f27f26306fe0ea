"""scene: collects what the player needs to show a trajectory: shapes, and poses of bodies and cameras in each frame.

Geoms and sites are shapes fixed in the frames of their bodies; meshes are triangles. Lines (pieces of spatial tendons,
and marks such as contact forces) have new ends in every frame. All arrays are in one buffer of bytes; a header of plain
values says where each array is.
"""

import dataclasses
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from diffsim.base.enums import GeomType
from diffsim.geometry.assets import geom_assets, geoms_exist
from diffsim.math import mat_to_quat
from diffsim.types import Model
from diffsim.types.data import Kinematics
from diffsim.viz.material import HIDDEN_GROUPS, colours, drawn_type, visible_geoms
from diffsim.viz.scene import tendon_ids, tendon_lines, tile_size
from diffsim.viz.view import View, sight


@dataclasses.dataclass
class Numbers:
    """A buffer of bytes to which arrays are appended."""

    parts: list[bytes] = dataclasses.field(default_factory=list)
    size: int = 0

    def put(self, array: np.ndarray) -> dict[str, Any]:
        """Appends an array; returns its type, first byte and number of elements."""
        place = {"kind": str(array.dtype), "start": self.size, "count": int(array.size)}
        data = np.ascontiguousarray(array).tobytes()
        # JavaScript's typed arrays must start at a multiple of their element size, here at most 4 bytes
        data += bytes(-len(data) % 4)
        self.parts.append(data)
        self.size += len(data)
        return place

    def put_quaternions(self, quat: np.ndarray) -> dict[str, Any]:
        """Appends unit quaternions as int16, components scaled by 32767."""
        return self.put(np.round(32767 * np.clip(quat, -1, 1)).astype(np.int16))


class Pieces(NamedTuple):
    """n lines: pieces of tendons, and marks.

    Attributes:
      rgba: (n, 4) colours.
      lines: (T, worlds, n, 7) m, start, end and radius in each frame and world; a radius below 0 means no line.
    """

    rgba: np.ndarray
    lines: np.ndarray


# distance between worlds that are shown side by side, in extents of the model: close together without touching
SPACING = 0.8


def scene(
    model: Model, poses: Kinematics, fps: float, camera: View, pieces: Pieces | None = None
) -> tuple[dict[str, Any], bytes]:
    """The header, which has plain values for JSON, and the buffer with the arrays: first what moves, then shapes.

    Args:
      model: the model.
      poses: frames (T, worlds, ...).
      fps: frames per second.
      camera: the initial camera.
      pieces: the lines; None for the tendons.
    """
    numbers = Numbers()
    frames, worlds, bodies, _ = poses.xpos.shape
    extent = float(model.stat.extent)
    middle, seen = sight(model, jax.tree.map(lambda leaf: leaf[0, 0], poses))
    # by default the camera follows the first body that can move; -1 for none
    movable = np.flatnonzero(model.topology.body_weldid > 0)
    first_moving = int(movable[0]) if len(movable) else -1
    follow = model.body(camera.follow).id if camera.follow else first_moving
    # far enough to see all worlds, which stand in a square grid
    distance = 1.5 * seen + SPACING * extent * (math.ceil(math.sqrt(worlds)) - 1)
    center = middle if camera.lookat is None else camera.lookat
    header = {
        "fps": fps,
        "frames": frames,
        "worlds": worlds,
        "bodies": bodies,
        **moving(model, poses, tendons(model, poses) if pieces is None else pieces, numbers),
        "center": np.asarray(center, float).tolist(),
        "distance": distance if camera.distance is None else camera.distance,
        "azimuth": camera.azimuth,
        "elevation": camera.elevation,
        "extent": extent,
        "tile": float(tile_size(model.stat.extent)),
        "spacing": SPACING * extent,
        "follow": follow,
        # do not follow a body if the user has chosen a point to look at
        "following": worlds == 1 and (camera.follow is not None or camera.lookat is None),
        **shapes(model, numbers),
    }
    return header, b"".join(numbers.parts)


def moving(model: Model, poses: Kinematics, pieces: Pieces, numbers: Numbers) -> dict[str, Any]:
    """The part of the header whose arrays change from frame to frame."""
    fovy = np.asarray(model.cam_fovy, float)
    return {
        "positions": numbers.put(np.asarray(poses.xpos, np.float32)),
        "quaternions": numbers.put_quaternions(np.asarray(poses.xquat)),
        # cameras of the first world
        "cameras": [
            {
                "name": model.name("camera", index) or f"camera {index}",
                "fovy": float(fovy[index]),
                "pos": numbers.put(np.asarray(poses.cam_xpos[:, 0, index], np.float32)),
                "quat": numbers.put_quaternions(np.asarray(jax.jit(mat_to_quat)(poses.cam_xmat[:, 0, index]))),
            }
            for index in range(model.ncam)
        ],
        "pieces": put_pieces(pieces, numbers),
    }


def tendons(model: Model, poses: Kinematics) -> Pieces:
    """The pieces of all spatial tendons; poses (T, worlds, ...)."""
    ids = tendon_ids(model)
    if not len(ids):
        return Pieces(np.zeros((0, 4)), np.zeros((*poses.xpos.shape[:2], 0, 7), np.float32))
    lines = jax.jit(jax.vmap(jax.vmap(tendon_lines, (None, 0)), (None, 0)))(model, poses)
    start, end, radius = (np.asarray(x, np.float32) for x in lines)
    rgba = np.asarray(colours(model, "tendon"), float)[ids]
    rgba[np.isin(model.topology.tendon_group[ids], HIDDEN_GROUPS), 3] = 0
    shown = np.concatenate([start, end, np.where(rgba[:, 3] > 0, radius, -1)[..., None]], axis=-1)
    return Pieces(rgba, shown)


def put_pieces(pieces: Pieces, numbers: Numbers) -> dict[str, Any]:
    """Appends lines; returns the entry "pieces" of the header."""
    return {
        "rgba": [_rounded(row) for row in pieces.rgba],
        "lines": numbers.put(pieces.lines.astype(np.float32)),
    }


# how the player draws each type of geom
KINDS = {
    GeomType.PLANE: "plane",
    GeomType.HFIELD: "mesh",
    GeomType.SPHERE: "sphere",
    GeomType.CAPSULE: "capsule",
    GeomType.ELLIPSOID: "ellipsoid",
    GeomType.CYLINDER: "cylinder",
    GeomType.BOX: "box",
    GeomType.MESH: "mesh",
    GeomType.SDF: "mesh",
}
# half the side of an infinite plane, in extents of the model: its edge is never in sight
ENDLESS = 100.0


def shapes(model: Model, numbers: Numbers) -> dict[str, list[dict[str, Any]]]:
    """The entries "shapes" and "meshes" of the header, with only the meshes that some shape uses."""
    meshes = [model.mesh(index) for index in range(model.nmesh)]
    triangles = {
        "mesh": [(np.asarray(mesh.vert), np.asarray(mesh.face)) for mesh in meshes],
        "hfield": [_hfield_triangles(model.hfield(index)) for index in range(model.nhfield)],
    }
    drawn = [*_geoms(model), *_sites(model)]
    used = sorted({shape["mesh"] for shape in drawn if "mesh" in shape})
    place = {name: k for k, name in enumerate(used)}
    surfaces = [
        {"vertex": numbers.put(vertex.astype(np.float32)), "face": numbers.put(face.astype(np.uint32))}
        for vertex, face in (triangles[kind][index] for kind, index in used)
    ]
    return {"meshes": surfaces, "shapes": [s | ({"mesh": place[s["mesh"]]} if "mesh" in s else {}) for s in drawn]}


def _geoms(model: Model) -> Iterator[dict[str, Any]]:
    """Yields one shape for each geom that can be drawn."""
    topology = model.topology
    rgba = np.asarray(colours(model), float)
    visible = visible_geoms(model)
    sizes = np.asarray(model.geom_size, float)
    assets = np.asarray(geom_assets(model))
    exist = geoms_exist(model)
    exist = np.ones(model.ngeom, bool) if exist is None else np.asarray(exist)
    pos = np.asarray(model.geom_pos)
    quat = np.asarray(model.geom_quat)
    for geom in range(model.ngeom):
        kind = drawn_type(model, geom)
        if kind in KINDS and rgba[geom, 3] > 0 and exist[geom]:
            size = sizes[geom]
            if kind == GeomType.PLANE:
                size = np.where(size > 0, size, ENDLESS * float(model.stat.extent))
            shape = {
                "kind": KINDS[kind],
                "body": int(topology.geom_bodyid[geom]),
                "size": _rounded(size),
                "rgba": _rounded(rgba[geom]),
                "hidden": not bool(visible[geom]),
                "tinted": bool(topology.geom_matid[geom] >= 0),
                "site": False,
            }
            asset = {GeomType.MESH: "mesh", GeomType.SDF: "mesh", GeomType.HFIELD: "hfield"}.get(kind)
            shape |= {"mesh": (asset, int(assets[geom]))} if asset else {}
            yield shape | {"pos": _rounded(pos[geom]), "quat": _rounded(quat[geom])}


def _sites(model: Model) -> Iterator[dict[str, Any]]:
    """Yields one shape for each site."""
    topology = model.topology
    rgba = np.asarray(colours(model, "site"))
    size = np.asarray(model.site_size)
    pos = np.asarray(model.site_pos)
    quat = np.asarray(model.site_quat)
    for site, kind in enumerate(map(GeomType, topology.site_type.tolist())):
        yield {
            "kind": KINDS[kind],
            "body": int(topology.site_bodyid[site]),
            "size": _rounded(size[site]),
            "rgba": _rounded(rgba[site]),
            "hidden": int(topology.site_group[site]) in HIDDEN_GROUPS,
            "tinted": False,
            "site": True,
            "pos": _rounded(pos[site]),
            "quat": _rounded(quat[site]),
        }


def _rounded(values: Any) -> list[float]:
    """Numbers with six digits, which keeps the header short."""
    return [float(f"{value:.6g}") for value in np.asarray(values, float).tolist()]


def _hfield_triangles(hfield: Any) -> tuple[np.ndarray, np.ndarray]:
    """Vertices (n, 3), m, and triangles (m, 3) of the surface of a height field."""
    rows = hfield.nrow
    columns = hfield.ncol
    x, y, height, _ = np.asarray(hfield.size, float)
    across, along = np.meshgrid(np.linspace(-x, x, columns), np.linspace(-y, y, rows))
    vertex = np.stack([across.ravel(), along.ravel(), height * np.asarray(hfield.data).ravel()], axis=-1)
    # each cell of the grid has two triangles that share its diagonal
    corner = (np.arange(rows - 1)[:, None] * columns + np.arange(columns - 1)).ravel()
    lower = np.stack([corner, corner + 1, corner + columns + 1], axis=-1)
    upper = np.stack([corner, corner + columns + 1, corner + columns], axis=-1)
    return vertex, np.concatenate([lower, upper])
