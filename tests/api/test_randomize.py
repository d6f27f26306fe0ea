"""Randomized models: each world is a whole model of its own, and only what differs is stored for each."""

import copy

import jax
import numpy as np
import oracle
import pytest
from oracle import mujoco
from uncompiled import uncompiled

import diffsim
from diffsim import Scale, Shift, Uniform, envs

MODEL = """
<mujoco>
  <option timestep="0.002"/>
  <worldbody>
    <geom name="floor" type="plane" size="5 5 1"/>
    <camera name="chase" mode="trackcom" pos="0 -2 1"/>
    <body name="base" pos="0 0 0.5">
      <freejoint name="root"/>
      <geom name="hull" type="box" size="0.1 0.05 0.03"/>
      <body name="arm" pos="0.1 0 0">
        <joint name="shoulder" axis="0 1 0" damping="0.3"/>
        <geom name="upper" type="capsule" fromto="0 0 0 0.3 0 0" size="0.03"/>
      </body>
    </body>
  </worldbody>
  <actuator><position name="servo" joint="shoulder" kp="5"/></actuator>
</mujoco>
"""
FIELDS = {
    "body_mass": Scale(0.5, 2.0),
    "geom_friction": Uniform((0.3, 0.005, 0.0001), (1.2, 0.005, 0.0001), only=("floor", "hull")),
    "dof_damping": lambda key, damping: damping * jax.random.uniform(key, minval=0.5, maxval=2.0),
    "opt.timestep": Shift(-0.001, 0.0),
    "geom_size": Scale(0.9, 1.1, only="upper"),
}
WORLDS = 5


@pytest.fixture(scope="module")
def drawn() -> tuple[diffsim.Model, diffsim.Model, diffsim.Model]:
    model = diffsim.load(MODEL)
    return model, *diffsim.randomize(model, jax.random.key(0), FIELDS, WORLDS)


def world(models: diffsim.Model, axes: diffsim.Model, index: int) -> diffsim.Model:
    """One of a batch of models."""
    return jax.tree.map(lambda leaf, axis: leaf[index] if axis == 0 else leaf, models, spread(axes, models))


def spread(axes: diffsim.Model, models: diffsim.Model) -> diffsim.Model:
    """Axes as a tree without None."""
    return jax.tree.map(lambda _, axis: -1 if axis is None else axis, models, axes, is_leaf=lambda x: x is None)


def test_each_world_is_what_the_oracle_derives(drawn: tuple) -> None:
    _, models, axes = drawn
    for index in range(WORLDS):
        ours, theirs = world(models, axes, index), copy.deepcopy(oracle.load_oracle(MODEL))
        for name in ("body_mass", "body_inertia", "geom_size", "geom_rbound", "geom_aabb", "dof_damping"):
            getattr(theirs, name)[:] = np.asarray(getattr(ours, name))
        mujoco.mj_setConst(theirs, mujoco.MjData(theirs))
        names = ("body_subtreemass", "body_invweight0", "dof_invweight0", "dof_M0", "actuator_acc0", "cam_poscom0")
        for name in names:
            expected = np.asarray(getattr(theirs, name))
            oracle.assert_close(name, getattr(ours, name), expected, 1e-10, 1e-8)
        oracle.assert_close("meaninertia", ours.stat.meaninertia, np.asarray(theirs.stat.meaninertia), 1e-10)


def test_inertia_goes_with_mass_and_bounds_with_size(drawn: tuple) -> None:
    model, models, _ = drawn
    factor = models.body_mass[:, 1:] / model.body_mass[None, 1:]
    np.testing.assert_allclose(
        models.body_inertia[:, 1:], model.body_inertia[None, 1:] * factor[:, :, None], rtol=1e-12
    )
    assert np.all(factor >= 0.5) and np.all(factor <= 2) and np.ptp(factor, axis=0).min() > 0.1
    size = models.geom_size[:, 2]
    np.testing.assert_allclose(models.geom_rbound[:, 2], size[:, 0] + size[:, 1], rtol=1e-12)
    np.testing.assert_allclose(models.geom_aabb[:, 2, 3:], np.stack([size[:, 0]] * 2 + [size[:, 0] + size[:, 1]], 1))
    np.testing.assert_array_equal(models.geom_size[:, :2], np.stack([model.geom_size[:2]] * WORLDS))


