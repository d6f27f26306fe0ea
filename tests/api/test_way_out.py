"""Mistakes of the first hour: the message says what is wrong and how to go on, and what it says works."""

from collections.abc import Callable

import pytest

import diffsim
from diffsim.base.errors import MjcfError

PENDULUM = '<body name="arm"><joint name="hinge"/><geom name="rod" size="0.1"/></body>'
ROBOT = """<robot name="r"><link name="base"/><link name="arm"><inertial><mass value="1"/>
<inertia ixx="1" ixy="0" ixz="0" iyy="1" iyz="0" izz="1"/></inertial></link>
<joint name="hinge" type="continuous"><parent link="base"/><child link="arm"/></joint></robot>"""
MOTOR = '<motor name="m" joint="hinge"/>'
HINGE = '<body><joint name="j"/><geom size="0.1"/></body>'


def text(body: str = PENDULUM, sections: str = "") -> str:
    return f"<mujoco>{sections}<worldbody>{body}</worldbody></mujoco>"


def inertial(numbers: str) -> str:
    return f'<body><joint/><inertial pos="0 0 0" {numbers}/></body>'


def assign(record: object, name: str) -> None:
    setattr(record, name, 0.01)


WRONG: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "an option is assigned": (
        lambda: assign(diffsim.load(text()).opt, "timestep"),
        AttributeError,
        r"Option is immutable; write model = model\.replace\(opt=model\.opt\.replace\(timestep=\.\.\.\)\)",
    ),
    "a record in a record of the model is assigned": (
        lambda: assign(diffsim.load(text()).vis.headlight, "active"),
        AttributeError,
        r"write model = model\.replace\(vis=model\.vis\.replace\(headlight=model\.vis\.headlight\.replace\(active=",
    ),
    "a state is assigned": (
        lambda: assign(diffsim.make_state(diffsim.load(text())), "qpos"),
        AttributeError,
        r"State is immutable; write state = state\.replace\(qpos=\.\.\.\)",
    ),
    "a Spec is asked for another body": (
        lambda: diffsim.mjcf.read(text()).body("arn"),
        KeyError,
        "no body is called 'arn'; did you mean 'arm'?",
    ),
    "a Spec is asked for another motor": (
        lambda: diffsim.mjcf.read(text(sections='<actuator><motor name="m" joint="hinge"/></actuator>')).actuator(
            "arm"
        ),
        KeyError,
        "no actuator is called 'arm'; expected one of: m",
    ),
    "a list of a Spec is misspelt": (
        lambda: diffsim.mjcf.read(text()).bodys,  # type: ignore[attr-defined]
        AttributeError,
        r"a Spec has no attribute 'bodys'; use spec\.find\(\"body\", name\)",
    ),
    "a kind is misspelt": (
        lambda: diffsim.mjcf.read(text()).find("sites", "tip"),
        KeyError,
        "did you mean 'site'?",
    ),
    "a model has no sites": (
        lambda: diffsim.load(text()).site("tip"),
        KeyError,
        "no site is called 'tip'; the model has no site with a name",
    ),
    "a Spec has no sites": (
        lambda: diffsim.mjcf.read(text()).find("site", "tip"),
        KeyError,
        "no site is called 'tip'; the model has no site with a name",
    ),
    "a sensor needs a site and there are none": (
        lambda: diffsim.load(text(sections='<sensor><gyro site="tip"/></sensor>')),
        MjcfError,
        "<gyro>: attribute 'site': there is no site 'tip'; the model has no site with a name",
    ),
    "a negative mass": (
        lambda: diffsim.load(text(inertial('mass="-1" diaginertia="1 1 1"'))),
        MjcfError,
        "^<xml>:1 <inertial>: attribute 'mass': cannot be negative, -1 given; give the mass in kg[^\n]*$",
    ),
    "a negative moment of inertia": (
        lambda: diffsim.load(text(inertial('mass="1" diaginertia="1 -2 1"'))),
        MjcfError,
        "<inertial>: attribute 'diaginertia': cannot be negative, -2 given",
    ),
    "controls of a model without motors": (
        lambda: diffsim.make_inputs(diffsim.load(ROBOT)).replace(ctrl=[1.0]),
        ValueError,
        r"ctrl has shape \(0,\), got \(1,\); the model has no actuators \(a URDF has none\).*spec\.actuator\.add",
    ),
    "a key of all copies": (
        lambda: diffsim.load(
            text(f'<replicate count="3">{HINGE}</replicate>', '<keyframe><key name="k" qpos="1 2 3"/></keyframe>')
        ),
        MjcfError,
        r"qpos has 3 numbers, the file up to the end of <replicate>, copied once, takes 1; give numbers for one copy.*"
        r"diffsim\.mjcf\.check\(spec\), then spec\.keyframe\.add",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_message_names_the_way_out(case: str) -> None:
    call, error, message = WRONG[case]
    with pytest.raises(error, match=message):
        call()


def test_every_folder_that_was_searched_is_named(tmp_path) -> None:
    (tmp_path / "parts").mkdir()
    sections = '<compiler meshdir="meshes"/><include file="parts/arm.xml"/>'
    (tmp_path / "model.xml").write_text(text(sections=sections))
    (tmp_path / "parts" / "arm.xml").write_text('<mujoco><asset><mesh file="arm.obj"/></asset></mujoco>')
    with pytest.raises(MjcfError) as caught:
        diffsim.load(tmp_path / "model.xml")
    for folder in ("meshes", "meshes/parts", "parts/meshes"):
        assert f"{tmp_path / folder}" in str(caught.value)


def test_motors_are_added_to_a_robot_as_the_message_says() -> None:
    spec = diffsim.mjcf.read(ROBOT)
    spec.actuator.add("motor", name="m", joint="hinge")
    inputs = diffsim.make_inputs(diffsim.compile(spec)).replace(ctrl=[1.0])
    assert inputs.ctrl.shape == (1,)


def test_a_key_of_all_copies_is_added_as_the_message_says() -> None:
    spec = diffsim.mjcf.read(text(f'<replicate count="3">{HINGE}</replicate>'))
    diffsim.mjcf.check(spec)
    spec.keyframe.add("key", name="k", qpos=[1, 2, 3])
    model = diffsim.compile(spec)
    assert diffsim.make_state(model, "k").qpos.tolist() == [1, 2, 3]


def test_a_timestep_is_replaced_as_the_message_says() -> None:
    model = diffsim.load(text())
    model = model.replace(opt=model.opt.replace(timestep=0.01))
    assert float(model.opt.timestep) == pytest.approx(0.01)
