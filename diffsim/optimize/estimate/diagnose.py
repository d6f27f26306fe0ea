"""diagnose: whether a gradient can be trusted.

The gradient by reverse mode is compared with two others, along its own direction and along random directions: with
central differences, over steps from `reach` down to a millionth of `reach`; and with the gradient of the loss averaged
over changes as large as `reach`. An exact gradient can still be useless. The loss may be flat here but not a little
further on (no contact yet), or its slope may not hold over any useful distance (contacts that begin, chaos).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree

from diffsim.optimize.estimate.smoothed import sample, score

# steps of the differences: `reach`, and this number of further steps, each a tenth of the one before
DECADES = 6
# the largest relative error at which differences confirm a derivative; for a smooth loss, central differences are more
# accurate
EXACT = 1e-2
# a slope holds over a distance if its relative error there is at most this number
CLOSE = 0.1
# relative rounding error of a loss, in machine epsilons; it adds up over the steps of a rollout
ROUNDING = 100.0
# a smoothed slope counts if it is this number of standard errors away from zero
CERTAIN = 3.0
# the default reach as a fraction of |x|, and also its smallest value
REACH = 0.01


class Diagnosis(NamedTuple):
    """The result of `diagnose`; `print` it. Arrays are numpy's. The first of the k directions is along the gradient.

    Attributes:
      trust: whether slopes along all directions hold over changes as large as `reach`, within 10%.
      advice: what is wrong and what to do, in words.
      value: the loss.
      gradient: like x, by reverse mode.
      smoothed: like x, the gradient of the loss averaged over normal noise of the size of `reach` (order 0).
      reach: the norm of the largest change of x that matters.
      holds: the largest step up to which the slopes hold within 10%; 0 if they do not hold for any step.
      slopes: (k,) slopes of the loss by reverse mode.
      smoothed_slopes: (k,) slopes of the averaged loss.
      smoothed_errors: (k,) standard errors of `smoothed_slopes`.
      steps: (n,) steps of the central differences, the largest first.
      differences: (k, n) slopes by central differences.
    """

    trust: bool
    advice: str
    value: float
    gradient: Any
    smoothed: Any
    reach: float
    holds: float
    slopes: np.ndarray
    smoothed_slopes: np.ndarray
    smoothed_errors: np.ndarray
    steps: np.ndarray
    differences: np.ndarray

    def __str__(self) -> str:
        steps = "".join(f"{step:>11.1e}" for step in self.steps)
        lines = [self.advice, f"slope along       reverse   smoothed{steps}  (differences over steps)"]
        for i, (slope, mean, row) in enumerate(zip(self.slopes, self.smoothed_slopes, self.differences, strict=True)):
            name = "the gradient" if i == 0 else f"direction {i}"
            lines.append(f"{name:<14}{slope:>11.3g}{mean:>11.3g}" + "".join(f"{value:>11.3g}" for value in row))
        return "\n".join(lines)


def diagnose(
    loss: Callable[[Any], Array],
    x: Any,
    reach: float | None = None,
    directions: int = 4,
    samples: int = 128,
    seed: int = 0,
) -> Diagnosis:
    """Compares the gradient of a loss with differences and with the smoothed gradient. Runs on the host; do not jit it.

    Args:
      loss: x -> scalar, with x a pytree of floats.
      x: where the gradient is taken.
      reach: the norm of the changes of x that matter to you, in its units; None for 1% of |x|, or 0.01 if that is more.
      directions: number of directions along which differences are taken.
      samples: pairs of samples for the smoothed gradient.
      seed: seed of these samples and of the random directions.

    Returns:
      A `Diagnosis`; `print` shows it.

    Raises:
      ValueError: fewer than one direction, or a reach that is not positive.
    """
    flat, unflatten = ravel_pytree(x)
    reach = max(REACH, REACH * float(jnp.linalg.norm(flat))) if reach is None else reach
    if directions < 1 or not reach > 0:
        raise ValueError(f"directions is {directions} and reach {reach}, expected one or more, and a positive number")

    def flat_loss(at: Array) -> Array:
        return loss(unflatten(at))

    value, gradient = jax.jit(jax.value_and_grad(flat_loss))(flat)
    # unit vectors; the first is the direction of the gradient, if it has one
    along = np.random.default_rng(seed).normal(size=(directions, flat.size))
    slope = np.asarray(gradient, float)
    if np.all(np.isfinite(slope)) and np.any(slope):
        along[0] = slope / np.max(np.abs(slope))
    along = along / np.linalg.norm(along, axis=1, keepdims=True)
    steps = reach * 0.1 ** np.arange(DECADES + 1)
    # slopes by central differences, from one batch of losses
    moves = (along[:, None, :] * steps[None, :, None]).reshape(-1, flat.size)
    points = flat[None] + jnp.asarray(np.concatenate([moves, -moves]), flat.dtype)
    plus, minus = np.split(np.asarray(jax.jit(jax.vmap(flat_loss))(points), float), 2)
    # the gradient averaged over noise whose norm is about `reach`
    key = jax.random.key(seed)
    sigma = reach / np.sqrt(flat.size)
    smooth = jax.jit(lambda at: score(flat_loss, at, sample(flat_loss, at, key, sigma, samples)))(flat)
    measured = _Measured(
        value=float(value),
        slopes=along @ np.asarray(gradient, float),
        smoothed=along @ np.asarray(smooth.mean, float),
        smoothed_errors=np.sqrt(along**2 @ np.asarray(smooth.variance, float)),
        steps=steps,
        differences=(plus - minus).reshape(directions, -1) / (2 * steps[None]),
        rounding=ROUNDING * float(jnp.finfo(flat.dtype).eps) * np.abs(float(value)) / steps,
    )
    holds = _holds(measured)
    return Diagnosis(
        trust=bool(holds >= measured.steps[0]),
        advice=_advice(measured, holds),
        value=measured.value,
        gradient=unflatten(gradient),
        smoothed=unflatten(smooth.mean),
        reach=float(measured.steps[0]),
        holds=holds,
        slopes=measured.slopes,
        smoothed_slopes=measured.smoothed,
        smoothed_errors=measured.smoothed_errors,
        steps=measured.steps,
        differences=measured.differences,
    )


class _Measured(NamedTuple):
    """The value, and all kinds of slopes; `rounding` (n,) is the error of differences due to rounding of the loss."""

    value: float
    slopes: np.ndarray
    smoothed: np.ndarray
    smoothed_errors: np.ndarray
    steps: np.ndarray
    differences: np.ndarray
    rounding: np.ndarray


def _errors(measured: _Measured) -> np.ndarray:
    """(n,) the largest error of the slopes over each step, relative to the largest slope over that step."""
    error = np.abs(measured.differences - measured.slopes[:, None]) - measured.rounding
    scale = np.maximum(np.max(np.abs(measured.differences), axis=0), np.max(np.abs(measured.slopes)))
    return np.max(error, axis=0, initial=0) / np.where(scale > 0, scale, 1)


def _holds(measured: _Measured) -> float:
    """The largest step up to which all slopes hold; an error within rounding does not count."""
    finite = np.all(np.isfinite(measured.differences), axis=0) & np.all(np.isfinite(measured.slopes))
    good = ~(_errors(measured) > CLOSE) & finite
    held = 0.0
    for step, fine in zip(measured.steps[::-1], good[::-1], strict=True):
        if not fine:
            break
        held = float(step)
    return held


def _advice(measured: _Measured, holds: float) -> str:
    """What is wrong and what to do: the first sentence that applies."""
    largest = np.max(np.abs(measured.slopes))
    reach = measured.steps[0]
    if not (np.isfinite(measured.value) and np.all(np.isfinite(measured.slopes))):
        return "Do not trust it: the loss or its gradient is not finite. See diffsim.check of the rollout."
    if holds >= reach:
        return f"Trust it: over changes up to {reach:.2g} its slopes hold within {CLOSE:.0%}."
    smoothed = "the gradient of optimize.smoothed(loss, sigma, samples) sees more"
    seen = np.any(np.abs(measured.smoothed) > CERTAIN * measured.smoothed_errors + CLOSE * largest)
    if largest <= measured.rounding[0] and np.max(np.abs(measured.differences)) > largest:
        also = f"; {smoothed}" if seen else ""
        return f"Do not trust it: the loss is flat here, but not within {reach:.2g} (contacts not reached yet?){also}."
    if np.min(_errors(measured)) > EXACT:
        return (
            "Do not trust it: it is not the derivative of this loss; differences agree with it over no step. The loss "
            "jumps here, or parts of it are not differentiated (stop_gradient, an unconverged solver: diffsim.check)."
        )
    ratio = measured.differences[0, 0] / np.where(measured.slopes[0] == 0, 1, measured.slopes[0])
    return (
        f"Trust it over changes up to {holds:.1g} only: it is the derivative here, but over {reach:.2g} the slope "
        f"along the gradient is {ratio:.2g} times that (contacts that begin or end in between?); {smoothed}."
    )
