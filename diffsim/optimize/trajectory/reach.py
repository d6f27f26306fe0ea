"""Reach: positions of a robot whose points follow paths through space, and the controls that hold it there.

`follow` is inverse kinematics along a path. Each waypoint begins where the last one ended, so that the robot does not
jump between branches. One iteration is a damped Gauss-Newton step of the dofs that actuators move,

    (A^T A + (damping + posture^2) 1) dz = A^T r + posture^2 z,    A = W J E,    dq = E dz

with residuals r of points and of one orientation, and with the matrix E (nv, moving), whose columns move one actuated
dof each and the dofs that equalities couple to it.

`controls` inverts the actuators. At a position where the robot should exert a force F, the actuators' forces f satisfy

    (moment E)^T f = E^T (bias - passive + damping v + J^T F)

and the control of an actuator with the affine law f = gain ctrl + b_0 + b_1 length + b_2 velocity follows from f.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.base.enums import BiasType, DynType, EqType, GainType
from diffsim.base.joints import is_scalar
from diffsim.kinematics.com import compute_com_frame
from diffsim.kinematics.jacobian import point_jacobian
from diffsim.kinematics.joints import integrate_position, position_difference
from diffsim.kinematics.poses import compute_kinematics
from diffsim.math.linalg import solve_spd
from diffsim.math.rotation import quat_sub, rotate
from diffsim.math.vector import matmul
from diffsim.optimize.tangent import displaced, no_change
from diffsim.optimize.trajectory.sampling import quick_jit
from diffsim.optimize.trajectory.task import Task
from diffsim.simulate.forward import forward
from diffsim.types import State

Array = jax.Array
# an array of numpy on the host, of JAX inside of programs
Either = Any

# iterations of each waypoint: it begins near its solution
ITERATIONS = 6
# m^2, damping of a step: a millimetre per radian matters, less does not
DAMPING = 1e-4
# m per rad, weight of the distance from the first position: it decides among the positions of a redundant arm
POSTURE = 0.01
# rad or m, longest step of a dof
LONGEST = 0.5
# m or rad, a dof that cannot move further than this is at the end of its range
AT_LIMIT = 1e-5
# laws that can be inverted
DYNAMICS = (DynType.NONE, DynType.INTEGRATOR, DynType.FILTER, DynType.FILTEREXACT)
GAINS = (GainType.FIXED, GainType.AFFINE)
BIASES = (BiasType.NONE, BiasType.AFFINE)


class Wanted(NamedTuple):
    """What a robot should do at one waypoint; with leading axes (paths, waypoints) in `follow`.

    Attributes:
      body: (2,) the bodies of two points.
      local: (2, 3) m, the points in the frames of their bodies.
      point: (2, 3) m, where they should be in the world.
      weight: (2,) 1, or 0 for a point that does not count.
      quat: (4,) the orientation of the first point's body.
      turn: () m per rad, the weight of the orientation.
      force: (2, 3) N, what the points should exert on what they touch, world axes.
    """

    body: Either
    local: Either
    point: Either
    weight: Either
    quat: Either
    turn: Either
    force: Either


class Survey(NamedTuple):
    """What is where at some positions (n, ...), and what the goal depends on.

    Attributes:
      xpos, xquat: poses of bodies.
      geom_xpos, geom_xmat: poses of geoms.
      moment: (n, nu, nv) moment arms of actuators.
      residual: (n, m) final residuals of the task.
      slope: (n, m, nv) their derivatives with respect to positions.
    """

    xpos: Either
    xquat: Either
    geom_xpos: Either
    geom_xmat: Either
    moment: Either
    residual: Either
    slope: Either


@quick_jit
def survey(task: Task, state: State, qpos: Either) -> Survey:
    """Poses and the goal's residuals at positions (n, nq); contacts are left out."""
    model = task.model.without_contacts()
    nothing = no_change(model)

    def at(qpos: Array) -> Survey:
        def goal(dq: Array) -> tuple[Array, Survey]:
            now = displaced(model, state.replace(qpos=qpos), dq, *nothing[1:3])
            data = forward(model, now, task.inputs)
            residual = task.final(now, data) if task.final is not None else jnp.zeros(0)
            seen = Survey(
                xpos=data.xpos,
                xquat=data.xquat,
                geom_xpos=data.geom_xpos,
                geom_xmat=data.geom_xmat,
                moment=data.actuator_moment,
                residual=residual,
                slope=residual,
            )
            return residual, seen

        slope, seen = jax.jacfwd(goal, has_aux=True)(nothing[0])
        return seen._replace(slope=slope)

    return jax.vmap(at)(qpos)


class Limits(NamedTuple):
    """Which dofs move, and how far.

    Attributes:
      coupling: (nv, moving) E: the motion of all dofs for each dof that actuators move.
      lower, upper: (nv,) m or rad, ranges of slides and hinges; infinite for other dofs.
      address: (nv,) index into qpos of the value of each slide and hinge, 0 for other dofs.
    """

    coupling: Either
    lower: Either
    upper: Either
    address: Either


