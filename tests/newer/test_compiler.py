"""Changes of the compiler."""

import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiler.compare import differences
from compiler.hulls import hull_of

import diffsim
from tests.newer.newer import assert_slopes, assert_steps, namespace, needs_newer, oracle
from tests.uncompiled import uncompiled

pytestmark = needs_newer

SERVOS = """<mujoco><worldbody>
  <body><joint name="a" axis="0 1 0" armature="0.01"/><geom size="0.1" pos="0.3 0 0"/>
    <body pos="0.5 0 0"><joint name="b" axis="0 1 0"/><geom size="0.1" pos="0.3 0 0"/><site name="tip" pos="0.6 0 0.1"/>
  </body></body><body pos="0 3 0"><freejoint/><geom type="box" size="0.1 0.2 0.3"/></body></worldbody>
  <tendon><fixed name="t" armature="0.02" actuatorfrcrange="-1 1"><joint joint="a" coef="1"/><joint joint="b" coef="1"/>
  </fixed></tendon>
  <actuator><position tendon="t" kp="5" dampratio="1"/><position joint="a" kp="2" dampratio="0.7"/>
    <position joint="b" kp="2" kv="0.3"/><position site="tip" gear="1 0 0.2 0 0 0" kp="3" dampratio="2"/></actuator>
</mujoco>"""


@pytest.mark.parametrize("version", ["3.17", "4.0"])
def test_damping_ratios_and_limits_of_tendons(version: str) -> None:
    theirs, ours = oracle(version).compiled(SERVOS), diffsim.load(SERVOS, mujoco=version)
    np.testing.assert_allclose(ours.actuator_biasprm, theirs["actuator_biasprm"], rtol=1e-9)
    assert ours.topology.tendon_actfrclimited.tolist() == theirs["tendon_actfrclimited"].tolist() == [1]
    assert not diffsim.load(SERVOS).topology.tendon_actfrclimited.any()
    assert_steps(SERVOS, oracle(version).sample(SERVOS, count=2), 1e-10, version=version)


def test_damping_ratios_follow_the_masses() -> None:
    model = diffsim.load(SERVOS, mujoco="4.0")
    # damping is done with in a compiled model: back to ratios
    model = model.replace(actuator_biasprm=model.actuator_biasprm.at[jnp.array([0, 1, 3]), 2].set(1.0))

    def damping(scale: jax.Array) -> jax.Array:
        return diffsim.set_const(model.replace(body_mass=model.body_mass * scale)).actuator_biasprm[:, 2]

    def heavier(scale: float) -> np.ndarray:
        return np.asarray(uncompiled(damping)(scale))

    slope = uncompiled(jax.jacfwd(damping))(1.0)
    np.testing.assert_allclose(slope, (heavier(1 + 1e-5) - heavier(1 - 1e-5)) / 2e-5, atol=1e-7)
    np.testing.assert_allclose(uncompiled(jax.jacrev(damping))(1.0), slope, atol=1e-12)


# mujoco#3071
REPLICATED = """<mujoco><worldbody><replicate count="3" offset="1 0 0" sep="_"><body><joint name="j" axis="0 1 0"/>
  <geom size="0.1" pos="0.3 0 0"/></body></replicate></worldbody>
  <keyframe><key name="home" qpos="{}"/></keyframe></mujoco>"""


def test_keyframes_of_replicates_are_of_the_whole_model() -> None:
    with pytest.raises(diffsim.MjcfError, match="3 numbers"):
        diffsim.load(REPLICATED.format("0.1 0.2 0.3"))
    assert diffsim.load(REPLICATED.format("0.1")).nkey == 4
    for numbers in ("0.1 0.2 0.3", "0.1"):
        xml = REPLICATED.format(numbers)
        ours, theirs = diffsim.load(xml, mujoco="4.0"), oracle().compiled(xml)
        np.testing.assert_array_equal(ours.key_qpos, theirs["key_qpos"])


def test_default_tolerance_of_sleep() -> None:
    xml = "<mujoco><option>{}</option></mujoco>"
    for said in ("<flag sleep='enable'/>", ""):
        tolerance = oracle().compiled(xml.format(said))["opt.sleep_tolerance"]
        assert diffsim.load(xml.format(said), mujoco="4.0").opt.sleep_tolerance == tolerance == 1e-3
    assert (
        diffsim.load(
            xml.format("").replace("<option>", "<option sleep_tolerance='0.1'>"), mujoco="4.0"
        ).opt.sleep_tolerance
        == 0.1
    )
    assert diffsim.load(xml.format("")).opt.sleep_tolerance == 1e-4


