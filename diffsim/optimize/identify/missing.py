"""What a model lacks: score tests of effects that it does not have, one at a time.

Each effect adds a signal z to the readings, to first order in its strength c: a force on a joint, another parameter of
the model, or a change of the readings themselves. z comes from a simulation with a little of the effect. With P the
projection onto what neither theta nor first states can adjust, the effect explains the share

    (|P r|^2 - min_c |P (r + Z c)|^2) / (|P r|^2 - noise)

of the squared residuals r beyond the noise, where Z has a column for each joint or sensor. Columns are added while the
Bayesian information criterion falls, so that an effect of one joint is preferred to an effect of all joints. Effects
are ranked by this criterion.

Residuals that look like noise may hide friction, since damping stands for most of it. So the signals of friction are
tested also where the model seems to explain the data (`hidden_friction`).

Sources: Godfrey 1978 (score tests); Schwarz 1978 (information criterion).
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import scipy.optimize
import scipy.stats

from diffsim.optimize.identify.effects import Candidate, Column, Motion, candidates, friction_of, small_friction
from diffsim.optimize.identify.evidence import NULL, Residuals
from diffsim.optimize.identify.least_squares import Outcome, projected
from diffsim.optimize.identify.problem import Problem
from diffsim.optimize.identify.unknowns import Unknown, UnknownPayload
from diffsim.types import Model

# chance that noise is taken for hidden friction
HIDDEN_ALARM = 2e-3
# effects that explain at least this share of the residuals are named
NAMED_SHARE = 0.5
# most columns of one effect
MOST_COLUMNS = 6
# a signal is not tested if the fit can adjust all but this part of its square
LEAST_SIGNAL = 1e-4
# an effect needs at least this number of rows that count as independent
LEAST_ROWS = 10.0
# friction that explains this share is tried once more with the strength that was found
REFINED_SHARE = 0.3
# at least this part of the squared residuals counts as misfit, the rest as noise
LEAST_MISFIT = 0.2
# differences of the information criterion below this say nothing (Raftery 1995)
EQUAL = 2.0
# a spring that is added is at most this factor weaker than the test says, where it is negative
MOST_SPRING = 10.0
# the longest delay that is added, s, in both directions
LONGEST_DELAY = 0.05
# stands in for zero in denominators
TINY = 1e-300


class Effect(NamedTuple):
    """An effect that a model may lack.

    Attributes:
      name: such as "Coulomb friction".
      share: the share of the squared residuals that it would explain, noise not counted.
      where: the joints, sensors or bodies that it is about; the largest comes first.
      values: its strengths there, in the unit of the effect.
      unit: of the strengths.
      criterion: the Bayesian information criterion with it less the one without it; the lowest is the likeliest.
      hidden: whether the residuals look like noise without it (`hidden_friction`).
    """

    name: str
    share: float
    where: list[str]
    values: list[float]
    unit: str
    criterion: float
    hidden: bool = False

    def __str__(self) -> str:
        places = ", ".join(f"{where}: {value:.2g} {self.unit}".rstrip() for where, value in self._pairs())
        if self.hidden:
            return f"{self.name} ({places}), hidden in residuals that look like noise"
        return f"{self.name} ({places}) would explain {self.share:.0%} of the residuals"

    @property
    def named(self) -> bool:
        """Whether it explains enough to be named."""
        return self.hidden or self.share >= NAMED_SHARE

    def _pairs(self) -> Iterator[tuple[str, float]]:
        return zip(self.where, self.values, strict=True)

    def unknowns(self, model: Model) -> list[Unknown | UnknownPayload]:
        """The parameters of a model by which `fit` can add the effect; empty if MuJoCo's models have none."""
        # objects without a name are named by their number
        where = [int(place) if place.isdigit() else place for place in dict.fromkeys(self.where)]
        names = [model.name("sensor", i) or i for i in range(model.nsensor)]
        if self.name == "Coulomb friction":
            return [Unknown("dof_frictionloss", where, lower=0)]
        if self.name == "viscous damping":
            return [Unknown("dof_damping", where, lower=0)]
        if self.name == "spring":
            # a spring is found negative where the model's is too stiff, or where an unknown load pulls away from zero
            return [Unknown("jnt_stiffness", where, lower=min(0.0, MOST_SPRING * min(self.values)))]
        if self.name == "tilted gravity":
            return [Unknown("gravity.tilt")]
        if self.name == "payload":
            return [UnknownPayload(where[0])]
        if self.name == "delay":
            # a delay of all sensors is also one of the commands
            late = where if where[0] in names else None
            return [Unknown("sensor.delay", late, lower=-LONGEST_DELAY, upper=LONGEST_DELAY, shared=late is None)]
        if self.name == "offset of a sensor":
            return [Unknown("sensor.bias", where)]
        if self.name == "gain of a sensor":
            return [Unknown("sensor.gain", where)]
        return []