@quick_jit
def follow(task: Task, begin: Array, wanted: Wanted, limits: Limits) -> tuple[Array, Array]:
    """Positions (paths, waypoints, nq) at which points are where they should be, and the largest miss of each, m.

    Args:
      task: the task.
      begin: (nq,) where all paths begin.
      wanted: (paths, waypoints, ...).
      limits: which dofs move.
    """
    model = task.model
    one = jnp.ones((), begin.dtype)
    moving: int = limits.coupling.shape[1]

    def errors(qpos: Array, aim: Wanted) -> tuple[Array, Array, Array]:
        poses = compute_kinematics(model, qpos, task.inputs.mocap_pos, task.inputs.mocap_quat)
        com = compute_com_frame(model, poses)
        at = poses.xpos[aim.body] + jax.vmap(rotate)(poses.xquat[aim.body], aim.local)
        linear, _ = point_jacobian(model, com, at, aim.body)
        # the rotation vector in the world that turns the body to its aim
        away = rotate(poses.xquat[aim.body[0]], quat_sub(aim.quat, poses.xquat[aim.body[0]]))
        angular = point_jacobian(model, com, at[0], aim.body[0])[1]
        off = aim.point - at
        residual = jnp.concatenate([(aim.weight[:, None] * off).reshape(-1), aim.turn * away])
        slope = jnp.concatenate([(aim.weight[:, None, None] * linear).reshape(6, -1), aim.turn * angular])
        return residual, slope, jnp.max(aim.weight * jnp.sqrt(jnp.sum(off**2, axis=1)))

    def step(qpos: Array, aim: Wanted) -> Array:
        residual, slope, _ = errors(qpos, aim)
        value = qpos[limits.address]
        home = matmul(limits.coupling.T, position_difference(model, begin, qpos))

        def solve(_: Any, carry: tuple[Array, Array]) -> tuple[Array, Array]:
            """The step of the free dofs, and which of them the ranges do not hold back."""
            free, _ = carry
            reduced = matmul(slope, limits.coupling * free[None])
            matrix = matmul(reduced.T, reduced) + (DAMPING + POSTURE**2) * jnp.eye(moving, dtype=begin.dtype)
            dz = solve_spd(matrix, matmul(reduced.T, residual) + POSTURE**2 * free * home)
            dq = matmul(limits.coupling, jnp.clip(dz, -LONGEST, LONGEST))
            inside = jnp.clip(dq, limits.lower - value, limits.upper - value)
            held = (inside != dq) & (jnp.abs(inside) < AT_LIMIT)
            return jnp.where(jnp.any((limits.coupling != 0) & held[:, None], axis=0), 0, free), inside

        # once more without the dofs that are at the ends of their ranges, so that the others make up for them
        dq = jax.lax.fori_loop(0, 2, solve, (jnp.ones(moving, begin.dtype), jnp.zeros(model.nv, begin.dtype)))[1]
        return integrate_position(model, qpos, dq, one)

    def waypoint(qpos: Array, aim: Wanted) -> tuple[Array, tuple[Array, Array]]:
        qpos = jax.lax.fori_loop(0, ITERATIONS, lambda _, q: step(q, aim), qpos)
        return qpos, (qpos, errors(qpos, aim)[2])

    return jax.vmap(lambda path: jax.lax.scan(waypoint, begin, path)[1])(wanted)


class Statics(NamedTuple):
    """What holds a robot at some positions (n, ...): lengths and moment arms of actuators, forces on dofs."""

    length: Array
    moment: Array
    load: Array


@quick_jit
def statics(task: Task, state: State, qpos: Either, wanted: Wanted) -> Statics:
    """Lengths and moment arms of actuators at positions (n, nq), and the forces (n, nv) that they must bear at rest."""
    model = task.model.without_contacts()

    def at(qpos: Array, aim: Wanted) -> Statics:
        data = forward(model, state.replace(qpos=qpos, qvel=jnp.zeros_like(state.qvel)), task.inputs)
        poses = compute_kinematics(model, qpos, task.inputs.mocap_pos, task.inputs.mocap_quat)
        com = compute_com_frame(model, poses)
        point = poses.xpos[aim.body] + jax.vmap(rotate)(poses.xquat[aim.body], aim.local)
        linear, _ = point_jacobian(model, com, point, aim.body)
        load = data.qfrc_bias - data.qfrc_passive + jnp.sum(linear * aim.force[:, :, None], axis=(0, 1))
        # what actuators add by themselves (actuatorgravcomp)
        by_actuators = model.topology.jnt_actgravcomp[model.topology.dof_jntid] != 0
        load = load - jnp.where(by_actuators, data.qfrc_gravcomp, 0)
        return Statics(length=data.actuator_length, moment=data.actuator_moment, load=load)

    return jax.vmap(at)(qpos, wanted)