# default classes and an actuator of class "c": since 3.16 a shortcut inherits parameters from its own kind alone
FILTERED = 'gainprm="7" biasprm="1 2 3" biastype="affine" dynprm=".3" dyntype="filter"'
INHERITING = (
    '<position kp="5" kv="2" timeconst=".3" gear="3"/><default class="c"/> position',
    '<position kp="5" kv="2" gear="3"/><default class="c"/> motor',
    '<position kp="5" kv="2" gear="3"/><default class="c"/> general',
    '<position kp="5" kv="2" gear="3"/><default class="c"/> velocity',
    '<position kp="5" kv="2"/><default class="c"/> intvelocity',
    '<position kp="5" timeconst=".3"/><motor gear="2"/><default class="c"/> position',
    '<position kp="5"/><general ctrlrange="-1 1"/><default class="c"/> position',
    '<position kp="5"/><general ctrlrange="-1 1"/><default class="c"/> motor',
    '<position kp="5"/><default class="c"><velocity kv="3"/></default> position',
    '<position kp="5"/><default class="b"><velocity kv="3"/><default class="c"><position kv="2"/></default></default> '
    "position",
    '<position kp="3" kv="1"/><default class="c"><position dampratio="2"/></default> position',
    '<position kp="3" dampratio="1"/><default class="c"><position kv="2"/></default> position',
    *(f'<general {FILTERED}/><default class="c"/> {tag}' for tag in ("position", "motor", "velocity", "cylinder")),
    *(f'<general {FILTERED}/><default class="c"/> {tag}' for tag in ("damper", "adhesion", "muscle", "intvelocity")),
    '<general gainprm="7" dynprm=".3" dyntype="filterexact"/><default class="c"/> position',
    '<general gaintype="affine" gainprm="5 2 -3"/><default class="c"/> position',
    '<general gaintype="affine" gainprm="5 2 -3"/><default class="c"/> damper',
    '<damper kv="3"/><default class="c"/> damper',
    '<muscle force="3" timeconst=".02 .03"/><default class="c"/> muscle',
    '<muscle force="3"/><default class="c"/> motor',
    '<cylinder area="3" bias="1 2 3" timeconst="2"/><default class="c"/> cylinder',
    '<cylinder area="3" timeconst="2"/><default class="c"/> position',
    '<adhesion gain="3"/><default class="c"/> adhesion',
    '<dcmotor motorconst=".1" resistance="2"/><default class="c"/> motor',
    '<dcmotor motorconst=".1" resistance="2"/><default class="c"/> dcmotor',
    '<default class="c"/> intvelocity',
)
LAW = ("dyntype", "gaintype", "biastype", "dynprm", "gainprm", "biasprm", "gear", "actnum", "actearly")
LAW += ("ctrllimited", "actlimited", "forcelimited", "ctrlrange", "actrange")


@pytest.mark.parametrize("version", ["3.17", "4.0"])
def test_shortcuts_inherit_their_own_parameters(version: str) -> None:
    changed = 0
    for case in INHERITING:
        classes, tag = case.rsplit(" ", 1)
        target = {"adhesion": 'body="b"', "muscle": 'joint="j" lengthrange="0 1"'}.get(tag, 'joint="j"')
        limits = ' ctrlrange="0 1"' if tag in ("damper", "adhesion") else ""
        xml = f"""<mujoco><default>{classes}</default><worldbody><body name="b"><joint name="j"/>
        <geom size=".1"/></body></worldbody><actuator><{tag} class="c" {target}{limits}/></actuator></mujoco>"""
        ours, theirs = diffsim.load(xml, mujoco=version), oracle(version).compiled(xml)
        for name in (f"actuator_{part}" for part in LAW):
            value = getattr(ours, name) if hasattr(ours, name) else getattr(ours.topology, name)
            np.testing.assert_allclose(np.asarray(value, float), theirs[name].astype(float), err_msg=f"{case} {name}")
        try:
            before = diffsim.load(xml)
            changed += not np.array_equal(before.actuator_gainprm, ours.actuator_gainprm)
        except diffsim.MjcfError:
            assert tag in ("intvelocity", "muscle"), case
    assert changed > 8


@pytest.mark.parametrize("version", ["3.17", "4.0"])
def test_an_unlimited_intvelocity_moves(version: str) -> None:
    xml = """<mujoco><worldbody><body><joint name="j"/><geom size=".1" pos=".3 0 0"/></body></worldbody>
    <actuator><intvelocity joint="j" kp="3" dampratio="1"/></actuator></mujoco>"""
    with pytest.raises(diffsim.MjcfError, match="actrange"):
        diffsim.load(xml)
    states = oracle(version).sample(xml, count=3)
    assert_steps(xml, states, 1e-12, steps=5, version=version)
    assert_slopes(xml, states, 1e-6, version=version)


