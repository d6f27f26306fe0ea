"""Changes of sensors, and of bodies that cannot move."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import diffsim
from diffsim.base.enums import ObjType
from tests.newer.newer import WIDTH, assert_steps, forward, given, load, needs_newer, oracle
from tests.uncompiled import uncompiled

pytestmark = needs_newer

FIXED = """<mujoco><option gravity="1 2 -9"/><worldbody><site name="w" euler="30 0 0"/><geom name="w" size=".1"/>
  <body name="fixed" pos="0 0 2" euler="0 40 0"><geom size=".1" euler="10 20 30"/><site name="fixed"/></body>
  <body mocap="true" euler="0 40 0" pos="1 0 0"><geom size=".1"/><site name="mocap"/>
    <body name="child" pos="0 1 0"><geom size=".1"/></body></body>
  <body name="arm" pos="2 0 0"><joint axis="0 1 0"/><geom size=".1" pos="0.3 0 0"/><site name="arm" euler="1 2 3"/>
  </body></worldbody><sensor><accelerometer site="w"/><accelerometer site="fixed"/><accelerometer site="mocap"/>
  <accelerometer site="arm"/><framelinacc objtype="body" objname="fixed"/><framelinacc objtype="xbody" objname="child"/>
  <framelinacc objtype="geom" objname="w"/><frameangacc objtype="xbody" objname="child"/>
  <gyro site="mocap"/><framelinvel objtype="xbody" objname="child"/></sensor></mujoco>"""


@pytest.mark.parametrize("version", ["3.17", "4.0"])
def test_accelerometers_of_bodies_that_cannot_move(version: str) -> None:
    model, states = load(FIXED, version), oracle(version).sample(FIXED, count=3)
    data = forward(model, *given(model, states))
    theirs = oracle(version).run(FIXED, states, ("sensordata",), steps=0)["sensordata"]
    np.testing.assert_allclose(data.sensordata, theirs, atol=1e-12)
    assert np.any(theirs[:, :9]) == (version == "4.0")

    def reading(gravity: jax.Array) -> jax.Array:
        opt = model.opt.replace(gravity=gravity)
        changed = model.replace(opt=opt)
        state, inputs = diffsim.make_state(changed), diffsim.make_inputs(changed)
        data = diffsim.forward(changed, state, inputs)
        one = diffsim.support.object_acceleration(changed, data, ObjType.SITE, "fixed", local=True)[3:]
        return jnp.stack([data.sensordata[3:6], one])

    slopes = uncompiled(jax.jacrev(reading))(jnp.array([1.0, 2, -9]))
    # gravity in the axes of the site, or nothing
    turn = np.asarray(data.site_xmat[0, 1]).T if version == "4.0" else np.zeros((3, 3))
    for slope in slopes:
        np.testing.assert_allclose(slope, -turn, atol=1e-12)


# a hinge on a mocap body, whose geoms overlap; two mocap bodies that overlap; a ball on one of them
CARRIED = """<mujoco><worldbody><geom type="plane" size="1 1 1"/><body mocap="true" pos="0 0 0.1"><geom size="0.2"/>
  <body name="welded"><geom size="0.1" pos="0 0 0.2"/></body>
  <body pos="0 0 0.2"><joint axis="0 1 0"/><geom type="capsule" size="0.05" fromto="0 0 0 0.3 0 0"/></body></body>
  <body mocap="true" pos="0.1 0 0.1"><geom size="0.1"/></body>
  <body pos="0 0.15 0.25"><freejoint/><geom size="0.1"/></body></worldbody></mujoco>"""


@pytest.mark.parametrize("version", ["3.17", "4.0"])
def test_mocap_bodies_are_apart_from_the_world(version: str) -> None:
    states = oracle(version).sample(CARRIED, count=3, spread=0.01)
    data = forward(load(CARRIED, version), *given(load(CARRIED, version), states))
    assert (
        load(CARRIED, version).topology.body_weldid.tolist()
        == oracle(version).compiled(CARRIED)["body_weldid"].tolist()
    )
    listed = np.asarray((data.contact.dist < data.contact.margin) & (data.contact.geom[..., 0] >= 0))
    theirs = oracle(version).run(CARRIED, states, steps=0)["contacts"]
    assert listed.sum() == len(theirs)
    # the hinge's geom touches the mocap body's
    before = forward(load(CARRIED, "3.8.1"), *given(load(CARRIED, "3.8.1"), states)).contact
    assert np.sum((before.dist < before.margin) & (before.geom[..., 0] >= 0)) > listed.sum()
    assert_steps(CARRIED, states, 1e-9, version=version)


# tendons with everything that can act along them: around a geom, over a pulley, straight; welds of bodies and of sites
PULLED = """<mujoco><worldbody><site name="o" pos="0 0 1"/><site name="o2" pos="0.3 0.1 1"/>
  <body name="a"><joint axis="0 1 0" damping="0.1"/><geom size=".05" pos="0.4 0 0"/><site name="a" pos="0.4 0.05 0"/>
    <geom name="drum" type="cylinder" size=".08 .2" euler="90 0 0" contype="0" conaffinity="0" mass="0.1"/>
    <body name="b" pos="0.4 0 0"><joint axis="0 1 0.3"/><geom size=".05" pos="0.3 0 0.1"/>
      <site name="b" pos="0.1 0 0.1"/>
      <body name="c" pos="0.3 0 0" euler="10 20 30"><geom size=".03"/><site name="c" pos="0.05 0.02 0.1"/></body></body>
  </body><body name="free" pos="0.5 0.2 -0.5"><freejoint/><geom size="0.1"/>
    <site name="f" pos="0.05 0 0.1"/></body>
  <body name="welded" pos="-1 0 0"><freejoint/><geom type="box" size="0.1 0.2 0.3"/>
    <site name="w" euler="5 6 7"/></body>
  <body name="other" pos="-1 0 1"><joint name="j" axis="1 0 0"/><geom type="box" size="0.1 0.2 0.1" pos="0 0.3 0"/>
    <site name="v" euler="10 40 7"/><body name="tip"><geom size="0.1"/><site name="t"/></body></body></worldbody>
  <tendon><spatial name="spring" stiffness="30" damping="2" springlength="0.3">
      <site site="o"/><site site="c"/></spatial>
    <spatial name="wrapped" frictionloss="0.7" range="0 0.6" {armature}>
      <site site="o2"/>{drum}<site site="b"/></spatial>
    <spatial name="pulley" stiffness="10"><site site="o"/><site site="a"/><pulley divisor="2"/>
      <site site="f"/><site site="b"/></spatial><spatial name="held"><site site="f"/><site site="c"/></spatial>
    <fixed name="none" stiffness="3"><joint joint="j" coef="2"/></fixed></tendon>
  <actuator><motor tendon="wrapped" gear="2"/><position tendon="spring" kp="5"/><motor tendon="none"/></actuator>
  <equality><tendon tendon1="held" tendon2="pulley" polycoef="0 0.8 0.3"/><weld body1="tip" body2="welded"/>
    <weld site1="w" site2="v" torquescale="0.4"/></equality>
  <sensor><force site="a"/><torque site="a"/><force site="b"/><torque site="b"/><force site="c"/><torque site="c"/>
    <force site="f"/><torque site="f"/><force site="w"/><torque site="w"/><force site="t"/><torque site="t"/></sensor>
