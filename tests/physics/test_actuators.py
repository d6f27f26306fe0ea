"""DC motors, delayed controls and adhesion against the oracle along a simulation, and their derivatives."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest
from oracle import mujoco

import diffsim
from diffsim.enums import Integrator
from diffsim.physics.joint import integrate_position
from tests.derivatives import assert_finite, assert_match_differences, derivatives
from tests.physics.test_gradients import weigh

FORCES = ("act_dot", "actuator_length", "actuator_moment", "actuator_force", "qfrc_actuator")


@functools.cache
def both(integrator: Integrator) -> tuple[diffsim.Model, Any]:
    """(ours by our own compiler, oracle)."""
    mjmodel = oracle.load_oracle("motors").__copy__()
    model = diffsim.load(str(oracle.MODELS / "motors.xml"))
    settings = {"integrator": integrator, "tolerance": 1e-15, "iterations": 200, "ls_tolerance": 1e-6}
    for name, value in settings.items():
        setattr(mjmodel.opt, name, value)
    return model.replace(opt=model.opt.replace(**settings)), mjmodel


@functools.cache
def visited() -> list[Any]:
    """States of the oracle along a simulation under random controls."""
    _, mjmodel = both(Integrator.IMPLICITFAST)
    rng = np.random.default_rng(0)
    data, found = mujoco.MjData(mjmodel), []
    data.qvel[:] = rng.normal(size=mjmodel.nv)
    for step in range(40):
        data.ctrl[:] = 3 * rng.normal(size=mjmodel.nu)
        if step in (0, 1, 7, 23, 39):
            copy = mujoco.MjData(mjmodel)
            mujoco.mj_copyData(copy, mjmodel, data)
            mujoco.mj_forward(mjmodel, copy)
            found.append(copy)
        mujoco.mj_step(mjmodel, data)
    return found


forward, integrate = jax.jit(diffsim.forward), jax.jit(diffsim.integrate)


def test_the_history_starts_as_the_oracles() -> None:
    model, mjmodel = both(Integrator.EULER)
    oracle.assert_close("history", diffsim.make_state(model).history, mujoco.MjData(mjmodel).history, 1e-15)


@pytest.mark.parametrize("integrator", list(Integrator))
def test_actuators_match_oracle(integrator: Integrator) -> None:
    model, mjmodel = both(integrator)
    for source in visited():
        data = mujoco.MjData(mjmodel)
        mujoco.mj_copyData(data, mjmodel, source)
        state, inputs = oracle.state_of(data), oracle.inputs_of(data)
        ours = forward(model, state, inputs)
        for name in FORCES:
            value = oracle.field_of(name, mjmodel, data)
            oracle.assert_close(name, getattr(ours, name), value, 1e-10 * (1 + np.abs(value).max()))
        after = integrate(model, state, inputs, ours)
        mujoco.mj_step(mjmodel, data)
        for name in ("act", "history", "qvel", "qpos"):
            value = getattr(data, name)
            oracle.assert_close(f"next {name}", getattr(after, name), value, 1e-8 * (1 + np.abs(value).max()))


def test_derivatives_match_differences_and_are_finite() -> None:
    model, _ = both(Integrator.IMPLICITFAST)

    def result(state: Any, inputs: Any, variation: dict[str, Any]) -> jax.Array:
        changed = model.replace(
            **{name: getattr(model, name) * (1 + variation[name]) for name in variation if name.startswith("actuator")}
        )
        moved = state.replace(
            qpos=integrate_position(model, state.qpos, variation["qpos"], jnp.ones(())),
            **{name: getattr(state, name) + variation[name] for name in ("qvel", "act")},
            history=state.history * (1 + variation["history"]),
        )
        used = inputs.replace(ctrl=inputs.ctrl + variation["ctrl"])
        data = diffsim.forward(changed, moved, used)
        after = diffsim.integrate(changed, moved, used, data)
        return jnp.stack([weigh((data.qfrc_actuator, data.act_dot)), weigh((after.qvel[:5], after.act, after.history))])

    zero = {"qpos": jnp.zeros(model.nv), "qvel": jnp.zeros(model.nv), "act": jnp.zeros(model.na)}
    zero |= {"ctrl": jnp.zeros(model.nu), "history": jnp.zeros(model.topology.nhistory)}
    names = ("actuator_gainprm", "actuator_dynprm", "actuator_biasprm", "actuator_delay")
    zero |= {name: jnp.zeros_like(getattr(model, name)) for name in names}
    functions = derivatives(result, zero)
    data = visited()[-1]
    # controls that no limit clips
    data_inputs = oracle.inputs_of(data)
    inputs = data_inputs.replace(ctrl=data_inputs.ctrl * 0.1)
    cursors = np.asarray(diffsim.make_state(model).history) > 1

    def choose(part: str, direction: jax.Array) -> jax.Array:
        # what the controller follows is a choice, and where the buffers stand is a place
        if part == "actuator_gainprm":
            return direction.at[:, 8].set(0)
        return jnp.where(cursors, 0, direction) if part == "history" else direction

    steps = dict.fromkeys(zero, 1e-6)
    assert_match_differences(functions, oracle.state_of(data), inputs, steps, choose)
    assert_finite(functions, diffsim.make_state(model), diffsim.make_inputs(model))


USER = """
<mujoco>
  <worldbody><body><joint name="j" axis="0 1 0"/><geom size="0.1" pos="0.1 0 0"/></body></worldbody>
  <actuator>
    <general joint="j" dyntype="user" actdim="2" gaintype="user" biastype="user"/>
    <general joint="j" dyntype="user" actdim="1" gainprm="2"/>
    <motor joint="j"/>
  </actuator>
