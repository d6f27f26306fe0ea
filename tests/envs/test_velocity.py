"""The velocity task: the models that it makes, what it remembers, its commands, pushes, rewards and terrain.

With DIFFSIM_MENAGERIE=FOLDER the robots of MuJoCo Menagerie are tried too.
"""

import functools
import os
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracle import load_oracle, mujoco
from uncompiled import uncompiled
from wide import WIDE

import diffsim
from diffsim import envs
from diffsim.base.errors import ArgumentError
from diffsim.envs.policy import _of_environment
from diffsim.envs.tasks import velocity
from diffsim.envs.tasks.robots import spec_of
from diffsim.envs.tasks.terrain import GROUP, add_plane

MENAGERIE = os.environ.get("DIFFSIM_MENAGERIE")
NAMES = ["quadruped", *(["go2", "g1"] if MENAGERIE else [])]
TASK = envs.Velocity(envs.ROBOTS["quadruped"])
# two levels of small tiles: 48 by 24 cells
ROUGH = envs.Terrain(levels=2, size=6.0, resolution=0.25, kinds=("stairs", "gaps"))


def folder(name: str) -> str | None:
    return None if name == "quadruped" else MENAGERIE


@functools.cache
def made(name: str = "quadruped") -> envs.Env:
    return envs.Velocity(envs.ROBOTS[name]).env(folder(name))


@functools.cache
def compiled(name: str = "quadruped") -> tuple[Any, ...]:
    """`remember`, `observe`, `reward` and `failed`, compiled: faster than one operation after another."""
    task = made(name).task
    return tuple(jax.jit(each) for each in (task.remember, task.observe, task.reward, task.failed))


def moment(name: str, state: diffsim.State, action: Any = 0.0, memory: Any = None) -> envs.Moment:
    """What the task sees of a state, and remembers."""
    env = made(name)
    inputs = diffsim.make_inputs(env.model, "stand")
    data = uncompiled(diffsim.forward)(env.model, state, inputs)
    action = jnp.broadcast_to(jnp.asarray(action, float), (env.model.nu,))
    now = envs.Moment(env.model, state, inputs, data, state, action, jax.random.key(0), memory)
    return now._replace(memory=compiled(name)[0](now))


@functools.cache
def standing(name: str = "quadruped") -> envs.Moment:
    return moment(name, diffsim.make_state(made(name).model, "stand"))


@pytest.mark.parametrize("name", NAMES)
def test_robots_stand_on_their_feet(name: str) -> None:
    robot = envs.ROBOTS[name]
    mjmodel = load_oracle(diffsim.mjcf.write(spec_of(robot, folder(name), add_plane)))
    touching = np.flatnonzero(mjmodel.geom_conaffinity)
    assert {mjmodel.body(mjmodel.geom_bodyid[geom]).name for geom in touching} == set(robot.feet)
    assert np.all(mjmodel.geom_type[touching] == mujoco.mjtGeom.mjGEOM_SPHERE)
    assert np.flatnonzero(mjmodel.geom_contype).tolist() == [mjmodel.geom("ground").id]
    assert np.flatnonzero(mjmodel.geom_group == GROUP).tolist() == [mjmodel.geom("ground").id]
    mjdata = mujoco.MjData(mjmodel)
    mujoco.mj_resetDataKeyframe(mjmodel, mjdata, 0)
    mujoco.mj_kinematics(mjmodel, mjdata)
    lowest = mjdata.geom_xpos[touching, 2] - mjmodel.geom_size[touching, 0]
    np.testing.assert_allclose(lowest, 0, atol=0.002)
    # the servos hold it in the default pose, with less than half of their torque; a biped falls after a second
    for _ in range(400 if len(robot.feet) > 2 else 60):
        mujoco.mj_step(mjmodel, mjdata)
    assert mjdata.qpos[2] > 0.8 * robot.height and mjdata.xmat[1][8] > 0.98
    assert np.all(abs(mjdata.actuator_force) < 0.5 * mjmodel.actuator_forcerange[:, 1])


