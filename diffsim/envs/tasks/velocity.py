"""velocity: a legged robot follows commanded velocities, on flat ground or on generated terrain.

    task = envs.Velocity(envs.ROBOTS["go2"], terrain=envs.Terrain())
    env = task.env("~/mujoco_menagerie")
    worlds = envs.wrap(env, 1000, randomization_fn=task.randomization(1024), redraw=True)

Observations, pushes, and the terms and weights of the reward follow mjlab's velocity task; rewards are multiplied by
the time of a step, as there. Returns are not equal to mjlab's: only the feet touch the ground, the reward has no terms
for forces of landings and angular momentum, and actions are bounded. The gait clock comes from MuJoCo Playground: the
phases of the feet are observed, and their heights are rewarded.

Sources: mjlab documentation, "Velocity task"; MuJoCo Playground technical report (arXiv 2502.08844), locomotion.
"""

import dataclasses
import itertools
import math
import os
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.compiler.passes import compile_all
from diffsim.envs.env import Env, EnvState, Moment, Task
from diffsim.envs.tasks.robots import LONGEST_DELAY, TIMESTEP, Robot, first_of, motor_of, spec_of
from diffsim.envs.tasks.terrain import Terrain, add_plane
from diffsim.math import rotate_inv, safe
from diffsim.simulate.randomize import Scale, Shift, Uniform, randomize
from diffsim.types import Data, Inputs, Model, State
from diffsim.types.state import make_inputs, make_state

# physics steps per action: actions at 50 Hz, as on robots
STEPS = 4
# s, mean time between two commands, and between two pushes
COMMAND_LASTS = 5.5
PUSH_EVERY = 2.0
# fraction of the commands that mean standing still, and fraction that mean walking straight ahead
STANDING = 0.1
STRAIGHT = 0.2
# m/s, least speed of a command straight ahead
SLOWEST = 0.3
# m, a foot below this height is on the ground: the depth of a soft contact, and rounding of the terrain
TOUCHING = 0.005
# a command means standing if its speed (m/s) and its rate of turning (rad/s) add up to less than this
MOVING = 0.05
# rad, spread of the pose while standing
STILL = 0.05
# rad of tilt at which the robot has fallen, 70 degrees
FALLEN = 1.22
# the robot has fallen if its root is below this fraction of its height in the default pose
LOW = 0.5
# largest changes of velocity by a push: m/s along x, y, z and rad/s about them
PUSH = (0.5, 0.5, 0.4, 0.52, 0.52, 0.78)
# bounds of the uniform noise: m/s, rad/s, 1, rad, rad/s
NOISE = {"linear velocity": 0.5, "angular velocity": 0.2, "gravity": 0.05, "joints": 0.01, "joint velocities": 1.5}
# m, bound of the noise on the height scan
SCAN_NOISE = 0.1
UNITS = {
    "linear velocity": "m/s",
    "angular velocity": "rad/s",
    "gravity": "1",
    "joints": "rad",
    "joint velocities": "rad/s",
    "last action": "1",
    "command": "m/s m/s rad/s",
    "clock": "1",
    "height scan": "m",
}
# weights of the rewards, 1/s
WEIGHTS = {
    "linear velocity": 2.0,
    "angular velocity": 2.0,
    "upright": 1.0,
    "pose": 1.0,
    "clock": 1.0,
    "sway": -0.05,
    "limits": -1.0,
    "action rate": -0.1,
    "clearance": -2.0,
    "swing height": -0.25,
    "slip": -0.1,
}


