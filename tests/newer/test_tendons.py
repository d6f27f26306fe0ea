"""Changes of the paths of tendons."""

import numpy as np
import pytest

from tests.newer.newer import assert_slopes, assert_steps, forward, given, load, needs_newer, oracle

pytestmark = needs_newer

# strings from one moving site to another around a sphere, a cylinder, or a tilted cylinder that moves itself; the side
# sites are fixed, moving, inside the geom, or missing
GEOMS = {
    "ball": '<geom name="ball" size="0.1"/>',
    "post": '<geom name="post" type="cylinder" size="0.1 0.5"/>',
    "drum": '<geom name="drum" type="cylinder" size="0.08 0.5" euler="70 20 0"/>',
}
STRING = """<mujoco><option gravity="0 0 -1"><flag contact="disable"/></option><worldbody>
  <body><joint axis="0 1 0" damping="0.1"/>{geom}<site name="inside" pos="0.03 0.02 0"/>
    <site name="near" pos="0.12 0.05 0.02"/></body><site name="far" pos="-0.1 -0.4 0.1"/>
  <body pos="0.25 0 0"><joint type="slide" axis="0 1 0"/><joint type="slide" axis="1 0 1"/><joint axis="0 0 1"/>
    <geom size="0.1"/><site name="a" pos="0 0.1 0.1"/></body>
  <body pos="-0.3 0 0"><joint type="slide" axis="0 1 0"/><joint type="slide" axis="1 0 0"/><geom size="0.1"/>
    <site name="b"/></body></worldbody>
  <tendon>{tendons}</tendon><actuator>{motors}</actuator></mujoco>"""
SPATIAL = """<spatial name="{side}" stiffness="5" damping="0.1" springlength="0.1"><site site="a"/>
  <geom geom="{geom}" {say}/><site site="b"/></spatial>"""
SIDES = ("near", "far", "inside", "")


def string(geom: str) -> str:
    """The model of a geom with a string for each kind of side site."""
    say = {side: f'sidesite="{side}"' if side else "" for side in SIDES}
    tendons = "".join(SPATIAL.format(side=side, geom=geom, say=say[side]) for side in SIDES)
    return STRING.format(geom=GEOMS[geom], tendons=tendons, motors='<motor tendon="near"/><motor tendon="far"/>')


@pytest.mark.parametrize("version", ["3.17", "4.0"])
@pytest.mark.parametrize("geom", GEOMS)
def test_side_sites(geom: str, version: str) -> None:
    xml = string(geom)
    states = oracle(version).sample(xml, count=60, spread=0.3)
    data = forward(load(xml, version), *given(load(xml, version), states))
    theirs = oracle(version).run(xml, states, ("ten_length", "ten_velocity", "ten_wrapnum"), steps=0)
    # three points of a path that touches from within, four around, two else
    assert set(theirs["ten_wrapnum"][:, :2].ravel().tolist()) == {2, 4}
    np.testing.assert_allclose(data.ten_length, theirs["ten_length"], atol=1e-9)
    # MuJoCo's iteration for paths that touch from within stops early
    np.testing.assert_allclose(data.ten_velocity, theirs["ten_velocity"], atol=2e-6)
    default = forward(load(xml, "3.8.1"), *given(load(xml, "3.8.1"), states)).ten_length
    others = np.abs(default - data.ten_length).max(axis=0) > 1e-3
    assert others.tolist() == ([True, True, False, False] if version == "4.0" else [False] * 4)


@pytest.mark.parametrize("geom", GEOMS)
def test_side_sites_have_derivatives(geom: str) -> None:
    xml = string(geom)
    states = oracle().sample(xml, count=4, spread=0.3)
    assert_steps(xml, states, 1e-9)
    assert_slopes(xml, states, 1e-6)
