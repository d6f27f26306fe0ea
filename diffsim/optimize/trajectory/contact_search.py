"""A search among contact modes: pushes and grips that geometry proposes are tried and improved (cross-entropy method).

Each sample is a mode and a row of numbers that vary its path (contact_paths.py). The path becomes positions of the
robot by inverse kinematics, and controls by inverting the actuators (reach.py). All samples are simulated side by side.
Each mode has a mean and a deviation of its own, and modes get samples in proportion to their elites:

    z ~ N(mean_mode, deviation_mode^2)

Modes whose paths the robot cannot follow, even roughly, are left out.
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from diffsim.base.enums import BiasType
from diffsim.base.errors import ArgumentError
from diffsim.optimize.trajectory.contact_modes import Mode, Scene, find_modes
from diffsim.optimize.trajectory.contact_paths import NUMBERS, paths
from diffsim.optimize.trajectory.reach import Wanted, controls, follow, invertible
from diffsim.optimize.trajectory.sampling import SHARES
from diffsim.optimize.trajectory.task import Task
from diffsim.types import State

# the targets of an idle servo change by less than this share of its range
IDLE = 1e-3
# controls (samples, T, nu) -> costs (samples,)
Cost = Callable[[np.ndarray], np.ndarray]


@dataclasses.dataclass(frozen=True)
class ContactSettings:
    """Settings of the search among contact modes.

    Attributes:
      rounds: rounds of samples, at most.
      modes: most modes that are tried.
      elites: share of the samples that the next round learns from.
      floor: least deviation of the numbers.
      miss: m, a mode is left out if its path misses its waypoints by this much more than the best mode's.
      farthest: m, a mode is left out in any case if its path misses its waypoints by more than this.
      margin: the targets of position servos may leave the range that the paths need by this share of it.
      gain: the search ends when a round lowers the cost by less than this share.
    """

    rounds: int = 8
    modes: int = 24
    elites: float = 0.06
    floor: float = 0.1
    miss: float = 0.02
    farthest: float = 0.1
    margin: float = 0.25
    gain: float = 0.02

    def __post_init__(self) -> None:
        if self.rounds < 1 or self.modes < 1:
            message = f"rounds is {self.rounds} and modes is {self.modes}; expected 1 or more"
            raise ArgumentError(f"ContactSettings: {message} (PlanSettings(contacts=None) proposes nothing)")


class Found(NamedTuple):
    """What a round found.

    Attributes:
      ctrl: (elites, T, nu) controls of the best samples, the best first.
      cost: of the best sample.
      mode: of the best sample.
    """

    ctrl: np.ndarray
    cost: float
    mode: Mode


class Contacts:
    """The contact modes of a task whose paths the robot can follow, and the controls that these paths need.

    Attributes:
      modes: the modes, the best first.
      lower, upper: (nu,) the bounds of the task; for position servos, the range of targets that the paths need.
      hold: (nu,) the controls that hold the robot where it is.
    """

    def __init__(self, scene: Scene, steps: int, samples: int, settings: ContactSettings) -> None:
        self.scene = scene
        self.steps = steps
        self.samples = samples
        self.settings = settings
        count = len(scene.modes)
        rows = np.arange(samples) % count
        # the first path of each mode has its middle numbers
        z = np.random.default_rng(0).normal(size=(samples, NUMBERS)) * (np.arange(samples) >= count)[:, None]
        order = np.argsort(rows, kind="stable")
        drawn = [(mode, z[rows == i]) for i, mode in enumerate(scene.modes) if np.any(rows == i)]
        ctrl, miss = self.driven(drawn)
        misses = np.array([miss[rows[order] == i][0] for i in range(len(drawn))])
        most = min(np.min(misses) + settings.miss, settings.farthest)
        best = [i for i in np.argsort(misses, kind="stable") if misses[i] <= most][: settings.modes]
        self.modes = [scene.modes[i] for i in best]
        if not best:
            return
        used = ctrl[np.isin(rows[order], best)]
        self.hold = self._holding(paths(scene, scene.modes[0], np.zeros((samples, NUMBERS))))
        self.lower, self.upper = self._narrowed(used)

    def _holding(self, wanted: Wanted) -> np.ndarray:
        """(nu,) the controls of a robot that stays and exerts no force; the paths count only for their shapes."""
        count, waypoints = wanted.turn.shape
        stays = np.broadcast_to(np.asarray(self.scene.state.qpos), (count, waypoints, self.scene.task.model.nq))
        free = wanted._replace(force=0 * wanted.force)
        return controls(self.scene.task, self.scene.state, stays, free, self.steps)[0, 0]

    def _narrowed(self, ctrl: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Bounds (nu,) of the controls, given the controls (n, T, nu) of some paths."""
        task = self.scene.task
        topology = task.model.topology
        low, high = ctrl.min(axis=(0, 1)), ctrl.max(axis=(0, 1))
        more = self.settings.margin * (high - low)
        servo = (topology.actuator_biastype == BiasType.AFFINE) & (np.asarray(task.model.actuator_biasprm)[:, 1] != 0)
        # a servo that no path uses, such as one of another arm, may be needed by other searches
        servo &= high - low > IDLE * (task.upper - task.lower)
        lower = np.where(servo, np.maximum(low - more, task.lower), task.lower)
        upper = np.where(servo, np.minimum(high + more, task.upper), task.upper)
        return lower.astype(ctrl.dtype), upper.astype(ctrl.dtype)

    def driven(self, drawn: list[tuple[Mode, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
        """Controls (n, steps, nu) of the paths of modes with their numbers, and by how much each path is missed, m."""
        scene = self.scene
        parts = [paths(scene, mode, z) for mode, z in drawn]
        wanted = Wanted(*(np.concatenate(rows) for rows in zip(*parts, strict=True)))
        qpos, miss = (np.asarray(x) for x in follow(scene.task, scene.state.qpos, wanted, scene.limits))
        return controls(scene.task, scene.state, qpos, wanted, self.steps), np.max(miss, axis=1)

    def search(self, cost: Cost, seed: int, late: Callable[[], bool]) -> Iterator[Found]:
        """Yields the best motion of each round; see the top of this file.

        Args:
          cost: costs (samples,) of controls (samples, T, nu).
          seed: of the random numbers.
          late: whether the time is used up.
        """
        settings, samples, modes = self.settings, self.samples, self.modes
        rng = np.random.default_rng(seed)
        mean = np.zeros((len(modes), NUMBERS))
        deviation = np.ones_like(mean)
        share = np.full(len(modes), 1 / len(modes))
        least = np.inf
        kept = None
        for _ in range(settings.rounds):
            counts = np.diff(np.round(np.cumsum(np.append(0.0, share)) / np.sum(share) * samples).astype(int))
            owner = np.repeat(np.arange(len(modes)), counts)
            numbers = mean[owner] + deviation[owner] * rng.normal(size=(samples, NUMBERS))
            if kept is not None:
                # the best path so far is tried again
                same = np.flatnonzero(owner == kept[0])[:1]
                numbers[same] = kept[1]
            ctrl, _ = self.driven([(modes[i], numbers[owner == i]) for i in np.unique(owner)])
            costs = cost(ctrl)
            elites = np.argsort(costs)[: max(int(settings.elites * samples), SHARES)]
            first = elites[0]
            kept = owner[first], numbers[first]
            yield Found(ctrl=ctrl[elites], cost=float(costs[first]), mode=modes[owner[first]])
            if late() or not costs[first] < (1 - settings.gain) * least:
                return
            least = costs[first]
            for i in np.unique(owner[elites]):
                chosen = numbers[elites[owner[elites] == i]]
                mean[i] = 0.3 * mean[i] + 0.7 * np.mean(chosen, axis=0)
                deviation[i] = np.maximum(0.5 * deviation[i] + 0.5 * np.std(chosen, axis=0), settings.floor)
            share = 0.2 * share + 0.8 * np.bincount(owner[elites], minlength=len(modes)) / len(elites)


def propose_contacts(
    task: Task, state: State, steps: int, samples: int, settings: ContactSettings | None
) -> Contacts | None:
    """The contact modes of a task; None if geometry proposes none, or the controls do not follow from forces."""
    if settings is None or not invertible(task):
        return None
    scene = find_modes(task, state)
    found = None if scene is None else Contacts(scene, steps, samples, settings)
    return found if found is not None and found.modes else None
