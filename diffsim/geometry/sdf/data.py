"""Data of geoms of type sdf: which function their field is, its parameters, a box around it, how contacts are searched.

Each geom has its own. The function is one of MuJoCo's plugins, an octree, or one of the user's (`Hooks.sdf`); which one
stands in the class of its record, so that a program knows it; parameters are numbers of the model. Of octrees there is
one for each mesh, and all are in the same arrays. A function of the user's is of points in the frame in which the
geom's mesh is written; the mesh itself, and so the geom, is in its inertial frame. The pose between them follows the
user's numbers in the parameters.
"""

import functools
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.base.errors import Problem, UnsupportedError
from diffsim.geometry.sdf.functions import FUNCTIONS, FieldFunction
from diffsim.geometry.sdf.octree import AXES, OCTREE, Octree, levels, octree_function, octrees
from diffsim.geometry.sdf.primitives import Field
from diffsim.geometry.shapes import negligible
from diffsim.math.rotation import quat_to_mat
from diffsim.math.vector import dot, mul_vec
from diffsim.types.hooks import DistanceField
from diffsim.types.model import Model
from diffsim.types.topology import Topology

Array = jax.Array

FAR = 1e20  # square metres


def repeated(point: Array, wanted: Array) -> Array:
    """Which of points (n, 3) are where an earlier one that is wanted (n,) is. No derivatives."""
    point = jax.lax.stop_gradient(point)
    offset = point[:, None] - point[None]
    same = dot(offset, offset) < negligible(point) ** 2
    earlier = np.tri(len(point), k=-1, dtype=bool)
    return jnp.any(same & earlier & wanted[None], axis=1)


def spread(point: Array, value: Array, wanted: Array, count: int) -> tuple[Array, Array]:
    """Indices (count,) of points (n, 3), and which of them there are. No derivatives.

    The first is that of least value (n,) among the wanted (n,), each next one the farthest from those before it.
    """
    point, value = jax.lax.stop_gradient((point, value))

    def step(apart: Array, _: None) -> tuple[Array, tuple[Array, Array]]:
        index = jnp.argmax(apart)
        offset = point - point[index][None]
        after = jnp.minimum(apart, dot(offset, offset)).at[index].set(-1)
        return after, (index, apart[index] >= 0)

    first = jnp.argmin(jnp.where(wanted, value, jnp.inf))
    apart = jnp.where(wanted, FAR, -1).astype(point.dtype).at[first].multiply(2)
    return jax.lax.scan(step, apart, length=count)[1]


Parameters = Array | Octree

# the pose behind the user's parameters: position, quaternion
POSE = 7


def field_function(model: Model, number: int) -> FieldFunction:
    """The function with a number of `sdf_names`.

    Raises:
      UnsupportedError: it is the user's, and the model has no hook of its name.
    """
    name = model.topology.sdf_names[number]
    if name in FUNCTIONS:
        return FUNCTIONS[name]
    if name == OCTREE:
        return octree_function(levels(model.topology))
    hook = dict(model.hooks.sdf or ()).get(name)
    if hook is None:
        reason = (
            f"the distance field '{name}' is unknown: model.replace(hooks=Hooks(sdf={{'{name}': ...}})) says what it is"
        )
        raise UnsupportedError([Problem("", 0, "<plugin>", reason, unsupported=True)])
    return _function_of(hook)


@functools.lru_cache(64)
def _function_of(hook: DistanceField) -> FieldFunction:
    """A hook as a field; the same each time, so that programs know it again."""
    return FieldFunction((), (), functools.partial(_user_distance, hook), _no_sides)


def field_parameters(model: Model, geoms: np.ndarray, number: int) -> Parameters:
    """Parameters of the fields of geoms (n,), all with one function: numbers (n, k), or octrees."""
    if model.topology.sdf_names[number] == OCTREE:
        return octrees(model, geoms)
    own = model.geom_sdfparam[geoms]
    if model.topology.sdf_names[number] in FUNCTIONS:
        return own
    mesh = model.topology.geom_dataid[geoms]
    return jnp.concatenate([own, model.mesh_pos[mesh], model.mesh_quat[mesh]], axis=1)


def parameter_axes(parameters: Parameters) -> Any:
    """For `vmap` over fields of one function."""
    return AXES if isinstance(parameters, Octree) else 0


def parameter_rows(parameters: Parameters, row: Array) -> Parameters:
    """The parameters of some of the fields (k,)."""
    if isinstance(parameters, Octree):
        return parameters._replace(root=parameters.root[row], address=parameters.address[row])
    return parameters[row]


def _user_distance(hook: DistanceField, parameters: Array, point: Array) -> Array:
    """Distances (...) of points (..., 3) in the geom's frame.

    Raises:
      ValueError: the hook returns something else than one number.
    """
    own, pos, turn = parameters[:-POSE], parameters[-POSE:-4], quat_to_mat(parameters[-4:])

    def distance(place: Array) -> Array:
        return jnp.asarray(hook(mul_vec(turn, place) + pos, own))

    found = jax.vmap(distance)(point.reshape(-1, 3))
    if found.ndim != 1:
        raise ValueError(f"a distance field returned an array of shape {found.shape[1:]}, expected one number")
    return found.reshape(point.shape[:-1]).astype(point.dtype)


def _no_sides(parameters: Array) -> list[Array]:
    """The surface of a user's field is its mesh."""
    return []


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
