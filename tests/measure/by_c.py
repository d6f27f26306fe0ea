"""`optimize.fit` with C MuJoCo and central differences in place of our simulator, to study its searches and verdicts.

Nothing compiles, and a fit of a small model takes a tenth of a second: hundreds of problems where the simulator itself
is not the question.
"""

import contextlib
import copy
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from unittest import mock

import mujoco
import mujoco.rollout
import numpy as np

from diffsim.optimize.identify import problem
from diffsim.optimize.identify.residuals import (
    Change,
    Derivatives,
    First,
    Guess,
    Motions,
    Pushed,
    WindowGaps,
    Windows,
)
from diffsim.optimize.identify.unknowns import Unknowns
from diffsim.simulate.randomize import leaf

# steps of differences, in tangent coordinates and relative to a number
STEP, RELATIVE = 1e-7, 1e-6


def readings(xml: str, ctrl: np.ndarray, **start: Any) -> np.ndarray:
    """(rows, nsensordata) what sensors show before each step under controls (rows, nu), from qpos, qvel as given."""
    model = mujoco.MjModel.from_xml_string(xml)
    data, seen = mujoco.MjData(model), []
    for name, value in start.items():
        getattr(data, name)[:] = value
    for row in ctrl:
        data.ctrl[:] = row
        mujoco.mj_step(model, data)
        seen.append(data.sensordata.copy())
    return np.asarray(seen)


class States(NamedTuple):
    """What is in a state: (..., nq), (..., nv), (..., na)."""

    qpos: np.ndarray
    qvel: np.ndarray
    act: np.ndarray


