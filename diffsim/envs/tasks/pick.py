"""pick: an arm takes a cube from the floor and brings it to a target in the air.

    task = envs.PickCube(envs.ARMS["panda"])
    env = task.env("~/mujoco_menagerie")
    worlds = envs.wrap(env, 150)

Observations, rewards and the ends of episodes follow the source of MuJoCo Playground's `PandaPickCube`; the two were
never run side by side. One thing differs: the hand touches the floor if its lowest point is below it; Playground reads
contact sensors.

Sources: MuJoCo Playground technical report (arXiv 2502.08844), manipulation, and the settings of `PandaPickCube`;
MuJoCo Menagerie (`franka_emika_panda/mjx_single_cube.xml`, which the task loads from your disk).
"""

import dataclasses
import math
import os
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.base.enums import GeomType
from diffsim.base.errors import ArgumentError
from diffsim.envs.env import Env, Moment, Task
from diffsim.envs.tasks.robots import file_of
from diffsim.geometry.shapes import Shape, lowest
from diffsim.load import load
from diffsim.math import axis_angle_to_quat, quat_to_mat, safe
from diffsim.types import Inputs, Model, State
from diffsim.types.state import make_inputs, make_state

# physics steps per action: actions at 50 Hz with Menagerie's timestep of 5 ms
STEPS = 4
# rad (or m, for fingers): change of a servo's target in a step, for an action of 1
REACH = 0.04
# m, how far the cube begins from its place in the keyframe, at most, along x, y and z
SPREAD = (0.2, 0.2, 0.0)
# m, where targets are relative to this place: least and greatest
TARGETS = ((-0.2, -0.2, 0.2), (0.2, 0.2, 0.4))
# rad, largest rotation of the target, about a random axis
TURN = math.radians(45)
# m, distance of the cube from the gripper at which it counts as reached
NEAR = 0.012
# m, an episode ends if the cube is farther than this from the origin, along any axis
FARTHEST = 1.0
# weights of the rewards
WEIGHTS = {"gripper to cube": 4.0, "cube to target": 8.0, "floor": 0.25, "pose": 0.3}
# the parts of an observation, in order, with their units; sizes are for nq positions, nv velocities and nu actuators
PARTS = {
    "positions": ("nq", "rad, m, 1"),
    "velocities": ("nv", "rad/s, m/s"),
    "gripper": (3, "m"),
    "gripper axes y and z": (6, "1"),
    "cube axes y and z": (6, "1"),
    "gripper to cube": (3, "m"),
    "cube to target": (3, "m"),
    "cube to target, axes x and y": (6, "1"),
    "servo errors": ("nu", "rad, m"),
}


class Arm(NamedTuple):
    """What the task needs to know about an arm and its scene.

    Attributes:
      file: path of its MJCF in a Menagerie folder.
      joints: of the arm, without the fingers.
      hand: geoms that must not touch the floor: spheres, capsules or boxes.
      gripper: site between the fingertips.
      cube: body with a free joint.
      target: mocap body.
      floor: geom, a horizontal plane.
      keyframe: where episodes begin; its controls hold the arm there.
    """

    file: str
    joints: tuple[str, ...]
    hand: tuple[str, ...]
    gripper: str = "gripper"
    cube: str = "box"
    target: str = "mocap_target"
    floor: str = "floor"
    keyframe: str = "home"


ARMS = {
    "panda": Arm(
        file="franka_emika_panda/mjx_single_cube.xml",
        joints=tuple(f"joint{number}" for number in range(1, 8)),
        hand=("left_finger_pad", "right_finger_pad", "hand_capsule"),
    ),
}


