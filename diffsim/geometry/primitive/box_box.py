"""Two boxes: separating axes, then the overlap of two faces, up to eight points.

The axis of least penetration among 6 face normals and 9 edge products chooses a reference face on one box and a face
(or edge, or corner) of the other, the incident one. The incident feature is projected along the contact normal to the
reference face and clipped by it. The 24 candidate points (16 crossings of edges, 4 corners of the reference face, 4
of the incident one) and the rules that drop some of them are MuJoCo's (`engine_collision_box.c`, 3.8.1), so that
contact sets agree; the first eight that remain are rows.
Source: Gottschalk et al. 1996 for the axes; Ericson 2005, ch. 5.5, for the clipping.
"""

import functools

import jax
import jax.numpy as jnp

from diffsim.geometry.primitive.box_axes import least_axis
from diffsim.geometry.primitive.box_clip import clip
from diffsim.geometry.primitive.box_overlap import Overlap, edge_overlap, face_overlap
from diffsim.geometry.shapes import Candidates, Shape
from diffsim.math.vector import mul_vec, pack, scale, total, transpose, unpack
from diffsim.xla.barriers import one_by_one, stored

Array = jax.Array

ROWS = 8
OUTSIDE = 1.01  # relative size of the box outside of which points are dropped


def box_box(box1: Shape, box2: Shape, margin: Array) -> Candidates:
    """Up to eight points of the overlap of two faces; one normal for all of them."""
    axis = least_axis(jax.lax.stop_gradient(box1), jax.lax.stop_gradient(box2))
    face, edge = face_overlap(box1, box2, axis), edge_overlap(box1, box2, axis)
    is_edge = axis.code >= 12
    overlap = Overlap(*(jnp.where(is_edge, b, a) for a, b in zip(face, edge, strict=True)))
    points = stored(clip(overlap, margin))
    pos = stored(overlap.origin[None] + pack(_coordinates(transpose(overlap.frame), points.point)))
    valid = stored(points.valid & (axis.depth >= -margin) & _kept(pos, box1, box2, margin))
    valid &= ~_repeated(points.point, valid)
    row, filled = _first(valid)
    normal = scale(mul_vec(overlap.frame, overlap.normal), overlap.sign)
    normals = jnp.broadcast_to(normal, (ROWS, 3))
    return Candidates(points.depth[row], pos[row], normals, jnp.zeros_like(normals), filled)


def _first(valid: Array) -> tuple[Array, Array]:
    """The first eight that count, in MuJoCo's order, and whether there are so many: (8,) each."""
    count, rows = jnp.cumsum(valid), jnp.arange(ROWS)
    filled = rows < count[-1]
    # before the point of row k there are k that count
    before = jnp.sum(count[None] <= rows[:, None], axis=1)
    return jnp.where(filled, before, 0), filled


def _kept(pos: Array, box1: Shape, box2: Shape, margin: Array) -> Array:
    """False for points well outside one box that are not well inside the other."""
    outside, inside = [], []
    for box in (box1, box2):
        size = box.size + margin
        local = [jnp.abs(x) for x in _coordinates(box.mat, pos - box.pos[None])]
        outside.append(_beyond(local, size * OUTSIDE) > 0)
        inside.append(_beyond(local, size / OUTSIDE) < 0)
    return ~((outside[0] & ~inside[1]) | (outside[1] & ~inside[0]))


def _beyond(local: list[Array], size: Array) -> Array:
    """How far points (n,) reach beyond a box, negative inside, in the direction in which it is most."""
    return functools.reduce(jnp.maximum, [x - s for x, s in zip(local, size, strict=True)])


def _coordinates(mat: Array, points: Array) -> list[Array]:
    """Coordinates of points (n, 3) along the columns of one matrix (3, 3), each (n,): one elementwise operation."""
    parts = unpack(points)
    return [total([row[k] * x for row, x in zip(mat, parts, strict=True)]) for k in range(3)]


def _repeated(point: Array, valid: Array) -> Array:
    """True for points that occur again later.

    A third after another in a scan: in one go, XLA would compute whether a point counts anew for each of the others.
    """
    parts, number = unpack(jax.lax.stop_gradient(point)), jnp.arange(len(point))

    def repeated(some: tuple[Array, ...]) -> Array:
        own, *coordinates = some
        same = valid[None] & (number[None] > own[:, None])
        for x, others in zip(coordinates, parts, strict=True):
            same &= x[:, None] == others[None]
        return jnp.any(same, axis=1)

    thirds = tuple(part.reshape(3, -1) for part in (number, *parts))
    return one_by_one(repeated, thirds).reshape(-1)
