"""fit: system identification, the numbers of a model and initial states under which it shows what was recorded.

    minimize over theta, x_w:  sum over windows w, times t, sensors i of ((y_i(t; theta, x_w) - measured) / noise_i)^2

Recordings are cut into windows of equal length, each with an initial state x_w of its own (tangent coordinates), so
that errors do not pile up over long motions and chaos stays out. Jacobians are exact, by steps, by forward or by
reverse mode (residuals.py), and fits of the same shapes share their compiled programs. The search is by
Levenberg-Marquardt steps within the bounds (levenberg_marquardt.py), which eliminate the states of each window.
Source: Bock 1983 for several windows.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.base.checked import checked
from diffsim.optimize.identify.covariance import Identified, identify
from diffsim.optimize.identify.recording import Recording
from diffsim.optimize.identify.unknowns import Unknown, UnknownInertia, Unknowns
from diffsim.optimize.identify.windows import Fit, Problem, windows_of
from diffsim.types import Model, State

Array = jax.Array


class FitResult(NamedTuple):
    """What `fit` found; `print` it.

    Attributes:
      model: the recorded system, as far as it can be told.
      theta: (n,) the unknowns, logarithms where so asked.
      identified: values, standard deviations, intervals and what cannot be told apart.
      states: initial states of all windows, stacked; those held out are the last.
      rms: (nsensordata,) root mean square of reading minus measurement, in its unit; held_out_rms: of windows held out.
      start_rms: the same before the search, of the windows that were fitted.
      iterations: how many Jacobians the search took.
      converged: whether it ended by itself.
      message: how it ended.
    """

    model: Model
    theta: np.ndarray
    identified: Identified
    states: State
    rms: np.ndarray
    held_out_rms: np.ndarray
    start_rms: np.ndarray
    iterations: int
    converged: bool
    message: str

    def __str__(self) -> str:
        lines = [
            f"{'converged' if self.converged else 'NOT CONVERGED'} after {self.iterations} Jacobians: {self.message}"
        ]
        lines += [str(self.identified), "sensor            before       after    held out   (root mean square error)"]
        names = _sensor_names(self.model)
        for name, *numbers in zip(names, self.start_rms, self.rms, self.held_out_rms, strict=True):
            lines.append(f"{name:<14}" + "".join(f"{number:>12.4g}" for number in numbers))
        return "\n".join(lines)


@checked
def fit(
    model: Model,
    recordings: Recording | Sequence[Recording],
    unknowns: Sequence[Unknown | UnknownInertia],
    noise: Any = None,
    settings: Fit | None = None,
) -> FitResult:
    """Identifies numbers of a model. Runs on the host; simulations are jitted and batched over windows.

    Args:
      model: the first guess.
      recordings: one or several, of the same actuators and sensors.
      unknowns: what is not known, with bounds; further bounds come from logarithms.
      noise: standard deviation of each reading, in its unit, a number or (nsensordata,); None for one that all share,
        estimated from the residuals.
      settings: None for `Fit()`.

    Returns:
      A `FitResult`; `print` shows it.

    Raises:
      ValueError: no unknowns, no such field, a start out of bounds, too short recordings, noise that is not positive.
    """
    chosen = Fit() if settings is None else settings
    listed = [recordings] if isinstance(recordings, Recording) else list(recordings)
    unknown = Unknowns(model, unknowns)
    scale = _scale(model, 1.0 if noise is None else noise)
    problem = Problem(unknown, windows_of(listed, chosen.window), scale, chosen)
    train, test = problem.divided()
    found = train.solve(unknown.start, True)
    theta = found.x[: unknown.start.size]
    tested = test.solve(theta, False).x if chosen.held_out else np.zeros(0)
    start = np.concatenate([unknown.start, np.zeros(found.x.size - theta.size)])
    return FitResult(
        model=unknown.model_of(jnp.asarray(theta, model.qpos0.dtype)),
        theta=theta,
        identified=identify(unknown, theta, found.blocks, found.fun, noise is not None),
        states=problem.states(np.concatenate([found.x[theta.size :], tested])),
        rms=train.rms(found.x),
        held_out_rms=test.rms(np.concatenate([theta, tested])),
        start_rms=train.rms(start),
        iterations=int(found.njev),
        converged=bool(found.status > 0),
        message=found.message,
    )


def _scale(model: Model, noise: Any) -> np.ndarray:
    """(nsensordata,) standard deviations."""
    scale = np.asarray(noise, float)
    if scale.shape not in ((), (1,), (model.nsensordata,)):
        raise ValueError(f"noise has shape {scale.shape}, expected one number or ({model.nsensordata},)")
    if not np.all(scale > 0):
        raise ValueError(f"noise is {noise}: standard deviations are positive")
    return np.broadcast_to(scale, (model.nsensordata,))


def _sensor_names(model: Model) -> list[str]:
    """A name of each reading."""
    names = []
    for i in range(model.nsensor):
        name, width = model.name("sensor", i) or f"sensor {i}", int(model.sensor_dim[i])
        names += [name] if width == 1 else [f"{name}.{k}" for k in range(width)]
    return names
