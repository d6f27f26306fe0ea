"""Inverse dynamics in continuous time, at a state whose position and velocity stages are known."""

import jax
import jax.numpy as jnp

from diffsim.base.enums import EnableBit
from diffsim.math import safe
from diffsim.solver.objective import constraint_force
from diffsim.types import Model
from diffsim.types.data import Data, ForwardInverse, Inverse

Array = jax.Array


def inverse_dynamics(data: Data, qacc: Array) -> Inverse:
    """qfrc_inverse = M qacc + qfrc_bias - qfrc_passive - J^T f(qacc), (nv,) in N and N m."""
    held = constraint_force(data.efc, qacc)
    force = data.M.mul_vec(qacc) + data.qfrc_bias - data.qfrc_passive - held
    return Inverse(qfrc_inverse=force, qfrc_constraint=held, qacc=qacc)


def compute_forward_inverse(model: Model, data: Data, applied: Array) -> ForwardInverse:
    """solver_fwdinv (2,): how far inverse dynamics at qacc is from constraint forces, and from applied ones (nv,).

    Zero unless the `fwdinv` flag asks for it.
    """
    if not model.opt.enabled(EnableBit.FWDINV):
        return ForwardInverse(solver_fwdinv=jnp.zeros((2,), data.qacc.dtype))
    back = inverse_dynamics(data, data.qacc)
    held, force = data.qfrc_constraint - back.qfrc_constraint, applied + data.qfrc_actuator - back.qfrc_inverse
    return ForwardInverse(solver_fwdinv=jnp.stack([safe.norm(held), safe.norm(force)]))
