"""collide: from geom poses to the contact buffer.

Fourth step of the position stage, after kinematics. Candidate pairs are static (pairs.py). If a group has more pairs
than its capacity, the nearest are examined, by a lower bound of their distance (bounds.py). Each pair function runs
once, mapped over the pairs of its group whose boxes are near. Rows are then ordered by contact dimension, and the
nearest fill the buffer. Parameters come from a table that does not depend on the state (parameters.py). Source: MuJoCo,
"Computation", collision.
"""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.base.enums import GeomType
from diffsim.collision.bounds import between_boxes, bounding_gap, boxes_around
from diffsim.collision.layout import ContactLayout, Grid, PairGroup, layout_of
from diffsim.collision.parameters import PairParameters, pair_parameters
from diffsim.geometry.buckets import GeomFrames, Poses, gather, row_axes
from diffsim.geometry.colliders import Collider, PairFunction
from diffsim.geometry.shapes import Candidates, Shape, negligible, unit_x
from diffsim.kinematics.poses import geom_frames
from diffsim.math.rotation import across, axis_far_from, frame_along
from diffsim.math.vector import Components, dot_components, unpack
from diffsim.types.data import Contacts, Kinematics
from diffsim.types.model import Model
from diffsim.xla.barriers import decided, for_cpu, stored
from diffsim.xla.gather import pick_existing, pick_static
from diffsim.xla.largest import largest
from diffsim.xla.progress import describe
from diffsim.xla.select import count, if_anywhere, rows_where, where_tree

Index = Array | np.ndarray


def colliding_frames(model: Model, kinematics: Kinematics) -> Poses:
    """Frames of all geoms; on a CPU, only of geoms in candidate pairs if these are fewer."""
    pairs = layout_of(model).pairs
    geoms = np.union1d(pairs.geom1, pairs.geom2)
    if not for_cpu() or len(geoms) == model.ngeom:
        return kinematics
    place = np.zeros(model.ngeom, np.int32)
    place[geoms] = np.arange(len(geoms))
    return GeomFrames(*geom_frames(model, kinematics, geoms), place)


# geom types whose pair functions cost enough that a bound of the distance, computed first, saves time
SORTED_OUT = {GeomType.CAPSULE, GeomType.BOX}
# least number of rows of a group for which this holds; fewer rows fit in a few vectors and need no bound
FEWEST = 24
# m, the distance of a row that cannot be a contact
FAR = 1e10


def collide(model: Model, poses: Poses, awake: Array | None = None) -> Contacts:
    """Contacts of one world.

    Args:
      model: the model.
      poses: `geom_xpos` (ngeom, 3) and `geom_xmat` (ngeom, 3, 3), world frame, or the result of `colliding_frames`.
      awake: (nbody,) which bodies are awake; two sleeping bodies make no contact and take no slot. None: all are awake.

    Returns:
      The contact buffer (ncon slots, `layout_of(model)`), ordered by contact dimension. A slot is
      active when `dist < includemargin`. A slot that cannot be a contact has geom ids -1, distance 1e10, no gradient.

    Raises:
      UnsupportedError: two geoms that can touch have types without a pair function.
    """
    layout = layout_of(model)
    describe(layout.described)
    table = pair_parameters(model, layout.pairs)
    is_awake = None if awake is None else awake[model.topology.geom_bodyid]
    examined, culled = _examine(model, poses, layout, table, is_awake)
    rows, depth, left_out = _rows(model, poses, layout, examined, table, is_awake)
    row, dropped = _nearest(layout, depth)
    columns = layout.row_pair, layout.row_part, layout.row_order
    place, part, made = (x if row is None else pick_existing(jnp.asarray(x), row) for x in columns)
    pair = pick_static(_joined(examined), place)
    dist, pos, normal, tangent, valid = (pick_existing(column, made) for column in rows)
    dist = jnp.where(valid, dist, FAR)
    geoms = jnp.stack([jnp.asarray(pick_static(end, pair)) for end in layout.pairs[:2]], axis=-1)
    none = jnp.zeros((0, 2), jnp.int32)
    return Contacts(
        dist=dist,
        pos=pos,
        frame=stored(_frame(normal, tangent)),
        **{name: pick_existing(column, pair) for name, column in table._asdict().items()},
        geom=jnp.where(valid[:, None], geoms, -1).astype(jnp.int32),
        flex=none,
        elem=none,
        vert=none,
        sort_key=jnp.asarray(pick_static(layout.pair_sort_key, pair) + part).astype(jnp.int32),
        ncon_dropped=(culled + left_out + dropped).astype(jnp.int32),
    )


