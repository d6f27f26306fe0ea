# ruff: noqa: E501
"""A Spec in Python: find, add, change, delete; beside what mujoco.MjSpec makes of the same edits."""

import numpy as np
import oracle
import pytest
from compiler.compare import differences

import diffsim
from diffsim import mjcf
from diffsim.base.enums import GeomType
from diffsim.base.errors import MjcfError, UnsupportedError
from diffsim.mjcf.elements import Body, Geom

ARM = """
<mujoco>
  <default><default class="soft"><geom solref=".05"/></default></default>
  <asset><material name="red" rgba="1 0 0 1"/></asset>
  <worldbody>
    <body name="upper"><joint name="shoulder" axis="0 1 0"/><geom name="u" size=".05 .2" type="capsule" material="red"/>
      <body name="lower" pos="0 0 .4"><joint name="elbow" axis="0 1 0" range="-90 90"/><geom name="l" size=".1"/>
        <site name="tip" pos="0 0 .1"/></body></body>
  </worldbody>
  <contact><exclude name="ul" body1="upper" body2="lower"/></contact>
  <tendon><fixed name="both"><joint joint="shoulder" coef="1"/><joint joint="elbow" coef="2"/></fixed></tendon>
  <actuator><motor name="ms" joint="shoulder"/><motor name="me" joint="elbow"/><motor name="mt" tendon="both"/></actuator>
  <sensor><jointpos name="sense" joint="elbow"/><actuatorfrc name="pull" actuator="mt"/></sensor>
</mujoco>
"""


@pytest.fixture
def spec() -> mjcf.Spec:
    return mjcf.read(ARM)


@pytest.fixture
def theirs():
    return oracle.mujoco.MjSpec.from_string(ARM)


def test_additions_compile_as_the_oracles(spec, theirs) -> None:
    hand = spec.find("body", "lower").add("body", name="hand", pos=[0, 0, 0.3], quat=(1, 0, 0, 1))
    hand.add("geom", type="box", size=[0.1, 0.2, 0.3], material=spec.find("material", "red"), class_="soft")
    hand.add("joint", name="wrist", type="ball", damping=0.5)
    site = hand.add("site", name="grip", size=[0.01])
    spec.sensor.add("framepos", name="where", objtype="site", objname=site)
    spec.actuator.add("position", name="servo", joint=spec.find("joint", "elbow"), kp=20)
    spec.option.timestep = 0.001
    spec.option.cone = "elliptic"
    spec.flags.gravity = False

    other = theirs.body("lower").add_body(name="hand", pos=[0, 0, 0.3], quat=[1, 0, 0, 1])
    geom = other.add_geom(
        theirs.find_default("soft"), type=oracle.mujoco.mjtGeom.mjGEOM_BOX, size=[0.1, 0.2, 0.3], material="red"
    )
    assert geom.solref[0] == 0.05
    other.add_joint(name="wrist", type=oracle.mujoco.mjtJoint.mjJNT_BALL, damping=[0.5, 0, 0])
    other.add_site(name="grip", size=[0.01, 0.005, 0.005])
    theirs.add_sensor(
        name="where",
        type=oracle.mujoco.mjtSensor.mjSENS_FRAMEPOS,
        objtype=oracle.mujoco.mjtObj.mjOBJ_SITE,
        objname="grip",
    )
    servo = theirs.add_actuator(name="servo", target="elbow", trntype=oracle.mujoco.mjtTrn.mjTRN_JOINT)
    servo.set_to_position(kp=20)
    theirs.option.timestep = 0.001
    theirs.option.cone = oracle.mujoco.mjtCone.mjCONE_ELLIPTIC
    theirs.option.disableflags = oracle.mujoco.mjtDisableBit.mjDSBL_GRAVITY
    assert differences(diffsim.compile(spec), theirs.compile()) == []


def test_a_deletion_compiles_as_the_oracles(spec, theirs) -> None:
    spec.delete(spec.find("body", "lower"), cascade=True)
    theirs.delete(theirs.body("lower"))
    model = diffsim.compile(spec)
    assert differences(model, theirs.compile()) == []
    assert (model.nbody, model.nu, model.topology.nsensor, model.topology.ntendon) == (2, 1, 0, 0)


def test_changes_compile_as_the_oracles(spec, theirs) -> None:
    spec.find("joint", "elbow").range = [-45, 30]
    spec.find(Geom, "u").rgba = "0 1 0 1"
    spec.find("default", "soft").first(Geom).solref = 0.07
    spec.find("body", "lower").childclass = "soft"
    spec.find(Body, "upper").name = "arm"
    spec.find("exclude", "ul").body1 = "arm"
    theirs.joint("elbow").range = np.array([-45, 30])
    theirs.geom("u").rgba = [0, 1, 0, 1]
    theirs.geom("l").solref[0] = 0.07
    theirs.body("upper").name = "arm"
    theirs.excludes[0].bodyname1 = "arm"
    model = diffsim.compile(spec)
    assert differences(model, theirs.compile()) == []
    assert model.id("body", "arm") == 1


def test_elements_are_found_by_name_as_in_mjspec(spec, theirs) -> None:
    kinds = [name for name, value in vars(mjcf.Spec).items() if type(value).__name__ == "_Named"]
    assert len(kinds) == 18 and all(callable(getattr(theirs, kind)) for kind in kinds)
    assert spec.body("lower") is spec.find("body", "lower")
    spec.joint("elbow").range = [-45, 30]
    spec.actuator.add("motor", name="first", joint="elbow")
    # a second section: sections are called for all of them
    spec.root.add("actuator").add("motor", name="second", joint="elbow")
    assert spec.actuator("first").name == "first" and spec.actuator("second") is spec.find("actuator", "second")
    assert diffsim.compile(spec).joint("elbow").range[0] == pytest.approx(np.deg2rad(-45))


