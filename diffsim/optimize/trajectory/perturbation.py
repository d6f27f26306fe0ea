"""Perturbation: what a motion costs where the world differs from the model, and where rounding decides its course.

All motions are compared in the same worlds, so that their costs differ by the motions alone (common random numbers).
The worlds come in shares of equal composition: the first world of a share is the model itself; most others differ in
friction, masses, start and noise on the controls. The last quarter has noise so small that it changes the cost only if
the motion is at a jump, such as a contact that is just made or just missed.

If that tiny noise changes the cost, the motions with tiny noise are compared, and the one with the median cost counts:
the likely course, not the one that rounding happened to pick.
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.optimize.tangent import integrate, tangent_size
from diffsim.optimize.trajectory.ilqr import LEAPS
from diffsim.optimize.trajectory.sampling import (
    SHARES,
    Attempt,
    NewtonSteps,
    Worlds,
    half_ranges,
    inside,
    quick_jit,
    repeated,
)
from diffsim.optimize.trajectory.task import Task
from diffsim.simulate.randomize import Scale, varied_leaves
from diffsim.simulate.randomize import leaf as leaf_of
from diffsim.types import State

# standard deviation of the tiny noise, in half ranges of the controls: far below the precision of any motor, far above
# rounding in float32
TINY_NOISE = 1e-4
# one world in this many has the tiny noise: enough for a median, and three quarters are left for costs
TINY_NOISE_EVERY = 4


@dataclasses.dataclass(frozen=True)
class Perturbation:
    """How the world may differ from the model.

    Attributes:
      controls: standard deviation of the noise on each control at each step, in half ranges; where pushes or grips are
        proposed, the range of a position servo is that of the targets that they need.
      fields: how fields of the model vary, as in `diffsim.randomize`; None for friction and masses by 5%.
      start: standard deviation of the first state in tangent coordinates: m, rad, and their rates.
      worlds: how many worlds a motion is tried in; at most three quarters of the samples are used.
    """

    controls: float = 0.003
    fields: Mapping[str, Any] | None = None
    start: float = 1e-3
    worlds: int = 64

    def distributions(self) -> dict[str, Any]:
        """The distribution of each field of the model that varies."""
        usual = {"geom_friction": Scale(0.95, 1.05), "body_mass": Scale(0.95, 1.05)}
        return usual if self.fields is None else dict(self.fields)


class PerturbedWorlds(NamedTuple):
    """N worlds, one for each sample, the same for every motion that is compared; `SHARES` shares of equal composition.

    Attributes:
      nominal: leaves of the model by name, (N, ...), all worlds alike.
      varied: the same leaves as they vary between worlds.
      noise: (N, T, nu) what is added to the controls.
      tiny_noise: (N, T, nu) noise for every world that changes a cost only at a jump.
      start: (N, nx) changes of the first state.
    """

    nominal: dict[str, Array]
    varied: dict[str, Array]
    noise: Array
    tiny_noise: Array
    start: Array


def kinds_of_worlds(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Masks (size,) of the worlds that differ from the model, and of the worlds with tiny noise on the controls.

    The first world of each share is the model itself, and the last quarter has tiny noise.
    """
    share = size // SHARES
    place = np.arange(size) % share
    tiny = place >= share - share // TINY_NOISE_EVERY
    return (place > 0) & ~tiny, tiny


