"""Contacts of cylinders with capsules, cylinders, boxes and meshes since MuJoCo 3.13: corners with depths of their own.

The closest points are those of `pairs.py`. There, a cylinder has two kinds of flat parts: its ends, of which MuJoCo
makes polygons with 16 corners, and the line of its side that is nearest to the other body. So it is treated as a hull
of 34 vertices with two sides and one edge, and a capsule as its segment moved to its surface. The vertices of a box or
mesh that touch are those that are equally near along the normal. In 3.8.1, four more runs with tilted shapes found
further points (`pairs.py`).
Source: MuJoCo changelog 3.13, 3.15 and 3.17; collision_gjk.py of MuJoCo Warp 4.0; MuJoCo 4.0.0 as a black box.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.base.enums import GeomType
from diffsim.geometry.hull.faces import Flat, Patch, flat_at, on_surface, patch_of, patch_rows
from diffsim.geometry.hull.features import Feature, HullPair
from diffsim.geometry.hull.pairs import searched_where_near
from diffsim.geometry.hull.polytope import Hull, core
from diffsim.geometry.hull.tables import Lists, lists_of
from diffsim.geometry.shapes import Candidates, Shape, candidate, relative_pose
from diffsim.geometry.smooth.minkowski import Kinds, rounding
from diffsim.geometry.smooth.pairs import separation
from diffsim.math import safe
from diffsim.math.vector import cross, dot, mul_vec, mul_vec_t, pack, scale

# number of corners that MuJoCo gives to the end of a cylinder
CORNERS = 16
_TURNS = np.arange(CORNERS) * 2 * np.pi / CORNERS
# corners of the upper end, clockwise from above, then of the lower end, which is the upper end turned over
RIM = np.array([[np.cos(t), -side * np.sin(t), side] for side in (1, -1) for t in _TURNS])
ENDS = np.array([[0, 0, 1.0], [0, 0, -1.0]])
# vertices at the ends of the line on the side
LINE = np.array([[2 * CORNERS, 2 * CORNERS + 1]])


def _as_lists(lists: list[Any]) -> Lists:
    return jax.tree.map(jnp.asarray, lists_of(lists))


def cylinder_hull(shape: Shape, normal: Array) -> Hull:
    """The flat parts of a cylinder that touches another body along a unit vector (3,), in its own frame."""
    radius, half = shape.size[0], shape.size[1]
    rim = jnp.asarray(RIM, radius.dtype) * pack([radius, radius, half])[None]
    side = scale(safe.normalize(normal * np.array([1, 1, 0])), radius)
    line = side[None] + jnp.asarray(ENDS, radius.dtype) * half
    vert = jnp.concatenate([rim, line])
    # sides are listed counterclockwise from outside
    sides = _as_lists([range(CORNERS - 1, -1, -1), range(2 * CORNERS - 1, CORNERS - 1, -1)])
    none = jnp.zeros((0, 2), jnp.int32)
    return Hull(
        vert=vert,
        around=_as_lists([[]]),
        box=jnp.stack([-shape.size, shape.size]),
        side=sides,
        normal=jnp.asarray(ENDS, radius.dtype),
        joined=_as_lists([[]]),
        facet=jnp.zeros((0, 3), jnp.int32),
        outward=jnp.zeros((0, 3), radius.dtype),
        edge=none,
        flank=none,
    )


def _flat(kind: GeomType, hull: Hull, direction: Array) -> Flat:
    """The flat parts of a body that touches along a unit vector (3,) to the other body, in its own frame."""
    line = jnp.asarray([[0, 1]], jnp.int32)
    if kind == GeomType.CAPSULE:
        return Flat(jnp.full(1, -1, jnp.int32), jnp.zeros((1, 3), direction.dtype), jnp.ones((), jnp.int32), line)
    if kind == GeomType.CYLINDER:
        # an end touches, unless the normal is perpendicular to the axis
        lower = direction[2] < 0
        on_side = jnp.abs(direction[2]) < rounding(direction)
        end = jnp.where(lower, 1, 0)
        side = jnp.where(on_side, -1, end)[None].astype(jnp.int32)
        edge = jnp.where(lower, jnp.asarray(LINE[:, ::-1]), jnp.asarray(LINE)).astype(jnp.int32)
        return Flat(side, hull.normal[end][None], jnp.where(on_side, 2, 1), edge)
    return flat_at(kind, hull, _lowest(hull, direction), direction)


def _lowest(hull: Hull, direction: Array) -> Array:
    """Three vertices (3,) that span the furthest part of a hull along a direction (3,); fewer repeat the first one."""
    height = dot(hull.vert, direction[None])
    reach = jnp.max(jnp.abs(hull.vert))
    level = height > jnp.max(height) - 1e2 * rounding(direction) * reach
    begin = jnp.argmax(level)
    away = hull.vert - hull.vert[begin][None]
    far = jnp.where(level, dot(away, away), 0)
    end = jnp.argmax(far)
    area = cross(away, away[end][None])
    aside = jnp.where(level, dot(area, area), 0)
    third = jnp.argmax(aside)
    small = (rounding(direction) * reach) ** 2
    end = jnp.where(far[end] > small, end, begin)
    third = jnp.where(aside[third] > small * far[end], third, begin)
    return jnp.stack([begin, end, third]).astype(jnp.int32)


def cylinder_faces(kind1: GeomType, kind2: GeomType) -> Callable[..., Candidates]:
    """Pair function of two geoms of which at least one is a cylinder."""
    return functools.partial(_cylinder_faces, (kind1, kind2))


def _cylinder_faces(kinds: Kinds, shape1: Shape, shape2: Shape, margin: Array, near: Array | bool = True) -> Candidates:
    dist, middle, normal = separation(kinds, shape1, shape2, near)
    pose, is_capsule = relative_pose(shape1, shape2), kinds[0] == GeomType.CAPSULE
    inflated = 0.5 * margin if is_capsule else jnp.zeros_like(margin)
    local = mul_vec_t(shape1.mat, normal)
    directions = local, -mul_vec_t(pose[0], local)
    hulls = _hull(kinds[0], shape1, directions[0], inflated), _hull(kinds[1], shape2, directions[1], inflated)

    def search(pair: HullPair, one: Any, other: Any, first: Array, second: Array, margin: Array) -> Patch:
        flat1, flat2 = (_flat(*body) for body in zip(kinds, (one, other), (first, second), strict=True))
        flat2 = flat2._replace(normal=mul_vec(pair.turn[None], flat2.normal))
        none = jnp.zeros(3, jnp.int32)
        feature = Feature(none, none, jnp.asarray(1), first)
        return patch_of(kinds, pair, (one, other), (flat1, flat2), feature, margin)

    patch = searched_where_near(search, pose, *hulls, near, *directions, margin - inflated)
    rows = patch_rows(shape1, pose, hulls, patch, candidate(dist, middle, normal), inflated)
    return Candidates(*(column[:2] for column in rows)) if is_capsule else rows


def _hull(kind: GeomType, shape: Shape, direction: Array, inflated: Array) -> Any:
    """A body as a hull, in its own frame."""
    if kind == GeomType.CYLINDER:
        return cylinder_hull(shape, direction)
    hull, radius = core(kind, shape)
    return on_surface(hull, direction, radius + inflated) if kind == GeomType.CAPSULE else hull
