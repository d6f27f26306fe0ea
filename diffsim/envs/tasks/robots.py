"""Robots for the velocity task: a table of feet, poses and motors, and the model that the task makes of a robot's file.

`ROBOTS["go2"]` and `ROBOTS["g1"]` are for the files of MuJoCo Menagerie on your disk, which diffsim does not contain.
`ROBOTS["quadruped"]` is the model that comes with diffsim. For another robot, write a `Robot`.

Sources: MuJoCo Menagerie (names, efforts); mjlab documentation, "Velocity task" and its robot configurations (servos of
the G1, tolerances of the pose).
"""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from diffsim.base.enums import Cone, GeomType, Integrator
from diffsim.base.errors import ArgumentError
from diffsim.load import MODELS
from diffsim.mjcf import elements, read
from diffsim.mjcf.elements.body import own_elements
from diffsim.mjcf.kinds import Tristate
from diffsim.mjcf.spec import Spec

# s; 200 Hz is what legged robots of 10 to 40 kg need with soft feet
TIMESTEP = 0.005
# sliding, torsional (m) and rolling (m) friction of a foot; the first as in mjlab
FRICTION = (0.6, 0.005, 0.0001)
# s, and number of timesteps: the longest delay of a control that randomization may draw
LONGEST_DELAY = 4 * TIMESTEP


class Motor(NamedTuple):
    """Motors of some joints, with the servo that controls them.

    Attributes:
      joints: regular expression of the names of their joints.
      stiffness: N m/rad, of the servo.
      damping: N m s/rad, of the servo.
      armature: kg m^2, reflected inertia.
      effort: N m, largest torque.
      reach: rad, change of the servo's target for an action of 1.
    """

    joints: str
    stiffness: float
    damping: float
    armature: float
    effort: float
    reach: float


class Robot(NamedTuple):
    """What the velocity task needs to know about a robot.

    Angles are given by regular expressions for names of joints; the first one that matches counts.

    Attributes:
      file: path of its MJCF in a Menagerie folder.
      feet: bodies that touch the ground, by their spheres.
      height: m, of the root in the default pose on flat ground.
      pose: rad, default angles; 0 for other joints.
      motors: of all hinges that the policy moves.
      spread: rad, how far joints may be from the pose while walking: the scale of the reward `pose`.
      swing: m, height of a foot in the middle of a swing.
      fastest: largest commands: m/s forward, m/s to the left, rad/s to the left.
      phases: for each foot, when its swing begins, as a fraction of the period of the gait clock.
      period: s, of the gait clock.
    """

    file: str
    feet: tuple[str, ...]
    height: float
    pose: Mapping[str, float]
    motors: tuple[Motor, ...]
    spread: Mapping[str, float]
    swing: float
    fastest: tuple[float, float, float]
    phases: tuple[float, ...]
    period: float


# trot: diagonal legs swing together
TROT = (0.0, 0.5, 0.5, 0.0)
LEGS_OF_A_DOG = {r".*(knee|calf).*": 0.4, r".*(thigh|hip).*": 0.3, ".*": 0.15}

ROBOTS = {
    "quadruped": Robot(
        file="quadruped.xml",
        feet=("front_left_shin", "front_right_shin", "rear_left_shin", "rear_right_shin"),
        height=0.304,
        pose={r".*_hip": 0.8, r".*_knee": -1.6},
        motors=(Motor(".*", stiffness=60.0, damping=1.5, armature=0.02, effort=30.0, reach=0.5),),
        spread={".*_abduction": 0.15} | LEGS_OF_A_DOG,
        swing=0.08,
        fastest=(1.0, 0.5, 0.8),
        phases=TROT,
        period=0.5,
    ),
    "go2": Robot(
        file="unitree_go2/go2.xml",
        feet=("FL_calf", "FR_calf", "RL_calf", "RR_calf"),
        height=0.289,
        pose={r".*_thigh_joint": 0.9, r".*_calf_joint": -1.8},
        # the armature of a rotor with 1.1e-4 kg m^2 and the gear ratio 6.33, or 6.33 * 1.5 in the knee
        motors=(
            Motor(r".*_calf_joint", stiffness=50.0, damping=1.5, armature=0.0101, effort=45.43, reach=0.5),
            Motor(".*", stiffness=50.0, damping=1.5, armature=0.0045, effort=23.7, reach=0.5),
        ),
        spread={".*_hip_joint": 0.15} | LEGS_OF_A_DOG,
        swing=0.1,
        fastest=(1.0, 0.5, 0.8),
        phases=TROT,
        period=0.5,
    ),
    "g1": Robot(
        file="unitree_g1/g1.xml",
        feet=("left_ankle_roll_link", "right_ankle_roll_link"),
        height=0.757,
        pose={
            r".*hip_pitch.*": -0.312,
            r".*knee.*": 0.669,
            r".*ankle_pitch.*": -0.363,
            r".*elbow.*": 0.6,
            r".*shoulder_pitch.*": 0.2,
            r"left_shoulder_roll.*": 0.2,
            r"right_shoulder_roll.*": -0.2,
        },
        # as in mjlab: servos of 10 Hz and twice the critical damping with the reflected inertia of Unitree's motors;
        # the ankles and the waist are moved by two motors each
        motors=(
            Motor(r".*(hip_roll|knee).*", stiffness=99.1, damping=6.31, armature=0.0251, effort=139.0, reach=0.7),
            Motor(r".*hip.*|waist_yaw.*", stiffness=40.2, damping=2.56, armature=0.01018, effort=88.0, reach=1.1),
            Motor(r".*ankle.*|waist.*", stiffness=28.5, damping=1.81, armature=0.00722, effort=50.0, reach=0.9),
            Motor(r".*wrist_(pitch|yaw).*", stiffness=16.8, damping=1.07, armature=0.00425, effort=5.0, reach=0.15),
            Motor(".*", stiffness=14.3, damping=0.91, armature=0.00361, effort=25.0, reach=0.9),
        ),
        spread={
            r".*hip_pitch.*": 0.3,
            r".*hip.*|.*waist_yaw.*": 0.15,
            r".*knee.*": 0.35,
            r".*ankle_pitch.*": 0.25,
            r".*waist.*|.*ankle_roll.*": 0.1,
            r".*wrist.*": 0.3,
            ".*": 0.15,
        },
        swing=0.1,
        fastest=(1.0, 0.5, 0.5),
        phases=(0.0, 0.5),
        period=0.72,
    ),
}


