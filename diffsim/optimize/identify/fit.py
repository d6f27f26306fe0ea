"""fit: system identification. Estimates parameters of a model and initial states from recordings.

    minimize over theta, x_w:  sum over windows w, times t, sensors i of ((y_i(t; theta, x_w) - measured) / noise_i)^2

Recordings are cut into windows of equal length. Each window has an initial state x_w of its own (tangent coordinates),
so that errors do not grow over long motions and chaos stays out. Jacobians are exact (residuals.py), and fits of the
same shapes share their compiled programs. The search takes Levenberg-Marquardt steps within the bounds
(least_squares.py). fitter.py decides where to start and which rows to fit first. evidence.py decides whether to believe
the result.
"""

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.base.checked import checked
from diffsim.optimize.identify.carry_over import CarryOver, with_prior
from diffsim.optimize.identify.draws import laplace, metropolis
from diffsim.optimize.identify.evidence import Evidence, FittedWindows, Identified, identify
from diffsim.optimize.identify.fitter import Fitter
from diffsim.optimize.identify.information import Information
from diffsim.optimize.identify.least_squares import Blocks, Point
from diffsim.optimize.identify.missing import Effect
from diffsim.optimize.identify.places import Inertia, Payload, numbers
from diffsim.optimize.identify.problem import Problem, Suspect, reading_names, suspects
from diffsim.optimize.identify.recording import Recording
from diffsim.optimize.identify.report import report
from diffsim.optimize.identify.settings import Fit
from diffsim.optimize.identify.unknowns import Unknown, UnknownInertia, UnknownPayload, Unknowns
from diffsim.optimize.progress import Progress
from diffsim.types import Model, State

# fields of the parameters that are often wrong in a model
SUSPECTED = (
    "dof_frictionloss",
    "dof_damping",
    "dof_armature",
    "jnt_stiffness",
    "gravity.tilt",
    "sensor.gain",
    "sensor.bias",
    "sensor.delay",
)
SUSPECTS = tuple(Unknown(field) for field in SUSPECTED)
# the parts of an inertia: in words, the leaf, the unit
INERTIA = (
    ("mass", "body_mass", "kg"),
    ("center", "body_ipos", "m"),
    ("moments", "body_inertia", "kg m^2"),
)
# the fields of a result with one error for each reading
ERRORS = ("rms", "held_out_rms", "start_rms", "held_out_start_rms", "noise")
# most effects that the report names
HINTS = 3
# the first guess is better than what was found if it predicts with errors smaller by this factor
BETTER = 0.95


