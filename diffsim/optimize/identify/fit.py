"""fit: system identification, the numbers of a model and initial states under which it shows what was recorded.

    minimize over theta, x_w:  sum over windows w, times t, sensors i of ((y_i(t; theta, x_w) - measured) / noise_i)^2

Recordings are cut into windows of equal length, each with an initial state x_w of its own (tangent coordinates), so
that errors do not pile up over long motions and chaos stays out. Jacobians are exact (residuals.py), and fits of the
same shapes share their compiled programs. Steps are those of Levenberg and Marquardt within the bounds
(least_squares.py); where to start and what to look at first is that of search.py.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.base.checked import checked
from diffsim.optimize.identify.evidence import Evidence, Identified, Sample, identify
from diffsim.optimize.identify.least_squares import Blocks, Point
from diffsim.optimize.identify.places import Inertia, Payload, numbers
from diffsim.optimize.identify.problem import (
    Problem,
    Suspect,
    laplace,
    metropolis,
    reading_names,
    suspects,
)
from diffsim.optimize.identify.recording import Recording
from diffsim.optimize.identify.report import report
from diffsim.optimize.identify.search import Fit, Search
from diffsim.optimize.identify.unknowns import Unknown, UnknownInertia, UnknownPayload, Unknowns
from diffsim.types import Model, State

# what is often wrong with a model
SUSPECTED = "dof_frictionloss dof_damping dof_armature jnt_stiffness gravity.tilt sensor.gain sensor.bias sensor.delay"
SUSPECTS = tuple(Unknown(field) for field in SUSPECTED.split())
# what an inertia is in words, leaf and unit
INERTIA = (("mass", "body_mass", "kg"), ("center", "body_ipos", "m"), ("moments", "body_inertia", "kg m^2"))


class FitResult(NamedTuple):
    """What `fit` found; `print` it.

    Attributes:
      model: the recorded system, as far as it can be told.
      theta: (n,) the unknowns, logarithms where so asked.
      identified: values, standard deviations, intervals and what cannot be told apart.
      evidence: whether the model explains the data.
      states: initial states of all windows, stacked; those held out are the last.
      rms: (nsensordata,) root mean square of reading minus measurement, in its unit; held_out_rms: of windows held out.
      start_rms: the same before the search, of the windows that were fitted.
      noise: (nsensordata,) standard deviations of readings, those of the user or those that were estimated.
      iterations: how many Jacobians the search took.
      converged: whether it ended in a minimum, or as near as a motion that jumps lets it.
      message: how it ended.
      minima: of each start that was followed the cost and (n,) values at its end, the best first.
      held_out: the windows that were held out; None if there are none.
      problem, point, blocks: the windows that were fitted, the solution, and derivatives there.
    """

    model: Model
    theta: np.ndarray
    identified: Identified
    evidence: Evidence
    states: State
    rms: np.ndarray
    held_out_rms: np.ndarray
    start_rms: np.ndarray
    noise: np.ndarray
    iterations: int
    converged: bool
    message: str
    minima: list[tuple[float, np.ndarray]]
    held_out: Sample | None
    problem: Problem
    point: Point
    blocks: Blocks

    @property
    def explained(self) -> bool:
        """Whether this is a minimum, where the model explains the data."""
        return self.converged and self.evidence.explained

    def __str__(self) -> str:
        ended = (
            f"{'converged' if self.converged else 'NOT CONVERGED'} after {self.iterations} Jacobians: {self.message}"
        )
        lines = [str(self.evidence), ended, str(self.identified), *self.inertias()]
        if len(self.minima) > 1:
            costs = ", ".join(f"{cost:.4g}" for cost, _ in self.minima)
            lines.append(f"searches from {len(self.minima)} starts ended at costs of {costs}; the least is shown")
        lines.append("sensor            before       after    held out       noise   (root mean square error)")
        numbers = zip(self.start_rms, self.rms, self.held_out_rms, self.noise, strict=True)
        for name, row in zip(reading_names(self.model), numbers, strict=True):
            lines.append(f"{name:<14}" + "".join(f"{number:>12.4g}" for number in row))
        return "\n".join(lines)

    def inertias(self) -> list[str]:
        """Masses (kg), centers of mass (m) and principal moments (kg m^2) of bodies with a load or an unknown inertia.

        With standard deviations, in words, a line a body.
        """
        unknowns, lines = self.problem.unknowns, []
        theta = jnp.asarray(self.theta[unknowns.in_model], self.model.qpos0.dtype)
        slopes = numbers(unknowns.places, unknowns.model, theta)[1]
        covariance = self.identified.covariance[np.ix_(unknowns.in_model, unknowns.in_model)]
        for place in [place for place in unknowns.places if isinstance(place, Inertia | Payload)]:
            told, known = [], True
            for word, field, unit in INERTIA:
                slope = np.asarray(slopes[field][place.body], float).reshape(-1, theta.size)
                std = np.sqrt(np.maximum(np.einsum("ki,ij,kj->k", slope, covariance, slope), 0))
                known &= bool(np.isfinite(self.identified.std[unknowns.in_model][slope.any(axis=0)]).all())
                values = np.asarray(getattr(self.model, field)[place.body], float).reshape(-1)
                pairs = [f"{value:.4g} +- {error:.2g}" for value, error in zip(values, std, strict=True)]
                told.append(f"{word} {', '.join(pairs)} {unit}")
            name = self.model.name("body", place.body) or f"body {place.body}"
            lines.append(f"{name}: {'; '.join(told)}{'' if known else '; not all of this is identified'}")
        return lines

    def draw(self, count: int, seed: int = 0, method: Literal["laplace", "metropolis"] = "laplace") -> np.ndarray:
        """Draws (count, n) of the values from what the data leave open.

        Args:
          count: how many.
          seed: of the draws.
          method: "laplace", a normal distribution of theta; or "metropolis", by one simulation of all windows a draw,
            which sees bent and one-sided distributions.

        Raises:
          ValueError: intervals are withheld, since the model does not explain the data.
        """
        return self.problem.unknowns.values(self._drawn(count, seed, method))

    def suspects(self, candidates: Sequence[Unknown] = SUSPECTS) -> list[Suspect]:
        """Numbers that were taken as known and whose change would explain what is left, the likeliest first.

        Where a model does not explain the data. One more program is compiled, with derivatives by all candidates.

        Args:
          candidates: unknowns that were none; by default friction, damping, motors' inertia, springs, the direction of
            gravity, and gain, bias and delay of each sensor.
        """
        return suspects(self.problem, self.point, self.blocks, candidates)

    def worlds(self, model: Model, key: Array, count: int) -> dict[str, Array]:
        """Leaves (count, ...) of a model that differ with draws of its numbers, for `diffsim.randomize`."""
        unknowns = self.problem.unknowns
        seed = int(jax.random.randint(key, (), 0, np.iinfo(np.int32).max))
        theta = jnp.asarray(self._drawn(count, seed, "laplace")[:, unknowns.in_model], model.qpos0.dtype)
        return jax.jit(jax.vmap(lambda theta: numbers(unknowns.places, model, theta)[0]))(theta)

    def _drawn(self, count: int, seed: int, method: str) -> np.ndarray:
        if self.identified.withheld:
            raise ValueError(f"there is nothing to draw from: {self.evidence.sentence}")
        covariance = self.identified.covariance
        if method == "laplace":
            return laplace(self.problem, self.theta, covariance, count, seed)
        return metropolis(self.problem, self.point, self.blocks, covariance, count, seed)

    def report(self, path: str | Path, title: str = "Identification") -> None:
        """Writes one HTML file: verdict, numbers, correlations, curves of what was recorded and what is simulated."""
        how = "converged" if self.converged else "NOT CONVERGED"
        ended = f"The search {how} after {self.iterations} Jacobians: {self.message}."
        samples = [("Windows that were fitted", self.problem.sample(self.point, self.blocks, True))]
        samples += [] if self.held_out is None else [("Windows that were held out", self.held_out)]
        Path(path).write_text(
            report(title, self.explained, [ended, *self.inertias()], self.evidence, self.identified, samples)
        )

    def save(self, path: str | Path) -> None:
        """Writes what was found as JSON: numbers, intervals, covariance, errors and the verdict."""
        shown, judged = self.identified, self.evidence
        numbers = {name: getattr(shown, name).tolist() for name in ("values", "start", "std", "lower", "upper")}
        errors = {name: getattr(self, name).tolist() for name in ("rms", "held_out_rms", "start_rms", "noise")}
        words = {"verdict": judged.sentence, "causes": judged.causes, "message": self.message}
        flags = {"explained": self.explained, "converged": self.converged}
        told = {"labels": shown.labels, **numbers, "covariance": shown.covariance.tolist(), **errors, **words, **flags}
        Path(path).write_text(json.dumps(told, indent=1))


@checked
def fit(
    model: Model,
    recordings: Recording | Sequence[Recording],
    unknowns: Sequence[Unknown | UnknownInertia | UnknownPayload],
    noise: Any = None,
    settings: Fit | None = None,
    start_noise: Any = None,
    *,
    seconds: float | None = None,
    show: Callable[[str], Any] | None = None,
) -> FitResult:
    """Identifies numbers of a model. Runs on the host; simulations are jitted and batched over windows. Interrupted
    (Ctrl-C), it gives the best so far.

    Args:
      model: the first guess.
      recordings: one or several, of the same actuators and sensors.
      unknowns: what is not known, with bounds; further bounds come from logarithms.
      noise: standard deviation of each reading, in its unit, a number or (nsensordata,); None to estimate that of each
        sensor from the residuals.
      settings: None for `Fit()`.
      start_noise: standard deviation of initial states about the recordings' guesses, a number or (2 nv + na,) of
        positions, velocities and activations; None for next to no knowledge.
      seconds: budget of time for the search, compilation included; None for as long as it takes.
      show: called with a line of progress now and then; None writes to stderr where that is a terminal.

    Returns:
      A `FitResult`; `print` shows it. Its first sentence says whether to trust the rest.

    Raises:
      ValueError: no unknowns, no such field, a start out of bounds, too short recordings, noise that is not positive.
    """
    chosen = Fit() if settings is None else settings
    listed = [recordings] if isinstance(recordings, Recording) else list(recordings)
    unknown = Unknowns(model, unknowns)
    search = Search(unknown, noise, start_noise, chosen)
    best, spread, problem = search.run(listed, seconds, show)
    jacobians = search.jacobians
    point, train = best.outcome.point, best.problem
    test = problem.part(slice(train.count, None))
    test.noise = train.noise
    tested = test.solve(test.point(point.theta), chosen.iterations, "states") if test.count else None
    sample = train.sample(point, best.outcome.blocks, noise is not None)
    done = "; stopped before its end" if search.stopped else ""
    widened = best.good and not best.outcome.minimum and not done
    begun = [train.states(point.x), *([] if tested is None else [test.states(tested.point.x)])]
    return FitResult(
        model=unknown.model_of(jnp.asarray(point.theta, model.qpos0.dtype)),
        theta=point.theta,
        identified=identify(unknown, point.theta, sample, best.evidence, spread),
        evidence=best.evidence,
        states=jax.tree.map(lambda *parts: jnp.concatenate(parts), *begun),
        rms=train.rms(point),
        held_out_rms=test.rms(test.point(point.theta) if tested is None else tested.point),
        start_rms=train.rms(train.point(unknown.start)),
        noise=train.noise,
        iterations=jacobians,
        converged=(best.outcome.minimum or best.good) and not search.stopped,
        message=best.outcome.message + ("; the step that is left widens intervals" if widened else done),
        minima=search.minima,
        held_out=None if tested is None else test.sample(tested.point, tested.blocks, noise is not None),
        problem=train,
        point=point,
        blocks=best.outcome.blocks,
    )