def test_ranges_objects_and_functions(drawn: tuple) -> None:
    model, models, _ = drawn
    sliding = models.geom_friction[:, :, 0]
    assert np.all((sliding[:, :2] >= 0.3) & (sliding[:, :2] <= 1.2)) and np.all(sliding[:, 2] == 1)
    np.testing.assert_allclose(models.geom_friction[:, :, 1:], np.stack([model.geom_friction[:, 1:]] * WORLDS))
    assert np.all((models.opt.timestep >= 0.001) & (models.opt.timestep <= 0.002))
    again, _ = diffsim.randomize(model, jax.random.key(0), {"jnt_stiffness": Uniform(1, 2, shared=True)}, 3)
    assert np.all(again.jnt_stiffness[:, 0] == again.jnt_stiffness[:, 1]) and again.topology.has("jnt_stiffness")


def test_only_what_changed_is_batched(drawn: tuple) -> None:
    model, models, axes = drawn
    assert jax.tree.leaves(axes) == jax.tree.leaves(diffsim.model_axes(models))
    for name in ("geom_pos", "key_qpos", "cam_mat0", "geom_rgba", "body_pos", "eq_data", "dof_armature"):
        assert getattr(axes, name) is None
        assert getattr(models, name) is getattr(model, name)
    _, lighter = diffsim.randomize(model, jax.random.key(0), {"dof_damping": Scale(0.5, 2)}, 2)
    assert len(jax.tree.leaves(lighter)) == 1


def test_a_randomized_batch_steps(drawn: tuple) -> None:
    model, models, axes = drawn
    state = diffsim.make_state(model)
    after = uncompiled(jax.vmap(diffsim.step, in_axes=(axes, None)))(models, state)
    np.testing.assert_allclose(after.time, models.opt.timestep)
    one = uncompiled(diffsim.step)(world(models, axes, 2), state)
    np.testing.assert_allclose(after.qvel[2], one.qvel, atol=1e-12)


WRONG = {
    "a misspelt leaf": ({"body_mas": Scale(1, 2)}, ValueError, "did you mean 'body_mass'"),
    "a derived leaf": ({"body_invweight0": Scale(1, 2)}, ValueError, "follows from other fields"),
    "a pair": ({"body_mass": (0.5, 2)}, ValueError, "give Scale"),
    "a misspelt body": ({"body_mass": Scale(1, 2, only="bas")}, KeyError, "did you mean 'base'"),
    "names of options": ({"opt.gravity": Scale(1, 2, only="base")}, ValueError, "no named objects"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_drawn_is_refused(case: str, drawn: tuple) -> None:
    fields, error, message = WRONG[case]
    with pytest.raises(error, match=message):
        diffsim.randomize(drawn[0], jax.random.key(0), fields, 2)


def test_no_worlds_are_refused(drawn: tuple) -> None:
    with pytest.raises(diffsim.ArgumentError, match="number of worlds, 1 or more, not -1"):
        diffsim.randomize(drawn[0], jax.random.key(0), {"body_mass": diffsim.Scale(0.9, 1.1)}, -1)


@pytest.mark.parametrize("field", ["dof_frictionloss", "jnt_stiffness", "body_gravcomp", "opt.density"])
def test_a_field_that_the_model_lacks_can_be_drawn(field: str) -> None:
    """The axes are those of the new models, in whose programs the field is."""
    model = diffsim.load(MODEL)
    models, axes = diffsim.randomize(model, jax.random.key(0), {field: Uniform(0.1, 0.2)}, WORLDS)
    stepped = jax.eval_shape(jax.vmap(diffsim.step, in_axes=(axes, None)), models, diffsim.make_state(model))
    assert stepped.qpos.shape == (WORLDS, model.nq)


def test_an_environment_can_draw_a_field_that_its_model_lacks() -> None:
    def draw(model: diffsim.Model) -> tuple[diffsim.Model, diffsim.Model]:
        return diffsim.randomize(model, jax.random.key(0), {"dof_frictionloss": Uniform(0, 0.1)}, WORLDS)

    env = envs.RandomizedVmapWrapper(envs.make("cartpole"), draw)
    state = jax.eval_shape(env.reset, jax.random.split(jax.random.key(1), WORLDS))
    assert state.reward.shape == (WORLDS,)
