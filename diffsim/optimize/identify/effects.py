"""Effects that a model may lack, and the signals that a little of each adds to the readings.

An effect is a force on a joint, a parameter of the model, or a change of the readings themselves. Signals are
differences of simulations with and without a little of it, about the motion at a solution.

Sources: Armstrong-Helouvry et al. 1994 (friction); Nordin and Gutman 2002 (gear play).
"""

from collections.abc import Iterator
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.base.enums import SensorType
from diffsim.base.joints import is_scalar
from diffsim.optimize.identify.least_squares import Outcome
from diffsim.optimize.identify.places import Payload, Tilt, numbers
from diffsim.optimize.identify.problem import Problem
from diffsim.optimize.identify.residuals import Change
from diffsim.types import Model

# a little of an effect: forces of this part of the usual ones
SMALL_FORCE = 1e-3
# a small payload, as a part of the mass of its body, and a small tilt of gravity, rad
SMALL = 1e-3
# speeds below this part of the usual one count as sticking
STICKING = 0.02
# speeds at which stiction has fallen to 1/e, as parts of the usual speed
STRIBECK_SPEEDS = (0.05, 0.15, 0.4)
# quantiles of the forces: an actuator may be limited beyond the first, and a gear may turn freely below the second
LIMITS = (0.5, 0.7, 0.85, 0.95)
DEAD_ZONES = (0.1, 0.25, 0.5)
# play of a gear, as parts of the range of a reading
PLAYS = (0.01, 0.03, 0.1)
# stands in for zero in denominators
TINY = 1e-300


class Column(NamedTuple):
    """A signal (windows, T, ny) that an effect of strength 1 adds; `signed`: whether the strength is positive."""

    where: str
    signal: np.ndarray
    signed: bool


class Candidate(NamedTuple):
    """An effect with its columns, for one value of the number that it depends on nonlinearly."""

    name: str
    unit: str
    columns: list[Column]


class Motion:
    """The motion at a solution, and the signals that changes of it add to the readings."""

    def __init__(self, problem: Problem, outcome: Outcome) -> None:
        self.problem = problem
        self.point = outcome.point
        self.model = problem.unknowns.model
        states = problem.motions(outcome.point).states
        rows = problem.measured.shape[1]
        # after the last measurement nothing is simulated: these rows do not count
        filled = np.minimum(np.arange(rows), states.qpos.shape[1] - 1)
        self.qvel = np.asarray(states.qvel, float)[:, filled]
        self.still = np.zeros((problem.count, rows, self.model.nv))
        base = problem.pushed(outcome.point, Change(self.still))
        self.base = problem.shown(outcome.point, base)
        self.actuators = np.asarray(base.actuators, float)
        simple = np.flatnonzero(is_scalar(np.asarray(self.model.jnt_type)))
        # joints with one coordinate: name, address of the velocity, address of the position
        self.joints = [
            (
                self.model.name("joint", int(j)) or str(int(j)),
                int(self.model.jnt_dofadr[j]),
                int(self.model.jnt_qposadr[j]),
            )
            for j in simple
        ]
        self.qpos = np.asarray(states.qpos, float)[:, filled]
        usual = np.sqrt(np.mean(self.actuators**2))
        self.force = usual if usual > 0 else 1.0

    def speed(self, dof: int) -> np.ndarray:
        """(windows, T) velocity of a joint over its root mean square."""
        return self.qvel[..., dof] / max(float(np.sqrt(np.mean(self.qvel[..., dof] ** 2))), TINY)

    def by_force(self, dof: int, force: np.ndarray) -> np.ndarray:
        """The signal of a force (windows, T) on a joint."""
        size = float(np.sqrt(np.mean(force**2)))
        if not size:
            return np.zeros_like(self.base)
        step = SMALL_FORCE * self.force / size
        forces = self.still.copy()
        forces[..., dof] = step * force
        return self.by_change(Change(forces), step)

    def by_leaves(self, place: Tilt | Payload, theta: np.ndarray, step: float) -> np.ndarray:
        """The signal of parameters (n,) of a place in the model, over `step`."""

        def leaves(model: Model) -> dict[str, Array]:
            return numbers((place,), model, jnp.asarray(theta, model.qpos0.dtype))[0]

        return self.by_change(Change(self.still, leaves), step)

    def by_commands(self) -> np.ndarray:
        """The signal of commands that are late by one second, to first order."""
        h = self.problem.timestep
        ctrl = np.asarray(self.problem.windows.ctrl, float)
        if ctrl.shape[1] < 2 or not ctrl.size:
            return np.zeros_like(self.base)
        late = 0.1 * h
        moved = jnp.asarray(ctrl - late * np.gradient(ctrl, h, axis=1), self.problem.windows.ctrl.dtype)
        problem = self.problem.with_windows(self.problem.windows.replace(ctrl=moved))
        return self.by_change(Change(self.still), late, problem)

    def by_change(self, change: Change, step: float, problem: Problem | None = None) -> np.ndarray:
        """The readings of a changed system less the readings of the model, over `step`."""
        problem = problem or self.problem
        return (problem.shown(self.point, problem.pushed(self.point, change)) - self.base) / step


