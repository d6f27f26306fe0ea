# ruff: noqa: E501
"""Attaching a model to another one in Python: beside mujoco.MjSpec, and written to one file."""

import oracle
import pytest
from compiler.compare import differences

import diffsim
from diffsim import mjcf
from diffsim.base.errors import UnsupportedError

BASE = """<mujoco model="base"><default><geom friction=".2"/><joint damping="3"/></default><worldbody>
<body name="b" pos="1 0 0"><geom size=".1"/><joint name="j"/></body></worldbody></mujoco>"""
ARM = """<mujoco model="arm"><default><geom size=".1"/><default class="x"><geom rgba="1 0 0 1"/></default></default>
<asset><material name="red" rgba="1 0 0 1"/></asset>
<worldbody><body name="b" pos="0 0 1"><geom class="x" material="red"/><joint name="j" range="-10 20"/><body name="c"><geom size=".2"/>
<joint name="k"/></body></body></worldbody>
<actuator><motor name="m" joint="j"/></actuator><sensor><jointpos name="s" joint="k"/></sensor></mujoco>"""


def ours() -> mjcf.Spec:
    spec, arm = mjcf.read(BASE), mjcf.read(ARM)
    spec.attach(arm, to=spec.find("body", "b"), prefix="l_")
    frame = spec.worldbody.add("frame", pos=[0, 1, 0])
    spec.attach(arm, to=frame, body="c", prefix="r_")
    mjcf.check(spec)
    return spec


def theirs():
    spec, arm = oracle.mujoco.MjSpec.from_string(BASE), oracle.mujoco.MjSpec.from_string(ARM)
    frame = spec.body("b").add_frame()
    spec.attach(arm, frame=frame, prefix="l_")
    arm = oracle.mujoco.MjSpec.from_string(ARM)
    frame = spec.worldbody.add_frame(pos=[0, 1, 0])
    frame.attach_body(arm.body("c"), "r_", "")
    return spec.compile()


def test_a_copy_compiles_as_the_oracles() -> None:
    spec = ours()
    assert spec.find("joint", "l_j").range.tolist() == [-10, 20]
    model = diffsim.compile(spec)
    assert [model.name("body", index) for index in range(model.nbody)] == ["world", "b", "l_b", "l_c", "r_c"]
    assert differences(model, theirs(), skip={"nmat", "mat_rgba", "geom_matid"}) == []


def test_a_frame_is_attached_with_what_stands_in_it() -> None:
    """As the oracle does it from Python; from XML it does since 3.11."""
    framed = ARM.replace("<worldbody>", '<worldbody><frame name="f" pos="0 2 0" euler="0 0 40">', 1)
    framed = framed.replace("</worldbody>", "</frame><body><geom size='1'/></body></worldbody>", 1)
    host = """<mujoco><asset><model name="m" file="arm.xml"/></asset><worldbody><body name="b" pos="1 0 0"><geom size=".1"/>
      <attach model="m" frame="f" prefix="l_"/></body></worldbody></mujoco>"""
    files = {"arm.xml": framed.encode()}
    model = diffsim.load(host, assets=files)
    from_string = oracle.mujoco.MjSpec.from_string
    spec = from_string(BASE.replace('<joint name="j"/>', "").replace('<geom friction=".2"/><joint damping="3"/>', ""))
    spec.body("b").attach_frame(from_string(framed).frame("f"), "l_", "")
    assert differences(model, spec.compile(), skip={"nmat", "mat_rgba", "geom_matid"}) == []
    base = mjcf.read(host.replace('<attach model="m" frame="f" prefix="l_"/>', ""), assets=files)
    base.attach(mjcf.read(framed), to=base.find("body", "b"), prefix="l_", frame="f")
    assert diffsim.compile(base).topology.digest == model.topology.digest
    with pytest.raises(diffsim.MjcfError, match="has no frame 'g'"):
        diffsim.load(host.replace('frame="f"', 'frame="g"'), assets=files)


def test_it_is_written_to_one_file() -> None:
    spec = ours()
    text = mjcf.write(spec)
    assert differences(diffsim.load(text), oracle.load_oracle(text)) == []
    assert diffsim.load(text).topology.digest == diffsim.compile(spec).topology.digest
    assert mjcf.write(mjcf.read(text)) == text