# small meshes, one of them an OBJ with quads that is stretched; a small body; an infinite plane; gaps
QUADS = "v 0 0 0\nv 2 0 0\nv 2 1 0\nv 0 1 0\nv 0 0 .1\nv 2 0 .1\nv 2.3 1.5 .1\nv 0 1 .1\nvn 1 0 1\n"
QUADS += "".join(f"f {' '.join(f'{corner}//1' for corner in side)}\n" for side in ("4321", "5678", "1265", "2376"))
QUADS += "f 3//1 4//1 8//1 7//1\nf 4//1 1//1 5//1 8//1\n"
SMALL = """<mujoco><compiler meshdir="{}"/><asset><mesh name="quads" file="quads.obj" scale=".01 .02 .005"/>
  <mesh name="tip" vertex="0 0 0 .02 0 0 0 .01 0 0 0 .01 .015 .01 .002"/></asset><worldbody>
  <geom type="plane" size="0 0 1"/>
  <body><freejoint/><geom type="mesh" mesh="quads" margin=".01" gap=".02"/></body>
  <body pos="1 0 0"><freejoint/><geom type="mesh" mesh="tip"/>
    <geom type="box" size=".01 .02 .005" euler="3 5 7"/></body>
  <body pos="2 0 0"><freejoint/><inertial pos="0 0 0" mass="1e-3" fullinertia="1e-9 2e-9 2.5e-9 1e-10 -1e-10 2e-10"/>
  </body></worldbody></mujoco>"""


@pytest.mark.parametrize("version", ["3.17", "4.0"])
def test_small_meshes_and_bodies(version: str, tmp_path: pathlib.Path) -> None:
    (tmp_path / "quads.obj").write_text(QUADS)
    xml = SMALL.format(tmp_path)
    ours = diffsim.load(xml, mujoco=version, allow_outside=True)
    assert differences(ours, namespace(oracle(version).compiled(xml))) == []
    before = diffsim.load(xml, allow_outside=True)
    for name in ("mesh_quat", "mesh_normal", "body_iquat", "body_margin"):
        assert np.abs(np.asarray(getattr(before, name)) - getattr(ours, name)).max() > 1e-7, name
    assert not np.array_equal(before.topology.mesh_face, ours.topology.mesh_face)
    assert before.stat.extent > ours.stat.extent


@pytest.mark.parametrize("version", ["3.17", "4.0"])
def test_coarse_hulls_fit_better(version: str) -> None:
    points = np.random.default_rng(0).normal(size=(80, 3)) * [0.1, 0.2, 0.3]
    vertex = " ".join(f"{number:.6f}" for number in points.ravel())
    xml = f"""<mujoco><asset><mesh name="m" vertex="{vertex}" maxhullvert="12"/></asset><worldbody>
    <geom type="plane" size="1 1 1"/><body pos="0 0 0.5"><freejoint/><geom type="mesh" mesh="m"/></body>
    </worldbody></mujoco>"""
    ours, theirs = diffsim.load(xml, mujoco=version), namespace(oracle(version).compiled(xml))
    assert differences(ours, theirs) == []
    before, after = (hull_of(model.topology, 0)[0] for model in (diffsim.load(xml), ours))
    assert before != after and len(after) == 12
    assert_steps(xml, oracle(version).sample(xml, count=2), 1e-9, version=version)
    if version == "4.0":
        assert_slopes(xml, oracle().sample(xml, count=2), 1e-5)


FUSED = """<mujoco><compiler fusestatic="true"/><worldbody><body pos="0 0 1"><freejoint align="{}"/><geom size=".1"/>
  <body pos=".3 .1 .2" euler="30 40 50"><geom type="box" size=".1 .2 .3" pos=".2 .1 0" euler="10 20 30"/>
    <camera pos=".1 0 0"/><light pos="0 .1 0"/></body>
  <body pos=".3 0 0" gravcomp="1"><geom size=".1"/></body></body></worldbody></mujoco>"""


@pytest.mark.parametrize("version", ["3.17", "4.0"])
@pytest.mark.parametrize("align", ["false", "true"])
def test_fused_bodies(version: str, align: str) -> None:
    for xml in (FUSED.format(align), FUSED.format(align).replace(' gravcomp="1"', "")):
        ours = diffsim.load(xml, mujoco=version)
        assert differences(ours, namespace(oracle(version).compiled(xml))) == []
        before = diffsim.load(xml)
        assert np.abs(np.asarray(before.body_inertia)[1] - np.asarray(ours.body_inertia)[1]).max() > 1e-3
    assert_steps(xml, oracle(version).sample(xml, count=2), 1e-10, version=version)


# bodies that never move are fused whatever acts on them, moving ones only where nothing acts on them differently
FIXED = """<mujoco><compiler fusestatic="true"/><option {}/><worldbody>
  <body name="f" pos="0 0 1"><freejoint/><geom size=".1"/>
    <body name="c" pos=".3 .1 .2"><geom size=".1"/><body name="gc" pos=".3 .1 .2"><geom size=".1"/></body></body></body>
  <body name="s" pos="0 1 1"><geom size=".1"/><body name="ss"><geom size=".1"/></body></body></worldbody></mujoco>"""


@pytest.mark.parametrize(
    "xml",
    [
        FIXED.format('density="1"'),
        FIXED.format("").replace('name="s"', 'name="s" gravcomp="1"').replace('name="c"', 'name="c" gravcomp="1"'),
        FIXED.format("").replace('name="ss"', 'name="ss" gravcomp="1"'),
    ],
)
def test_what_acts_on_fixed_bodies_does_not_keep_them(xml: str) -> None:
    assert differences(diffsim.load(xml, mujoco="4.0"), namespace(oracle().compiled(xml))) == []
