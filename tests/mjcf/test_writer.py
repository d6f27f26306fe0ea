"""write: what is written loads to the same model, and says no more than it must."""

import jax
import mujoco
import numpy as np
import oracle
import pytest
from compiler.features import FEATURES

import diffsim
from diffsim import mjcf
from diffsim.base.errors import MjcfError
from diffsim.compiler.passes import compile_all
from diffsim.mjcf.elements.settings import LengthRange
from diffsim.types import Model


def assert_same(first: Model, second: Model) -> None:
    assert first.topology == second.topology
    assert jax.tree.structure(first) == jax.tree.structure(second)
    leaves = zip(*(jax.tree_util.tree_leaves_with_path(model) for model in (first, second)), strict=True)
    for (path, one), (_, other) in leaves:
        np.testing.assert_allclose(other, one, rtol=1e-12, atol=1e-12, err_msg=jax.tree_util.keystr(path))


def written_and_read(spec: mjcf.Spec) -> mjcf.Spec:
    text = mjcf.write(spec)
    again = mjcf.read(text)
    again.resources = spec.resources
    assert mjcf.write(again) == text
    return again


@pytest.fixture
def underived(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models without their derived constants, which follow from the rest."""
    monkeypatch.setattr("diffsim.compiler.passes.derive", lambda draft, model, packed: None)


def assert_comes_back(spec: mjcf.Spec) -> None:
    model = compile_all(spec, refuse=False)
    assert_same(model, compile_all(written_and_read(spec), refuse=False))


@pytest.mark.parametrize("name", FEATURES)
def test_a_feature_comes_back(name: str, underived: None) -> None:
    assert_comes_back(mjcf.read(FEATURES[name]))


@pytest.mark.parametrize("name", ["joints", "options", "lengthrange_limits"])
def test_what_constants_are_derived_from_comes_back(name: str) -> None:
    """Springs by time constant, statistics that are fixed, how lengths are measured: no fields of a model."""
    assert_comes_back(mjcf.read(FEATURES[name]))


def test_how_lengths_are_measured_comes_back() -> None:
    spec = mjcf.read(FEATURES["lengthrange"])
    first, second = (each.compiler.first(LengthRange).filled() for each in (spec, written_and_read(spec)))
    for attribute in ("mode", "accel", "maxforce", "timestep", "inttotal", "interval", "useexisting", "uselimit"):
        assert getattr(first, attribute) == getattr(second, attribute)


# `make corpus` does it with all of the packages' models
REAL = [
    "dm_control/suite/humanoid_CMU.xml",
    "dm_control/suite/manipulator.xml",
    "dm_control/suite/fish.xml",
    "gymnasium/envs/mujoco/assets/ant.xml",
    "gymnasium/envs/mujoco/assets/pusher_v5.xml",
    "mujoco/mjx/test_data/constraints.xml",
]


@pytest.mark.parametrize("path", REAL)
def test_a_real_model_comes_back(path: str, underived: None) -> None:
    assert_comes_back(mjcf.read(oracle.package_path(path)))


@pytest.mark.parametrize("name", ["quat", "joints", "servos", "sensors", "custom", "classes", "options"])
def test_the_oracle_reads_what_we_write(name: str) -> None:
    theirs = oracle.load_oracle(mjcf.write(mjcf.read(FEATURES[name])))
    expected = oracle.load_oracle(FEATURES[name])
    for field in ("body_pos", "body_quat", "geom_size", "jnt_range", "actuator_gainprm", "sensor_cutoff", "qpos0"):
        np.testing.assert_allclose(getattr(theirs, field), getattr(expected, field), atol=1e-12, err_msg=field)


def test_only_what_differs_from_the_defaults_is_written() -> None:
    spec = mjcf.read(
        "<mujoco><option timestep='0.002'/><default><geom friction='.5'/><default class='k'><geom/></default></default>"
        "<worldbody><geom size='0.1' friction='.5' pos='0 0 0' condim='4'/><site type='sphere'/></worldbody>"
        "<sensor/></mujoco>"
    )
    expected = """<mujoco>
  <default>
    <geom friction="0.5"/>
    <default class="k">
      <geom/>
    </default>
  </default>
  <worldbody>
    <geom condim="4" size="0.1"/>
    <site/>
  </worldbody>
</mujoco>
"""
    assert mjcf.write(spec) == expected


def test_numbers_keep_every_digit_and_text_every_letter(tmp_path) -> None:
    spec = mjcf.read("<mujoco/>")
    value = np.nextafter(0.1, 1)
    spec.worldbody.add("site", name='a "b" <c> &\n\u00e9', pos=[value, 1e-300, -0.0], user=[1e22, 3])
    text = mjcf.write(spec, tmp_path / "out.xml")
    assert (tmp_path / "out.xml").read_text(encoding="utf-8") == text
    site = mjcf.read(tmp_path / "out.xml").find("site", 'a "b" <c> &\n\u00e9')
    assert site.pos.tolist() == [value, 1e-300, -0.0] and site.user.tolist() == [1e22, 3]


def test_files_beside_an_included_file_are_found_from_the_model(tmp_path) -> None:
    (tmp_path / "part").mkdir()
    (tmp_path / "part" / "ground.png").write_bytes(b"")
    (tmp_path / "part" / "part.xml").write_text(
        "<mujoco><asset><texture name='t' type='2d' file='ground.png'/></asset></mujoco>"
    )
    (tmp_path / "model.xml").write_text("<mujoco><include file='part/part.xml'/></mujoco>")
    assert 'file="part/ground.png"' in mjcf.write(mjcf.read(tmp_path / "model.xml"))


def test_a_wrong_spec_is_not_written() -> None:
    spec = mjcf.new()
    spec.actuator.add("motor", name="m", joint="knee")
    with pytest.raises(MjcfError, match=r'<motor name="m">: attribute \'joint\': there is no joint'):
        mjcf.write(spec)


SAVED = """<mujoco><compiler saveinertial="true" angle="degree"/>
<default><geom density="700"/></default>
<worldbody><geom type="plane" size="1 1 1"/>
  <body name="one" pos="0 0 1" euler="10 20 30"><freejoint align="true"/>
    <frame pos=".1 0 0" euler="0 30 0"><geom type="box" size=".1 .2 .3"/>
      <geom type="capsule" size=".05 .2" pos=".2 .1 0"/></frame>
    <body pos=".5 0 0"><joint/><geom type="ellipsoid" size=".1 .2 .3" pos=".1 0 0" euler="0 0 40"/>
      <body name="empty"/></body>
    <body name="own"><joint/><frame pos="1 0 0">
      <inertial pos="0 .1 0" mass="2" fullinertia=".3 .2 .25 .01 .02 0"/></frame></body>
  </body></worldbody></mujoco>"""


def test_inertias_are_said_where_the_file_asks_for_them() -> None:
    spec = mjcf.read(SAVED)
    with pytest.warns(UserWarning, match=r"<body name=\"one\"> has no <inertial>; call diffsim.save_inertials"):
        plain = mjcf.write(spec)
    assert plain.count("<inertial") == 1
    diffsim.save_inertials(spec)
    spec.compiler.saveinertial = False
    text = mjcf.write(spec)
    assert text.count("<inertial") == 3 and "fullinertia" not in text
    ours, expected = diffsim.load(text), mujoco.MjModel.from_xml_string(SAVED)
    theirs = mujoco.MjModel.from_xml_string(text)
    for name in ("body_mass", "body_inertia", "body_ipos", "body_pos"):
        for found in (ours, theirs):
            np.testing.assert_allclose(getattr(found, name), getattr(expected, name), atol=1e-12, err_msg=name)
    np.testing.assert_allclose(np.abs(ours.dof_M0), np.abs(expected.dof_M0), rtol=1e-12)
