"""The public types: records that check what they are given, names that help, states and batches made right."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from programs import compilations
from uncompiled import uncompiled

import diffsim

PENDULUM = """
<mujoco>
  <worldbody>
    <body name="upper arm" mocap="false">
      <joint name="shoulder" axis="0 1 0" damping="0.1"/>
      <geom name="link" type="capsule" fromto="0 0 0 0 0 -1" size="0.05"/>
    </body>
    <body name="marker" mocap="true" pos="1 2 3"><geom size="0.1" contype="0" conaffinity="0"/></body>
  </worldbody>
  <actuator><motor name="drive" joint="shoulder"/></actuator>
  <keyframe><key name="up" time="2" qpos="3.14" qvel="0.5" ctrl="0.25"/></keyframe>
</mujoco>
"""


@pytest.fixture(scope="module")
def model() -> diffsim.Model:
    return diffsim.load(PENDULUM)


def test_names_go_both_ways_and_errors_list_near_matches(model: diffsim.Model) -> None:
    assert model.id("body", "upper arm") == 1
    assert model.name("joint", 0) == "shoulder"
    with pytest.raises(KeyError, match="did you mean 'shoulder'"):
        model.id("joint", "sholder")
    with pytest.raises(KeyError, match="did you mean 'joint'"):
        model.id("joints", "shoulder")
    with pytest.raises(IndexError):
        model.name("body", 99)


def test_replace_checks_names_shapes_and_presence(model: diffsim.Model) -> None:
    heavier = model.replace(body_mass=model.body_mass * 2)
    assert heavier.body_mass.dtype == model.body_mass.dtype
    with pytest.raises(TypeError, match="did you mean 'body_mass'"):
        model.replace(body_mas=1)
    with pytest.raises(ValueError, match="body_mass has shape"):
        model.replace(body_mass=np.ones(7))
    kept = diffsim.load(PENDULUM, keep=("dof_frictionloss",))
    changed = kept.replace(dof_frictionloss=np.ones(1))
    assert float(changed.dof_frictionloss[0]) == 1 and changed.topology == kept.topology
    assert model.replace(dof_frictionloss=np.ones(1)).topology == kept.topology
    assert model.replace(dof_frictionloss=np.zeros(1)).topology == model.topology
    with pytest.raises(ValueError, match="is not a switch field"):
        diffsim.load(PENDULUM, keep=("body_mass",))


def test_states_and_inputs_come_from_keyframes(model: diffsim.Model) -> None:
    state = diffsim.make_state(model, "up")
    assert float(state.time) == 2 and float(state.qpos[0]) == 3.14 and float(state.qvel[0]) == 0.5
    assert float(diffsim.make_inputs(model, 0).ctrl[0]) == 0.25
    np.testing.assert_array_equal(diffsim.make_inputs(model).mocap_pos, [[1, 2, 3]])
    with pytest.raises(KeyError, match="did you mean 'up'"):
        diffsim.make_state(model, "upp")
    with pytest.raises(IndexError, match="1 keyframes"):
        diffsim.make_state(model, 1)


def test_rollout_and_axes_refuse_what_they_cannot_use(model: diffsim.Model) -> None:
    with pytest.raises(ValueError, match="expected \\(T, 1\\)"):
        diffsim.rollout(model, diffsim.make_state(model), jnp.zeros((3, 2)))
    with pytest.raises(ValueError, match="did you mean 'body_mass'"):
        diffsim.model_axes(model, "body_masses")


def test_worlds_differ_by_the_batched_leaves(model: diffsim.Model) -> None:
    state = diffsim.make_state(model, "up")
    lengths = jnp.linspace(0.5, 2, 4)
    models = model.replace(
        body_mass=model.body_mass[None] * lengths[:, None], opt=model.opt.replace(timestep=0.01 * lengths)
    )
    axes = diffsim.model_axes(model, "body_mass", "opt.timestep")
    after = uncompiled(jax.vmap(diffsim.step, in_axes=(axes, None)))(models, state)
    np.testing.assert_allclose(after.time, 2 + 0.01 * lengths)
    assert len({float(v) for v in after.qvel[:, 0]}) == 4


def test_a_randomized_model_says_what_differs(model: diffsim.Model) -> None:
    named = diffsim.model_axes(model, "body_mass", "opt.timestep")
    scales = jnp.linspace(0.5, 2, 4)

    def randomize(scale: jax.Array) -> diffsim.Model:
        opt = model.opt.replace(timestep=scale * model.opt.timestep)
        return model.replace(body_mass=scale * model.body_mass, opt=opt)

    models = jax.vmap(randomize, out_axes=named)(scales)
    assert models.geom_size.shape == model.geom_size.shape and models.body_mass.shape == (4, model.nbody)
    is_axis = lambda leaf: leaf is None  # noqa: E731
    assert jax.tree.leaves(diffsim.model_axes(models), is_leaf=is_axis) == jax.tree.leaves(named, is_leaf=is_axis)
    assert set(jax.tree.leaves(diffsim.model_axes(model), is_leaf=is_axis)) == {None}


def test_the_readout_sees_every_step(model: diffsim.Model) -> None:
    state = diffsim.make_state(model)
    final, times = diffsim.rollout(model, state, jnp.ones((5, 1)), lambda state, data: state.time)
    np.testing.assert_allclose(times, 0.002 * np.arange(5), atol=1e-12)
    assert float(final.time) == pytest.approx(0.01)
    final, states = diffsim.rollout(model, state, jnp.ones((5, 1)))
    assert states.qpos.shape == (5, 1)


def test_gradients_of_a_model_are_a_model(model: diffsim.Model) -> None:
    loss = lambda m: diffsim.step(m, diffsim.make_state(model, "up")).qvel[0]  # noqa: E731
    slope = uncompiled(jax.grad(loss))(model)
    assert isinstance(slope, diffsim.Model)
    # v' = v + h (tau - b v) / I: the derivative by damping is -h v / I to first order
    assert float(slope.dof_damping[0]) < 0
    assert slope.topology is model.topology


@pytest.mark.parametrize(
    ("ask", "where"),
    [
        (lambda model, state, inputs, data: data.qpos, "it is in State: state.qpos"),
        (lambda model, state, inputs, data: state.ctrl, "it is in Inputs: inputs.ctrl"),
        (lambda model, state, inputs, data: state.replace(ctrl=1.0), "it is in Inputs: inputs.ctrl"),
        (lambda model, state, inputs, data: inputs.xpos, "it is in Data: data.xpos"),
        (lambda model, state, inputs, data: model.timestep, "it is in Option: model.opt.timestep"),
        (lambda model, state, inputs, data: model.keyframe("home"), r"use model.key\(name\)"),
        (lambda model, state, inputs, data: data.ncon, r"diffsim.support.contacts\(model, data\)"),
        (lambda model, state, inputs, data: state.qpso, "did you mean 'qpos'"),
    ],
)
def test_a_field_that_is_looked_for_elsewhere_is_told_where_it_is(ask, where) -> None:
    model = diffsim.load('<mujoco><worldbody><body><joint/><geom size="1"/></body></worldbody></mujoco>')
    state, inputs = diffsim.make_state(model), diffsim.make_inputs(model)
    data = jax.eval_shape(diffsim.forward, model, state)
    with pytest.raises((AttributeError, TypeError), match=where):
        ask(model, state, inputs, data)
    assert not hasattr(state, "__jax_array__")


def test_states_and_inputs_by_hand_compile_nothing() -> None:
    """Each shape would otherwise be an operation that JAX compiles, a third of a second before a first step."""

    def arm(joints: int) -> diffsim.Model:
        hinges = '<joint armature="1"/>' * joints
        body = f"<body mocap='true'/><body>{hinges}<geom size='.1'/></body>"
        return diffsim.load(f"<mujoco><worldbody>{body}</worldbody><keyframe><key time='1'/></keyframe></mujoco>")

    first, second = arm(1), arm(3)
    diffsim.make_state(first, 0)
    with compilations() as seen:
        state, inputs = diffsim.make_state(second, 0), diffsim.make_inputs(second, 0)
    assert seen == []
    assert state.qvel.shape == (3,) and inputs.xfrc_applied.shape == (3, 6)


def test_a_topology_copies_what_others_can_change() -> None:
    """Arrays that nothing can write into are taken as they are."""
    topology = diffsim.load("cartpole").topology
    open_to_all = np.array(topology.jnt_type)
    closed = np.array(topology.dof_jntid)
    closed.flags.writeable = False
    view = np.array(topology.body_parentid)[:]
    view.flags.writeable = False
    other = dataclasses.replace(topology, jnt_type=open_to_all, dof_jntid=closed, body_parentid=view)
    open_to_all[:] = 99
    assert other == topology
    assert other.dof_jntid is closed
    assert other.body_parentid is not view
    np.testing.assert_array_equal(other.jnt_type, topology.jnt_type)
