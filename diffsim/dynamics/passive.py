"""Passive forces of springs, dampers, gravity compensation, flexes, cables and the surrounding fluid (fluid.py).

The force of a spring is -x (k + p0 x + p1 x^2), and the force of a damper -v (b + p0 |v| + p1 v^2). Here x is the
displacement of a scalar joint or tendon, or the length of the displacement of a ball or free joint. Disabling springs
and dampers together disables all passive forces.
Source: MuJoCo documentation, "Computation", "Passive forces".
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.base.enums import DisableBit
from diffsim.dynamics.fluid import fluid_force
from diffsim.dynamics.inertia import DOF_DAMPING, TENDON_DAMPING, has_reflected, reflected
from diffsim.flex.cable import cable_force
from diffsim.flex.cell_forces import cell_forces
from diffsim.flex.nodes import interpolated, node_positions
from diffsim.flex.passive import flex_dampers, flex_springs, flex_stretching
from diffsim.kinematics.jacobian import forces_on_dofs
from diffsim.kinematics.joints import groups
from diffsim.math import safe
from diffsim.math.vector import matmul, scale
from diffsim.types.data import ComFrame, Flexes, Kinematics, Passive, Tendons, Velocities
from diffsim.types.model import Model
from diffsim.types.state import State
from diffsim.xla.gather import pick, place


def compute_passive(
    model: Model,
    state: State,
    kinematics: Kinematics,
    com: ComFrame,
    tendons: Tendons,
    velocities: Velocities,
    flexes: Flexes | None = None,
) -> Passive:
    """Passive forces (nv,), N or N m: each kind, and their sum.

    Gravity compensation that acts through actuators is not in the sum. As in MuJoCo, the elasticity of flex elements is
    disabled only if both springs and dampers are.

    Args:
      model, state: the model and the state.
      kinematics, com, tendons, velocities, flexes: the results of these stages; None for a model without flexes.
    """
    topology = model.topology
    qpos = state.qpos
    qvel = state.qvel
    zero = jnp.zeros_like(qvel)
    no_springs = model.opt.disabled(DisableBit.SPRING)
    no_dampers = model.opt.disabled(DisableBit.DAMPER)
    if no_springs and no_dampers:
        return Passive(qfrc_spring=zero, qfrc_damper=zero, qfrc_gravcomp=zero, qfrc_fluid=zero, qfrc_passive=zero)
    spring = zero if no_springs else _joint_spring_force(model, qpos)
    damper = zero if no_dampers else _dampers(model, DOF_DAMPING, qvel)
    # tendons pull on dofs by their moment arms
    if has_tendon_springs(model):
        tension = tendon_springs(model, tendons)
        spring = spring + matmul(tendons.ten_J.T, tension)
    if has_tendon_dampers(model):
        damper = damper + matmul(tendons.ten_J.T, tendon_dampers(model, velocities))
    if topology.nflex and flexes is not None:
        spring = spring + flex_stretching(model, com, flexes)
        spring = spring if no_springs else spring + flex_springs(model, com, flexes)
        damper = damper if no_dampers else damper + flex_dampers(model, qvel, com, flexes)
    if interpolated(topology):
        by_cells = cell_forces(model, com, velocities, node_positions(model, kinematics))
        spring = spring if no_springs else spring + by_cells[0]
        damper = damper if no_dampers else damper + by_cells[1]
    compensation = _gravity_compensation(model, kinematics, com)
    medium = fluid_force(model, kinematics, com, velocities)
    by_actuator = topology.jnt_actgravcomp[topology.dof_jntid] != 0
    return Passive(
        qfrc_spring=spring,
        qfrc_damper=damper,
        qfrc_gravcomp=compensation,
        qfrc_fluid=medium,
        qfrc_passive=spring + damper + medium + cable_force(model, qpos) + jnp.where(by_actuator, 0, compensation),
    )


def stiffness(linear: Array, poly: Array, x: Array) -> Array:
    """(n,) force per displacement, k + p0 x + p1 x^2, from k (n,), p (n, 2) and displacements x (n,)."""
    return linear + x * (poly[:, 0] + x * poly[:, 1])


class JointSprings(NamedTuple):
    """Springs of n joints of one type that act on one block of k dofs each, such as the rotation of a ball.

    Attributes:
      joints: (n,) indices of the joints.
      dofs: (n, k) indices of their dofs.
      displacement: (n, k) displacement from qpos_spring, m or rad.
      extent: (n,) the displacement of a scalar joint, or the length of the displacement of a ball or free joint.
    """

    joints: np.ndarray
    dofs: np.ndarray
    displacement: Array
    extent: Array


def joint_springs(model: Model, qpos: Array) -> list[JointSprings]:
    """The springs of all joints that have one, at qpos (nq,)."""
    topology = model.topology
    springs = []
    present = topology.present["jnt_stiffness"] | topology.present["jnt_stiffnesspoly"].any(axis=-1)
    for group in groups(topology):
        rows = np.flatnonzero(present[group.joints])
        if not rows.size:
            continue
        ids = group.qpos[rows]
        displacement = jax.vmap(group.motion.difference)(pick(qpos, ids), pick(model.qpos_spring, ids))
        for start, stop in group.kind.blocks:
            part = displacement[:, start:stop]
            extent = part[:, 0] if stop - start == 1 else safe.norm(part)
            springs.append(JointSprings(group.joints[rows], group.dofs[rows, start:stop], part, extent))
    return springs


def spring_derivative(model: Model, spring: JointSprings) -> Array:
    """(n,) -d force / d displacement of joint springs at their displacements x, k + 2 p0 x + 3 p1 x^2."""
    k = pick(model.jnt_stiffness, spring.joints)
    if not model.topology.has("jnt_stiffnesspoly"):
        return k
    return _slope(k, pick(model.jnt_stiffnesspoly, spring.joints), spring.extent)


def _slope(linear: Array, poly: Array, x: Array) -> Array:
    """(n,) d (x stiffness(x)) / d x = k + 2 p0 x + 3 p1 x^2, with the arguments of `stiffness`."""
    return stiffness(linear, poly * jnp.array([[2, 3]], dtype=x.dtype), x)


def _joint_spring_force(model: Model, qpos: Array) -> Array:
    """(nv,) forces of the joint springs, N or N m, which pull towards qpos_spring."""
    springs = joint_springs(model, qpos)
    if not springs:
        return jnp.zeros((model.nv,), qpos.dtype)
    poly = model.topology.has("jnt_stiffnesspoly")
    forces, dofs = [], []
    for spring in springs:
        k = pick(model.jnt_stiffness, spring.joints)
        k = stiffness(k, pick(model.jnt_stiffnesspoly, spring.joints), spring.extent) if poly else k
        forces.append(-scale(spring.displacement, k).reshape(-1))
        dofs.append(spring.dofs.ravel())
    return place(model.nv, np.concatenate(dofs), jnp.concatenate(forces))


def _dampers(model: Model, fields: tuple[str, str], velocity: Array) -> Array:
    """(n,) forces of dampers, -v (b + p0 |v| + p1 v^2), N or N m, at velocities v (n,) of dofs or tendons.

    `fields` names the fields of b and p: `DOF_DAMPING` or `TENDON_DAMPING`. The damping of actuators is included.
    """
    linear, higher = fields
    if has_reflected(model.topology, higher):
        return -velocity * stiffness(reflected(model, linear), reflected(model, higher), jnp.abs(velocity))
    return -velocity * reflected(model, linear) if has_reflected(model.topology, linear) else jnp.zeros_like(velocity)


def has_tendon_springs(model: Model) -> bool:
    """Whether springs act along tendons."""
    present = model.topology.has("tendon_stiffness") or model.topology.has("tendon_stiffnesspoly")
    return present and not model.opt.disabled(DisableBit.SPRING)


def tendon_springs(model: Model, tendons: Tendons) -> Array:
    """(ntendon,) N, the forces of springs along tendons."""
    x = tendon_extension(model, tendons)
    return -x * stiffness(model.tendon_stiffness, model.tendon_stiffnesspoly, x)


def tendon_spring_derivative(model: Model, tendons: Tendons) -> Array:
    """(ntendon,) N/m, -d force / d length of springs along tendons; zero inside the dead band."""
    x = tendon_extension(model, tendons)
    return jnp.where(x == 0, 0, _slope(model.tendon_stiffness, model.tendon_stiffnesspoly, x))


def has_tendon_dampers(model: Model) -> bool:
    """Whether dampers act along tendons."""
    return has_reflected(model.topology, *TENDON_DAMPING) and not model.opt.disabled(DisableBit.DAMPER)


def tendon_dampers(model: Model, velocities: Velocities) -> Array:
    """(ntendon,) N, the forces of dampers along tendons."""
    return _dampers(model, TENDON_DAMPING, velocities.ten_velocity)


def damping_derivative(model: Model, fields: tuple[str, str], velocity: Array) -> Array:
    """(n,) -d force / d velocity of these dampers, b + 2 p0 |v| + 3 p1 v^2; arguments as for `_dampers`."""
    linear, higher = (reflected(model, field) for field in fields)
    return _slope(linear, higher, jnp.abs(velocity))


def tendon_extension(model: Model, tendons: Tendons) -> Array:
    """(ntendon,) m, signed distance of each tendon's length from the dead band of its spring; zero inside the band."""
    lower, upper = model.tendon_lengthspring[:, 0], model.tendon_lengthspring[:, 1]
    return tendons.ten_length - safe.clip(tendons.ten_length, lower, upper)


def _gravity_compensation(model: Model, kinematics: Kinematics, com: ComFrame) -> Array:
    """(nv,) gravity compensation, N or N m: minus the weight of each body times its gravcomp."""
    topology = model.topology
    # the world does not move, so its weight needs no compensation
    bodies = np.flatnonzero(topology.present["body_gravcomp"])
    bodies = bodies[bodies > 0]
    if model.opt.disabled(DisableBit.GRAVITY) or not bodies.size:
        return jnp.zeros((model.nv,), com.cdof.dtype)
    weight = pick(model.body_mass, bodies) * pick(model.body_gravcomp, bodies)
    force = -scale(jnp.broadcast_to(model.opt.gravity, (len(bodies), 3)), weight)
    return forces_on_dofs(model, com, kinematics.xipos[bodies], bodies, force, jnp.zeros_like(force))
