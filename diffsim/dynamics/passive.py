"""Passive forces: springs, dampers, gravity compensation, the surrounding medium; and energy.

Springs and dampers are polynomial, -x (k + p0 x + p1 x^2) and -v (b + p0 |v| + p1 v^2); x is the displacement of a
scalar joint or tendon, or the length of the displacement of a ball or free joint. Disabling springs and dampers
together disables all passive forces. Source: MuJoCo documentation, "Computation", "Passive forces" and "Energy".
"""

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.base.enums import DisableBit, EnableBit, SensorType
from diffsim.dynamics import inertia
from diffsim.dynamics.fluid import fluid_force
from diffsim.flex.cable import cable_force
from diffsim.flex.cell_forces import cell_forces
from diffsim.flex.nodes import interpolated, node_positions
from diffsim.flex.passive import flex_dampers, flex_springs, flex_stretching, line_energy
from diffsim.kinematics.jacobian import joint_force
from diffsim.kinematics.joints import JointGroup, groups
from diffsim.math import safe
from diffsim.math.vector import dot, matmul, scale
from diffsim.types.data import ComFrame, Energy, Flexes, Inertia, Kinematics, Passive, Tendons, Velocities
from diffsim.types.model import Model
from diffsim.types.state import State
from diffsim.types.topology import Topology, per_topology
from diffsim.xla.gather import pick, place

Array = jax.Array


def compute_passive(
    model: Model,
    state: State,
    kinematics: Kinematics,
    com: ComFrame,
    tendons: Tendons,
    velocities: Velocities,
    flexes: Flexes | None = None,
) -> Passive:
    """Passive forces (nv,), N or N m, by origin, and their sum.

    Gravity compensation that goes through actuators is not in the sum. As in MuJoCo, stretched elements of flexes are
    springs that no flag switches off alone.
    """
    topology, qpos, qvel = model.topology, state.qpos, state.qvel
    zero = jnp.zeros_like(qvel)
    no_springs, no_dampers = (model.opt.disabled(bit) for bit in (DisableBit.SPRING, DisableBit.DAMPER))
    if no_springs and no_dampers:
        return Passive(qfrc_spring=zero, qfrc_damper=zero, qfrc_gravcomp=zero, qfrc_fluid=zero, qfrc_passive=zero)
    spring = zero if no_springs else _joint_springs(model, qpos) + _tendon_springs(model, tendons)
    damper = zero if no_dampers else _dof_dampers(model, qvel) + _tendon_dampers(model, tendons, velocities)
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
    """k + p0 x + p1 x^2: force per displacement, for coefficients (n,), (n, 2) and displacements (n,)."""
    return linear + x * (poly[:, 0] + x * poly[:, 1])


@per_topology
def _sprung(topology: Topology) -> tuple[tuple[JointGroup, np.ndarray], ...]:
    """Groups of joints with some that can have springs, and which of each group these are."""
    present = topology.present["jnt_stiffness"] | topology.present["jnt_stiffnesspoly"].any(axis=-1)
    rows = [(group, np.flatnonzero(present[group.joints])) for group in groups(topology)]
    return tuple((group, row) for group, row in rows if row.size)


def spring_displacements(model: Model, qpos: Array) -> list[tuple[np.ndarray, np.ndarray, Array, Array]]:
    """Springs of joints: for each block of dofs, (joints (n,), dofs (n, k), displacement (n, k), its extent (n,)).

    The extent is signed for scalar joints and a length for ball and free joints.
    """
    springs = []
    for group, rows in _sprung(model.topology):
        ids = group.qpos[rows]
        moved = jax.vmap(group.motion.difference)(pick(qpos, ids), pick(model.qpos_spring, ids))
        for start, stop in group.kind.blocks:
            part = moved[:, start:stop]
            extent = part[:, 0] if stop - start == 1 else safe.norm(part)
            springs.append((group.joints[rows], group.dofs[rows, start:stop], part, extent))
    return springs


def _joint_springs(model: Model, qpos: Array) -> Array:
    """(nv,) forces that pull joints to qpos_spring."""
    springs = spring_displacements(model, qpos)
    if not springs:
        return jnp.zeros((model.nv,), qpos.dtype)
    poly = model.topology.has("jnt_stiffnesspoly")
    forces, dofs = [], []
    for joints, ids, moved, extent in springs:
        k = pick(model.jnt_stiffness, joints)
        k = stiffness(k, pick(model.jnt_stiffnesspoly, joints), extent) if poly else k
        forces.append(-scale(moved, k).reshape(-1))
        dofs.append(ids.ravel())
    return place(model.nv, np.concatenate(dofs), jnp.concatenate(forces))


