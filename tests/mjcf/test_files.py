"""Files: paths and text, includes, files in memory, what may be opened; sections that are repeated."""

import numpy as np
import oracle
import pytest
from corpus import GYM, SUITE

from diffsim.base.enums import DisableBit, Integrator
from diffsim.base.errors import MjcfError, UnsupportedError
from diffsim.load import load
from diffsim.mjcf import ResourceError, read
from diffsim.mjcf.elements import Actuator, Geom, Key, Mesh

PACKAGES = ("dm_control/suite", "gymnasium/envs/mujoco/assets", "mujoco/mjx/test_data")
# test_resolve.py reads those of the corpus
RESOLVED = {oracle.package_path(path) for path in (*SUITE, *GYM)}
FILES = [path for package in PACKAGES for path in sorted(oracle.package_path(package).rglob("*.xml"))]
FILES = [path for path in FILES if path not in RESOLVED]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_real_models_read(path):
    spec = read(path)
    assert spec.all(Geom) or spec.root.children


def test_text_in_every_form():
    text = "\n <?xml version='1.0'?>\n<!-- a -- b --><mujoco model='x'/>"
    for source in (text, text.encode(), b"\xef\xbb\xbf" + text.strip().encode(), text.strip().encode("utf-16")):
        assert read(source).model == "x"


def test_lines_survive_comments_and_declaration():
    with pytest.raises(MjcfError, match="<xml>:4 <gem>"):
        read("<?xml version='1.0'?>\n<!-- two\nlines --><mujoco><worldbody>\n<gem/></worldbody></mujoco>")


@pytest.mark.parametrize("name", ["a", "a & b", "a&nbsp;b", "a&lt;b", "a<b", "a=b", "it's &#233;"])
def test_what_the_oracle_forgives(name):
    text = f"<mujoco>\n<worldbody><geom name=\"{name}\"type='box'size='1 2 3'/>\n<gem/></worldbody></mujoco>"
    with pytest.raises(MjcfError, match="<xml>:3 <gem>"):
        read(text)
    text = text.replace("<gem/>", "")
    (geom,) = read(text).all(Geom)
    assert geom.name == oracle.mujoco.MjModel.from_xml_string(text).geom(0).name
    assert tuple(geom.size) == (1, 2, 3)


def test_include_from_memory():
    assets = {
        "parts/a.xml": b"<x><option timestep='0.1'/><worldbody><geom name='a'/></worldbody><include file='b.xml'/></x>",
        "parts/b.xml": b"<x><worldbody><geom name='b' clas='c'/></worldbody></x>",
    }
    text = "<mujoco><include file='parts/a.xml'/></mujoco>"
    with pytest.raises(MjcfError, match=r"parts/b\.xml:1 <geom name=\"b\">: unknown attribute 'clas'"):
        read(text, assets)
    assets["parts/b.xml"] = b"<x><worldbody><geom name='b'/></worldbody></x>"
    spec = read(text, assets)
    assert [geom.name for geom in spec.all(Geom)] == ["a", "b"]
    assert spec.option.timestep == 0.1


@pytest.mark.parametrize(
    ("assets", "message"),
    [
        ({"a.xml": b"<x><include file='a.xml'/></x>"}, "a.xml:1 <include>: file 'a.xml' is already included"),
        (
            {"a.xml": b"<x><include file='b.xml'/><include file='b.xml'/></x>", "b.xml": b"<x><size/></x>"},
            "already included",
        ),
        ({"a.xml": b"<x>"}, "a.xml:1: not valid XML"),
        ({"a.xml": b""}, "a.xml: the file is empty"),
        ({"a.xml": b"<x/>"}, "contains no elements"),
        ({"a.xml": b"<!DOCTYPE x><x/>"}, "document types"),
    ],
)
def test_wrong_includes(assets, message):
    with pytest.raises(MjcfError) as caught:
        read("<mujoco><include file='a.xml'/></mujoco>", assets)
    assert message in str(caught.value)