@dataclasses.dataclass(frozen=True)
class PickCube:
    """The task of an arm that brings a cube to a target.

    Attributes:
      arm: a row of `ARMS`, or your own.
      turned: whether targets are turned, by up to 45 degrees; Playground calls this task `PandaPickCubeOrientation`.
    """

    arm: Arm
    turned: bool = False

    def env(self, path: str | os.PathLike[str]) -> Env:
        """The environment, given the path of the arm's MJCF or of the folder of MuJoCo Menagerie.

        Raises:
          ArgumentError: there is no such file, or it lacks something that the task needs.
        """
        model = load(file_of("pick", self.arm.file, path))
        self._check(model)
        return Env(model, self.task)

    @property
    def task(self) -> Task:
        """The functions of the task."""
        return Task(
            start=self.start,
            observe=self.observe,
            reward=self.reward,
            failed=self.failed,
            steps=STEPS,
            control=lambda model, action: REACH * safe.clip(action, -1, 1),
            relative=True,
            remember=self.remember,
        )

    def parts(self, model: Model) -> dict[str, tuple[int, str]]:
        """Sizes and units of the parts of an observation, in order: for `Policy.to_onnx`."""
        return {
            name: (size if isinstance(size, int) else getattr(model.topology, size), unit)
            for name, (size, unit) in PARTS.items()
        }

    def start(self, model: Model, key: Array) -> tuple[State, Inputs]:
        """The cube at a random place on the floor, and a random target above it."""
        of_cube, of_target, of_axis, of_angle = jax.random.split(key, 4)
        state, inputs = make_state(model, self.arm.keyframe), make_inputs(model, self.arm.keyframe)
        dtype = state.qpos.dtype
        place = self._cube_address(model) + np.arange(3)
        spread = jnp.array(SPREAD, dtype)
        low, high = jnp.array(TARGETS, dtype)
        middle = state.qpos[place]
        cube = middle + jax.random.uniform(of_cube, (3,), dtype, -spread, spread)
        target = middle + jax.random.uniform(of_target, (3,), dtype, low, high)
        quat = jnp.array([1, 0, 0, 0], dtype)
        if self.turned:
            axis = safe.normalize(jax.random.uniform(of_axis, (3,), dtype, -1, 1))
            quat = axis_angle_to_quat(axis, jax.random.uniform(of_angle, (), dtype, 0, TURN))
        mocap = self._mocap(model)
        inputs = inputs.replace(
            mocap_pos=inputs.mocap_pos.at[mocap].set(target), mocap_quat=inputs.mocap_quat.at[mocap].set(quat)
        )
        return state.replace(qpos=state.qpos.at[place].set(cube)), inputs

    def remember(self, now: Moment) -> Array:
        """1 if the gripper has reached the cube in this episode, else 0."""
        near = safe.norm(self._to_cube(now)) < NEAR
        return jnp.maximum(near.astype(now.action.dtype), 0 if now.memory is None else now.memory)

    def observe(self, now: Moment) -> Array:
        """The observation, in the order of `parts`."""
        cube = now.model.body(self.arm.cube).xmat(now.data)
        gripper = now.model.site(self.arm.gripper)
        return jnp.concatenate(
            [
                now.state.qpos,
                now.state.qvel,
                gripper.xpos(now.data),
                gripper.xmat(now.data)[1:].ravel(),
                cube[1:].ravel(),
                self._to_cube(now),
                self._to_target(now),
                self._turn_to_target(now),
                now.inputs.ctrl - now.data.actuator_length,
            ]
        )

    def reward(self, now: Moment) -> dict[str, Array]:
        """Rewards the gripper near the cube, the cube near the target once it was reached, and the pose at the start.

        With distances d in m and differences of axes r, the first is 1 - tanh(5 d), the second 1 - tanh(5 (0.9 d +
        0.1 r)), and the third 1 - tanh(q), where q is the length of the vector of joint angles from the keyframe, rad.
        """
        home = make_state(now.model, self.arm.keyframe).qpos
        places = [int(now.model.topology.jnt_qposadr[now.model.id("joint", name)]) for name in self.arm.joints]
        off = 0.9 * safe.norm(self._to_target(now)) + 0.1 * safe.norm(self._turn_to_target(now))
        values = {
            "gripper to cube": 1 - jnp.tanh(5 * safe.norm(self._to_cube(now))),
            "cube to target": now.memory * (1 - jnp.tanh(5 * off)),
            "floor": jnp.where(self._on_floor(now), jnp.zeros_like(off), 1),
            "pose": 1 - jnp.tanh(safe.norm((now.state.qpos - home)[np.array(places)])),
        }
        return {name: WEIGHTS[name] * value for name, value in values.items()}

    def failed(self, now: Moment) -> Array:
        """Whether the cube is out of reach or below the floor."""
        cube = now.model.body(self.arm.cube).xpos(now.data)
        return jnp.any(jnp.abs(cube) > FARTHEST) | (cube[2] < 0)

    def _to_cube(self, now: Moment) -> Array:
        """Vector (3,) from the gripper to the cube, m."""
        return now.model.body(self.arm.cube).xpos(now.data) - now.model.site(self.arm.gripper).xpos(now.data)

    def _to_target(self, now: Moment) -> Array:
        """Vector (3,) from the cube to the target, m."""
        return now.inputs.mocap_pos[self._mocap(now.model)] - now.model.body(self.arm.cube).xpos(now.data)

    def _turn_to_target(self, now: Moment) -> Array:
        """(6,) the first two rows of the target's matrix minus those of the cube's."""
        target = quat_to_mat(now.inputs.mocap_quat[self._mocap(now.model)])
        return (target - now.model.body(self.arm.cube).xmat(now.data))[:2].ravel()

    def _on_floor(self, now: Moment) -> Array:
        """Whether the lowest point of a geom of the hand is below the floor."""
        floor = now.model.geom(self.arm.floor).xpos(now.data)[2]
        up = jnp.array([[0, 0, 1]], floor.dtype)
        heights = []
        for name in self.arm.hand:
            geom = now.model.geom(name)
            shape = Shape(geom.xpos(now.data), geom.xmat(now.data), geom.size)
            heights.append(lowest(GeomType(int(geom.type)), shape, up)[0])
        return jnp.min(jnp.stack(heights)) < floor

    def _cube_address(self, model: Model) -> int:
        """Where the position of the cube begins in qpos."""
        return int(model.topology.jnt_qposadr[model.topology.body_jntadr[model.id("body", self.arm.cube)]])

    def _mocap(self, model: Model) -> int:
        """The row of the target among mocap bodies."""
        return int(model.topology.body_mocapid[model.id("body", self.arm.target)])

    def _check(self, model: Model) -> None:
        """Raises ArgumentError if the model lacks something that the task needs."""
        needed = [("site", self.arm.gripper), ("key", self.arm.keyframe), ("body", self.arm.target)]
        needed += [("body", self.arm.cube), ("geom", self.arm.floor)]
        needed += [("joint", name) for name in self.arm.joints] + [("geom", name) for name in self.arm.hand]
        missing = [f"{kind} {name!r}" for kind, name in needed if name not in model.topology.names[kind]]
        if missing:
            raise ArgumentError(f"pick: the model has no {', '.join(missing)}; write an Arm with its names")
        if self._mocap(model) < 0:
            raise ArgumentError(f"pick: the body {self.arm.target!r} must be a mocap body: it is the target")
