"""Distance fields in the compiler: surfaces, masses and bounds as MuJoCo's plugins give them, and what is refused."""

import functools

import numpy as np
import oracle
import pytest
from compiler.compare import differences
from geometry.field_scenes import OCTREE, RING, SETTINGS, extension, field_geom

from diffsim import MjcfError, Model, UnsupportedError, compile, from_mujoco, load, mjcf
from diffsim.geometry.sdf.data import OCTREE as OCTREE_FIELD
from diffsim.geometry.sdf.functions import FUNCTIONS

SEEN = "contype='0' conaffinity='0' euler='10 20 30'"
ALL = f"""<mujoco>{extension(*SETTINGS)}<worldbody>
  {"".join(f"<body>{field_geom(name, SEEN)}<freejoint/></body>" for name in SETTINGS)}</worldbody></mujoco>"""


ALONE = f"""<mujoco>{extension("gear")}<worldbody>
  <body>{field_geom("gear", "name='gear'")}<freejoint/></body></worldbody></mujoco>"""


def test_surfaces_masses_and_bounds_are_those_of_the_oracle() -> None:
    """Equal surfaces: the fields are equal to rounding around them."""
    model, mjmodel = load(ALL), oracle.load_oracle(ALL)
    assert differences(model, mjmodel, skip={"geom_sdf", "geom_sdfparam"}) == []
    np.testing.assert_array_equal(model.mesh_vert, mjmodel.mesh_vert)
    np.testing.assert_array_equal(model.topology.mesh_face, mjmodel.mesh_face)


@functools.cache
def alone() -> Model:
    return load(ALONE)


def test_planes_touch_the_hull_of_the_surface() -> None:
    assert differences(alone(), oracle.load_oracle(ALONE)) == []


def test_the_plugin_may_stand_in_the_element_itself() -> None:
    inside = "<plugin plugin='mujoco.sdf.nut'><config key='radius' value='.2'/></plugin>"
    text = f"""<mujoco><extension><plugin plugin='mujoco.sdf.nut'/></extension>
      <asset><mesh name='m'>{inside}</mesh></asset>
      <worldbody><geom type='sdf' mesh='m' {SEEN}>{inside}</geom></worldbody></mujoco>"""
    model, mjmodel = load(text), oracle.load_oracle(text)
    assert differences(model, mjmodel) == [] and model.geom_sdfparam[0, 0] == 0.2


def test_a_field_comes_along_with_its_model() -> None:
    spec = mjcf.read("<mujoco><worldbody/></mujoco>")
    spec.attach(mjcf.read(ALONE), prefix="its_")
    model = compile(spec)
    np.testing.assert_array_equal(model.geom_sdfparam, alone().geom_sdfparam)
    assert load(mjcf.write(spec)).geom("its_gear").dataid == 0


def nut(settings: str = "", mesh: str = "", geom: str = "", body: str = "") -> str:
    """A nut, with more said of it."""
    return f"""<mujoco><extension><plugin plugin='mujoco.sdf.nut'><instance name='i'>{settings}</instance></plugin>
      </extension><asset><mesh name='m' {mesh}><plugin instance='i'/></mesh></asset>
      <worldbody>{body}<geom type='sdf' mesh='m'>{geom or "<plugin instance='i'/>"}</geom></worldbody></mujoco>"""


WRONG = {
    "unknown_setting": (nut("<config key='radios' value='1'/>"), "no setting 'radios'.*radius"),
    "no_number": (nut("<config key='radius' value='wide'/>"), "must be a number, not 'wide'"),
    "scale": (nut(mesh="scale='2 2 2'"), "'scale' does not apply"),
    "builtin": (nut(mesh="builtin='sphere' params='1'"), "takes its surface from the plugin"),
    "unknown": (nut(geom="<plugin plugin='mujoco.sdf.wheel'/>"), "not a distance field that diffsim supports"),
    "other": (nut(geom="<plugin plugin='mujoco.sdf.gear' instance='i'/>"), "belongs to plugin 'mujoco.sdf.nut'"),
    "neither": (nut(geom="<plugin/>"), "needs attribute 'plugin' or 'instance'"),
    "no_surface": (
        nut().replace("nut", "bowl").replace("name='i'>", "name='i'><config key='radius' value='-1'/>"),
        "no surface",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_field_is_refused(name: str) -> None:
    text, message = WRONG[name]
    with pytest.raises(MjcfError, match=message):
        load(text)


def test_what_does_not_collide_is_refused() -> None:
    text = ALONE.replace("<worldbody>", "<worldbody><geom type='hfield' hfield='h'/>")
    text = text.replace("<asset>", "<asset><hfield name='h' nrow='2' ncol='2' size='1 1 1 1'/>")
    with pytest.raises(UnsupportedError, match="no contacts between height fields and signed distance fields"):
        load(text)


def test_from_mujoco_finds_the_fields_of_plugins() -> None:
    """All of MuJoCo's, with settings given and by default; two geoms without a plugin beside them."""
    text = ALL.replace("<worldbody>", f"<worldbody>{field_geom(OCTREE)}<geom size='.1'/>")
    text = text.replace("<asset>", "<asset>" + RING)
    ours, converted = load(text), from_mujoco(oracle.load_oracle(text))
    assert converted.topology.sdf_names == ours.topology.sdf_names == tuple(sorted([OCTREE_FIELD, *FUNCTIONS]))
    np.testing.assert_array_equal(converted.topology.geom_sdf, ours.topology.geom_sdf)
    np.testing.assert_array_equal(converted.geom_sdfparam, ours.geom_sdfparam)


def test_from_mujoco_refuses_a_field_that_its_mesh_does_not_show() -> None:
    """The mesh of another plugin."""
    torus = "<extension><plugin plugin='mujoco.sdf.torus'><instance name='t'/></plugin>"
    text = nut().replace("<extension>", torus).replace("instance='i'/></mesh>", "instance='t'/></mesh>")
    mjmodel = oracle.load_oracle(text)
    with pytest.raises(UnsupportedError, match="cannot identify the distance field of geom 0"):
        from_mujoco(mjmodel)


def test_an_instance_that_nothing_uses_is_refused_as_by_the_oracle() -> None:
    text = """<mujoco><extension><plugin plugin='mujoco.pid'><instance name='p'><config key='kp' value='4'/></instance>
        </plugin></extension><worldbody><body><joint/><geom size='1'/></body></worldbody></mujoco>"""
    with pytest.raises(ValueError, match="actuator not found"):
        oracle.load_oracle(text)
    with pytest.raises(MjcfError, match="no actuator uses this instance"):
        load(text)
