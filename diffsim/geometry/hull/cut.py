"""The overlap of two flat polygons as MuJoCo finds it since 3.12, and the four of its corners that become contacts.

One polygon is cut along the edges of the other, the reference, one after another. Of more than four corners, four are
kept that span a large area. Which four these are depends on the order of the corners, so the order is MuJoCo's. An
edge is a polygon with two corners.

Nothing here is differentiated. Each corner of the overlap says which edges make it, and `overlap_corners` (pairs.py)
gives its position in closed form.
Source: Sutherland and Hodgman 1974; `multicontact` in engine_collision_gjk.c of MuJoCo 3.12.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.math import safe
from diffsim.math.vector import cross, dot, scale
from diffsim.xla.gather import rows_at
from diffsim.xla.loops import while_loop

# number of corners that become contacts
KEPT = 4
# a corner at most so far outside an edge counts as inside, relative to the size of the reference
INSIDE = {8: 1e-14, 4: 1e-6}


class Ring(NamedTuple):
    """A polygon in MuJoCo's order of corners: points (w, 3), m, the hull's vertices (w,), and their number ()."""

    point: Array
    vertex: Array
    corners: Array

    def padded(self, length: int) -> "Ring":
        """The same polygon in arrays of a greater length."""
        more = length - len(self.vertex)
        return Ring(jnp.pad(self.point, ((0, more), (0, 0))), jnp.pad(self.vertex, (0, more)), self.corners)


class Cut(NamedTuple):
    """The polygon after some cuts, as a list of n corners, of which the first `corners` exist.

    Attributes:
      point: (n, 3) m.
      made: (n, 3) what makes each corner. Begin of an edge of the polygon: the edge, -1, -1. Crossing of an edge with a
        line of the reference: the edge, the line, -1. Corner of the reference: -1 and two lines.
      lies: (n, 2) where the side that begins at the corner lies: on an edge of the polygon or on a line of the
        reference; the other number is -1.
      corners: ().
    """

    point: Array
    made: Array
    lies: Array
    corners: Array


def cut_by(polygon: Ring, reference: Ring, axis: Array) -> Cut:
    """A polygon cut along all edges of the reference, seen along the unit normal (3,) of the reference."""
    length = len(polygon.vertex) + len(reference.vertex)
    number = jnp.arange(length, dtype=jnp.int32)
    none = jnp.full_like(number, -1)
    start = Cut(
        polygon.padded(length).point,
        jnp.stack([number, none, none], axis=1),
        jnp.stack([number, none], axis=1),
        polygon.corners,
    )
    exists = jnp.arange(len(reference.vertex)) < reference.corners
    following = rows_at(reference.point, (jnp.arange(len(exists)) + 1) % jnp.maximum(reference.corners, 1))
    sweep = jnp.where(exists[:, None], following - reference.point, 0)
    inward = safe.normalize(cross(sweep, axis[None]))
    limit = INSIDE[axis.dtype.itemsize] * jnp.max(jnp.abs(sweep))

    def along(state: tuple[Array, Cut]) -> tuple[Array, Cut]:
        line, cut = state
        height = dot(cut.point - rows_at(reference.point, line)[None], rows_at(inward, line)[None])
        return line + 1, _cut_along(line, height, limit, cut)

    return while_loop(lambda state: state[0] < reference.corners, along, (jnp.zeros((), jnp.int32), start))[1]


def _cut_along(line: Array, height: Array, limit: Array, cut: Cut) -> Cut:
    """The polygon after a cut along one line; heights (n,) of its corners, m: those below -limit are cut off."""
    number = jnp.arange(len(height), dtype=jnp.int32)
    exists = number < cut.corners
    following = jnp.where(number + 1 < cut.corners, number + 1, 0)
    inside = exists & (height > -limit)
    ends_inside = exists & rows_at(inside, following)
    crosses = inside != ends_inside
    # each side gives the point where it crosses the line, and its end if that is inside
    places = jnp.cumsum(crosses + ends_inside.astype(jnp.int32), dtype=jnp.int32)
    crossing_at = jnp.where(crosses, places - 1 - ends_inside, len(number))
    end_at = jnp.where(ends_inside, places - 1, len(number))
    side = jnp.zeros_like(number).at[crossing_at].set(number, mode="drop").at[end_at].set(number, mode="drop")
    is_end = jnp.zeros_like(exists).at[end_at].set(True, mode="drop")

    share = jnp.clip(safe.divide(height, height - rows_at(height, following)), 0, 1)
    crossing = cut.point + scale(rows_at(cut.point, following) - cut.point, share)
    edge, other = cut.lies[:, 0], cut.lies[:, 1]
    here = jnp.full_like(number, line)
    on_edge = edge >= 0
    made = jnp.stack([edge, jnp.where(on_edge, here, other), jnp.where(on_edge, -1, here)], axis=1)
    lies = jnp.where(inside[:, None], jnp.stack([jnp.full_like(number, -1), here], axis=1), cut.lies)

    end = rows_at(following, side)
    pick = is_end[:, None]
    return Cut(
        point=jnp.where(pick, rows_at(cut.point, end), rows_at(crossing, side)),
        made=jnp.where(pick, rows_at(cut.made, end), rows_at(made, side)),
        lies=jnp.where(pick, rows_at(cut.lies, end), rows_at(lies, side)),
        corners=places[-1],
    )


def kept_corners(cut: Cut, wanted: Array, is_edge: Array) -> tuple[Array, Array]:
    """(places (4,) of the corners that become contacts, which of them exist (4,)).

    Args:
      cut: the overlap.
      wanted: (n,) which corners are deep enough.
      is_edge: () whether the polygon is an edge: then the two corners that are furthest apart are kept.
    """
    wanted &= jnp.arange(len(wanted)) < cut.corners
    number = jnp.cumsum(wanted, dtype=jnp.int32)
    count = number[-1]
    # before the k-th corner that is wanted, k corners are
    order = jnp.sum(number[None] <= jnp.arange(len(wanted))[:, None], axis=1)
    order = jnp.minimum(order, len(wanted) - 1).astype(jnp.int32)
    point = rows_at(cut.point, order)
    exists = jnp.arange(len(order)) < count
    places = jnp.arange(KEPT, dtype=jnp.int32)
    places = jnp.where(is_edge & (count > 2), _furthest_apart(point, exists), places)
    places = jnp.where(~is_edge & (count > KEPT), _spread(point, count), places)
    number_kept = jnp.minimum(count, jnp.where(is_edge, 2, KEPT))
    return rows_at(order, jnp.minimum(places, len(order) - 1)), jnp.arange(KEPT) < number_kept


def _furthest_apart(point: Array, exists: Array) -> Array:
    """Places (4,), of which the first two are the points (n, 3) that are furthest apart."""
    # an edge has at most four corners after all cuts
    some = np.triu_indices(min(KEPT, len(point)), 1)
    between = point[some[0]] - point[some[1]]
    far = jnp.where(exists[some[1]], dot(between, between), -1)
    best = jnp.argmax(far)
    return jnp.stack([jnp.asarray(end, jnp.int32)[best] for end in (*some, *some)])


class _Turn(NamedTuple):
    """The state of the search for a wide quadrilateral.

    `ends` (4,): the places of the present corners. `best` (4,) and `area`: the widest one so far. `moving`: which
    corner tries to move on, 3 to 1.
    """

    ends: Array
    best: Array
    area: Array
    moving: Array


def _spread(point: Array, count: Array) -> Array:
    """Places (4,) of corners of a polygon (n, 3) that span a large area.

    For each first corner, the last one moves on while the area grows; after each of its moves, the third and then the
    second one do the same.
    """

    def area(ends: Array) -> Array:
        a, b, c, d = (rows_at(point, ends[k]) for k in range(KEPT))
        normal = cross(a - c, b - d)
        return jnp.sqrt(dot(normal, normal))

    def turn(state: _Turn) -> _Turn:
        moved = jnp.where(np.arange(KEPT) == state.moving, (state.ends + 1) % count, state.ends)
        larger = area(moved)
        grows = larger > state.area
        # the third corner stops: the second one tries; the second one stops: the last one tries again
        given = jnp.where(grows, jnp.minimum(state.moving, 2), (state.moving + 1) % 3 + 1)
        ends = jnp.where(grows, moved, state.ends)
        after = _next_first(state.ends, count)
        stops = ~grows & (state.moving == 3)
        return _Turn(
            ends=jnp.where(stops, after, ends),
            best=jnp.where(grows, moved, state.best),
            area=jnp.where(grows, larger, state.area),
            moving=jnp.where(stops, 3, given).astype(jnp.int32),
        )

    start = jnp.arange(KEPT, dtype=jnp.int32)
    begin = _Turn(ends=start, best=start, area=area(start), moving=jnp.full((), 3, jnp.int32))
    return while_loop(lambda state: (count > KEPT) & (state.ends[0] < count), turn, begin).best


def _next_first(ends: Array, count: Array) -> Array:
    """The corners (4,) after the first one has moved on; a corner that it has reached moves on too."""
    a, b, c, d = (ends[k] for k in range(KEPT))
    on = lambda end: (end + 1) % count  # noqa: E731
    pushed = b == a
    b = jnp.where(pushed, on(b), b)
    pushed &= c == b
    c = jnp.where(pushed, on(c), c)
    pushed &= d == c
    return jnp.stack([a + 1, b, c, jnp.where(pushed, on(d), d)])
