# ruff: noqa: E501
"""What refers to something that is copied, by <replicate> or <attach>: keyframes, default classes, pairs, sensors and so on."""

import numpy as np
import oracle
import pytest
from compiler.compare import differences
from compiler.test_attach import names_of

from diffsim.base.errors import MjcfError
from diffsim.load import load
from diffsim.mjcf import read, write

BODY = '<body name="{0}"><joint name="{0}" type="slide"/><geom name="{0}" size=".1"/><site name="{0}" pos="0 0 .2"/></body>'
COPIED = f'<replicate count="2" offset="0 1 0">{BODY.format("b")}</replicate>'
KEY = '<mujoco><worldbody>{}</worldbody><keyframe><key name="k" qpos="{}"/></keyframe></mujoco>'
CHILD = """<mujoco model="c"><worldbody><body name="t"><joint name="j" type="slide"/><geom size=".1"/></body></worldbody>
<keyframe><key name="sq" qpos="5"/></keyframe></mujoco>"""
ATTACHED = '<mujoco><asset><model name="c" file="c.xml"/></asset><worldbody>{}</worldbody>{}</mujoco>'
ATTACH = '<attach model="c" body="t" prefix="_"/>'

KEYS = {
    "replicate": KEY.format(BODY.format("p") + COPIED, "7 1"),
    "before_the_rest": KEY.format(BODY.format("p") + COPIED + BODY.format("q"), "7 1"),
    "two": KEY.format(BODY.format("p") + COPIED + COPIED.replace('"b"', '"c"'), "7 1"),
    "nested": KEY.format(f'{BODY.format("p")}<replicate count="2" sep="_">{COPIED}</replicate>', "7 1"),
    "attached": ATTACHED.format(f'<replicate count="2">{ATTACH}</replicate>', ""),
    "both": ATTACHED.format(
        BODY.format("p") + ATTACH + COPIED, '<keyframe><key name="k" qpos="1 2 3" qvel="4 5 6" time="9"/></keyframe>'
    ),
}


@pytest.mark.parametrize("name", KEYS)
def test_keyframes_of_copies_are_the_oracles(name: str) -> None:
    files = {"c.xml": CHILD.encode()}
    ours, theirs = load(KEYS[name], assets=files), oracle.mujoco.MjModel.from_xml_string(KEYS[name], files)
    assert differences(ours, theirs) == []
    assert ours.topology.names["key"] == names_of(theirs, "key", theirs.nkey)


@pytest.mark.parametrize("numbers", ["7 1 2", "7", "7 1 2 3"])
def test_a_keyframe_that_counts_the_copies_is_refused(numbers: str) -> None:
    text = KEY.format(BODY.format("p") + COPIED + BODY.format("q"), numbers)
    with pytest.raises(ValueError, match="invalid qpos size"):
        oracle.mujoco.MjModel.from_xml_string(text)
    with pytest.raises(MjcfError, match=r'<key name="k">: qpos has . numbers, the file up to the end of .* takes 2'):
        load(text)


def test_keyframes_keep_controls_of_copies() -> None:
    """MuJoCo forgets them, which the docstring of macros/keys.py says."""
    text = KEY.format(BODY.format("p") + COPIED, '7 1" ctrl="3 4').replace(
        "<keyframe>", '<actuator><motor joint="p"/><motor joint="b"/></actuator><keyframe>'
    )
    np.testing.assert_array_equal(load(text).key_ctrl, [[3, 4, 0], [3, 0, 4], [3, 0, 0]])


REFERRING = {
    "pair": '<contact><pair geom1="b" geom2="o"/><pair geom1="o" geom2="b"/></contact>',
    "exclude": '<contact><exclude body1="b" body2="o"/><exclude body1="b" body2="world"/></contact>',
    "equality": '<equality><joint joint1="b"/><joint joint1="b" joint2="o"/><weld body1="b"/><weld site1="b" site2="o"/></equality>',
    "tendon": '<tendon><fixed name="t"><joint joint="b" coef="1"/><joint joint="o" coef="1"/></fixed></tendon><actuator><motor tendon="t"/></actuator>',
    "actuator": '<actuator><motor joint="b"/><motor joint="o"/><motor site="b" refsite="o"/><motor site="o" refsite="b"/></actuator>',
    "sensor": '<sensor><jointpos joint="b"/><framepos objtype="site" objname="o" reftype="body" refname="b"/><contact geom1="b" geom2="o"/></sensor>',
}


@pytest.mark.filterwarnings("ignore:.*is dropped, as in MuJoCo")
@pytest.mark.parametrize("name", REFERRING)
def test_what_refers_to_copies_is_the_oracles(name: str) -> None:
    text = f"<mujoco><worldbody>{BODY.format('o')}{COPIED}</worldbody>{REFERRING[name]}</mujoco>"
    assert differences(load(text), oracle.mujoco.MjModel.from_xml_string(text)) == []


def test_a_constraint_that_the_oracle_drops_is_named() -> None:
    text = f"<mujoco><worldbody>{BODY.format('o')}{COPIED}</worldbody>{REFERRING['equality']}</mujoco>"
    with pytest.warns(
        UserWarning, match="<xml>:1 <(joint|weld)> is dropped, as in MuJoCo: it refers to 'o' outside <replicate>"
    ):
        read(text)


CLASSES = """<mujoco model="child"><default><geom size=".7"/><default class="v"><geom size=".3" group="4"/></default></default>
<worldbody><body name="a"><geom class="v" mass="1"/><geom mass="1"/></body><body name="b"><geom class="v" mass="1"/></body></worldbody></mujoco>"""
OURS = '<default><geom size=".5"/><default class="v"><geom size=".2" group="2"/></default></default>'
USES = '<body name="{0}"><geom class="v" mass="1"/><geom mass="1"/><body name="{0}{0}" childclass="v"><geom/></body></body>'

SAME_NAMES = {
    "no_prefix": OURS + ATTACHED[8:].format(USES.format("x") + '<attach model="c" prefix=""/>' + USES.format("y"), ""),
    "one_prefix_twice": OURS
    + ATTACHED[8:].format(
        '<attach model="c" body="a" prefix="p"/><attach model="c" body="b" prefix="p"/>' + USES.format("y"), ""
    ),
    "prefixed": OURS.replace('"v"', '"pv"') + ATTACHED[8:].format('<attach model="c" body="a" prefix="p"/>', ""),
}


@pytest.mark.parametrize("name", SAME_NAMES)
def test_models_with_default_classes_of_one_name_keep_each_their_own(name: str) -> None:
    text, files = "<mujoco>" + SAME_NAMES[name], {"c.xml": CLASSES.encode()}
    theirs = oracle.mujoco.MjModel.from_xml_string(text, files)
    assert differences(load(text, assets=files), theirs) == []
    assert differences(load(write(read(text, assets=files))), theirs) == []
