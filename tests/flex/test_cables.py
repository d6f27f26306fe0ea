"""Cables: `<composite type="cable">` and the plugin that makes it bend and twist, as the oracle has them."""

import numpy as np
import pytest
from compiler.compare import differences
from flex.models import check_slopes, velocity_along
from oracle import mujoco, state_of
from uncompiled import uncompiled

import diffsim
from diffsim import mjcf
from diffsim.base.errors import MjcfError, UnsupportedError

PLUGIN = """<plugin plugin="mujoco.elasticity.cable"><config key="twist" value="{}"/><config key="bend" value="{}"/>
  <config key="flat" value="{}"/></plugin><joint kind="main" damping=".01" armature=".001"/>"""
WAVE = '<composite prefix="a" type="cable" curve="cos(s) sin(s) s" count="6 1 1" size=".4 .2 1.5" offset="0 0 1" {}>{}'
WAVE += '<geom type="{}" size=".01" rgba="1 0 0 1" condim="1"/><site size=".02"/></composite>'
GIVEN = """<composite type="cable" vertex="0 0 0 .1 0 0 .2 .1 0 .3 .1 .1" initial="none">
  <geom type="capsule" size=".02"/><plugin plugin="mujoco.elasticity.cable" instance="mine"/></composite>"""
EXTENSION = """<extension><plugin plugin="mujoco.elasticity.cable"><instance name="mine">
  <config key="bend" value="1e5"/></instance></plugin></extension><default><geom solref=".01 1"/></default>"""


def model(inside: str) -> str:
    """MJCF with a plane below."""
    return f"""<mujoco>{EXTENSION}<worldbody><geom type="plane" size="1 1 1"/>
      <frame pos="0 0 .2" euler="0 20 0">{inside}</frame></worldbody></mujoco>"""


CABLES = {
    "a free wave": model(WAVE.format('initial="free"', PLUGIN.format(1e6, 2e6, "false"), "cylinder")),
    "a wave that was flat": model(WAVE.format("", PLUGIN.format(1e6, 2e6, "true"), "capsule")),
    "points, an instance": model(GIVEN),
    "boxes": model(
        WAVE.format("", PLUGIN.format(1e6, 2e6, "true"), "box").replace('size=".01"', 'size=".05 .02 .003"')
    ),
    "boxes with a smooth skin": model(
        WAVE.format(
            "", PLUGIN.format(1e6, 2e6, "true") + '<skin subgrid="3" texcoord="true" group="1"/>', "box"
        ).replace('size=".01"', 'size=".05 .02 .003"')
    ),
    "without elasticity": model(WAVE.format("", "", "capsule").replace("cos(s) sin(s) s", "0 0 s")),
}


@pytest.mark.parametrize("name", CABLES)
def test_compiled_and_moved_as_by_the_oracle(name: str) -> None:
    mjmodel = mujoco.MjModel.from_xml_string(CABLES[name])
    ours = diffsim.load(CABLES[name])
    assert differences(ours, mjmodel) == []
    data = mujoco.MjData(mjmodel)
    data.qvel[:] = np.random.default_rng(0).standard_normal(mjmodel.nv)
    for _ in range(20):
        mujoco.mj_step(mjmodel, data)
    mujoco.mj_forward(mjmodel, data)
    found = uncompiled(diffsim.forward)(ours, state_of(data))
    for field in ("qfrc_passive", "qacc_smooth"):
        theirs = getattr(data, field)
        assert np.max(np.abs(getattr(found, field) - theirs)) <= 1e-12 * max(np.max(np.abs(theirs)), 1e-6), field


def test_slopes() -> None:
    """By state, stiffness, curvature and length."""
    ours = diffsim.load(CABLES["a free wave"])
    rng = np.random.default_rng(0)
    push, weight = rng.normal(size=(2, ours.nv))
    names = ("cable_stiffness", "cable_curvature", "cable_length")
    known = {name: np.asarray(getattr(ours, name)) for name in names}
    change = {name: 0.1 * rng.normal(size=value.shape) * value for name, value in known.items()}
    state = diffsim.make_state(ours)
    start = uncompiled(diffsim.step)(ours, state.replace(qvel=0.3 * push))
    check_slopes(velocity_along(ours, start, change, push), weight, 1e-3, 1e-9)


def test_what_is_not_made_is_said() -> None:
    with pytest.raises(MjcfError, match="needs at least three points"):
        diffsim.load(model(WAVE.format("", '<skin subgrid="1"/>', "box").replace("6 1 1", "2 1 1")))
    with pytest.raises(MjcfError, match="MuJoCo removed composites"):
        mjcf.read(model('<composite type="rope" count="3 1 1" size="1"/>'))
    with pytest.raises(UnsupportedError, match="plugin is not supported here"):
        diffsim.load(model('<plugin plugin="mujoco.elasticity.other"/><geom size=".1"/>'))
    with pytest.raises(UnsupportedError, match="and bodies; load the XML"):
        diffsim.compiler.convert.from_mujoco(mujoco.MjModel.from_xml_string(CABLES["points, an instance"]))
