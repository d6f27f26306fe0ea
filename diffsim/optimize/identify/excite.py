"""excite: design of experiments. Finds controls that make unknown parameters visible, before there is a recording.

With J_t = d y_t / d theta along a motion, and readings with noise of standard deviations sigma, the Fisher information
of theta is F = sum_t S J_t^T diag(sigma^-2) J_t S, with S the sizes of the parameters. A design maximizes log det F (D)
or minimizes trace F^-1 (A). Controls are linear between knots. The gradient with respect to the knots takes second
derivatives of the motion, which are as exact as the first.

Sources: Kiefer and Wolfowitz 1960; Swevers et al. 1997, "Optimal robot excitation and identification".
"""

import functools
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize
from jax import Array

from diffsim.base.checked import checked
from diffsim.math.vector import matmul
from diffsim.optimize.identify.evidence import directions_in_words
from diffsim.optimize.identify.places import Place, with_numbers
from diffsim.optimize.identify.problem import reading_names
from diffsim.optimize.identify.unknowns import Unknown, UnknownInertia, UnknownPayload, Unknowns
from diffsim.simulate.step import rollout
from diffsim.types import Model, State
from diffsim.types.state import make_state

# information that is added to F so that it has an inverse: as if each parameter were known within a thousand times its
# size
KNOWN = 1e-6
# a direction stays hidden if its standard deviation is above this fraction of the parameters' sizes
HIDDEN = 1.0
# cost of leaving the range of a joint, per squared rad or m, averaged over timesteps: far above any gain of information
OUTSIDE = 1e3
# the search begins with random controls within this fraction of the limits: a gentle motion that breaks nothing
FIRST_CONTROLS = 0.3


class Excitation(NamedTuple):
    """Controls and what they will show; `print` it.

    Attributes:
      ctrl: (T, nu) controls.
      std: (n,) standard deviations of theta that a fit of such a recording can reach, relative ones for logarithms.
      before: (n,) the same for the controls that the search began from.
      labels: (n,) names of the unknowns.
      hidden: combinations that stay unknown, in words.
      by_sensor: (ny,) the factor by which the worst standard deviation would grow without this reading.
      readings: (ny,) names of the readings.
    """

    ctrl: np.ndarray
    std: np.ndarray
    before: np.ndarray
    labels: list[str]
    hidden: list[str]
    by_sensor: np.ndarray
    readings: list[str]

    def __str__(self) -> str:
        width = max(len(label) for label in self.labels) + 2
        lines = [f"{'parameter':<{width}}   std before   std"]
        for label, old, new in zip(self.labels, self.before, self.std, strict=True):
            lines.append(f"{label:<{width}}{old:>12.3g}{new:>12.3g}")
        lines += [f"stays hidden: {direction}" for direction in self.hidden]
        worst = int(np.argmax(self.by_sensor))
        name, factor = self.readings[worst], self.by_sensor[worst]
        lines.append(f"the most useful reading is {name}: without it the worst std is {factor:.3g} times larger")
        return "\n".join(lines)


