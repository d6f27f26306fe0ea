"""The meshes of several models in one table, where equal meshes are stored once (simulate/stack.py)."""

import dataclasses
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from diffsim.geometry.hull.tables import facet_fields
from diffsim.geometry.rays.bvh import tree_fields
from diffsim.types.model import Model
from diffsim.types.topology import Topology, rows_of

# for each size, the field with the first row of each mesh, and the fields that have so many rows; what these fields say
# of a mesh does not depend on where its rows are
BLOCKS: dict[str, tuple[str, tuple[str, ...]]] = {
    "nmesh": ("", ("mesh_scale", "mesh_pos", "mesh_quat")),
    "nmeshvert": ("mesh_vertadr", ("mesh_vert", "mesh_polymapnum")),
    "nmeshnormal": ("mesh_normaladr", ("mesh_normal",)),
    "nmeshtexcoord": ("mesh_texcoordadr", ("mesh_texcoord",)),
    "nmeshface": ("mesh_faceadr", ("mesh_face", "mesh_facenormal", "mesh_facetexcoord")),
    "nmeshgraph": ("mesh_graphadr", ("mesh_graph",)),
    "nmeshpoly": ("mesh_polyadr", ("mesh_polynormal", "mesh_polyrounding", "mesh_polyvertnum")),
    "nmeshpolyvert": ("", ("mesh_polyvert",)),
    "nmeshpolymap": ("", ("mesh_polymap",)),
    "noct": ("mesh_octadr", ("oct_depth", "oct_child", "oct_aabb", "oct_coeff")),
}
# the fields with the number of rows of each mesh
COUNTS = {
    "nmeshvert": "mesh_vertnum",
    "nmeshnormal": "mesh_normalnum",
    "nmeshtexcoord": "mesh_texcoordnum",
    "nmeshface": "mesh_facenum",
    "nmeshpoly": "mesh_polynum",
    "noct": "mesh_octnum",
}
# the address of a mesh without such rows is -1
OPTIONAL = ("mesh_texcoordadr", "mesh_graphadr", "mesh_octadr")

Rows = dict[str, np.ndarray]


class MeshFields(NamedTuple):
    """The fields of all meshes of a library: those of a Topology, those of a Model, and the names."""

    integers: dict[str, Any]
    floats: dict[str, np.ndarray]
    names: tuple[str, ...]


# the beginnings of the names of all fields about meshes
PREFIXES = ("mesh_", "nmesh", "oct_", "noct")


def without_meshes(model: Model) -> Model:
    """The model with empty fields about meshes, to save memory."""
    topology = model.topology
    empty = {
        name: 0 if isinstance(getattr(topology, name), int) else getattr(topology, name)[:0]
        for name in Topology.__dataclass_fields__
        if name.startswith(PREFIXES)
    }
    leaves = {
        name: np.asarray(getattr(model, name))[:0] for name in Model.__dataclass_fields__ if name.startswith(PREFIXES)
    }
    return dataclasses.replace(model, topology=dataclasses.replace(topology, **empty), **leaves)


class MeshLibrary:
    """Meshes of several models. Meshes with equal names and contents are stored once."""

    def __init__(self) -> None:
        self._meshes: list[Rows] = []
        self._names: list[str] = []
        self._uses: Counter[str] = Counter()
        self._known: dict[tuple[bytes, ...], int] = {}

    def add(self, model: Model) -> np.ndarray:
        """Adds the meshes of a model; returns the number (nmesh,) of each in this library."""
        values = {field: np.asarray(getattr(model, field)) for _, fields in BLOCKS.values() for field in fields}
        return np.array([self._add(model.topology, values, mesh) for mesh in range(model.topology.nmesh)], np.int32)

    def _add(self, topology: Topology, values: Mapping[str, np.ndarray], mesh: int) -> int:
        """The number of one mesh of a model in this library."""
        rows = {
            field: values[field][_rows_of_mesh(topology, size, mesh)]
            for size, (_, fields) in BLOCKS.items()
            for field in fields
        }
        name = topology.name("mesh", mesh)
        content = (name.encode(), *(part.tobytes() for part in rows.values()))
        if content not in self._known:
            self._known[content] = len(self._meshes)
            self._meshes.append(rows)
            # in other models, other meshes may have this name
            self._uses[name] += 1
            self._names.append(f"{name}:{self._uses[name] - 1}" if name and self._uses[name] > 1 else name)
        return self._known[content]

    def fields(self) -> MeshFields:
        """The fields of all meshes; none for models without meshes."""
        if not self._meshes:
            return MeshFields({}, {}, ())
        joined = {
            field: np.concatenate([rows[field] for rows in self._meshes])
            for _, fields in BLOCKS.values()
            for field in fields
        }
        fields: dict[str, Any] = dict(joined)
        for size, (address, (first, *_)) in BLOCKS.items():
            counts = np.array([len(rows[first]) for rows in self._meshes])
            fields[size] = int(counts.sum())
            if address:
                begin = _addresses(counts)
                fields[address] = np.where(counts > 0, begin, -1) if address in OPTIONAL else begin
            if size in COUNTS:
                fields[COUNTS[size]] = counts
        # where the corners of each polygon, and the polygons of each vertex, begin
        fields["mesh_polyvertadr"] = _addresses(joined["mesh_polyvertnum"])
        fields["mesh_polymapadr"] = _addresses(joined["mesh_polymapnum"])
        fields |= tree_fields(fields) | facet_fields(fields)
        topology = {name: fields[name] for name in fields if name in Topology.__dataclass_fields__}
        floats = {name: fields[name] for name in fields if name in Model.__dataclass_fields__}
        return MeshFields(topology, floats, tuple(self._names))


def _addresses(counts: np.ndarray) -> np.ndarray:
    """Where the rows of each object begin, given their numbers."""
    return np.cumsum(counts) - counts


def _rows_of_mesh(topology: Topology, size: str, mesh: int) -> slice:
    """The rows of a mesh in the fields with `size` rows."""
    if size in COUNTS:
        # "mesh_vert" of "mesh_vertadr"
        return rows_of(topology, BLOCKS[size][0].removesuffix("adr"), mesh)
    return SLICES[size](topology, mesh)


def _graph_rows(topology: Topology, mesh: int) -> slice:
    """The graph of a mesh: two counts, then 2 numbers a vertex, the neighbours with their ends, and the faces."""
    first = int(topology.mesh_graphadr[mesh])
    if first < 0:
        return slice(0, 0)
    vertices, faces = topology.mesh_graph[first : first + 2].tolist()
    return slice(first, first + 2 + 3 * vertices + 6 * faces)


def _rows_within(address: str, count: str, owner: str) -> Callable[[Topology, int], slice]:
    """A function that returns the rows of a mesh, where the rows belong to objects `owner` of the mesh."""

    def rows(topology: Topology, mesh: int) -> slice:
        owners = rows_of(topology, owner, mesh)
        first, number = (getattr(topology, field)[owners] for field in (address, count))
        return slice(int(first[0]), int(first[0] + number.sum())) if len(first) else slice(0, 0)

    return rows


SLICES: dict[str, Callable[[Topology, int], slice]] = {
    "nmesh": lambda topology, mesh: slice(mesh, mesh + 1),
    "nmeshgraph": _graph_rows,
    "nmeshpolyvert": _rows_within("mesh_polyvertadr", "mesh_polyvertnum", "mesh_poly"),
    "nmeshpolymap": _rows_within("mesh_polymapadr", "mesh_polymapnum", "mesh_vert"),
}
