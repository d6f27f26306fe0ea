"""Delayed and sampled sensors against the oracle along a simulation, and the derivatives of what they show."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest
from oracle import mujoco

import diffsim
from diffsim.base.enums import DisableBit, Integrator
from diffsim.types.history import delayed_readings, record_readings, sensor_buffers
from tests.derivatives import assert_match_differences, derivatives
from tests.uncompiled import uncompiled
from tests.wide import wide

PATH = oracle.MODELS / "delays.xml"
STEPS = 20


def converged(integrator: Integrator) -> tuple[diffsim.Model, Any]:
    """(ours by our own compiler, oracle)."""
    model, mjmodel = diffsim.load(PATH), mujoco.MjModel.from_xml_path(str(PATH))
    mjmodel.opt.tolerance, mjmodel.opt.integrator = 1e-15, integrator
    return model.replace(opt=model.opt.replace(tolerance=1e-15, integrator=integrator)), mjmodel


@pytest.mark.parametrize(
    ("integrator", "flags"),
    [(Integrator.IMPLICITFAST, 0), (Integrator.IMPLICITFAST, DisableBit.SENSOR), (Integrator.RK4, 0)],
)
def test_sensors_show_what_the_oracles_show(integrator: Integrator, flags: int) -> None:
    model, mjmodel = converged(integrator)
    # what is disabled shows nothing, and goes on recording what it will show late
    mjmodel.opt.disableflags |= flags
    model = model.replace(opt=model.opt.replace(disableflags=model.opt.disableflags | int(flags)))

    @uncompiled
    def advance(state: diffsim.State, ctrl: jax.Array) -> tuple[diffsim.State, jax.Array]:
        inputs = diffsim.make_inputs(model).replace(ctrl=ctrl)
        data = diffsim.forward(model, state, inputs)
        return diffsim.integrate(model, state, inputs, data), data.sensordata

    data, rng = mujoco.MjData(mjmodel), np.random.default_rng(0)
    data.qvel[:] = rng.normal(size=mjmodel.nv)
    state = diffsim.make_state(model).replace(qvel=jnp.array(data.qvel))
    oracle.assert_close("first history", state.history, data.history, 1e-15)
    for step in range(STEPS):
        data.ctrl[:] = rng.normal(size=mjmodel.nu)
        state, shown = advance(state, jnp.array(data.ctrl))
        mujoco.mj_step(mjmodel, data)
        oracle.assert_close(f"step {step} sensordata", shown, data.sensordata, 1e-9)
        oracle.assert_close(f"step {step} history", state.history, data.history, 1e-9)


@pytest.mark.parametrize("fraction", [0.3, *wide([0.8])])
def test_derivatives_match_differences(fraction: float) -> None:
    """Of what is shown and of what is recorded, between samples, where interpolation is smooth."""
    model, mjmodel = converged(Integrator.EULER)
    data = oracle.stepped(mjmodel, np.random.default_rng(1).normal(size=mjmodel.nv), 40)
    history, time = jnp.array(data.history), data.time + fraction * mjmodel.opt.timestep
    values = np.zeros(model.topology.nhistory)
    for buffers in sensor_buffers(model.topology):
        values[buffers.places[:, 2 + buffers.count :]] = 1

    def result(state: Any, inputs: Any, variation: dict[str, jax.Array]) -> jax.Array:
        changed = model.replace(sensor_delay=model.sensor_delay * (1 + variation["delay"]))
        past, at, now = history * (1 + values * variation["history"]), time + variation["time"], 1 + variation["now"]
        shown = delayed_readings(changed, past, at, now)
        return jnp.concatenate([shown, record_readings(changed, past, at, now, now)])

    zero = {"history": jnp.zeros_like(history), "time": jnp.zeros(()), "now": jnp.zeros(model.nsensordata)}
    functions = derivatives(result, zero | {"delay": jnp.zeros_like(model.sensor_delay)})
    assert_match_differences(functions, None, None, dict.fromkeys([*zero, "delay"], 1e-6))
    fresh = diffsim.make_state(model).history
    now = jnp.ones(model.nsensordata)
    slope = uncompiled(jax.jacrev(lambda past: delayed_readings(model, past, jnp.zeros(()), now)))(fresh)
    assert np.all(np.isfinite(slope))


PENDULUM = """
<mujoco>
  <worldbody><body><joint name="j" axis="0 1 0"/><geom size="0.1" pos="0.3 0 0"/></body></worldbody>
  <sensor><jointpos joint="j"/><jointpos joint="j" nsample="3" delay="0.004"/></sensor>
</mujoco>
"""


def test_a_delay_of_two_steps_shows_the_reading_and_the_derivative_of_two_steps_ago() -> None:
    model = diffsim.load(PENDULUM)

    def shown(qvel: jax.Array) -> tuple[jax.Array, jax.Array]:
        state = diffsim.make_state(model).replace(qvel=qvel)
        out = diffsim.rollout(model, state, jnp.zeros((6, 0)), readout=lambda state, data: data.sensordata)[1]
        return out, out

    for derivative in (jax.jacfwd, jax.jacrev):
        slope, value = uncompiled(derivative(shown, has_aux=True))(np.array([1.5]))
        assert np.all(np.asarray(slope[1:, 0]) > 0)
        np.testing.assert_allclose(value[2:, 1], value[:-2, 0], rtol=1e-12)
        np.testing.assert_allclose(slope[2:, 1], slope[:-2, 0], rtol=1e-12)
        np.testing.assert_allclose(slope[:2, 1], 0)
