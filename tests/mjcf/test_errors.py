"""Wrong models: each says what is wrong, where, and how to mend it; everything at once, nothing else than MjcfError."""

import pytest

from diffsim.base.errors import DiffsimError, MjcfError, UnsupportedError
from diffsim.mjcf import read


def model(body="", sections=""):
    return f"<mujoco>{sections}<worldbody>{body}</worldbody></mujoco>"


def section(tag, content):
    return model('<body name="b"><joint name="j"/><geom name="g" size="1"/></body>', f"<{tag}>{content}</{tag}>")


# text, parts of the message; those that name a line and an element are in wrong_models.py
WRONG = [
    ("", ["the model is empty"]),
    (b"<mujoco model='\xff'/>", ["not text in encoding utf-8"]),
    (b"<?xml version='1.0' encoding='klingon'?><mujoco/>", ["not text in encoding klingon"]),
    ("no/such/file.xml", ["no/such/file.xml", "does not exist"]),
    ("a\0b", ["is not a file name"]),
    (model('<geom quat="1 0 0 0" euler="0 0 0"/>'), ["attributes 'quat' and 'euler' cannot both be given"]),
    (
        model('<body><inertial pos="0 0 0" mass="1" quat="1 0 0 0" fullinertia="1 1 1 0 0 0"/></body>'),
        ["attributes 'fullinertia' and 'quat' cannot both be given"],
    ),
    (section("sensor", "<framepos objtype='xbody' objname='g'/>"), ["attribute 'objname': there is no body 'g'"]),
    (section("sensor", "<contact data='force found'/>"), ["keywords are out of order; the order is: found, force"]),
    (model("<body>" * 1000 + "</body>" * 1000), ["elements are nested more than 400 deep"]),
]
UNSUPPORTED = [
    (section("extension", "<plugin plugin='mujoco.pump'/>"), "plugin is not supported here"),
    (
        model("<flexcomp name='f' count='2 2 1' spacing='1 1 1'><plugin plugin='x'/></flexcomp>"),
        "plugin is not supported here",
    ),
]
GOLDEN = """\
<xml>:3 <option>: attribute 'timestep': '2ms' is not a number
<xml>:4 <flag>: unknown attribute 'gravty'; did you mean 'gravity'?
<xml>:8 <joint>: unknown attribute 'dampin'; did you mean 'damping'?
<xml>:13 <light>: attribute 'pos': takes 3 numbers, 2 given
<xml>:15 <joint name="knee">: attribute 'type': unknown keyword 'hing'; did you mean 'hinge'?
<xml>:15 <joint name="knee">: attribute 'range': '90deg' is not a number
<xml>:16 <geom name="shin">: attributes 'quat' and 'euler' cannot both be given
<xml>:17 <geom name="shin">: the name is already used by <geom name="shin"> at <xml>:16
<xml>:18 <sphere>: unknown element in <body>
<xml>:22 <motor name="m">: attribute 'joint': there is no joint 'kne'; did you mean 'knee'?
<xml>:23 <position>: has no transmission target; give one of joint, jointinparent, tendon, cranksite, site
<xml>:26 <accelerometer>: attribute 'site' is required"""
GOLDEN_MODEL = """<mujoco>
  <!-- twelve mistakes -- and a comment that strict XML would refuse -->
  <option timestep="2ms">
    <flag gravty="disable"/>
  </option>
  <default>
    <default class="leg">
      <joint dampin="1"/>
      <geom density="900"/>
    </default>
  </default>
  <worldbody>
    <light pos="0 0"/>
    <body name="leg" childclass="leg">
      <joint name="knee" type="hing" range="0 90deg"/>
      <geom name="shin" size="0.1" quat="1 0 0 0" euler="0 0 90"/>
      <geom name="shin" size="0.1"/>
      <sphere/>
    </body>
  </worldbody>
  <actuator>
    <motor name="m" joint="kne"/>
    <position kp="1"/>
  </actuator>
  <sensor>
    <accelerometer/>
  </sensor>
</mujoco>
"""


@pytest.mark.parametrize(("text", "parts"), WRONG)
def test_wrong_model(text, parts):
    with pytest.raises(MjcfError) as caught:
        read(text)
    assert not isinstance(caught.value, UnsupportedError)
    for part in parts:
        assert part in str(caught.value)


@pytest.mark.parametrize(("text", "part"), UNSUPPORTED)
def test_unsupported(text, part):
    with pytest.raises(NotImplementedError, match=part) as caught:
        read(text)
    assert isinstance(caught.value, MjcfError)
    assert all(problem.line > 0 for problem in caught.value.problems)


def test_everything_at_once():
    with pytest.raises(MjcfError) as caught:
        read(GOLDEN_MODEL)
    assert str(caught.value) == GOLDEN


def test_wrong_outweighs_unsupported():
    with pytest.raises(MjcfError) as caught:
        read(model("<flexcomp name='f' count='2 2 1' spacing='1 1 1'><plugin plugin='x'/></flexcomp><geom sise='1'/>"))
    assert type(caught.value) is MjcfError
    assert sorted(problem.unsupported for problem in caught.value.problems) == [False, True]
    assert isinstance(caught.value, DiffsimError)
