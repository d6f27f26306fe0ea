"""Wrapping of a tendon around a sphere or a cylinder: where the path touches the surface, and how long it is there.

The problem is planar: it is solved in the projection along the cylinder's axis, or in the plane of the sphere's centre
and the two ends of the path. The path goes around the outside of a circle; if the side site is inside the geom, it
touches the circle from within at one point instead. Lengths and points are differentiated. Whether the path wraps, and
on which side, are discrete decisions without derivative. Source: MuJoCo documentation, "Modeling", "Spatial tendons";
the decisions follow MuJoCo 3.8.1. The decisions of 4.0 were found by comparing lengths with it.
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

# the largest number of Newton iterations for the touching point of a path that wraps from within, as in MuJoCo
ITERATIONS = 20
# the first guess of this iteration: just below 1, which is the largest possible sine
START = 1 - 1e-7
# the largest residual of a solution, rad
TOLERANCE = 1e-6
# the score of a path that crosses itself: below all others, which are negative squared distances in m^2 or cosines
CROSSED = -10000


class Wrap(NamedTuple):
    """A path around a geom.

    Attributes:
      active: () whether the path touches the geom.
      first, last: first and last point on the surface, (3,) in the world or (2,) in the plane of the circle, m.
      length: () m, length of the path on the surface, between the two.
    """

    active: Array
    first: Array
    last: Array
    length: Array


# the position or direction of a side site, and whether there is one ()
Side = tuple[Array, Array]


def wrap(
    ends: Array, pos: Array, mat: Array, radius: Array, is_sphere: Array, side: Side | None, through: bool = False
) -> Wrap:
    """The path between two points around one geom.

    Args:
      ends: (2, 3) m, world positions of the sites before and after the geom.
      pos, mat: (3,), (3, 3) the geom's frame.
      radius: () m, the geom's radius.
      is_sphere: () True for a sphere, False for a cylinder along the z axis of the frame.
      side: (3,) m, world position of the side site, and whether there is one; None if no part has a side site.
      through: whether the path goes the way that a path through the side site does, as since MuJoCo 4.0.
    """
    local = mul_vec_t(mat[None], ends - pos[None])
    x, y = _plane(local, is_sphere)
    in_plane = jnp.stack([dot(local, x[None]), dot(local, y[None])], axis=-1)
    if side is None:
        planar = _around(in_plane, radius, None, through)
    else:
        place, exists = side
        lateral = mul_vec_t(mat, place - pos)
        direction = safe.normalize(jnp.stack([dot(lateral, x), dot(lateral, y)]))
        inside = exists & (dot(lateral, lateral) < radius * radius)
        around = _around(in_plane, radius, (direction, exists), through)
        within = _within(in_plane, radius, inside)
        planar = where_tree(inside, within, around)

    # the shortest path around a cylinder is straight when the surface is unrolled: the height grows evenly along all of
    # it, and on the surface it is a helix
    before = safe.norm(in_plane[0] - planar.first)
    after = safe.norm(in_plane[1] - planar.last)
    rate = safe.divide(local[1, 2] - local[0, 2], before + planar.length + after)
    rate = jnp.where(is_sphere, 0, rate)
    low = local[0, 2] + rate * before
    climb = rate * planar.length
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
    """Two axes (3,) of the plane of the circle, in the geom's frame, for ends (2, 3) in this frame."""
    first = safe.normalize(local[0])
    normal = cross(local[0], local[1])
    # if the ends and the centre are on one line, any plane through the line will do: take an axis that is not along it
    largest = jnp.argmax(jnp.abs(jax.lax.stop_gradient(first)))
    other = cross(first, jnp.where(jnp.arange(3) == largest, 0, 1).astype(first.dtype))
    aligned = dot(normal, normal) < MINVAL**2
    normal = safe.normalize(jnp.where(aligned, other, normal))
    second = safe.normalize(cross(normal, first))
    x_axis, y_axis = jnp.array([1, 0, 0], first.dtype), jnp.array([0, 1, 0], first.dtype)
    return jnp.where(is_sphere, first, x_axis), jnp.where(is_sphere, second, y_axis)


def _cross(a: Array, b: Array) -> Array:
    """(...) cross product of vectors (..., 2) in the plane."""
    return a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0]


