"""Rows of a group of constraints: from the raw rows of a family to velocity, reference acceleration and weight.

Stiffness, damping and impedance of a row come from solref and solimp (impedance.py). Friction rows have no position to
return to. The weights of a contact's friction rows follow from opt.impratio: elliptic R_1 = R_0 / impratio and
R_j friction_j^2 = R_1 friction_1^2; pyramidal edges share R = 2 mu^2 R_0 with mu = friction_1 / sqrt(impratio).
Source: MuJoCo documentation, "Computation", constraint model and friction cones; "Modeling", solver parameters.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.base.enums import MINVAL, DisableBit, Integrator, Solver
from diffsim.constraint.discrete import Diagonals, at_end_of_step, effective_impedance, growth, resolved, softened
from diffsim.constraint.impedance import (
    MAXIMP,
    MINIMP,
    Reference,
    at_least,
    damping,
    kinks,
    reference,
    regularization,
    usable_solref,
)
from diffsim.math import safe
from diffsim.math.linalg import BlockColumns
from diffsim.math.stencil_rows import Segment, SparseRows
from diffsim.math.vector import matmul
from diffsim.types import Inputs, Model, State
from diffsim.types.constraints import ActiveSet, Law, RowGroup
from diffsim.types.data import ComFrame, Contacts, Flexes, Kinematics, Tendons, Velocities
from diffsim.types.slots import ContactSlots
from diffsim.xla.barriers import for_gpu, stored
from diffsim.xla.gather import pick


class Sources(NamedTuple):
    """The inputs of the constraint rows: results of earlier stages, and settings. Construct by keyword.

    Attributes:
      flexes: None in a model without flexes.
      active_set: which rows are active and which push, for a linearization; None: decided by the state.
      asleep: (nv,) which dofs sleep; None in a model in which nothing can sleep.
      diagonals: of M and of the metric (simulate/metric.py); None unless the integrator is `discrete`.
      reach: m, the distance below which contacts that do not touch have soft rows (contact.py); None for no such rows.
    """

    model: Model
    state: State
    inputs: Inputs
    kinematics: Kinematics
    com: ComFrame
    tendons: Tendons
    velocities: Velocities
    contacts: Contacts
    slots: ContactSlots
    flexes: Flexes | None = None
    active_set: ActiveSet | None = None
    asleep: Array | None = None
    diagonals: Diagonals | None = None
    reach: float | None = None


class RawRows(NamedTuple):
    """n constraints of `dim` rows each, before their impedance is known; all arrays (n,) unless said otherwise.

    The violation of a constraint is pos - margin, in m or rad.
    """

    pos: Array
    margin: Array
    active: Array
    # estimate of J M^-1 J^T at qpos0
    diagonal: Array
    # (n, 2) and (n, 5)
    solref: Array
    solimp: Array
    dim: int = 1
    # (dim * n, nv) rows of J, component-major; None for rows that are `sign` times the velocity of one dof each
    jacobian: Array | BlockColumns | Segment | None = None
    sign: int = 0
    # (dim, n) J qvel, None if it is still to be computed
    vel: Array | None = None
    # (dim, n) velocities of moving surfaces, which are added to `vel`
    drift: Array | None = None
    # bound of the force, N or N m
    frictionloss: Array | None = None
    # argument of the impedance in m or rad, None for the violation
    size: Array | None = None
    # Jdot qvel, the acceleration of the row at qacc = 0
    jacobian_dot_v: Array | None = None
    # (nanchor, 2, 3) points in the world, m, that an equality holds together
    anchor: Array | None = None
    # for contacts: first slot, (dim - 1, n) friction coefficients, (n, 2) solref of elliptic friction (zero: not set)
    slot: int | None = None
    friction: Array | None = None
    solref_friction: Array | None = None


class Prepared(NamedTuple):
    """A group's violation (n,), m or rad; its stiffness, damping and impedance; the kinks (2, n) of the impedance."""

    violation: Array
    ref: Reference
    kinks: Array


