"""Pairs of ellipsoids, cylinders, capsules, boxes and spheres without a closed form, and of the first two with meshes.

The closest points come from separation.py, those of meshes from round_hull.py. Where both shapes have flat directions
(cylinders, capsules, boxes, meshes), MuJoCo runs four more times with the shapes tilted against each other and keeps
the points that are new (`multiccd`); the same is done here, with the four runs side by side.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.base.enums import GeomType
from diffsim.geometry.shapes import Candidates, Shape, candidate, stack
from diffsim.geometry.smooth.minkowski import Kinds, minkowski_sums
from diffsim.geometry.smooth.round_hull import separate_round
from diffsim.geometry.smooth.separation import separate
from diffsim.math import safe
from diffsim.math.rotation import axis_angle_to_quat, frame_from_z, quat_to_mat
from diffsim.math.vector import dot, mul_mat, mul_vec, transpose

Array = jax.Array

TILT = 1e-3  # rad
DISTINCT = 1e-3  # of the smaller bounding radius


def convex_pair(kind1: GeomType, kind2: GeomType, rows: int) -> Callable[[Shape, Shape, Array], Candidates]:
    """Pair function with one row, or with five: the closest points and those of four tilted runs."""
    return functools.partial(_closest if rows == 1 else _closest_and_tilted, (kind1, kind2))


def _closest(kinds: Kinds, shape1: Shape, shape2: Shape, margin: Array) -> Candidates:
    return stack([candidate(*_separation(kinds, shape1, shape2))])


def _separation(kinds: Kinds, shape1: Shape, shape2: Shape) -> tuple[Array, Array, Array]:
    """(signed distance, midpoint of the closest points, unit normal from the first body to the second)."""
    if kinds[1] == GeomType.MESH:
        return separate_round(kinds[0], shape1, shape2.data, shape2)
    return separate(minkowski_sums(kinds, shape1, shape2))


def _closest_and_tilted(kinds: Kinds, shape1: Shape, shape2: Shape, margin: Array) -> Candidates:
    # the same program runs upright, then tilted about what it found
    def run(pivot: tuple[Array, Array], angles: Array) -> tuple[tuple[Array, Array], tuple[Array, Array, Array]]:
        point, normal = pivot
        axes = frame_from_z(normal)[np.array([1, 1, 2, 2])]
        turns = quat_to_mat(axis_angle_to_quat(axes, angles))
        closest = jax.vmap(functools.partial(_tilted, kinds, shape1, shape2, point))(turns)
        return (closest[1][0], closest[2][0]), closest

    angles = TILT * np.array([[0, 0, 0, 0], [-1, 1, -1, 1]])
    start = (shape1.pos, shape1.axis)
    _, (dists, points, normals) = jax.lax.scan(run, start, jnp.asarray(angles, margin.dtype))
    dist = dists[0, 0]
    radius = safe.minimum(_bound(kinds[0], shape1), _bound(kinds[1], shape2))
    rows = [candidate(dist, points[0, 0], normals[0, 0])]
    for k in range(4):
        # a point counts if it touches and is away from those before it
        distinct = jax.lax.stop_gradient(dists[1, k]) < jax.lax.stop_gradient(margin)
        for row in rows:
            apart = jax.lax.stop_gradient(safe.norm(row.pos - points[1, k])) > DISTINCT * radius
            distinct = distinct & (apart | ~row.valid)
        rows.append(candidate(dist, points[1, k], normals[1, k], valid=distinct))
    return stack(rows)


def _tilted(kinds: Kinds, shape1: Shape, shape2: Shape, pivot: Array, turn: Array) -> tuple[Array, Array, Array]:
    """The closest points after turning the shapes against each other about a point."""
    turned = [
        Shape(pivot + mul_vec(rotation, shape.pos - pivot), mul_mat(rotation, shape.mat), shape.size, shape.data)
        for shape, rotation in ((shape1, turn), (shape2, transpose(turn)))
    ]
    return _separation(kinds, *turned)


def _bound(kind: GeomType, shape: Shape) -> Array:
    """Radius of the bounding ball."""
    size = jax.lax.stop_gradient(shape.size)
    bounds = {
        GeomType.CAPSULE: lambda: size[0] + size[1],
        GeomType.CYLINDER: lambda: jnp.sqrt(size[0] ** 2 + size[1] ** 2),
        GeomType.BOX: lambda: jnp.sqrt(dot(size, size)),
        GeomType.MESH: lambda: jax.lax.stop_gradient(shape.data.bound),
    }
    return bounds[kind]()
