"""Problems of `make measure WHAT=plan_robots`: arms, grippers and fingers in 3-D that move a free body or a drawer.

The arms have the joints of a UR5 and of a Panda (tests/optimize/arms.py), links of capsules, and position servos with
gains like those of Menagerie's UR5e. Every function draws its problem from a generator of numpy; None for one that is
fixed.
"""

import math
import pathlib
import re
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from tests.optimize.arms import FLANGE, HOME, PANDA, UR5

Rng = np.random.Generator | None


class Problem(NamedTuple):
    """A model and what shall become of one of its bodies.

    Attributes:
      xml: the model, with a keyframe in which the motion begins.
      body: the name of the body.
      goal: (3,) m, where it shall end.
      steps: length of the motion.
    """

    xml: str
    body: str
    goal: tuple[float, float, float]
    steps: int


def scene(timestep: float, world: str, actuators: str, qpos: list[float], ctrl: list[float]) -> str:
    """A model of a table (z = 0) with what stands on it."""
    return f"""<mujoco><option timestep="{timestep}" integrator="implicitfast"/><compiler angle="radian"/>
<default><geom friction=".6"/></default>
<worldbody><geom name="table" type="plane" size="2 2 .1"/>{world}</worldbody><actuator>{actuators}</actuator>
<keyframe><key name="start" qpos="{" ".join(map(str, qpos))}" ctrl="{" ".join(map(str, ctrl))}"/></keyframe></mujoco>"""


def box(name: str, half: float, mass: float) -> str:
    """A cube on a free joint."""
    geom = f'<geom name="{name}" type="box" size="{half} {half} {half}" mass="{mass}"/>'
    return f'<body name="{name}"><freejoint/>{geom}</body>'


def arm(name: str, tool: str) -> tuple[str, str]:
    """The MJCF of an arm on a socket of 10 cm, with links of capsules and a tool in the frame of its flange; servos."""
    rows = PANDA if name == "panda" else UR5
    inside = f'<body pos="0 0 {FLANGE[name]}">{tool}</body>'
    end = f"0 0 {FLANGE[name]}"
    servos = []
    for number, (a, alpha, d, (low, high)) in reversed(list(enumerate(rows, 1))):
        place = f"{a} {-d * math.sin(alpha)} {d * math.cos(alpha)}"
        # two capsules of no length have no direction
        long = np.linalg.norm([float(x) for x in end.split()]) > 0.02
        link = f'<geom type="capsule" size=".04" fromto="0 0 0 {end}" mass="2" conaffinity="0"/>' if long else ""
        link = link or '<geom type="sphere" size=".04" mass="1" conaffinity="0"/>'
        inside = f"""<body name="link{number}" pos="{place}" euler="{alpha} 0 0">
<joint name="joint{number}" axis="0 0 1" range="{low} {high}" armature=".1"/>{link}{inside}</body>"""
        end = place
        kp = 2000 if number < 4 else 500
        servos.append(
            f'<position joint="joint{number}" kp="{kp}" kv="{kp / 5}" ctrlrange="{low} {high}" '
            f'forcerange="-{150 if number < 4 else 50} {150 if number < 4 else 50}"/>'
        )
    return f'<body pos="0 0 .1">{inside}</body>', "".join(servos[::-1])


def arm_push(name: str, rng: Rng) -> Problem:
    """An arm with a rod pushes a free cube 15 cm over a table."""
    angle, half, away = (0.0, 0.03, 0.0) if rng is None else rng.uniform((-1.0, 0.025, -0.6), (1.0, 0.04, 0.6))
    rod = '<geom type="capsule" size=".02" fromto="0 0 0 0 0 .1" mass=".2" conaffinity="0"/>'
    body, servos = arm(name, rod)
    home = HOME[name]
    reach = 0.5
    at = reach * np.array([math.cos(away), math.sin(away)]) * (-1 if name == "ur5" else 1)
    goal = at + 0.15 * np.array([math.cos(angle), math.sin(angle)])
    start = [*home, *at, half, 1, 0, 0, 0]
    xml = scene(0.01, body + box("cube", half, 0.2), servos, start, list(home))
    return Problem(xml, "cube", (*goal.tolist(), half), 200)


def gantry() -> tuple[str, str]:
    """A gripper that hangs from three slides above the table, open by 9 cm; position servos."""
    body = """<body name="gantry" pos="0 0 .3">
<joint name="gx" type="slide" axis="1 0 0" range="-.4 .4"/><joint name="gy" type="slide" axis="0 1 0" range="-.4 .4"/>
<joint name="gz" type="slide" axis="0 0 1" range="-.28 .2"/>
<geom type="box" size=".06 .03 .02" mass="1" conaffinity="0"/>
<body pos="-.05 0 -.05"><joint name="left" type="slide" axis="1 0 0" range="0 .045"/>
<geom name="left" type="box" size=".01 .02 .05" mass=".1" conaffinity="0" friction="1"/></body>
<body pos=".05 0 -.05"><joint name="right" type="slide" axis="-1 0 0" range="0 .045"/>
<geom name="right" type="box" size=".01 .02 .05" mass=".1" conaffinity="0" friction="1"/></body></body>"""
    servos = "".join(
        f'<position joint="{name}" kp="{kp}" kv="{kv}" ctrlrange="{low} {high}"/>'
        for name, kp, kv, low, high in (
            ("gx", 1000, 100, -0.4, 0.4),
            ("gy", 1000, 100, -0.4, 0.4),
            ("gz", 1000, 100, -0.28, 0.2),
            ("left", 400, 20, 0, 0.045),
            ("right", 400, 20, 0, 0.045),
        )
    )
    return body, servos


