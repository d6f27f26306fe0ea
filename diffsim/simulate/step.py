"""step: one timestep, forward and then integrate; rollout: many steps; inverse: the force that causes an acceleration.

A rollout is one scan, which carries State and all status bits so far; controls come from a table or a policy.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax import Array

from diffsim.actuator.actuation import advance_activation
from diffsim.base.checked import checked
from diffsim.base.enums import EnableBit, Integrator
from diffsim.base.errors import UnsupportedError
from diffsim.kinematics.joints import integrate_position
from diffsim.math.block_solves import solve_blocks
from diffsim.simulate.arguments import check_arguments, check_shape
from diffsim.simulate.forward import forward, inverse_dynamics
from diffsim.simulate.integrate.integrators import INTEGRATORS, discrete_inertia
from diffsim.simulate.metric import metric_of
from diffsim.simulate.sleep import all_asleep, can_skip, fall_asleep, sleep_on
from diffsim.simulate.sleep_layout import sleeps
from diffsim.simulate.status import status
from diffsim.types import Data, Inputs, Model, Rollout, State
from diffsim.types.data import Inverse
from diffsim.types.history import record_controls, record_readings
from diffsim.types.hooks import advance_plugins
from diffsim.types.record import NO_ACTUATORS
from diffsim.xla.compiled import compiled, uncollected
from diffsim.xla.loops import cond, scan
from diffsim.xla.reverse_mode import entwined, recomputed
from diffsim.xla.select import anywhere

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

    Use it to read sensors, contacts or `data.status` of each step. What is not read is not computed.

    Args:
      model, state, inputs: as for `step`.

    Returns:
      The state after the step, and Data of the state before it.
    """
    inputs = check_arguments(model, state, inputs)
    data = forward(model, state, inputs)
    return integrate(model, state, inputs, data), data


def step_and_read(model: Model, state: State, inputs: Inputs, read: Callable[[Data], T]) -> tuple[State, T]:
    """The next state, and what `read` takes from the Data of the state before.

    While all trees sleep, in all worlds of a batch, only what is read is computed (simulate/sleep.py).
    """

    def awake() -> tuple[State, T]:
        data = forward(model, state, inputs)
        return integrate(model, state, inputs, data), read(data)

    def asleep() -> tuple[State, T]:
        data = forward(model, state, inputs)
        # nothing accelerates, so that neither solver nor contact buffer can set a bit of the status
        at_rest = data.replace(
            qacc=jnp.zeros_like(data.qacc),
            solver_stalled=jnp.zeros((), bool),
            contact=data.contact.replace(ncon_dropped=jnp.zeros((), jnp.int32)),
        )
        return sleep_on(model, state, inputs), read(data.replace(status=status(model, state, inputs, at_rest)))

    if not (sleeps(model) and can_skip(model)):
        return awake()
    return cond(anywhere(~all_asleep(model, state, inputs)), awake, asleep)


@checked
@compiled
def integrate(model: Model, state: State, inputs: Inputs, data: Data) -> State:
    """Advances a state by one timestep, with the Data that `forward` computed from it.

    The integrator is `model.opt.integrator`. Together with `forward` this splits a step in two, as mj_step1 and
    mj_step2 do, with the user's own code in between.

    Args:
      model: the compiled model.
      state: the state.
      inputs: the inputs from which `data` was computed; they may have changed since.
      data: from `forward(model, state, inputs)`.

    Returns:
      The state one timestep later.

    Raises:
      UnsupportedError: `opt.events` with another integrator than RK4, with sleep or with flexes.
    """
    h = model.opt.timestep
    if model.opt.events and (model.opt.integrator != Integrator.RK4 or sleeps(model)):
        reason = f"a step with events needs the integrator RK4, not {model.opt.integrator.name}"
        if sleeps(model):
            reason = "a step with events does not support sleeping trees; clear the flag sleep, or set events to 0"
        raise UnsupportedError.of("<option events>", reason)
    if model.opt.events and model.topology.nflex:
        reason = "a step with events does not support contacts of flexes; remove the flexes, or set events to 0"
        raise UnsupportedError.of("<option events>", reason)
    motion = INTEGRATORS[model.opt.integrator].move(model, state, inputs, data)
    history = record_controls(model, state.history, state.time, inputs.ctrl)
    later = state.replace(
        time=state.time + h,
        qpos=integrate_position(model, state.qpos, motion.path, h),
        qvel=motion.qvel,
        act=advance_activation(model, state.act, motion.act_dot, motion.actuator_velocity),
        history=record_readings(model, history, state.time, data.sensor_now, motion.sample),
        # where the next solve starts has no derivative: it ends at the same optimum, unless it takes few iterations
        qacc_warmstart=motion.qacc if model.opt.unrolled else jax.lax.stop_gradient(motion.qacc),
        plugin_state=advance_plugins(model, state, inputs, data),
    )
    if not sleeps(model):
        return later
    return fall_asleep(model, state, inputs, data, later, lambda before: forward(model, before, inputs).sensor_now)