def _nearest(ends: Array) -> tuple[Array, Array, Array]:
    """The point of the segment between two ends (2, 2) that is nearest to the origin.

    Returns:
      () its position on the line, 0 at the first and 1 at the second end; (2,) the point, between the ends; () the
      squared length of the segment.
    """
    along = ends[1] - ends[0]
    square = dot(along, along)
    position = -dot(along, ends[0]) / jnp.where(square < MINVAL, 1, square)
    return position, ends[0] + safe.clip(position, 0, 1) * along, square


def _around(ends: Array, radius: Array, side: Side | None, through: bool) -> Wrap:
    """The path around the outside of a circle, from end 0 to end 1, on the side of `side`, or else the shorter way."""
    # the path through a side site has its own rule; other paths go the shorter way
    guide, side = (side, None) if through else (None, side)
    square = radius * radius
    lengths = dot(ends, ends)
    # the path does not wrap if the straight line misses the circle and passes it on the side of the side site
    _, nearest, gap = _nearest(jax.lax.stop_gradient(ends))
    clear = dot(nearest, nearest) > square
    clear = clear if side is None else clear & (~side[1] | (dot(side[0], nearest) >= 0))
    possible = jnp.all(lengths >= square) & (radius >= MINVAL) & (gap >= MINVAL)
    active = possible & ~clear

    # the tangent point t of a line from an end e satisfies t . t = r^2 and t . (e - t) = 0, so that
    # t = (r^2 e +- r sqrt(e.e - r^2) e_perp) / e.e. The two ends take opposite signs: that gives two solutions of two
    # points each, (2, 2, 2), which go around the circle in opposite senses.
    tangent = safe.sqrt(lengths - square)
    shift = radius * scale(jnp.stack([ends[:, 1], -ends[:, 0]], axis=-1), tangent)
    turn = jnp.array([[1, -1], [-1, 1]], ends.dtype)
    inverse = 1 / jnp.where(lengths > 0, lengths, 1)
    points = scale(square * ends[None] + turn[:, :, None] * shift[None], jnp.broadcast_to(inverse, (2, 2)))
    choice, crossed = _better(*jax.lax.stop_gradient((ends, points, side)))
    if guide is not None:
        direction, exists = guide
        touching, way = _way_through(*jax.lax.stop_gradient((ends, radius, direction)))
        choice = jnp.where(exists, way, choice)
        crossed = crossed & ~exists
        active = jnp.where(exists, possible & touching, active)
    first, last = points[choice, 0], points[choice, 1]
    active &= ~crossed

    # the angle from first to last, in the sense of the chosen solution, from 0 to 2 pi
    sense = jnp.where(choice == 0, -1, 1).astype(ends.dtype)
    angle = safe.arctan2(sense * _cross(first, last), dot(first, last))
    length = radius * jnp.where(angle < 0, angle + 2 * jnp.pi, angle)
    return Wrap(active=active, first=first, last=last, length=length)


def _way_through(ends: Array, radius: Array, direction: Array) -> tuple[Array, Array]:
    """Whether the path with a side site in `direction` (2,) touches the circle, and the index of its solution.

    The line from end 0 to the side site and on to end 1 turns by an angle around the centre. A string along this line,
    pulled taut, touches the circle if this angle is larger than what the two tangents span.
    """
    start, stop = ends[0], ends[1]
    turn = safe.arctan2(_cross(start, direction), dot(start, direction))
    turn += safe.arctan2(_cross(direction, stop), dot(direction, stop))
    spanned = jnp.sum(jnp.arccos(jnp.minimum(radius / jnp.maximum(safe.norm(ends), MINVAL), 1)))
    return jnp.abs(turn) > spanned, jnp.where(turn > 0, 1, 0)