def candidates(motion: Motion) -> Iterator[Candidate]:
    """The effects that are tried."""
    yield from _of_joints(motion)
    yield from _of_actuators(motion)
    yield from _of_sensors(motion)
    yield from _of_bodies(motion)


def _drag(motion: Motion) -> dict[str, np.ndarray]:
    """(windows, T) the sign of each joint's velocity, smooth where it sticks."""
    return {name: np.tanh(motion.speed(dof) / STICKING) for name, dof, _ in motion.joints}


def small_friction(motion: Motion) -> Candidate:
    """Coulomb friction, to first order in its strength."""
    drag = _drag(motion)
    columns = [Column(name, motion.by_force(dof, -drag[name]), True) for name, dof, _ in motion.joints]
    return Candidate("Coulomb friction", "N m", columns)


def _of_joints(motion: Motion) -> Iterator[Candidate]:
    """Forces on joints: friction, damping, springs, and a friction or damping that drifts."""
    joints = motion.joints
    drag = _drag(motion)
    rows = motion.still.shape[1]
    drift = np.linspace(-1, 1, rows) if rows > 1 else np.zeros(rows)

    def every(name: str, unit: str, force: dict[str, np.ndarray], signed: bool) -> Candidate:
        columns = [Column(joint, motion.by_force(dof, force[joint]), signed) for joint, dof, _ in joints]
        return Candidate(name, unit, columns)

    viscous = {name: -motion.qvel[..., dof] for name, dof, _ in joints}
    friction = small_friction(motion)
    yield friction
    yield every("viscous damping", "N m s/rad", viscous, False)
    yield every("spring", "N m/rad", {name: -motion.qpos[..., q] for name, _, q in joints}, False)
    yield every("constant force", "N m", {name: np.ones(motion.still.shape[:2]) for name, _, _ in joints}, False)
    for part in STRIBECK_SPEEDS:
        force = {n: -drag[n] * np.exp(-((motion.speed(dof) / part) ** 2)) for n, dof, _ in joints}
        extra = every("stiction (Stribeck)", "N m", force, True)
        # stiction comes with friction: a pair of columns for each joint
        yield extra._replace(columns=[*extra.columns, *friction.columns])
    yield every("drift of the damping", "N m s/rad", {n: part * drift for n, part in viscous.items()}, False)
    yield every("drift of the friction", "N m", {n: -part * drift for n, part in drag.items()}, False)


def _of_actuators(motion: Motion) -> Iterator[Candidate]:
    """Forces of actuators that are late, limited, stronger or weaker, or without effect while a gear turns freely."""
    driven = [(name, dof) for name, dof, _ in motion.joints if motion.actuators[..., dof].any()]
    if not driven:
        return
    forces = {name: motion.actuators[..., dof] for name, dof in driven}
    strength = [Column(name, motion.by_force(dof, forces[name]), False) for name, dof in driven]
    yield Candidate("gain of an actuator", "", strength)
    yield Candidate("delay", "s", [Column("commands", motion.by_commands(), False)])
    for quantile in LIMITS:
        columns = []
        for name, dof in driven:
            limit = float(np.quantile(np.abs(forces[name]), quantile))
            beyond = np.clip(forces[name], -limit, limit) - forces[name]
            columns.append(Column(name, motion.by_force(dof, beyond), True))
        yield Candidate("force limit", f"of the force above the {quantile:.0%} quantile", columns)
    for quantile in DEAD_ZONES:
        columns = []
        for name, dof in driven:
            zone = float(np.quantile(np.abs(forces[name]), quantile))
            columns.append(Column(name, motion.by_force(dof, -np.clip(forces[name], -zone, zone)), True))
        yield Candidate("gear play", "of the force within the dead zone", columns)


