"""Session: the simulation behind a live view; it runs, pauses, and executes the commands of the page."""

import dataclasses
import threading
import time
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.base.enums import Status
from diffsim.simulate.forward import forward
from diffsim.simulate.step import step
from diffsim.support.rays import ray
from diffsim.types import Inputs, Model, State
from diffsim.types.data import Kinematics
from diffsim.types.state import make_inputs, make_state
from diffsim.viewer.marks import Grip, Shown, colours_of_marks, marks, pull
from diffsim.viewer.scene import Numbers, Pieces, moving, scene
from diffsim.viz.material import colours
from diffsim.viz.scene import tendon_ids
from diffsim.viz.view import View

# how long the session computes before it listens to commands again, s: short enough that the page feels responsive
SLICE = 0.05


@jax.jit
def _advance(model: Model, states: State, inputs: Inputs, count: Array) -> State:
    """Steps all worlds `count` times."""
    return jax.lax.fori_loop(0, count, lambda _, now: jax.vmap(step, (None, 0, 0))(model, now, inputs), states)


class Seen(NamedTuple):
    """What is drawn, of each world.

    Attributes:
      poses: poses of all objects.
      pieces: (worlds, n, 7) lines of `marks`: start, end, radius, m.
      status: (worlds,) bits of `Status`.
      pull: (worlds, nbody, 6) xfrc_applied by the spring.
    """

    poses: Kinematics
    pieces: Array
    status: Array
    pull: Array


@jax.jit
def _look(model: Model, states: State, inputs: Inputs, grip: Grip, shown: Shown) -> Seen:
    """Poses and lines of all worlds in their current states."""

    def one(state: State, inputs: Inputs, grip: Grip) -> Seen:
        data = forward(model, state, inputs)
        lines = marks(model, data, grip, shown)
        pieces = jnp.concatenate([lines.start, lines.end, lines.radius[:, None]], axis=-1)
        poses = Kinematics(**{field.name: getattr(data, field.name) for field in dataclasses.fields(Kinematics)})
        return Seen(poses, pieces, data.status, pull(model, data, grip))

    return jax.vmap(one)(states, inputs, grip)


@jax.jit
def _hits(model: Model, poses: Kinematics, points: Array, directions: Array) -> tuple[Array, Array]:
    """Casts one ray in each world: distances (worlds,), m, and ids of the geoms hit, -1 for none."""
    hit = jax.vmap(ray, (None, 0, 0, 0))(model, poses, points, directions)
    return hit.distance, hit.geom