def _examine(
    model: Model, poses: Poses, layout: ContactLayout, table: PairParameters, is_awake: Array | None
) -> tuple[list[Index], Array]:
    """Indices of the pairs to examine in each section, and the number () of other pairs that may touch."""
    chosen: list[Index] = []
    missed = jnp.zeros((), jnp.int32)
    for section, grid in zip(layout.sections, layout.grids, strict=True):
        if grid is None:
            chosen.append(np.arange(section.start, section.stop))
            continue
        depth = _depths(model, poses, grid, table.margin[grid.pair], is_awake)
        nearest = largest(depth, section.kept)[1]
        chosen.append(pick_existing(jnp.asarray(grid.pair.reshape(-1)), nearest))
        missed = missed + jnp.maximum(count(depth > 0) - section.kept, 0)
    return chosen, missed


def _depths(model: Model, poses: Poses, grid: Grid, margin: Array, is_awake: Array | None) -> Array:
    """(n * m,) m, the overlap of the bounds of each pair of a grid, including a margin (n, m).

    Pairs of two sleeping geoms come after all others. Grid entries without a pair come last, so that they are chosen
    only if no pair is left.
    """
    depth = -jax.lax.stop_gradient(bounding_gap(model, poses, grid) - margin)
    if is_awake is not None:
        depth = jnp.where(is_awake[grid.geom1][:, None] | is_awake[grid.geom2][None], depth, -FAR)
    return stored(jnp.where(grid.pair < 0, -2 * FAR, depth)).reshape(-1)