@checked
def inverse(model: Model, state: State, qacc: Array, inputs: Inputs | None = None, contacts: bool = True) -> Inverse:
    """The applied force that causes an acceleration, M qacc + bias - passive - constraint force.

    With the flag `invdiscrete`, or the integrator `discrete`, `qacc` is the acceleration over a whole timestep,
    (qvel_next - qvel) / h. Actuators then matter only if the integrator is implicit in their forces.

    Args:
      model: the compiled model.
      state: positions, velocities and activations.
      qacc: (nv,) the acceleration.
      inputs: controls and applied forces; None for `make_inputs(model)`.
      contacts: False computes as if nothing could touch anything, as for gravity compensation in free space; the
        program then compiles faster.

    Returns:
      Inverse; `qfrc_inverse` (nv,) equals qfrc_applied + J^T xfrc_applied + qfrc_actuator of forward dynamics.

    Raises:
      ValueError: shapes that do not fit one world of this model.
      UnsupportedError: `invdiscrete` with an integrator that has no inverse.
    """
    return _inverse(model if contacts else model.without_contacts(), state, qacc, inputs)


@compiled
def _inverse(model: Model, state: State, qacc: Array, inputs: Inputs | None) -> Inverse:
    inputs = check_arguments(model, state, inputs)
    check_shape("qacc", qacc, model.nv)
    # only what is used below is computed
    data = forward(model, state, inputs)
    if model.opt.integrator == Integrator.DISCRETE:
        inertial = metric_of(model, state, inputs, data).force(model, data.efc, qacc)
        return inverse_dynamics(data, qacc, inertial)
    if model.opt.enabled(EnableBit.INVDISCRETE):
        force = discrete_inertia(model, state, inputs, data).mul_vec(qacc)
        qacc = solve_blocks(data.M, force)
    return inverse_dynamics(data, qacc)


Read = Callable[[Data], Any]


class Policy(NamedTuple):
    """Controls in a closed loop, for `rollout`.

    Attributes:
      act: (state, data, key) -> controls (nu,). `data` is the Data of the state under the previous controls, as a
        robot would sense it; fields that are not read are not computed.
      steps: number of steps.
      key: of `jax.random.key`, split over the steps; None if the policy is not random (it then gets None).
    """

    act: Callable[[State, Data, Any], Array]
    steps: int
    key: Array | None = None


