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
        (PID.replace('actdim="3"', 'actdim="2"'), "needs actdim 3"),
        (PID.replace('plugin="mujoco.pid" instance="p"', ""), "needs attribute 'plugin' or 'instance'"),
        (GRID.replace('value="7 5"', 'value="7"'), "size takes two positive numbers"),
        (GRID.replace('value="170 85"', 'value="190 85"'), r"fov takes degrees in \(0, 180\] and \(0, 90\]"),
        (PID.replace('joint="j0" plugin="mujoco.pid" instance="p"', 'joint="j0" plugin="my.own"'), "no actuator can use plugin '.*'; load the model with"),
    ],
)  # fmt: skip
def test_wrong_plugins_are_refused(text: str, message: str) -> None:
    with pytest.raises(diffsim.MjcfError, match=message):
        diffsim.load(text)


MINE = """<mujoco><extension><plugin plugin="my.pid"><instance name="p"><config key="gains" value="4 2 .3"/></instance></plugin>
<plugin plugin="my.wind"/><plugin plugin="my.speed"/></extension><worldbody>
<body name="a"><joint name="j0" type="slide" axis="0 0 1"/><geom size=".1" mass=".5"/><plugin plugin="my.wind"><config key="drag" value=".7"/></plugin><site name="s"/></body>
<body pos="1 0 0"><joint name="j1" axis="0 1 0"/><geom size=".1" pos=".2 0 0" mass=".5"/><plugin plugin="my.wind"/></body></worldbody>
<actuator><motor joint="j0"/><plugin joint="j0" plugin="my.pid" instance="p" actdim="1" forcerange="-3 3"/><plugin joint="j1" plugin="my.pid" actdim="1"/></actuator>
<sensor><clock/><plugin plugin="my.speed" objtype="site" objname="s" cutoff="9"/></sensor></mujoco>"""


def pid_force(use: diffsim.PluginUse) -> jax.Array:
    kp, ki, kd = use.settings["gains"]
    error = use.inputs.ctrl[use.ids] - use.data.actuator_length[use.ids]
    integral = use.state.act + error * use.model.opt.timestep
    return kp * error + ki * integral[use.ids - 1] - kd * use.data.actuator_velocity[use.ids]


def pid_rate(use: diffsim.PluginUse) -> jax.Array:
    return (use.inputs.ctrl[use.ids] - use.data.actuator_length[use.ids])[:, None]


PLUGINS = {
    "my.pid": diffsim.Plugin({"gains": (3.0, 1.0, 0.2)}, force=pid_force, act_dot=pid_rate),
    # wind that dies away
    "my.wind": diffsim.Plugin(
        {"drag": 0.2, "decay": 3.0},
        states=2,
        reset=lambda settings: jnp.stack([settings["drag"], 1.0 + 0 * settings["drag"]]),
        advance=lambda use: use.plugin_state * (1 - use.model.opt.timestep * use.settings["decay"]),
        passive=lambda use: use.plugin_state[0] - use.settings["drag"] * use.state.qvel,
    ),
    "my.speed": diffsim.Plugin(
        dim=2, sensor=lambda use: jnp.stack([use.state.qvel[:1], use.state.plugin_state[1:2]], axis=1)
    ),
}


def mine() -> diffsim.Model:
    return diffsim.load(MINE, hooks=diffsim.Hooks(plugins=PLUGINS))


def test_plugins_of_the_user_are_functions_of_their_settings_and_states() -> None:
    model = mine()
    topology = model.topology
    assert topology.plugin_statenum.tolist() == [0, 0, 0, 2, 2] and topology.plugin_stateadr.tolist() == [0, 0, 0, 0, 2]
    assert topology.body_plugin.tolist() == [-1, 3, 4] and topology.actuator_plugin.tolist() == [-1, 0, 1]
    assert topology.sensor_plugin.tolist() == [-1, 2] and topology.sensor_dim.tolist() == [1, 2]
    assert model.name("plugin", 0) == "p" and topology.nplugin == 5
    np.testing.assert_allclose(model.plugin_number, [4, 2, 0.3, 3, 1, 0.2, 0.7, 3, 0.2, 3])

    # the first controller is the oracle's, whose bodies feel the wind as applied forces
    text = MINE[: MINE.index("<extension>")] + MINE[MINE.index("<worldbody>") :]
    for own in ('<plugin plugin="my.wind"><config key="drag" value=".7"/></plugin>', '<plugin plugin="my.wind"/>'):
        text = text.replace(own, "")
    theirs = '<config key="kp" value="{}"/><config key="ki" value="{}"/><config key="kd" value="{}"/></plugin>'
    text = text[: text.index("<sensor>")] + "</mujoco>"
    text = text.replace("<worldbody>", '<extension><plugin plugin="mujoco.pid"/></extension><worldbody>')
    text = text.replace(
        'my.pid" instance="p" actdim="1" forcerange="-3 3"/>',
        f'mujoco.pid" actdim="1" forcerange="-3 3">{theirs.format(4, 2, 0.3)}',
    )
    text = text.replace('my.pid" actdim="1"/>', f'mujoco.pid" actdim="1">{theirs.format(3, 1, 0.2)}')
    mjmodel = oracle.mujoco.MjModel.from_xml_string(text)
    mjdata = oracle.mujoco.MjData(mjmodel)
    state, inputs = diffsim.make_state(model), diffsim.make_inputs(model)
    np.testing.assert_allclose(state.plugin_state, [0.7, 1, 0.2, 1])
    wind = np.array([0.7, 1, 0.2, 1])
    for ctrl in np.random.default_rng(0).uniform(-1, 1, (20, 3)):
        mjdata.ctrl[:] = ctrl
        mjdata.qfrc_applied[:] = wind[0] + wind[2] - (0.7 + 0.2) * mjdata.qvel
        speed, before = mjdata.qvel[0], wind[1]
        oracle.mujoco.mj_step(mjmodel, mjdata)
        wind = wind * (1 - 0.002 * 3)
        readings = forward(model, state, inputs).sensordata
        np.testing.assert_allclose(readings, [state.time, speed, before], atol=1e-12)
        state = step(model, state, inputs.replace(ctrl=jnp.asarray(ctrl)))
    for name in ("qpos", "qvel", "act"):
        np.testing.assert_allclose(getattr(state, name), getattr(mjdata, name), atol=1e-12)
    np.testing.assert_allclose(state.plugin_state, wind, atol=1e-14)