def test_gaps_of_attached_keyframes_are_written_as_initial_values() -> None:
    """What was attached first has the numbers; behind them and between them stand poses, angles, a mocap body."""
    part = BASE.replace("</mujoco>", '<keyframe><key name="k" qpos=".3" qvel=".5"/></keyframe></mujoco>')
    bodies = """<frame pos="1 2 3" euler="0 0 90"><frame euler="90 0 0"><body name="f" pos="0 1 0" euler="30 0 0">
      <freejoint/><geom size=".1"/></body></frame></frame><body><joint type="ball"/><geom size=".1"/>
      <body><joint ref="30"/><joint type="slide" ref="2"/><geom size=".1"/></body></body>"""
    host = f"""<mujoco><asset><model name="m" file="part.xml"/></asset><worldbody>{bodies}<attach model="m" prefix="p_"/>
      <body mocap="true" pos="1 0 0"/>{bodies.replace('name="f"', "")}</worldbody></mujoco>"""
    spec = mjcf.read(host, assets={"part.xml": part.encode()})
    text = mjcf.write(spec)
    assert differences(diffsim.compile(spec), oracle.load_oracle(text)) == []
    assert "qpos" not in mjcf.write(mjcf.read(host, assets={"part.xml": part.replace(' qpos=".3"', "").encode()}))


def test_a_gap_that_the_compiler_fills_is_refused_where_a_body_is_aligned() -> None:
    part = BASE.replace("</mujoco>", '<keyframe><key name="k" qpos=".3"/></keyframe></mujoco>')
    host = """<mujoco><asset><model name="m" file="part.xml"/></asset><worldbody><attach model="m" prefix="p_"/>
      <body><freejoint align="true"/><geom size=".1"/></body></worldbody></mujoco>"""
    with pytest.raises(UnsupportedError, match="does not give the pose of a free body"):
        mjcf.write(mjcf.read(host, assets={"part.xml": part.encode()}))


def test_files_come_from_the_attached_models_folder(tmp_path) -> None:
    for folder, content in (("one", b"1"), ("two", b"2")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "ground.png").write_bytes(content)
        (tmp_path / folder / "m.xml").write_text(
            f'<mujoco model="{folder}"><asset><texture name="t" type="2d" file="ground.png"/></asset></mujoco>'
        )
    spec = mjcf.read(tmp_path / "one" / "m.xml")
    spec.attach(mjcf.read(tmp_path / "two" / "m.xml"), prefix="other_")
    text = mjcf.write(spec)
    assert [spec.read_file(spec.find("texture", name)) for name in ("t", "other_t")] == [b"1", b"2"]
    assert 'file="../two/ground.png"' in text


def test_other_units_are_not_written_to_one_file() -> None:
    spec = mjcf.read(BASE)
    spec.attach(mjcf.read(ARM.replace("<default>", '<compiler angle="radian"/><default>', 1)), prefix="l_")
    with pytest.raises(UnsupportedError, match="another compiler setting 'angle'"):
        mjcf.write(spec)
    assert diffsim.compile(spec).nbody == 4


def test_default_classes_may_name_assets() -> None:
    child = """<mujoco><default><geom material="red"/><default class="c"><geom type="mesh" mesh="tet"/></default></default>
      <asset><material name="red" rgba="1 0 0 1"/><mesh name="tet" vertex="0 0 0 1 0 0 0 1 0 0 0 1"/></asset>
      <worldbody><body name="b"><geom size="1"/><geom class="c"/></body></worldbody></mujoco>"""
    text = """<mujoco><asset><model name="m" file="child.xml"/></asset>
      <worldbody><attach model="m" body="b" prefix="p_"/></worldbody></mujoco>"""
    model = diffsim.load(text, assets={"child.xml": child.encode()})
    assert model.topology.names["material"] == ("p_red",)
    assert model.topology.geom_matid.tolist() == [0, 0]
    assert model.topology.geom_dataid.tolist() == [-1, 0]


def test_keys_of_a_motor_without_activations() -> None:
    motor = (
        '<dcmotor name="m" joint="j" motorconst=".1" resistance="1"/><intvelocity name="v" joint="j" actrange="-1 1"/>'
    )
    part = BASE.replace(
        "</mujoco>", f'<actuator>{motor}</actuator><keyframe><key name="k" act=".5" ctrl="1 2"/></keyframe></mujoco>'
    )
    host = '<mujoco><asset><model name="m" file="part.xml"/></asset><worldbody><frame><attach model="m" body="b" prefix="p_"/></frame></worldbody></mujoco>'
    model = diffsim.load(host, assets={"part.xml": part.encode()})
    assert model.na == 1 and model.topology.names["key"] == ("p_k",)
    assert float(model.key_act[0, 0]) == 0.5