def missing_effects(problem: Problem, outcome: Outcome, apparent_noise: np.ndarray | None) -> list[Effect]:
    """Effects that the model may lack; the likeliest comes first.

    Args:
      problem: the windows that were fitted.
      outcome: a solution of their least squares.
      apparent_noise: (ny,) the noise that recordings show by themselves; None if the user gave the noise.
    """
    test = _Test(problem, outcome, apparent_noise)
    motion = Motion(problem, outcome)
    effects: dict[str, Effect] = {}

    def try_candidate(candidate: Candidate) -> None:
        effect = test.explained(candidate)
        if effect is not None and (effect.name not in effects or effect.criterion < effects[effect.name].criterion):
            effects[effect.name] = effect

    for candidate in candidates(motion):
        try_candidate(candidate)
    friction = effects.get("Coulomb friction")
    if friction is not None and friction.share > REFINED_SHARE:
        # friction that holds a joint for a while is not proportional to its strength: once more with this strength
        try_candidate(friction_of(motion, dict(zip(friction.where, friction.values, strict=True))))
    best = min((effect.criterion for effect in effects.values()), default=0.0)
    model = problem.unknowns.model

    def order(effect: Effect) -> tuple[bool, float]:
        # of effects that the criterion does not tell apart, those come first that a model can have
        return not (effect.criterion < best + EQUAL and effect.unknowns(model)), effect.criterion

    return sorted(effects.values(), key=order)


def hidden_friction(
    problem: Problem, outcome: Outcome, apparent_noise: np.ndarray | None
) -> tuple[Effect, np.ndarray] | None:
    """Friction that is hidden in residuals that look like noise; arguments as in `missing_effects`.

    Returns:
      The effect, and (n,) the change of theta that a fit with it would make; None if there is no friction, as far as
      the data tell.
    """
    test = _Test(problem, outcome, apparent_noise)
    motion = Motion(problem, outcome)
    candidate = small_friction(motion)
    known = problem.unknowns.written
    dofs = {name: dof for name, dof, _ in motion.joints}
    columns = [each for each in test.columns(candidate) if ("dof_frictionloss", dofs[each[0].where]) not in known]
    if not columns:
        return None
    # the least fall of the sum of squares, over their mean, that noise makes once in 1 / HIDDEN_ALARM cases
    fall = float(scipy.stats.norm.isf(HIDDEN_ALARM / len(columns))) ** 2
    columns = [each for each in columns if test.fall(each[1]) > fall]
    # residuals that look like noise have no memory: each row counts
    rows = max(float(test.residuals.freedom.sum()), LEAST_ROWS)
    effect = _explained(candidate, columns, test.errors, test.noise, rows, fall)
    if effect is None:
        return None
    strengths = dict(zip(effect.where, effect.values, strict=True))
    signal = sum(strengths.get(column.where, 0.0) * column.signal * test.weight for column, _ in columns)
    size = problem.unknowns.sizes(outcome.point.theta)
    count = problem.measured.shape[1] * problem.noise.size
    rows = projected(outcome.blocks)[:, :count].reshape(-1, size.size) * size
    change = -np.linalg.lstsq(rows, np.reshape(signal, -1), rcond=NULL)[0] * size
    return effect._replace(hidden=True), change


