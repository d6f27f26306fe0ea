"""compute_energy: potential energy of gravity and springs, and kinetic energy (MuJoCo documentation, "Energy")."""

import jax.numpy as jnp
from jax import Array

from diffsim.base.enums import DisableBit
from diffsim.dynamics.passive import joint_springs, tendon_extension
from diffsim.flex.passive import line_energy
from diffsim.math.vector import dot
from diffsim.types.data import Energy, Flexes, Inertia, Kinematics, Tendons
from diffsim.types.model import Model
from diffsim.types.state import State


def compute_energy(
    model: Model,
    state: State,
    kinematics: Kinematics,
    tendons: Tendons,
    inertia: Inertia,
    flexes: Flexes | None = None,
) -> Energy:
    """Potential and kinetic energy (2,), J, with and without the flag `energy`.

    Args:
      model, state: the model and the state.
      kinematics, tendons, inertia, flexes: the results of these stages; None for a model without flexes.
    """
    qpos = state.qpos
    qvel = state.qvel
    kinetic = 0.5 * jnp.sum(qvel * inertia.M.mul_vec(qvel))
    potential = potential_energy(model, qpos, kinematics, tendons)
    if flexes is not None and not model.opt.disabled(DisableBit.SPRING):
        potential = potential + line_energy(model, flexes)
    return Energy(energy=jnp.stack([potential, kinetic]))


def potential_energy(model: Model, qpos: Array, kinematics: Kinematics, tendons: Tendons) -> Array:
    """() potential energy of gravity, joint springs and tendon springs, J."""
    total = jnp.zeros((), qpos.dtype)
    if not model.opt.disabled(DisableBit.GRAVITY):
        total = total - jnp.sum(model.body_mass[1:] * dot(kinematics.xipos[1:], model.opt.gravity[None]))
    if model.opt.disabled(DisableBit.SPRING):
        return total
    for spring in joint_springs(model, qpos):
        k = model.jnt_stiffness[spring.joints]
        poly = model.jnt_stiffnesspoly[spring.joints]
        total = total + jnp.sum(_spring_energy(k, poly, spring.extent))
    extension = tendon_extension(model, tendons)
    return total + jnp.sum(_spring_energy(model.tendon_stiffness, model.tendon_stiffnesspoly, extension))


def _spring_energy(linear: Array, poly: Array, x: Array) -> Array:
    """(n,) energy of springs, J: the integral of x (k + p0 x + p1 x^2) from 0 to x."""
    return x * x * (linear / 2 + x * (poly[:, 0] / 3 + x * poly[:, 1] / 4))
