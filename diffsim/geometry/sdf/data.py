"""The data of sdf geoms: the function of the field, its parameters, a box around it, and the starts of searches.

Each geom has its own data. The function is a plugin of MuJoCo, an octree (octree.py), or a user's function
(`Hooks.sdf`). The class of the record holds the function, so that it is static in a compiled program; the parameters
are leaves of the model. A user's function takes points in the frame in which the mesh file is written, but the geom's
frame is the inertial frame of the mesh. The pose between the two frames is appended to the user's parameters.
"""

import functools
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.base.errors import UnsupportedError
from diffsim.geometry.sdf.functions import FUNCTIONS, Field, FieldFunction
from diffsim.geometry.sdf.octree import AXES, Octree, levels, no_sides, octree_function, octrees
from diffsim.geometry.shapes import negligible
from diffsim.math.rotation import quat_to_mat
from diffsim.math.vector import dot, mul_vec
from diffsim.types.hooks import DistanceField
from diffsim.types.model import Model
from diffsim.types.topology import Topology
from diffsim.xla.loops import scan

# the name of octrees among the names of plugins
OCTREE = "mujoco.octree"


# m^2, more than any squared distance between two points
FAR = 1e20


def repeated(point: Array, wanted: Array) -> Array:
    """(n,) whether a point (n, 3) equals an earlier one that is `wanted` (n,). No derivatives."""
    point = jax.lax.stop_gradient(point)
    offset = point[:, None] - point[None]
    same = dot(offset, offset) < negligible(point) ** 2
    earlier = np.tri(len(point), k=-1, dtype=bool)
    return jnp.any(same & earlier & wanted[None], axis=1)


def farthest_points(point: Array, value: Array, wanted: Array, count: int) -> tuple[Array, Array]:
    """Indices (count,) of chosen points (n, 3), and which of these indices exist. No derivatives.

    Among the `wanted` points (n,), the first choice has the smallest value (n,). Each next one is the point that is
    farthest from all points chosen so far.
    """
    point, value = jax.lax.stop_gradient((point, value))

    def step(apart: Array, _: None) -> tuple[Array, tuple[Array, Array]]:
        index = jnp.argmax(apart)
        offset = point - point[index][None]
        after = jnp.minimum(apart, dot(offset, offset)).at[index].set(-1)
        return after, (index, apart[index] >= 0)

    first = jnp.argmin(jnp.where(wanted, value, jnp.inf))
    apart = jnp.where(wanted, FAR, -1).astype(point.dtype).at[first].multiply(2)
    return scan(step, apart, length=count)[1]


Parameters = Array | Octree

# length of the pose after the user's parameters: position, quaternion
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
            f"the distance field '{name}' is unknown: define it by model.replace(hooks=Hooks(sdf={{'{name}': ...}}))"
        )
        raise UnsupportedError.of("<plugin>", reason)
    return _function_of(hook)


@functools.lru_cache(64)
def _function_of(hook: DistanceField) -> FieldFunction:
    """A hook as a field. One hook always gives the same object, so that compiled programs are reused."""
    return FieldFunction((), (), functools.partial(_user_distance, hook), no_sides)


def field_parameters(model: Model, geoms: np.ndarray, number: int) -> Parameters:
    """Parameters of the fields of geoms (n,) that share one function: numbers (n, k), or octrees."""
    if model.topology.sdf_names[number] == OCTREE:
        return octrees(model, geoms)
    parameters = model.geom_sdfparam[geoms]
    if model.topology.sdf_names[number] in FUNCTIONS:
        return parameters
    mesh = model.topology.geom_dataid[geoms]
    return jnp.concatenate([parameters, model.mesh_pos[mesh], model.mesh_quat[mesh]], axis=1)


def parameter_axes(parameters: Parameters) -> Any:
    """The axes for `vmap` over fields of one function."""
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
    numbers = parameters[:-POSE]
    pos = parameters[-POSE:-4]
    turn = quat_to_mat(parameters[-4:])

    def distance(place: Array) -> Array:
        return jnp.asarray(hook(mul_vec(turn, place) + pos, numbers))

    distances = jax.vmap(distance)(point.reshape(-1, 3))
    if distances.ndim != 1:
        raise ValueError(f"a distance field returned an array of shape {distances.shape[1:]}, expected one number")
    return distances.reshape(point.shape[:-1]).astype(point.dtype)


Sizes = tuple[int, ...]


class FieldData(NamedTuple):
    """A distance field in the frame of its geom; `record_of` makes one subclass for each function.

    `parameters` (k,): parameters of its function. `box` (6,): center and half sides, m, of a box around its surface.
    `starts` (s, 3): where searches begin in a box, from 0 to 1. `steps` (k,): its length is the number of steps of a
    search. `surface` (v, 3), m: points on or near the surface, some of the vertices of the geom's mesh.
    """

    parameters: Array
    box: Array
    starts: Array
    steps: Array
    surface: Array

    @property
    def field(self) -> Field:
        """The function of the field, which `record_of` puts into the class."""
        raise NotImplementedError


class OctreeData(NamedTuple):
    """An octree (`root`, `address`, `child`, `coeff`) and the other arrays of `FieldData`; see `record_of`."""

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
        """The function of the field, which `record_of` puts into the class."""
        raise NotImplementedError


Data = TypeVar("Data", FieldData, OctreeData)

# number of surface points that searches for the least gap may start from
SURFACE = 512
# the arrays that all octrees share
ALL_OCTREES = ("child", "coeff")


@functools.lru_cache(64)
def record_of(function: FieldFunction, kind: type[Data]) -> type[Data]:
    """The subclass of `kind` for fields with this function."""
    return type("One" + kind.__name__, (kind,), {"__slots__": (), "field": function.field})


def field_number(topology: Topology, geom: int) -> Sizes:
    """The number of a geom's function, used as its padded sizes: geoms with one function share a program."""
    return (int(topology.geom_sdf[geom]),)


def fields(model: Model, geoms: tuple[int, ...], sizes: Sizes) -> FieldData | OctreeData:
    """The fields of some geoms, stacked."""
    index = np.array(geoms)
    starts = jnp.asarray(halton(model.opt.sdf_initpoints), model.geom_aabb.dtype)
    search = (starts, jnp.arange(model.opt.sdf_iterations))
    per_geom = [jnp.broadcast_to(part, (len(index), *part.shape)) for part in search]
    # vertices that are spread evenly over the list of each mesh
    topology = model.topology
    mesh = model.topology.geom_dataid[index]
    share = np.linspace(0, topology.mesh_vertnum[mesh] - 1, SURFACE, axis=1).round().astype(int)
    per_geom.append(model.mesh_vert[topology.mesh_vertadr[mesh][:, None] + share])
    function = field_function(model, sizes[0])
    parameters = field_parameters(model, index, sizes[0])
    if isinstance(parameters, Octree):
        return record_of(function, OctreeData)(*parameters, model.geom_aabb[index], *per_geom)
    return record_of(function, FieldData)(parameters, model.geom_aabb[index], *per_geom)


def halton(count: int) -> np.ndarray:
    """The first points (count, 3) of Halton's sequence with bases 2, 3 and 5; the first is 0."""
    points = np.zeros((count, 3))
    for axis, base in enumerate((2, 3, 5)):
        number = np.arange(count)
        digit = 1 / base
        while number.any():
            points[:, axis] += digit * (number % base)
            number = number // base
            digit = digit / base
    return points
