"""The rows of pair functions: contact candidates of examined pairs, one pair function for all pairs of a group.

Pairs whose boxes are apart make no contact, and where a pair function costs more than the boxes, it runs only for pairs
that are near. Rows that are contacts are the same in all modes.
"""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.base.enums import GeomType
from diffsim.collision.bounds import between_boxes, boxes_around
from diffsim.collision.layout import Block, ContactLayout, PairGroup
from diffsim.collision.parameters import PairParameters
from diffsim.geometry.buckets import Poses, gather, row_axes
from diffsim.geometry.colliders import Collider, PairFunction
from diffsim.geometry.shapes import Candidates, Shape
from diffsim.types.model import Model
from diffsim.xla.barriers import decided, for_cpu, stored
from diffsim.xla.gather import pick_existing, pick_static
from diffsim.xla.select import if_anywhere, rows_where

Index = Array | np.ndarray

# geom types whose pair functions cost enough that a bound of the distance, computed first, saves time
SORTED_OUT = {GeomType.CAPSULE, GeomType.BOX}
# least number of rows of a group for which this holds; fewer rows fit in a few vectors and need no bound
FEWEST = 24
# m, the distance of a row that cannot be a contact
FAR = 1e10


class Rows(NamedTuple):
    """Rows (r,) of pair functions.

    Attributes:
      rows: the contact candidates.
      depth: (r,) m, distance minus `includemargin`, without derivatives; `FAR` for an invalid row.
      pair: (r,) the number of the pair in the table; static if it does not depend on the state.
      part: (r,) the number of the row within its pair.
      dim: for each group, the contact dimensions of its rows, static.
    """

    rows: Candidates
    depth: Array
    pair: Index
    part: Index
    dim: tuple[np.ndarray, ...]


class Examined(NamedTuple):
    """Pairs (n,) to examine, whether each exists (None: all do), and the number () of others that may touch."""

    pair: Index
    exists: Array | None
    missed: Array


class GeomMasks(NamedTuple):
    """Geoms (ngeom,) that are on awake bodies, and geoms that exist in this world; None where all are."""

    awake: Array | None
    exist: Array | None

    def allow(self, geom1: Index, geom2: Index) -> Array | None:
        """Whether pairs of geoms can touch: both exist, and one is awake; None if all can."""
        flags = []
        if self.awake is not None:
            flags.append(self.awake[geom1] | self.awake[geom2])
        if self.exist is not None:
            flags.append(self.exist[geom1] & self.exist[geom2])
        return functools.reduce(jnp.logical_and, flags) if flags else None


# masks for pairs that were allowed before
ALL_GEOMS = GeomMasks(None, None)


def joined(chosen: Sequence[Index]) -> Index:
    """The indices joined to one array, static if all of them are static."""
    if any(isinstance(indices, Array) for indices in chosen):
        return jnp.concatenate([jnp.asarray(indices) for indices in chosen])
    return np.concatenate(chosen) if len(chosen) else np.zeros(0, int)


