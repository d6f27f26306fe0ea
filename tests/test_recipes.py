"""CONTRIBUTING is true: its recipes are followed in a copy of the tree, and the files that it names exist.

Each recipe is a list of places; a place is one insertion. MuJoCo's number for the new kind is inserted as well. Then a
model with all of the new kinds is loaded and stepped, and each kind does what its function says.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
from typing import NamedTuple

ROOT = pathlib.Path(__file__).parents[1]


class Place(NamedTuple):
    """Text inserted in a file of diffsim, behind the only (or the first) occurrence of `after`."""

    file: str
    after: str
    text: str


NUMBERS = [
    Place("base/enums.py", "    DISCRETE = 4\n", "    FROZEN = 5\n"),
    Place("base/enums.py", "    FLEXSTRAIN = 6\n", "    MIRROR = 7\n"),
    Place("base/enums.py", '"""Actuator biases (mjtBias)."""\n', "\n    SQUARE = 5\n"),
    Place("base/enums.py", '"""Types of sensors (mjtSensor)."""\n', "\n    HALFTIME = 49\n"),
]

RECIPES = {
    "sensor": [
        Place("mjcf/elements/sensor.py", 'Sensor: "e_potential e_kinetic clock', " halftime"),
        Place(
            "sensor/joint.py",
            "from diffsim.xla.gather import pick\n",
            '\n\ndef half_time(readings: Readings, group: Group) -> Array:\n    """Half the time, s, (n, 1)."""\n'
            "    return 0.5 * readings.state.time.reshape(1, 1).repeat(group.size, 0)\n",
        ),
        Place(
            "sensor/table.py",
            "    SensorType.CLOCK: Sensor(POS, 1, readings.clock),\n",
            "    SensorType.HALFTIME: Sensor(POS, 1, joint.half_time),\n",
        ),
    ],
    "contact pair": [
        Place(
            "geometry/primitive/primitives.py",
            "from diffsim.xla.select import where_tree\n",
            "\n\ndef sphere_mesh(sphere: Shape, mesh: Shape, margin: Array) -> Candidates:\n"
            '    """A ball in the mesh."""\n'
            "    row = ball_ball(sphere.pos, sphere.size[0], mesh.pos, sphere.size[0], axes_fallback(sphere, mesh))\n"
            "    return stack([candidate(*row)])\n",
        ),
        Place(
            "geometry/colliders.py",
            "    (PLANE, MESH): Collider(primitives.plane_mesh, 3),\n",
            "    (SPHERE, MESH): Collider(primitives.sphere_mesh, 1),\n",
        ),
    ],
    "equality": [
        Place("mjcf/elements/constraints.py", '    "joint": JointEquality,\n', '    "mirror": JointEquality,\n'),
        Place(
            "constraint/equality.py",
            "from diffsim.xla.gather import pick\n",
            "\n\ndef mirror(source: Sources, ids: np.ndarray) -> RawRows:\n"
            '    """A joint at minus the position of another: joint_equality with the polynomial -x."""\n'
            "    data = source.model.eq_data.at[ids, :5].set(jnp.array([0.0, -1, 0, 0, 0]))\n"
            "    return joint_equality(source._replace(model=source.model.replace(eq_data=data)), ids)\n",
        ),
        Place(
            "constraint/families.py",
            '    "joint_equality": _equality(EqType.JOINT, equality.joint_equality),\n',
            '    "mirror": _equality(EqType.MIRROR, equality.mirror),\n',
        ),
    ],
    "actuator law": [
        Place(
            "actuator/laws.py",
            "from diffsim.math import safe\n",
            "\n\ndef square(actuators: Actuators, parameters: Array) -> Array:\n"
            '    """(n,) force that grows with the square of the length."""\n'
            "    return parameters[:, 0] * actuators.length**2\n",
        ),
        Place(
            "actuator/laws.py",
            "LAWS: dict[str, Law] = {\n",
            '    "square": Law(bias=Force(square)),\n',
        ),
    ],
    "integrator": [
        Place(
            "simulate/integrate/integrators.py",
            "Inertia = Callable[[Model, State, Inputs, Data], BlockDiagonal]\n",
            "\n\ndef frozen(model: Model, state: State, inputs: Inputs, data: Data) -> Motion:\n"
            '    """Time goes on, nothing moves."""\n'
            "    still = 0 * state.qvel, 0 * data.act_dot, data.actuator_velocity, data.qacc, data.sensor_now\n"
            "    return Motion(state.qvel, *still)\n",
        ),
        Place(
            "simulate/integrate/integrators.py",
            "INTEGRATORS: dict[Integrator, Method] = {\n",
            "    Integrator.FROZEN: Method(frozen),\n",
        ),
    ],
}

MODEL = """<mujoco><option integrator="frozen"><flag gravity="disable"/></option>
  <asset><mesh name="m" vertex="0 0 0 .1 0 0 0 .1 0 0 0 .1"/></asset>
  <worldbody>
    <body pos="0 1 0"><joint name="a" axis="0 1 0"/><geom size=".01" mass="1" contype="0" conaffinity="0"/></body>
    <body pos="0 2 0"><joint name="b" axis="0 1 0"/><geom size=".01" mass="1" contype="0" conaffinity="0"/></body>
    <geom name="s" size=".3" pos=".1 .1 .1"/><body><freejoint/><geom type="mesh" mesh="m"/></body>
  </worldbody>
  <equality><mirror joint1="a" joint2="b"/></equality>
  <actuator><general joint="a" biastype="square" biasprm="3"/></actuator>
  <sensor><halftime/></sensor></mujoco>"""

PROGRAM = f"""
import jax, jax.numpy as jnp, numpy as np
jax.config.update("jax_enable_x64", True)
import diffsim
from diffsim.compiler.host.interpret import interpret
model = diffsim.load('''{MODEL}''')
state = diffsim.make_state(model)
state = state.replace(time=jnp.asarray(4.0), qpos=state.qpos.at[0].set(0.5), qvel=state.qvel.at[1].set(2.0))
later, data = interpret(diffsim.step_data, model, state, diffsim.make_inputs(model))
assert data.sensordata[0] == 2, data.sensordata
assert data.actuator_force[0] == 0.75, data.actuator_force
assert data.efc.find("mirror").pos[0] == 0.5, data.efc
assert int(np.sum(data.contact.dist < 0)) == 1, data.contact.dist
np.testing.assert_array_equal(later.qpos, state.qpos)
assert later.time > state.time
print("all five")
"""


def test_contributing_states_the_number_of_places() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    for name, places in RECIPES.items():
        stated = re.search(rf"^- an? {name}, (\d)(?: places)?:", text, re.MULTILINE)
        assert stated and int(stated.group(1)) == len(places), name
        for place in places:
            assert place.file in text or str(pathlib.Path(place.file).parent) + "/" in text, place.file


def test_contributing_names_files_and_commands_that_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    files = re.findall(r"`([a-z_][\w/]*(?:/|\.py))`", text)
    missing = [file for file in files if not (ROOT / file).exists() and not any((ROOT / "diffsim").rglob(file))]
    targets = re.findall(r"\bmake ([a-z][a-z-]*)", text)
    makefile = (ROOT / "Makefile").read_text()
    missing += [target for target in targets if f"\n{target}:" not in makefile]
    # the first cells of the table of long measurements: names of modules, some with arguments
    rows = text.split("| WHAT |")[1].split("\n\n")[0].splitlines()[2:]
    names = [name.strip('"').split()[0] for row in rows for name in re.findall(r"`([^`]+)`", row.split("|")[1])]
    missing += [name for name in names if not (ROOT / "tests" / "measure" / f"{name}.py").exists()]
    assert len(files) > 50 and len(targets) > 10 and len(names) > 20
    assert not missing


def test_the_recipes_are_enough(tmp_path: pathlib.Path) -> None:
    shutil.copytree(ROOT / "diffsim", tmp_path / "diffsim", ignore=shutil.ignore_patterns("__pycache__"))
    for place in [*NUMBERS, *(place for places in RECIPES.values() for place in places)]:
        file = tmp_path / "diffsim" / place.file
        before, found, behind = file.read_text().partition(place.after)
        assert found, f"{place.file} has no {place.after!r}"
        file.write_text(before + found + place.text + behind)
    settings = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=settings, capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout.strip() == "all five", done.stderr[-2000:]
