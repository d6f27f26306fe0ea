"""collide: from geom poses to the contact buffer.

Fourth step of the position stage, after kinematics. Candidate pairs are static (pairs.py). If a group has more pairs
than its capacity, the nearest are examined, by bounds of their distances (bounds.py). Each pair function runs once,
mapped over the pairs of its group whose boxes are near. On a CPU, large groups first list the pairs whose upright boxes
overlap, and never touch the others (near_pairs.py). Rows are then ordered by contact dimension, and the nearest fill
the buffer. Parameters come from a table that does not depend on the state. Source: MuJoCo, "Computation", collision.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.collision.bounds import bounding_gap
from diffsim.collision.layout import ContactLayout, Grid, PairGroup, layout_of
from diffsim.collision.near_pairs import is_listed, rows_of_near
from diffsim.collision.pair_rows import (
    FAR,
    Examined,
    GeomMasks,
    Index,
    Rows,
    blocks_of,
    competes,
    joined,
    rows_of_pairs,
)
from diffsim.collision.parameters import PairParameters, pair_parameters
from diffsim.geometry.assets import geoms_exist
from diffsim.geometry.buckets import GeomFrames, Poses
from diffsim.geometry.shapes import Candidates, negligible, unit_x
from diffsim.kinematics.poses import geom_frames
from diffsim.math.rotation import across, axis_far_from, frame_along
from diffsim.math.vector import Components, dot_components, unpack
from diffsim.types.data import Contacts, Kinematics
from diffsim.types.model import Model
from diffsim.xla.barriers import for_cpu, stored
from diffsim.xla.gather import pick_existing, pick_static
from diffsim.xla.largest import largest, present
from diffsim.xla.progress import describe
from diffsim.xla.select import count, where_tree


def colliding_frames(model: Model, kinematics: Kinematics) -> Poses:
    """Frames of all geoms; on a CPU, only of geoms in candidate pairs if these are fewer."""
    pairs = layout_of(model).pairs
    geoms = np.union1d(pairs.geom1, pairs.geom2)
    if not for_cpu() or len(geoms) == model.ngeom:
        return kinematics
    place = np.zeros(model.ngeom, np.int32)
    place[geoms] = np.arange(len(geoms))
    return GeomFrames(*geom_frames(model, kinematics, geoms), place)


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
    masks = GeomMasks(None if awake is None else awake[model.topology.geom_bodyid], geoms_exist(model))
    found, missed = _rows(model, poses, layout, table, masks)
    row, exists, dropped = _nearest(layout, found)
    pair, part = pick_static(found.pair, row), pick_static(found.part, row)
    dist, pos, normal, tangent, valid = (pick_existing(column, row) for column in found.rows)
    valid = valid & exists if isinstance(exists, Array) else valid
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
        ncon_dropped=(missed + dropped).astype(jnp.int32),
    )


def _examined(
    model: Model, poses: Poses, layout: ContactLayout, group: PairGroup, table: PairParameters, masks: GeomMasks
) -> Examined:
    """The nearest pairs of each section of a group."""
    pairs, flags, missed = list[Index](), list[Index](), jnp.zeros((), jnp.int32)
    listed = competes(layout, group)
    for section, grid in zip(layout.sections[group.sections], layout.grids[group.sections], strict=True):
        if grid is None:
            pairs.append(np.arange(section.start, section.stop))
            flags.append(np.ones(section.kept, bool))
            continue
        depth = _depths(model, poses, grid, table.margin[grid.pair], masks)
        if listed:
            nearest, exists = present(depth, -model.opt.contact_reach, section.kept)
        else:
            nearest, exists = largest(depth, section.kept)[1], np.ones(section.kept, bool)
        pair = pick_existing(jnp.asarray(grid.pair.reshape(-1)), nearest)
        pairs.append(jnp.where(exists, pair, section.start) if isinstance(exists, Array) else pair)
        flags.append(exists)
        missed = missed + jnp.maximum(count(depth > 0) - section.kept, 0)
    exists = joined(flags)
    return Examined(joined(pairs), exists if isinstance(exists, Array) else None, missed)


def _depths(model: Model, poses: Poses, grid: Grid, margin: Array, masks: GeomMasks) -> Array:
    """(n * m,) m, the overlap of the bounds of each pair of a grid, including a margin (n, m).

    Pairs that the masks do not allow come after all others. Grid entries without a pair come last, so that they are
    chosen only if no pair is left.
    """
    depth = -jax.lax.stop_gradient(bounding_gap(model, poses, grid) - margin)
    allowed = masks.allow(grid.geom1[:, None], grid.geom2[None])
    depth = depth if allowed is None else jnp.where(allowed, depth, -FAR)
    return stored(jnp.where(grid.pair < 0, -2 * FAR, depth)).reshape(-1)


def _rows(
    model: Model, poses: Poses, layout: ContactLayout, table: PairParameters, masks: GeomMasks
) -> tuple[Rows, Array]:
    """The rows of all groups, one group after another, and the number () of pairs, parts and rows left out."""
    groups, missed = [], jnp.zeros((), jnp.int32)
    tables: dict[int, Any] = {}
    for group in layout.groups:
        # the name by which profiles and `make measure WHAT=compile` tell kinds of pairs apart
        with jax.named_scope(f"pairs {'-'.join(kind.name.lower() for kind in group.kinds)}"):
            if is_listed(model, layout, group):
                rows, left_out = rows_of_near(model, poses, layout, group, table, masks)
            else:
                pairs = _examined(model, poses, layout, group, table, masks)
                rows, left_out = rows_of_pairs(model, poses, layout, group, table, pairs, tables, masks)
        missed = missed + left_out
        groups.append(rows)
    if not groups:
        none, vectors = jnp.zeros((0,), poses.geom_xpos.dtype), jnp.zeros((0, 3), poses.geom_xpos.dtype)
        rows = Candidates(none, vectors, vectors, vectors, jnp.zeros((0,), bool))
        return Rows(rows, none, np.zeros(0, np.int32), np.zeros(0, np.int32), ()), missed
    columns = zip(*((*group.rows, group.depth) for group in groups), strict=True)
    *candidates, depth = (jnp.concatenate(column) if len(groups) > 1 else column[0] for column in columns)
    found = Rows(
        rows=Candidates(*candidates),
        depth=jax.lax.stop_gradient(depth),
        pair=joined([g.pair for g in groups]),
        part=joined([g.part for g in groups]),
        dim=tuple(g.dim[0] for g in groups),
    )
    return found, missed


def _nearest(layout: ContactLayout, found: Rows) -> tuple[Index, Index, Array]:
    """Rows that fill the slots, whether each slot has one, and the number () of contacts without a slot."""
    dropped = jnp.zeros((), jnp.int32)
    starts = np.cumsum([0, *(len(dim) for dim in found.dim)])[:-1]
    rows, flags = list[Index](), list[Array | np.ndarray]()
    for block, dim in blocks_of(layout):
        # the rows of this dimension
        of_groups = [start + np.flatnonzero(each == dim) for start, each in zip(starts, found.dim, strict=True)]
        member = np.concatenate(of_groups)
        if block.kept == block.stop - block.start:
            rows.append(member)
            flags.append(np.ones(block.kept, bool))
            continue
        depth = pick_existing(found.depth, member)
        index, exists = present(-depth, -0.5 * FAR, block.kept)
        in_order = member[-1] - member[0] + 1 == len(member)
        rows.append(index + member[0] if in_order else pick_existing(jnp.asarray(member), index))
        flags.append(exists)
        dropped = dropped + jnp.maximum(count(depth < 0) - block.kept, 0)
    return joined(rows), joined(flags), dropped


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
