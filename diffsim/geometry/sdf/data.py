"""The data of sdf geoms: the function of the field, its parameters, a box around it, and the starts of searches.

Each geom has its own data. The function is a plugin of MuJoCo, an octree, or a user's function (`Hooks.sdf`). The class
of the record holds the function, so that it is static in a compiled program; the parameters are leaves of the model. A
user's function takes points in the frame in which the mesh file is written, but the geom's frame is the inertial frame
of the mesh. The pose between the two frames is appended to the user's parameters.

An octree is the field of a mesh. In each leaf, it interpolates trilinearly between the values at the corners. Each mesh
has one octree, and all octrees share the same arrays. For a point outside the root's box, the field is the value at the
nearest point just inside the box, plus the distance to the box. The direction that searches follow is not the
derivative, as in MuJoCo. It is the derivative with respect to coordinates that go from 0 to 1 across the leaf. So it
is turned in leaves that are not cubes, and shorter in small leaves. The choice of the leaf is not differentiated. Only
the root's box is read; the boxes of the other cells follow by halving it.
Source: `oct_distance` and `oct_gradient` of engine_collision_sdf.c (3.8.1).
"""

import functools
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.base.errors import UnsupportedError
from diffsim.geometry.sdf.functions import FUNCTIONS, Field, FieldFunction
from diffsim.geometry.shapes import negligible
from diffsim.math import safe
from diffsim.math.rotation import quat_to_mat
from diffsim.math.vector import dot, mul_vec, pack, unpack
from diffsim.types.hooks import DistanceField
from diffsim.types.model import Model
from diffsim.types.topology import Topology, per_topology
from diffsim.xla.loops import fori_loop, scan

# the name of octrees among the names of plugins
OCTREE = "mujoco.octree"
# m, depth below the faces of the root's box to which points from outside are moved
INSIDE = 1e-6


class Octree(NamedTuple):
    """The octree of a mesh, and the cells of all octrees.

    `root` (6,): center and half sides of its root, m. `address` (): index of its root among all cells. `child` (noct,):
    index of the first of eight children, relative to the root; -1 for a leaf. `coeff` (noct, 8): signed distances at
    the corners, m.
    """

    root: Array
    address: Array
    child: Array
    coeff: Array


# for `vmap` over octrees
AXES = Octree(0, 0, None, None)  # type: ignore[arg-type]


class _Inside(NamedTuple):
    """Points (..., 3) moved into the root's box, which coordinates were moved, and by how much, m."""

    point: Array
    moved: Array
    beyond: Array


class _Place(NamedTuple):
    """Values (..., 8) at the corners of leaves, and the points' coordinates (..., 3) in their leaves, from 0 to 1.

    `along` (..., 1): side of the root / side of the leaf.
    """

    corner: Array
    within: Array
    along: Array


def octrees(model: Model, geoms: np.ndarray) -> Octree:
    """The octrees of the meshes of some geoms, stacked."""
    topology = model.topology
    address = topology.mesh_octadr[topology.geom_dataid[geoms]].astype(np.int32)
    child = jnp.asarray(topology.oct_child[:, 0].astype(np.int32))
    return Octree(model.oct_aabb[address], jnp.asarray(address), child, model.oct_coeff)


@per_topology
def levels(topology: Topology) -> int:
    """The number of levels below the root, of the deepest octree."""
    return int(topology.oct_depth.max(initial=0))


@functools.lru_cache(64)
def octree_function(depth: int) -> FieldFunction:
    """The field of octrees with at most `depth` levels below the root."""
    distance, direction = (functools.partial(function, depth) for function in (octree_distance, octree_direction))
    return FieldFunction((), (), distance, _no_sides, direction)


def octree_distance(depth: int, octree: Octree, point: Array) -> Array:
    """Signed distances (...) of points (..., 3), m."""
    inside = _inside(octree.root, point)
    place = _place(depth, octree, inside.point)
    x, y, z = unpack(place.within)
    value = _between(z, _between(y, _along_x(place.corner, x)))[0]
    return value + safe.norm(inside.beyond)


