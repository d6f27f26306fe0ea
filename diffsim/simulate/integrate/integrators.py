"""Integrators: how a state moves over one timestep h. One row each.

Velocities advance first and positions with the new velocities (semi-implicit); the exception is Runge-Kutta, which
averages both. The implicit ones solve with a matrix other than M, which discrete inverse dynamics needs as well. To add
an integrator, write its function and a row of `INTEGRATORS`. Source: MuJoCo documentation, "Numerical integration".
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.actuator.actuators import switched_off
from diffsim.base.enums import DisableBit, EnableBit, Integrator
from diffsim.base.errors import UnsupportedError
from diffsim.constraint import contact_forces
from diffsim.dynamics.bias import damps_implicitly
from diffsim.dynamics.inertia import DOF_DAMPING
from diffsim.dynamics.passive import damping_derivative
from diffsim.flex.cell_forces import with_cells
from diffsim.kinematics.tree import dof_limbs
from diffsim.math.block_solves import solve_blocks, solve_general_blocks
from diffsim.math.linalg import BlockDiagonal, Blocks, diagonal_of
from diffsim.sensor import read_sensors
from diffsim.simulate.forward import forward
from diffsim.simulate.integrate.derivative import velocity_derivative
from diffsim.simulate.integrate.events import split_step
from diffsim.simulate.integrate.free_body import free_bodies, midpoint_velocity, unconstrained
from diffsim.simulate.integrate.runge_kutta import average_slopes
from diffsim.types import Data, Inputs, Model, State
from diffsim.xla.gather import pick


class Motion(NamedTuple):
    """How a state changes over one timestep.

    Attributes:
      qvel: (nv,) the next velocity.
      path: (nv,) the velocity that positions move with.
      act_dot: (na,) activation rates.
      actuator_velocity: (nu,) the velocity that activation dynamics read.
      qacc: (nv,) where the next solve starts.
      sample: (nsensordata,) what sensors with a delay record.
    """

    qvel: Array
    path: Array
    act_dot: Array
    actuator_velocity: Array
    qacc: Array
    sample: Array


Move = Callable[[Model, State, Inputs, Data], Motion]
Inertia = Callable[[Model, State, Inputs, Data], BlockDiagonal]


class Method(NamedTuple):
    """An integrator: its motion, and its inertia, the matrix that maps (qvel_next - qvel) / h to the force.

    Without such a matrix (None) discrete inverse dynamics is not defined.
    """

    move: Move
    inertia: Inertia | None = None


def discrete_inertia(model: Model, state: State, inputs: Inputs, data: Data) -> BlockDiagonal:
    """(nv x nv) M plus the terms that are implicit in velocity: it maps (qvel_next - qvel) / h to the force.

    Raises:
      UnsupportedError: the integrator has no such matrix.
    """
    inertia = INTEGRATORS[model.opt.integrator].inertia
    if inertia is None:
        name = model.opt.integrator.name
        reason = f"invdiscrete has no meaning for the integrator {name}; use another, or clear the flag"
        raise UnsupportedError.of("<option integrator>", reason)
    return inertia(model, state, inputs, data)


def _semi_implicit(model: Model, state: State, data: Data, qacc: Array) -> Motion:
    """Positions move with the next velocity, qvel + h qacc."""
    qvel = state.qvel + model.opt.timestep * qacc
    return Motion(qvel, qvel, data.act_dot, data.actuator_velocity, data.qacc, data.sensor_now)


def euler(model: Model, state: State, inputs: Inputs, data: Data) -> Motion:
    """Semi-implicit Euler, implicit in joint damping: (M + h D) qacc = qfrc_smooth + qfrc_constraint."""
    qacc = data.qacc
    inertia = euler_inertia(model, state, inputs, data)
    if inertia is not data.M:
        pushed = model.topology.negative_damping
        qacc = _solve_symmetric(model, inertia, data.qfrc_smooth + data.qfrc_constraint, pushed)
    return _semi_implicit(model, state, data, qacc)


def euler_inertia(model: Model, state: State, inputs: Inputs, data: Data) -> BlockDiagonal:
    """M + h D, D the dampers of the dofs."""
    if not damps_implicitly(model):
        return data.M
    damping = damping_derivative(model, DOF_DAMPING, state.qvel)
    if model.topology.negative_damping and not np.any(model.topology.jnt_actuatorid != -1):
        # MuJoCo looks for positive damping; where all of it is negative, the step is explicit
        implicit = jnp.any(model.dof_damping > 0) | jnp.any(model.dof_dampingpoly != 0)
        damping = jnp.where(implicit, damping, 0)
    return data.M.plus_diagonal(model.opt.timestep * damping)


def runge_kutta(model: Model, state: State, inputs: Inputs, data: Data) -> Motion:
    """The classical fourth-order method on (qpos, qvel, act), with four evaluations of `forward`.

    As in MuJoCo, sensors with a delay record readings from the first state and the Data of the last evaluation. With
    `opt.events` the step is split where contacts begin or end (events.py).
    """
    if model.opt.events:
        (path, _, act_dot), qvel, qacc, velocity = split_step(model, state, inputs, data)
        return Motion(qvel, path, act_dot, velocity, qacc, data.sensor_now)

    def read(stage: Data) -> tuple[Array, Array, Array]:
        # readings from the first state and a later Data, if anything records them
        sample = jnp.zeros_like(stage.sensor_now)
        if model.topology.nhistory:
            forces = contact_forces(model, stage.contact, stage.efc, stage)
            sample = read_sensors(model, state, inputs, stage, forces)
        return stage.qacc, stage.actuator_velocity, sample

    h = model.opt.timestep
    rates = data.qacc, data.act_dot
    slopes, reads = average_slopes(model, state, rates, h, lambda point: forward(model, point, inputs), read)
    warmstart, velocity, sample = jax.tree.map(lambda stages: stages[-1], reads)
    return Motion(state.qvel + h * slopes.qacc, slopes.path, slopes.act_dot, velocity, warmstart, sample)


def implicit(model: Model, state: State, inputs: Inputs, data: Data) -> Motion:
    """Implicit in velocity: (M - h d qfrc_smooth / d qvel) qacc = qfrc_smooth + qfrc_constraint."""
    # interpolated flexes are implicit in position too, which `with_cells` adds to the solve
    force = data.qfrc_smooth + data.qfrc_constraint
    inertia = implicit_inertia(model, state, inputs, data)
    qacc = with_cells(model, state.qvel, data, inertia, force, solve_general_blocks(inertia, force))
    return _semi_implicit(model, state, data, qacc)


def implicit_inertia(model: Model, state: State, inputs: Inputs, data: Data) -> BlockDiagonal:
    """M - h d qfrc_smooth / d qvel."""
    return _less(data.M, velocity_derivative(model, state, inputs, data, coriolis=True), model.opt.timestep)


def implicit_fast(model: Model, state: State, inputs: Inputs, data: Data) -> Motion:
    """As `implicit`, without Coriolis forces and symmetric.

    Free bodies have rules of their own. Before MuJoCo 3.11, free bodies that nothing holds follow the midpoint rule.
    Since then, all free bodies move as with `implicit`, which does not keep their energy but never adds to it.
    """
    force = data.qfrc_smooth + data.qfrc_constraint
    inertia = _symmetric_inertia(model, state, inputs, data)
    solved = _solve_symmetric(model, inertia, force, _adds_energy(model))
    qacc = with_cells(model, state.qvel, data, inertia, force, solved)
    turning = _turning(model, state, inputs, data)
    if turning is not None:
        apart = np.isin(np.arange(model.nv), free_bodies(model.topology).dofs)
        return _semi_implicit(model, state, data, jnp.where(apart, solve_general_blocks(turning, force), qacc))
    plain = _semi_implicit(model, state, data, qacc)
    free = free_bodies(model.topology)
    if not free.dofs.size or model.opt.enabled(EnableBit.INVDISCRETE):
        return plain
    # free bodies by the midpoint rule, which has the gyroscopic force itself: give it the force without bias
    applied = pick(force + data.qfrc_bias, free.dofs)
    rates = pick(plain.qvel, free.dofs)
    half, full = midpoint_velocity(model, pick(data.xquat, free.bodies), pick(state.qvel, free.dofs), applied, rates)
    loose = unconstrained(model, data.efc)[:, None]
    path = plain.qvel.at[free.dofs].set(jnp.where(loose, half, rates))
    return plain._replace(qvel=plain.qvel.at[free.dofs].set(jnp.where(loose, full, rates)), path=path)


def implicit_fast_inertia(model: Model, state: State, inputs: Inputs, data: Data) -> BlockDiagonal:
    """M - h d qfrc_smooth / d qvel: symmetric and without Coriolis forces, except for free bodies since MuJoCo 3.11."""
    turning, symmetric = _turning(model, state, inputs, data), _symmetric_inertia(model, state, inputs, data)
    if turning is None:
        return symmetric
    apart = np.isin(np.arange(model.nv), free_bodies(model.topology).dofs)
    both = jnp.where(apart[:, None] & apart, turning.dense, symmetric.dense)
    return diagonal_of(data.M.blocks, both)


def discrete(model: Model, state: State, inputs: Inputs, data: Data) -> Motion:
    """The acceleration is already the one over a timestep, (qvel_next - qvel) / h: see simulate/metric.py."""
    return _semi_implicit(model, state, data, data.qacc)


def _turning(model: Model, state: State, inputs: Inputs, data: Data) -> BlockDiagonal | None:
    """M - h d qfrc_smooth / d qvel of the free bodies, by blocks (6, 6); None if they do not use it.

    Nothing but a constraint couples a free body to another tree, so that its block is a system of its own, which may
    be unsymmetric.
    """
    dofs = free_bodies(model.topology).dofs
    if not dofs.size or not model.opt.follows("free_bodies"):
        return None
    whole = implicit_inertia(model, state, inputs, data).dense
    return BlockDiagonal(Blocks(model.nv, (dofs,)), (whole[dofs[:, :, None], dofs[:, None, :]],))


def _symmetric_inertia(model: Model, state: State, inputs: Inputs, data: Data) -> BlockDiagonal:
    """M - h d qfrc_smooth / d qvel, symmetric, without Coriolis forces; only entries of M that MuJoCo stores."""
    change = velocity_derivative(model, state, inputs, data, coriolis=False)
    # off the diagonal, in rows and columns of bodies whose own inertia is diagonal ("simple" bodies)
    simple = model.topology.body_simple[model.topology.dof_bodyid] > 0
    outside = (simple[:, None] | simple) & ~np.eye(model.nv, dtype=bool)
    pairs = zip(change.parts, change.blocks.index, strict=True)
    parts = (jnp.where(outside[index[:, :, None], index[:, None]], 0, part) for part, index in pairs)
    return _less(data.M, BlockDiagonal(change.blocks, tuple(parts)), model.opt.timestep)


def _adds_energy(model: Model) -> bool:
    """Whether an actuator or a damper can push harder as a joint gets faster. Negative controls of a `damper` do so."""
    active = not model.opt.disabled(DisableBit.ACTUATION)
    pushing = active and bool((model.topology.can_accelerate & ~switched_off(model)).any())
    return pushing or model.topology.negative_damping


def _solve_symmetric(model: Model, inertia: BlockDiagonal, force: Array, indefinite: bool) -> Array:
    """The accelerations (nv,) that a force (nv,) gives to a symmetric inertia.

    With something that adds energy, M - h d force / d velocity may have a negative eigenvalue (`indefinite`). There is
    a solution then, but no Cholesky factor.
    """
    if indefinite:
        return solve_general_blocks(inertia, force)
    return solve_blocks(inertia, force, dof_limbs(model.topology))


def _less(inertia: BlockDiagonal, slope: BlockDiagonal, timestep: Array) -> BlockDiagonal:
    """M - h D."""
    return jax.tree.map(lambda m, d: m - timestep * d, inertia, slope)


INTEGRATORS: dict[Integrator, Method] = {
    Integrator.EULER: Method(euler, euler_inertia),
    Integrator.RK4: Method(runge_kutta),
    Integrator.IMPLICIT: Method(implicit, implicit_inertia),
    Integrator.IMPLICITFAST: Method(implicit_fast, implicit_fast_inertia),
    Integrator.DISCRETE: Method(discrete),
}