@functools.partial(quick_jit, static_argnames=("fields", "size", "steps"))
def perturbed_worlds(
    task: Task, key: Array, controls: float, start: float, fields: tuple, size: int, steps: int
) -> PerturbedWorlds:
    """Draws worlds that differ from the model as a `Perturbation` says."""
    dtype = task.lower.dtype
    keys = jax.random.split(key, 3)
    varied = varied_leaves(task.model, keys[0], dict(fields), size)
    nominal = {name: repeated(leaf_of(task.model, name), size) for name in varied}
    noise = jax.random.normal(keys[1], (size, steps, task.model.nu), dtype)
    change = jax.random.normal(keys[2], (size, tangent_size(task.model)), dtype)
    differs, tiny = kinds_of_worlds(size)

    def where(kind: np.ndarray, some: Array, others: Array | float) -> Array:
        return jnp.where(kind.reshape(-1, *[1] * (some.ndim - 1)), some, others)

    tiny_noise = (TINY_NOISE * half_ranges(task, noise.shape) * noise).at[0].set(0)
    return PerturbedWorlds(
        nominal=nominal,
        varied={name: where(differs, x, nominal[name]) for name, x in varied.items()},
        noise=where(differs, controls * half_ranges(task, noise.shape) * noise, where(tiny, tiny_noise, 0)),
        tiny_noise=tiny_noise,
        start=where(differs, start * change, 0),
    )


@functools.partial(quick_jit, static_argnames="count")
def perturb(
    task: Task, state: State, worlds: PerturbedWorlds, ctrl: Array | np.ndarray, count: int
) -> tuple[Worlds, Array]:
    """Puts controls (n, T, nu) in the first `count` worlds each; n times `count` is the number of samples.

    Returns:
      The worlds (n * count), and the controls (n * count, T, nu) with their noise.
    """

    def tiled(x: Array) -> Array:
        return jnp.tile(x[:count], (len(ctrl), *[1] * (x.ndim - 1)))

    states = jax.vmap(integrate, in_axes=(None, None, 0))(task.model, state, tiled(worlds.start))
    placed = Worlds(jax.tree.map(tiled, worlds.varied), states)
    return placed, inside(task, jnp.repeat(ctrl, count, axis=0) + tiled(worlds.noise))


class Candidate(NamedTuple):
    """A motion to choose from.

    Attributes:
      motion: what it does in the model.
      costs: (worlds,) what it costs in perturbed worlds.
      finals: (worlds,) the goal's part of these costs.
    """

    motion: Attempt
    costs: np.ndarray
    finals: np.ndarray

    @property
    def cost(self) -> float:
        """The cost in the model."""
        return float(self.motion.cost)

    @property
    def final(self) -> float:
        """The goal's part of the cost in the model."""
        return float(self.motion.final)


class Held(NamedTuple):
    """How a motion fares in perturbed worlds with a feedback.

    Attributes:
      gains: (T, nu, nx).
      costs: (worlds,) costs.
      finals: (worlds,) the goal's part of these costs.
      leaps: the largest change of the cost under tiny noise, as a share of it.
    """

    gains: Array
    costs: np.ndarray
    finals: np.ndarray
    leaps: np.ndarray


class Polished(NamedTuple):
    """The end of a polish.

    Attributes:
      candidate: the last motion.
      steps: the Newton steps that were tried from it.
      iterations: how many there were.
      settled: whether no step lowered the cost any more.
    """

    candidate: Candidate
    steps: NewtonSteps
    iterations: int
    settled: bool


def candidates(tried: Attempt, costs: np.ndarray, most: int) -> list[Candidate]:
    """The candidates of several motions, from what they did in all worlds.

    Args:
      tried: the motions in their worlds, (motions * worlds, ...).
      costs: (motions, worlds).
      most: how many costs in perturbed worlds are kept of each.
    """
    count, share = costs.shape
    finals = np.asarray(tried.final).reshape(costs.shape)
    differs, tiny = (np.flatnonzero(kind[:share]) for kind in kinds_of_worlds(costs.size))
    unperturbed = np.append(0, tiny)
    perturbed = differs[:most]
    chosen = []
    for i in range(count):
        # the model itself, unless tiny noise changes the cost: then the world of median cost
        median = unperturbed[np.argsort(costs[i, unperturbed])[len(unperturbed) // 2]]
        same = abs(costs[i, 0] - costs[i, median]) <= LEAPS * costs[i, median]
        motion = row_of(tried, i * share + (0 if same else int(median)))
        chosen.append(Candidate(motion=motion, costs=costs[i, perturbed], finals=finals[i, perturbed]))
    return chosen


row_of = quick_jit(lambda tree, *index: jax.tree.map(lambda x: x[index], tree))
