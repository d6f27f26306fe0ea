"""The eight tasks: models that MuJoCo steps alike, shapes, rewards, ends; steps are traced, and some run by numpy."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracle import load_oracle, mujoco
from uncompiled import uncompiled

import diffsim
from diffsim import envs, viz

# a mocap target, legs, a limited slider; `make measure WHAT=parity` steps the models of all
STEPPED = ("reacher", "hopper", "cartpole")


@functools.cache
def start(name: str) -> tuple[envs.Env, diffsim.State, diffsim.Inputs]:
    env = envs.make(name)
    # to where the solver of MuJoCo goes too; two steps of the physics tell as much as five
    model = env.model.replace(opt=env.model.opt.replace(tolerance=1e-12))
    env = env.replace(model=model, task=env.task._replace(steps=2))
    return env, *env.task.start(env.model, jax.random.key(3))


@functools.cache
def begun(name: str) -> tuple[envs.Env, envs.EnvState]:
    env, *first = start(name)
    return env, jax.tree.map(jnp.asarray, uncompiled(env.begin)(*first))


@functools.cache
def stepped(name: str) -> tuple[envs.EnvState, np.ndarray]:
    env, state = begun(name)
    action = np.linspace(-1.2, 0.9, env.action_size)
    return uncompiled(env.step)(state, action), action


@pytest.mark.parametrize("name", STEPPED)
def test_a_step_is_several_of_mujoco(name: str) -> None:
    env, first = begun(name)
    later, action = stepped(name)
    mjmodel = load_oracle((envs.MODELS / f"{name}.xml").read_text())
    mjmodel.opt.tolerance = 1e-12
    mjdata = mujoco.MjData(mjmodel)
    mjdata.qpos, mjdata.qvel = first.physics.qpos, first.physics.qvel
    mjdata.mocap_pos, mjdata.mocap_quat = first.inputs.mocap_pos, first.inputs.mocap_quat
    mujoco.mj_forward(mjmodel, mjdata)
    # no geom begins deep in another one
    assert np.min(mjdata.contact.dist, initial=0.0) > -0.012
    mjdata.ctrl = env.task.control(env.model, jnp.asarray(action))
    assert np.all((mjdata.ctrl >= mjmodel.actuator_ctrlrange[:, 0]) & (mjdata.ctrl <= mjmodel.actuator_ctrlrange[:, 1]))
    for _ in range(env.task.steps):
        mujoco.mj_step(mjmodel, mjdata)
    np.testing.assert_allclose(later.physics.qpos, mjdata.qpos, atol=1e-8)
    np.testing.assert_allclose(later.physics.time, env.dt, rtol=1e-12)
    assert float(later.done) == 0


@pytest.mark.parametrize("name", STEPPED)
def test_terms_sum_up(name: str) -> None:
    _, first = begun(name)
    later, _ = stepped(name)
    assert np.all(np.isfinite(later.obs)) and np.any(first.obs != later.obs)
    np.testing.assert_allclose(later.reward, sum(later.metrics.values()), rtol=1e-12)
    assert all(float(term) == 0 for term in first.metrics.values())


@pytest.mark.parametrize("name", envs.TASKS)
def test_shapes_stay(name: str) -> None:
    env = envs.make(name)
    first = jax.eval_shape(env.reset, jax.random.key(3))
    later = jax.eval_shape(env.step, first, jnp.zeros(env.action_size))
    assert jax.tree.structure(first) == jax.tree.structure(later)
    sides = [[(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(state)] for state in (first, later)]
    assert sides[0] == sides[1]
    assert later.obs.shape == (env.observation_size,)


ENDS = {
    "cartpole": {"hinge": 0.6},
    "hopper": {"root_z": -0.5},
    "walker": {"root_pitch": 1.2},
    "quadruped": {"root": [0, 0, 0.1, 1, 0, 0, 0]},
    "humanoid": {"root": [0, 0, 1.2, 0, 1, 0, 0]},
    "hand": {"cube": [0.3, 0, 0.1, 1, 0, 0, 0]},
}


@pytest.mark.parametrize("name", ENDS)
def test_episodes_end_where_they_should(name: str) -> None:
    env, first, inputs = start(name)
    lost = env.model.set_qpos(first, ENDS[name])
    poses = [viz.poses_of(env.model, state, inputs) for state in (first, lost)]
    moments = [
        envs.Moment(env.model, state, inputs, data, state, inputs.ctrl)
        for state, data in zip((first, lost), poses, strict=True)
    ]
    assert [bool(env.task.failed(moment)) for moment in moments] == [False, True]


def test_starts_differ_by_their_keys() -> None:
    for name, task in envs.TASKS.items():
        env, first, given = start(name)
        state, inputs = task.start(env.model, jax.random.key(4))
        assert np.any(state.qpos != first.qpos)
        # what is to be reached is drawn too
        assert name not in ("reacher", "hand") or any(
            np.any(getattr(inputs, field) != getattr(given, field)) for field in ("mocap_pos", "mocap_quat")
        )


def test_unknown_tasks_and_wrong_actions_are_refused() -> None:
    with pytest.raises(KeyError, match="did you mean 'hopper'"):
        envs.make("hoper")
    env, state = begun("cartpole")
    with pytest.raises(ValueError, match=r"shape \(2,\), expected \(1,\)"):
        env.step(state, jnp.zeros(2))