class _Test:
    """The score test of effects at a solution.

    Attributes:
      residuals: the residuals there, and what the fit can adjust.
      weight: (windows, T, ny) 1 / noise, 0 where nothing was measured.
      errors: (k,) the residuals that the fit cannot adjust.
      noise: the sum of their squares that is noise.
      rows: how many of them count as independent.
    """

    def __init__(self, problem: Problem, outcome: Outcome, apparent_noise: np.ndarray | None) -> None:
        self.residuals = Residuals(problem.sample(outcome.point, outcome.blocks, apparent_noise is None))
        self.weight = np.where(self.residuals.seen, 1 / problem.noise, 0)
        self.errors = self.residuals.outside(self.residuals.errors).reshape(-1)
        freedom = self.residuals.freedom.sum(axis=(0, 1))
        part = np.ones(freedom.size) if apparent_noise is None else np.minimum(apparent_noise / problem.noise, 1)
        self.noise = float(np.sum(freedom * part**2))
        memory = max(float(np.nanmax(self.residuals.memory())), 1.0)
        self.rows = max(float(freedom.sum()) / memory, LEAST_ROWS)

    def explained(self, candidate: Candidate) -> Effect | None:
        """What an effect explains; None if it explains nothing."""
        columns = self.columns(candidate)
        return _explained(candidate, columns, self.errors, self.noise, self.rows, float(np.log(self.rows)))

    def fall(self, column: np.ndarray) -> float:
        """By how much a positive strength of a column (k,) lowers the sum of squares, over the variance of its rows.

        Readings whose residuals are smaller than the noise count with the noise: whatever their shape, they are no
        misfit.
        """
        size = np.broadcast_to(np.maximum(np.nan_to_num(self.residuals.size), 1), self.residuals.errors.shape)
        return float(max(-(column @ self.errors), 0.0) ** 2 / max(np.sum((column * size.ravel()) ** 2), TINY))

    def columns(self, candidate: Candidate) -> list[tuple[Column, np.ndarray]]:
        """The columns of an effect that a fit cannot adjust, each with the part (k,) that it cannot adjust."""
        columns = []
        for column in candidate.columns:
            with np.errstate(over="ignore", invalid="ignore"):
                weighted = np.nan_to_num(column.signal * self.weight)
            outside = self.residuals.outside(weighted).reshape(-1)
            if np.sum(outside**2) > LEAST_SIGNAL * np.sum(weighted**2):
                columns.append((column, outside))
        return columns


def _explained(
    candidate: Candidate,
    columns: list[tuple[Column, np.ndarray]],
    errors: np.ndarray,
    noise: float,
    rows: float,
    fall: float,
) -> Effect | None:
    """What an effect explains: columns are added while the information criterion falls; None if none does."""
    total = float(np.sum(errors**2))
    chosen: list[int] = []
    best = 0.0
    strengths = np.zeros(0)
    left = total
    while len(chosen) < min(MOST_COLUMNS, len(columns)):
        tried = []
        for k in range(len(columns)):
            if k not in chosen:
                c, square = _solved([columns[i] for i in [*chosen, k]], errors)
                tried.append((square, k, c))
        square, k, c = min(tried, key=lambda each: each[0])
        criterion = rows * np.log(max(square, TINY) / max(total, TINY)) + (len(chosen) + 1) * fall
        if criterion >= best:
            break
        chosen, best, strengths, left = [*chosen, k], criterion, c, square
    if not chosen:
        return None
    names = [columns[i][0].where for i in chosen]
    order = np.argsort([-np.sum((columns[i][1] * c) ** 2) for i, c in zip(chosen, strengths, strict=True)])
    return Effect(
        name=candidate.name,
        share=min((total - left) / max(total - noise, LEAST_MISFIT * total, TINY), 1.0),
        where=[names[i] for i in order],
        values=[float(strengths[i]) for i in order],
        unit=candidate.unit,
        criterion=best,
    )


def _solved(columns: list[tuple[Column, np.ndarray]], errors: np.ndarray) -> tuple[np.ndarray, float]:
    """The strengths of columns that explain the errors best, and the sum of squares that is left."""
    matrix = np.stack([column for _, column in columns], axis=1)
    lengths = np.maximum(np.sqrt(np.sum(matrix**2, axis=0)), TINY)
    # the triangle of the QR of (Z, r) is all that counts
    triangle = np.asarray(np.linalg.qr(np.concatenate([matrix / lengths, errors[:, None]], axis=1), mode="r"))
    lower = [0.0 if column.signed else -np.inf for column, _ in columns]
    found = scipy.optimize.lsq_linear(triangle[:, :-1], -triangle[:, -1], (lower, np.inf))
    return found.x / lengths, 2 * float(found.cost)