def test_files_stay_in_the_models_folder(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret.xml").write_text("<x><worldbody><geom name='s'/></worldbody></x>")
    main = folder / "main.xml"
    main.write_text("<mujoco><include file='../secret.xml'/></mujoco>")
    with pytest.raises(MjcfError, match=r"main.xml:1 <include>: file '../secret.xml' is outside the model's folder"):
        read(main, allow_outside=False)
    # MuJoCo reads what a file on the disk names
    assert read(main).all(Geom)[0].name == "s"
    with pytest.raises(MjcfError, match=r"does not exist; pass it in assets=.* or load the model by its path"):
        read(main.read_text())


def test_asset_files(tmp_path):
    (tmp_path / "meshes").mkdir()
    (tmp_path / "meshes" / "cube.stl").write_bytes(b"solid")
    main = tmp_path / "main.xml"
    main.write_text(
        "<mujoco><asset><mesh file='cube.stl'/><mesh file='no.stl'/></asset><compiler meshdir='meshes'/></mujoco>"
    )
    spec = read(main)
    cube, missing = spec.all(Mesh)
    assert spec.read_file(cube) == b"solid"
    assert cube.known_as == "cube" and spec.names["mesh"]["cube"] is cube
    with pytest.raises(ResourceError, match=r"meshes/no\.stl' does not exist"):
        spec.read_file(missing)


def test_repeated_sections_merge():
    spec = read(
        """<mujoco>
        <option timestep="0.1" o_friction="3"><flag gravity="disable" limit="disable"/></option>
        <worldbody><body name="a"/></worldbody>
        <option integrator="RK4" o_friction="4 5"><flag gravity="enable"/></option>
        <keyframe><key name="k" qpos="1 2"/></keyframe>
        <worldbody><body name="b"/></worldbody>
        <option o_friction="6"/>
        </mujoco>"""
    )
    assert (spec.option.timestep, spec.option.integrator) == (0.1, Integrator.RK4)
    np.testing.assert_array_equal(spec.option.o_friction, [6, 5, 0.005, 0.0001, 0.0001])
    assert spec.flags.disableflags == DisableBit.LIMIT
    assert spec.flags.enableflags == 0
    assert [body.name for body in spec.worldbody.children] == ["a", "b"]
    np.testing.assert_array_equal(spec.all(Key)[0].qpos, [1, 2])


def test_settings_without_sections():
    spec = read("<mujoco/>")
    assert (spec.model, spec.compiler.degree, spec.compiler.eulerseq) == ("MuJoCo Model", True, "xyz")
    assert spec.worldbody.name == "world" and spec.flags.disableflags == 0
    assert spec.size.nkey == 0 and spec.statistic.extent is None


NEWER = '<mujoco>{}<worldbody><body {}><joint {}/><geom size=".1" {}/></body></worldbody></mujoco>'


@pytest.mark.parametrize(
    "parts",
    [
        ("", 'simple="false"', "", 'adhesion="0" castshadow="false"'),
        ('<option><flag ipc="disable" speculative="disable"/></option>', "", 'springyield="0"', ""),
        ('<compiler savecanonical="true" passthrough="x" conflict="warning"/>', "", "", ""),
        ('<actuator><general joint="j" input="pos" biastype="affine"/></actuator>', "", 'name="j"', ""),
        ('<default><tendon armature=".1" actuatorfrcrange="-1 1"/></default>', "", "", ""),
    ],
)
def test_newer_attributes_that_say_nothing_are_read(parts: tuple[str, ...]) -> None:
    assert len(read(NEWER.format(*parts)).geoms) == 1


@pytest.mark.parametrize(
    ("parts", "version"),
    [
        (("", "", "", 'adhesion="2"'), "attribute 'adhesion' is new in MuJoCo 3.11"),
        (('<compiler conflict="merge"/>', "", "", ""), "attribute 'conflict' is new in MuJoCo 3.10"),
        (('<option integrator="discrete"/>', "", "", ""), "attribute 'integrator': 'discrete' is new in MuJoCo 3.13"),
        (('<option><flag speculative="enable"/></option>', "", "", ""), "attribute 'speculative' is new in MuJoCo 4.0"),
        (('<actuator><dcmotor joint="j" input="ff"/></actuator>', "", 'name="j"', ""), "'ff' is new in MuJoCo 3.12"),
        (
            ('<actuator><general joint="j" input="pos vel"/></actuator>', "", 'name="j"', ""),
            "'pos vel' is new in MuJoCo",
        ),
        (('<actuator><pid joint="j"/></actuator>', "", 'name="j"', ""), "<pid>: is new in MuJoCo 3.12"),
        (('<actuator><orientation joint="j"/></actuator>', "", 'name="j"', ""), "is new in MuJoCo 3.11"),
        (("", "", "", '/><attach body="b" prefix="a"'), "leaving out 'model' is new in MuJoCo 3.11"),
    ],
)
def test_newer_attributes_that_change_the_motion_name_their_version(parts: tuple[str, ...], version: str) -> None:
    with pytest.raises(UnsupportedError, match=version):
        read(NEWER.format(*parts))


def test_an_input_of_a_gain_that_3_8_1_has_not_like_this_is_refused() -> None:
    """Its class says which gain it is; with a fixed one the one input is the control that 3.8.1 has."""
    text = NEWER.format(
        '<default><general gaintype="{}"/></default><actuator><general joint="j" input="pos"/></actuator>',
        "",
        'name="j"',
        "",
    )
    spec = read(text.format("affine"))
    assert spec.resolve(spec.all(Actuator)[0]).input_ == 0
    with pytest.raises(UnsupportedError, match=r"attribute 'input' with this gaintype is new in MuJoCo 3\.12"):
        load(text.format("muscle"))