@pytest.mark.parametrize("name", NAMES)
def test_a_step(name: str) -> None:
    env, task = made(name), envs.Velocity(envs.ROBOTS[name])
    sizes = [size for size, _ in task.parts(env.model).values()]
    assert sum(sizes) == env.observation_size
    assert env.dt == pytest.approx(0.02)
    first, action = standing(name), np.linspace(-1.2, 0.9, env.action_size)
    ctrl = np.tile(env.task.control(env.model, jnp.asarray(action)), (env.task.steps, 1))
    later = uncompiled(lambda state, ctrl: diffsim.rollout(env.model, state, ctrl).final)(first.state, ctrl)
    now = moment(name, later, action, first.memory)
    _, observe, reward, failed = compiled(name)
    obs = np.split(np.asarray(observe(now)), np.cumsum(sizes)[:-1])
    seen = dict(zip(task.parts(env.model), obs, strict=True))
    np.testing.assert_array_equal(seen["last action"], action)
    np.testing.assert_allclose(seen["gravity"], [0, 0, -1], atol=0.2)
    np.testing.assert_allclose(seen["joints"], later.qpos[7:] - first.state.qpos[7:], atol=0.01)
    np.testing.assert_array_equal(seen["command"], first.memory["command"])
    np.testing.assert_allclose(now.memory["phase"], env.dt / task.robot.period)
    angle = 2 * np.pi * (env.dt / task.robot.period - np.array(task.robot.phases))
    np.testing.assert_allclose(seen["clock"], [*np.cos(angle), *np.sin(angle)], atol=1e-6)
    terms = reward(now)
    assert set(terms) == set(velocity.WEIGHTS) and np.all(np.isfinite(list(terms.values())))
    np.testing.assert_allclose(terms["action rate"], -0.1 * env.dt * np.sum(action**2))
    assert not bool(failed(now))


def test_controls_are_what_the_metadata_say() -> None:
    told = _of_environment(made())
    np.testing.assert_allclose([float(x) for x in told["action_scale"].split(",")], 0.5, rtol=1e-5)
    np.testing.assert_allclose([float(x) for x in told["default_ctrl"].split(",")], [0, 0.8, -1.6] * 4)


def test_feet_in_the_air_and_on_the_ground() -> None:
    stand = standing().state
    memory, landed = None, []
    # the feet leave the ground for two steps, and land
    for height in (0.03, 0.05, 0.0, 0.0):
        now = moment("quadruped", stand.replace(qpos=stand.qpos.at[2].add(height).at[0].add(height)), memory=memory)
        memory = now.memory
        landed.append(np.asarray(memory["landed"]).tolist())
        if height == 0.05:
            np.testing.assert_allclose(memory["air"], 0.02)
            np.testing.assert_allclose(memory["speed"], 0.02 / 0.02, rtol=1e-6)
        if landed[-1][0]:
            np.testing.assert_allclose(memory["peak"], 0.05, atol=1e-3)
            # against a swing of 0.08 m
            lift = -0.25 * 0.02 * 4 * (0.05 / 0.08 - 1) ** 2
            goes = {"command": jnp.array([1.0, 0.0, 0.0])}
            terms = compiled()[2](now._replace(memory=memory | goes))
            np.testing.assert_allclose(terms["swing height"], lift, rtol=0.05)
    assert landed == [[False] * 4, [False] * 4, [True] * 4, [False] * 4]
    np.testing.assert_array_equal(memory["peak"], 0)


def test_rewards_are_largest_for_what_is_commanded() -> None:
    reward, failed = compiled()[2:]
    stand = standing().state
    command = jnp.array([0.5, -0.2, 0.3])
    # the frame of the root is the world's here
    now = moment("quadruped", stand.replace(qvel=stand.qvel.at[:2].set(command[:2]).at[5].set(command[2])))
    memory = now.memory | {"command": command}
    now = now._replace(memory=memory)
    terms = reward(now)
    np.testing.assert_allclose([terms["linear velocity"], terms["angular velocity"]], 0.04)
    np.testing.assert_allclose([terms["upright"], terms["pose"]], 0.02)
    other = now._replace(memory=memory | {"command": command + jnp.array([0.5, 0.0, 0.0])})
    np.testing.assert_allclose(reward(other)["linear velocity"], 0.04 * np.exp(-1))
    # feet that slide on the ground cost clearance and slip in motion, and nothing while the robot is to stand
    fast = now._replace(memory=memory | {"speed": jnp.ones(4), "clearance": jnp.zeros(4)})
    terms = reward(fast)
    np.testing.assert_allclose([terms["clearance"], terms["slip"]], [-2 * 4 * 0.08 * 0.02, -0.1 * 4 * 0.02])
    still = fast._replace(memory=fast.memory | {"command": jnp.zeros(3)})
    assert float(reward(still)["clearance"]) == float(reward(still)["slip"]) == 0
    # the clock: at a quarter of a period two feet are up by 0.08 m, two are down
    clock = now._replace(memory=memory | {"phase": jnp.array(0.25), "clearance": jnp.array([0.08, 0, 0, 0.08])})
    np.testing.assert_allclose(reward(clock)["clock"], 0.02, rtol=1e-6)
    swapped = clock._replace(memory=clock.memory | {"phase": jnp.array(0.75)})
    np.testing.assert_allclose(reward(swapped)["clock"], 0.02 * np.exp(-4 * 0.08**2 / 0.01), rtol=1e-6)
    lying = now.data.replace(xpos=jnp.asarray(now.data.xpos).at[1, 2].set(0.1))
    assert bool(failed(now._replace(data=lying))) and not bool(failed(now))