@checked
@uncollected()
def rollout(
    model: Model,
    state: State,
    ctrl: Array | Policy,
    readout: Callable[[State, Data], Any] | None = None,
    inputs: Inputs | None = None,
    checkpoint: bool = True,
    contacts: bool = True,
) -> Rollout:
    """Steps through a sequence of controls, or with a policy.

        policy = diffsim.Policy(lambda state, data, key: -state.qvel[6:], steps=200)
        final, sensors = diffsim.rollout(model, state, policy, lambda state, data: data.sensordata)

    Args:
      model: the compiled model.
      state: the first state.
      ctrl: controls, shape (T, nu), one step for each row; or a `Policy`, which starts from the controls of `inputs`.
      readout: what to keep of each step, a function of the state before the step and its Data; None keeps the state.
      inputs: everything else that the user sets, constant; None for `make_inputs(model)`.
      checkpoint: in reverse mode compute each step again instead of storing it; only the solver's result is stored.
        Memory then grows per step by a state and an acceleration, with PGS and noslip also by the constraint forces.
        Without it, reverse mode is somewhat faster.
      contacts: False simulates as if nothing could touch anything; the program then compiles faster.

    Returns:
      The final state, and the readouts stacked along a leading axis of length T: unpack it as a pair. Its `status` has
      every bit that any step has set. `diffsim.check(result)` explains them in words, such as that gradients are less
      accurate because the solver stopped early.

    Raises:
      ValueError: controls of a wrong shape.
    """
    model = model if contacts else model.without_contacts()
    base = check_arguments(model, state, inputs)
    if isinstance(ctrl, Policy):
        return _closed_loop(model, state, ctrl, readout, base, checkpoint)
    ctrl = jnp.asarray(ctrl, dtype=state.qpos.dtype)
    if ctrl.ndim != 2 or ctrl.shape[1] != model.nu:
        hint = "; batch with jax.vmap" if model.nu else NO_ACTUATORS
        raise ValueError(f"ctrl has shape {ctrl.shape}, expected (T, {model.nu}){hint}")

    def one_step(before: State, _: None, ctrl: Array, read: Read) -> tuple[State, None, Any]:
        later, kept = step_and_read(model, before, base.replace(ctrl=ctrl), read)
        return later, None, kept

    return _scan(_Loop(one_step, readout, checkpoint), state, None, ctrl, len(ctrl))


def _closed_loop(
    model: Model, state: State, policy: Policy, readout: Callable | None, base: Inputs, checkpoint: bool
) -> Rollout:
    """Steps with controls of a policy; the last ones are carried along with the state."""

    def one_step(state: State, last: Array, key: Array | None, read: Read) -> tuple[State, Array, Any]:
        chosen = policy.act(state, forward(model, state, base.replace(ctrl=last)), key)
        if jnp.shape(chosen) != (model.nu,):
            raise ValueError(f"the policy gives controls of shape {jnp.shape(chosen)}, expected ({model.nu},)")
        ctrl = jnp.asarray(chosen, last.dtype)
        later, kept = step_and_read(model, state, base.replace(ctrl=ctrl), read)
        return later, ctrl, kept

    keys = None if policy.key is None else jax.random.split(policy.key, policy.steps)
    return _scan(_Loop(one_step, readout, checkpoint), state, base.ctrl, keys, policy.steps)


class _Loop(NamedTuple):
    """The body of a rollout.

    Attributes:
      one_step: (state, last, row, read) -> (next state, controls, what `read` takes from the Data of the state).
        For a policy, `last` are the controls of the step before, and `row` is a key. For a table of controls, `row` are
        the controls, and `last` is always None.
      readout: what is kept of each step, as in `rollout`.
      checkpoint: whether reverse mode computes steps again.
    """

    one_step: Callable[[State, Any, Any, Read], tuple[State, Any, Any]]
    readout: Callable[[State, Data], Any] | None
    checkpoint: bool


def _scan(loop: _Loop, state: State, ctrl: Array | None, rows: Any, length: int) -> Rollout:
    """`lax.scan` over rows: keys, or a table of controls; it starts from the controls `ctrl` of a policy."""

    def advance(carry: tuple[State, Any, Array], row: Any) -> tuple[tuple[State, Any, Array], Any]:
        before, last, status = carry

        def read(data: Data) -> tuple[Array, Any]:
            return data.status, before if loop.readout is None else loop.readout(before, data)

        later, last, (bits, kept) = loop.one_step(before, last, row, read)
        return (later, last, status | bits), kept

    # a step makes these depend on the rows; if they do from the start, the body of the scan is traced once (`entwined`)
    moving = {name: entwined(getattr(state, name), rows) for name in ("qpos", "qvel", "act")}
    # where the next solve starts varies in a batch, and has no derivative (`integrate`)
    fixed_rows = jax.lax.stop_gradient(rows)
    moving["qacc_warmstart"] = entwined(state.qacc_warmstart, fixed_rows)
    start = (state.replace(**moving), ctrl, entwined(jnp.zeros((), jnp.int32), (state.qpos, rows)))
    (final, _, status), readouts = scan(recomputed(advance) if loop.checkpoint else advance, start, rows, length)
    return Rollout(final=final, readouts=readouts, status=status)
