"""Active sets: which constraints act and which rows push, fixed while a state moves, so that forces are smooth.

A contact or limit acts where its distance is below the margin, and a one-sided row (or an edge of a pyramid) pushes
where x = J qacc - aref < 0. An active set keeps these decisions of one state for other states: a row that pushed still
acts, and pulls if need be; a row that did not push exerts no force. `signals` are positive while the decisions are
right; when a signal becomes negative, a contact has begun or ended. For elliptic contacts, the set fixes only whether
they act; how they push follows from the state.

A contact that still pushes can end too, when its distance reaches the margin. Its force then jumps to zero. This
happens if the edges of a sliding contact's pyramid push, or if the bodies part slowly.

Further signals change no force. Impedance rises within the first millimetre (`solimp`) along two parabolas, which a
fast body crosses in a tenth of a step. Such a step would evaluate the steep part once or never. Therefore steps
are split where the rise begins or ends, on the way in and out, and at the midpoint of the rise.

Used by the step that is split at such times (simulate/integrate/events.py).
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

# laws of rows that act where the distance is below the margin
INEQUALITIES = (Law.ONE_SIDED, Law.PYRAMID, Law.CONE)
# laws of rows with two zones, in which they push or do not push: a decision that can be fixed
ZONED = (Law.ONE_SIDED, Law.PYRAMID)


class Signals(NamedTuple):
    """Numbers that are positive while nothing begins or ends.

    Attributes:
      touches: distances of constraints that do not act, m or rad.
      leaves: depths of constraints that push, m or rad.
      switches: for each row that acts: its force if it pushes, N or N m; else its x, m/s^2 or rad/s^2.
      rises: how far constraints that act are from the depth at which the rise of their impedance ends, m or rad.
      turns: how far they are from the midpoint of this rise, m or rad.
    """

    touches: Array
    leaves: Array
    switches: Array
    rises: Array
    turns: Array


def active_set_of(constraints: Constraints, x: PerGroup) -> ActiveSet:
    """The decisions of a state, with `binds` true, from its rows and their residuals x = J qacc - aref."""
    groups = list(zip(constraints.groups, x, strict=True))
    pushes = tuple(laws.efc_rows(rows, residual) < 0 for rows, residual in groups)
    deep = tuple((rows.margin - rows.pos)[None] > rows.kinks for rows, _ in groups)
    return ActiveSet(tuple(laws.active(rows) for rows, _ in groups), pushes, deep, jnp.ones((), bool))


def fix_activity(raw: RawRows, active_set: ActiveSet, index: int) -> RawRows:
    """The rows of group `index`, active as the set says.

    Where bodies have come apart, but still act, the impedance stays at its value at touch.
    """
    violation = raw.pos - raw.margin
    size = violation if raw.size is None else raw.size
    return raw._replace(
        active=jnp.where(active_set.binds, active_set.acts[index], raw.active),
        size=jnp.where(active_set.binds, safe.minimum(violation, 0), size),
    )


def fix_zones(rows: RowGroup, active_set: ActiveSet, index: int) -> RowGroup:
    """Group `index` with the zones of its law as the set says: a row pushes at any x, or never."""
    if rows.law not in ZONED:
        return rows
    always = jnp.where(active_set.pushes[index], jnp.inf, -jnp.inf).astype(rows.D.dtype)
    return dataclasses.replace(rows, threshold=jnp.where(active_set.binds, always, 0))


def signals(model: Model, constraints: Constraints, x: PerGroup, active_set: ActiveSet) -> Signals:
    """Numbers of all groups that become negative when a decision is no longer right; 1 where nothing is decided.

    Args:
      model: the model.
      constraints: the rows of a state; whether they were made with the active set does not matter.
      x: residuals of the rows at its acceleration.
      active_set: the decisions.
    """
    touches, leaves, switches, rises, turns = ([x[0][:0, 0] if x else jnp.zeros(0)] for _ in range(5))
    decisions = active_set.acts, active_set.pushes, active_set.deep
    for rows, residual, acts, pushes, deep in zip(constraints.groups, x, *decisions, strict=True):
        if rows.law in INEQUALITIES:
            # a group of limits on dofs has a row for every dof, also for dofs without a limit
            exists = limit_layout(model.topology).dof if rows.on_dofs else np.ones(rows.count, bool)
            touches.append(jnp.where(exists & ~acts, rows.pos - rows.margin, 1))
            pushing = jnp.any(pushes, axis=0) if rows.law in ZONED else True
            leaves.append(jnp.where(acts & pushing, rows.margin - rows.pos, 1))
            # depths beyond the midpoint and beyond the end of the rise
            deeper = (rows.margin - rows.pos)[None] - rows.kinks
            turn, end = jnp.where(acts[None] & (rows.kinks > 0), jnp.where(deep, deeper, -deeper), 1)
            rises.append(end)
            turns.append(turn)
        if rows.law in ZONED:
            # force and x are zero at the same time. The force is closer to linear in time: x contains a division by the
            # impedance, which cancels in the force
            side = jnp.where(pushes, laws.efc_force(rows, residual), laws.efc_rows(rows, residual))
            switches.append(jnp.where(acts[None], side, 1).reshape(-1))
    return Signals(*(jnp.concatenate(parts) for parts in (touches, leaves, switches, rises, turns)))


def inactive_asleep(raw: RawRows, asleep: Array | None) -> RawRows:
    """The rows, inactive if all dofs that they move are asleep (nv,).

    Rows of contacts, which have a slot, stay as they are: collision detection makes none between sleeping bodies.
    """
    if asleep is None or raw.slot is not None:
        return raw
    if raw.sign:
        return raw._replace(active=raw.active & ~asleep)
    assert raw.jacobian is not None
    jacobian = raw.jacobian if isinstance(raw.jacobian, Array) else raw.jacobian.dense
    moves = jnp.any(jacobian.reshape(raw.dim, -1, len(asleep)) != 0, axis=0)
    resting = jnp.any(moves & asleep[None], axis=1) & ~jnp.any(moves & ~asleep[None], axis=1)
    return raw._replace(active=raw.active & ~resting)
