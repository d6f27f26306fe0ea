"""Shapes as a player draws them: geoms and sites in the frames of their bodies, meshes by their triangles."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from diffsim.base.enums import GeomType
from diffsim.types import Model
from diffsim.viewer.numbers import Numbers
from diffsim.viz.material import colours
from diffsim.viz.visible import HIDDEN_GROUPS, drawn_type, visible_geoms

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
# half side of a plane that has no end, in extents of the model
ENDLESS = 100.0
Vertices = tuple[np.ndarray, np.ndarray]


def shapes(model: Model, numbers: Numbers) -> dict[str, list[dict[str, Any]]]:
    """The header's "shapes" and "meshes"; a distance field is drawn by the triangles of its surface."""
    triangles = {"mesh": _meshes(model), "hfield": _hfields(model)}
    drawn = [*_geoms(model), *_sites(model)]
    used = sorted({shape["mesh"] for shape in drawn if "mesh" in shape})
    place = {name: k for k, name in enumerate(used)}
    meshes = [_put(numbers, *triangles[kind][index]) for kind, index in used]
    return {"meshes": meshes, "shapes": [s | ({"mesh": place[s["mesh"]]} if "mesh" in s else {}) for s in drawn]}


def _geoms(model: Model) -> Iterator[dict[str, Any]]:
    """One shape for each geom that can be drawn."""
    topology, rgba = model.topology, np.asarray(colours(model), float)
    visible = visible_geoms(model)
    for geom in range(model.ngeom):
        kind = drawn_type(model, geom)
        if kind in KINDS and rgba[geom, 3] > 0:
            shape = {
                "kind": KINDS[kind],
                "body": int(topology.geom_bodyid[geom]),
                "size": _size(model, geom, kind),
                "rgba": _rounded(rgba[geom]),
                "hidden": not bool(visible[geom]),
                "tinted": bool(topology.geom_matid[geom] >= 0),
                "site": False,
            }
            asset = {GeomType.MESH: "mesh", GeomType.SDF: "mesh", GeomType.HFIELD: "hfield"}.get(kind)
            shape |= {"mesh": (asset, int(topology.geom_dataid[geom]))} if asset else {}
            yield shape | _pose(model.geom_pos[geom], model.geom_quat[geom])


def _sites(model: Model) -> Iterator[dict[str, Any]]:
    """One shape for each site."""
    topology, rgba = model.topology, colours(model, "site")
    for site, kind in enumerate(map(GeomType, topology.site_type.tolist())):
        yield {
            "kind": KINDS[kind],
            "body": int(topology.site_bodyid[site]),
            "size": _rounded(model.site_size[site]),
            "rgba": _rounded(rgba[site]),
            "hidden": int(topology.site_group[site]) in HIDDEN_GROUPS,
            "tinted": False,
            "site": True,
            **_pose(model.site_pos[site], model.site_quat[site]),
        }


def _size(model: Model, geom: int, kind: GeomType) -> list[float]:
    """Sizes of a geom, those of an endless plane by the model's extent."""
    size = np.asarray(model.geom_size[geom], float)
    if kind == GeomType.PLANE:
        size = np.where(size > 0, size, ENDLESS * float(model.stat.extent))
    return _rounded(size)


def _pose(pos: Any, quat: Any) -> dict[str, list[float]]:
    return {"pos": _rounded(pos), "quat": _rounded(quat)}


def _rounded(values: Any) -> list[float]:
    """Numbers short enough for a header."""
    return [float(f"{value:.6g}") for value in np.asarray(values, float).tolist()]


def _put(numbers: Numbers, vertex: np.ndarray, face: np.ndarray) -> dict[str, Any]:
    return {"vertex": numbers.put(vertex.astype(np.float32)), "face": numbers.put(face.astype(np.uint32))}


def _meshes(model: Model) -> list[Vertices]:
    """Vertices (n, 3) and triangles (m, 3) of each mesh."""
    views = [model.mesh(index) for index in range(model.nmesh)]
    return [(np.asarray(view.vert), np.asarray(view.face)) for view in views]


def _hfields(model: Model) -> list[Vertices]:
    """Vertices and triangles of the surface of each height field."""
    found = []
    for index in range(model.nhfield):
        view = model.hfield(index)
        rows, columns, (x, y, height, _) = view.nrow, view.ncol, np.asarray(view.size, float)
        across, along = np.meshgrid(np.linspace(-x, x, columns), np.linspace(-y, y, rows))
        vertex = np.stack([across.ravel(), along.ravel(), height * np.asarray(view.data).ravel()], axis=-1)
        corner = (np.arange(rows - 1)[:, None] * columns + np.arange(columns - 1)).ravel()
        lower = np.stack([corner, corner + 1, corner + columns + 1], axis=-1)
        upper = np.stack([corner, corner + columns + 1, corner + columns], axis=-1)
        found.append((vertex, np.concatenate([lower, upper])))
    return found