def rows_of_pairs(
    model: Model,
    poses: Poses,
    layout: ContactLayout,
    group: PairGroup,
    table: PairParameters,
    pairs: Examined,
    tables: dict[int, Any],
    masks: GeomMasks,
) -> tuple[Rows, Array]:
    """The rows of examined pairs of a group, and the number () of pairs and parts that may touch but were left out."""
    chosen, exists, missed = pairs
    geoms = [pick_static(end, chosen) for end in layout.pairs[:2]]
    first, second = (gather(model, poses, *end, tables) for end in zip(geoms, group.buckets, strict=True))
    margin, counts = pick_existing(table.margin, chosen), exists
    allowed = masks.allow(geoms[0], geoms[1])
    if allowed is not None:
        counts = allowed if exists is None else allowed & exists
    of_group = _GroupPairs(
        group=group,
        function=_pair_function(model, group.collider),
        first=first,
        second=second,
        axes=(row_axes(first, group.buckets[0]), row_axes(second, group.buckets[1])),
        margin=margin if exists is None else jnp.where(exists, margin, -FAR),
        reach=model.opt.contact_reach,
        counts=counts,
        few=competes(layout, group),
    )
    rows, left_out = of_group.rows()
    # decided once: otherwise, near the limit, the constraint and the readers of its force could see other contacts
    rows = stored(rows._replace(valid=decided(rows.valid)))
    # one axis of rows, also if a pair has several parts with several rows each
    dist, valid = (column.reshape(len(chosen), -1) for column in (rows.dist, rows.valid))
    depth = jnp.where(valid, dist, FAR) - pick_existing(table.includemargin, chosen)[:, None]
    pos, normal, tangent = (column.reshape(-1, 3) for column in (rows.pos, rows.normal, rows.tangent))
    library = jnp if isinstance(chosen, Array) else np
    pair = library.repeat(chosen, dist.shape[1])
    found = Rows(
        rows=Candidates(dist.reshape(-1), pos, normal, tangent, valid.reshape(-1)),
        depth=depth.reshape(-1),
        pair=pair,
        part=np.tile(np.arange(dist.shape[1], dtype=np.int32), len(chosen)),
        dim=(dims_of(layout, group, len(chosen), dist.shape[1]),),
    )
    return found, missed + left_out


def dims_of(layout: ContactLayout, group: PairGroup, pairs: int, rows: int) -> np.ndarray:
    """(pairs * rows,) the contact dimensions of the rows of some pairs of a group.

    The pairs are those that each section keeps, one section after another; of a group with one dimension they may be
    any.
    """
    sections = layout.sections[group.sections]
    dims = [int(layout.pairs.dim[section.start]) for section in sections]
    if len(set(dims)) == 1:
        return np.full(pairs * rows, dims[0])
    return np.repeat(dims, [section.kept * rows for section in sections])


def dimensions(layout: ContactLayout, group: PairGroup) -> set[int]:
    """The contact dimensions of the pairs of a group."""
    return {int(layout.pairs.dim[section.start]) for section in layout.sections[group.sections]}


def competes(layout: ContactLayout, group: PairGroup) -> bool:
    """Whether only the rows that exist take slots: on a CPU, if each dimension of a group has more rows than slots."""
    all_kept = {dim for block, dim in blocks_of(layout) if block.kept == block.stop - block.start}
    return for_cpu() and dimensions(layout, group).isdisjoint(all_kept)


def blocks_of(layout: ContactLayout) -> list[tuple[Block, int]]:
    """The blocks of the buffer, each with its contact dimension."""
    starts = np.cumsum([0, *(block.kept for block in layout.blocks)])[:-1]
    return [(block, int(layout.dim[start])) for block, start in zip(layout.blocks, starts, strict=True)]


