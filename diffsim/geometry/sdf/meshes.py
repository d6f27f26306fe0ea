"""Contacts of a mesh with a signed distance field: where its triangles, one by one, are deepest in the field.

The deepest point of a triangle is searched for by Frank and Wolfe's method, from its corners: a first step from any
point of it leads to one of them. Points are mixtures of the corners; the shares are not differentiated, distance,
position and normal are. The distance is that of the field, and the normal is against its gradient.

Where there are too many triangles or points, those are looked at that are far from each other, beginning with the
deepest. MuJoCo's source says the same, but 3.8.1 stops at the 50th point that it finds, each of them counted once for
every start from which it is reached. Source: `mjc_MeshSDF` of engine_collision_sdf.c (3.8.1).
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.geometry.hull.tables import Sizes, padded
from diffsim.geometry.sdf.data import FieldData, halton, repeated, spread
from diffsim.geometry.shapes import Candidates, Shape, relative_pose
from diffsim.math import safe
from diffsim.math.vector import cross, dot, mul_vec, scale, total
from diffsim.types.model import Model
from diffsim.types.topology import Topology
from diffsim.xla.gather import pick

Array = jax.Array

# triangles that are looked at closely, and rows
TRIANGLES, ROWS = 64, 50


class Triangles(NamedTuple):
    """All triangles of a mesh: `corner` (f, 3, 3), m, in the frame of its geom, and which of them there are (f,)."""

    corner: Array
    real: Array


def triangle_sizes(topology: Topology, mesh: int) -> Sizes:
    """The padded number of a mesh's triangles."""
    return (padded(int(topology.mesh_facenum[mesh])),)


def triangles_of(model: Model, meshes: tuple[int, ...], sizes: Sizes) -> Triangles:
    """The triangles of some meshes, stacked."""
    topology = model.topology
    vertex, real = np.zeros((len(meshes), sizes[0], 3), np.int32), np.zeros((len(meshes), sizes[0]), bool)
    for row, mesh in enumerate(meshes):
        first, count = int(topology.mesh_faceadr[mesh]), int(topology.mesh_facenum[mesh])
        vertex[row, :count] = topology.mesh_face[first : first + count] + topology.mesh_vertadr[mesh]
        real[row, :count] = True
    return Triangles(pick(model.mesh_vert, vertex), jnp.asarray(real))


def mesh_field(mesh: Shape, other: Shape, margin: Array) -> Candidates:
    """Pair function of a mesh and an sdf geom."""
    corner = seen_from(mesh, other)
    still = jax.lax.stop_gradient(corner)
    data = jax.lax.stop_gradient(other.data)
    middle = scale(total([still[:, k] for k in range(3)]), jnp.full(len(still), 1 / 3, still.dtype))
    depth = data.field.distance(data.parameters, middle)
    near = mesh.data.real & (depth < _circumradius(still))
    if len(corner) > TRIANGLES:
        chosen, near = spread(middle, depth, near, TRIANGLES)
        corner, still = corner[chosen], still[chosen]
    share, reached = _deepest(data, still)
    point = _mixed(corner, share).reshape(-1, 3)
    dist = data.field.distance(other.data.parameters, point)
    wanted = (near[:, None] & reached).reshape(-1) & (jax.lax.stop_gradient(dist) < 0)
    rows, valid = spread(point, dist, wanted & ~repeated(point, wanted), ROWS)
    return _contacts(other, point[rows], dist[rows], valid)


def seen_from(mesh: Shape, other: Shape) -> Array:
    """Corners (f, 3, 3) of the mesh's triangles in the frame of another shape."""
    turn, shift = relative_pose(other, mesh)
    corner = mesh.data.corner
    return mul_vec(jnp.broadcast_to(turn, (*corner.shape, 3)), corner) + jnp.broadcast_to(shift, corner.shape)


def _circumradius(corner: Array) -> Array:
    """Radii (f,), m, of circles around triangles (f, 3, 3): in none that is further away the field can be negative."""
    sides = [corner[:, (k + 1) % 3] - corner[:, k] for k in range(3)]
    a, b, c = (safe.norm(side) for side in sides)
    twice = safe.norm(cross(sides[0], sides[1]))
    # of flat triangles the length of their sides
    return jnp.where(twice > 1e-15, a * b * c / jnp.maximum(2 * twice, 1e-15), a + b + c)


def _deepest(data: FieldData, corner: Array) -> tuple[Array, Array]:
    """Shares (f, m, 3) of the corners in the points where m searches on each triangle end, and which are made (f, m).

    MuJoCo starts at the same points of all triangles; without any iteration these are where searches end.
    """
    one, other = halton(max(1, len(data.starts)) + 1)[1:, :2].T
    one, other = (np.where(one + other > 1, 1 - each, each) for each in (one, other))
    start = jnp.asarray(np.stack([1 - one - other, one, other], axis=1), corner.dtype)
    start = jnp.broadcast_to(start, (len(corner), *start.shape))
    if not len(data.steps):
        return start, jnp.ones(start.shape[:2], bool)
    reached = jnp.any(_lowest(data, corner, start), axis=1)
    share = jnp.broadcast_to(jnp.eye(3, dtype=corner.dtype), (len(corner), 3, 3))
    length = jnp.asarray(2 / (np.arange(1, len(data.steps)) + 2), corner.dtype)
    return jax.lax.scan(partial(_step, data, corner), share, length)[0], reached


def _step(data: FieldData, corner: Array, share: Array, length: Array) -> tuple[Array, None]:
    """Points after a step towards the corner that lies lowest."""
    return share + length * (_lowest(data, corner, share).astype(share.dtype) - share), None


def _lowest(data: FieldData, corner: Array, share: Array) -> Array:
    """Which corner lies lowest along the gradient at each point: truths (f, m, 3) of shares (f, m, 3)."""
    slope = data.field.gradient(data.parameters, _mixed(corner, share))
    heights = jnp.stack([dot(slope, jnp.broadcast_to(corner[:, None, k], slope.shape)) for k in range(3)], axis=2)
    return jnp.argmin(heights, axis=2)[..., None] == np.arange(3)[None, None]


def _mixed(corner: Array, share: Array) -> Array:
    """Points (f, m, 3) of triangles (f, 3, 3) by the shares (f, m, 3) of their corners."""
    return total([share[:, :, k, None] * corner[:, None, k] for k in range(3)])


def _contacts(other: Shape, point: Array, dist: Array, valid: Array) -> Candidates:
    """Rows at points (n, 3) of a field; where its gradient vanishes there is none."""
    slope = other.data.field.gradient(other.data.parameters, point)
    mat = jnp.broadcast_to(other.mat, (*point.shape, 3))
    normal = mul_vec(mat, -safe.normalize(slope))
    pos = other.pos[None] + mul_vec(mat, point) - scale(normal, 0.5 * dist)
    flat = jax.lax.stop_gradient(safe.norm(slope)) < 1e-15
    return Candidates(dist, pos, normal, jnp.zeros_like(normal), valid & ~flat)