def slots_between(contacts: Contacts, start: int, stop: int) -> Contacts:
    """The contacts in slots start to stop - 1."""
    return jax.tree.map(lambda leaf: leaf[start:stop] if leaf.ndim else leaf, contacts)


def contact_rows(
    contacts: Contacts, dim: int, slot: int, jacobian: BlockColumns | Segment, invweight: Array
) -> RawRows:
    """The rows of contacts (n,) of one dimension, from `slot` on.

    Args:
      jacobian: their rows of J.
      invweight: (n,) sum of the inverse weights of both bodies, the estimate of J M^-1 J^T.
    """
    return RawRows(
        pos=contacts.dist,
        margin=contacts.includemargin,
        active=contacts.dist < contacts.includemargin,
        diagonal=invweight,
        solref=contacts.solref,
        solimp=contacts.solimp,
        dim=dim,
        jacobian=jacobian,
        slot=slot,
        friction=contacts.friction[:, : dim - 1].T,
        solref_friction=contacts.solreffriction,
    )


def equality_rows(
    source: Sources, equality: np.ndarray, pos: Array, weight: Array, jacobian: Array | Segment
) -> RawRows:
    """Rows of equalities (n,), by their ids.

    Args:
      pos: (n,) the residuals that they keep at zero.
      weight: (n,) inverse weights.
      jacobian: rows of J.
    """
    model = source.model
    return RawRows(
        pos=pos,
        margin=jnp.zeros_like(pos),
        active=pick(source.inputs.eq_active, equality),
        diagonal=weight,
        solref=pick(model.eq_solref, equality),
        solimp=pick(model.eq_solimp, equality),
        jacobian=jacobian,
    )


def prepare(model: Model, groups: Sequence[RawRows]) -> list[Prepared]:
    """Violation and impedance of each group.

    On a GPU all rows are computed together, in one kernel; on a CPU putting them together would cost a copy. Inactive
    rows count as having no violation, so that nothing far away can overflow.
    """
    prepared: list[Prepared] = []
    for together in [groups] if groups and for_gpu() else [[raw] for raw in groups]:
        violations = [jnp.where(raw.active, raw.pos - raw.margin, 0) for raw in together]
        pairs = zip(together, violations, strict=True)
        sizes = [violation if raw.size is None else jnp.where(raw.active, raw.size, 0) for raw, violation in pairs]
        solref, solimp = (jnp.concatenate([getattr(raw, name) for raw in together]) for name in ("solref", "solimp"))
        ref = reference(solref, solimp, jnp.concatenate(sizes), model.opt.timestep, _refsafe(model))
        # back to the groups
        ends = np.cumsum([len(violation) for violation in violations])[:-1]
        columns = [jnp.split(column, ends, axis=-1) for column in (*ref, kinks(solimp))]
        for violation, *parts, of_impedance in zip(violations, *columns, strict=True):
            prepared.append(Prepared(violation, Reference(*parts), of_impedance))
    return prepared


def assemble(source: Sources, family: str, law: Law, raw: RawRows, prepared: Prepared, start: int) -> RowGroup:
    """Velocity, reference acceleration and weight of a group whose rows of J begin at `start`."""
    model, active, ref = source.model, raw.active, prepared.ref
    timestep = model.opt.timestep
    vel = _velocity(raw, source.state.qvel)
    if source.diagonals is not None and law in RESOLVED and not model.opt.disabled(DisableBit.REFSAFE):
        ref = resolved(ref, raw.solref, raw.solimp, timestep)
    aref = _reference_acceleration(model, law, raw, ref, vel, prepared.violation)
    if source.diagonals is not None:
        factor = growth(_spring(law, ref), ref.damping, timestep)
        ref = ref._replace(impedance=effective_impedance(ref.impedance, factor))
        count = raw.pos.shape[0]
        raw = raw._replace(diagonal=raw.diagonal * softened(raw.jacobian, source.diagonals, count))
    weight = WEIGHTS[law](model, raw, ref)
    none = jnp.zeros((0,), vel.dtype)
    return RowGroup(
        family=family,
        law=law,
        dim=raw.dim,
        sign=raw.sign,
        start=start,
        slot=raw.slot,
        pos=raw.pos,
        margin=raw.margin,
        kinks=prepared.kinks,
        vel=vel,
        aref=stored(jnp.where(active[None], aref, 0)),
        D=stored(weight.D if law == Law.BOUNDED else jnp.where(active[None], weight.D, 0)),
        threshold=jnp.zeros((0, *vel.shape[1:]), vel.dtype),
        frictionloss=none if raw.frictionloss is None else jnp.where(active, raw.frictionloss, 0),
        friction=jnp.zeros((0, *vel.shape[1:]), vel.dtype) if raw.friction is None else raw.friction,
        mu=none if weight.mu is None else weight.mu,
        anchor=jnp.zeros((0, 2, 3), vel.dtype) if raw.anchor is None else raw.anchor,
    )


