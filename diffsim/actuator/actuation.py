"""Actuator forces, and how they reach the joints.

    d act / dt   = rate(ctrl, act, length, velocity)
    force        = gain(length, velocity) * (act or ctrl) + bias(length, velocity)
    qfrc_actuator = moment^T force

What rate, gain and bias are stands in the table of laws. Clamps come in this order: control, sum of forces on a
tendon, force, sum of forces on a joint. Source: MuJoCo documentation, "Computation", "Actuation model".
"""

import jax
import jax.numpy as jnp

from diffsim.actuator.activation import signal
from diffsim.actuator.actuators import Actuators, Command, Conditions, clamp
from diffsim.actuator.control import switched_off, usable_controls
from diffsim.actuator.groups import Group, by_activation, by_actuator, groups, members
from diffsim.actuator.limits import limit_on_joints, limit_on_tendons
from diffsim.base.enums import DisableBit
from diffsim.math.linalg import matmul
from diffsim.types.data import Actuation, Passive, Transmission, Velocities
from diffsim.types.model import Model

Array = jax.Array


def compute_actuation(
    model: Model, act: Array, command: Command, transmission: Transmission, velocities: Velocities, passive: Passive
) -> Actuation:
    """What the actuators do.

    Args:
      act: (na,) activations.
      command: controls (nu,) as the user set them, and the user's own laws.

    Returns:
      act_dot (na,) per second, actuator_force (nu,) and qfrc_actuator (nv,) in N or N m.
    """
    if not model.nu or model.opt.disabled(DisableBit.ACTUATION):
        zero = jnp.zeros_like(passive.qfrc_gravcomp)
        return Actuation(act_dot=jnp.zeros_like(act), actuator_force=jnp.zeros_like(command.ctrl), qfrc_actuator=zero)
    command = command._replace(ctrl=usable_controls(model, command.ctrl))
    conditions = Conditions(act, command, transmission.actuator_length, velocities.actuator_velocity)
    laws = groups(model.topology)
    actuators = [members(model, law, conditions) for law in laws]
    rates = [law.dynamics.rate(a) for law, a in zip(laws, actuators, strict=True)]
    forces = [_force(law, a, rate) for law, a, rate in zip(laws, actuators, rates, strict=True)]

    force = _unless_switched_off(model, by_actuator(model, laws, forces))
    force = limit_on_tendons(model, force)
    force = clamp(force, model.actuator_forcerange, model.topology.actuator_forcelimited)
    force = force + _unless_switched_off(model, _unlimited_bias(model, laws, actuators))
    return Actuation(
        act_dot=by_activation(model, laws, rates, act),
        actuator_force=force,
        qfrc_actuator=_joint_forces(model, matmul(transmission.actuator_moment.T, force), passive),
    )


def _force(law: Group, actuators: Actuators, rate: Array) -> Array:
    """(n,) gain * signal + bias, without a bias that no limit bounds; N or N m."""
    force = law.gain.value(actuators, actuators.gainprm) * signal(law, actuators, rate)
    return force + law.bias.value(actuators, actuators.biasprm) if law.bias.limited else force


def _unlimited_bias(model: Model, laws: tuple[Group, ...], actuators: list[Actuators]) -> Array:
    """(nu,) the biases that no limit bounds, N or N m."""
    chosen = [(law, a) for law, a in zip(laws, actuators, strict=True) if not law.bias.limited]
    if not chosen:
        return jnp.zeros((model.nu,), model.actuator_biasprm.dtype)
    values = [law.bias.value(a, a.biasprm) for law, a in chosen]
    return by_actuator(model, [law for law, _ in chosen], values)


def _unless_switched_off(model: Model, force: Array) -> Array:
    """Forces (nu,), zero of actuators that the options switch off."""
    idle = switched_off(model)
    return jnp.where(idle, 0, force) if idle.any() else force


def _joint_forces(model: Model, force: Array, passive: Passive) -> Array:
    """(nv,) with gravity compensation that acts through actuators, within the limits of the joints; N or N m."""
    topology = model.topology
    if topology.jnt_actgravcomp.any() and topology.has("body_gravcomp"):
        force = force + jnp.where(topology.jnt_actgravcomp[topology.dof_jntid] != 0, passive.qfrc_gravcomp, 0)
    return limit_on_joints(model, force)
