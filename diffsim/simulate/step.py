"""step: one timestep, forward and then integrate; inverse: the force that causes an acceleration."""

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp

from diffsim.actuator.actuation import advance_activation
from diffsim.base.checked import checked
from diffsim.base.enums import EnableBit, Integrator
from diffsim.base.errors import Problem, UnsupportedError
from diffsim.kinematics.joints import integrate_position
from diffsim.math.linalg import solve_blocks
from diffsim.simulate.arguments import check_arguments, check_shape
from diffsim.simulate.forward import forward, inverse_dynamics
from diffsim.simulate.integrate.integrators import INTEGRATORS, discrete_inertia
from diffsim.simulate.sleep import all_asleep, can_skip, fall_asleep, sleep_on, sleeps
from diffsim.simulate.status import status
from diffsim.types import Data, Inputs, Model, State
from diffsim.types.data import Inverse
from diffsim.types.history import record_controls, record_readings
from diffsim.xla.barriers import anywhere
from diffsim.xla.compiled import compiled

Array = jax.Array

T = TypeVar("T")


@checked
@compiled
def step(model: Model, state: State, inputs: Inputs | None = None) -> State:
    """The state one `model.opt.timestep` later.

    Args:
      model: the compiled model.
      state: where the world is.
      inputs: controls and applied forces, constant during the step; None for `make_inputs(model)`.

    Returns:
      The next state. `step_data` gives Data too, which tells whether anything went wrong (`data.status`).
    """
    return step_and_read(model, state, check_arguments(model, state, inputs), lambda data: None)[0]


@checked
@compiled
def step_data(model: Model, state: State, inputs: Inputs | None = None) -> tuple[State, Data]:
    """The next state, and the Data of the state before, which `step` computes on the way.

    For whoever reads sensors, contacts or `data.status` of each step. What is not read is not computed.
    """
    inputs = check_arguments(model, state, inputs)
    data = forward(model, state, inputs)
    return integrate(model, state, inputs, data), data


def step_and_read(model: Model, state: State, inputs: Inputs, read: Callable[[Data], T]) -> tuple[State, T]:
    """The next state, and what `read` takes of the Data of the state before.

    Where every tree sleeps, in a batch those of all worlds, only what is read is computed (simulate/sleep.py).
    """

    def awake() -> tuple[State, T]:
        data = forward(model, state, inputs)
        return integrate(model, state, inputs, data), read(data)

    def asleep() -> tuple[State, T]:
        data = forward(model, state, inputs)
        quiet = data.replace(
            qacc=jnp.zeros_like(data.qacc),
            solver_stalled=jnp.zeros((), bool),
            contact=data.contact.replace(ncon_dropped=jnp.zeros((), jnp.int32)),
        )
        return sleep_on(model, state, inputs), read(data.replace(status=status(model, state, inputs, quiet)))

    if not (sleeps(model) and can_skip(model)):
        return awake()
    return jax.lax.cond(anywhere(~all_asleep(model, state, inputs)), awake, asleep)


@checked
@compiled
def integrate(model: Model, state: State, inputs: Inputs, data: Data) -> State:
    """Advances a state by one timestep, given what `forward` computed from it.

    The integrator is `model.opt.integrator`. Together with `forward` this splits a step in two, as mj_step1 and
    mj_step2 do, with the user's own code in between.
    """
    h = model.opt.timestep
    if model.opt.events and (model.opt.integrator != Integrator.RK4 or sleeps(model)):
        reason = f"a step with events needs the integrator RK4, not {model.opt.integrator.name}"
        if sleeps(model):
            reason = "a step with events has no trees that sleep; clear the flag sleep, or set events to 0"
        raise UnsupportedError([Problem("", 0, "<option events>", reason, unsupported=True)])
    if model.opt.events and model.topology.nflex:
        reason = "a step with events does not know contacts of flexes; take them out, or set events to false"
        raise UnsupportedError([Problem("", 0, "<option events>", reason, unsupported=True)])
    motion = INTEGRATORS[model.opt.integrator].move(model, state, inputs, data)
    history = record_controls(model, state.history, state.time, inputs.ctrl)
    later = state.replace(
        time=state.time + h,
        qpos=integrate_position(model, state.qpos, motion.path, h),
        qvel=motion.qvel,
        act=advance_activation(model, state.act, motion.act_dot, motion.actuator_velocity),
        history=record_readings(model, history, state.time, data.sensor_now, motion.sample),
        # where the next solve starts has no influence on where it ends, unless it takes few steps
        qacc_warmstart=motion.qacc if model.opt.unrolled else jax.lax.stop_gradient(motion.qacc),
    )
    if not sleeps(model):
        return later
    return fall_asleep(model, state, inputs, data, later, lambda before: forward(model, before, inputs).sensor_now)


@checked
@compiled
def inverse(model: Model, state: State, qacc: Array, inputs: Inputs | None = None) -> Inverse:
    """The applied force that causes an acceleration, M qacc + bias - passive - constraint force.

    With the `invdiscrete` flag `qacc` (nv,) is that of a whole timestep, (qvel_next - qvel) / h, by the model's
    integrator; actuators then matter in so far as the integrator differentiates their forces.

    Returns:
      Inverse; `qfrc_inverse` (nv,) equals qfrc_applied + J^T xfrc_applied + qfrc_actuator of forward dynamics.

    Raises:
      ValueError: shapes that are not those of one world of this model.
      UnsupportedError: `invdiscrete` with an integrator that has no inverse.
    """
    inputs = check_arguments(model, state, inputs)
    check_shape("qacc", qacc, model.nv)
    # only what is used below is computed
    data = forward(model, state, inputs)
    if model.opt.enabled(EnableBit.INVDISCRETE):
        force = discrete_inertia(model, state, inputs, data).mul_vec(qacc)
        qacc = solve_blocks(data.M, force)
    return inverse_dynamics(data, qacc)
