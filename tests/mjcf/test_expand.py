"""replicate against MuJoCo: names and their order, poses of the copies, what is copied along."""

import numpy as np
import oracle
import pytest

from diffsim.base.errors import MjcfError
from diffsim.mjcf import read
from diffsim.mjcf.elements import Actuator, Body, Equality, Exclude, Frame, Geom, Joint, Pair, Sensor, Site, Tendon

REPLICATED = """
<mujoco>
  <compiler eulerseq="{eulerseq}"/>
  <default><default class="k"><geom size=".1"/></default></default>
  <worldbody>
    <site name="out"/>
    <body name="ob"><geom size="1"/><joint name="oj"/></body>
    <replicate count="10" offset="1 0.2 0" sep="-" euler="5 20 10" childclass="k">
      <geom name="gg" pos="0 0 1"/>
      <replicate count="2" offset="0 1 0">
        <body name="b"><joint name="j"/><geom name="g"/><site name="s"/></body>
      </replicate>
    </replicate>
    <body name="after"><geom size="1"/></body>
  </worldbody>
  <contact>
    <exclude body1="b" body2="ob"/><exclude name="e" body1="ob" body2="after"/><pair geom1="g" geom2="gg"/>
  </contact>
  <tendon>
    <fixed name="t"><joint joint="j" coef="1"/></fixed>
    <spatial name="sp"><site site="s"/><site site="out"/></spatial>
  </tendon>
  <actuator>
    <motor name="m" tendon="t"/><motor name="oo" joint="oj"/><motor name="m2" joint="j"/>
    <motor name="m3" joint="j0-03"/>
  </actuator>
  <sensor>
    <jointpos name="jp" joint="j"/>
    <framepos name="fp" objtype="body" objname="b" reftype="body" refname="ob"/>
    <actuatorpos name="ap" actuator="m"/>
  </sensor>
  <equality><weld name="w" body1="b"/></equality>
</mujoco>
"""
LISTS = {
    Body: ("body", "nbody"),
    Joint: ("joint", "njnt"),
    Geom: ("geom", "ngeom"),
    Site: ("site", "nsite"),
    Pair: ("pair", "npair"),
    Exclude: ("exclude", "nexclude"),
    Tendon: ("tendon", "ntendon"),
    Actuator: ("actuator", "nu"),
    Sensor: ("sensor", "nsensor"),
    Equality: ("equality", "neq"),
}


@pytest.fixture(scope="module")
def compiled():
    return oracle.mujoco.MjModel.from_xml_string(REPLICATED.format(eulerseq="xYz"))


@pytest.mark.parametrize("cls", LISTS, ids=lambda cls: cls.__name__)
def test_names_in_order(cls, compiled):
    spec = read(REPLICATED.format(eulerseq="xYz"))
    accessor, size = LISTS[cls]
    kind = getattr(oracle.mujoco.mjtObj, f"mjOBJ_{accessor.upper()}")
    expected = [oracle.mujoco.mj_id2name(compiled, kind, index) or "" for index in range(getattr(compiled, size))]
    found = [element.name or "" for element in spec.all(cls)]
    if cls in (Geom, Site, Exclude):  # MuJoCo lists them body by body, exclusions by body pair
        found, expected = sorted(found), sorted(expected)
    assert found == expected


def euler_to_quat(euler, eulerseq):
    quat = np.zeros(4)
    oracle.mujoco.mju_euler2Quat(quat, np.deg2rad(euler), eulerseq)
    return quat


@pytest.mark.parametrize("eulerseq", ["xyz", "XYZ", "zYx"])
def test_poses_of_frames(eulerseq):
    """The body's pose in MuJoCo is the pose of its two frames, whose angles MuJoCo itself turns into quaternions."""
    text = REPLICATED.format(eulerseq=eulerseq)
    compiled, spec = oracle.mujoco.MjModel.from_xml_string(text), read(text)
    for name in ("b0-00", "b1-00", "b0-04", "b1-07"):
        inner = spec.names["body"][name].parent
        position, quat = np.zeros(3), np.array([1.0, 0, 0, 0])
        for frame in (inner, inner.parent):
            assert isinstance(frame, Frame)
            turn, turned, moved = euler_to_quat(frame.euler, eulerseq), np.zeros(4), np.zeros(3)
            oracle.mujoco.mju_mulQuat(turned, turn, quat)
            oracle.mujoco.mju_rotVecQuat(moved, position, turn)
            position, quat = frame.pos + moved, turned
        index = compiled.body(name).id
        np.testing.assert_allclose(position, compiled.body_pos[index], atol=1e-12)
        np.testing.assert_allclose(quat, compiled.body_quat[index], atol=1e-12)


def test_parents_and_classes_of_copies():
    spec = read(REPLICATED.format(eulerseq="xyz"))
    for element in spec.walk():
        assert all(child.parent is element for child in element.children)
    assert spec.resolve(spec.names["geom"]["g1-09"]).size[0] == 0.1


def test_copies_are_bounded():
    nested = "<replicate count='1000'>" * 3 + "<geom size='1'/>" + "</replicate>" * 3
    with pytest.raises(MjcfError, match="macros up to here would make more than"):
        read(f"<mujoco><worldbody>{nested}</worldbody></mujoco>")


def test_sensors_without_references_are_not_copied():
    world = "<worldbody><replicate count='3'><geom size='1'/></replicate></worldbody>"
    assert len(read(f"<mujoco>{world}<sensor><clock/></sensor></mujoco>").all(Sensor)) == 1
