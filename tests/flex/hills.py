"""Contacts of flexes with a height field as MuJoCo 3.8.1 makes them; `python -m tests.flex.hills` writes them anew.

mjc_HFieldElem reads parts of a shape that it has not set, so that it often crashes. Whether it does depends on what
stands there from calls before; what it returns where it ends does not. So it runs in processes of their own, each after
another collision, until one of them ends.
"""

import json
import pathlib
import subprocess
import sys

import mujoco
import numpy as np

FILE = pathlib.Path(__file__).with_name("hills.json")
HEIGHTS = " ".join(f"{height:.3f}" for height in np.random.default_rng(0).random(99))
FIELD = f'<asset><hfield name="h" nrow="9" ncol="11" size=".3 .25 .06 .1" elevation="{HEIGHTS}"/></asset>'
HILLS = '<body pos="0 0 {}" euler="3 4 5"><geom type="hfield" hfield="h"/></body>'
OTHERS = """<mujoco><asset><hfield name="h" nrow="2" ncol="2" size="1 1 1 1"/></asset><worldbody>
  <geom type="hfield" hfield="h"/><body pos="0 0 .05"><freejoint/><geom type="{}" size=".1 .1 .1"/></body>
  </worldbody></mujoco>"""
FIELDS = ("dist", "pos", "frame", "geom", "flex", "elem", "vert")


def contacts_after(name: str, kind: str) -> None:
    """Prints the contacts of a scene, computed after those of a geom of some type."""
    from tests.flex.models import moved
    from tests.flex.test_contacts import SCENES

    other, mjmodel = (mujoco.MjModel.from_xml_string(xml) for xml in (OTHERS.format(kind), SCENES[name]))
    data = moved(mjmodel, seed=1, spread=4e-3, evaluated=False)
    for stage in (mujoco.mj_kinematics, mujoco.mj_comPos, mujoco.mj_flex):
        stage(mjmodel, data)
    mujoco.mj_forward(other, mujoco.MjData(other))
    mujoco.mj_collision(mjmodel, data)
    print(json.dumps({field: getattr(data.contact, field).tolist() for field in FIELDS}))


def main() -> None:
    """Writes the contacts of all scenes with hills."""
    from tests.flex.test_contacts import SCENES

    result = {}
    for name in (name for name in SCENES if "hills" in name):
        for kind in ("box", "ellipsoid", "cylinder", "capsule") * 5:
            run = subprocess.run([sys.executable, "-m", "tests.flex.hills", name, kind], capture_output=True, text=True)
            if not run.returncode:
                result[name] = json.loads(run.stdout)
                break
    FILE.write_text(json.dumps(result))


if __name__ == "__main__":
    contacts_after(*sys.argv[1:]) if sys.argv[1:] else main()