class Session:
    """Worlds of one model, side by side. Thread-safe: the server calls `tell` and `frame`, a loop calls `tick`."""

    def __init__(self, model: Model, states: State, inputs: Inputs) -> None:
        """Compiles all programs and starts running.

        Args:
          model: the model of all worlds.
          states, inputs: for one world, or with a leading axis of worlds.
        """
        self.model = model
        self._lock = threading.Lock()
        if states.qpos.ndim == 1:
            states, inputs = (jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], part) for part in (states, inputs))
        # what `reset` returns to
        self._first = self._states, self._inputs = states, inputs
        self.worlds = states.qpos.shape[0]
        self.running = True
        # simulated time per real time that the user wants
        self.speed = 1.0
        self._shown = Shown(jnp.asarray(False), jnp.asarray(False))
        self._grip = self._no_grip()
        # the distance at which the mouse's ray hit the body that it pulls, m
        self._depth = 0.0
        # simulated time that is due and not yet computed, s
        self._behind = 0.0
        # real time that a step takes, s; a guess until the first step is measured
        self._cost = 1e-3
        # simulated time per real time, a moving average
        self._rate = 0.0
        self._pull = jnp.zeros_like(inputs.xfrc_applied)
        # compile all programs before the first tick
        _advance(model, states, inputs, 0)
        self._see()

    def _no_grip(self) -> Grip:
        """The grips of all worlds if the mouse pulls no body."""
        zeros = jnp.zeros((self.worlds, 3), self._states.qpos.dtype)
        return Grip(body=jnp.zeros(self.worlds, jnp.int32), point=zeros, target=zeros)

    def _see(self) -> None:
        """Updates what is shown, and the force of the spring."""
        self._seen = _look(self.model, self._states, self._acting(), self._grip, self._shown)
        self._pull = self._seen.pull

    def _acting(self) -> Inputs:
        """The inputs, including the force of the spring."""
        return self._inputs.replace(xfrc_applied=self._inputs.xfrc_applied + self._pull)

    def tick(self, seconds: float) -> None:
        """Simulates as much time as `seconds` of real time are at the session's speed.

        Steps that the machine cannot compute in time are dropped: the simulation is then slower than real time.
        """
        with self._lock:
            if self.running:
                dt = float(self.model.opt.timestep)
                # never more than 0.1 s behind: after a pause of the machine, the simulation does not rush to catch up
                self._behind = min(self._behind + self.speed * seconds, 0.1 * max(self.speed, 1))
                due = int(self._behind / dt)
                affordable = min(due, max(1, int(SLICE / self._cost)))
                self._steps(affordable)
                self._behind -= due * dt
                self._rate = 0.9 * self._rate + 0.1 * affordable * dt / max(seconds, 1e-6)
            self._see()

    def _steps(self, count: int) -> None:
        """Computes `count` steps, and measures the time of one."""
        if count:
            begin = time.perf_counter()
            self._states = jax.block_until_ready(_advance(self.model, self._states, self._acting(), count))
            self._cost = (time.perf_counter() - begin) / count

    def show(self, states: State, inputs: Inputs | None = None) -> None:
        """Shows other states, with the same number of worlds."""
        with self._lock:
            one = self.worlds == 1 and states.qpos.ndim == 1
            self._states = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], states) if one else states
            if inputs is not None:
                self._inputs = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], inputs) if one else inputs
            self._see()

    def tell(self, command: str, value: Any = None) -> None:
        """Executes a command of the page, a row of `COMMANDS`.

        Raises:
          KeyError: there is no such command.
        """
        with self._lock:
            self.COMMANDS[command](self, value)
            self._see()

    def _run(self, on: bool) -> None:
        """Runs or pauses the simulation."""
        self.running = bool(on)

    def _set_speed(self, speed: float) -> None:
        self.speed = float(speed)

    def _restart(self, _: Any) -> None:
        """Returns to the first states and inputs."""
        self._states, self._inputs = self._first
        self._grip = self._no_grip()

    def _go_to_key(self, key: int) -> None:
        """Puts all worlds into the state of a keyframe."""
        to_all_worlds = lambda leaf: jnp.broadcast_to(leaf, (self.worlds, *jnp.shape(leaf)))  # noqa: E731
        self._states = jax.tree.map(to_all_worlds, make_state(self.model, int(key)))
        self._inputs = jax.tree.map(to_all_worlds, make_inputs(self.model, int(key)))
        self._grip = self._no_grip()

    def _control(self, value: tuple[int, float]) -> None:
        """Sets one control of all worlds, given by index and value."""
        index, ctrl = value
        if not 0 <= index < self.model.nu:
            raise IndexError(f"control {index} is out of range: the model has {self.model.nu}")
        self._inputs = self._inputs.replace(ctrl=self._inputs.ctrl.at[:, int(index)].set(float(ctrl)))

    def _show_forces(self, on: bool) -> None:
        self._shown = self._shown._replace(forces=jnp.asarray(bool(on)))

    def _show_frames(self, on: bool) -> None:
        self._shown = self._shown._replace(frames=jnp.asarray(bool(on)))

    def _grab(self, rays: list[dict[str, list[float]]]) -> None:
        """Grabs the body under the mouse if it can move: the nearest hit of one ray in each world."""
        points = np.asarray([ray["point"] for ray in rays], float)
        directions = np.asarray([ray["direction"] for ray in rays], float)
        distance, geom = map(np.asarray, _hits(self.model, self._seen.poses, points, directions))
        distance = np.where(geom >= 0, distance, np.inf)
        world = int(np.argmin(distance))
        body = int(self.model.topology.geom_bodyid[geom[world]])
        if not np.isfinite(distance[world]) or self.model.topology.body_weldid[body] == 0:
            return
        poses = self._seen.poses
        self._depth = float(distance[world])
        point = points[world] + self._depth * directions[world]
        local = np.asarray(poses.xmat[world, body]).T @ (point - np.asarray(poses.xpos[world, body]))
        none = self._no_grip()
        self._grip = Grip(
            body=none.body.at[world].set(body),
            point=none.point.at[world].set(local),
            target=none.target.at[world].set(point),
        )

    def _drag(self, rays: list[dict[str, list[float]]]) -> None:
        """Moves the target of the spring along with the mouse, at constant distance from the camera."""
        points = jnp.asarray([ray["point"] for ray in rays])
        directions = jnp.asarray([ray["direction"] for ray in rays])
        self._grip = self._grip._replace(target=(points + self._depth * directions).astype(self._grip.target.dtype))

    def _let_go(self, _: Any) -> None:
        self._grip = self._no_grip()

    COMMANDS: ClassVar[dict[str, Callable[["Session", Any], None]]] = {
        "run": _run,
        "step": lambda self, count: self._steps(int(count or 1)),
        "speed": _set_speed,
        "reset": _restart,
        "key": _go_to_key,
        "ctrl": _control,
        "forces": _show_forces,
        "frames": _show_frames,
        "grab": _grab,
        "drag": _drag,
        "release": _let_go,
    }

    def _pieces(self) -> Pieces:
        """The lines of the current frame, with their colours."""
        tendons = np.asarray(colours(self.model, "tendon"), float)[tendon_ids(self.model)]
        lines = np.asarray(self._seen.pieces)[None]
        of_marks = colours_of_marks(self.model, lines.shape[2] - len(tendons))
        return Pieces(rgba=np.concatenate([tendons.reshape(-1, 4), of_marks]), lines=lines)

    def _poses(self) -> Kinematics:
        """The poses of the current frame, with an axis of frames."""
        return jax.tree.map(lambda leaf: np.asarray(leaf)[None], self._seen.poses)

    def scene(self, camera: View | None = None) -> tuple[dict[str, Any], bytes]:
        """What the player needs to start: `diffsim.viewer.scene.scene` of the current frame."""
        with self._lock:
            return scene(self.model, self._poses(), 1.0, camera or View(), self._pieces())

    def controls(self) -> dict[str, Any]:
        """Names of keyframes; names and ranges of controls, -1 to 1 for a control without a range."""
        limited = self.model.topology.actuator_ctrllimited.astype(bool)
        ranges = np.where(limited[:, None], np.asarray(self.model.actuator_ctrlrange, float), [-1.0, 1.0])
        names = [self.model.name("actuator", index) or f"actuator {index}" for index in range(self.model.nu)]
        keys = [self.model.name("key", index) or f"key {index}" for index in range(self.model.nkey)]
        return {"keys": keys, "ctrl": [[name, *pair] for name, pair in zip(names, ranges.tolist(), strict=True)]}

    def frame(self) -> tuple[dict[str, Any], bytes]:
        """The current frame: status values for JSON, and the buffer of the arrays that change from frame to frame."""
        with self._lock:
            numbers = Numbers()
            moving(self.model, self._poses(), self._pieces(), numbers)
            # the status bits that any world has; NOT_CONVERGED is not shown, because it is too frequent
            bits = int(np.bitwise_or.reduce(np.asarray(self._seen.status)))
            news = {
                "time": float(self._states.time[0]),
                "running": self.running,
                "rate": round(self._rate, 3),
                "forces": bool(self._shown.forces),
                "frames": bool(self._shown.frames),
                "ctrl": np.asarray(self._inputs.ctrl[0], float).round(6).tolist(),
                "status": ", ".join(str(bit.name) for bit in Status if bits & bit & ~Status.NOT_CONVERGED),
            }
            return news, b"".join(numbers.parts)
