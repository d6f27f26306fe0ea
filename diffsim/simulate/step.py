"""step: one timestep, forward and then integrate.

Integrators are rows of a table. Velocities advance first and positions with the new velocities (semi-implicit); the
exception is Runge-Kutta, which averages both. MuJoCo documentation, "Numerical integration".
"""

import jax
import jax.numpy as jnp

from diffsim.actuator.actuation import advance_activation
from diffsim.enums import EnableBit, Integrator
from diffsim.math.block_matrix import solve_blocks, solve_general_blocks
from diffsim.math.pick import pick
from diffsim.physics.joint import integrate_position
from diffsim.simulate.derivative import discrete_inertia
from diffsim.simulate.forward import forward
from diffsim.simulate.free_body import free_bodies, midpoint_velocity, unconstrained
from diffsim.types import Data, Inputs, Model, State
from diffsim.types.history import record_controls, record_readings
from diffsim.types.state import make_inputs

Array = jax.Array
# rates of (qpos, qvel, act)
Slope = tuple[Array, Array, Array]
# the last slope, the weighted sum of slopes, and (qacc, actuator_velocity) of the last evaluation
Stage = tuple[Slope, Slope, tuple[Array, Array]]


def step(model: Model, state: State, inputs: Inputs | None = None) -> State:
    """The state one `model.opt.timestep` later.

    Args:
      model: the compiled model.
      state: where the world is.
      inputs: controls and applied forces, constant during the step; None for `make_inputs(model)`.

    Returns:
      The next state. `forward` on it tells whether anything went wrong (`data.status`).
    """
    return advance(model, state, make_inputs(model) if inputs is None else inputs)[0]


def advance(model: Model, state: State, inputs: Inputs) -> tuple[State, Data]:
    """The next state, and what `forward` computed on the way. What nobody reads of Data is not computed."""
    data = forward(model, state, inputs)
    return integrate(model, state, inputs, data), data


def integrate(model: Model, state: State, inputs: Inputs, data: Data) -> State:
    """Advances a state by one timestep, given what `forward` computed from it.

    The integrator is `model.opt.integrator`. Together with `forward` this splits a step in two, as mj_step1 and
    mj_step2 do, with the user's own code in between.
    """
    history = record_controls(model, state.history, state.time, inputs.ctrl)
    history = record_readings(model, history, state.time, data.sensor_now)
    return INTEGRATORS[model.opt.integrator](model, state, inputs, data).replace(history=history)


def euler(model: Model, state: State, inputs: Inputs, data: Data) -> State:
    """Semi-implicit Euler, implicit in joint damping: (M + h D) qacc = qfrc_smooth + qfrc_constraint."""
    qacc = data.qacc
    inertia = discrete_inertia(model, state, inputs, data)
    if inertia is not data.M:
        qacc = solve_blocks(inertia, data.qfrc_smooth + data.qfrc_constraint)
    return _advance(model, state, inputs, data.actuator_velocity, data.act_dot, qacc, None, data.qacc)


def runge_kutta(model: Model, state: State, inputs: Inputs, data: Data) -> State:
    """The classical fourth-order method on (qpos, qvel, act), with four evaluations of `forward`.

    The last three evaluations are one scan, so that `forward` is compiled twice and not four times.
    """
    h = model.opt.timestep

    def stage(carry: Stage, row: tuple[Array, Array]) -> tuple[Stage, None]:
        (qvel, qacc, act_dot), total, _ = carry
        fraction, weight = row
        point = state.replace(
            time=state.time + fraction * h,
            qpos=integrate_position(model, state.qpos, qvel, fraction * h),
            qvel=state.qvel + fraction * h * qacc,
            act=state.act + fraction * h * act_dot,
        )
        last = forward(model, point, inputs)
        slope = (point.qvel, last.qacc, last.act_dot)
        ends = (last.qacc, last.actuator_velocity)
        return (slope, jax.tree.map(lambda t, k: t + weight * k, total, slope), ends), None

    first = (state.qvel, data.qacc, data.act_dot)
    table = jnp.asarray([[0.5, 0.5, 1.0], [2.0, 2.0, 1.0]], state.qpos.dtype)
    start = (first, first, (data.qacc, data.actuator_velocity))
    (_, total, (warmstart, velocity)), _ = jax.lax.scan(stage, start, (table[0], table[1]))
    qvel, qacc, act_dot = jax.tree.map(lambda t: t / 6, total)
    return _advance(model, state, inputs, velocity, act_dot, qacc, qvel, warmstart)


def implicit(model: Model, state: State, inputs: Inputs, data: Data) -> State:
    """Implicit in velocity: (M - h d qfrc_smooth / d qvel) qacc = qfrc_smooth + qfrc_constraint."""
    force = data.qfrc_smooth + data.qfrc_constraint
    qacc = solve_general_blocks(discrete_inertia(model, state, inputs, data), force)
    return _advance(model, state, inputs, data.actuator_velocity, data.act_dot, qacc, None, data.qacc)


def implicit_fast(model: Model, state: State, inputs: Inputs, data: Data) -> State:
    """As `implicit`, without Coriolis forces and symmetric; free bodies that nothing holds by the midpoint rule."""
    force = data.qfrc_smooth + data.qfrc_constraint
    qacc = solve_blocks(discrete_inertia(model, state, inputs, data), force)
    dofs = free_bodies(model.topology).dofs
    if not dofs.size or model.opt.enabled(EnableBit.INVDISCRETE):
        return _advance(model, state, inputs, data.actuator_velocity, data.act_dot, qacc, None, data.qacc)
    return _with_free_bodies(model, state, inputs, data, force, qacc)


def _with_free_bodies(model: Model, state: State, inputs: Inputs, data: Data, force: Array, qacc: Array) -> State:
    """One step in which free bodies without constraints move by the midpoint rule."""
    free = free_bodies(model.topology)
    applied = pick(force + data.qfrc_bias, free.dofs)
    plain = state.qvel + model.opt.timestep * qacc
    own = pick(plain, free.dofs)
    half, full = midpoint_velocity(model, pick(data.xquat, free.bodies), pick(state.qvel, free.dofs), applied, own)
    loose = unconstrained(model, data.efc)[:, None]
    moved = plain.at[free.dofs].set(jnp.where(loose, half, own))
    later = plain.at[free.dofs].set(jnp.where(loose, full, own))
    return _advance(model, state, inputs, data.actuator_velocity, data.act_dot, qacc, moved, data.qacc).replace(
        qvel=later
    )


INTEGRATORS = {
    Integrator.EULER: euler,
    Integrator.RK4: runge_kutta,
    Integrator.IMPLICIT: implicit,
    Integrator.IMPLICITFAST: implicit_fast,
}


def _advance(
    model: Model,
    state: State,
    inputs: Inputs,
    velocity: Array,
    act_dot: Array,
    qacc: Array,
    qvel: Array | None,
    warmstart: Array,
) -> State:
    """Activations (actuators moving at `velocity`), velocities, then positions with the given velocity, and time.

    Without a given velocity `qvel` positions move with the new one.
    """
    h = model.opt.timestep
    next_qvel = state.qvel + h * qacc
    return state.replace(
        time=state.time + h,
        qpos=integrate_position(model, state.qpos, next_qvel if qvel is None else qvel, h),
        qvel=next_qvel,
        act=advance_activation(model, state.act, act_dot, velocity),
        # the next solve starts here; where it starts does not change where it ends, so it carries no gradient
        qacc_warmstart=jax.lax.stop_gradient(warmstart),
    )
