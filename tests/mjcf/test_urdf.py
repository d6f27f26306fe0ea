# ruff: noqa: E501
"""URDF against the oracle: every rule of links, joints, shapes, colors and names; and what is refused."""

import oracle
import pytest
from compiler.compare import differences

import diffsim
from diffsim import mjcf
from diffsim.base.errors import MjcfError
from diffsim.compiler.passes import compile_all
from diffsim.mjcf.elements import Geom

PLAIN = '<mujoco><compiler fusestatic="false" discardvisual="false"/></mujoco>'
HEAVY = '<inertial><mass value="2"/><inertia ixx="1" ixy=".1" ixz=".2" iyy="2" iyz=".3" izz="2.5"/></inertial>'
LIMIT = '<limit lower="-1" upper="2" effort="3" velocity="9"/>'


def link(name: str, inside: str = HEAVY) -> str:
    return f'<link name="{name}">{inside}</link>'


def joint(kind: str, inside: str = "", parent: str = "a", child: str = "b", name: str = "") -> str:
    name = name or f"{parent}{child}"
    return f'<joint name="{name}" type="{kind}"><parent link="{parent}"/><child link="{child}"/>{inside}</joint>'


def robot(inside: str, around: str = PLAIN) -> str:
    return f'<robot name="r2">{around}{inside}</robot>'


def shape(geometry: str, tag: str = "collision", inside: str = "", name: str = "") -> str:
    named = f' name="{name}"' if name else ""
    return f"<{tag}{named}><geometry>{geometry}</geometry>{inside}</{tag}>"


BOX, BALL = '<box size=".1 .2 .3"/>', '<sphere radius=".1"/>'
POSE = '<origin xyz=".1 .2 .3" rpy=".4 -.5 .6"/>'
TWO = link("a") + link("b")

ROBOTS = {
    "one link": link("a"),
    **{
        f"{kind} joint": TWO + joint(kind, POSE)
        for kind in ("revolute", "continuous", "prismatic", "planar", "spherical", "fixed")
    },
    "floating joint": link("world", "") + link("b") + joint("floating", POSE, "world"),
    **{
        f"{kind} joint with all": TWO
        + joint(kind, POSE + LIMIT + '<axis xyz="1 -2 .5"/><dynamics damping=".7" friction=".2"/><mimic joint="x"/>')
        for kind in ("revolute", "continuous", "prismatic", "planar", "fixed")
    },
    "ball with limit": TWO + joint("spherical", '<axis xyz="0 1 0"/><limit lower="0" upper="1"/><dynamics damping="1"/>'),
    "axis down": TWO + joint("planar", '<axis xyz="0 0 -2"/>'),
    "lower only": TWO + joint("revolute", '<limit lower="-1" effort="-5"/>'),
    "upper only": TWO + joint("revolute", '<limit upper="1" effort="0"/>'),
    "limits swapped": TWO + joint("revolute", '<limit lower="1" upper="-1"/>'),
    "limits equal": TWO + joint("revolute", '<limit lower="0" upper="0"/>'),
    "inertial pose": link("a", HEAVY.replace("<mass", POSE + "<mass")),
    "diagonal inertia": link(
        "a", '<inertial><mass value="1"/><inertia ixx="3" ixy="0" ixz="0" iyy="2" iyz="0" izz="2"/></inertial>'
    ),
    "no inertia": link(
        "a",
        f'<inertial>{POSE}<mass value="1"/><inertia ixx="0" ixy="0" ixz="0" iyy="0" iyz="0" izz="0"/></inertial>'
        + shape(BOX),
    ),
    "inertia from shapes": link("a", shape(BOX) + shape(BALL, inside=POSE) + shape('<capsule radius=".1" length="2"/>', "visual")),
    "shapes": link("a", "".join(shape(s, t, POSE) for t in ("visual", "collision") for s in (BOX, BALL, '<cylinder radius=".1" length=".5"/>', '<capsule radius=".1" length=".5"/>'))),
    "world link": link("world", shape(BOX)) + link("b") + joint("revolute", POSE, "world"),
    "order": "".join(map(link, "edcba")) + joint("revolute", POSE, "a", "b") + joint("fixed", POSE, "a", "c") + joint("prismatic", POSE, "b", "e"),
    "forest": link("a") + link("b") + link("c") + joint("revolute", "", "b", "c"),
    "colors": '<material name="m"><color rgba="1 0 0 .5"/></material><material name="m"><color rgba="0 1 0 1"/></material>'
    + link(
        "a",
        shape(BOX, "visual", '<material name="m"/>') + shape(BOX) + shape(BOX, "visual", '<material name="unknown"/>')
        + shape(BOX, "visual", '<material name="own"><color rgba="0 0 1 1"/></material>') + shape(BALL) + HEAVY,
    )
    + link("b", shape(BOX) + shape(BOX, "visual", '<material name="own"/>')) + joint("fixed"),
    "names": link("a", shape(BOX, name="g") + shape(BALL, name="g") + shape(BALL) + shape(BOX, "visual", name="v")) + link("b", shape(BOX, name="v")) + joint("fixed"),
    "other elements": TWO + joint("revolute", '<safety_controller k_velocity="1"/><calibration rising="0"/>') + '<transmission name="t"/><gazebo reference="a"><x/></gazebo>',
}  # fmt: skip