def spec_of(
    robot: Robot, path: str | os.PathLike[str] | None, ground: Callable[[Spec], None], visual: bool = False
) -> Spec:
    """The model of a robot for the velocity task, not compiled.

    Only the spheres of its feet touch the ground, and nothing else touches anything. Each joint of `motors` gets a
    position servo; other actuators, damping and dry friction of the file are dropped. Meshes stay only if `visual` and
    for bodies whose mass follows from them.

    Args:
      robot: the robot.
      path: of its MJCF, or of the Menagerie folder that contains it; None for a robot that comes with diffsim.
      ground: spec -> adds the geom "ground" to it.
      visual: whether to keep meshes that are only seen.

    Returns:
      The Spec, with a keyframe "stand".

    Raises:
      ArgumentError: there is no such file, or the robot has no motor for a joint.
    """
    spec = read(MODELS / robot.file if path is None else file_of("velocity", robot.file, path))
    option = spec.option
    option.timestep = TIMESTEP
    option.integrator = Integrator.IMPLICITFAST
    # as in Menagerie's models for MJX and in mjlab: pyramids, and a bound on iterations
    option.cone = Cone.PYRAMIDAL
    option.impratio = 1
    option.iterations = 10
    option.ls_iterations = 20
    _limit_contacts(spec, robot, visual)
    ground(spec)
    pose = _set_motors(spec, robot)
    for key in spec.all(elements.Key):
        spec.delete(key)
    spec.keyframe.add("key", name="stand", qpos=[0, 0, robot.height, 1, 0, 0, 0, *pose], ctrl=pose)
    return spec


def first_of(rows: Mapping[str, float], name: str, default: float) -> float:
    """The value of the first regular expression that matches the whole name."""
    return next((value for pattern, value in rows.items() if re.fullmatch(pattern, name)), default)


def motor_of(robot: Robot, joint: str) -> Motor:
    """The motor of a joint.

    Raises:
      ArgumentError: the robot has none for it.
    """
    for motor in robot.motors:
        if re.fullmatch(motor.joints, joint):
            return motor
    raise ArgumentError(f"velocity: the robot has no motor for the joint {joint!r}; add a Motor to its Robot")


def file_of(task: str, file: str, path: str | os.PathLike[str]) -> Path:
    """A robot's MJCF, given its path in a Menagerie folder, and the path of this folder, of the robot's or of the MJCF.

    Raises:
      ArgumentError: there is no such file; `task` names the task in the message.
    """
    place = Path(path).expanduser()
    if place.is_dir():
        named = [place / file, place / Path(file).name]
        place = next((each for each in named if each.exists()), named[0])
    if not place.exists():
        hint = "give the path of its MJCF, or of a folder with MuJoCo Menagerie"
        raise ArgumentError(f"{task}: {place} does not exist; {hint}")
    return place


def _limit_contacts(spec: Spec, robot: Robot, visual: bool) -> None:
    """Leaves contacts of the feet with the ground only, and deletes what is not needed for them."""
    for body in [spec.worldbody, *spec.all(elements.Body)]:
        parts = list(own_elements(body))
        has_inertia = any(isinstance(part, elements.Inertial) for part in parts)
        for geom in [part for part in parts if isinstance(part, elements.Geom)]:
            kind = spec.resolve(geom).type
            if body.is_world or (kind == GeomType.MESH and has_inertia and not visual):
                spec.delete(geom, cascade=True)
                continue
            is_foot = body.name in robot.feet and kind == GeomType.SPHERE
            geom.contype = 0
            geom.conaffinity = int(is_foot)
            if is_foot:
                geom.condim = 3
                # the friction of the foot counts, and not the larger one of foot and ground
                geom.priority = 1
                geom.friction = np.array(FRICTION)
    if not visual:
        used = {geom.mesh for geom in spec.all(elements.Geom)}
        for mesh in spec.all(elements.Mesh):
            if (mesh.name or Path(mesh.file_ or "").stem) not in used:
                spec.delete(mesh, cascade=True)
    for kind in (elements.Pair, elements.Exclude):
        for each in spec.all(kind):
            spec.delete(each)


def _set_motors(spec: Spec, robot: Robot) -> list[float]:
    """Replaces the actuators by servos; the default angles of the hinges, rad."""
    for actuator in spec.all(elements.Actuator):
        spec.delete(actuator, cascade=True)
    angles = []
    for joint in spec.all(elements.Joint):
        name = joint.name or ""
        motor = motor_of(robot, name)
        angles.append(first_of(robot.pose, name, 0.0))
        joint.armature = motor.armature
        joint.damping = np.zeros(1)
        joint.frictionloss = 0
        joint.actuatorfrclimited = Tristate.FALSE
        spec.actuator.add(
            "position",
            name=name,
            joint=joint,
            kp=motor.stiffness,
            kv=motor.damping,
            forcerange=[-motor.effort, motor.effort],
            forcelimited="true",
            nsample=round(LONGEST_DELAY / TIMESTEP) + 1,
        )
    return angles