def test_an_empty_model_is_filled() -> None:
    spec = mjcf.new("pendulum")
    body = spec.worldbody.add("body", name="bob")
    body.add("joint", axis=np.array([0, 1, 0]))
    body.add("geom", type=GeomType.SPHERE, size=0.1, pos=[0, 0, -1])
    model = diffsim.compile(spec)
    assert differences(model, oracle.load_oracle(mjcf.write(spec))) == []
    assert 'model="pendulum"' in mjcf.write(spec)


def test_what_is_referred_to_is_not_deleted(spec) -> None:
    with pytest.raises(MjcfError) as caught:
        spec.delete(spec.find("joint", "elbow"))
    assert [problem.element for problem in caught.value.problems] == [
        "<joint>",
        '<motor name="me">',
        '<jointpos name="sense">',
    ]
    assert "refers to joint 'elbow'; delete that element first, or pass cascade=True" in str(caught.value)
    assert spec.find("joint", "elbow").parent is spec.find("body", "lower")


def test_a_geom_forgets_a_deleted_material_and_a_tuple_of_actuators_goes_with_its_tendon(spec) -> None:
    spec.delete(spec.find("material", "red"), cascade=True)
    spec.delete(spec.find("tendon", "both"), cascade=True)
    assert spec.find("geom", "u").material is None
    assert [actuator.name for actuator in spec.actuators] == ["ms", "me"]
    assert [sensor.name for sensor in spec.sensors] == ["sense"]
    diffsim.compile(spec)


WRONG = {
    "unknown element": (
        lambda s: s.worldbody.add("geon"),
        MjcfError,
        "<geon> is not allowed here; did you mean 'geom'",
    ),
    "wrong place": (lambda s: s.actuator.add("geom"), MjcfError, "<actuator>: <geom> is not allowed here"),
    "unknown attribute": (lambda s: s.worldbody.add("geom", sise=1), AttributeError, "did you mean 'size'"),
    "misspelt field": (lambda s: setattr(s.find("geom", "l"), "fricton", 1), AttributeError, "did you mean 'friction'"),
    "keyword": (lambda s: s.worldbody.add("geom", type="bxo"), MjcfError, "attribute 'type': .*did you mean 'box'"),
    "wrong enum": (lambda s: setattr(s.find("geom", "l"), "type", 77), MjcfError, "attribute 'type': unknown keyword"),
    "too many": (lambda s: setattr(s.find("geom", "l"), "pos", [1, 2]), MjcfError, "takes 3 numbers, 2 given"),
    "not numbers": (lambda s: setattr(s.find("geom", "l"), "pos", object()), MjcfError, "takes numbers"),
    "not finite": (lambda s: setattr(s.find("geom", "l"), "mass", np.nan), MjcfError, "not a finite number"),
    "not an integer": (lambda s: setattr(s.find("geom", "l"), "condim", 1.5), MjcfError, "is not an integer"),
    "not a name": (lambda s: setattr(s.find("geom", "l"), "material", 3), MjcfError, "takes a name or an element"),
    "no such name": (lambda s: s.find("joint", "elbo"), KeyError, "no joint is called 'elbo'; did you mean 'elbow'"),
    "no such kind": (lambda s: s.find("jiont", "elbow"), KeyError, "did you mean 'joint'"),
    "the world": (lambda s: s.delete(s.worldbody), MjcfError, "cannot be deleted"),
    "default": (lambda s: s.default.add("motor", joint="elbow") and mjcf.check(s), MjcfError, "'joint' is not allowed"),
    "required": (lambda s: s.sensor.add("jointpos") and mjcf.check(s), MjcfError, "'joint' is required"),
    "reference": (lambda s: s.sensor.add("jointpos", joint="x") and mjcf.check(s), MjcfError, "there is no joint 'x'"),
    "twice": (lambda s: s.worldbody.add("geom", name="u") and mjcf.check(s), MjcfError, "the name is already used"),
    "both": (
        lambda s: s.worldbody.add("geom", euler=[0, 0, 1], zaxis=[1, 0, 0]) and mjcf.check(s),
        MjcfError,
        "cannot both be given",
    ),
    "lacking": (lambda s: s.worldbody.add("composite") and mjcf.check(s), MjcfError, "composite"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_said_at_once(case: str, spec) -> None:
    action, error, message = WRONG[case]
    with pytest.raises(error, match=message) as caught:
        action(spec)
    assert not isinstance(caught.value, UnsupportedError) or case == "lacking"


def test_replicates_of_a_program_are_expanded(spec) -> None:
    row = spec.worldbody.add("replicate", count=3, offset=[1, 0, 0])
    row.add("body", name="post").add("geom", size=[0.1])
    assert diffsim.compile(spec).id("body", "post2") == 5


def test_elements_show_what_they_say(spec) -> None:
    assert repr(spec.find("geom", "u")) == '<geom name="u" type="capsule" size="0.05 0.2" material="red"/>'
    assert repr(spec) == "<Spec 'MuJoCo Model': 3 bodies, 3 actuators, 2 sensors>"
