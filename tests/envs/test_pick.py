"""The task of picking up a cube, with a small arm; with DIFFSIM_MENAGERIE=FOLDER, also with Menagerie's Panda."""

import functools
import os
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracle import mujoco
from uncompiled import uncompiled

import diffsim
from diffsim import envs
from diffsim.base.errors import ArgumentError
from diffsim.envs.policy import _of_environment
from diffsim.envs.tasks import pick

MENAGERIE = os.environ.get("DIFFSIM_MENAGERIE")
NAMES = ["crane", *(["panda"] if MENAGERIE else [])]

# a gripper that moves along x and z, with Playground's names of the cube and the target
CRANE = """
<mujoco>
  <option timestep="0.005" integrator="implicitfast" iterations="5" ls_iterations="8"/>
  <worldbody>
    <geom name="floor" type="plane" size="2 2 0.1"/>
    <body name="hand" pos="0 0 0.3">
      <joint name="x" type="slide" axis="1 0 0" range="-1 1" damping="20"/>
      <joint name="z" type="slide" axis="0 0 1" range="-0.25 0.5" damping="20"/>
      <geom name="palm" type="sphere" size="0.03" mass="0.5" contype="0" conaffinity="0"/>
      <site name="gripper" pos="0 0 -0.1"/>
      <body name="finger" pos="0 0.04 -0.1">
        <joint name="finger" type="slide" axis="0 -1 0" range="0 0.04" damping="5"/>
        <geom name="pad" type="box" size="0.01 0.005 0.02" mass="0.05"/>
      </body>
    </body>
    <body name="box" pos="0.4 0 0.03"><freejoint/><geom type="box" size="0.02 0.02 0.03"/></body>
    <body name="mocap_target" mocap="true" pos="0 0 0.5"/>
  </worldbody>
  <actuator>
    <position joint="x" kp="500" ctrlrange="-1 1"/>
    <position joint="z" kp="500" ctrlrange="-0.25 0.5"/>
    <position joint="finger" kp="300" ctrlrange="0 0.04"/>
  </actuator>
  <keyframe><key name="home" qpos="0.1 0.1 0.02 0.4 0 0.03 1 0 0 0" ctrl="0.1 0.1 0.02"/></keyframe>
</mujoco>
"""
ARMS = {"crane": envs.Arm(file="crane.xml", joints=("x", "z"), hand=("palm", "pad")), "panda": envs.ARMS["panda"]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    path = tmp_path_factory.mktemp("models")
    (path / "crane.xml").write_text(CRANE)
    return path


@functools.cache
def made(name: str, folder: pathlib.Path) -> tuple[envs.PickCube, envs.Env]:
    task = envs.PickCube(ARMS[name])
    return task, task.env(folder if name == "crane" else str(MENAGERIE))


def moment(env: envs.Env, state: diffsim.State, inputs: diffsim.Inputs, memory: float | None = None) -> envs.Moment:
    data = uncompiled(diffsim.forward)(env.model, state, inputs)
    kept = None if memory is None else jnp.asarray(memory)
    now = envs.Moment(env.model, state, inputs, data, state, jnp.zeros(env.model.nu), None, kept)
    return now._replace(memory=env.task.remember(now))


@pytest.mark.parametrize("name", NAMES)
def test_a_step_adds_the_action_to_the_targets_of_the_servos(name: str, folder: pathlib.Path) -> None:
    task, env = made(name, folder)
    state, inputs = env.task.start(env.model, jax.random.key(0))
    first = uncompiled(env.begin)(state, inputs)
    action = np.linspace(-1.4, 1.0, env.action_size)
    later = uncompiled(env.step)(first, action)
    low, high = np.asarray(env.model.actuator_ctrlrange).T
    expected = np.clip(np.asarray(inputs.ctrl) + 0.04 * np.clip(action, -1, 1), low, high)
    np.testing.assert_allclose(later.inputs.ctrl, expected, atol=1e-12)
    assert np.any(expected == high)
    again = uncompiled(env.step)(later, action)
    np.testing.assert_allclose(again.inputs.ctrl[0], expected[0] - 0.04, atol=1e-12)
    assert env.dt == pytest.approx(0.02) and float(again.done) == 0
    # as C MuJoCo steps
    path = folder if name == "crane" else pathlib.Path(str(MENAGERIE))
    mjmodel = mujoco.MjModel.from_xml_path(str(path / ARMS[name].file))
    mjdata = mujoco.MjData(mjmodel)
    mjdata.qpos, mjdata.ctrl = state.qpos, expected
    for _ in range(env.task.steps):
        mujoco.mj_step(mjmodel, mjdata)
    mujoco.mj_forward(mjmodel, mjdata)
    # the solver stops after five iterations
    np.testing.assert_allclose(later.physics.qpos, mjdata.qpos, atol=1e-5)
    # the observation in its parts
    sizes = [size for size, _ in task.parts(env.model).values()]
    assert later.obs.shape == (sum(sizes),) == (env.observation_size,)
    seen = dict(zip(task.parts(env.model), np.split(np.asarray(later.obs), np.cumsum(sizes)[:-1]), strict=True))
    np.testing.assert_allclose(seen["positions"], later.physics.qpos)
    np.testing.assert_allclose(seen["cube to target"], inputs.mocap_pos[0] - mjdata.body("box").xpos, atol=1e-5)
    np.testing.assert_allclose(seen["gripper"], mjdata.site("gripper").xpos, atol=1e-4)
    matrix = mjdata.site("gripper").xmat
    np.testing.assert_allclose(seen["gripper axes y and z"], matrix[3:], atol=1e-3)
    np.testing.assert_allclose(seen["servo errors"], expected - mjdata.actuator_length, atol=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_cubes_and_targets_are_drawn_as_in_playground(name: str, folder: pathlib.Path) -> None:
    task, env = made(name, folder)
    keys = jax.random.split(jax.random.key(1), 500)
    model, middle = env.model, np.asarray(diffsim.make_state(env.model, "home").qpos[-7:-4])
    states, inputs = jax.jit(jax.vmap(lambda key: env.task.start(model, key)))(keys)
    cubes = np.asarray(states.qpos[:, -7:-4]) - middle
    np.testing.assert_allclose([cubes.min(axis=0), cubes.max(axis=0)], [[-0.2, -0.2, 0], [0.2, 0.2, 0]], atol=0.01)
    targets = np.asarray(inputs.mocap_pos[:, 0]) - middle
    np.testing.assert_allclose(
        [targets.min(axis=0), targets.max(axis=0)], [[-0.2, -0.2, 0.2], [0.2, 0.2, 0.4]], atol=0.01
    )
    assert np.all(np.asarray(inputs.mocap_quat[:, 0]) == [1, 0, 0, 0])
    turned = envs.PickCube(task.arm, turned=True)
    quats = jax.jit(jax.vmap(lambda key: turned.start(model, key)[1].mocap_quat[0]))(keys)
    angles = 2 * np.arccos(np.asarray(quats[:, 0]))
    assert angles.max() == pytest.approx(np.pi / 4, abs=0.01) and angles.min() < 0.02


def test_rewards(folder: pathlib.Path) -> None:
    _, env = made("crane", folder)
    home = diffsim.make_state(env.model, "home")
    inputs = diffsim.make_inputs(env.model, "home").replace(mocap_pos=jnp.array([[0.4, 0.0, 0.33]]))
    terms = env.task.reward(moment(env, home, inputs))
    # the gripper is at x = 0.1 and z = 0.3 + 0.1 - 0.1
    apart = np.hypot(0.3, 0.27)
    np.testing.assert_allclose(terms["gripper to cube"], 4 * (1 - np.tanh(5 * apart)), rtol=1e-6)
    assert float(terms["cube to target"]) == 0
    np.testing.assert_allclose([terms["floor"], terms["pose"]], [0.25, 0.3])
    # the gripper at the cube: it counts as reached from now on
    there = home.replace(qpos=home.qpos.at[0].set(0.4).at[1].set(-0.17))
    now = moment(env, there, inputs)
    assert float(now.memory) == 1 == float(moment(env, home, inputs, memory=1.0).memory)
    terms = env.task.reward(now)
    np.testing.assert_allclose(terms["gripper to cube"], 4)
    np.testing.assert_allclose(terms["cube to target"], 8 * (1 - np.tanh(5 * 0.9 * 0.3)), rtol=1e-6)
    np.testing.assert_allclose(terms["pose"], 0.3 * (1 - np.tanh(np.hypot(0.3, 0.27))), rtol=1e-6)
    # a turn of the target by a right angle about z: rows x and y differ by (1, 1, 0) and (-1, 1, 0)
    half = np.sqrt(0.5)
    turned = inputs.replace(mocap_quat=jnp.array([[half, 0, 0, half]]), mocap_pos=jnp.array([[0.4, 0.0, 0.03]]))
    terms = env.task.reward(moment(env, there, turned))
    np.testing.assert_allclose(terms["cube to target"], 8 * (1 - np.tanh(5 * 0.1 * 2)), rtol=1e-6)
    # the lowest point of the finger is 2 cm below its middle, which is at the height of the gripper
    for height, pays in ((0.021, 0.25), (0.019, 0.0)):
        low = home.replace(qpos=home.qpos.at[1].set(height - 0.2))
        assert float(env.task.reward(moment(env, low, inputs))["floor"]) == pays
    assert not bool(env.task.failed(now))
    for place in ([1.01, 0, 0.1], [0, -1.01, 0.1], [0, 0, -0.01]):
        lost = home.replace(qpos=home.qpos.at[3:6].set(jnp.array(place)))
        assert bool(env.task.failed(moment(env, lost, inputs)))


def test_rewards_have_gradients_and_policies_say_that_actions_are_changes(folder: pathlib.Path) -> None:
    _, env = made("crane", folder)
    short = env.replace(model=env.model.without_contacts(), task=env.task._replace(steps=1))
    home, inputs = diffsim.make_state(env.model, "home"), diffsim.make_inputs(env.model, "home")
    first = uncompiled(short.begin)(home, inputs)
    slope = uncompiled(jax.grad(lambda action: short.step(first, action).reward))(jnp.full(3, 0.3))
    # to the right and down, towards the cube
    assert np.all(np.isfinite(slope)) and slope[0] > 0 and slope[1] < 0
    told = _of_environment(env)
    assert told["action_relative"] == "true" and "default_ctrl" not in told
    np.testing.assert_allclose([float(x) for x in told["action_scale"].split(",")], pick.REACH)


def test_models_without_what_the_task_needs_are_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ArgumentError, match=r"mjx_single_cube\.xml does not exist; give the path"):
        envs.PickCube(envs.ARMS["panda"]).env(tmp_path)
    path = tmp_path / "crane.xml"
    for old, new, message in (
        ('<site name="gripper"', '<site name="tip"', "no site 'gripper'; write an Arm"),
        ('mocap="true" ', "", "'mocap_target' must be a mocap body"),
    ):
        assert old in CRANE
        path.write_text(CRANE.replace(old, new))
        with pytest.raises(ArgumentError, match=message):
            envs.PickCube(ARMS["crane"]).env(path)
