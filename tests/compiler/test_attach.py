# ruff: noqa: E501
"""Attached models against the oracle: names, classes, settings, keyframes, what comes along and what stays behind."""

from typing import Any

import oracle
import pytest
from compiler.compare import differences

from diffsim.base.errors import MjcfError
from diffsim.load import load
from diffsim.types import Model

ARM = """<mujoco model="arm"><compiler angle="radian" eulerseq="ZYX" boundmass=".5" inertiafromgeom="true"/>
<default><geom size=".2"/><default class="k"><joint damping="3" range="-.5 .5"/><position kp="7"/></default></default>
<custom><numeric name="n" data="1"/><text name="t" data="x"/></custom><asset><material name="red" rgba="1 0 0 1"/></asset>
<worldbody><geom name="floor" size=".5"/>
<frame childclass="k" pos="3 0 0"><body name="a" pos="0 0 1"><joint name="j" ref=".1"/><geom name="g" material="red"/><site name="s"/>
<inertial pos="1 1 1" mass="0.1" diaginertia="1 1 1"/>
<body name="b" pos="0 0 1" euler=".1 .2 .3"><joint name="j2" type="slide"/><geom name="g2" class="main"/></body></body></frame>
<body name="m" mocap="true" pos="1 2 3"/></worldbody>
<contact><pair geom1="g" geom2="g2"/><pair geom1="g" geom2="floor"/><exclude body1="a" body2="world"/></contact>
<equality><weld body1="a" body2="world"/><weld body1="a"/><joint joint1="j" joint2="j2"/></equality>
<tendon><fixed name="t1"><joint joint="j" coef="1"/></fixed></tendon>
<actuator><motor name="m" joint="j"/><position class="k" tendon="t1"/><general joint="j2" dyntype="filter"/></actuator>
<sensor><clock name="c"/><jointpos name="p" joint="j"/><framepos objtype="body" objname="a" reftype="body" refname="world"/>
<framepos objtype="xbody" objname="world"/></sensor>
<keyframe><key name="k1" qpos="1 2" ctrl="1 2 3" act="4" mpos="7 8 9"/><key name="k2" qvel=".1 .2" time="3"/></keyframe></mujoco>"""

HAND = """<mujoco model="hand"><asset><model file="arm.xml"/></asset><worldbody><body name="palm"><freejoint name="f"/><geom size=".1"/>
<frame pos="1 0 0"><attach model="arm" body="a" prefix="l_"/></frame></body></worldbody><keyframe><key name="h" qpos="1 2 3 1 1 0 0 5 6"/></keyframe></mujoco>"""

HEAD = """<mujoco><asset><model name="x" file="arm.xml"/></asset><default><geom size=".7" mass="3"/><joint armature=".1"/></default>
<actuator><motor joint="A_j"/></actuator><keyframe><key name="own" qpos=".5"/></keyframe>"""

MODELS = {
    "body": HEAD
    + """<worldbody><body name="r"><joint name="rj" range="-20 20"/><geom/><frame pos="1 0 0" euler="0 0 90">
<attach model="x" body="a" prefix="A_"/></frame><body name="after"><joint/><geom/></body></body></worldbody></mujoco>""",
    "world": HEAD + '<worldbody><body name="r"><geom/></body><attach model="x" prefix="A_"/></worldbody></mujoco>',
    "twice": HEAD
    + """<worldbody><attach model="x" prefix="A_"/><frame euler="0 20 0"><attach model="x" prefix="B_"/></frame></worldbody></mujoco>""",
    "nested": """<mujoco><asset><model file="hand.xml"/></asset><worldbody><attach model="hand" body="palm" prefix="q_"/></worldbody></mujoco>""",
    "replicated": """<mujoco><asset><model name="x" file="plain.xml"/></asset><worldbody><replicate count="2" offset="1 0 0" sep="_">
<attach model="x" prefix="p_"/></replicate></worldbody></mujoco>""",
}
PLAIN = """<mujoco model="plain"><compiler angle="radian"/><worldbody><body name="a" euler="1 2 3"><joint name="j" range="-1 1"/><geom size="1"/></body>
</worldbody><actuator><motor name="m" joint="j"/></actuator></mujoco>"""
FILES = {"arm.xml": ARM.encode(), "hand.xml": HAND.encode(), "plain.xml": PLAIN.encode()}


