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
from diffsim.actuator import laws
from diffsim.base.enums import BiasType, DynType, GainType, Integrator
from diffsim.kinematics.joints import integrate_position
from tests.derivatives import assert_finite, assert_match_differences, derivatives, weigh
from tests.uncompiled import uncompiled

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


forward, integrate = uncompiled(diffsim.forward), uncompiled(diffsim.integrate)


def test_the_history_starts_as_the_oracles() -> None:
    model, mjmodel = both(Integrator.EULER)
    oracle.assert_close("history", diffsim.make_state(model).history, mujoco.MjData(mjmodel).history, 1e-15)


@pytest.mark.parametrize("integrator", [kind for kind in Integrator if kind != Integrator.DISCRETE])
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

    def choose(part: str, direction: np.ndarray) -> np.ndarray:
        # what the controller follows is a choice, and where the buffers stand is a place
        if part == "actuator_gainprm":
            direction[:, 8] = 0
        return np.where(cursors, 0, direction) if part == "history" else direction

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


LAW = """
<mujoco>
  <option integrator="implicit"/>
  <worldbody><body><joint name="j" axis="0 1 0"/><geom size="0.1"/></body></worldbody>
  <actuator>
    <general joint="j" dyntype="integrator" gaintype="affine" biastype="affine" gainprm="2" biasprm="0 7"/>
  </actuator>
</mujoco>
"""


def test_a_law_is_its_functions_and_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but the row says how activations change, what force they cause, and what of it is implicit."""
    dynamics = laws.Dynamics(lambda a: a.ctrl[:, None] - a.act**2)
    gain = laws.Force(lambda a, p: p[:, 0] * a.velocity, lambda a, p: p[:, 0])
    bias = laws.Force(lambda a, p: -p[:, 1] * a.velocity**3)
    monkeypatch.setitem(laws.DYNAMICS, DynType.INTEGRATOR, dynamics)
    monkeypatch.setitem(laws.GAINS, GainType.AFFINE, gain)
    monkeypatch.setitem(laws.BIASES, BiasType.AFFINE, bias)
    model = diffsim.load(LAW)
    state = diffsim.make_state(model).replace(qvel=jnp.array([0.3]), act=jnp.array([0.5]))
    inputs = diffsim.make_inputs(model).replace(ctrl=jnp.array([0.7]))
    data = forward(model, state, inputs)
    after = integrate(model, state, inputs, data)
    force, inertia, h = 2 * 0.3 * 0.5 - 7 * 0.3**3, data.M.diagonal[0], model.opt.timestep
    np.testing.assert_allclose(data.act_dot, 0.7 - 0.5**2)
    np.testing.assert_allclose(data.actuator_force, force)
    np.testing.assert_allclose(after.act, 0.5 + h * (0.7 - 0.5**2))
    np.testing.assert_allclose(after.qvel, 0.3 + h * force / (inertia - h * 2 * 0.5))


MIXED = """
<mujoco>
  <worldbody><body><joint name="j" axis="0 1 0"/><geom size="0.1"/></body></worldbody>
  <actuator><general joint="j" dyntype="dcmotor" gaintype="{}" biastype="dcmotor" {}/></actuator>
</mujoco>
"""


def test_what_belongs_together_is_not_mixed() -> None:
    with pytest.raises(diffsim.UnsupportedError, match="only work together"):
        diffsim.load(MIXED.format("fixed", 'actearly="true"'))
    with pytest.raises(diffsim.MjcfError, match="'actearly': cannot be false"):
        diffsim.load(MIXED.format("dcmotor", ""))
    with pytest.raises(diffsim.MjcfError, match="'actdim': 2 does not match dyntype 'dcmotor'; this"):
        diffsim.load(MIXED.format("dcmotor", 'actearly="true" actdim="2"'))
