"""From what a family says of its rows to velocity, reference acceleration and weight, the same way for all families.

aref = -B v - K d (pos - margin) - Jdot v; friction rows have no position to return to. The weight of a row is D = 1 / R
with R from the impedance and the inverse weights. The weights of a contact's friction rows follow from opt.impratio:
elliptic R_1 = R_0 / impratio, R_j friction_j^2 = R_1 friction_1^2; pyramidal edges share R = 2 mu^2 R_0 with mu =
friction_1 / sqrt(impratio). Source: MuJoCo documentation, "Computation", constraint model and friction cones.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.base.enums import DisableBit
from diffsim.constraint.impedance import (
    MAXIMP,
    MINIMP,
    MINVAL,
    Reference,
    at_least,
    bends,
    damping,
    reference,
    regularization,
    usable_solref,
)
from diffsim.constraint.rows import RawRows, Sources
from diffsim.math import safe
from diffsim.math.vector import matmul
from diffsim.types import Model
from diffsim.types.constraints import Law, RowGroup
from diffsim.xla.barriers import for_gpu, stored
from diffsim.xla.select import where

Array = jax.Array


class Prepared(NamedTuple):
    """Of the rows of a group: violation (n,), m or rad, stiffness, damping, impedance, and where that bends (2, n)."""

    violation: Array
    ref: Reference
    bends: Array


def prepare(model: Model, groups: Sequence[RawRows]) -> list[Prepared]:
    """Violation and impedance of each group: on a GPU by one formula for all rows, which a CPU would copy together.

    Where a row is inactive its violation counts as zero, so that nothing far away can overflow.
    """
    together = [groups] if groups and for_gpu() else [[raw] for raw in groups]
    return [own for some in together for own in _prepared(model, some)]


def _prepared(model: Model, groups: Sequence[RawRows]) -> list[Prepared]:
    """The same of groups side by side."""
    violations = [where(raw.active, raw.pos - raw.margin, 0) for raw in groups]
    pairs = zip(groups, violations, strict=True)
    sizes = [own if raw.size is None else where(raw.active, raw.size, 0) for raw, own in pairs]
    solref, solimp = (jnp.concatenate(each) for each in zip(*((raw.solref, raw.solimp) for raw in groups), strict=True))
    ref = reference(solref, solimp, jnp.concatenate(sizes), model.opt.timestep, _refsafe(model))
    ends = np.cumsum([len(own) for own in violations])[:-1]
    columns = [jnp.split(each, ends, axis=-1) for each in (*ref, bends(solimp))]
    parts = zip(violations, *columns, strict=True)
    return [Prepared(own, Reference(*of_row), bend) for own, *of_row, bend in parts]


def assemble(source: Sources, family: str, law: Law, raw: RawRows, own: Prepared, start: int) -> RowGroup:
    """Velocity, reference acceleration and weight of a group whose rows of J begin at `start`."""
    model, active, ref = source.model, raw.active, own.ref
    vel = _velocity(raw, source.state.qvel)
    aref = _reference_acceleration(model, law, raw, ref, vel, own.violation)
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
        bends=own.bends,
        vel=vel,
        aref=stored(where(active[None], aref, 0)),
        D=stored(weight.D if law == Law.BOUNDED else where(active[None], weight.D, 0)),
        until=jnp.zeros((0, *vel.shape[1:]), vel.dtype),
        frictionloss=none if raw.frictionloss is None else where(active, raw.frictionloss, 0),
        friction=jnp.zeros((0, *vel.shape[1:]), vel.dtype) if raw.friction is None else raw.friction,
        mu=none if weight.mu is None else weight.mu,
        joins=none if raw.joins is None else raw.joins,
        anchor=jnp.zeros((0, 2, 3), vel.dtype) if raw.anchor is None else raw.anchor,
    )


def _refsafe(model: Model) -> bool:
    """Whether time constants are kept above twice the timestep."""
    return not model.opt.disabled(DisableBit.REFSAFE)


def _velocity(raw: RawRows, qvel: Array) -> Array:
    """J qvel (dim, n)."""
    if raw.vel is not None:
        return raw.vel
    jacobian = raw.jacobian
    if jacobian is None:
        return raw.sign * qvel[None]
    vel = matmul(jacobian, qvel) if isinstance(jacobian, jax.Array) else jacobian.mul_vec(qvel)
    return vel.reshape(raw.dim, -1)


def _reference_acceleration(
    model: Model, law: Law, raw: RawRows, ref: Reference, vel: Array, violation: Array
) -> Array:
    """aref (dim, n) of active rows: the first row of a constraint is pulled back, the others are slowed down."""
    # dry friction has no position to return to
    spring = jnp.zeros_like(violation) if law == Law.BOUNDED else ref.stiffness * ref.impedance * violation
    aref = -ref.damping * vel[0] - spring
    if raw.jacobian_dot_v is not None:
        aref = aref - raw.jacobian_dot_v
    side = _side_damping(model, raw, ref) if law == Law.CONE else ref.damping
    return jnp.stack([aref, *[-side * vel[i] for i in range(1, raw.dim)]])


def _side_damping(model: Model, raw: RawRows, ref: Reference) -> Array:
    """B of elliptic friction rows, 1/s: from their own solref where it is set, else that of the normal row."""
    assert raw.solref_friction is not None
    own = usable_solref(raw.solref_friction, (0.0, 0.0), model.opt.timestep, _refsafe(model))
    is_set = (own[:, 0] != 0) | (own[:, 1] != 0)
    dmax = safe.clip(raw.solimp[:, 1], MINIMP, MAXIMP)
    return where(is_set, damping(own, dmax), ref.damping)


class Weights(NamedTuple):
    """(dim or 1, n) weights and (n,) coefficient of the regularized cone, if there is one."""

    D: Array
    mu: Array | None


def _one_row(model: Model, raw: RawRows, ref: Reference) -> Weights:
    return Weights(1 / regularization(ref.impedance, raw.diagonal)[None], None)


def _pyramid(model: Model, raw: RawRows, ref: Reference) -> Weights:
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
    sides = [impratio * normal * jnp.square(safe.divide(side, first)) for side in raw.friction]
    return Weights(jnp.stack([normal, *sides]), first / jnp.sqrt(impratio))


WEIGHTS: dict[Law, Callable[[Model, RawRows, Reference], Weights]] = {
    Law.QUADRATIC: _one_row,
    Law.BOUNDED: _one_row,
    Law.ONE_SIDED: _one_row,
    Law.PYRAMID: _pyramid,
    Law.CONE: _cone,
}
