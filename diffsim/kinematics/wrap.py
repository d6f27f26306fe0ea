"""Wrapping of a tendon around a sphere or a cylinder: where the path touches, and how long it is on the surface.

The problem is planar: seen along the cylinder's axis, or in the plane of the two ends and the sphere's centre. The path
goes around the outside of a circle, or, if the side site lies inside the geom, touches the circle once from within.
Whether the path wraps, and which of two ways it takes, are discrete choices and not differentiated; lengths and points
are. Source: MuJoCo documentation, "Modeling", "Spatial tendons"; the choices follow MuJoCo 3.8.1.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from diffsim.base.enums import MINVAL
from diffsim.math import safe
from diffsim.math.vector import cross, dot, mul_vec, mul_vec_t, scale
from diffsim.xla.loops import while_loop
from diffsim.xla.select import where_tree

# Newton iterations at most in the search for the touching point of a path that wraps from within, as in MuJoCo
ITERATIONS = 20
# its first guess, just below the largest sine that a solution can have
START = 1 - 1e-7
# rad; a search that ends further from a solution counts as failed
TOLERANCE = 1e-6


class Wrap(NamedTuple):
    """A wrapped path: whether it touches (), its first and last point on the surface, and the length between ().

    The points are (3,) in the world, or (2,) in the plane of the circle.
    """

    active: Array
    first: Array
    last: Array
    length: Array


# a position or direction, and whether it exists ()
Side = tuple[Array, Array]


def wrap(ends: Array, pos: Array, mat: Array, radius: Array, is_sphere: Array, side: Side | None) -> Wrap:
    """The path between two points around one geom.

    Args:
      ends: (2, 3) world positions of the sites before and after the geom.
      pos, mat: (3,), (3, 3) the geom's frame.
      radius: () the geom's radius.
      is_sphere: () sphere, else cylinder along the frame's z.
      side: (3,) world position of the side site, and whether there is one; None for no side site.
    """
    local = mul_vec_t(mat[None], ends - pos[None])
    x, y = _plane(local, is_sphere)
    in_plane = jnp.stack([dot(local, x[None]), dot(local, y[None])], axis=-1)
    if side is None:
        planar = _around(in_plane, radius, None)
    else:
        place, exists = side
        lateral = mul_vec_t(mat, place - pos)
        direction = safe.normalize(jnp.stack([dot(lateral, x), dot(lateral, y)]))
        inside = exists & (dot(lateral, lateral) < radius * radius)
        around, within = _around(in_plane, radius, (direction, exists)), _within(in_plane, radius, inside)
        planar = where_tree(inside, within, around)

    # a geodesic on a cylinder is a helix: the height grows evenly along the path, on its straight parts too
    before, after = safe.norm(in_plane[0] - planar.first), safe.norm(in_plane[1] - planar.last)
    rate = safe.divide(local[1, 2] - local[0, 2], before + planar.length + after)
    rate = jnp.where(is_sphere, 0, rate)
    low, climb = local[0, 2] + rate * before, rate * planar.length
    height = jnp.array([0, 0, 1], ends.dtype)
    base = jnp.where(is_sphere, 0, low)
    first = x * planar.first[0] + y * planar.first[1] + height * base
    last = x * planar.last[0] + y * planar.last[1] + height * (base + climb)
    return Wrap(
        active=planar.active & jnp.all(dot(local, local) > MINVAL**2),
        first=pos + mul_vec(mat, first),
        last=pos + mul_vec(mat, last),
        length=safe.sqrt(planar.length * planar.length + climb * climb),
    )


def _plane(local: Array, is_sphere: Array) -> tuple[Array, Array]:
    """Two axes (3,) of the plane of the circle, in the geom's frame, for ends (2, 3)."""
    first = safe.normalize(local[0])
    normal = cross(local[0], local[1])
    # if the ends are in line with the centre, any plane through them will do: take an axis that is not along them
    largest = jnp.argmax(jnp.abs(jax.lax.stop_gradient(first)))
    other = cross(first, jnp.where(jnp.arange(3) == largest, 0, 1).astype(first.dtype))
    aligned = dot(normal, normal) < MINVAL**2
    normal = safe.normalize(jnp.where(aligned, other, normal))
    second = safe.normalize(cross(normal, first))
    x_axis, y_axis = jnp.array([1, 0, 0], first.dtype), jnp.array([0, 1, 0], first.dtype)
    return jnp.where(is_sphere, first, x_axis), jnp.where(is_sphere, second, y_axis)


