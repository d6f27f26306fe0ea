"""Rows of the pairs that are near, for groups of many pairs on a CPU: a list of these pairs, in rounds.

Most pairs of a robot's geoms are apart: at rest, 2 of 1,379 pairs of boxes of a hand overlap. Upright boxes around all
geoms show this in a tenth of the work of boxes that turn with the geoms. Pairs that are apart take no memory and no
time after this.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.base.enums import GeomType
from diffsim.collision.bounds import between_upright_boxes, boxes_around
from diffsim.collision.layout import ContactLayout, PairGroup, grid_of
from diffsim.collision.pair_rows import (
    ALL_GEOMS,
    FAR,
    Examined,
    GeomMasks,
    Rows,
    blocks_of,
    competes,
    dimensions,
    dims_of,
    rows_of_pairs,
)
from diffsim.collision.parameters import PairParameters
from diffsim.geometry.buckets import Poses, gather
from diffsim.geometry.hull.polytope import SHARED as SHARED_HULLS
from diffsim.geometry.shapes import Candidates
from diffsim.types.model import Model
from diffsim.xla.gather import pick_existing
from diffsim.xla.largest import above
from diffsim.xla.loops import cond, scan
from diffsim.xla.reverse_mode import recomputed
from diffsim.xla.select import anywhere, count, where_tree

# least number of rows of a group from which a CPU lists its near pairs; the list costs compile time too
LISTED = 512
# pairs of a round: a hand that makes a fist has 53 of 1,379 boxes near, at rest 2
ROUND = 32
# rounds that are skipped together
ROUNDS = 8
# most entries of the matrix of a group's pairs, which the search for near ones reads once for each pair that it finds
ENTRIES = 8192


def pair_range(layout: ContactLayout, group: PairGroup) -> tuple[int, int]:
    """The pairs [start, stop) of the table that belong to a group."""
    sections = layout.sections[group.sections]
    return sections[0].start, sections[-1].stop


def is_listed(model: Model, layout: ContactLayout, group: PairGroup) -> bool:
    """Whether the near pairs of a group are listed: on a CPU, of many pairs whose rows compete for slots.

    All pairs have one contact dimension, and their matrix is not too large. Planes are near to everything. Data that
    geoms do not share would be copied for each place of the list. `max_pairs` chooses pairs in another way.
    """
    start, stop = pair_range(layout, group)
    if not competes(layout, group) or model.topology.max_pairs is not None or (stop - start) * group.rows < LISTED:
        return False
    if len(dimensions(layout, group)) > 1:
        return False
    light = all(bucket is None or bucket.asset.shared == SHARED_HULLS for bucket in group.buckets)
    if not light or group.kinds[0] == GeomType.PLANE or group.collider.parts is not None:
        return False
    grid = grid_of(layout.pairs, start, stop)
    several = np.count_nonzero(grid.pair >= 0) < stop - start
    return grid.pair.size <= ENTRIES and not several


def rows_of_near(
    model: Model, poses: Poses, layout: ContactLayout, group: PairGroup, table: PairParameters, masks: GeomMasks
) -> tuple[Rows, Array]:
    """The rows of the pairs of a group whose upright boxes overlap, and the number () of contacts without a row.

    The pairs are taken in rounds; a round is skipped if no world of the batch has a pair left. The rows of the first
    round are kept as they are. Only if there is a second round, the nearest rows of both are picked.
    """
    start, stop = pair_range(layout, group)
    grid, tables = grid_of(layout.pairs, start, stop), dict[int, Any]()
    ends = zip(group.kinds, (grid.geom1, grid.geom2), group.buckets, ((-1, 1), (1, -1)), strict=True)
    boxes = [boxes_around(kind, gather(model, poses, geoms, of, tables), shape) for kind, geoms, of, shape in ends]
    depth = jax.lax.stop_gradient(
        table.margin[grid.pair] + model.opt.contact_reach - between_upright_boxes(boxes[0], boxes[1])
    )
    near = (grid.pair >= 0) & ~(depth < 0)
    allowed = masks.allow(grid.geom1[:, None], grid.geom2[None])
    near = near if allowed is None else near & allowed
    # the depth of a near pair is not negative
    rounds = -(-(stop - start) // (ROUNDS * ROUND)) * ROUNDS
    place, exists = above(jnp.where(near, depth, -FAR).reshape(-1), -1.0, rounds * ROUND)
    chosen = jnp.where(exists, pick_existing(jnp.asarray(grid.pair.reshape(-1)), place), start)
    room = _room(layout, group)

    def one_round(kept: _Kept, part: tuple[Array, Array, Array]) -> _Kept:
        number, chosen, exists = part
        examined = Examined(chosen, exists, jnp.zeros((), jnp.int32))
        found = rows_of_pairs(model, poses, layout, group, table, examined, tables, ALL_GEOMS)[0]
        fresh = _Kept(found.rows, jnp.asarray(found.pair, jnp.int32), jnp.asarray(found.part, jnp.int32), kept.dropped)
        if len(fresh.pair) > room:
            return kept.with_nearest(fresh, table)
        return cond(number == 0, lambda: fresh.padded(room), lambda: kept.with_nearest(fresh, table))

    kept = _Kept.empty(room, start, depth.dtype)
    parts = np.arange(rounds, dtype=np.int32), chosen.reshape(rounds, ROUND), exists.reshape(rounds, ROUND)
    some = functools.partial(_in_rounds, one_round)
    if rounds > ROUNDS:
        parts = tuple(x.reshape(-1, ROUNDS, *x.shape[1:]) for x in parts)
        some = functools.partial(_in_rounds, some)
    kept = some(kept, parts)
    found = Rows(
        rows=kept.rows,
        depth=kept.depth(table),
        pair=kept.pair,
        part=kept.part,
        dim=(dims_of(layout, group, room, 1),),
    )
    return found, kept.dropped


def _in_rounds(work: Callable[["_Kept", Any], "_Kept"], kept: "_Kept", parts: Any) -> "_Kept":
    """The rows after `work` on one part after another; parts without a pair in any world are skipped."""

    def play(kept: _Kept, part: Any) -> tuple[_Kept, None]:
        return cond(anywhere(jnp.any(part[-1])), lambda: work(kept, part), lambda: kept), None

    return scan(recomputed(play), kept, parts)[0]


def _room(layout: ContactLayout, group: PairGroup) -> int:
    """The number of rows of a group that may get a slot."""
    start, stop = pair_range(layout, group)
    kept = sum(block.kept for block, dim in blocks_of(layout) if dim in dimensions(layout, group))
    return min(kept, (stop - start) * group.rows)


class _Kept(NamedTuple):
    """Rows (r,) of a list, each with its pair in the table and its number among the rows of the pair.

    `dropped` () is the number of contacts that found no place.
    """

    rows: Candidates
    pair: Array
    part: Array
    dropped: Array

    @classmethod
    def empty(cls, room: int, pair: int | Array, dtype: Any) -> "_Kept":
        """Rows that are no contacts, of any pair."""
        zero, number = jnp.zeros((room, 3), dtype), jnp.zeros((room,), jnp.int32)
        rows = Candidates(zero[:, 0] + FAR, zero, zero.at[:, 2].set(1), zero, number > 0)
        return cls(rows, number + pair, number, jnp.zeros((), jnp.int32))

    def padded(self, room: int) -> "_Kept":
        """The rows, and as many that are no contacts that they are `room`."""
        columns = (self.rows, self.pair, self.part)
        more = _Kept.empty(room - len(self.pair), self.pair[0], self.rows.dist.dtype)
        rows, pair, part = jax.tree.map(lambda x, y: jnp.concatenate([x, y]), columns, more[:3])
        return _Kept(rows, pair, part, self.dropped)

    def depth(self, table: PairParameters) -> Array:
        """(r,) distance minus includemargin, m."""
        return jnp.where(self.rows.valid, self.rows.dist, FAR) - pick_existing(table.includemargin, self.pair)

    def with_nearest(self, others: "_Kept", table: PairParameters) -> "_Kept":
        """The nearest rows of both lists, as many as this list has."""
        room, more = len(self.pair), len(others.pair)
        depth = jax.lax.stop_gradient(jnp.concatenate([self.depth(table), others.depth(table)]))
        row, exists = above(-depth, -0.5 * FAR, room)
        mine, here, there = row < room, jnp.minimum(row, room - 1), jnp.clip(row - room, 0, more - 1)
        chosen = jax.tree.map(
            lambda x, y: where_tree(mine, pick_existing(x, here), pick_existing(y, there)), self[:3], others[:3]
        )
        rows, pair, part = chosen
        rows = rows._replace(valid=rows.valid & exists)
        return _Kept(rows, pair, part, self.dropped + jnp.maximum(count(depth < 0) - room, 0))