</mujoco>
"""


def test_hooks_do_what_the_oracles_callbacks_do() -> None:
    mjmodel = mujoco.MjModel.from_xml_string(USER)
    hooks = diffsim.Hooks(
        passive=lambda model, state, data: -0.3 * state.qvel + data.xpos[1, :1],
        act_dyn=lambda model, state, inputs, data: jnp.stack([state.act[1], -state.act[0], inputs.ctrl[1]]),
        act_gain=lambda model, state, inputs, data: 1 + data.actuator_length,
        act_bias=lambda model, state, inputs, data: -data.actuator_velocity,
    )
    model = diffsim.load(USER).replace(hooks=hooks)

    def passive(m: Any, d: Any) -> None:
        d.qfrc_passive[:] += -0.3 * d.qvel + d.xpos[1, :1]

    def dynamics(m: Any, d: Any, i: int) -> float:
        if i == 0:
            d.act_dot[:2] = [d.act[1], -d.act[0]]
            return 0.0
        return d.ctrl[i]

    mujoco.set_mjcb_passive(passive)
    mujoco.set_mjcb_act_dyn(dynamics)
    mujoco.set_mjcb_act_gain(lambda m, d, i: 1 + d.actuator_length[i])
    mujoco.set_mjcb_act_bias(lambda m, d, i: -d.actuator_velocity[i])
    try:
        data = oracle.sample(mjmodel, 1)
        state, inputs = oracle.state_of(data), oracle.inputs_of(data)
        ours = forward(model, state, inputs)
        for name in ("act_dot", "actuator_force", "qfrc_passive", "qacc"):
            oracle.assert_close(name, getattr(ours, name), getattr(data, name), 1e-10)
    finally:
        mujoco.set_mjcb_passive(None)
        mujoco.set_mjcb_act_dyn(None)
        mujoco.set_mjcb_act_gain(None)
        mujoco.set_mjcb_act_bias(None)
    with pytest.raises(diffsim.UnsupportedError, match="hooks"):
        diffsim.forward(diffsim.load(USER), state, inputs)