class Simulator:
    """What residuals.py computes, for models that `build` makes of theta; `steps` counts what is simulated."""

    def __init__(self, build: Callable[[np.ndarray], str]) -> None:
        self.build, self.steps, self.models = build, 0, dict[bytes, mujoco.MjModel]()

    def model(self, theta: np.ndarray) -> mujoco.MjModel:
        """The model with these numbers, whose solver goes to its end; the last few are kept."""
        if theta.tobytes() not in self.models:
            if len(self.models) > 100:
                self.models.clear()
            made = mujoco.MjModel.from_xml_string(self.build(theta))
            made.opt.tolerance, made.opt.iterations = 1e-13, 200
            self.models[theta.tobytes()] = made
        return self.models[theta.tobytes()]

    def any_model(self) -> mujoco.MjModel:
        """One whose numbers do not matter."""
        return next(iter(self.models.values()))

    def begins(self, model: Any, first: First, changes: Any) -> tuple[States, None]:
        """Guesses of first states, changed."""
        c, change = self.any_model(), np.asarray(changes, float)
        qpos, qvel, act = (np.array(part, float) for part in first)
        if change.shape[1]:
            for q, dq in zip(qpos, change, strict=True):
                mujoco.mj_integratePos(c, q, np.ascontiguousarray(dq[: c.nv]), 1.0)
            qvel, act = qvel + change[:, c.nv : 2 * c.nv], act + change[:, 2 * c.nv :]
        return States(qpos, qvel, act), None

    def difference(self, there: States, here: States) -> np.ndarray:
        """(windows, nx) in tangent coordinates."""
        c = self.any_model()
        dq = np.zeros(there.qvel.shape)
        for row, before, after in zip(dq, here.qpos, there.qpos, strict=True):
            mujoco.mj_differentiatePos(c, row, 1.0, before, after)
        return np.concatenate([dq, there.qvel - here.qvel, there.act - here.act], axis=1)

    def motions(self, places: Any, model: Any, windows: Windows, guess: Guess, rows: int | None = None) -> Motions:
        """All windows, simulated."""
        c = self.model(np.asarray(guess.theta, float))
        starts, ctrl = self.begins(model, windows.first, guess.changes)[0], np.asarray(windows.ctrl, float)
        (count, length), data = ctrl.shape[:2], mujoco.MjData(c)
        rows = rows or length
        readings, contacts = np.zeros((count, length, c.nsensordata)), np.zeros((count, length), int)
        states = States(*(np.empty((count, rows + 1, part.shape[1])) for part in starts))
        self.steps += count * rows
        if not c.ngeom:
            # nothing can touch: all windows in one call
            begin = np.concatenate([np.zeros((count, 1)), *starts], axis=1)
            after, seen = mujoco.rollout.rollout(c, data, initial_state=begin, control=ctrl[:, :rows])
            readings[:, :rows] = seen
            path = np.concatenate([begin[:, None], after], axis=1)[..., 1:]
            cut = np.split(path, np.cumsum([c.nq, c.nv]), axis=-1)
            return Motions(readings, contacts, States(*cut))  # type: ignore[arg-type]
        for w in range(count):
            mujoco.mj_resetData(c, data)
            data.qpos[:], data.qvel[:] = starts.qpos[w], starts.qvel[w]
            data.act[:] = starts.act[w]
            for t in range(rows + 1):
                states.qpos[w, t], states.qvel[w, t], states.act[w, t] = data.qpos, data.qvel, data.act
                if t < rows:
                    data.ctrl[:] = ctrl[w, t]
                    mujoco.mj_step(c, data)
                    readings[w, t], contacts[w, t] = data.sensordata, data.ncon
        return Motions(readings, contacts, states)  # type: ignore[arg-type]

    def derivatives(
        self, places: Any, mode: str, model: Any, windows: Windows, guess: Guess, states: States, touching: bool = True
    ) -> Derivatives:
        """Differences of `motions`."""
        theta, changes = np.asarray(guess.theta, float), np.asarray(guess.changes, float)
        ends, rows = States(*(part[:, -1] for part in states)), states.qpos.shape[1] - 1

        def slopes(place: Guess, other: Guess, step: float) -> tuple[np.ndarray, np.ndarray]:
            both = [self.motions(places, model, windows, guess, rows) for guess in (place, other)]
            away = [self.difference(part.ends, ends) for part in both]  # type: ignore[arg-type]
            return (both[0].readings - both[1].readings) / step, (away[0] - away[1]) / step

        count, nx = len(changes), 2 * model.nv + model.na
        none = np.zeros((count, windows.ctrl.shape[1], model.nsensordata, 0)), np.zeros((count, nx, 0))
        columns = [RELATIVE * max(abs(theta[i]), 1e-2) * np.eye(theta.size)[i] for i in range(theta.size)]
        by_theta = [slopes(Guess(theta + e, changes), Guess(theta - e, changes), 2 * e.max()) for e in columns]
        columns = STEP * np.eye(changes.shape[1])
        by_change = [slopes(Guess(theta, changes + e), Guess(theta, changes - e), 2 * STEP) for e in columns]
        first, second = (
            [np.stack(part, axis=-1) for part in zip(*columns, strict=True)] if columns else none
            for columns in (by_theta, by_change)
        )
        return Derivatives(first[0], second[0], first[1], second[1])

    def pushed(self, places: Any, model: Any, windows: Windows, guess: Guess, change: Change) -> Pushed:
        """All windows of a changed system; leaves change by as much as those of `model` do."""
        c = copy.copy(self.model(np.asarray(guess.theta, float)))
        for path, changed in change.leaves(model).items():
            owner, name = (c.opt, path[4:]) if path.startswith("opt.") else (c, path)
            if hasattr(owner, name):
                getattr(owner, name)[...] += np.asarray(changed - leaf(model, path), float)
        starts, ctrl = self.begins(model, windows.first, guess.changes)[0], np.asarray(windows.ctrl, float)
        (count, length), data = ctrl.shape[:2], mujoco.MjData(c)
        readings, actuators = np.zeros((count, length, c.nsensordata)), np.zeros((count, length, c.nv))
        for w in range(count):
            mujoco.mj_resetData(c, data)
            data.qpos[:], data.qvel[:] = starts.qpos[w], starts.qvel[w]
            data.act[:] = starts.act[w]
            for t in range(length):
                data.ctrl[:], data.qfrc_applied[:] = ctrl[w, t], change.forces[w, t]
                mujoco.mj_step(c, data)
                readings[w, t], actuators[w, t] = data.sensordata, data.qfrc_actuator
        return Pushed(readings, actuators)

    def window_gaps(self, model: Any, first: First, changes: Any, ends: States) -> WindowGaps:
        """How far windows end from where the next ones begin, by differences."""
        change, nx = np.asarray(changes, float), 2 * model.nv + model.na

        def following(change: np.ndarray) -> States:
            return States(*(np.roll(part, -1, axis=0) for part in self.begins(model, first, change)[0]))

        def moved(step: np.ndarray) -> States:
            return self.begins(model, First(*ends), np.tile(step, (len(change), 1)))[0]  # type: ignore[arg-type]

        def slope(function: Callable[[np.ndarray], np.ndarray], width: int) -> np.ndarray:
            sides = [(function(step) - function(-step)) / (2 * STEP) for step in STEP * np.eye(width)]
            return np.stack(sides, axis=-1)

        begin = following(change)
        by_end = slope(lambda step: self.difference(moved(step), begin), nx)
        by_next = slope(lambda step: self.difference(ends, following(change + step)), change.shape[1])
        return WindowGaps(self.difference(ends, begin), by_end, by_next)  # type: ignore[arg-type]

    def changes_to(self, model: Any, first: First, states: States) -> np.ndarray:
        """(windows, nx) changes of the guesses of first states that lead to these states."""
        return self.difference(states, States(*(np.asarray(part, float) for part in first)))


@contextlib.contextmanager
def simulated_by_c(build: Callable[[np.ndarray], str]) -> Iterator[Simulator]:
    """`optimize.fit` simulates by C in here; `build` makes the XML of a theta, of the numbers of the model alone."""
    c = Simulator(build)
    with contextlib.ExitStack() as stack:
        for name in ("motions", "pushed", "derivatives", "changes_to", "begins", "window_gaps"):
            stack.enter_context(mock.patch.object(problem, name, getattr(c, name)))
        stack.enter_context(mock.patch.object(Unknowns, "model_of", lambda self, theta: self.model))
        yield c