def _refsafe(model: Model) -> bool:
    """Whether time constants are kept above twice the timestep; rows of the integrator `discrete` do not need it."""
    return not (model.opt.disabled(DisableBit.REFSAFE) or _at_end(model))


def _at_end(model: Model) -> bool:
    """Whether springs and dampers of rows act at the end of the timestep."""
    return model.opt.integrator == Integrator.DISCRETE


def _spring(law: Law, ref: Reference) -> Array:
    """(n,) K d, 1 / s^2: how stiff rows are; friction has dampers alone."""
    return jnp.zeros_like(ref.stiffness) if law == Law.BOUNDED else ref.stiffness * ref.impedance


def _velocity(raw: RawRows, qvel: Array) -> Array:
    """(dim, n) J qvel plus the velocities of moving surfaces (`drift`)."""
    vel, jacobian = raw.vel, raw.jacobian
    if jacobian is None:
        return raw.sign * qvel[None]
    if vel is None:
        vel = matmul(jacobian, qvel) if isinstance(jacobian, Array) else jacobian.mul_vec(qvel)
        vel = vel.reshape(raw.dim, -1)
    return vel if raw.drift is None else vel + raw.drift


def with_velocities(
    source: Sources, jacobian: BlockColumns | SparseRows, all_rows: list[RawRows]
) -> tuple[list[RawRows], Array]:
    """On a GPU the rows with J qvel, and J qacc_warmstart (nrow,) if Newton's method starts from it.

    On a GPU one product with J gives both, in the time of reading J once. On a CPU two products are as fast: the rows
    are returned unchanged, and J qacc_warmstart is empty.
    """
    opt = source.model.opt
    state = source.state
    starts = opt.solver == Solver.NEWTON and not opt.disabled(DisableBit.WARMSTART)
    # a solver with few iterations starts from the better of two accelerations (solver/primal.py)
    starts &= not (opt.few_iterations or opt.unrolled)
    if not (for_gpu() and starts and jacobian.height):
        return all_rows, jnp.zeros((0,), jacobian.dtype)
    vel, warm = _products(jacobian, state.qvel, state.qacc_warmstart)
    heights = [0 if raw.jacobian is None else raw.dim * raw.pos.shape[0] for raw in all_rows]
    parts = jnp.split(vel, np.cumsum(heights)[:-1])
    pairs = zip(all_rows, parts, strict=True)
    return [raw if raw.jacobian is None else raw._replace(vel=v.reshape(raw.dim, -1)) for raw, v in pairs], warm


@jax.custom_jvp
def _products(jacobian: BlockColumns | SparseRows, qvel: Array, start: Array) -> tuple[Array, Array]:
    """J qvel and J start, (nrow,) each; J start has no derivative, since the start has no influence on the optimum."""
    vel, warm = jnp.unstack(jax.vmap(jacobian.mul_vec, -1, -1)(jnp.stack([qvel, start], axis=-1)), axis=-1)
    return vel, warm


