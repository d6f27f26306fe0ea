"""step: one timestep, forward and then integrate."""

import jax

from diffsim.actuator.actuation import advance_activation
from diffsim.base.checked import checked
from diffsim.base.enums import Integrator
from diffsim.base.errors import Problem, UnsupportedError
from diffsim.kinematics.joints import integrate_position
from diffsim.simulate.arguments import check_arguments
from diffsim.simulate.forward import forward
from diffsim.simulate.integrate.integrators import INTEGRATORS
from diffsim.types import Data, Inputs, Model, State
from diffsim.types.history import record_controls, record_readings
from diffsim.xla.compiled import compiled


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
    return step_data(model, state, inputs)[0]


@checked
@compiled
def step_data(model: Model, state: State, inputs: Inputs | None = None) -> tuple[State, Data]:
    """The next state, and the Data of the state before, which `step` computes on the way.

    For whoever reads sensors, contacts or `data.status` of each step. What is not read is not computed.
    """
    inputs = check_arguments(model, state, inputs)
    data = forward(model, state, inputs)
    return integrate(model, state, inputs, data), data


@checked
@compiled
def integrate(model: Model, state: State, inputs: Inputs, data: Data) -> State:
    """Advances a state by one timestep, given what `forward` computed from it.

    The integrator is `model.opt.integrator`. Together with `forward` this splits a step in two, as mj_step1 and
    mj_step2 do, with the user's own code in between.
    """
    h = model.opt.timestep
    if model.opt.events and model.opt.integrator != Integrator.RK4:
        reason = f"a step with events needs the integrator RK4, not {model.opt.integrator.name}"
        raise UnsupportedError([Problem("", 0, "<option events>", reason, unsupported=True)])
    if model.opt.events and model.topology.nflex:
        reason = "a step with events does not know contacts of flexes; take them out, or set events to false"
        raise UnsupportedError([Problem("", 0, "<option events>", reason, unsupported=True)])
    motion = INTEGRATORS[model.opt.integrator].move(model, state, inputs, data)
    history = record_controls(model, state.history, state.time, inputs.ctrl)
    return state.replace(
        time=state.time + h,
        qpos=integrate_position(model, state.qpos, motion.path, h),
        qvel=motion.qvel,
        act=advance_activation(model, state.act, motion.act_dot, motion.actuator_velocity),
        history=record_readings(model, history, state.time, data.sensor_now, motion.sample),
        qacc_warmstart=_next_start(model, motion.qacc),
    )


def _next_start(model: Model, qacc: jax.Array) -> jax.Array:
    """(nv,) where the next solve starts; that does not change where it ends, unless it takes few steps."""
    return qacc if model.opt.unrolled else jax.lax.stop_gradient(qacc)