@checked
def excite(
    model: Model,
    unknowns: Sequence[Unknown | UnknownInertia | UnknownPayload],
    rows: int,
    noise: Any = 1.0,
    limits: tuple[Any, Any] | None = None,
    state: State | None = None,
    knots: int = 20,
    criterion: Literal["D", "A"] = "D",
    iterations: int = 40,
    seed: int = 0,
) -> Excitation:
    """Designs an experiment: controls within limits that make the unknowns visible.

    Args:
      model: the first guess; its sensors are the sensors of the experiment.
      unknowns: as in `fit`; unknowns of sensors are left out.
      rows: number of timesteps.
      noise: standard deviation of each reading, a number or (nsensordata,).
      limits: (lower, upper) limits of controls, numbers or (nu,); None for `actuator_ctrlrange`, or -1 to 1 without it.
      state: where the motion begins; None for `make_state(model)`. Joints stay within their ranges as far as possible.
      knots: number of knots; controls are linear between them.
      criterion: "D" minimizes the volume of the confidence region, "A" the sum of the variances.
      iterations: of the search (L-BFGS), at most.
      seed: of the controls that the search begins from.

    Returns:
      The controls, and how well each unknown can be estimated from them.

    Raises:
      ValueError: no unknowns of the model, or no actuators.
    """
    unknown = Unknowns(model, unknowns)
    labels = [unknown.labels[i] for i in unknown.in_model]
    if not labels or not model.nu:
        raise ValueError("excite needs unknowns of the model and actuators that can show them")
    theta = jnp.asarray(unknown.first[unknown.in_model], model.qpos0.dtype)
    sizes = unknown.sizes(unknown.first)[unknown.in_model]
    limited = np.asarray(model.actuator_ctrllimited)[:, None]
    ranges = np.where(limited, np.asarray(model.actuator_ctrlrange, float), [[-1.0, 1.0]])
    lower, upper = (np.broadcast_to(np.asarray(end, float), (model.nu,)) for end in limits or tuple(ranges.T))
    weight = jnp.broadcast_to(jnp.asarray(1 / np.asarray(noise, float), theta.dtype), (model.nsensordata,))
    begin = make_state(model) if state is None else state
    design = _Design(model, begin, theta, jnp.asarray(sizes, theta.dtype), weight)
    # controls are linear between knots: hat functions (rows, knots)
    distance = np.abs(np.linspace(0, knots - 1, rows)[:, None] - np.arange(knots))
    hats = jnp.asarray(np.maximum(1 - distance, 0), theta.dtype)
    cost = functools.partial(_cost, unknown.places, criterion, design, hats)
    first = np.random.default_rng(seed).uniform(FIRST_CONTROLS * lower, FIRST_CONTROLS * upper, (knots, model.nu))

    def flat(knot: np.ndarray) -> tuple[float, np.ndarray]:
        """The cost and its gradient, for scipy: of all knots in one vector."""
        (value, _), slope = cost(jnp.asarray(knot.reshape(knots, -1), theta.dtype))
        return float(value), np.asarray(slope, float).reshape(-1)

    bounds = list(zip(np.tile(lower, knots), np.tile(upper, knots), strict=True))
    options = {"maxiter": iterations}
    best = scipy.optimize.minimize(flat, first.reshape(-1), jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    first_knots, best_knots = [jnp.asarray(knot.reshape(knots, -1), theta.dtype) for knot in (first, best.x)]
    # the Fisher information before and after the search, and without each of the readings
    old_slopes, new_slopes = [np.asarray(cost(knot)[0][1], float) for knot in (first_knots, best_knots)]
    old, new = (np.einsum("tyi,tyj->ij", part, part) for part in (old_slopes, new_slopes))
    values, vectors = np.linalg.eigh(new)
    without = [np.max(_deviations(new - part.T @ part)) for part in np.moveaxis(new_slopes, 1, 0)]
    return Excitation(
        ctrl=np.asarray(matmul(hats, best_knots), float),
        std=_deviations(new) * sizes,
        before=_deviations(old) * sizes,
        labels=labels,
        hidden=[directions_in_words(labels, vector * sizes) for vector in vectors.T[values < HIDDEN**-2]],
        by_sensor=np.asarray(without) / np.max(_deviations(new)),
        readings=reading_names(model),
    )


class _Design(NamedTuple):
    """The model, its first state, theta (n,), sizes (n,) of its parameters, and 1 / noise (ny,)."""

    model: Model
    state: State
    theta: Array
    sizes: Array
    weight: Array


@functools.partial(jax.jit, static_argnums=(0, 1))
@functools.partial(jax.value_and_grad, argnums=4, has_aux=True)
def _cost(places: tuple[Place, ...], criterion: str, design: _Design, hats: Array, knots: Array) -> tuple[Array, Array]:
    """The cost, which grows with less information and with joints outside their ranges; and the slopes of readings."""
    ctrl = matmul(hats, knots)

    def readings(theta: Array) -> tuple[Array, Array]:
        """(T, ny) readings divided by the noise, and positions (T, nq)."""
        fitted = with_numbers(design.model, places, theta)
        run = rollout(fitted, design.state, ctrl, lambda state, data: (data.sensordata, state.qpos))
        return run.readouts[0] * design.weight[None], run.readouts[1]

    slopes, qpos = jax.jacfwd(readings, has_aux=True)(design.theta)
    slopes = slopes * design.sizes[None, None]
    flat = slopes.reshape(-1, slopes.shape[-1])
    information = matmul(flat.T, flat) + KNOWN * jnp.eye(flat.shape[1], dtype=flat.dtype)
    if criterion == "D":
        spread = -jnp.linalg.slogdet(information)[1]
    else:
        spread = jnp.log(jnp.trace(jnp.linalg.inv(information)))
    topology = design.model.topology
    outside = jnp.zeros((), flat.dtype)
    for joint in np.flatnonzero(topology.jnt_limited):
        low, high = design.model.jnt_range[joint]
        position = qpos[:, int(topology.jnt_qposadr[joint])]
        outside = outside + jnp.sum(jnp.maximum(low - position, 0) ** 2 + jnp.maximum(position - high, 0) ** 2)
    return spread + OUTSIDE * outside / len(qpos), slopes


def _deviations(information: np.ndarray) -> np.ndarray:
    """(n,) standard deviations of the parameters, divided by their sizes."""
    known = information + KNOWN * np.eye(len(information))
    return np.sqrt(np.maximum(np.diag(np.linalg.pinv(known, hermitian=True)), 0))
