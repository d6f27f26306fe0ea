"""A state is carried over to an edited model: beside the oracle's recompilation, in batches, without names."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracle import mujoco

import diffsim
from diffsim import support

XML = """<mujoco>
  <default><joint armature=".1"/></default>
  <worldbody>
    <body name="target" mocap="true" pos="1 0 1"><geom size=".1" contype="0" conaffinity="0"/></body>
    <body name="cart"><joint name="slide" type="slide"/><geom size=".1"/>
      <body pos="0 0 .3"><joint name="hinge" pos="0 0 .1"/><joint type="ball"/><geom size=".1"/>
        <body pos="0 0 .3"><joint axis="0 1 0"/><geom size=".1"/></body></body></body>
    <body name="loose" pos="2 0 1"><freejoint/><geom size=".1"/></body>
  </worldbody>
  <equality><joint name="hold" joint1="slide" active="false"/></equality>
  <actuator>
    <general name="servo" joint="slide" dyntype="filter" dynprm=".1"/>
    <motor joint="hinge" delay=".01" nsample="5"/>
    <general joint="hinge" dyntype="integrator"/>
  </actuator>
  <sensor><jointpos name="where" joint="slide" delay=".02" nsample="4"/></sensor>
</mujoco>"""
# a body before the others, a joint before others, an actuator with activation before the others; "loose" is gone
EDITED = (
    XML.replace("<worldbody>", '<worldbody><body name="new" pos="5 0 1"><freejoint/><geom size=".1"/></body>')
    .replace('<body name="cart">', '<body name="cart"><joint name="rise" type="slide" axis="0 0 1"/>')
    .replace("<actuator>", '<actuator><general name="first" joint="rise" dyntype="filter" dynprm=".2"/>')
    .replace('<body name="loose" pos="2 0 1"><freejoint/><geom size=".1"/></body>', "")
)


def filled(record: diffsim.State | diffsim.Inputs, seed: int) -> diffsim.State | diffsim.Inputs:
    """Other numbers everywhere."""
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda leaf: jnp.asarray(rng.uniform(0.1, 1, leaf.shape), leaf.dtype), record)


def test_what_both_models_have_is_carried_over() -> None:
    old, new = diffsim.load(XML), diffsim.load(EDITED)
    state, inputs = filled(diffsim.make_state(old), 0), filled(diffsim.make_inputs(old), 1)
    carried, told = support.carry_over(old, new, state), support.carry_over(old, new, inputs)
    start = diffsim.make_state(new)
    # new free joint; new slide; then slide, hinge, ball and the nameless hinge as before
    np.testing.assert_array_equal(carried.qpos[:8], start.qpos[:8])
    np.testing.assert_array_equal(carried.qpos[8:], state.qpos[:7])
    for name in ("qvel", "qacc_warmstart"):
        np.testing.assert_array_equal(getattr(carried, name)[:7], 0)
        np.testing.assert_array_equal(getattr(carried, name)[7:], getattr(state, name)[:6])
    np.testing.assert_array_equal(carried.act, [0, *np.asarray(state.act)])
    np.testing.assert_array_equal(carried.history, state.history)
    assert carried.time == state.time
    np.testing.assert_array_equal(told.ctrl, [0, *np.asarray(inputs.ctrl)])
    np.testing.assert_array_equal(told.qfrc_applied[7:], inputs.qfrc_applied[:6])
    np.testing.assert_array_equal(told.xfrc_applied[3:], inputs.xfrc_applied[2:5])
    np.testing.assert_array_equal(told.xfrc_applied[1], 0)
    for name in ("mocap_pos", "mocap_quat", "eq_activity"):
        np.testing.assert_array_equal(getattr(told, name), getattr(inputs, name))


def test_the_oracle_carries_the_same() -> None:
    spec = mujoco.MjSpec.from_string(XML)
    mjmodel = spec.compile()
    data = mujoco.MjData(mjmodel)
    old = diffsim.load(XML)
    state = filled(diffsim.make_state(old), 2)
    data.qpos, data.qvel, data.act = (np.asarray(getattr(state, name)) for name in ("qpos", "qvel", "act"))
    spec.delete(spec.body("loose"))
    added = spec.worldbody.add_body(name="new", pos=[5, 0, 1])
    added.add_freejoint()
    added.add_geom(size=[0.1, 0, 0])
    spec.body("cart").add_joint(name="rise", type=mujoco.mjtJoint.mjJNT_SLIDE, axis=[0, 0, 1])
    mjmodel, data = spec.recompile(mjmodel, data)
    new = diffsim.load(spec.to_xml())
    carried = support.carry_over(old, new, state)
    for name in ("qpos", "qvel", "act"):
        np.testing.assert_allclose(getattr(carried, name), getattr(data, name), rtol=1e-6, err_msg=name)


def test_a_joint_of_another_type_begins_anew() -> None:
    old = diffsim.load(XML)
    new = diffsim.load(XML.replace('<joint name="hinge"', '<joint name="hinge" type="slide"'))
    state = filled(diffsim.make_state(old), 3)
    carried = support.carry_over(old, new, state)
    assert carried.qpos[1] == 0
    np.testing.assert_array_equal(np.delete(carried.qpos, 1), np.delete(state.qpos, 1))


def test_batches_are_carried_over_in_programs_too() -> None:
    old, new = diffsim.load(XML), diffsim.load(EDITED)
    states = jax.vmap(lambda seed: jax.tree.map(lambda leaf: leaf + seed, diffsim.make_state(old)))(jnp.arange(3.0))
    many = jax.jit(jax.vmap(lambda state: support.carry_over(old, new, state)))(states)
    last = support.carry_over(old, new, jax.tree.map(lambda leaf: leaf[2], states))
    jax.tree.map(lambda leaf, own: np.testing.assert_array_equal(leaf[2], own), many, last)
    slope = jax.grad(lambda q: support.carry_over(old, new, diffsim.make_state(old).replace(qpos=q)).qpos.sum())(
        old.qpos0
    )
    np.testing.assert_array_equal(slope, [1.0] * 7 + [0.0] * 7)


def test_what_is_no_record_of_the_model_is_refused() -> None:
    old, new = diffsim.load(XML), diffsim.load(EDITED)
    with pytest.raises(ValueError, match="another model"):
        support.carry_over(new, old, diffsim.make_state(old))
    with pytest.raises(TypeError, match="record"):
        support.carry_over(old, old, old.qpos0)
