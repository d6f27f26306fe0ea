"""Pair functions of shapes without a closed form: ellipsoids and cylinders with others, and boxes with capsules.

The signed distance is the maximum of a gap over all unit vectors (meshes: round_hulls.py; others: separate.py).
If both shapes have flat directions (cylinders, capsules, boxes, meshes), MuJoCo's `multiccd` runs four more times, with
the shapes tilted against each other, and keeps the new points. The same is done here.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.base.enums import GeomType
from diffsim.geometry.hull.polytope import ball_around
from diffsim.geometry.shapes import Candidates, Shape, candidate, stack
from diffsim.geometry.smooth.minkowski import Kinds, minkowski_sums
from diffsim.geometry.smooth.round_hulls import separate_round
from diffsim.geometry.smooth.separate import separate
from diffsim.math import safe
from diffsim.math.rotation import frame_from_z, quat_exp, quat_to_mat
from diffsim.math.vector import dot, mul_mat, mul_vec, scale, transpose
from diffsim.xla.loops import scan
from diffsim.xla.select import if_anywhere, where_tree

# angle of a tilt, rad
TILT = 1e-3
# for each run, its angles about two axes perpendicular to the normal, and 1 for the run without tilt
TILTS = np.array([[0, 0, 1], [-TILT, 0, 0], [TILT, 0, 0], [0, -TILT, 0], [0, TILT, 0]])
# two points are distinct at this distance, relative to the smaller bounding radius
DISTINCT = 1e-3


def convex_pair(kind1: GeomType, kind2: GeomType, rows: int) -> Callable[..., Candidates]:
    """Pair function with one row (the closest points) or five (also the closest points of four tilted runs)."""
    if rows > 1:
        return functools.partial(_closest_and_tilted, (kind1, kind2))

    def closest(shape1: Shape, shape2: Shape, margin: Array, near: Array | bool = True) -> Candidates:
        return stack([candidate(*separation((kind1, kind2), shape1, shape2, near))])

    return closest


def separation(kinds: Kinds, shape1: Shape, shape2: Shape, near: Array | bool) -> tuple[Array, Array, Array]:
    """(signed distance, midpoint of the closest points, unit normal from the first body to the second)."""
    if kinds[1] == GeomType.MESH:
        return separate_round(kinds[0], shape1, shape2.data, shape2, near)
    return separate(minkowski_sums(kinds, shape1, shape2), near)


def _closest_and_tilted(
    kinds: Kinds, shape1: Shape, shape2: Shape, margin: Array, near: Array | bool = True
) -> Candidates:
    """The closest points, and the closest points of four runs tilted about them; one program runs five times."""

    def run(first: tuple[Array, ...], tilt: Array) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
        *upright, wanted = first
        _, across, along = frame_from_z(upright[2])
        turn = quat_to_mat(quat_exp(scale(across, tilt[0]) + scale(along, tilt[1])))
        # both shapes turn about the closest point, in opposite directions
        point = upright[1]
        turned = [
            shape._replace(pos=point + mul_vec(rotation, shape.pos - point), mat=mul_mat(rotation, shape.mat))
            for shape, rotation in ((shape1, turn), (shape2, transpose(turn)))
        ]
        closest = if_anywhere(wanted, lambda: separation(kinds, turned[0], turned[1], wanted), tuple(upright))
        touches = jax.lax.stop_gradient(closest[0] < margin) & near
        return where_tree(tilt[2] > 0, (*closest, touches), first), closest

    start = (jnp.zeros_like(margin), shape1.pos, shape1.axis, jnp.asarray(near))
    _, (dists, points, normals) = scan(run, start, jnp.asarray(TILTS, margin.dtype))
    dist = dists[0]
    radius = safe.minimum(_bound(kinds[0], shape1), _bound(kinds[1], shape2))
    rows = [candidate(dist, points[0], normals[0])]
    for k in range(1, 5):
        # a point counts if it touches and is away from all earlier points
        distinct = jax.lax.stop_gradient(safe.maximum(dist, dists[k])) < jax.lax.stop_gradient(margin)
        for row in rows:
            apart = jax.lax.stop_gradient(safe.norm(row.pos - points[k])) > DISTINCT * radius
            distinct = distinct & (apart | ~row.valid)
        rows.append(candidate(dist, points[k], normals[k], valid=distinct))
    return stack(rows)


def _bound(kind: GeomType, shape: Shape) -> Array:
    """Radius of the bounding ball."""
    size = jax.lax.stop_gradient(shape.size)
    bounds = {
        GeomType.CAPSULE: lambda: size[0] + size[1],
        GeomType.CYLINDER: lambda: jnp.sqrt(size[0] ** 2 + size[1] ** 2),
        GeomType.BOX: lambda: jnp.sqrt(dot(size, size)),
        GeomType.MESH: lambda: jax.lax.stop_gradient(ball_around(shape.data.box)),
    }
    return bounds[kind]()
