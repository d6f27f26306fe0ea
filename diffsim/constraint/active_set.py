"""Active sets: which constraints act and which rows push, fixed while a state moves, so that forces are smooth.

A contact or limit acts where its distance is below the margin, and a one-sided row (or an edge of a pyramid) pushes
where x = J qacc - aref < 0. An active set keeps these decisions of one state for other states: a row that pushed goes
on, pulling if need be, and one that did not stays silent. `signals` are positive where the decisions are still right;
where one of them becomes negative, a contact has begun or ended. Of elliptic contacts only whether they act is fixed;
how they push follows from the state.

A contact also ends by its distance, and may push to the last: by friction, as edges of the pyramid of one that slides
do, or because the bodies part slowly. Its force jumps there, as at touch.

Further signals change no force: impedance rises within the first millimetre (`solimp`), along two parabolas, which a
fast body crosses in a tenth of a step. A step that ran over an end of this rise would see its steep part at one stage
or none, and is split there, on the way in and out; one that stays within the rise is split where it turns.

Used by the step that is split at such times (simulate/events.py).
"""

import dataclasses
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.constraint import laws
from diffsim.constraint.limit import limit_layout
from diffsim.constraint.rows import RawRows
from diffsim.math import safe
from diffsim.types import Model
from diffsim.types.constraints import ActiveSet, Constraints, Law, PerGroup, RowGroup

# laws of rows that act at a distance below the margin, and those whose zones can be fixed
INEQUALITIES = (Law.ONE_SIDED, Law.PYRAMID, Law.CONE)
ZONED = (Law.ONE_SIDED, Law.PYRAMID)


class Signals(NamedTuple):
    """Numbers that are positive while nothing begins or ends.

    `touches`: distances of what does not act (m or rad). `leaves`: depths of what pushes (m or rad). `switches`: of
    rows that act, x where they are silent (m/s^2 or rad/s^2) and the force where they push (N or N m). `rises` and
    `turns`: how far constraints that act are from the depths at which the rise of their impedance ends, and turns.
    """

    touches: Array
    leaves: Array
    switches: Array
    rises: Array
    turns: Array


def active_set_of(constraints: Constraints, x: PerGroup) -> ActiveSet:
    """The decisions of a state, binding, from its rows and their residuals x = J qacc - aref."""
    groups = list(zip(constraints.groups, x, strict=True))
    pushes = tuple(laws.efc_rows(rows, residual) < 0 for rows, residual in groups)
    deep = tuple((rows.margin - rows.pos)[None] > rows.kinks for rows, _ in groups)
    return ActiveSet(tuple(laws.active(rows) for rows, _ in groups), pushes, deep, jnp.ones((), bool))


def fix_activity(raw: RawRows, active_set: ActiveSet, index: int) -> RawRows:
    """The rows of group `index`, active as the set says. Impedance does not rise again where they have come apart."""
    violation = raw.pos - raw.margin
    size = violation if raw.size is None else raw.size
    return raw._replace(
        active=jnp.where(active_set.binds, active_set.acts[index], raw.active),
        size=jnp.where(active_set.binds, safe.minimum(violation, 0), size),
    )


def fix_zones(rows: RowGroup, active_set: ActiveSet, index: int) -> RowGroup:
    """Group `index` with the zones of its law as the set says: a row pushes whatever its x, or never."""
    if rows.law not in ZONED:
        return rows
    always = jnp.where(active_set.pushes[index], jnp.inf, -jnp.inf).astype(rows.D.dtype)
    return dataclasses.replace(rows, threshold=jnp.where(active_set.binds, always, 0))


def signals(model: Model, constraints: Constraints, x: PerGroup, active_set: ActiveSet) -> Signals:
    """Numbers of all groups that turn negative where a decision is no longer right; 1 where there is none to make.

    Args:
      model: the model.
      constraints: the rows of a state, with the set or without.
      x: residuals of the rows at its acceleration.
      active_set: the decisions.
    """
    touches, leaves, switches, rises, turns = ([x[0][:0, 0] if x else jnp.zeros(0)] for _ in range(5))
    decisions = active_set.acts, active_set.pushes, active_set.deep
    for rows, residual, acts, pushes, deep in zip(constraints.groups, x, *decisions, strict=True):
        if rows.law in INEQUALITIES:
            # rows of limits on dofs stand for all dofs
            exists = limit_layout(model.topology).dof if rows.sign else np.ones(rows.count, bool)
            touches.append(jnp.where(exists & ~acts, rows.pos - rows.margin, 1))
            pushing = jnp.any(pushes, axis=0) if rows.law in ZONED else True
            leaves.append(jnp.where(acts & pushing, rows.margin - rows.pos, 1))
            deeper = (rows.margin - rows.pos)[None] - rows.kinks
            turn, end = jnp.where(acts[None] & (rows.kinks > 0), jnp.where(deep, deeper, -deeper), 1)
            rises.append(end)
            turns.append(turn)
        if rows.law in ZONED:
            # the force ends where x does, and is nearer to a straight line in time: x is divided by the impedance
            side = jnp.where(pushes, laws.efc_force(rows, residual), laws.efc_rows(rows, residual))
            switches.append(jnp.where(acts[None], side, 1).reshape(-1))
    return Signals(*(jnp.concatenate(parts) for parts in (touches, leaves, switches, rises, turns)))


def inactive_asleep(raw: RawRows, asleep: Array | None) -> RawRows:
    """The rows, inactive where all dofs that they move are asleep (nv,); contacts of sleeping bodies have no slot."""
    if asleep is None or raw.slot is not None:
        return raw
    if raw.sign:
        return raw._replace(active=raw.active & ~asleep)
    assert raw.jacobian is not None
    jacobian = raw.jacobian if isinstance(raw.jacobian, Array) else raw.jacobian.dense
    moves = jnp.any(jacobian.reshape(raw.dim, -1, len(asleep)) != 0, axis=0)
    resting = jnp.any(moves & asleep[None], axis=1) & ~jnp.any(moves & ~asleep[None], axis=1)
    return raw._replace(active=raw.active & ~resting)