def _better(ends: Array, points: Array, side: Side | None) -> tuple[Array, Array]:
    """The index () of the better of two solutions, and whether it crosses itself.

    A solution that does not cross itself is better. Otherwise it is the one nearer to the side site, or, without a side
    site, the one with the shorter distance between its tangent points.
    """
    apart = points[:, 0] - points[:, 1]
    score = -dot(apart, apart)
    if side is not None:
        score = jnp.where(side[1], dot(safe.normalize(points[:, 0] + points[:, 1]), side[0][None]), score)

    def crosses(pair: Array) -> Array:
        """Whether the segments from the ends to the tangent points (2, 2) of a solution intersect."""
        # solve ends[0] + s along = ends[1] + t across; they intersect if 0 <= s, t <= 1
        along = pair[0] - ends[0]
        across = pair[1] - ends[1]
        between = ends[0] - ends[1]
        determinant = _cross(along, across)
        valid = jnp.abs(determinant) >= MINVAL
        inverse = 1 / jnp.where(valid, determinant, 1)
        s = _cross(across, between) * inverse
        t = _cross(along, between) * inverse
        return valid & (s >= 0) & (s <= 1) & (t >= 0) & (t <= 1)

    crossed = jax.vmap(crosses)(points)
    score = jnp.where(crossed, CROSSED, score)
    choice = jnp.where(score[0] > score[1], 0, 1)
    return choice, jnp.where(choice == 0, crossed[0], crossed[1])


def _within(ends: Array, radius: Array, wanted: Array) -> Wrap:
    """The path from end 0 to end 1 that touches the circle from within at one point; computed only if `wanted`."""
    # there is no such path if an end is inside the circle, if the straight line passes through it, or if the ends are
    # on opposite sides of the centre
    lengths = safe.norm(ends)
    position, nearest, gap = _nearest(jax.lax.stop_gradient(ends))
    hits = (gap > MINVAL) & (position > 0) & (position < 1) & (dot(nearest, nearest) <= radius * radius)
    outside = jnp.all(lengths > radius) & (radius >= MINVAL)
    cosine = dot(ends[0], ends[1]) / jnp.where(outside, lengths[0] * lengths[1], 1)
    active = outside & ~hits & (cosine >= -1 + MINVAL)

    # At the touching point both straight parts make the same angle with the normal. Let z be its sine. The angle, seen
    # from the centre, between the touching point and an end at distance l is then asin(z) - asin(z r / l), and the
    # angles of both ends add up to the opening between them.
    opening = safe.arctan2(jnp.abs(_cross(ends[0], ends[1])), dot(ends[0], ends[1]))
    ratio = radius / jnp.where(outside, lengths, 2 * radius + 1)
    sine, touches = _touching_sine(ratio, opening, wanted & active & (cosine <= 1 - MINVAL))

    # rotate the direction of one end by this angle towards the other; without a solution take the direction halfway
    ahead = _cross(ends[0], ends[1]) > 0
    start = jnp.where(ahead, ends[0], ends[1])
    start_ratio = jnp.where(ahead, ratio[0], ratio[1])
    whole, rest = jnp.arcsin(sine * jnp.stack([jnp.ones_like(start_ratio), start_ratio]))
    angle = whole - rest
    unit = safe.normalize(start)
    c = jnp.cos(angle)
    s = jnp.sin(angle)
    rotated = jnp.stack([c * unit[0] - s * unit[1], s * unit[0] + c * unit[1]])
    point = radius * jnp.where(touches, rotated, safe.normalize(0.5 * (ends[0] + ends[1])))
    return Wrap(active=active, first=point, last=point, length=jnp.zeros_like(radius))


def _touching_sine(ratio: Array, opening: Array, wanted: Array) -> tuple[Array, Array]:
    """z with asin(a z) + asin(b z) - 2 asin(z) + opening = 0, by Newton's method, and whether it was found.

    `ratio` (2,) is (a, b). The iterations stop as in MuJoCo. The derivative follows from the implicit function theorem.
    """

    def excess(z: Array, ratio: Array, opening: Array) -> Array:
        """The left side of the equation. XLA's arcsin is a hundred operations, so one array holds all three."""
        one, other, twice = jnp.arcsin(z * jnp.append(ratio, 1.0))
        return one + other - 2 * twice + opening

    def slope(z: Array, ratio: Array) -> Array:
        """The derivative of `excess` with respect to z."""
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
    # f(z; inputs) = 0 gives dz = -df / f'(z): subtract a term whose value is zero and whose derivative is df / f'(z)
    z = jnp.where(good, z, 0.5)
    change = excess(z, ratio, opening) - excess(z, ratio0, opening0)
    correction = change / jnp.where(good, slope(z, ratio0), 1)
    return jnp.where(good, z - correction, 0.5), good
