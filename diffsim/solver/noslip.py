"""noslip: friction without regularization, found after the main solver; all other forces stay unchanged.

The soft friction of the main problem lets a loaded contact creep. This pass minimizes 1/2 y^T A y + y^T b over the
friction forces y alone, with A = J M^-1 J^T without R. Their bounds follow from the fixed normal forces: an interval
for dry friction and for each pair of opposing pyramid edges, a ball for the sides of an elliptic contact. Sweeps over
the constraints (noslip_sweeps.py) respect all bounds even if they end early.

The fixed point of the sweeps is differentiated by the implicit function theorem. At the solution a friction row (or the
sides of an elliptic contact) either sticks or slips:
- sticks: its acceleration x = J qacc - aref is zero;
- slips in an interval: y is at the bound, y = s limit;
- slips in a ball: |y| = limit, and x has no part across y. As x = -m y, a change of y turns that condition by m dy.
These equations are linear in the changes while zones are fixed, and give dy by one solve with one unknown per friction
row. Rows that stick at the same time may depend on each other (a box on four corners). The forces are then not unique,
but the acceleration is, and a small multiple of the diagonal selects one solution. Source: MuJoCo documentation,
"Computation", noslip solver.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name

from diffsim.constraint import laws
from diffsim.constraint.islands import Islands, islands
from diffsim.math import safe
from diffsim.math.block_solves import general_factor, general_solve, solve_blocks, solved
from diffsim.math.linalg import BlockDiagonal, PerSize, block_factor, block_solve, blocks_of
from diffsim.math.vector import dot, matmul, scale
from diffsim.solver.noslip_sweeps import (
    FrictionRows,
    Schedule,
    friction_count,
    friction_members,
    friction_rows,
    has_friction,
    sweep_until_converged,
    with_friction,
    without_friction,
)
from diffsim.solver.objective import Objective, row_forces_on_dofs
from diffsim.solver.projected_gauss_seidel import Cones, concatenate
from diffsim.types import Model
from diffsim.types.constraints import Constraints, Law, PerGroup
from diffsim.xla.reverse_mode import SEARCH_RESULT

Array = jax.Array


class Zones(NamedTuple):
    """What is constant near a solution.

    Attributes:
      slips: (m,) whether the force of a row, or of the contact it belongs to, is at its bound.
      empty: (m,) whether that force is zero.
      unit: (m,) y / |y|, within each contact.
      multiplier: (m,) m in x = -m y of a row that slips.
      diagonal: (m,) diag(A), the mean over each contact.
    """

    slips: Array
    empty: Array
    unit: Array
    multiplier: Array
    diagonal: Array


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def at_fixed_point(cones: Cones, y: Array, qM: BlockDiagonal, force: Array, rows: FrictionRows) -> Array:
    """y (m,) as a differentiable function of the inertia, all other forces (nv,) and the rows.

    The tangent of `y` itself is ignored.
    """
    return y


@at_fixed_point.defjvp
def _at_fixed_point_jvp(cones: Cones, primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    y, qM, force, rows = primals
    # A = J M^-1 J^T, the acceleration of each row per unit force
    factor = block_factor(qM.parts)
    response = matmul(rows.jacobian, jax.vmap(lambda row: solved(block_solve, qM, factor, row))(rows.jacobian).T)
    x = residual(factor, y, qM, force, rows)
    zones = jax.lax.stop_gradient(_zones(cones, y, x, response, rows))
    # d conditions / dy, factored once
    dense = blocks_of(np.zeros(y.shape[0], int))
    matrix = BlockDiagonal(dense, (_matrix(cones, zones, response)[None],))
    decomposed = general_factor(matrix)
    # conditions(y; inputs) = 0: dy = -(d conditions / dy)^-1 (d conditions / d inputs), at fixed y and zones
    x, push = jax.jvp(lambda *inputs: residual(factor, y, *inputs), (qM, force, rows), tangents[1:])
    rates = (push, tangents[3].limit)
    _, change = jax.jvp(lambda *inputs: conditions(cones, zones, y, *inputs), (x, rows.limit), rates)
    return y, -solved(general_solve, matrix, decomposed, change)


def residual(factor: PerSize, y: Array, qM: BlockDiagonal, force: Array, rows: FrictionRows) -> Array:
    """x = J qacc - aref (m,) of the friction rows, by a factor of the inertia."""
    return matmul(rows.jacobian, solved(block_solve, qM, factor, force + matmul(y, rows.jacobian))) - rows.aref


def conditions(cones: Cones, zones: Zones, y: Array, x: Array, limit: Array) -> Array:
    """(m,) the conditions, which are zero at the solution, in zones that do not change."""
    # a ball that slips: |y| - limit along y, and across it the part of x that is not along y
    reach = _along(cones, zones, y) - limit
    across = x - zones.unit * _along(cones, zones, x)
    slipping = jnp.where(zones.empty, 0, across + zones.diagonal * zones.unit * reach)
    return jnp.where(zones.slips, slipping, x)


def _along(cones: Cones, zones: Zones, values: Array) -> Array:
    """unit . values of the block of each row, (m,)."""
    pairs = zip(cones.split(zones.unit), cones.split(values), strict=True)
    return concatenate([jnp.broadcast_to(dot(unit, part)[:, None], part.shape) for unit, part in pairs])


def _zones(cones: Cones, y: Array, x: Array, response: Array, rows: FrictionRows) -> Zones:
    rounding = 64 * float(jnp.finfo(y.dtype).eps)
    size, speed = (
        concatenate([jnp.broadcast_to(safe.norm(part)[:, None], part.shape) for part in cones.split(v)]) for v in (y, x)
    )
    # rows without a body have no diagonal, and no limit
    inverse_inertia: Array = jnp.diagonal(response)
    diagonal = jnp.where(inverse_inertia > 0, inverse_inertia, 1)
    mean = [jnp.broadcast_to(jnp.mean(part, axis=1, keepdims=True), part.shape) for part in cones.split(diagonal)]
    return Zones(
        slips=size >= rows.limit * (1 - rounding),
        empty=size == 0,
        unit=safe.divide(y, size),
        multiplier=safe.divide(speed, rows.limit),
        diagonal=concatenate(mean),
    )


def _matrix(cones: Cones, zones: Zones, response: Array) -> Array:
    """(m, m) derivative of the conditions with respect to y, through x = A y + ..., and directly."""
    size = response.shape[0]
    small: float = 4 * float(jnp.finfo(response.dtype).eps) ** 0.75
    block = cones.label()
    same = jnp.asarray(block[:, None] == block[None])
    identity = jnp.eye(size, dtype=response.dtype)
    # unit unit^T within blocks
    inward = jnp.where(same, zones.unit[:, None] * zones.unit[None], 0)
    across = identity - inward
    # slips: (1 - u u^T) (A + m) dy + diag u u^T dy; no force: diag dy; sticks: A dy, kept regular by a tiny diagonal
    slipping = matmul(across, response) + scale(across, zones.multiplier) + scale(inward, zones.diagonal)
    pinned = scale(identity, zones.diagonal)
    slipping = jnp.where(zones.empty[:, None], pinned, slipping)
    return jnp.where(zones.slips[:, None], slipping, response + small * pinned)


# more friction rows than a contact has (5): slot * STRIDE + row orders them by contact, then by row
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
      objective: the soft problem.
      qacc: (nv,) its solution, which is returned unchanged if there is no friction.
      forces: (force_count, n) row forces of each group there.
      contact_order: (ncon,) the order in which contacts are swept; None for the order of the slots.
    """
    qM, qfrc_smooth, constraints = objective
    if not any(has_friction(rows) for rows in constraints.groups):
        return RigidFriction(qacc, forces, jnp.zeros((), jnp.int32))
    pairs = zip(constraints.groups, forces, strict=True)
    parts = [friction_rows(model.topology, constraints, *pair) for pair in pairs if has_friction(pair[0])]
    rows = FrictionRows(*(jnp.concatenate(column) for column in zip(*(part.rows for part in parts), strict=True)))
    start = jnp.concatenate([part.y for part in parts])
    pairs = zip(constraints.groups, forces, strict=True)
    fixed_force = qfrc_smooth + row_forces_on_dofs(constraints, tuple(without_friction(*pair) for pair in pairs))
    # the sweeps are not differentiated; `at_fixed_point` attaches the derivatives
    schedule = _schedule(*jax.lax.stop_gradient((model, constraints, forces)), contact_order)
    y, sweeps = sweep_until_converged(schedule, *jax.lax.stop_gradient((qM.dense, fixed_force, rows, start)))
    y = at_fixed_point(schedule.cones, checkpoint_name(y, SEARCH_RESULT), qM, fixed_force, rows)
    qacc = solve_blocks(qM, fixed_force + matmul(y, rows.jacobian))
    final = []
    begin = 0
    for rows, old in zip(constraints.groups, forces, strict=True):
        count = friction_count(model.topology, rows)
        final.append(with_friction(model.topology, rows, old, y[begin : begin + count]) if count else old)
        begin += count
    return RigidFriction(qacc, tuple(final), sweeps)


def _schedule(model: Model, constraints: Constraints, forces: PerGroup, contact_order: Array | None) -> Schedule:
    """Order, islands and tolerance of the sweeps."""
    separate = islands(model, constraints)
    topology = model.topology
    total = sum(rows.count for rows in constraints.contacts)
    ranks = jnp.arange(total, dtype=jnp.int32) if contact_order is None else contact_order
    rank, island = [], []
    for rows, label in zip(constraints.groups, separate.label, strict=True):
        if rows.law == Law.BOUNDED:
            ids = friction_members(topology, rows)
            # dofs, then tendons, then contacts
            rank.append(jnp.asarray(ids - topology.ntendon - rows.sign * topology.nv, jnp.int32))
            island.append(label[ids])
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
