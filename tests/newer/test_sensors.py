"""Changes of sensors, and of bodies that cannot move."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import diffsim
from diffsim.base.enums import ObjType
from tests.newer.newer import assert_steps, forward, given, load, needs_newer, oracle
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