def gantry_lift(rng: Rng) -> Problem:
    """The gripper takes a cube from the table and holds it in the air."""
    x, y, half, height = (
        (0.1, 0.05, 0.025, 0.12) if rng is None else rng.uniform((-0.2, -0.2, 0.018, 0.08), (0.2, 0.2, 0.03, 0.2))
    )
    body, servos = gantry()
    xml = scene(0.01, body + box("cube", half, 0.1), servos, [0] * 5 + [x, y, half, 1, 0, 0, 0], [0] * 5)
    return Problem(xml, "cube", (x, y, half + height), 200)


def gantry_stack(rng: Rng) -> Problem:
    """The gripper puts a cube on another one."""
    place = (
        (0.1, 0.05, -0.1, 0.0, 0.025)
        if rng is None
        else rng.uniform((0.05, -0.2, -0.2, -0.2, 0.02), (0.2, 0.2, -0.05, 0.2, 0.03))
    )
    x, y, u, v, half = place
    body, servos = gantry()
    start = [0] * 5 + [x, y, half, 1, 0, 0, 0] + [u, v, half, 1, 0, 0, 0]
    xml = scene(0.01, body + box("cube", half, 0.1) + box("other", half, 0.1), servos, start, [0] * 5)
    return Problem(xml, "cube", (u, v, 3 * half), 250)


def fingers_push(rng: Rng) -> Problem:
    """Two fingers of three joints, side by side above the table, push a puck."""
    x, y, angle = (0.0, 0.0, 0.3) if rng is None else rng.uniform((-0.03, -0.03, -1.5), (0.03, 0.03, 1.5))
    fingers, servos, pose = "", "", []
    for name, side in (("a", -1), ("b", 1)):
        fingers += f"""<body pos="0 {side * 0.08} .25"><joint name="{name}1" axis="1 0 0" range="-1 1" armature=".005"/>
<joint name="{name}2" axis="0 1 0" range="-1.5 1.5" armature=".005"/>
<geom type="capsule" size=".012" fromto="0 0 0 0 0 -.12" mass=".1" conaffinity="0"/>
<body pos="0 0 -.12"><joint name="{name}3" axis="0 1 0" range="-2.2 2.2" armature=".005"/>
<geom type="capsule" size=".012" fromto="0 0 0 0 0 -.12" mass=".1" conaffinity="0"/></body></body>"""
        for joint, limit in (("1", 1), ("2", 1.5), ("3", 2.2)):
            servos += f'<position joint="{name}{joint}" kp="20" kv="1" ctrlrange="-{limit} {limit}"/>'
        pose += [0.3 * side, -0.5, 1.2]
    puck = """<body name="puck"><freejoint/><geom type="cylinder" size=".03 .02" mass=".1"/></body>"""
    xml = scene(0.01, fingers + puck, servos, [*pose, x, y, 0.02, 1, 0, 0, 0], pose)
    goal = (x + 0.06 * math.cos(angle), y + 0.06 * math.sin(angle), 0.02)
    return Problem(xml, "puck", goal, 150)


def drawer(rng: Rng) -> Problem:
    """The gripper opens a drawer by its handle."""
    y, pull, height = (0.0, 0.1, 0.1) if rng is None else rng.uniform((-0.2, 0.06, 0.08), (0.2, 0.15, 0.15))
    body, servos = gantry()
    chest = f"""<body name="drawer" pos=".25 {y} {height}">
<joint type="slide" axis="-1 0 0" range="0 .2" damping="5" frictionloss="1"/>
<geom type="box" size=".1 .1 .04" mass="1"/><geom type="box" size=".025 .008 .008" pos="-.125 -.05 0" mass=".02"/>
<geom type="box" size=".025 .008 .008" pos="-.125 .05 0" mass=".02"/>
<geom type="box" size=".008 .06 .008" pos="-.158 0 0" mass=".05"/></body>"""
    xml = scene(0.01, body + chest, servos, [0] * 6, [0] * 5)
    return Problem(xml, "drawer", (0.25 - pull, y, height), 200)


def ur5_push(rng: Rng) -> Problem:
    """A UR5 pushes a cube."""
    return arm_push("ur5", rng)


def panda_push(rng: Rng) -> Problem:
    """A Panda pushes a cube."""
    return arm_push("panda", rng)


def menagerie_push(folder: pathlib.Path) -> Problem:
    """The UR5e of MuJoCo Menagerie pushes a cube with its flange; without its meshes, which are pictures alone."""
    text = (folder / "universal_robots_ur5e" / "ur5e.xml").read_text()
    text = re.sub(r'<geom[^>]*class="visual"[^>]*/>|<mesh [^>]*/>', "", text)
    text = text.replace('integrator="implicitfast"', 'integrator="implicitfast" timestep=".01"')
    table = '<geom name="table" type="plane" size="2 2 .1"/>' + box("cube", 0.04, 0.2)
    text = text.replace("<worldbody>", f"<worldbody>{table}", 1)
    home = "-1.5708 -1.5708 1.5708 -1.5708 -1.5708 0"
    start = f"0 .5 .04 1 0 0 0 {home}"
    text = text[: text.index("<keyframe>")] + f'<keyframe><key qpos="{start}" ctrl="{home}"/></keyframe></mujoco>'
    return Problem(text, "cube", (0.15, 0.5, 0.04), 200)


KINDS: dict[str, Callable[[Rng], Problem]] = {
    "ur5_push": ur5_push,
    "panda_push": panda_push,
    "gantry_lift": gantry_lift,
    "gantry_stack": gantry_stack,
    "fingers_push": fingers_push,
    "drawer": drawer,
}