def _joined(chosen: Sequence[Index]) -> Index:
    """The indices joined to one array, static if all of them are static."""
    if any(isinstance(indices, Array) for indices in chosen):
        return jnp.concatenate([jnp.asarray(indices) for indices in chosen])
    return np.concatenate([np.zeros(0, int), *chosen])


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
      is_awake: (n,) whether one of the two geoms is awake; None if no geom can sleep.
    """

    group: PairGroup
    function: PairFunction
    first: Shape
    second: Shape
    axes: tuple[Any, Any]
    margin: Array
    reach: Array | float
    is_awake: Array | None

    def rows(self) -> tuple[Candidates, Array]:
        """The rows of all pairs, and the number () of parts of first shapes that may touch but were left out."""
        collider = self.group.collider
        left_out = jnp.zeros((), jnp.int32)
        if collider.parts is not None:
            rows, left_out = self._of_parts()
        elif collider.searches:
            rows = self._searched()
        elif set(self.group.kinds) <= SORTED_OUT and len(self.margin) * self.group.rows >= FEWEST:
            rows = self._of_near_pairs()
        else:
            rows = self._of_all_pairs()
        if self.is_awake is not None:
            rows = rows._replace(valid=rows.valid & self.is_awake.reshape(-1, *(1,) * (rows.valid.ndim - 1)))
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
        left_out = left_out if self.is_awake is None else jnp.where(self.is_awake, left_out, 0)
        of_parts = jax.vmap(self.function, (0, None, None))
        chosen = self._replace(function=of_parts, first=parts, axes=(0, self.axes[1]))
        return chosen._of_all_pairs(), jnp.sum(left_out)

    def _searched(self) -> Candidates:
        """For a function that searches: it gets a flag for near pairs, and runs only if some pair is near."""
        gap, enough = self._bound()
        near = gap <= enough
        none = self._no_rows(gap)
        search = functools.partial(self._mapped(0), self.first, self.second, self.margin, near)
        return self._within(enough, if_anywhere(near, search, none))

    def _of_near_pairs(self) -> Candidates:
        """For many pairs of which few are near: only these are computed, distributed over the worlds."""
        gap, enough = self._bound()
        near = gap <= enough
        none = self._no_rows(gap)
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


def _rows(
    model: Model,
    poses: Poses,
    layout: ContactLayout,
    examined: list[Index],
    table: PairParameters,
    is_awake: Array | None,
) -> tuple[Candidates, Array, Array]:
    """The rows of all pair functions, and the data by which the buffer chooses among them.

    Returns:
      (rows, one group after another; their distance minus `includemargin`, m, in the order of the buffer; the number of
      parts that may touch but were left out).
    """
    groups = []
    depths = []
    missed = jnp.zeros((), jnp.int32)
    tables: dict[int, Any] = {}
    for group in layout.groups:
        chosen = _joined(examined[group.sections])
        geoms = [pick_static(end, chosen) for end in layout.pairs[:2]]
        first, second = (gather(model, poses, *end, tables) for end in zip(geoms, group.buckets, strict=True))
        pairs = _GroupPairs(
            group=group,
            function=_pair_function(model, group.collider),
            first=first,
            second=second,
            axes=(row_axes(first, group.buckets[0]), row_axes(second, group.buckets[1])),
            margin=pick_existing(table.margin, chosen),
            reach=model.opt.contact_reach,
            is_awake=None if is_awake is None else is_awake[geoms[0]] | is_awake[geoms[1]],
        )
        # the name by which profiles and `make measure WHAT=compile` tell kinds of pairs apart
        with jax.named_scope(f"pairs {'-'.join(kind.name.lower() for kind in group.kinds)}"):
            rows, left_out = pairs.rows()
        missed = missed + left_out
        # decided once: otherwise, near the limit, the constraint and the readers of its force could see other contacts
        rows = stored(rows._replace(valid=decided(rows.valid)))
        # one axis of rows, also if a pair has several parts with several rows each
        dist, valid = (column.reshape(len(chosen), -1) for column in (rows.dist, rows.valid))
        depth = jnp.where(valid, dist, FAR) - pick_existing(table.includemargin, chosen)[:, None]
        depths.append(depth.reshape(-1))
        pos, normal, tangent = (column.reshape(-1, 3) for column in (rows.pos, rows.normal, rows.tangent))
        groups.append(Candidates(dist.reshape(-1), pos, normal, tangent, valid.reshape(-1)))
    if not groups:
        none = jnp.zeros((0,), poses.geom_xpos.dtype)
        vectors = jnp.zeros((0, 3), poses.geom_xpos.dtype)
        rows = Candidates(none, vectors, vectors, vectors, jnp.zeros((0,), bool))
        return rows, rows.dist, missed
    columns = [*zip(*groups, strict=True), depths]
    *rows, depth = (jnp.concatenate(column) if len(groups) > 1 else column[0] for column in columns)
    return Candidates(*rows), stored(jax.lax.stop_gradient(pick_existing(depth, layout.row_order))), missed


def _nearest(layout: ContactLayout, depth: Array) -> tuple[Array | None, Array]:
    """Rows that fill the slots (None: all rows in order), and the number () of active rows without a slot.

    `depth` (n,): distance minus `includemargin` of each row, m, in the order of the buffer.
    """
    dropped = jnp.zeros((), jnp.int32)
    if all(block.kept == block.stop - block.start for block in layout.blocks):
        return None, dropped
    rows = []
    for block in layout.blocks:
        if block.kept == block.stop - block.start:
            rows.append(jnp.arange(block.start, block.stop))
            continue
        of_block = depth[block.start : block.stop]
        rows.append(block.start + largest(-of_block, block.kept)[1])
        dropped = dropped + jnp.maximum(count(of_block < 0) - block.kept, 0)
    return jnp.concatenate(rows), dropped


def _frame(normal: Array, tangent: Array) -> Array:
    """Contact frames (n, 3, 3), rows: normal and two tangents; the first tangent follows `tangent` unless it is zero.

    As in MuJoCo, the x axis replaces a hint parallel to the normal, unless the x axis is parallel to it too.
    """
    z = stored(unpack(normal))
    hint = unpack(tangent)
    usual = unpack(axis_far_from(normal))
    x_axis = unit_x(z[0])
    instead = where_tree(_aside(z, x_axis, 0.01), x_axis, usual)
    hinted = where_tree(_aside(z, hint, negligible(normal, 1.0) ** 2), hint, instead)
    return frame_along(z, stored(where_tree(dot_components(hint, hint) > 0.25, hinted, usual)))


def _aside(normal: Components, hint: Components, limit: Array | float) -> Array:
    """Whether the component of a hint perpendicular to the normal is longer than the square root of `limit`."""
    part = jax.lax.stop_gradient(across(normal, hint))
    return dot_components(part, part) > limit