def test_commands_and_pushes() -> None:
    keys = jax.random.split(jax.random.key(0), 4000)
    commands = np.asarray(jax.jit(jax.vmap(lambda key: TASK._command(key, jnp.float64)))(keys))
    stand = np.all(commands == 0, axis=1)
    straight = ~stand & np.all(commands[:, 1:] == 0, axis=1)
    np.testing.assert_allclose([stand.mean(), straight.mean()], [0.1, 0.2], atol=0.02)
    assert np.all(commands[straight, 0] >= velocity.SLOWEST)
    assert np.all(abs(commands).max(axis=0) <= TASK.robot.fastest) and abs(commands[:, 1]).max() > 0.45
    model = made().model
    state = diffsim.make_state(model, "stand")
    pushed = np.asarray(jax.jit(jax.vmap(lambda key: TASK.push(model, state, key).qvel))(keys))
    hit = np.any(pushed != 0, axis=1)
    assert hit.mean() == pytest.approx(0.02 / velocity.PUSH_EVERY, abs=0.006)
    assert np.all(pushed[:, 6:] == 0) and np.all(abs(pushed[:, :6]) <= velocity.PUSH)


def test_pushes_change_the_start_of_a_step() -> None:
    env = envs.make("cartpole")
    kick = lambda model, state, key: state.replace(qvel=state.qvel + jax.random.uniform(key))  # noqa: E731
    env = env.replace(task=env.task._replace(noisy=True, disturb=kick))
    first = env.begin(diffsim.make_state(env.model), diffsim.make_inputs(env.model), jax.random.key(0))
    step = jax.jit(env.step)
    one = step(first, jnp.zeros(1))
    two = step(one, jnp.zeros(1))
    # each push is drawn anew
    gained = np.diff([0.0, one.physics.qvel[0], two.physics.qvel[0]])
    assert np.all(gained > 0.01) and abs(gained[1] - gained[0]) > 0.01


def test_terrain_is_what_rays_see() -> None:
    task = envs.Velocity(envs.ROBOTS["quadruped"], ROUGH)
    env = task.env()
    heights, (low, high) = ROUGH.elevation, (ROUGH.elevation.min(), ROUGH.elevation.max())
    assert low == -0.5 and high == pytest.approx(0.2 * 5)
    # at the vertices of the height field, which are the middles of the cells
    rows, columns = np.array([3, 12, 30, 44, 20]), np.array([5, 13, 12, 40, 31])
    x, y = (columns - 23.5) * 0.25, (rows - 23.5) * 0.25
    points = jnp.asarray(np.stack([x, y], axis=1))
    state, inputs = env.task.start(env.model, jax.random.key(1))
    data = uncompiled(diffsim.forward)(env.model, state, inputs)
    seen = uncompiled(lambda data, points: ROUGH.under(env.model, data, points))(data, points)
    np.testing.assert_allclose(seen, heights[rows, columns], atol=1e-6)
    beside = uncompiled(lambda data, points: ROUGH.under(env.model, data, points))(data, points + 100)
    np.testing.assert_array_equal(beside, -0.5)
    # an episode begins on a platform, over which the scan is flat
    felt = uncompiled(lambda data: task._felt(env.model, data))(data)
    np.testing.assert_allclose(felt["clearance"], 0.02, atol=0.005)
    platform = state.qpos[2] - 0.02 - task.robot.height
    np.testing.assert_allclose(felt["ground"], platform, atol=1e-3)
    # the points of the scan that are on it
    place = jax.jit(ROUGH.scan_points)(data)
    off = np.abs(np.asarray(place)[:, None] - ROUGH.middles.reshape(-1, 3)[:, :2]).max(axis=-1).min(axis=-1)
    assert np.sum(off < 0.75) > 10
    np.testing.assert_allclose(felt["scan"][off < 0.75], platform, atol=1e-3)
    assert env.observation_size == sum(size for size, _ in task.parts(env.model).values())


