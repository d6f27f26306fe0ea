"""Data of geoms of type sdf: the parameters of their field, a box around it, and how contacts are searched.

Each geom has its own. Which function a field is stands in the class of its record, so that a program knows it;
parameters are numbers of the model. Of octrees there is one for each mesh, and all are in the same arrays.
"""

import functools
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.geometry.sdf.functions import FieldFunction
from diffsim.geometry.sdf.octree import Octree
from diffsim.geometry.sdf.primitives import Field
from diffsim.geometry.sdf.user import field_function, field_parameters
from diffsim.types.model import Model
from diffsim.types.topology import Topology

Array = jax.Array
Sizes = tuple[int, ...]


class FieldData(NamedTuple):
    """A distance field in the frame of its geom; `record_of` makes the classes of those of one function.

    `parameters` (k,) of its function. `box` (6,): center and half sides, m, of a box around its surface. `starts`
    (s, 3), from 0 to 1: where in a box searches begin. `steps` (k,): of each search. `surface` (v, 3), m: points on
    or near its surface, some of the vertices of the geom's mesh.
    """

    parameters: Array
    box: Array
    starts: Array
    steps: Array
    surface: Array

    @property
    def field(self) -> Field:
        """Its function, which a class of `record_of` has."""
        raise NotImplementedError


class OctreeData(NamedTuple):
    """An octree (`root`, `address`, `child`, `coeff`) with what else `FieldData` has; `record_of` makes classes."""

    root: Array
    address: Array
    child: Array
    coeff: Array
    box: Array
    starts: Array
    steps: Array
    surface: Array

    @property
    def parameters(self) -> Octree:
        """The octree."""
        return Octree(*self[:4])

    @property
    def field(self) -> Field:
        """Its function, which a class of `record_of` has."""
        raise NotImplementedError


Data = TypeVar("Data", FieldData, OctreeData)

# points of a surface where searches for the least gap begin
SURFACE = 512
# what all octrees share
ALL_OCTREES = ("child", "coeff")


@functools.lru_cache(64)
def record_of(function: FieldFunction, kind: type[Data]) -> type[Data]:
    """The class of the data, of a kind, of fields with one function."""
    return type("One" + kind.__name__, (kind,), {"__slots__": (), "field": function.field})


def field_number(topology: Topology, geom: int) -> Sizes:
    """The number of a geom's function, in place of padded sizes: geoms with the same function share a program."""
    return (int(topology.geom_sdf[geom]),)


def fields(model: Model, geoms: tuple[int, ...], sizes: Sizes) -> FieldData | OctreeData:
    """The fields of some geoms, stacked."""
    index = np.array(geoms)
    starts = jnp.asarray(halton(model.opt.sdf_initpoints), model.geom_aabb.dtype)
    search = (starts, jnp.arange(model.opt.sdf_iterations))
    each = [jnp.broadcast_to(part, (len(index), *part.shape)) for part in search]
    each.append(model.mesh_vert[np.stack([_some_vertices(model.topology, geom) for geom in geoms])])
    function, parameters = field_function(model, sizes[0]), field_parameters(model, index, sizes[0])
    if isinstance(parameters, Octree):
        return record_of(function, OctreeData)(*parameters, model.geom_aabb[index], *each)
    return record_of(function, FieldData)(parameters, model.geom_aabb[index], *each)


def _some_vertices(topology: Topology, geom: int) -> np.ndarray:
    """Numbers (v,) of vertices all over the mesh of a geom."""
    mesh = int(topology.geom_dataid[geom])
    share = np.linspace(0, int(topology.mesh_vertnum[mesh]) - 1, SURFACE)
    return int(topology.mesh_vertadr[mesh]) + share.round().astype(int)


def halton(count: int) -> np.ndarray:
    """The first points (count, 3) of Halton's sequence with bases 2, 3 and 5; the first is 0."""
    points = np.zeros((count, 3))
    for axis, base in enumerate((2, 3, 5)):
        number, digit = np.arange(count), 1 / base
        while number.any():
            points[:, axis] += digit * (number % base)
            number, digit = number // base, digit / base
    return points