SETTINGS = {
    "defaults": "",
    "options": '<mujoco><compiler fusestatic="false" discardvisual="false" angle="degree" boundmass="3" boundinertia="2" settotalmass="9" balanceinertia="true"/>'
    '<option timestep=".01" gravity="1 2 3"><flag contact="disable"/></option><size nuserdata="4"/></mujoco>',
    "visuals dropped": '<mujoco><compiler fusestatic="false"/></mujoco>',
    "static kept": '<mujoco><compiler fusestatic="false" inertiafromgeom="true"/></mujoco>',
}
WHOLE = (
    ROBOTS["colors"]
    + link("c")
    + joint("revolute", POSE + LIMIT, "b", "c")
    + link("d", shape(BALL))
    + joint("fixed", POSE, "c", "d")
)


@pytest.mark.filterwarnings("ignore:.*<mimic> is ignored:UserWarning")
@pytest.mark.parametrize("name", ROBOTS)
def test_a_robot_compiles_as_in_the_oracle(name: str) -> None:
    text = robot(ROBOTS[name])
    spec = mjcf.read(text)
    model = compile_all(spec, refuse=False)
    assert differences(model, oracle.load_oracle(text)) == []
    assert differences(compile_all(mjcf.read(mjcf.write(spec)), refuse=False), oracle.load_oracle(text)) == []
    for kind in ("body", "joint", "geom"):
        expected = [getattr(oracle.load_oracle(text), kind)(i).name for i in range(len(model.topology.names[kind]))]
        assert list(model.topology.names[kind]) == expected


@pytest.mark.parametrize("name", SETTINGS)
def test_the_extension_counts(name: str) -> None:
    text = robot(WHOLE, SETTINGS[name])
    assert differences(compile_all(mjcf.read(text), refuse=False), oracle.load_oracle(text)) == []


def test_a_file_is_known_by_its_root(tmp_path) -> None:
    (tmp_path / "robot.urdf").write_text('<?xml version="1.0"?>\n' + robot(ROBOTS["planar joint"]))
    model = diffsim.load(tmp_path / "robot.urdf")
    assert model.id("joint", "ab_RZ") == 2 and model.nv == 3
    assert mjcf.read(tmp_path / "robot.urdf").model == "r2"


def test_meshes_are_named_by_file_and_scale() -> None:
    def mesh(file: str, scale: str = "") -> str:
        scaled = f' scale="{scale}"' if scale else ""
        return shape(f'<mesh filename="{file}"{scaled}/>')

    text = robot(
        link(
            "a",
            HEAVY
            + mesh("x/part.stl")
            + mesh("file://part.stl")
            + mesh("part.obj", "2 2 2")
            + mesh("part.stl", "2 2 2")
            + mesh("b.stl"),
        )
    )
    spec = mjcf.read(text, assets={"part.stl": b""})
    assert [(mesh.name, mesh.file_, mesh.scale.tolist()) for mesh in spec.meshes] == [
        ("part", "x/part.stl", [1, 1, 1]),
        ("part1", "part.obj", [2, 2, 2]),
        ("b", "b.stl", [1, 1, 1]),
    ]
    assert [geom.mesh for geom in spec.all(Geom)] == ["part", "part", "part1", "part", "b"]


@pytest.mark.parametrize("place", ["robots/r.urdf", "r.urdf"])
def test_packages_are_found_above_the_robot(place: str, tmp_path) -> None:
    folder = tmp_path / "arm_description"
    (folder / "meshes").mkdir(parents=True)
    (folder / "robots").mkdir()
    (folder / "meshes" / "m.stl").write_bytes(b"")
    (folder / place).write_text(
        robot(link("a", HEAVY + shape('<mesh filename="package://arm_description/meshes/m.stl"/>')))
    )
    spec = mjcf.read(folder / place)
    assert spec.read_file(spec.meshes[0]) == b""
    if place == "r.urdf":
        assert mjcf.read(folder / place, allow_outside=False).meshes[0].file_ == "meshes/m.stl"
    else:
        with pytest.raises(MjcfError, match=r"arm_description/meshes/m.stl' is outside .*; pass allow_outside=True"):
            diffsim.load(folder / place, allow_outside=False)


def test_errors_name_elements_as_the_file_does() -> None:
    with pytest.raises(MjcfError, match=r'<xml>:\d+ <link name="b">: .*mass'):
        diffsim.load(robot(link("a") + link("b", "") + joint("revolute")))
    with pytest.raises(MjcfError, match=r"<xml>:\d+ <collision>: "):
        diffsim.load(robot(link("a", HEAVY + '<collision><geometry><sphere radius="-1"/></geometry></collision>')))


