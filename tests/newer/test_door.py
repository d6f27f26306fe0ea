"""The MjModel and MjData of a newer MuJoCo go through diffsim.mjx, each beside its maker in one process."""

import json
import os
import pathlib
import subprocess
import sysconfig
from typing import Any

import mujoco
import pytest

import diffsim
from diffsim.compiler import releases
from tests.newer.newer import ENVIRONMENTS, RELEASES, needs_newer, oracle

pytestmark = needs_newer
ROOT = pathlib.Path(diffsim.__file__).parents[1]
ROBOTS = ROOT / "diffsim" / "envs" / "models"


def through(version: str, models: list[str], steps: int = 0) -> list[dict[str, Any]]:
    """Reports of door.py about some models."""
    python = ENVIRONMENTS / RELEASES[version] / "bin" / "python"
    command = [str(python), str(pathlib.Path(__file__).with_name("door.py")), sysconfig.get_path("purelib")]
    asked = json.dumps({"models": models, "steps": steps})
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, input=asked, text=True, capture_output=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


# servos under implicitfast, one of them at its limit
ARM = """<mujoco><option integrator="implicitfast" timestep="0.005"/>
  <default><geom type="capsule" size="0.04" margin="0.01" gap="0.005"/></default><worldbody>
  <geom type="plane" size="1 1 1" pos="0 0 -0.6"/>
  <body><joint name="a" axis="0 1 0" damping="0.1" actuatorfrcrange="-20 20"/><geom fromto="0 0 0 0.4 0 0"/>
    <body pos="0.4 0 0"><joint name="b" axis="0 1 0"/><geom fromto="0 0 0 0.3 0 0"/><site name="tip"/>
      <body pos="0.3 0 0"><joint name="c" axis="0 0 1"/><geom type="box" size="0.05 0.03 0.02"/></body></body></body>
  <body pos="0.5 0 -0.4"><freejoint/><geom type="box" size="0.1 0.1 0.1" fromto="0 0 0 0.1 0.1 0.1"/></body>
  </worldbody><actuator><position joint="a" kp="200" dampratio="1"/><position joint="b" kp="80" kv="4"/>
    <position joint="c" kp="10" dampratio="1"/></actuator><sensor><accelerometer site="tip"/></sensor></mujoco>"""

# two joints and four muscles, around cylinders, one of them with a side site
MUSCLES = """<mujoco><option timestep="0.005"/><default><joint axis="0 0 1" range="-120 120" damping="0.1"/></default>
  <worldbody><site name="s0" pos="-0.15 0 0"/>
  <body><joint name="shoulder"/><geom type="capsule" size="0.045" fromto="0 0 0 0.5 0 0"/>
    <geom name="pulley" type="cylinder" size="0.1 0.05" mass="0" contype="0"/>
    <site name="s1" pos="0.15 0.06 0"/><site name="s3" pos="0.4 0.06 0"/><site name="s4" pos="0.4 -0.06 0"/>
    <site name="x" pos="0.5 -0.15 0"/><body pos="0.5 0 0"><joint name="elbow"/>
      <geom type="capsule" size="0.035" fromto="0 0 0 0.5 0 0"/>
      <geom name="wheel" type="cylinder" size="0.08 0.05" mass="0" contype="0"/>
      <site name="s7" pos="0.11 0.05 0"/><site name="s8" pos="0.11 -0.05 0"/></body></body></worldbody>
  <tendon><spatial name="SF"><site site="s0"/><geom geom="pulley"/><site site="s1"/></spatial>
    <spatial name="EF"><site site="s3"/><geom geom="wheel"/><site site="s7"/></spatial>
    <fixed name="both"><joint joint="shoulder" coef="0.1"/><joint joint="elbow" coef="-0.1"/></fixed>
    <spatial name="EE"><site site="s4"/><geom geom="wheel" sidesite="x"/><site site="s8"/></spatial></tendon>
  <actuator><muscle tendon="SF" lengthrange="0.1 0.4"/><muscle tendon="EF" lengthrange="0.1 0.3"/>
    <muscle tendon="both" lengthrange="-0.2 0.2"/><muscle tendon="EE" lengthrange="0.1 0.4"/></actuator></mujoco>"""