def names_of(mjmodel: Any, kind: str, count: int) -> tuple[str, ...]:
    """Names of the oracle's objects."""
    space = getattr(oracle.mujoco.mjtObj, f"mjOBJ_{kind.upper()}")
    return tuple(oracle.mujoco.mj_id2name(mjmodel, space, index) or "" for index in range(count))


def names_differ(model: Model, mjmodel: Any) -> list[str]:
    """Kinds whose names are not the oracle's."""
    names = model.topology.names
    return [kind for kind, own in names.items() if kind != "camera" and own != names_of(mjmodel, kind, len(own))]


@pytest.mark.parametrize("name", MODELS)
def test_an_attached_model_compiles_as_in_the_oracle(name: str) -> None:
    model = load(MODELS[name], assets=FILES)
    mjmodel = oracle.mujoco.MjModel.from_xml_string(MODELS[name], FILES)
    assert differences(model, mjmodel) == []
    # the oracle warns that it does not prefix the names of keyframes twice
    assert names_differ(model, mjmodel) == (["key"] if name == "nested" else [])


WRONG = {
    "no_model": ('<attach model="arm" prefix="a"/>', "there is no model 'arm'"),
    "no_body": ('<attach model="x" body="ha" prefix="a"/>', "has no body 'ha'; did you mean 'a'?"),
    "no_prefix": ('<attach model="x"/>', "attribute 'prefix' is required"),
    "same_prefix": ('<attach model="x" body="a" prefix="a"/>' * 2, "default class 'amain' already exists|already used"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_attachment_is_refused(name: str) -> None:
    inside, message = WRONG[name]
    text = f'<mujoco><asset><model name="x" file="arm.xml"/></asset><worldbody>{inside}</worldbody></mujoco>'
    with pytest.raises(MjcfError, match=message):
        load(text, assets=FILES)


def test_errors_in_the_attached_file_name_it() -> None:
    text = '<mujoco><asset><model name="x" file="a.xml"/></asset></mujoco>'
    with pytest.raises(MjcfError, match=r"a\.xml:1 <geom>: unknown attribute 'sise'"):
        load(text, assets={"a.xml": b'<mujoco><worldbody><geom sise="1"/></worldbody></mujoco>'})
    with pytest.raises(MjcfError, match=r"<model name=\"x\">: file 'a.xml' does not exist"):
        load(text, assets={})
    loop = b'<mujoco><asset><model name="x" file="a.xml"/></asset></mujoco>'
    with pytest.raises(MjcfError, match=r"model 'a.xml' attaches itself"):
        load(text, assets={"a.xml": loop})
    lost = b'<mujoco><actuator><motor joint="jj"/></actuator><worldbody><body name="b"/></worldbody></mujoco>'
    with pytest.raises(MjcfError, match=r"a.xml:1 <motor>: there is no joint 'jj' in its model"):
        load(text.replace("</asset>", '</asset><worldbody><attach model="x" prefix="p"/></worldbody>'), {"a.xml": lost})


SOFT = """<mujoco><default><geom rgba="1 0 0 1"/></default><worldbody><body name="b" pos="0 0 1"><joint name="j"/>
  <geom size=".1"/><flexcomp name="f" type="grid" count="3 3 1" spacing=".1 .1 .1" dim="2" mass="1"><pin id="0"/>
  <edge equality="true"/></flexcomp><flexcomp name="c" type="grid" count="2 2 2" spacing=".1 .1 .1" dim="3" mass="1"
  dof="trilinear"><elasticity young="100"/><contact selfcollide="none"/></flexcomp></body><body name="other"><joint/>
  <geom size=".1"/></body></worldbody><deformable><skin name="s" vertex="0 0 0 1 0 0 0 1 0" face="0 1 2"><bone body="b"
  bindpos="0 0 0" bindquat="1 0 0 0" vertid="0 1 2" vertweight="1 1 1"/></skin></deformable></mujoco>"""


@pytest.mark.parametrize("body", ["body='b'", ""])
def test_soft_bodies_and_skins_come_along(body: str) -> None:
    main = f"""<mujoco><asset><model name="soft" file="soft.xml"/></asset><worldbody><frame pos="1 0 0">
      <attach model="soft" {body} prefix="s"/></frame></worldbody></mujoco>"""
    files = {"soft.xml": SOFT.encode()}
    assert differences(load(main, assets=files), oracle.load_with_assets(main, files)) == []