def _dof_dampers(model: Model, qvel: Array) -> Array:
    """(nv,) damping of dofs, reflected actuator damping included."""
    topology = model.topology
    if inertia.has_dof_damping(topology, poly=True):
        linear, higher = inertia.dof_damping(model)
        return -qvel * stiffness(linear, higher, jnp.abs(qvel))
    if inertia.has_dof_damping(topology):
        return -qvel * inertia.dof_damping(model)[0]
    return jnp.zeros_like(qvel)


def damping_derivative(model: Model, qvel: Array) -> Array:
    """(nv,) -d qfrc_damper / d qvel of the dofs' own dampers: b + 2 p0 |v| + 3 p1 v^2."""
    linear, higher = inertia.dof_damping(model)
    weight = jnp.array([[2, 3]], dtype=qvel.dtype)
    return jnp.broadcast_to(stiffness(linear, higher * weight, jnp.abs(qvel)), qvel.shape)


def tendon_damping_derivative(model: Model, velocity: Array) -> Array:
    """(ntendon,) -d force / d velocity of tendon dampers at tendon velocities (ntendon,)."""
    linear, higher = inertia.tendon_damping(model)
    weight = jnp.array([[2, 3]], dtype=velocity.dtype)
    return stiffness(linear, higher * weight, jnp.abs(velocity))


def slack(lower: Array, upper: Array, length: Array) -> Array:
    """How far a length lies outside [lower, upper]; zero inside."""
    return length - safe.clip(length, lower, upper)


def tendon_extension(model: Model, tendons: Tendons) -> Array:
    """(ntendon,) signed distance of each tendon's length from its spring's dead band."""
    return slack(model.tendon_lengthspring[:, 0], model.tendon_lengthspring[:, 1], tendons.ten_length)


def _tendon_springs(model: Model, tendons: Tendons) -> Array:
    """(nv,) forces of tendon springs with a dead band."""
    topology = model.topology
    if not (topology.has("tendon_stiffness") or topology.has("tendon_stiffnesspoly")):
        return jnp.zeros((model.nv,), tendons.ten_J.dtype)
    x = tendon_extension(model, tendons)
    return matmul(tendons.ten_J.T, -x * stiffness(model.tendon_stiffness, model.tendon_stiffnesspoly, x))


def _tendon_dampers(model: Model, tendons: Tendons, velocities: Velocities) -> Array:
    """(nv,) forces of tendon dampers, reflected actuator damping included."""
    topology = model.topology
    if not inertia.has_any_tendon_damping(topology):
        return jnp.zeros((model.nv,), tendons.ten_J.dtype)
    linear, higher = inertia.tendon_damping(model)
    v = velocities.ten_velocity
    return matmul(tendons.ten_J.T, -v * stiffness(linear, higher, jnp.abs(v)))


def _gravity_compensation(model: Model, kinematics: Kinematics, com: ComFrame) -> Array:
    """(nv,) forces that cancel the weight of bodies times their gravcomp."""
    topology = model.topology
    # the world's own weight is never compensated
    bodies = np.flatnonzero(topology.present["body_gravcomp"])
    bodies = bodies[bodies > 0]
    if model.opt.disabled(DisableBit.GRAVITY) or not bodies.size:
        return jnp.zeros((model.nv,), com.cdof.dtype)
    weight = pick(model.body_mass, bodies) * pick(model.body_gravcomp, bodies)
    force = -scale(jnp.broadcast_to(model.opt.gravity, (len(bodies), 3)), weight)
    return joint_force(model, com, kinematics.xipos[bodies], bodies, force, jnp.zeros_like(force))


def compute_energy(
    model: Model,
    state: State,
    kinematics: Kinematics,
    tendons: Tendons,
    inertia: Inertia,
    flexes: Flexes | None = None,
) -> Energy:
    """energy (2,): potential and kinetic, J; zero unless the flag is set or a sensor reads one."""
    qpos, qvel = state.qpos, state.qvel
    read = np.isin(model.topology.sensor_type, (SensorType.E_POTENTIAL, SensorType.E_KINETIC)).any()
    if not (read or model.opt.enabled(EnableBit.ENERGY)):
        return Energy(energy=jnp.zeros((2,), qpos.dtype))
    kinetic = 0.5 * jnp.sum(qvel * inertia.M.mul_vec(qvel))
    potential = potential_energy(model, qpos, kinematics, tendons)
    if flexes is not None and not model.opt.disabled(DisableBit.SPRING):
        potential = potential + line_energy(model, flexes)
    return Energy(energy=jnp.stack([potential, kinetic]))


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