def _cross(a: Array, b: Array) -> Array:
    """Plane cross product of (..., 2)."""
    return a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0]


def _nearest(ends: Array) -> tuple[Array, Array, Array]:
    """The point (2,) of the segment between ends (2, 2) nearest to the origin, its share () of the way, and the squared
    length () of the segment.
    """
    along = ends[1] - ends[0]
    square = dot(along, along)
    share = -dot(along, ends[0]) / jnp.where(square < MINVAL, 1, square)
    return share, ends[0] + safe.clip(share, 0, 1) * along, square


def _around(ends: Array, radius: Array, side: Side | None) -> Wrap:
    """Around the outside of a circle, from end 0 to end 1, past `side` if there is one, else the shorter way."""
    square = radius * radius
    lengths = dot(ends, ends)
    # no wrapping if the straight line misses the circle, and passes it on the side of the side site
    _, nearest, gap = _nearest(jax.lax.stop_gradient(ends))
    clear = dot(nearest, nearest) > square
    clear = clear if side is None else clear & (~side[1] | (dot(side[0], nearest) >= 0))
    active = jnp.all(lengths >= square) & (radius >= MINVAL) & (gap >= MINVAL) & ~clear

    # tangent points t of an end e satisfy t . t = r^2 and t . (e - t) = 0: t = (r^2 e +- r sqrt(e.e - r^2) e_perp) /
    # e.e. End 0 turns one way and end 1 the other, in two mirrored solutions (2, 2, 2)
    tangent = safe.sqrt(lengths - square)
    shift = radius * scale(jnp.stack([ends[:, 1], -ends[:, 0]], axis=-1), tangent)
    turn = jnp.array([[1, -1], [-1, 1]], ends.dtype)
    inverse = 1 / jnp.where(lengths > 0, lengths, 1)
    points = scale(square * ends[None] + turn[:, :, None] * shift[None], jnp.broadcast_to(inverse, (2, 2)))
    choice, crossed = _better(*jax.lax.stop_gradient((ends, points, side)))
    first, last = points[choice, 0], points[choice, 1]
    active &= ~crossed

    # the angle from first to last in the sense of the chosen way, from 0 to 2 pi
    sense = jnp.where(choice == 0, -1, 1).astype(ends.dtype)
    angle = safe.arctan2(sense * _cross(first, last), dot(first, last))
    return Wrap(active, first, last, radius * jnp.where(angle < 0, angle + 2 * jnp.pi, angle))


def _better(ends: Array, points: Array, side: Side | None) -> tuple[Array, Array]:
    """() the better of the two solutions: one that does not cross itself if possible, then the one nearer to the side
    site, or the shorter one; and whether it crosses itself.
    """
    apart = points[:, 0] - points[:, 1]
    score = -dot(apart, apart)
    if side is not None:
        score = jnp.where(side[1], dot(safe.normalize(points[:, 0] + points[:, 1]), side[0][None]), score)

    def crosses(pair: Array) -> Array:
        """Whether the segments from the ends to the tangent points (2, 2) of a solution meet."""
        along, across, between = pair[0] - ends[0], pair[1] - ends[1], ends[0] - ends[1]
        determinant = _cross(along, across)
        valid = jnp.abs(determinant) >= MINVAL
        inverse = 1 / jnp.where(valid, determinant, 1)
        s, t = _cross(across, between) * inverse, _cross(along, between) * inverse
        return valid & (s >= 0) & (s <= 1) & (t >= 0) & (t <= 1)

    crossed = jax.vmap(crosses)(points)
    score = jnp.where(crossed, -10000, score)
    choice = jnp.where(score[0] > score[1], 0, 1)
    return choice, jnp.where(choice == 0, crossed[0], crossed[1])


