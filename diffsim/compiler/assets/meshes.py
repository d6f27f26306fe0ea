"""Compiles all meshes (compiled_mesh.py) and lists them as fields of the model.

Each mesh is in its own inertial frame. mesh_pos and mesh_quat are the pose of this frame in the frame of the file;
geoms that use the mesh are moved accordingly. Lengths are in m.
Source: MuJoCo "XML reference", mesh; mjModel's field comments (3.8.1).
"""

from typing import Any

import numpy as np

from diffsim.base.enums import GeomType
from diffsim.compiler.assets.compiled_mesh import Mesh, compile_mesh, mesh_source
from diffsim.compiler.assets.hull import Polygons, graph, polygons_of_vertices, rounding_fields
from diffsim.compiler.draft import Draft, addresses, or_minus_one
from diffsim.geometry.hull.tables import facet_fields
from diffsim.geometry.rays.bvh import tree_fields
from diffsim.mjcf.elements.deformable import Plugin
from diffsim.mjcf.resources import MOST_IN_ALL, AssetError, check_count

Array = np.ndarray
Fields = dict[str, Any]


def mesh_rows(draft: Draft) -> None:
    """Compiles all meshes; the result of each is `node.row["mesh"]`."""
    geoms = [node for node in draft.nodes["geom"] if node.e.type in (GeomType.MESH, GeomType.SDF)]
    paired = {name for node in draft.nodes["pair"] for name in (node.e.geom1, node.e.geom2)}
    # meshes of geoms that can touch something need a hull; planes collide with the hull of a distance field's surface
    hulls = {node.e.mesh for node in geoms if node.e.contype or node.e.conaffinity or node.name in paired}
    # meshes of geoms of type sdf without a plugin need an octree
    fields = {node.e.mesh for node in geoms if node.e.type == GeomType.SDF and node.e.first(Plugin) is None}
    total = 0
    for node in draft.nodes["mesh"]:
        try:
            source = mesh_source(draft, node)
            total += len(source.vertex) + len(source.face)
            check_count(total, MOST_IN_ALL, "vertices and triangles together with the meshes before it")
            sampled = node.name in fields and node.e.first(Plugin) is None
            node.row["mesh"] = compile_mesh(node.e, source, node.name in hulls, sampled, draft.spec.mujoco)
        except AssetError as error:
            draft.refuse(node, error)
    draft.problems.raise_if_any()


def mesh_fields(draft: Draft) -> None:
    """The mesh fields of the model."""
    meshes: list[Mesh] = [node.row["mesh"] for node in draft.nodes["mesh"]]
    surfaces = [mesh.surface for mesh in meshes]
    octrees = [mesh.octree for mesh in meshes if mesh.octree is not None]
    cells = np.array([0 if mesh.octree is None else len(mesh.octree.depth) for mesh in meshes], int)
    fields = {
        **_blocks("mesh_vert", "nmeshvert", [s.vertex for s in surfaces], 3),
        **_blocks("mesh_normal", "nmeshnormal", [s.normal for s in surfaces], 3),
        **_blocks("mesh_face", "nmeshface", [s.face for s in surfaces], 3),
        **_blocks("mesh_texcoord", "nmeshtexcoord", [s.texcoord for s in surfaces], 2),
        "mesh_facenormal": _stacked([s.facenormal for s in surfaces], 3),
        "mesh_facetexcoord": _stacked([s.facetexcoord for s in surfaces], 3),
        "mesh_pos": _stacked([mesh.pos[None] for mesh in meshes], 3),
        "mesh_quat": _stacked([mesh.quat[None] for mesh in meshes], 4),
        "mesh_scale": _stacked([mesh.scale[None] for mesh in meshes], 3),
        **_hull_fields(meshes),
        # cells of all octrees; indices of children count within a mesh
        "noct": int(cells.sum()),
        "mesh_octnum": cells,
        "mesh_octadr": or_minus_one(addresses(cells), cells),
        "oct_depth": np.concatenate([np.zeros(0, int), *(octree.depth for octree in octrees)]),
        "oct_child": _stacked([octree.child for octree in octrees], 8),
        "oct_aabb": _stacked([octree.aabb for octree in octrees], 6),
        "oct_coeff": _stacked([octree.coeff for octree in octrees], 8),
        "nmesh": len(meshes),
    }
    fields["mesh_texcoordadr"] = or_minus_one(fields["mesh_texcoordadr"], fields["mesh_texcoordnum"])
    draft.fields.update(fields | tree_fields(fields) | facet_fields(fields) | rounding_fields(fields))


def _stacked(arrays: list[Array], width: int) -> Array:
    """The rows of all arrays (k, width), one array after the other."""
    return np.concatenate([np.zeros((0, width), arrays[0].dtype), *arrays]) if arrays else np.zeros((0, width))


def _blocks(name: str, size: str, arrays: list[Array], width: int) -> Fields:
    """The rows of all meshes, one mesh after the other, with the count and address of each mesh."""
    number = np.array([len(array) for array in arrays], int)
    rows = _stacked(arrays, width)
    return {name: rows, name + "num": number, name + "adr": addresses(number), size: len(rows)}


def _hull_fields(meshes: list[Mesh]) -> Fields:
    """Graphs and polygons of all hulls; indices of vertices and polygons count within a mesh."""
    graphs = [graph(mesh.hull) if mesh.hull else np.zeros(0, int) for mesh in meshes]
    length = np.array([len(numbers) for numbers in graphs], int)
    empty = Polygons(np.zeros(0, int), np.zeros(0, int))
    sides = [mesh.polygons or empty for mesh in meshes]
    number = np.array([len(polygons.count) for polygons in sides], int)
    around = [polygons_of_vertices(mesh.polygons or empty, len(mesh.surface.vertex)) for mesh in meshes]
    joined = {
        "mesh_graph": graphs,
        "mesh_polyvertnum": [polygons.count for polygons in sides],
        "mesh_polyvert": [polygons.vertex for polygons in sides],
        "mesh_polymapnum": [count for count, _ in around],
        "mesh_polymap": [owners for _, owners in around],
    }
    fields: Fields = {name: np.concatenate([np.zeros(0, int), *arrays]) for name, arrays in joined.items()}
    return fields | {
        "nmeshgraph": len(fields["mesh_graph"]),
        "mesh_graphadr": or_minus_one(addresses(length), length),
        "nmeshpoly": int(number.sum()),
        "mesh_polynum": number,
        "mesh_polyadr": addresses(number),
        "mesh_polynormal": _stacked([mesh.polynormal for mesh in meshes], 3),
        "nmeshpolyvert": len(fields["mesh_polyvert"]),
        "mesh_polyvertadr": addresses(fields["mesh_polyvertnum"]),
        "nmeshpolymap": len(fields["mesh_polymap"]),
        "mesh_polymapadr": addresses(fields["mesh_polymapnum"]),
    }