def invertible(task: Task) -> bool:
    """Whether the control of every actuator follows from its force."""
    topology = task.model.topology
    kinds = (
        (topology.actuator_dyntype, DYNAMICS),
        (topology.actuator_gaintype, GAINS),
        (topology.actuator_biastype, BIASES),
    )
    return all(np.isin(found, [int(kind) for kind in known]).all() for found, known in kinds)


def limits_of(task: Task, moment: np.ndarray) -> Limits:
    """Which dofs move, given the moment arms (nu, nv) of actuators: those on which actuators act, and what is coupled.

    A joint that an equality couples to another one moves with it.
    """
    model = task.model
    topology = model.topology
    scalar = is_scalar(topology.jnt_type)[topology.dof_jntid]
    driven = np.any(np.abs(moment) > 0, axis=0) & scalar
    coupling = np.diag(driven.astype(float))
    polynomial = np.asarray(model.eq_data)
    for number in np.flatnonzero(topology.eq_type == EqType.JOINT):
        first, second = topology.eq_obj1id[number], topology.eq_obj2id[number]
        if second < 0 or not topology.eq_active0[number]:
            continue
        row, column = topology.jnt_dofadr[[first, second]]
        slope = polynomial[number, 1]
        # the first joint is a polynomial of the second; whichever is driven carries the other along
        if driven[row] and not driven[column] and slope:
            coupling[column, row] = 1 / slope
        elif driven[column]:
            coupling[:, column] += slope * np.eye(len(coupling))[row]
            coupling[row, row] = 0
    moved = np.flatnonzero(np.any(coupling != 0, axis=0))
    limited = scalar & (topology.jnt_limited != 0)[topology.dof_jntid]
    low, high = np.asarray(model.jnt_range)[topology.dof_jntid].T
    dtype = task.lower.dtype
    return Limits(
        coupling=coupling[:, moved].astype(dtype),
        lower=np.where(limited, low, -np.inf).astype(dtype),
        upper=np.where(limited, high, np.inf).astype(dtype),
        address=np.where(scalar, topology.jnt_qposadr[topology.dof_jntid], 0),
    )


def controls(task: Task, state: State, qpos: np.ndarray, wanted: Wanted, steps: int) -> np.ndarray:
    """(paths, steps, nu) the controls that move a robot through positions and exert the forces that are wanted.

    Args:
      task: the task.
      state: any state.
      qpos: (paths, waypoints, nq) positions at equal distances in time, the last one at the end of the motion.
      wanted: (paths, waypoints, ...) of which the forces count.
      steps: length of the motion.
    """
    model = task.model
    paths, count = qpos.shape[:2]
    interval = steps * float(model.opt.timestep) / max(count - 1, 1)
    rows = jax.tree.map(lambda x: x.reshape(paths * count, *x.shape[2:]), wanted)
    held = jax.tree.map(np.asarray, statics(task, state, qpos.reshape(paths * count, -1), rows))
    limits = limits_of(task, held.moment[0])
    length = held.length.reshape(paths, count, -1)
    velocity = np.gradient(length, interval, axis=1)
    rate = np.gradient(qpos[..., limits.address], interval, axis=1).reshape(paths * count, -1)
    load = (held.load + np.asarray(model.dof_damping) * rate) @ limits.coupling
    arms = np.swapaxes(held.moment @ limits.coupling, 1, 2)
    force = np.einsum("nij,nj->ni", np.linalg.pinv(arms), load).reshape(length.shape)
    gain, bias = (
        prm[:, 0] + prm[:, 1] * length + prm[:, 2] * velocity
        for prm in (np.asarray(model.actuator_gainprm), np.asarray(model.actuator_biasprm))
    )
    topology = model.topology
    fixed, without = (topology.actuator_gaintype == GainType.FIXED), (topology.actuator_biastype == BiasType.NONE)
    gain = np.where(fixed, np.asarray(model.actuator_gainprm)[:, 0], gain)
    signal = (force - np.where(without, 0, bias)) / np.where(gain == 0, np.inf, gain)
    # the signal is the control, or an activation that follows the control
    change = np.gradient(signal, interval, axis=1)
    lag = np.asarray(model.actuator_dynprm)[:, 0]
    ctrl = np.where(
        topology.actuator_dyntype == DynType.NONE,
        signal,
        np.where(topology.actuator_dyntype == DynType.INTEGRATOR, change, signal + lag * change),
    )
    place = np.linspace(0, count - 1, steps)
    before = np.minimum(place.astype(int), count - 2)
    part = (place - before)[:, None]
    spline = (1 - part) * ctrl[:, before] + part * ctrl[:, before + 1]
    return np.clip(spline, task.lower, task.upper).astype(task.lower.dtype)
