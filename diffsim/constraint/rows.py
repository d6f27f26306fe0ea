"""Building blocks of the families: what a family knows of its rows, and how that becomes `Rows`."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from diffsim.constraint.impedance import reference, regularization
from diffsim.enums import DisableBit
from diffsim.math.linalg import matmul
from diffsim.types import Inputs, Model, State
from diffsim.types.constraints import Law, Rows
from diffsim.types.data import ComFrame, Contacts, Kinematics, Tendons, Velocities

Array = jax.Array


class Sources(NamedTuple):
    """What the families read."""

    model: Model
    state: State
    inputs: Inputs
    kinematics: Kinematics
    com: ComFrame
    tendons: Tendons
    velocities: Velocities
    contacts: Contacts


class Draft(NamedTuple):
    """A family of one-row constraints before its impedance; all arrays (n,) unless said otherwise."""

    law: Law
    pos: Array
    margin: Array
    active: Array
    # estimate of J M^-1 J^T at qpos0
    diagonal: Array
    solref: Array
    solimp: Array
    # rows (n, nv); None with a sign: one row per dof
    jacobian: Array | None = None
    sign: int = 0
    frictionloss: Array | None = None
    # what the impedance is measured with, if not pos; part of the acceleration that does not come from J v
    size: Array | None = None
    jacobian_dot_v: Array | None = None


def refsafe(model: Model) -> bool:
    """Whether time constants are kept above twice the timestep."""
    return not model.opt.disabled(DisableBit.REFSAFE)


def finish(source: Sources, draft: Draft, start: int) -> Rows:
    """Velocity, reference acceleration and weight of a family whose rows of J begin at `start`.

    Where a row is inactive its violation counts as zero, so that nothing far away can overflow.
    """
    model, qvel = source.model, source.state.qvel
    bounded = draft.law == Law.BOUNDED
    active = draft.active
    vel = draft.sign * qvel if draft.jacobian is None else matmul(draft.jacobian, qvel)
    violation = jnp.where(active, draft.pos - draft.margin, 0)
    size = violation if draft.size is None else jnp.where(active, draft.size, 0)
    ref = reference(draft.solref, draft.solimp, size, model.opt.timestep, refsafe(model))
    # friction has no position to return to
    spring = jnp.zeros_like(vel) if bounded else ref.stiffness * ref.impedance * violation
    aref = -ref.damping * vel - spring
    if draft.jacobian_dot_v is not None:
        aref = aref - draft.jacobian_dot_v
    weight = 1 / regularization(ref.impedance, draft.diagonal)
    none = jnp.zeros((0,), vel.dtype)
    loss = none
    if draft.frictionloss is not None:
        loss = jnp.where(active, draft.frictionloss, 0)
    return Rows(
        law=draft.law,
        dim=1,
        sign=draft.sign,
        start=start,
        pos=draft.pos,
        margin=draft.margin,
        vel=vel[None],
        aref=jnp.where(active, aref, 0)[None],
        D=weight[None] if bounded else jnp.where(active, weight, 0)[None],
        frictionloss=loss,
        friction=jnp.zeros((0, *vel.shape), vel.dtype),
        mu=none,
    )


def no_rows(law: Law, dim: int, dtype: jnp.dtype) -> Rows:
    """A family without rows."""
    none, table = jnp.zeros((0,), dtype), jnp.zeros((dim, 0), dtype)
    return Rows(
        law=law,
        dim=dim,
        sign=0,
        start=0,
        pos=none,
        margin=none,
        vel=table,
        aref=table,
        D=table,
        frictionloss=none,
        friction=table[1:],
        mu=none,
    )