def _of_sensors(motion: Motion) -> Iterator[Candidate]:
    """Readings that are late, scaled, off, drifting, or on the other side of a gear or a spring."""
    model = motion.model
    readings = motion.base
    h = motion.problem.timestep
    rows = readings.shape[1]
    rate = np.gradient(readings, h, axis=1) if rows > 1 else np.zeros_like(readings)
    one = np.ones(readings.shape[:2])
    time = np.broadcast_to(np.linspace(-1, 1, rows), readings.shape[:2])
    names = [model.name("sensor", i) or str(i) for i in range(model.nsensor)]
    places = [slice(int(a), int(a) + int(d)) for a, d in zip(model.sensor_adr, model.sensor_dim, strict=True)]

    def alone(place: slice, signal: np.ndarray) -> np.ndarray:
        """The signal (windows, T, d) on one sensor, zero on the others."""
        column = np.zeros_like(readings)
        column[..., place] = signal
        return column

    def every(name: str, unit: str, signals: list[np.ndarray]) -> Candidate:
        columns = [Column(n, alone(p, s), False) for n, p, s in zip(names, places, signals, strict=True)]
        return Candidate(name, unit, columns)

    yield Candidate("delay", "s", [Column("all sensors", -rate, False)])
    yield every("delay", "s", [-rate[..., place] for place in places])
    yield every("gain of a sensor", "", [readings[..., place] for place in places])
    yield every("offset of a sensor", "", [one[..., None] for _ in places])
    yield every("drift of a sensor", "", [time[..., None] for _ in places])
    encoders = [
        (names[i], places[i], int(model.jnt_dofadr[model.sensor_objid[i]]))
        for i in range(model.nsensor)
        if int(model.sensor_type[i]) == SensorType.JOINTPOS
    ]
    if motion.actuators.any() and encoders:
        torque = [Column(n, alone(p, motion.actuators[..., dof, None]), False) for n, p, dof in encoders]
        yield Candidate("compliance", "rad/(N m)", torque)
    for part in PLAYS:
        columns = [Column(n, alone(p, _play(readings[..., p], part)), False) for n, p, _ in encoders]
        if columns:
            yield Candidate("gear play", "rad", columns)


def _play(readings: np.ndarray, part: float) -> np.ndarray:
    """What gear play adds to readings (windows, T, d), over half of its width, `part` of their range."""
    half = 0.5 * part * np.ptp(readings, axis=1, keepdims=True)[:, 0]
    half = np.maximum(half, TINY)
    follower = readings[:, 0].copy()
    added = np.zeros_like(readings)
    for t in range(readings.shape[1]):
        follower = np.clip(follower, readings[:, t] - half, readings[:, t] + half)
        added[:, t] = (follower - readings[:, t]) / half
    return added


def _of_bodies(motion: Motion) -> Iterator[Candidate]:
    """Gravity in another direction, and a payload on one of the last bodies."""
    model = motion.model
    gravity = np.asarray(model.opt.gravity, float)
    if np.linalg.norm(gravity) > 0:
        axes = np.linalg.svd(gravity[None])[2][1:]
        tilt = Tilt(tuple(tuple(map(float, axis)) for axis in axes))  # type: ignore[arg-type]
        columns = [Column(f"angle {k}", motion.by_leaves(tilt, SMALL * np.eye(2)[k], SMALL), False) for k in range(2)]
        yield Candidate("tilted gravity", "rad", columns)
    parents = set(np.asarray(model.body_parentid).tolist())
    for body in range(1, model.nbody):
        if body in parents or not float(model.body_mass[body]):
            continue
        mass = SMALL * float(model.body_mass[body])
        name = model.name("body", body) or str(body)
        center = np.asarray(model.body_ipos[body], float)
        # a load at the center of mass, or at twice its distance from the joint: mostly the end of a link
        columns = [
            Column(name, motion.by_leaves(Payload(body), np.concatenate([[mass], part * center]), mass), True)
            for part in (1.0, 2.0)
        ]
        yield Candidate("payload", "kg", columns)


def friction_of(motion: Motion, strengths: dict[str, float]) -> Candidate:
    """Coulomb friction by the model's own law, of these strengths by joint."""
    columns = []
    for name, dof, _ in motion.joints:
        if name in strengths:
            strength = max(strengths[name], TINY)

            def leaves(model: Model, dof: int = dof, strength: float = strength) -> dict[str, Array]:
                return {"dof_frictionloss": model.dof_frictionloss.at[dof].add(strength)}

            columns.append(Column(name, motion.by_change(Change(motion.still, leaves), strength), True))
    return Candidate("Coulomb friction", "N m", columns)