# what is wrong, and the message; every one is refused by the oracle, too
WRONG = {
    "no such parent": (TWO + joint("fixed", parent="c"), "there is no link 'c'"),
    "no such child": (TWO + joint("fixed", child="bb"), "there is no link 'bb'"),
    "two parents": (TWO + link("c") + joint("fixed") + joint("fixed", parent="c"), "link 'b' is already the child of"),
    "loop": (TWO + joint("fixed") + joint("fixed", parent="b", child="a"), "the joints form a loop"),
    "repeated link": (TWO + link("a"), "the name is already used by the link at <xml>:1"),
    "nameless link": ("<link/>", "attribute 'name' is required"),
    "nameless joint": (TWO + joint("revolute").replace('name="ab"', ""), "attribute 'name' is required"),
    "joint type": (TWO + joint("revolut"), "unknown keyword 'revolut'; did you mean 'revolute'"),
    "no type": (TWO + joint("x").replace('type="x"', ""), "attribute 'type' is required"),
    "no child": (TWO + joint("fixed").replace('<child link="b"/>', ""), "needs a <child>"),
    "two children": (TWO + joint("fixed", '<child link="a"/>'), "appears more than once"),
    "short axis": (TWO + joint("revolute", '<axis xyz="1 0"/>'), "attribute 'xyz': takes 3 numbers, 2 given"),
    "no axis": (TWO + joint("revolute", "<axis/>"), "attribute 'xyz' is required"),
    "zero axis": (TWO + joint("revolute", '<axis xyz="0 0 0"/>'), "axis"),
    "text": (TWO + joint("revolute", '<limit lower="low"/>'), "'low' is not a number"),
    "no mass": (link("a", "<inertial><inertia/></inertial>"), "needs a <mass>"),
    "no inertia": (link("a", '<inertial><mass value="1"/></inertial>'), "needs a <inertia>"),
    "no ixy": (link("a", HEAVY.replace('ixy=".1"', "")), "attribute 'ixy' is required"),
    "negative inertia": (link("a", HEAVY.replace('ixx="1"', 'ixx="-1"')), "positive"),
    "no geometry": (link("a", "<collision/>"), "needs a <geometry>"),
    "no shape": (link("a", shape("<cone/>")), "has no shape; expected one of: box"),
    "no radius": (link("a", shape("<sphere/>")), "attribute 'radius' is required"),
    "no file": (link("a", shape("<mesh/>")), "attribute 'filename' is required"),
    "short rpy": (link("a", shape(BOX, inside='<origin rpy="1 2"/>')), "attribute 'rpy': takes 3 numbers, 2 given"),
    "short color": ('<material name="m"><color rgba="1 0 0"/></material>' + link("a"), "takes 4 numbers, 3 given"),
    "moving without mass": (link("a") + link("b", "") + joint("revolute"), "mass"),
}  # fmt: skip

# what the oracle passes over
STRICTER = {
    "unknown setting": (link("a"), '<mujoco><compiler fusesttic="false"/></mujoco>', "did you mean 'fusestatic'"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_refused(name: str) -> None:
    inside, message = WRONG[name]
    with pytest.raises(MjcfError, match=message) as caught:
        compile_all(mjcf.read(robot(inside)), refuse=False)
    assert all(problem.line for problem in caught.value.problems)
    with pytest.raises(ValueError):
        oracle.load_oracle(robot(inside))


@pytest.mark.parametrize("name", STRICTER)
def test_nothing_passes_silently(name: str) -> None:
    inside, around, message = STRICTER[name]
    with pytest.raises(MjcfError, match=message):
        mjcf.read(robot(inside, around))
    oracle.load_oracle(robot(inside, around))


FLOATING = """<robot name="r"><link name="base"/><link name="box"><inertial><mass value="1"/>
  <inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial></link>
  <joint name="j" type="floating"><parent link="base"/><child link="box"/><origin xyz="1 2 3"/></joint></robot>"""


def test_a_floating_joint_below_a_root_that_is_fused() -> None:
    model = diffsim.load(FLOATING)
    assert (model.nbody, model.nv) == (2, 6)
    assert model.body_pos[1].tolist() == [1, 2, 3]
    kept = FLOATING.replace('<link name="base"/>', '<mujoco><compiler fusestatic="false"/></mujoco><link name="base"/>')
    with pytest.raises(MjcfError, match="a free joint is only allowed on a child of the world"):
        diffsim.load(kept)


def test_a_joint_that_shall_follow_another_is_told_to_move_freely() -> None:
    mimic = '<mimic joint="ab" multiplier="0.5" offset="0.02"/>'
    inside = TWO + joint("revolute") + link("c") + joint("revolute", mimic, "b", "c")
    with pytest.warns(UserWarning, match=r'<xml>:1.*mimic.*joint1="bc" joint2="ab" polycoef="0.02 0.5 0 0 0"'):
        assert diffsim.load(robot(inside)).nv == 2


def test_other_sections_in_the_mujoco_element_are_ignored_as_by_the_oracle() -> None:
    around = '<mujoco><compiler fusestatic="false" discardvisual="false"/><contact/></mujoco>'
    text = robot(link("a") + link("b") + joint("revolute", LIMIT), around)
    with pytest.warns(UserWarning, match="<contact> in the <mujoco> of a URDF is ignored"):
        ours = diffsim.load(text)
    assert differences(ours, oracle.load_oracle(text)) == []