def test_plugins_of_the_user_have_derivatives() -> None:
    model = mine()
    start, inputs = diffsim.make_state(model), diffsim.make_inputs(model)
    start = start.replace(qpos=start.qpos + 0.1, qvel=start.qvel + 0.3, act=start.act + 0.2)

    def loss(numbers: jax.Array, states: jax.Array) -> jax.Array:
        later = start.replace(plugin_state=states)
        for _ in range(2):
            later = diffsim.step(model.replace(plugin_number=numbers), later, inputs)
        weights = jnp.arange(1.0, 5)
        return later.qvel @ weights[:2] + later.act @ weights[:2] + later.plugin_state @ weights

    point = model.plugin_number, start.plugin_state
    value, slopes = uncompiled(loss), uncompiled(jax.grad(loss, (0, 1)))(*point)
    rng = np.random.default_rng(1)
    away = tuple(jnp.asarray(rng.normal(size=part.shape)) for part in point)
    ends = [value(*(p + h * a for p, a in zip(point, away, strict=True))) for h in (1e-4, -1e-4)]
    along = sum(np.vdot(s, a) for s, a in zip(slopes, away, strict=True))
    np.testing.assert_allclose(along, (ends[0] - ends[1]) / 2e-4, rtol=1e-6)
    assert all(np.count_nonzero(slope) > 3 for slope in slopes)


def test_plugins_of_the_user_are_checked() -> None:
    with pytest.raises(diffsim.MjcfError, match=r"no actuator can use plugin '.*'; load the model with hooks="):
        diffsim.load(MINE)
    with pytest.raises(diffsim.MjcfError, match="has no setting 'drug', only drag, decay"):
        diffsim.load(MINE.replace('key="drag"', 'key="drug"'), hooks=diffsim.Hooks(plugins=PLUGINS))
    with pytest.raises(diffsim.MjcfError, match="setting 'gains' takes 3 numbers"):
        diffsim.load(MINE.replace('"4 2 .3"', '"4 2"'), hooks=diffsim.Hooks(plugins=PLUGINS))
    deaf = PLUGINS | {"my.speed": diffsim.Plugin(force=pid_force)}
    with pytest.raises(diffsim.MjcfError, match="has no function 'sensor'"):
        diffsim.load(MINE, hooks=diffsim.Hooks(plugins=deaf))
    model = mine().replace(hooks=diffsim.Hooks())
    with pytest.raises(diffsim.UnsupportedError, match=r"the plugin .my.pid. is unknown: load the model with"):
        diffsim.forward(model, diffsim.make_state(model))


def test_instances_are_counted_as_the_oracles() -> None:
    text = PID.replace(
        "</extension>", '<plugin plugin="mujoco.sdf.torus"/><plugin plugin="mujoco.sensor.touch_grid"/></extension>'
    )
    text = text.replace(
        "<worldbody>",
        '<asset><mesh name="t"><plugin plugin="mujoco.sdf.torus"/></mesh></asset><worldbody><geom type="sdf" mesh="t"><plugin plugin="mujoco.sdf.torus"/></geom>',
    )
    text = text.replace(
        "</mujoco>",
        '<sensor><plugin plugin="mujoco.sensor.touch_grid" objtype="site" objname="s"><config key="size" value="2 2"/><config key="fov" value="45 45"/></plugin></sensor></mujoco>',
    )
    text = text.replace("<worldbody>", '<worldbody><site name="s"/>')
    model, mjmodel, _ = both(text)
    assert model.topology.nplugin == mjmodel.nplugin
    names = [oracle.mujoco.mj_id2name(mjmodel, oracle.mujoco.mjtObj.mjOBJ_PLUGIN, k) for k in range(mjmodel.nplugin)]
    assert [model.name("plugin", k) for k in range(mjmodel.nplugin)] == [name or "" for name in names]