def test_levels_choose_the_tiles() -> None:
    env = envs.Velocity(envs.ROBOTS["quadruped"], ROUGH).env()
    keys = jax.random.split(jax.random.key(0), 64)
    middles = ROUGH.middles.reshape(-1, 3)
    draw = jax.jit(jax.vmap(ROUGH.draw, in_axes=(None, 0)))
    for low, high, levels in ((0, 1, {0, 1}), (1, 1, {1}), (0, 0, {0})):
        model = envs.set_levels(env.model, low, high)
        assert model.topology == env.model.topology
        drawn = np.asarray(draw(model, keys))
        tiles = np.argmin(np.sum((drawn[:, None] - middles) ** 2, axis=2), axis=1)
        np.testing.assert_allclose(drawn, middles[tiles], atol=1e-6)
        assert set((tiles % 2).tolist()) == levels and set((tiles // 2).tolist()) == {0, 1}


def test_the_next_episode_is_harder_after_a_success_and_easier_after_a_failure() -> None:
    rough = envs.Terrain(levels=4, size=6.0, resolution=0.25, kinds=("stairs", "gaps"))
    env = envs.Velocity(envs.ROBOTS["quadruped"], rough).env()
    middles = rough.middles[0, :, :2]
    keys = jax.random.split(jax.random.key(0), 40)

    @jax.jit
    def levels(model: diffsim.Model, began: int, walked: float, commanded: float) -> jax.Array:
        """The levels of the next episodes of a robot that walked straight on from the middle of a tile."""
        home = jnp.asarray(middles)[began] + jnp.array([0.4, -0.5])
        place = home + walked * jnp.array([0.6, 0.8])
        drawn = jax.vmap(lambda key: rough.draw_next(model, key, home, place, commanded))(keys)
        return jnp.argmin(jnp.abs(drawn[:, :1] - middles[None, :, 0]), axis=1)

    for began, walked, commanded, expected in (
        (1, 3.1, 9.0, {2}),
        (1, 2.9, 5.0, {1}),
        (1, 2.9, 6.0, {0}),
        (0, 0.1, 6.0, {0}),
        # who masters the highest gets any
        (3, 3.1, 3.0, {0, 1, 2, 3}),
        # a world that went bad did not walk
        (2, float("nan"), 3.0, {1}),
    ):
        assert set(levels(env.model, began, walked, commanded).tolist()) == expected
    bounded = envs.set_levels(env.model, 1, 2)
    assert set(levels(bounded, 1, 0.1, 6.0).tolist()) == {1} and set(levels(bounded, 2, 5.0, 6.0).tolist()) == {1, 2}
    # the memory holds where an episode began, and the length of the way that was commanded since then
    state, inputs = env.task.start(envs.set_levels(env.model, 1, 1), keys[0])
    data = uncompiled(diffsim.forward)(env.model, state, inputs)
    now = envs.Moment(env.model, state, inputs, data, state, jnp.zeros(env.model.nu), keys[1])
    remember = jax.jit(env.task.remember)
    memory = remember(now)
    commanded = 0.0
    for key in keys[2:5]:
        commanded += env.dt * np.linalg.norm(memory["command"][:2])
        memory = remember(now._replace(key=key, memory=memory))
    np.testing.assert_allclose(memory["commanded"], commanded, rtol=1e-6)
    np.testing.assert_array_equal(memory["home"], state.qpos[:2])
    ended = envs.EnvState(state.replace(qpos=state.qpos.at[0].add(3.2)), *[None] * 5, {"memory": memory})  # type: ignore[arg-type]
    later, _ = jax.jit(lambda ended: env.task.again(env.model, keys[1], ended))(ended)
    assert [float(jnp.round(each.qpos[0] / rough.size + 1.5)) for each in (state, later)] == [1, 2]


def test_wrong_robots_are_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ArgumentError, match=r"go2\.xml does not exist; give the path"):
        envs.Velocity(envs.ROBOTS["go2"]).env(tmp_path)
    weak = envs.ROBOTS["quadruped"]._replace(motors=(envs.Motor(".*knee", 60.0, 1.5, 0.02, 30.0, 0.5),))
    with pytest.raises(ArgumentError, match="no motor for the joint 'front_left_abduction'"):
        envs.Velocity(weak).env()


if WIDE:

    def test_worlds_differ_and_learn() -> None:
        env = made()
        worlds = envs.wrap(env, 500, randomization_fn=TASK.randomization(8), redraw=True)
        state = jax.jit(worlds.reset)(jax.random.split(jax.random.key(0), 8))
        step, start = jax.jit(worlds.step), state.physics.qpos
        for _ in range(20):
            state = step(state, jnp.zeros((8, env.action_size)))
        assert np.all(np.isfinite(state.obs)) and float(state.done.sum()) == 0
        moved = np.asarray(state.physics.qpos - start)
        assert np.all(np.std(moved[:, 2:], axis=0) > 0)