class _GroupPairs(NamedTuple):
    """The examined pairs (n,) of one group, and the modes in which their rows (n, k) are computed.

    The modes treat pairs that are apart differently; rows that are contacts are the same in all modes.

    Attributes:
      group: the collider, and the number of rows of a pair.
      function: the pair function.
      first, second: the geoms as shapes, stacked.
      axes: which arrays of each shape have an axis of pairs, for `vmap`.
      margin: (n,) m, the distance below which a contact exists.
      reach: () m, rows matter up to this distance beyond the margin (`opt.contact_reach`).
      counts: (n,) whether the two geoms can touch (`GeomMasks`), and a place of a list holds a pair; None if all do.
      few: whether only the rows that exist get slots; all rows beyond `reach` then become invalid.
    """

    group: PairGroup
    function: PairFunction
    first: Shape
    second: Shape
    axes: tuple[Any, Any]
    margin: Array
    reach: Array | float
    counts: Array | None
    few: bool

    def rows(self) -> tuple[Candidates, Array]:
        """The rows of all pairs, and the number () of parts of first shapes that may touch but were left out."""
        collider, left_out = self.group.collider, jnp.zeros((), jnp.int32)
        if collider.parts is not None:
            rows, left_out = self._of_parts()
        elif collider.searches:
            rows = self._searched()
        elif set(self.group.kinds) <= SORTED_OUT and len(self.margin) * self.group.rows >= FEWEST:
            rows = self._of_near_pairs()
        else:
            rows = self._of_all_pairs()
            rows = self._within(self.margin + self.reach, rows) if self.few else rows
        if self.counts is not None:
            rows = rows._replace(valid=rows.valid & self.counts.reshape(-1, *(1,) * (rows.valid.ndim - 1)))
        return rows, left_out

    def _mapped(self, *further: int) -> PairFunction:
        """The function for all pairs; `further`: the axes of the arguments after two shapes and a margin."""
        # traced for one pair, then mapped: the placeholders of nested maps make tracing slow
        return jax.vmap(jax.jit(self.function, inline=True), (*self.axes, 0, *further))

    def _of_all_pairs(self) -> Candidates:
        """Each pair is computed: the function costs less than finding out which pairs are near."""
        return self._mapped()(self.first, self.second, self.margin)

    def _of_parts(self) -> tuple[Candidates, Array]:
        """For a first shape with many parts, such as a height field: chooses the parts that the second may touch."""
        choose = jax.vmap(self.group.collider.parts, (*self.axes, 0))  # type: ignore[arg-type]
        parts, left_out = choose(self.first, self.second, self.margin)
        left_out = left_out if self.counts is None else jnp.where(self.counts, left_out, 0)
        of_parts = jax.vmap(self.function, (0, None, None))
        chosen = self._replace(function=of_parts, first=parts, axes=(0, self.axes[1]))
        return chosen._of_all_pairs(), jnp.sum(left_out)

    def _searched(self) -> Candidates:
        """For a function that searches: it gets a flag for near pairs, and runs only if some pair is near."""
        gap, enough = self._bound()
        near, none = gap <= enough, self._no_rows(gap)
        search = functools.partial(self._mapped(0), self.first, self.second, self.margin, near)
        return self._within(enough, if_anywhere(near, search, none))

    def _of_near_pairs(self) -> Candidates:
        """For many pairs of which few are near: only these are computed, distributed over the worlds."""
        gap, enough = self._bound()
        near, none = gap <= enough, self._no_rows(gap)
        rows = rows_where(near, self._mapped(), (self.first, self.second, self.margin), none)
        return self._within(enough, rows)

    def _bound(self) -> tuple[Array, Array]:
        """(lower bounds of the distances (n,), m; the distances (n,) beyond which a pair makes no contact)."""
        enough = self.margin + self.reach
        boxes = (boxes_around(*end) for end in zip(self.group.kinds, (self.first, self.second), strict=True))
        gap = between_boxes(*boxes)
        if self.group.collider.bound is not None:
            closer = jax.vmap(self.group.collider.bound, (*self.axes, 0, 0))
            look = functools.partial(closer, self.first, self.second, enough, gap <= enough)
            gap = jnp.maximum(gap, if_anywhere(gap <= enough, look, gap, spares=True))
        return gap, enough

    def _no_rows(self, like: Array) -> Candidates:
        """Rows that are no contacts, with finite numbers."""
        zero = jnp.zeros((len(self.margin), self.group.rows, 3), like.dtype)
        return Candidates(zero[..., 0] + FAR, zero, zero.at[..., 2].set(1), zero, zero[..., 0] > 0)

    @staticmethod
    def _within(enough: Array, rows: Candidates) -> Candidates:
        """The rows; rows with a distance greater than `enough` (n,) become invalid."""
        return rows._replace(valid=rows.valid & (rows.dist <= enough[:, None]))


def _pair_function(model: Model, collider: Collider) -> PairFunction:
    """The function of a collider for the MuJoCo version and the events of a model."""
    if model.opt.events and collider.steady is not None:
        return collider.steady
    if model.opt.follows("box_box") and collider.revised is not None:
        return collider.revised
    return collider.function