</mujoco>"""


@pytest.mark.parametrize("version", ["3.17", "4.0"])
@pytest.mark.parametrize("drum", ["", '<geom geom="drum"/>'])
def test_forces_of_tendons_and_torques_of_welds(version: str, drum: str) -> None:
    # a tendon with armature cannot go around a geom
    xml = PULLED.format(drum=drum, armature="" if drum else 'armature="0.3"')
    model, states = load(xml, version), oracle(version).sample(xml, count=4)
    data = forward(model, *given(model, states))
    theirs = oracle(version).run(xml, states, ("sensordata", "cfrc_ext"), steps=0)
    np.testing.assert_allclose(data.cfrc_ext, theirs["cfrc_ext"], rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(data.sensordata, theirs["sensordata"], rtol=1e-7, atol=1e-7)
    default = forward(load(xml, "3.8.1"), *given(load(xml, "3.8.1"), states)).sensordata
    assert np.abs(default - data.sensordata).max() > 1


def test_forces_of_tendons_have_derivatives() -> None:
    xml = PULLED.format(drum='<geom geom="drum"/>', armature="")
    model, states = load(xml), oracle().sample(xml, count=2)
    rng = np.random.default_rng(1)
    way = {name: rng.normal(size=states[name].shape) for name in ("qvel", "ctrl")}
    theirs = [
        oracle().run(xml, states | {n: states[n] + sign * WIDTH * d for n, d in way.items()}, ("sensordata",), steps=0)
        for sign in (-1, 1)
    ]

    def readings(model: diffsim.Model, state: Any, inputs: Any, move: Any) -> jax.Array:
        moved = state.replace(qvel=state.qvel + move["qvel"]), inputs.replace(ctrl=inputs.ctrl + move["ctrl"])
        return diffsim.forward(model, *moved).sensordata

    def slopes(model: diffsim.Model, state: Any, inputs: Any, way: Any) -> tuple[jax.Array, jax.Array, jax.Array]:
        still = jax.tree.map(jnp.zeros_like, way)
        tangent = jax.jvp(lambda move: readings(model, state, inputs, move), (still,), (way,))[1]
        weights = jnp.cos(jnp.arange(tangent.size))
        back = jax.vjp(lambda move: readings(model, state, inputs, move), still)[1](weights)[0]
        pulled = sum(jnp.vdot(a, b) for a, b in zip(jax.tree.leaves(back), jax.tree.leaves(way), strict=True))
        return tangent, pulled, jnp.vdot(weights, tangent)

    tangent, pulled, pushed = uncompiled(jax.vmap(slopes, in_axes=(None, 0, 0, 0)))(model, *given(model, states), way)
    np.testing.assert_allclose(pulled, pushed, rtol=1e-9, atol=1e-9)
    difference = (theirs[1]["sensordata"] - theirs[0]["sensordata"]) / (2 * WIDTH)
    np.testing.assert_allclose(tangent, difference, rtol=1e-4, atol=1e-3)


# mujoco#832: a hook of 1 g, on which 1 kg hangs by a string
HOOK = """<mujoco><worldbody><body name="hook" pos="0 0 1"><geom size="0.01" mass="0.001"/><site name="hook"/></body>
  <body name="mass"><freejoint/><geom size="0.05" mass="1"/><site name="mass"/></body></worldbody>
  <tendon><spatial range="0 1"><site site="hook"/><site site="mass"/></spatial></tendon>
  <sensor><force site="hook"/></sensor></mujoco>"""


def test_a_force_sensor_feels_what_hangs_on_a_tendon() -> None:
    states = oracle().sample(HOOK, count=1, spread=0, speed=0, force=0)
    states |= {name: oracle().run(HOOK, states, steps=1000)[name] for name in ("qpos", "qvel")}
    for version, expected in (("3.8.1", 0.00981), ("4.0", 0.00981 + 9.81)):
        model = load(HOOK, version)
        reading = np.asarray(forward(model, *given(model, states)).sensordata)
        np.testing.assert_allclose(np.abs(reading[0, 2]), expected, rtol=1e-3)


# a pad with tangents and a ball, which touch a plane and two geoms
PAD = """<mujoco><asset><mesh name="pad" builtin="plate" params="9 7" scale=".3 .2 .1"/>
  <mesh name="tip" builtin="sphere" params="2" scale=".12 .12 .12"/></asset><worldbody>
  <geom type="plane" size="3 3 .1" pos="0 0 -.05" euler="2 0 0"/><geom type="box" size=".2 .2 .1" pos=".3 0 0"/>
  <geom size=".2" pos="-.3 .1 -.06"/><geom type="capsule" size=".1 .2" pos="0 .1 0" euler="90 20 0"/>
  <body pos="0 0 {}" euler="5 3 20"><freejoint/><geom type="box" size=".3 .2 .1" mass="1"/>
  <geom name="pad" type="mesh" mesh="pad" mass="0" contype="0" conaffinity="0" pos="0 0 -.01"/>
  <geom name="tip" type="mesh" mesh="tip" mass="0" contype="0" conaffinity="0" euler="10 20 30"/></body>
  </worldbody><sensor><tactile geom="pad" mesh="pad"/><tactile geom="tip" mesh="tip"/></sensor></mujoco>"""


@pytest.mark.parametrize("version", ["3.17", "4.0"])
def test_tactile_sensors_return_depths(version: str) -> None:
    for height in (0.1, 0.14):
        xml = PAD.format(height)
        model, states = load(xml, version), oracle(version).sample(xml, count=2, spread=0.01)
        data = forward(model, *given(model, states))
        theirs = oracle(version).run(xml, states, ("sensordata",), steps=0)["sensordata"]
        np.testing.assert_allclose(data.sensordata, theirs, atol=1e-9)
        assert np.count_nonzero(theirs) > 20
    # raised by dz, a depth in the plane, the deepest geom for some vertices, changes by -dz / cos
    state, inputs = given(model, states)

    def depths(height: jax.Array) -> jax.Array:
        raised = jax.tree.map(lambda leaf: leaf[0], state)
        raised = raised.replace(qpos=raised.qpos.at[2].set(height))
        return diffsim.forward(model, raised, jax.tree.map(lambda leaf: leaf[0], inputs)).sensordata

    at = jnp.asarray(state.qpos[0, 2])
    slope = np.asarray(uncompiled(jax.jacfwd(depths))(at))
    run = uncompiled(depths)
    near = np.asarray(run(at + 1e-6) - run(at - 1e-6)) / 2e-6
    smooth = np.abs(near - np.asarray(run(at + 2e-6) - run(at - 2e-6)) / 4e-6) < 1e-6
    assert np.count_nonzero(slope[smooth]) > 10
    np.testing.assert_allclose(slope[smooth], near[smooth], atol=1e-6)
