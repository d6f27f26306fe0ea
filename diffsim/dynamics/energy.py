"""Potential energy (gravity, springs) and kinetic energy, if the energy flag or a sensor asks for them.

Source: MuJoCo documentation, "Computation", "Energy".
"""

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.base.enums import DisableBit, EnableBit, SensorType
from diffsim.dynamics.passive import spring_displacements, tendon_extension
from diffsim.math.vector import dot
from diffsim.types.data import Energy, Inertia, Kinematics, Tendons
from diffsim.types.model import Model
from diffsim.types.state import State

Array = jax.Array


def compute_energy(model: Model, state: State, kinematics: Kinematics, tendons: Tendons, inertia: Inertia) -> Energy:
    """energy (2,): potential and kinetic, J; zero unless the flag is set or a sensor reads one."""
    qpos, qvel = state.qpos, state.qvel
    read = np.isin(model.topology.sensor_type, (SensorType.E_POTENTIAL, SensorType.E_KINETIC)).any()
    if not (read or model.opt.enabled(EnableBit.ENERGY)):
        return Energy(energy=jnp.zeros((2,), qpos.dtype))
    kinetic = 0.5 * jnp.sum(qvel * inertia.M.mul_vec(qvel))
    return Energy(energy=jnp.stack([potential_energy(model, qpos, kinematics, tendons), kinetic]))


def potential_energy(model: Model, qpos: Array, kinematics: Kinematics, tendons: Tendons) -> Array:
    """() J, energy of gravity and of joint and tendon springs."""
    total = jnp.zeros((), qpos.dtype)
    if not model.opt.disabled(DisableBit.GRAVITY):
        total = total - jnp.sum(model.body_mass[1:] * dot(kinematics.xipos[1:], model.opt.gravity[None]))
    if model.opt.disabled(DisableBit.SPRING):
        return total
    for joints, _, _, extent in spring_displacements(model, qpos):
        total = total + jnp.sum(_stored(model.jnt_stiffness[joints], model.jnt_stiffnesspoly[joints], extent))
    extension = tendon_extension(model, tendons)
    return total + jnp.sum(_stored(model.tendon_stiffness, model.tendon_stiffnesspoly, extension))


def _stored(linear: Array, poly: Array, x: Array) -> Array:
    """Integral of x (k + p0 x + p1 x^2)."""
    return x * x * (linear / 2 + x * (poly[:, 0] / 3 + x * poly[:, 1] / 4))
