"""noslip: friction without regularization, found after the main solver; all other forces stay as they are.

The soft friction of the main problem lets a loaded contact creep. This pass minimizes 1/2 z^T A z + z^T b over the
friction forces z alone, A = J M^-1 J^T without R, within the bounds that the fixed normal forces give: an interval for
dry friction and for each pair of opposing pyramid edges, an ellipsoid for the sides of an elliptic contact. In the
coordinates y = z / friction the ellipsoid is a ball. Sweeps over the constraints (slip_sweeps.py) respect all bounds
even where they end early. The derivative is that of their fixed point (slip_adjoint.py). Source: MuJoCo documentation,
"Computation", noslip solver.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name

from diffsim.constraint import laws
from diffsim.math import safe
from diffsim.math.block_matrix import BlockDiagonal, solve_blocks
from diffsim.math.linalg import matmul
from diffsim.math.xla import SEARCH_RESULT
from diffsim.solver.islands import Islands, islands
from diffsim.solver.objective import PerFamily, dual_on_dofs
from diffsim.solver.slip_adjoint import Cones, Slip, at_rest
from diffsim.solver.slip_sweeps import Plan, sweep
from diffsim.types import Model
from diffsim.types.constraints import Constraints, Law, Rows

Array = jax.Array

# more rows than a contact can have
STRIDE = 8


class Part(NamedTuple):
    """The friction rows of one family: scaled rows (k, nv) of J and aref (k,), forces (k,), bounds (k,)."""

    jacobian: Array
    aref: Array
    force: Array
    limit: Array


def without_slip(
    model: Model,
    qM: BlockDiagonal,
    qfrc_smooth: Array,
    constraints: Constraints,
    qacc: Array,
    forces: PerFamily,
    contact_rank: Array | None,
) -> tuple[Array, PerFamily, Array]:
    """qacc (nv,), row forces and the number of sweeps, after friction is made rigid.

    Args:
      qM: inertia matrix, by blocks.
      qfrc_smooth: (nv,) all forces but those of the constraints.
      constraints: the rows.
      qacc: (nv,) solution of the soft problem, which stays where there is no friction.
      forces: (forces, n) row forces of each family at that solution.
      contact_rank: (ncon,) in which order the contacts are swept; None for that of the slots.
    """
    families = constraints.families
    parts = [_part(model, constraints, *pair) for pair in zip(families, forces, strict=True)]
    found = [part for part in parts if part is not None]
    if not found:
        return qacc, forces, jnp.zeros((), jnp.int32)
    jacobian, aref, start, limit = (jnp.concatenate(arrays) for arrays in zip(*found, strict=True))
    slip = Slip(jacobian, aref, limit)
    normal = tuple(_without_friction(*pair) for pair in zip(families, forces, strict=True))
    force = qfrc_smooth + dual_on_dofs(constraints, normal)
    # searched for as a constant of all derivatives
    fixed = jax.lax.stop_gradient((model, constraints, forces))
    plan = _plan(*fixed, contact_rank)
    y, sweeps = sweep(plan, *jax.lax.stop_gradient((qM.dense, force, slip, start)))
    y = at_rest(plan.cones, checkpoint_name(y, SEARCH_RESULT), qM, force, slip)
    final, begin = [], 0
    for family, part, own, old in zip(families, parts, normal, forces, strict=True):
        count = 0 if part is None else part.aref.shape[0]
        final.append(own if part is None else _with_friction(model, family, own, old, y[begin : begin + count]))
        begin += count
    qacc = solve_blocks(qM, force + matmul(y, jacobian))
    return qacc, tuple(final), sweeps


def _plan(model: Model, constraints: Constraints, forces: PerFamily, contact_rank: Array | None) -> Plan:
    """Order, islands and tolerance of the sweeps."""
    groups = islands(model, constraints)
    total = sum(rows.count for rows in constraints.contacts)
    ranks = jnp.arange(total, dtype=jnp.int32) if contact_rank is None else contact_rank
    rank, island, begin = [], [], 0
    for rows, label in zip(constraints.families, groups.label, strict=True):
        if rows.law == Law.BOUNDED:
            kept = _dofs(model) if rows.sign else np.arange(rows.count)
            # dofs, then tendons, then contacts
            rank.append(jnp.asarray(kept - model.topology.ntendon - rows.sign * model.nv, jnp.int32))
            island.append(label[kept])
        if rows in constraints.contacts:
            own, begin = ranks[begin : begin + rows.count], begin + rows.count
            inner = jnp.arange(rows.dim - 1, dtype=jnp.int32)
            rank.append((own[:, None] * STRIDE + inner[None]).reshape(-1))
            island.append(jnp.repeat(label, rows.dim - 1))
    return Plan(
        rank=jnp.concatenate(rank),
        island=jnp.concatenate(island),
        dropped=_regularization_cost(constraints, forces, groups),
        tolerance=model.opt.noslip_tolerance * model.stat.meaninertia * max(1, model.nv),
        iterations=model.opt.noslip_iterations,
        cones=_cones(constraints.families),
    )


def _regularization_cost(constraints: Constraints, forces: PerFamily, groups: Islands) -> Array:
    """(nisland,) sum of f^2 R / 2 over all rows of an island."""
    total = jnp.zeros((groups.most,), constraints.jacobian.dtype)
    for rows, label, part in zip(constraints.families, groups.label, forces, strict=True):
        cost = 0.5 * jnp.sum(safe.divide(part * part, jnp.broadcast_to(rows.D, part.shape)), axis=0)
        total = total.at[label].add(jnp.where(laws.active(rows), cost, 0))
    return total


def _part(model: Model, constraints: Constraints, rows: Rows, forces: Array) -> Part | None:
    """Friction rows of a family, contact by contact; None if it has none."""
    if rows.law == Law.BOUNDED:
        if rows.sign:
            dof = _dofs(model)
            unit = jnp.asarray(np.eye(model.nv)[dof], forces.dtype)
            return Part(unit, rows.aref[0, dof], forces[0, dof], rows.frictionloss[dof])
        block = constraints.J[rows.start : rows.start + rows.height]
        return Part(block, rows.aref[0], forces[0], rows.frictionloss)
    if rows.law not in (Law.PYRAMID, Law.CONE):
        return None
    block = constraints.J[rows.start : rows.start + rows.height].reshape(rows.dim, rows.count, -1)[1:]
    jacobian, aref, friction = jnp.swapaxes(block, 0, 1), rows.aref[1:].T, rows.friction.T
    if rows.law == Law.PYRAMID:
        limit = friction * (forces[0::2] + forces[1::2]).T
        force = friction * (forces[0::2] - forces[1::2]).T
    else:
        jacobian, aref = jacobian * friction[:, :, None], aref * friction
        limit = jnp.broadcast_to(forces[0][:, None], friction.shape)
        force = safe.divide(forces[1:].T, friction)
    return Part(jacobian.reshape(-1, model.nv), *(leaf.reshape(-1) for leaf in (aref, force, limit)))


def _dofs(model: Model) -> np.ndarray:
    """Dofs with dry friction."""
    return np.flatnonzero(model.topology.present["dof_frictionloss"])


def _cones(families: tuple[Rows, ...]) -> Cones:
    """Elliptic contacts; their rows come after all others."""
    return tuple((rows.count, rows.dim - 1) for rows in families if rows.law == Law.CONE)


def _without_friction(rows: Rows, forces: Array) -> Array:
    """Row forces with the friction taken out."""
    if rows.law == Law.BOUNDED:
        return jnp.zeros_like(forces)
    if rows.law == Law.PYRAMID:
        middle = 0.5 * (forces[0::2] + forces[1::2])
        return laws.join_edges(middle, middle)
    if rows.law == Law.CONE:
        return jnp.concatenate([forces[:1], jnp.zeros_like(forces[1:])])
    return forces


def _with_friction(model: Model, rows: Rows, normal: Array, old: Array, y: Array) -> Array:
    """Row forces from those without friction and the found y; dofs without dry friction keep the `old` ones."""
    if rows.law == Law.BOUNDED:
        return old.at[0, _dofs(model)].set(y) if rows.sign else y[None]
    side = y.reshape(rows.count, rows.dim - 1).T
    if rows.law == Law.CONE:
        return jnp.concatenate([normal[:1], rows.friction * side])
    half, middle = 0.5 * safe.divide(side, rows.friction), normal[0::2]
    return laws.join_edges(middle + half, middle - half)