class FitResult(NamedTuple):
    """The result of `fit`; `print` it.

    Attributes:
      model: the model with the estimated parameters; the first guess, if that predicts the windows that were held out
        better (`first_guess_is_better`).
      theta: (n,) the unknowns; logarithms for unknowns with `log`.
      identified: values, standard deviations, intervals, and combinations that cannot be told apart.
      evidence: whether the model explains the data.
      states: initial states of all windows, stacked; the windows that were held out are the last.
      rms: (nsensordata,) root mean square of reading minus measurement, in the reading's unit.
      held_out_rms: (nsensordata,) the same for the windows that were held out.
      start_rms: (nsensordata,) the same before the search, for the windows that were fitted.
      held_out_start_rms: (nsensordata,) the same before the search, for the windows that were held out.
      noise: (nsensordata,) standard deviations of the readings, from the user or estimated.
      iterations: how many times derivatives were taken.
      converged: whether the search ended in a minimum, or as near to one as a motion that jumps allows.
      message: how it ended.
      minima: for each start that was followed, the cost and the (n,) values at its end; the best comes first.
      held_out: the windows that were held out; None if there are none.
      information: what the recordings can tell, at the first guess.
      carry_over: how well a fit of the slower part of the recordings predicts the faster part, compared with the first
        guess; None if it was not tried: without a prior, or for motions in which contacts begin or end.
      notes: what the prior did, in sentences.
      missing: effects that the model may lack, if it does not explain the data; the likeliest comes first (missing.py).
      problem: the windows that were fitted.
      posterior: the same with the prior that moved the estimates, and with the noise that residuals show; `problem`
        itself without one.
      point: the solution.
      blocks: derivatives of the residuals there.
    """

    model: Model
    theta: np.ndarray
    identified: Identified
    evidence: Evidence
    states: State
    rms: np.ndarray
    held_out_rms: np.ndarray
    start_rms: np.ndarray
    held_out_start_rms: np.ndarray
    noise: np.ndarray
    iterations: int
    converged: bool
    message: str
    minima: list[tuple[float, np.ndarray]]
    held_out: FittedWindows | None
    information: Information | None
    carry_over: CarryOver | None
    notes: list[str]
    missing: list[Effect]
    problem: Problem
    posterior: Problem
    point: Point
    blocks: Blocks

    @property
    def explained(self) -> bool:
        """Whether this is a minimum at which the model explains the data, held-out windows included."""
        return self.converged and self.evidence.explained and not self.first_guess_is_better

    @property
    def first_guess_is_better(self) -> bool:
        """Whether `model` keeps the first guess.

        It does if the first guess predicts windows that were held out better than the estimates do, or faster rows; if
        the model does not explain the data, also where the estimates predict faster rows less than 25% better.
        """
        carries = self.carry_over is None or self.carry_over.carries
        return not carries or _is_better(self.held_out_start_rms, self.held_out_rms, self.noise)

    @property
    def verdict(self) -> str:
        """Whether to trust the result, in a sentence or two."""
        if not self.first_guess_is_better:
            return self.evidence.sentence
        if self.carry_over is not None and not self.carry_over.carries:
            return (
                f"Do NOT use the values found: {self.carry_over}. `model` keeps the first guess. "
                f"{self.evidence.sentence}"
            )
        before, after = (_times_noise(rms, self.noise) for rms in (self.held_out_start_rms, self.held_out_rms))
        return (
            f"Do NOT use the values found: on the windows that were held out they are off by {after:.3g} times the "
            f"noise, and the first guess by {before:.3g}. `model` keeps the first guess. {self.evidence.sentence}"
        )

    def __str__(self) -> str:
        ended = (
            f"{'converged' if self.converged else 'NOT CONVERGED'} after {self.iterations} Jacobians: {self.message}"
        )
        lines = [self.verdict, *self.hints(), *self.notes, ended, str(self.identified), *self.inertias()]
        if len(self.minima) > 1:
            costs = ", ".join(f"{cost:.4g}" for cost, _ in self.minima)
            lines.append(f"searches from {len(self.minima)} starts ended at costs {costs}; the lowest is shown")
        lines.append("sensor            before       after    held out       noise   (root mean square error)")
        numbers = zip(self.start_rms, self.rms, self.held_out_rms, self.noise, strict=True)
        for name, row in zip(reading_names(self.model), numbers, strict=True):
            lines.append(f"{name:<14}" + "".join(f"{number:>12.4g}" for number in row))
        return "\n".join(lines)

    def hints(self) -> list[str]:
        """What the model may lack, in sentences: effects that explain at least half of the residuals."""
        named = [effect for effect in self.missing if effect.named]
        if named:
            return [f"The model may lack: {effect}." for effect in named[:HINTS]]
        if self.missing:
            return ["None of the effects that were tried explains half of the residuals."]
        return [f"The residuals look like {cause}." for cause in self.evidence.causes]

    def inertias(self) -> list[str]:
        """One line for each body with a load or an unknown inertia.

        It gives the mass (kg), center of mass (m) and principal moments (kg m^2), with standard deviations.
        """
        unknowns = self.problem.unknowns
        lines = []
        theta = jnp.asarray(self.theta[unknowns.in_model], self.model.qpos0.dtype)
        slopes = numbers(unknowns.places, unknowns.model, theta)[1]
        covariance = self.identified.covariance[np.ix_(unknowns.in_model, unknowns.in_model)]
        for place in [place for place in unknowns.places if isinstance(place, Inertia | Payload)]:
            texts = []
            known = True
            for word, field, unit in INERTIA:
                slope = np.asarray(slopes[field][place.body], float).reshape(-1, theta.size)
                std = np.sqrt(np.maximum(np.einsum("ki,ij,kj->k", slope, covariance, slope), 0))
                known &= bool(np.isfinite(self.identified.std[unknowns.in_model][slope.any(axis=0)]).all())
                values = np.asarray(getattr(self.model, field)[place.body], float).reshape(-1)
                pairs = [f"{value:.4g} +- {error:.2g}" for value, error in zip(values, std, strict=True)]
                texts.append(f"{word} {', '.join(pairs)} {unit}")
            name = self.model.name("body", place.body) or f"body {place.body}"
            lines.append(f"{name}: {'; '.join(texts)}{'' if known else '; not all of these are identified'}")
        return lines

    def draw(self, count: int, seed: int = 0, method: Literal["laplace", "metropolis"] = "laplace") -> np.ndarray:
        """Draws values of the parameters from their posterior distribution.

        The prior of `fit` has a part in it if it moved the estimates.

        Args:
          count: number of draws.
          seed: of the draws.
          method: "laplace" for a normal distribution of theta; "metropolis" for the Metropolis algorithm, which takes
            one simulation of all windows for each draw and handles curved and one-sided distributions.

        Returns:
          (count, n) values.

        Raises:
          ValueError: intervals are withheld, since the model does not explain the data; or the first guess is better.
        """
        return self.problem.unknowns.values(self._drawn(count, seed, method))

    def suspects(self, candidates: Sequence[Unknown] = SUSPECTS) -> list[Suspect]:
        """Parameters that were taken as known, ordered by how much of the residuals a change of them would explain.

        Use it if the model does not explain the data. It compiles one more program, for derivatives with respect to all
        candidates.

        Args:
          candidates: parameters to test; by default friction, damping, motor inertia, springs, the direction of
            gravity, and gain, bias and delay of each sensor.
        """
        return suspects(self.problem, self.point, self.blocks, candidates)

    def worlds(self, model: Model, key: Array, count: int) -> dict[str, Array]:
        """Leaves (count, ...) of a model with parameters drawn from the posterior, for `diffsim.randomize`."""
        unknowns = self.problem.unknowns
        seed = int(jax.random.randint(key, (), 0, np.iinfo(np.int32).max))
        theta = jnp.asarray(self._drawn(count, seed, "laplace")[:, unknowns.in_model], model.qpos0.dtype)
        return jax.jit(jax.vmap(lambda theta: numbers(unknowns.places, model, theta)[0]))(theta)

    def _drawn(self, count: int, seed: int, method: str) -> np.ndarray:
        """(count, n) draws of theta, as `draw`."""
        if self.identified.withheld or self.first_guess_is_better:
            raise ValueError(f"there is no distribution to draw from: {self.verdict}")
        covariance = self.identified.covariance
        if method == "laplace":
            return laplace(self.problem, self.theta, covariance, count, seed)
        return metropolis(self.posterior, self.point, self.blocks, covariance, count, seed)

    def report(self, path: str | Path, title: str = "Identification") -> None:
        """Writes a report as one HTML file: verdict, parameters, correlations, recorded and simulated curves."""
        how = "converged" if self.converged else "NOT CONVERGED"
        ended = f"The search {how} after {self.iterations} Jacobians: {self.message}."
        samples = [("Windows that were fitted", self.problem.sample(self.point, self.blocks, True))]
        samples += [] if self.held_out is None else [("Windows that were held out", self.held_out)]
        Path(path).write_text(
            report(
                title,
                self.explained,
                self.verdict,
                [*self.hints(), *self.notes, ended, *self.inertias()],
                self.evidence,
                self.identified,
                samples,
            )
        )

    def save(self, path: str | Path) -> None:
        """Writes the result as JSON: parameters, intervals, covariance, errors and the verdict."""
        identified = self.identified
        numbers = {name: getattr(identified, name).tolist() for name in ("values", "start", "std", "lower", "upper")}
        entries = {
            "labels": identified.labels,
            **numbers,
            "covariance": identified.covariance.tolist(),
            **{name: getattr(self, name).tolist() for name in ERRORS},
            "verdict": self.verdict,
            "causes": self.hints(),
            "message": self.message,
            "explained": self.explained,
            "converged": self.converged,
        }
        Path(path).write_text(json.dumps(entries, indent=1))


