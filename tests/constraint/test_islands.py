"""Islands of trees, dofs and rows as the oracle lists them: by blocks of M and in one block, or none by the flag."""

import numpy as np
import pytest
from oracle import load_oracle, mujoco

import diffsim
from diffsim.compiler.convert import from_mujoco
from diffsim.support import islands
from tests.uncompiled import uncompiled

# contacts, limits, dry friction, equalities and tendons, within trees, between them, and to the world
MIXED = """<mujoco><option jacobian="dense"/><worldbody><geom type="plane" size="5 5 1"/>
  <body name="a" pos="0 0 .098"><freejoint/><geom type="box" size=".1 .1 .1"/><site name="a"/></body>
  <body name="alone" pos="0 3 2"><freejoint/><geom size=".1"/></body>
  <body name="b" pos="0 .05 .295"><freejoint/><geom type="box" size=".1 .1 .1"/></body>
  <body pos="1 0 1"><joint name="j1" range="-10 10"/><geom size=".1"/>
    <body pos=".3 0 0"><joint name="j2" frictionloss="1"/><geom size=".1"/></body></body>
  <body pos="2 0 1"><joint name="k1"/><geom size=".1"/></body>
  <body pos="3 0 1"><joint name="k2"/><geom size=".1"/></body>
  <body name="c" pos="-1 0 1"><freejoint/><geom size=".1"/><site name="c"/></body>
  <body name="d" pos="-1 1 1"><joint name="d" type="ball" limited="true" range="0 20"/><geom size=".1"/>
    <site name="d" pos=".1 0 0"/></body>
  <body name="e" pos="-2 0 1"><joint name="e"/><geom size=".1"/><site name="e"/></body>
</worldbody>
<tendon><spatial name="t" limited="true" range="0 .2"><site site="c"/><site site="e"/></spatial>
  <spatial name="slack" limited="true" range="0 20"><site site="a"/><site site="d"/></spatial></tendon>
<equality><joint joint1="k1" joint2="k2" polycoef="0 1"/><weld body1="c" body2="world"/>
  <connect body1="d" body2="e" anchor="0 0 0" active="{held}"/></equality></mujoco>"""
MANY = """<mujoco><worldbody><geom type="plane" size="5 5 1"/><replicate count="6" offset=".19 0 0">
  <body pos="0 0 .099"><freejoint/><geom size=".1"/></body></replicate><replicate count="6" offset=".3 1 0">
  <body pos="0 1 .099"><freejoint/><geom size=".1"/></body></replicate></worldbody></mujoco>"""


@uncompiled
def islands_of(model, state):
    return islands(model, diffsim.forward(model, state))


@pytest.mark.parametrize("held", ["true", "false"])
@pytest.mark.parametrize("text", [MIXED, MANY], ids=["mixed", "many"])
def test_islands_are_those_of_the_oracle(text: str, held: str) -> None:
    mjmodel = load_oracle(text.format(held=held))
    model = from_mujoco(mjmodel)
    data = mujoco.MjData(mjmodel)
    data.qpos[:] = mjmodel.qpos0
    for joint in range(mjmodel.njnt):
        if mjmodel.jnt_type[joint] == mujoco.mjtJoint.mjJNT_HINGE:
            data.qpos[mjmodel.jnt_qposadr[joint]] = 0.4
        if mjmodel.jnt_type[joint] == mujoco.mjtJoint.mjJNT_BALL:
            start = mjmodel.jnt_qposadr[joint]
            data.qpos[start : start + 4] = np.sqrt(0.5), np.sqrt(0.5), 0, 0
    mujoco.mj_forward(mjmodel, data)
    found = islands_of(model, diffsim.make_state(model).replace(qpos=np.array(data.qpos)))
    count, rows = data.nisland, data.nefc
    assert count > 2 and found.nisland == count and found.nidof == data.nidof
    for name in found._fields[2:]:
        ours, theirs = np.asarray(getattr(found, name)), np.asarray(getattr(data, name))
        per_island = name.startswith("island_")
        long = count if per_island else rows if "efc" in name else len(theirs)
        np.testing.assert_array_equal(ours[:long], theirs[:long], name)
        assert np.all(ours[long:] == (-1 if "adr" in name or not per_island else 0))


def test_without_the_flag_there_are_none() -> None:
    model = from_mujoco(load_oracle(MANY))
    off = model.replace(opt=model.opt.replace(disableflags=int(diffsim.base.enums.DisableBit.ISLAND)))
    found = islands_of(off, diffsim.make_state(off))
    assert found.nisland == 0 and np.all(found.efc_island == -1) and np.all(found.tree_island == -1)
