# ruff: noqa: E501
"""MuJoCo's plugins of actuators and sensors beside the oracle's, which loads them from its own libraries."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest
from compiler.compare import differences
from uncompiled import uncompiled

import diffsim

BODIES = "".join(
    f'<body pos="{0.3 * k} 0 0"><joint name="j{k}" type="slide" axis="0 0 1"/><geom size=".1" mass=".5"/></body>'
    for k in range(6)
)
CONTROLLERS = {
    "p": '<plugin joint="j0" plugin="mujoco.pid" instance="p" ctrlrange="0 .15"/>',
    "pid": '<plugin joint="j1" plugin="mujoco.pid" actdim="1"><config key="kp" value="3"/><config key="ki" value="20"/><config key="kd" value=".4"/></plugin>',
    "clamped": '<plugin joint="j2" plugin="mujoco.pid" actdim="1"><config key="ki" value="40"/><config key="imax" value=".02"/></plugin>',
    "slewed": '<plugin joint="j3" plugin="mujoco.pid" actdim="2" dyntype="filter" dynprm=".3"><config key="kp" value="3"/><config key="slewmax" value=".5"/></plugin>',
    "early": """<plugin joint="j4" plugin="mujoco.pid" actdim="3" dyntype="integrator" actrange="-.5 .5" actearly="true"><config key="kp" value="3"/>
<config key="ki" value="2"/><config key="kd" value=".3"/><config key="slewmax" value=".2"/><config key="imax" value=".01"/></plugin>""",
    "others": '<motor joint="j5"/><general joint="j0" dyntype="filterexact" dynprm=".1"/>',
}
PID = f"""<mujoco><extension><plugin plugin="mujoco.pid"><instance name="p"><config key="kp" value="4"/></instance></plugin></extension>
<worldbody>{BODIES}</worldbody><actuator>{"".join(CONTROLLERS.values())}</actuator></mujoco>"""
GRID = """<mujoco><extension><plugin plugin="mujoco.sensor.touch_grid"/></extension><worldbody><geom type="plane" size="1 1 1"/>
<body pos="0 0 .095" euler="5 0 0"><freejoint/><geom type="box" size=".2 .1 .1" mass="1"/><site name="s" pos="0 .02 .05" euler="10 -5 20"/></body>
<body pos=".05 0 .29"><freejoint/><geom size=".1" mass=".5"/></body></worldbody><sensor>
<plugin plugin="mujoco.sensor.touch_grid" objtype="site" objname="s"><config key="size" value="7 5"/><config key="fov" value="170 85"/><config key="gamma" value=".4"/><config key="nchannel" value="6"/></plugin>
<plugin plugin="mujoco.sensor.touch_grid" objtype="site" objname="s" cutoff="1"><config key="size" value="2 2"/><config key="fov" value="45 45"/></plugin>
</sensor></mujoco>"""

step, forward = uncompiled(diffsim.step), uncompiled(diffsim.forward)


def both(text: str) -> tuple[diffsim.Model, Any, Any]:
    model, mjmodel = diffsim.load(text), oracle.mujoco.MjModel.from_xml_string(text)
    assert differences(model, mjmodel) == []
    return model, mjmodel, oracle.mujoco.MjData(mjmodel)


def test_controllers_move_as_the_oracles() -> None:
    model, mjmodel, mjdata = both(PID)
    state, inputs = diffsim.make_state(model), diffsim.make_inputs(model)
    for ctrl in np.random.default_rng(0).uniform(-0.3, 0.3, (40, mjmodel.nu)):
        mjdata.ctrl[:] = ctrl
        oracle.mujoco.mj_step(mjmodel, mjdata)
        state = step(model, state, inputs.replace(ctrl=jnp.asarray(ctrl)))
    for name in ("qpos", "qvel", "act"):
        np.testing.assert_allclose(getattr(state, name), getattr(mjdata, name), atol=1e-12)


def test_settings_of_controllers_have_derivatives() -> None:
    model = diffsim.load(PID)
    start = diffsim.make_state(model)
    start = start.replace(time=start.time + 1, qpos=start.qpos + 0.02, act=jnp.linspace(-0.3, 0.2, model.topology.na))
    inputs = diffsim.make_inputs(model)
    inputs = inputs.replace(ctrl=inputs.ctrl + 0.1)

    def speed(parameters: jax.Array) -> jax.Array:
        later = diffsim.step(model.replace(actuator_pidprm=parameters), start, inputs)
        return later.qvel @ jnp.arange(1.0, model.nv + 1) + later.act @ jnp.arange(1.0, model.topology.na + 1)

    value, slope = uncompiled(speed), uncompiled(jax.grad(speed))(model.actuator_pidprm)
    away = np.random.default_rng(0).normal(size=slope.shape) * (np.asarray(model.actuator_pidprm) > 0)
    ends = [float(value(model.actuator_pidprm + h * away)) for h in (1e-4, -1e-4)]
    assert abs((slope * away).sum()) > 1e-3
    np.testing.assert_allclose((slope * away).sum(), (ends[0] - ends[1]) / 2e-4, rtol=1e-6)


def test_grids_feel_what_the_oracles_feel() -> None:
    model, mjmodel, mjdata = both(GRID)
    for _ in range(4):
        for _ in range(15):
            oracle.mujoco.mj_step(mjmodel, mjdata)
        oracle.mujoco.mj_forward(mjmodel, mjdata)
        state = diffsim.make_state(model).replace(qpos=jnp.asarray(mjdata.qpos), qvel=jnp.asarray(mjdata.qvel))
        np.testing.assert_allclose(forward(model, state).sensordata, mjdata.sensordata, atol=1e-6)
    assert np.count_nonzero(mjdata.sensordata) > 8


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (PID.replace('value="4"', 'value="x"'), "the plugin could not convert string to float"),
        (PID.replace('key="kd"', 'key="kq"', 1), "the plugin has no setting 'kq', only kp, ki, kd, imax, slewmax"),
        (PID.replace('key="imax" value=".02"', 'key="imax" value="-1"'), "setting 'imax' cannot be negative"),
        (PID.replace('actdim="3"', 'actdim="2"'), "its plugin needs actdim 3"),
        (PID.replace('plugin="mujoco.pid" instance="p"', ""), "has neither attribute 'plugin' nor 'instance'"),
        (GRID.replace('value="7 5"', 'value="7"'), "size takes two positive numbers"),
        (GRID.replace('value="170 85"', 'value="190 85"'), r"fov takes degrees in \(0, 180\] and \(0, 90\]"),
        (PID.replace('joint="j0" plugin="mujoco.pid" instance="p"', 'joint="j0" plugin="my.own"'), "no actuator that diffsim knows; your own law"),
    ],
)  # fmt: skip
def test_wrong_plugins_are_refused(text: str, message: str) -> None:
    with pytest.raises(diffsim.MjcfError, match=message):
        diffsim.load(text)