# steps beside the maker
STEPS = 100

# new fields that need no reading: they follow from other fields, or belong to what is refused or to pictures
NEEDLESS = {
    *("actuator_ctrladr", "actuator_ctrlspec", "actuator_outadr", "actuator_outnum", "nactuator", "nout"),
    *("efm0_L", "efm0_L_colind", "efm0_L_rowadr", "efm0_L_rownnz", "efm0_dofid", "nefm0L", "nefm0dof"),
    *("efmC_perm", "nefmCvert", "flg_adhesion", "flg_gravcomp", "flg_surfacevel"),
    *("geom_castshadow", "light_softness", "tex_contenttypeadr"),
    *("mesh_extrema", "nmeshdegmax", "npolygonmax", "tendon_type"),
    *("flex_plasticadr", "flex_plasticmode", "flex_vertcell", "flex_yield"),
    *("jnt_plasticadr", "tendon_plasticadr", "key_plastic", "nplastic"),
}


@pytest.mark.parametrize("version", ["3.17", "4.0"])
def test_models_run_beside_their_maker(version: str) -> None:
    names = ("humanoid", "hand", "quadruped") if version == "4.0" else ("quadruped",)
    models = [ARM, MUSCLES, *(str(ROBOTS / f"{name}.xml") for name in names)]
    for report in through(version, models, STEPS):
        assert report["mujoco"] == version, report
        assert report["moved"] > 0.03, report
        assert report["lost"] < 1e-9, report
        assert report["far"] < 1e-8, report


BALL = """<mujoco><option {option}/><worldbody><body><joint name="j" {joint}/><geom name="g" size="0.1" {geom}/></body>
  </worldbody>{more}</mujoco>"""
PLAIN = dict.fromkeys(("option", "joint", "geom", "more"), "")
NEW = {
    "geom 'g' has adhesion, new in MuJoCo 3.11": {"geom": 'adhesion="3"'},
    "joint 'j' has springyield, new in MuJoCo 4.0": {"joint": 'stiffness="1" springyield="3"'},
    "mjENBL_DIAGEXACT": {"option": "><flag diagexact='enable'/></option><option"},
    "actuator 0 has the gaintype PID": {"more": '<actuator><pid joint="j" kp="1" ki="1"/></actuator>'},
    "actuator 'm' has more or less than one control": {
        "more": '<actuator><dcmotor name="m" joint="j" motorconst="0.1" resistance="1" input="pos vel"/></actuator>'
    },
    "from_mujoco does not read flexes that MuJoCo 4.0 compiled": {
        "more": '<worldbody><flexcomp name="f" type="grid" count="2 2 1" spacing="1 1 1" radius=".1"/></worldbody>'
    },
}


def test_what_is_new_is_refused_by_name() -> None:
    reports = through("4.0", [BALL.format(**PLAIN | said) for said in NEW.values()])
    for words, report in zip(NEW, reports, strict=True):
        assert words in report["refused"]
        assert "MjSpec.to_xml() or mujoco.mj_saveLastXML(path, model) writes the XML" in report["refused"]
        assert 'mjx.make_data takes the model that diffsim.load(xml, mujoco="4.0") makes' in report["refused"]


@pytest.mark.parametrize("version", ["3.17", "4.0"])
def test_every_new_field_has_a_row(version: str) -> None:
    simple = BALL.format(**PLAIN)
    before = {name for name in dir(mujoco.MjModel.from_xml_string(simple)) if not name.startswith("_")}
    now = {name for name in oracle(version).compiled(simple) if "." not in name}
    assert now - before <= {*releases.REFUSED, *NEEDLESS, "geom_surfacevel"}
    arrays = {name for name in before if not callable(getattr(mujoco.MjModel.from_xml_string(simple), name))}
    assert arrays - now <= {*releases.GONE} | {"opt", "stat", "vis", "names", "text_data", "paths"} | {
        *("flex_evpair", "flexvert_J_colind", "flexvert_J_rowadr", "flexvert_J_rownnz", "nJfv")
    }
