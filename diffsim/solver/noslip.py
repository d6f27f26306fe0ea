"""noslip: friction without regularization, found after the main solver; all other forces stay as they are.

The soft friction of the main problem lets a loaded contact creep. This pass minimizes 1/2 y^T A y + y^T b over the
friction forces y alone, A = J M^-1 J^T without R, within the bounds that the fixed normal forces give: an interval for
dry friction and for each pair of opposing pyramid edges, a ball for the sides of an elliptic contact. Sweeps over the
constraints (noslip_sweeps.py) respect all bounds even where they end early. The derivative is that of their fixed point
(noslip_adjoint.py). Source: MuJoCo documentation, "Computation", noslip solver.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from diffsim.constraint import laws
from diffsim.constraint.islands import Islands, islands
from diffsim.math import safe
from diffsim.math.linalg import solve_blocks
from diffsim.math.vector import matmul
from diffsim.solver.friction_cone import Cones
from diffsim.solver.friction_rows import (
    FrictionRows,
    WithForce,
    friction_count,
    friction_rows,
    has_friction,
    members,
    with_friction,
    without_friction,
)
from diffsim.solver.noslip_adjoint import at_fixed_point
from diffsim.solver.noslip_sweeps import Schedule, sweep_until_converged
from diffsim.solver.objective import Objective, row_forces_on_dofs
from diffsim.types import Model
from diffsim.types.constraints import Constraints, Law, PerGroup
from diffsim.xla.barriers import SEARCH_RESULT

Array = jax.Array

# more rows than a contact can have
STRIDE = 8


class RigidFriction(NamedTuple):
    """Acceleration (nv,) and row forces (force_count, n) of each group under rigid friction; number of sweeps."""

    qacc: Array
    forces: PerGroup
    sweeps: Array


def without_slip(
    model: Model, objective: Objective, qacc: Array, forces: PerGroup, contact_order: Array | None
) -> RigidFriction:
    """The solution after friction is made rigid.

    Args:
      objective: that of the soft problem.
      qacc: (nv,) its solution, which stays where there is no friction.
      forces: (force_count, n) row forces of each group there.
      contact_order: (ncon,) in which order the contacts are swept; None for that of the slots.
    """
    qM, qfrc_smooth, constraints = objective
    if not any(has_friction(rows) for rows in constraints.groups):
        return RigidFriction(qacc, forces, jnp.zeros((), jnp.int32))
    rows, start = _all_friction_rows(model, constraints, forces)
    parts = zip(constraints.groups, forces, strict=True)
    held = qfrc_smooth + row_forces_on_dofs(constraints, tuple(without_friction(*pair) for pair in parts))
    # searched for as a constant of all derivatives
    schedule = _schedule(*jax.lax.stop_gradient((model, constraints, forces)), contact_order)
    y, sweeps = sweep_until_converged(schedule, *jax.lax.stop_gradient((qM.dense, held, rows, start)))
    y = at_fixed_point(schedule.cones, checkpoint_name(y, SEARCH_RESULT), qM, held, rows)
    qacc = solve_blocks(qM, held + matmul(y, rows.jacobian))
    return RigidFriction(qacc, _put_back(model, constraints, forces, y), sweeps)


def _all_friction_rows(model: Model, constraints: Constraints, forces: PerGroup) -> WithForce:
    """The friction rows of all groups, one after another."""
    pairs = zip(constraints.groups, forces, strict=True)
    parts = [friction_rows(model.topology, constraints, *pair) for pair in pairs if has_friction(pair[0])]
    rows = FrictionRows(*(jnp.concatenate(column) for column in zip(*(part.rows for part in parts), strict=True)))
    return WithForce(rows, jnp.concatenate([part.y for part in parts]))


def _put_back(model: Model, constraints: Constraints, forces: PerGroup, y: Array) -> PerGroup:
    """Row forces of all groups with the friction y (m,)."""
    final, begin = [], 0
    for rows, old in zip(constraints.groups, forces, strict=True):
        count = friction_count(model.topology, rows)
        final.append(with_friction(model.topology, rows, old, y[begin : begin + count]) if count else old)
        begin += count
    return tuple(final)


def _schedule(model: Model, constraints: Constraints, forces: PerGroup, contact_order: Array | None) -> Schedule:
    """Order, islands and tolerance of the sweeps."""
    separate, topology = islands(model, constraints), model.topology
    total = sum(rows.count for rows in constraints.contacts)
    ranks = jnp.arange(total, dtype=jnp.int32) if contact_order is None else contact_order
    rank, island = [], []
    for rows, label in zip(constraints.groups, separate.label, strict=True):
        if rows.law == Law.BOUNDED:
            own = members(topology, rows)
            # dofs, then tendons, then contacts
            rank.append(jnp.asarray(own - topology.ntendon - rows.sign * topology.nv, jnp.int32))
            island.append(label[own])
        elif rows.slot is not None:
            slots = ranks[rows.slot : rows.slot + rows.count]
            inner = jnp.arange(rows.dim - 1, dtype=jnp.int32)
            rank.append((slots[:, None] * STRIDE + inner[None]).reshape(-1))
            island.append(jnp.repeat(label, rows.dim - 1))
    elliptic = tuple((rows.count, rows.dim - 1) for rows in constraints.groups if rows.law == Law.CONE)
    ordered = jnp.concatenate(rank)
    return Schedule(
        rank=ordered,
        island=jnp.concatenate(island),
        dropped=_regularization_cost(constraints, forces, separate),
        tolerance=model.opt.noslip_tolerance * model.stat.meaninertia * max(1, model.nv),
        iterations=model.opt.noslip_iterations,
        cones=Cones(ordered.shape[0], elliptic),
    )


def _regularization_cost(constraints: Constraints, forces: PerGroup, separate: Islands) -> Array:
    """(nisland,) sum of f^2 R / 2 over all rows of an island."""
    total = jnp.zeros((separate.most,), constraints.jacobian.dtype)
    for rows, label, part in zip(constraints.groups, separate.label, forces, strict=True):
        cost = 0.5 * jnp.sum(safe.divide(part * part, jnp.broadcast_to(rows.D, part.shape)), axis=0)
        total = total.at[label].add(jnp.where(laws.active(rows), cost, 0))
    return total