@_products.defjvp
def _products_jvp(primals: tuple, tangents: tuple) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """One product at a time: reverse mode recomputes the step without its search, and so does not need J start."""
    jacobian, qvel, start = primals
    d_jacobian, d_qvel, _ = tangents
    vel, warm = jacobian.mul_vec(qvel), jacobian.mul_vec(start)
    return (vel, warm), (d_jacobian.mul_vec(qvel) + jacobian.mul_vec(d_qvel), jnp.zeros_like(warm))


def _reference_acceleration(
    model: Model, law: Law, raw: RawRows, ref: Reference, vel: Array, violation: Array
) -> Array:
    """aref (dim, n) of active rows: the first row of a constraint is a damped spring, the others are only damped."""
    # dry friction has no position to return to
    spring = jnp.zeros_like(violation) if law == Law.BOUNDED else ref.stiffness * ref.impedance * violation
    aref = -ref.damping * vel[0] - spring
    if raw.jacobian_dot_v is not None:
        aref = aref - raw.jacobian_dot_v
    side = ref.damping
    if law == Law.CONE:
        # friction rows of elliptic contacts are damped by their own solref (solreffriction) where it is set
        assert raw.solref_friction is not None
        solref = usable_solref(raw.solref_friction, (0.0, 0.0), model.opt.timestep, _refsafe(model))
        is_set = (solref[:, 0] != 0) | (solref[:, 1] != 0)
        side = jnp.where(is_set, damping(solref, safe.clip(raw.solimp[:, 1], MINIMP, MAXIMP)), side)
    if _at_end(model):
        timestep = model.opt.timestep
        stiffness = _spring(law, ref)
        aref = at_end_of_step(aref, vel[0], stiffness, ref.damping, timestep)
        # a pyramid's edges are whole rows; friction rows of elliptic contacts have no stiffness
        shared = stiffness if law == Law.PYRAMID else jnp.zeros_like(side)
        side = (side + timestep * shared) / growth(shared, side, timestep)
    return jnp.stack([aref, *[-side * vel[i] for i in range(1, raw.dim)]])


class Weights(NamedTuple):
    """Weights (dim or 1, n), and the coefficient (n,) of the regularized cone of contacts with friction."""

    D: Array
    mu: Array | None


def _one_row(model: Model, raw: RawRows, ref: Reference) -> Weights:
    return Weights(1 / regularization(ref.impedance, raw.diagonal)[None], None)


def _pyramid(model: Model, raw: RawRows, ref: Reference) -> Weights:
    # an edge J_n + mu J_t has the diagonal (1 + mu^2) diagonal, if all directions of the contact weigh the same
    assert raw.friction is not None
    first = raw.friction[0]
    normal = regularization(ref.impedance, raw.diagonal * (1 + first * first))
    mu = first / jnp.sqrt(at_least(model.opt.impratio, MINVAL))
    return Weights(safe.divide(jnp.ones_like(mu), 2 * mu * mu * normal)[None], mu)


def _cone(model: Model, raw: RawRows, ref: Reference) -> Weights:
    assert raw.friction is not None
    impratio = at_least(model.opt.impratio, MINVAL)
    normal = 1 / regularization(ref.impedance, raw.diagonal)
    first = raw.friction[0]
    # D_1 = impratio D_0, and D_j / friction_j^2 the same for all j: the cone is circular in (N, U) of laws.py
    sides = [impratio * normal * jnp.square(safe.divide(side, first)) for side in raw.friction]
    return Weights(jnp.stack([normal, *sides]), first / jnp.sqrt(impratio))


# laws of limits and contacts, whose springs are no stiffer than the integrator `discrete` can resolve
RESOLVED = (Law.ONE_SIDED, Law.PYRAMID, Law.CONE)
WEIGHTS: dict[Law, Callable[[Model, RawRows, Reference], Weights]] = {
    Law.QUADRATIC: _one_row,
    Law.BOUNDED: _one_row,
    Law.ONE_SIDED: _one_row,
    Law.PYRAMID: _pyramid,
    Law.CONE: _cone,
}