def octree_direction(depth: int, octree: Octree, point: Array) -> Array:
    """Derivatives (..., 3) of the distance: inside the root by coordinates of the leaf, m; outside by `point`."""
    inside = _inside(octree.root, point)
    place = _place(depth, octree, inside.point)
    x, y, z = unpack(place.within)
    # values between the corners along x, then along y, and how they grow along each axis
    along_y = _along_x(place.corner, x)
    along_z = _between(y, along_y)
    by_x = [place.corner[..., k + 1] - place.corner[..., k] for k in (0, 2, 4, 6)]
    by_y = [along_y[k + 1] - along_y[k] for k in (0, 2)]
    rise = pack([_between(z, _between(y, by_x))[0], _between(z, by_y)[0], along_z[1] - along_z[0]])
    side = 2 * _sides(octree.root, point)[1] / place.along
    outside = jnp.where(inside.moved, safe.normalize(inside.beyond), rise / side)
    return jnp.where(jnp.any(inside.moved, axis=-1, keepdims=True), outside, rise)


def _inside(root: Array, point: Array) -> _Inside:
    """Points moved into the root's box; points that are inside stay."""
    center, half = _sides(root, point)
    off = point - center
    past = jnp.abs(off) - half
    outside = jnp.any(past > 0, axis=-1, keepdims=True)
    moved = outside & (past >= 0)
    upper = off > 0
    border = center + jnp.where(upper, 1, -1) * (half - INSIDE)
    beyond = jnp.where(moved, jnp.where(upper, past, -past), 0)
    return _Inside(jnp.where(moved, border, point), moved, beyond)


def _sides(root: Array, point: Array) -> tuple[Array, Array]:
    """Center and half sides of the root, repeated for each point (..., 3)."""
    return jnp.broadcast_to(root[:3], point.shape), jnp.broadcast_to(root[3:], point.shape)


def _place(depth: int, octree: Octree, point: Array) -> _Place:
    """The leaves that contain points (..., 3)."""
    center, half = _sides(octree.root, point)
    low = center - half
    high = center + half
    share = (point - low) / (high - low)
    node, corner, count = _leaf(depth, octree, jax.lax.stop_gradient(share))
    return _Place(_at(octree.coeff, node), share * count - corner, count)


def _leaf(depth: int, octree: Octree, share: Array) -> tuple[Array, Array, Array]:
    """Leaves (...), their lower corners (..., 3) in units of their sides, and side of root / side of leaf (..., 1).

    `share` (..., 3): coordinates in the root, from 0 to 1.
    """

    def step(_: int, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        node, corner, count = carry
        child = _at(octree.child, node)
        upper = (2 * (share * count - corner) >= 1).astype(share.dtype)
        x, y, z = unpack(upper.astype(jnp.int32))
        below = (child >= 0)[..., None]
        node = jnp.where(below[..., 0], octree.address + child + x + 2 * y + 4 * z, node)
        return node, jnp.where(below, 2 * corner + upper, corner), jnp.where(below, 2 * count, count)

    node = jnp.broadcast_to(octree.address, share.shape[:-1])
    start = node, jnp.zeros_like(share), jnp.ones_like(share[..., :1])
    return fori_loop(0, depth, step, start)


def _at(table: Array, node: Array) -> Array:
    """Rows of a table of all cells."""
    return table.at[node].get(mode="promise_in_bounds")


def _along_x(corner: Array, x: Array) -> list[Array]:
    """Values on the four edges along x, between corners (..., 8)."""
    return _between(x, [corner[..., k] for k in range(8)])


def _between(share: Array, values: list[Array]) -> list[Array]:
    """Linear interpolation in each two successive values."""
    return [(1 - share) * low + share * high for low, high in zip(values[::2], values[1::2], strict=True)]


def _no_sides(parameters: Array) -> list[Array]:
    """An empty list: octrees and users' fields have a mesh, so the compiler does not search for their surface."""
    return []


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
    return FieldFunction((), (), functools.partial(_user_distance, hook), _no_sides)


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