@checked
def fit(
    model: Model,
    recordings: Recording | Sequence[Recording],
    unknowns: Sequence[Unknown | UnknownInertia | UnknownPayload],
    noise: Any = None,
    settings: Fit | None = None,
    start_noise: Any = None,
    *,
    prior: bool = True,
    extend: bool = False,
    seconds: float | None = None,
    show: Callable[[str], Any] | None = None,
) -> FitResult:
    """Estimates parameters of a model from recordings, with intervals and a verdict on the model.

    Runs on the host; simulations are jitted and batched over windows. Interrupted by Ctrl-C, it returns the best result
    so far.

    Args:
      model: the first guess.
      recordings: one or several, of the same actuators and sensors.
      unknowns: the parameters to estimate, with their bounds.
      noise: standard deviation of each reading, in its unit, a number or (nsensordata,); None to estimate it for each
        sensor from the residuals.
      settings: None for `Fit()`.
      start_noise: standard deviation of initial states about the recordings' guesses, a number or (2 nv + na,) for
        positions, velocities and activations; None for next to no knowledge.
      prior: whether each unknown has a normal prior about the model's value, with a width that the recordings choose.
        It counts where these do not decide. The faster half of the rows is then predicted by a fit of the other half,
        and the model keeps its own numbers if they predict it better.
      extend: if the model does not explain the data, and one effect that it lacks would explain half of the residuals,
        adds the parameters of this effect to the unknowns and fits again.
      seconds: budget of time for the search, compilation included; None for no limit.
      show: called with a line of progress now and then; None writes to stderr on a terminal and in a
        notebook, which the environment variable DIFFSIM_PROGRESS turns off (0) or on for other outputs (1).

    Returns:
      A `FitResult`; `print` shows it. Its first sentence says whether to trust the rest.

    Raises:
      ValueError: no unknowns, no such field, a start out of bounds, too short recordings, noise that is not positive.
    """
    chosen = Fit() if settings is None else settings
    listed = [recordings] if isinstance(recordings, Recording) else list(recordings)
    unknown = Unknowns(model, unknowns)
    fitter = Fitter(unknown, noise, start_noise, chosen, Progress("fit", seconds, show), prior)
    best, spread, problem = fitter.run(listed)
    jacobians = fitter.jacobians
    point = best.outcome.point
    train = best.problem
    added = _extension(unknown, unknowns, fitter.missing) if extend and not fitter.stopped else []
    failed = []
    if added:
        elapsed = fitter.progress.elapsed
        left = None if seconds is None else seconds - elapsed
        # another fit takes about as long as this one
        again = None
        if left is None or left > 0.5 * elapsed:
            again = fit(
                model, listed, [*unknowns, *added], noise, chosen, start_noise, prior=prior, seconds=left, show=show
            )
        if again is not None and again.converged:
            note = f"Added, since the model lacked it: {fitter.missing[0]}."
            return again._replace(notes=[note, *again.notes], iterations=jacobians + again.iterations)
        reason = "there was no time to add it" if again is None else "the fit with it did not converge"
        failed = [f"{fitter.missing[0]}, but {reason}."]
    # the windows that were held out: the same theta, their own first states
    test = dataclasses.replace(problem.part(slice(train.count, None)), noise=train.noise)
    thetas = (point.theta, unknown.start)
    tested = [test.solve(test.point(theta), chosen.iterations, "states") for theta in thetas if test.count]
    held_out_rms, held_out_start_rms = (
        (test.rms(outcome.point) for outcome in tested) if tested else [np.full(train.noise.size, np.nan)] * 2
    )
    sample = train.sample(point, best.outcome.blocks, noise is not None)
    identified = identify(unknown, point.theta, sample, best.evidence, spread, fitter.width)
    stopped = "; stopped before its end" if fitter.stopped else ""
    widened = best.good and not best.outcome.minimum and not fitter.stopped
    first = [train.states(point.x), *(test.states(outcome.point.x) for outcome in tested[:1])]
    worse = fitter.carry_over is not None and not fitter.carry_over.carries
    kept = unknown.start if worse or _is_better(held_out_start_rms, held_out_rms, train.noise) else point.theta
    return FitResult(
        model=unknown.model_of(jnp.asarray(kept, model.qpos0.dtype)),
        theta=point.theta,
        identified=identified,
        evidence=best.evidence,
        states=jax.tree.map(lambda *parts: jnp.concatenate(parts), *first),
        rms=train.rms(point),
        held_out_rms=held_out_rms,
        start_rms=train.rms(train.point(unknown.start)),
        held_out_start_rms=held_out_start_rms,
        noise=train.noise,
        iterations=jacobians,
        converged=(best.outcome.minimum or best.good) and not fitter.stopped,
        message=best.outcome.message + ("; ended at a jump of the cost; intervals are widened" if widened else stopped),
        minima=fitter.minima,
        held_out=test.sample(tested[0].point, tested[0].blocks, noise is not None) if tested else None,
        information=fitter.information,
        carry_over=fitter.carry_over,
        notes=[*failed, *fitter.notes(identified)],
        missing=fitter.missing,
        problem=train,
        posterior=train if fitter.used is None else with_prior(train, fitter.used, fitter.at_bound),
        point=point,
        blocks=best.outcome.blocks,
    )


def _extension(
    known: Unknowns, unknowns: Sequence[Unknown | UnknownInertia | UnknownPayload], missing: list[Effect]
) -> list[Unknown | UnknownPayload]:
    """The unknowns of the likeliest missing effect; none if it explains too little, or if they are unknown already."""
    if not missing or not missing[0].named:
        return []
    added = missing[0].unknowns(known.model)
    return [] if added and Unknowns(known.model, added).written & known.written else added


def _times_noise(rms: np.ndarray, noise: np.ndarray) -> float:
    """Root mean square of errors divided by the noise, of all readings; NaN if nothing was measured."""
    return float(np.sqrt(np.mean((rms / noise)[np.isfinite(rms)] ** 2))) if np.isfinite(rms).any() else np.nan


def _is_better(rms: np.ndarray, other: np.ndarray, noise: np.ndarray) -> bool:
    """Whether the errors `rms` are clearly smaller than `other`; False if there are none."""
    return bool(_times_noise(rms, noise) < BETTER * _times_noise(other, noise))
