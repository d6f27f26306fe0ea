"""collide: from geom poses to the contact buffer.

Fourth step of the position stage, after kinematics. Candidate pairs are static (pairs.py); where a group has more
than its capacity, the nearest by bounding spheres and boxes are examined (broad.py). Each pair function runs once,
mapped over its group. Rows are then ordered by contact dimension, and the nearest fill the buffer. Parameters come from
a table that does not depend on the state. Source: MuJoCo, "Computation", collision.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.collision.broad import bounding_gap
from diffsim.collision.layout import ContactLayout, layout_of
from diffsim.collision.parameters import PairParameters, pair_parameters
from diffsim.geometry.assets import gather, row_axes
from diffsim.geometry.frames import Poses
from diffsim.geometry.shapes import Candidates, negligible, unit_x
from diffsim.math.choose import where
from diffsim.math.largest import largest
from diffsim.math.pick import pick_existing
from diffsim.math.rotation import across, axis_far_from, frame_along
from diffsim.math.vector import dot
from diffsim.math.xla import decided, stored
from diffsim.types.data import Contacts
from diffsim.types.model import Model

Array = jax.Array
Index = Array | np.ndarray

FAR = 1e10  # distance in metres of a row that can be no contact


def collide(model: Model, poses: Poses) -> Contacts:
    """Contacts of one world.

    Args:
      model: the model.
      poses: `geom_xpos` (ngeom, 3) and `geom_xmat` (ngeom, 3, 3), world frame, or those of `colliding_frames`.

    Returns:
      The contact buffer (ncon slots, `layout_of(model)`), ordered by contact dimension. A slot is
      active when `dist < includemargin`. A slot that can be no contact has geom ids -1, distance 1e10 and no gradient.

    Raises:
      UnsupportedError: two geoms that can touch have types without a pair function.
    """
    layout = layout_of(model)
    table = pair_parameters(model, layout.pairs)
    examined, culled = _examine(model, poses, layout, table)
    rows, left_out = _rows(model, poses, layout, examined, table)
    # near its limit what makes the constraint and what reads its force would see other contacts
    rows = rows._replace(valid=decided(rows.valid))
    dist = where(rows.valid, rows.dist, FAR)
    row_pair = _at(_joined(examined), layout.row_pair)
    row, dropped = _nearest(layout, dist - pick_existing(table.includemargin, row_pair))
    pair, part = (_kept(column, row) for column in (row_pair, layout.row_part))
    dist, pos, normal, tangent, valid = (
        jnp.asarray(_kept(column, row)) for column in (dist, rows.pos, rows.normal, rows.tangent, rows.valid)
    )
    geoms = jnp.stack([jnp.asarray(_at(end, pair)) for end in layout.pairs[:2]], axis=-1)
    return Contacts(
        dist=dist,
        pos=pos,
        frame=stored(_frame(normal, tangent)),
        margin=pick_existing(table.margin, pair),
        includemargin=pick_existing(table.includemargin, pair),
        friction=pick_existing(table.friction, pair),
        solref=pick_existing(table.solref, pair),
        solreffriction=pick_existing(table.solreffriction, pair),
        solimp=pick_existing(table.solimp, pair),
        geom=where(valid[:, None], geoms, -1).astype(jnp.int32),
        sort_key=jnp.asarray(_at(layout.pair_sort_key, pair) + part).astype(jnp.int32),
        ncon_dropped=(culled + left_out + dropped).astype(jnp.int32),
    )


def _examine(model: Model, poses: Poses, layout: ContactLayout, table: PairParameters) -> tuple[list[Index], Array]:
    """Indices of the pairs to examine of each section, and how many that were left out may touch."""
    chosen: list[Index] = []
    missed = jnp.zeros((), jnp.int32)
    for (start, stop, kept), grid in zip(layout.sections, layout.grids, strict=True):
        if grid is None:
            chosen.append(np.arange(start, stop))
            continue
        gap = jax.lax.stop_gradient(bounding_gap(model, poses, grid) - table.margin[grid.pair])
        depth = stored(where(grid.pair < 0, -FAR, -gap)).reshape(-1)
        nearest, index = largest(depth, kept)
        chosen.append(pick_existing(jnp.asarray(grid.pair.reshape(-1)), index))
        missed = missed + jnp.sum(depth > 0) - jnp.sum(nearest > 0)
    return chosen, missed


def _joined(chosen: Sequence[Index]) -> Index:
    """Indices one after another, static where all of them are."""
    if any(isinstance(each, jax.Array) for each in chosen):
        return jnp.concatenate([jnp.asarray(each) for each in chosen])
    return np.concatenate([np.zeros(0, int), *chosen])


def _at(table: Index, index: Index) -> Index:
    """table[index], static where both are."""
    if isinstance(table, jax.Array) or isinstance(index, jax.Array):
        return pick_existing(jnp.asarray(table), index)
    return table[index]


def _kept(column: Index, row: Array | None) -> Index:
    """The rows of a column that have a slot; None for all of them."""
    return column if row is None else pick_existing(jnp.asarray(column), row)


def _rows(
    model: Model, poses: Poses, layout: ContactLayout, examined: list[Index], table: PairParameters
) -> tuple[Candidates, Array]:
    """All rows of all pair functions, in the order of the buffer, and how many parts that may touch were left out."""
    groups, missed = [], jnp.zeros((), jnp.int32)
    for group in layout.groups:
        chosen = _joined(examined[group.sections])
        geoms = [_at(end, chosen) for end in layout.pairs[:2]]
        first, second = (gather(model, poses, *each) for each in zip(geoms, group.buckets, strict=True))
        margin, function = pick_existing(table.margin, chosen), group.collider.function
        axes = [row_axes(*each) for each in zip((first, second), group.buckets, strict=True)]
        if model.opt.events and group.collider.steady is not None:
            function = group.collider.steady
        if group.collider.parts is not None:
            first, left_out = group.collider.parts(first, second, margin)
            missed, function = missed + jnp.sum(left_out), jax.vmap(function, (0, None, None))
            axes[0] = 0
        # traced for one pair, and then mapped: the placeholders of nested maps are slow
        rows = jax.vmap(jax.jit(function, inline=True), (*axes, 0))(first, second, margin)
        rows = stored(rows)
        flat = {"dist": (-1,), "valid": (-1,)}
        groups.append(Candidates(*(column.reshape(flat.get(name, (-1, 3))) for name, column in rows._asdict().items())))
    if not groups:
        return _no_rows(poses.geom_xpos), missed
    joined = [jnp.concatenate(columns) if len(groups) > 1 else columns[0] for columns in zip(*groups, strict=True)]
    return Candidates(*(pick_existing(column, layout.row_order) for column in joined)), missed


def _no_rows(like: Array) -> Candidates:
    none, vectors = jnp.zeros((0,), like.dtype), jnp.zeros((0, 3), like.dtype)
    return Candidates(none, vectors, vectors, vectors, jnp.zeros((0,), bool))


def _nearest(layout: ContactLayout, depth: Array) -> tuple[Array | None, Array]:
    """Rows that fill the slots (None: all of them in order), and how many active rows found no slot."""
    dropped = jnp.zeros((), jnp.int32)
    depth = jax.lax.stop_gradient(depth)
    if all(block.kept == block.stop - block.start for block in layout.blocks):
        return None, dropped
    rows = []
    for start, stop, kept in layout.blocks:
        if kept == stop - start:
            rows.append(jnp.arange(start, stop))
            continue
        nearest, index = largest(-depth[start:stop], kept)
        rows.append(start + index)
        dropped = dropped + jnp.sum(depth[start:stop] < 0) - jnp.sum(nearest > 0)
    return jnp.concatenate(rows), dropped


def _frame(normal: Array, tangent: Array) -> Array:
    """Contact frames (n, 3, 3), rows normal and two tangents; the first follows `tangent` where it is a hint.

    A hint parallel to the normal is replaced by the x axis, as in MuJoCo, unless that is the normal too.
    """
    x_axis, usual = unit_x(normal), axis_far_from(normal)
    instead = where(_aside(normal, x_axis, 0.01), x_axis, usual)
    hint = where(_aside(normal, tangent, negligible(normal) ** 2), tangent, instead)
    return frame_along(normal, where(dot(tangent, tangent)[:, None] > 0.25, hint, usual))


def _aside(normal: Array, hint: Array, limit: float) -> Array:
    """(n, 1) whether a hint has a part that is normal to the normal."""
    part = jax.lax.stop_gradient(across(normal, jnp.broadcast_to(hint, normal.shape)))
    return dot(part, part)[:, None] > limit