@dataclasses.dataclass(frozen=True)
class Velocity:
    """The velocity task of a robot.

    Attributes:
      robot: a row of `ROBOTS`, or your own.
      terrain: generated ground with a height scan; None for a plane.
      pushed: whether pushes change the velocity of the robot every two seconds in the mean.
      noise: factor of the noise on observations.
      clock: whether the gait clock is observed and rewarded.
    """

    robot: Robot
    terrain: Terrain | None = None
    pushed: bool = True
    noise: float = 1.0
    clock: bool = True

    def env(self, path: str | os.PathLike[str] | None = None, visual: bool = False) -> Env:
        """The environment.

        Args:
          path: of the robot's MJCF, or of the folder of MuJoCo Menagerie; None for a robot that comes with diffsim.
          visual: whether the model keeps meshes that are only seen, for pictures.

        Raises:
          ArgumentError: there is no such file, or the robot has no motor for a joint.
        """
        ground = add_plane if self.terrain is None else self.terrain.add
        return Env(compile_all(spec_of(self.robot, path, ground, visual)), self.task)

    @property
    def task(self) -> Task:
        """The functions of the task."""
        return Task(
            start=self.start,
            observe=self.observe,
            reward=self.reward,
            failed=self.failed,
            steps=STEPS,
            control=self.control,
            noisy=True,
            remember=self.remember,
            disturb=self.push if self.pushed else None,
            again=None if self.terrain is None else self.again,
        )

    def parts(self, model: Model) -> dict[str, tuple[int, str]]:
        """Sizes and units of the parts of an observation, in order: for `Policy.to_onnx`."""
        hinges = model.nu
        feet = len(self.robot.feet)
        sizes = {"joints": hinges, "joint velocities": hinges, "last action": hinges, "clock": 2 * feet}
        sizes["height scan"] = len(self.terrain.scan) if self.terrain is not None else 0
        named = {name: (sizes.get(name, 3), unit) for name, unit in UNITS.items()}
        left_out = {"clock": not self.clock, "height scan": self.terrain is None}
        return {name: part for name, part in named.items() if not left_out.get(name)}

    def randomization(self, worlds: int, key: Array | int = 0) -> Callable[..., tuple[Model, Model]]:
        """A function that draws the model of each world, for `envs.wrap`, `shac` and the adapters of trainers.

        It varies the friction of the feet, masses, the center of mass of the root, the armature and the largest torque
        of motors, and the delay of controls. Randomization of dry friction would add rows to the solver.
        """
        key = jax.random.key(key) if isinstance(key, int) else key

        def draw(model: Model, _: Any = None) -> tuple[Model, Model]:
            feet = [geom for spheres in self.spheres(model) for geom in spheres]
            fields = {
                "geom_friction": Uniform((0.3, 0.005, 1e-4), (1.2, 0.005, 1e-4), only=feet, shared=True),
                "body_mass": Scale(0.9, 1.1),
                "body_ipos": Shift((-0.025, -0.025, -0.03), (0.025, 0.025, 0.03), only=1),
                "dof_armature": Scale(0.8, 1.2),
                "actuator_forcerange": Scale(0.8, 1.0),
                "actuator_delay": Uniform(0.0, LONGEST_DELAY - TIMESTEP, shared=True),
            }
            return randomize(model, key, fields, worlds)

        return draw

    def start(self, model: Model, key: Array) -> tuple[State, Inputs]:
        """A random place and heading near the default pose; on terrain, in the middle of a random tile."""
        of_tile, of_pose = jax.random.split(key)
        middle = jnp.zeros(3, model.qpos0.dtype) if self.terrain is None else self.terrain.draw(model, of_tile)
        return self._start_at(model, of_pose, middle)

    def again(self, model: Model, key: Array, ended: EnvState) -> tuple[State, Inputs]:
        """As `start`, on a tile of a higher or lower level after a success or a failure; see `Terrain.draw_next`."""
        assert self.terrain is not None
        of_tile, of_pose = jax.random.split(key)
        memory = ended.info["memory"]
        place = ended.physics.qpos[:2]
        middle = self.terrain.draw_next(model, of_tile, memory["home"], place, memory["commanded"])
        return self._start_at(model, of_pose, middle)

    def _start_at(self, model: Model, key: Array, middle: Array) -> tuple[State, Inputs]:
        """A random place and heading near the default pose, around the point `middle` of the ground."""
        of_place, of_heading, of_joints = jax.random.split(key, 3)
        state = make_state(model, "stand")
        dtype = state.qpos.dtype
        place = jax.random.uniform(of_place, (2,), dtype, -0.5, 0.5)
        half = 0.5 * jax.random.uniform(of_heading, (), dtype, -math.pi, math.pi)
        heading = jnp.stack([jnp.cos(half), 0 * half, 0 * half, jnp.sin(half)])
        joints = state.qpos[7:] + jax.random.uniform(of_joints, (model.nu,), dtype, -0.02, 0.02)
        # 2 cm above the ground, so that no foot starts in it
        root = state.qpos[:3] + middle + jnp.append(place, 0.02)
        return state.replace(qpos=jnp.concatenate([root, heading, joints])), make_inputs(model, "stand")

    def control(self, model: Model, action: Array) -> Array:
        """Targets (nu,) of the servos, rad: the default pose plus the action times the reach of each motor."""
        motors = [motor_of(self.robot, model.name("actuator", i)) for i in range(model.nu)]
        scale = jnp.array([motor.reach for motor in motors], action.dtype)
        return make_inputs(model, "stand").ctrl + scale * safe.clip(action, -1, 1)

    def push(self, model: Model, state: State, key: Array) -> State:
        """Adds a random velocity to the root, every `PUSH_EVERY` in the mean."""
        draw, whether = jax.random.split(key)
        hits = jax.random.uniform(whether) < STEPS * model.opt.timestep / PUSH_EVERY
        change = jax.random.uniform(draw, (6,), state.qvel.dtype, -1, 1) * jnp.array(PUSH, state.qvel.dtype)
        return state.replace(qvel=state.qvel.at[:6].add(jnp.where(hits, change, 0)))

    def remember(self, now: Moment) -> dict[str, Array]:
        """Updates the memory.

        Returns:
          command (3,), phase (), action and before (nu,), the last two actions; and of each foot (F,): clearance, m,
          place (F, 2), m, speed, m/s, air, s, the time in the air, landed, whether it landed in this step, peak, m, its
          largest clearance since it left the ground. On terrain also: home (2,), m, where the episode began; commanded,
          m, the length of the way that was commanded since then; ground, m, the height of the ground under the root;
          and scan (n,), m, its heights at the points of the height scan.
        """
        memory: dict[str, Array] = {"action": now.action} | self._felt(now.model, now.data)
        clearance, place = memory["clearance"], memory["place"]
        down = clearance < TOUCHING
        none = jnp.zeros_like(clearance)
        of_command, whether = jax.random.split(now.key)
        if now.memory is None:
            rest = {"speed": none, "air": none, "landed": none > 0, "peak": none, "before": now.action}
            way = {} if self.terrain is None else {"home": now.state.qpos[:2], "commanded": none[0]}
            return memory | rest | way | {"phase": none[0], "command": self._command(of_command, none.dtype)}
        last = now.memory
        elapsed = STEPS * now.model.opt.timestep
        if self.terrain is not None:
            memory |= {"home": last["home"], "commanded": last["commanded"] + elapsed * safe.norm(last["command"][:2])}
        landed = down & (last["air"] > 0)
        change = (place - last["place"]) / elapsed
        again = jax.random.uniform(whether) < elapsed / COMMAND_LASTS
        return memory | {
            "speed": safe.norm(change),
            "air": jnp.where(down, 0, last["air"] + elapsed),
            "landed": landed,
            "peak": jnp.where(down & ~landed, 0, jnp.maximum(last["peak"], clearance)),
            "before": last["action"],
            "phase": (last["phase"] + elapsed / self.robot.period) % 1.0,
            "command": jnp.where(again, self._command(of_command, none.dtype), last["command"]),
        }

    def observe(self, now: Moment) -> Array:
        """The observation, in the order of `parts`; what a robot measures has noise."""
        turn = now.data.xmat[1]
        values = {
            "linear velocity": rotate_inv(now.state.qpos[3:7], now.state.qvel[:3]),
            "angular velocity": now.state.qvel[3:6],
            "gravity": -turn[2],
            "joints": now.state.qpos[7:] - make_state(now.model, "stand").qpos[7:],
            "joint velocities": now.state.qvel[6:],
        }
        keys = jax.random.split(now.key, len(values) + 1)
        for key, (name, value) in zip(keys, values.items(), strict=False):
            bound = self.noise * NOISE[name]
            values[name] = value + jax.random.uniform(key, value.shape, value.dtype, -bound, bound)
        parts = [*values.values(), now.action, now.memory["command"]]
        if self.clock:
            angle = 2 * math.pi * self._phases(now)
            parts += [jnp.cos(angle), jnp.sin(angle)]
        if self.terrain is not None:
            # how much farther below the root the ground is than on flat ground
            off = now.data.xpos[1][2] - self.robot.height - now.memory["scan"]
            bound = self.noise * SCAN_NOISE
            parts.append(jnp.clip(off + jax.random.uniform(keys[-1], off.shape, off.dtype, -bound, bound), -1, 1))
        return jnp.concatenate(parts)

    def reward(self, now: Moment) -> dict[str, Array]:
        """The terms of the reward, for the time of a step."""
        memory = now.memory
        turn = now.data.xmat[1]
        command = memory["command"]
        spin = now.state.qvel[3:6]
        velocity = rotate_inv(now.state.qpos[3:7], now.state.qvel[:3])
        speed = safe.norm(command[:2]) + jnp.abs(command[2])
        goes = (speed > MOVING).astype(speed.dtype)
        off = (velocity[0] - command[0]) ** 2 + (velocity[1] - command[1]) ** 2 + velocity[2] ** 2
        turning = (spin[2] - command[2]) ** 2 + spin[0] ** 2 + spin[1] ** 2
        lift = memory["peak"] / self.robot.swing - 1
        # feet that do not move at the height of the swing
        low_steps = jnp.sum(memory["speed"] * jnp.abs(memory["clearance"] - self.robot.swing))
        down = memory["clearance"] < TOUCHING
        values = {
            "linear velocity": jnp.exp(-off / 0.25),
            "angular velocity": jnp.exp(-turning / 0.5),
            "upright": jnp.exp(-(turn[2, 0] ** 2 + turn[2, 1] ** 2) / 0.2),
            "pose": self._pose(now, goes),
            "sway": spin[0] ** 2 + spin[1] ** 2,
            "limits": self._beyond(now),
            "action rate": jnp.sum((memory["action"] - memory["before"]) ** 2),
            "clearance": goes * low_steps,
            "swing height": goes * jnp.sum(jnp.where(memory["landed"], lift**2, 0)),
            "slip": goes * jnp.sum(jnp.where(down, memory["speed"] ** 2, 0)),
        }
        if self.clock:
            values["clock"] = goes * self._in_time(now)
        elapsed = STEPS * now.model.opt.timestep
        return {name: WEIGHTS[name] * elapsed * value for name, value in values.items()}

    def failed(self, now: Moment) -> Array:
        """Whether the robot has fallen: its root is too low or tilted too far."""
        ground = 0.0 if self.terrain is None else now.memory["ground"]
        low = now.data.xpos[1][2] - ground < LOW * self.robot.height
        return low | (now.data.xmat[1][2, 2] < math.cos(FALLEN))

    def spheres(self, model: Model) -> list[list[int]]:
        """The geoms of each foot."""
        topology = model.topology
        bodies = [model.body(foot).id for foot in self.robot.feet]
        touching = np.flatnonzero(np.asarray(topology.geom_conaffinity) > 0)
        return [[int(geom) for geom in touching if topology.geom_bodyid[geom] == body] for body in bodies]

    def _felt(self, model: Model, data: Data) -> dict[str, Array]:
        """What `remember` keeps of the ground and the feet: clearance, place and, on terrain, ground and scan."""
        feet = self.spheres(model)
        geoms = np.array([geom for spheres in feet for geom in spheres])
        points = data.geom_xpos[geoms]
        if self.terrain is None:
            under, seen = 0.0, {}
        else:
            # one batch of rays for all: under the spheres of the feet, under the root, and the height scan
            places = [points[:, :2], data.xpos[1][None, :2], self.terrain.scan_points(data)]
            ground = self.terrain.under(model, data, jnp.concatenate(places))
            under = ground[: len(geoms)]
            seen = {"ground": ground[len(geoms)], "scan": ground[len(geoms) + 1 :]}
        gaps = points[:, 2] - model.geom_size[geoms, 0] - under
        starts = np.cumsum([0] + [len(spheres) for spheres in feet])
        rows = [slice(*pair) for pair in itertools.pairwise(starts)]
        places = [jnp.mean(points[row, :2], axis=0) for row in rows]
        return seen | {"clearance": jnp.stack([jnp.min(gaps[row]) for row in rows]), "place": jnp.stack(places)}

    def _command(self, key: Array, dtype: Any) -> Array:
        """A random command: to stand, to walk straight ahead, or any velocity."""
        draw, kind = jax.random.split(key)
        most = jnp.array(self.robot.fastest, dtype)
        command = jax.random.uniform(draw, (3,), dtype, -1, 1) * most
        which = jax.random.uniform(kind)
        ahead = jnp.stack([safe.maximum(jnp.abs(command[0]), SLOWEST), 0 * command[0], 0 * command[0]])
        command = jnp.where(which < STANDING + STRAIGHT, ahead, command)
        return jnp.where(which < STANDING, 0, command)

    def _phases(self, now: Moment) -> Array:
        """(F,) in [0, 1): where each foot is in its period; the first half is the swing."""
        return (now.memory["phase"] - jnp.array(self.robot.phases, now.action.dtype)) % 1.0

    def _in_time(self, now: Moment) -> Array:
        """1 if all feet are as high as the gait clock says: half a sine in the first half of the period, then 0."""
        bump = jnp.maximum(jnp.sin(2 * math.pi * self._phases(now)), 0.0)
        off = now.memory["clearance"] - self.robot.swing * bump
        return jnp.exp(-jnp.sum(off**2) / 0.01)

    def _pose(self, now: Moment, goes: Array) -> Array:
        """1 in the default pose, and less the farther joints are from it, in units of their spread.

        The spread is small if the command means standing.
        """
        names = [now.model.name("actuator", i) for i in range(now.model.nu)]
        spread = jnp.array([first_of(self.robot.spread, name, 0.15) for name in names], goes.dtype)
        spread = jnp.where(goes > 0, spread, STILL)
        off = now.state.qpos[7:] - make_state(now.model, "stand").qpos[7:]
        return jnp.exp(-jnp.mean((off / spread) ** 2))

    def _beyond(self, now: Moment) -> Array:
        """Rad by which joints are outside of the inner nine tenths of their ranges."""
        low, high = now.model.jnt_range[1:, 0], now.model.jnt_range[1:, 1]
        margin = 0.05 * (high - low)
        angle = now.state.qpos[7:]
        limited = jnp.asarray(now.model.topology.jnt_limited[1:], bool)
        over = jnp.maximum(low + margin - angle, 0.0) + jnp.maximum(angle - high + margin, 0.0)
        return jnp.sum(jnp.where(limited, over, 0))
