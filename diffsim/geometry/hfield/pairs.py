"""One prism of a height field against a convex body: the contact of MuJoCo 3.8.1, which treats margins in its own way.

The surface has risen by the margin (`prisms.py`), and the body is rounded by half of it: contacts are made where these
overlap, and their distance says by how much. Without a margin it is the signed distance.
Source: `mjc_ConvexHField` of `engine_collision_convex.c`.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp

from diffsim.base.enums import GeomType
from diffsim.geometry.assets import Hull
from diffsim.geometry.hfield.ball import nearest_of_prism
from diffsim.geometry.hfield.prisms import Prism
from diffsim.geometry.hull.pairs import closest, contact_row, searched
from diffsim.geometry.hull.polytope import PRISM, Feature, HullPair, core, difference, with_polygons
from diffsim.geometry.hull.sat import deepest_side
from diffsim.geometry.shapes import Candidates, Shape, candidate, stack
from diffsim.geometry.smooth.round_hull import ROUND, separate_round
from diffsim.math.vector import mul_vec, mul_vec_t, scale

Array = jax.Array


def prism_pair(kind: GeomType) -> Callable[[Shape, Shape, Array], Candidates]:
    """Pair function of a prism and a body of a type, with one row."""
    return functools.partial(_prism_row, kind)


def _prism_row(kind: GeomType, field: Shape, body: Shape, margin: Array) -> Candidates:
    prism: Prism = field.data
    rows = ROWS.get(kind, functools.partial(_hull_row, kind))(field, body)
    dist = rows.dist - 0.5 * margin
    pos = rows.pos - scale(rows.normal, 0.25 * jnp.broadcast_to(margin, dist.shape))
    touches = (margin <= 0) | (jax.lax.stop_gradient(dist) < 0)
    return Candidates(dist, pos, rows.normal, rows.tangent, rows.valid & prism.exists & touches)


def _hull_row(kind: GeomType, field: Shape, body: Shape) -> Candidates:
    """A prism and a rounded hull."""
    hull, radius = core(kind, body)
    prism = with_polygons(field.data.vert, PRISM)
    pair = difference(prism, hull, field, body)
    contact = closest(pair, functools.partial(_feature, *jax.lax.stop_gradient((prism, hull))))
    return stack([contact_row(field, contact, jnp.zeros_like(radius), radius)])


def _feature(prism: Hull, hull: Hull, pair: HullPair) -> Feature:
    """What is closest to the origin: searched, of all sides where they overlap."""
    return searched(pair, lambda fixed, _: deepest_side(fixed, prism, hull))


def _ball_row(field: Shape, ball: Shape) -> Candidates:
    """A prism and a ball."""
    center, radius = mul_vec_t(field.mat, ball.pos - field.pos), ball.size[0]
    near = nearest_of_prism(field.data.vert, center)
    dist = near.dist - radius
    local = near.point + scale(near.normal, 0.5 * dist)
    return stack([candidate(dist, field.pos + mul_vec(field.mat, local), mul_vec(field.mat, near.normal))])


def _round_row(kind: GeomType, field: Shape, body: Shape) -> Candidates:
    """A prism and an ellipsoid or a cylinder."""
    dist, pos, normal = separate_round(kind, body, with_polygons(field.data.vert, PRISM), field)
    return stack([candidate(dist, pos, -normal)])


ROWS: dict[GeomType, Callable[[Shape, Shape], Candidates]] = {
    GeomType.SPHERE: _ball_row,
    **{kind: functools.partial(_round_row, kind) for kind in ROUND},
}