def _within(ends: Array, radius: Array, wanted: Array) -> Wrap:
    """The path from end 0 to end 1 that touches the circle from within at one point; searched only if `wanted`."""
    # none if an end is inside, if the straight line passes through the circle, or if the ends are opposite
    lengths = safe.norm(ends)
    share, nearest, gap = _nearest(jax.lax.stop_gradient(ends))
    hits = (gap > MINVAL) & (share > 0) & (share < 1) & (dot(nearest, nearest) <= radius * radius)
    outside = jnp.all(lengths > radius) & (radius >= MINVAL)
    cosine = dot(ends[0], ends[1]) / jnp.where(outside, lengths[0] * lengths[1], 1)
    active = outside & ~hits & (cosine >= -1 + MINVAL)

    # at the touching point both straight parts make the same angle with the normal. With z its sine, the angle at the
    # centre to an end at distance l is asin(z) - asin(z r / l); both add up to the opening between the ends
    opening = safe.arctan2(jnp.abs(_cross(ends[0], ends[1])), dot(ends[0], ends[1]))
    ratio = radius / jnp.where(outside, lengths, 2 * radius + 1)
    sine, touches = _touching_sine(ratio, opening, wanted & active & (cosine <= 1 - MINVAL))

    # turn from one end towards the other by that angle; without a solution touch halfway
    ahead = _cross(ends[0], ends[1]) > 0
    start, part = jnp.where(ahead, ends[0], ends[1]), jnp.where(ahead, ratio[0], ratio[1])
    whole, rest = jnp.arcsin(sine * jnp.stack([jnp.ones_like(part), part]))
    angle = whole - rest
    unit, c, s = safe.normalize(start), jnp.cos(angle), jnp.sin(angle)
    rotated = jnp.stack([c * unit[0] - s * unit[1], s * unit[0] + c * unit[1]])
    point = radius * jnp.where(touches, rotated, safe.normalize(0.5 * (ends[0] + ends[1])))
    return Wrap(active, point, point, jnp.zeros_like(radius))


def _touching_sine(ratio: Array, opening: Array, wanted: Array) -> tuple[Array, Array]:
    """z with asin(a z) + asin(b z) - 2 asin(z) + opening = 0 for ratios (a, b), by Newton's method, and success.

    The iterations stop as in MuJoCo. The solution is differentiated as an implicit function.
    """

    # an inverse sine is a hundred operations for XLA: compute all three as one array, and none twice
    def excess(z: Array, ratio: Array, opening: Array) -> Array:
        one, other, twice = jnp.arcsin(z * jnp.append(ratio, 1.0))
        return one + other - 2 * twice + opening

    def slope(z: Array, ratio: Array) -> Array:
        terms = [r / safe.maximum(MINVAL, jnp.sqrt(1 - z * z * r * r)) for r in (ratio[0], ratio[1])]
        return terms[0] + terms[1] - 2 / safe.maximum(MINVAL, jnp.sqrt(1 - z * z))

    ratio0, opening0, searched = jax.lax.stop_gradient((ratio, opening, wanted))
    start = jnp.asarray(START, ratio.dtype)

    def searching(carry: tuple[Array, Array, Array, Array]) -> Array:
        _, error, count, good = carry
        return good & (count < ITERATIONS) & (jnp.abs(error) > TOLERANCE)

    def improve(carry: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        z, error, count, _ = carry
        steepness = slope(z, ratio0)
        moved = z - error / jnp.where(steepness < 0, steepness, -1)
        error = excess(moved, ratio0, opening0)
        good = (steepness <= -MINVAL) & (moved <= z) & (error <= TOLERANCE)
        return moved, error, count + 1, good

    first = excess(start, ratio0, opening0)
    z, _, count, good = while_loop(
        searching, improve, (start, first, jnp.zeros((), jnp.int32), searched & (first <= 0))
    )
    good &= (count < ITERATIONS) & (jnp.abs(z) < 1)
    # f(z; inputs) = 0: dz = -df / f'(z), as a term that is zero and has this derivative
    z = jnp.where(good, z, 0.5)
    change = excess(z, ratio, opening) - excess(z, ratio0, opening0)
    correction = change / jnp.where(good, slope(z, ratio0), 1)
    return jnp.where(good, z - correction, 0.5), good
