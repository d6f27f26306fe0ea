"""Doubt: what a motion costs where the world is not exactly the model, and where rounding decides its course.

Motions are compared in worlds that are alike for all of them, in shares: the first of a share is the model itself; most
differ in friction, masses, start and noise on controls; and a quarter has noise so small that only a leap shows it, as
of a contact that is just met or just missed. Where that noise changes the cost, a motion counts as what it does under
the noise that makes it cost the median: the likelier course, not the one that rounding picked.
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
from diffsim.optimize.trajectory.search import WAYS, Attempt, Worlds, half_ranges, inside, repeated, soon
from diffsim.optimize.trajectory.task import Task
from diffsim.simulate.randomize import Scale, varied_leaves
from diffsim.simulate.randomize import leaf as leaf_of
from diffsim.types import State

# the noise that only a leap shows, in half ranges of the controls; the part of the worlds that have it
NEARBY, NEAR = 1e-4, 4


@dataclasses.dataclass(frozen=True)
class Doubt:
    """How the world may differ from the model.

    Attributes:
      controls: deviation of noise on each control at each step, in half ranges.
      fields: how leaves of the model scatter, as in `diffsim.randomize`; None for friction and masses by 5%.
      start: deviation of the first state in tangent coordinates, m, rad and their rates.
      worlds: how many worlds a motion is tried in, three quarters of the samples at most.
    """

    controls: float = 0.003
    fields: Mapping[str, Any] | None = None
    start: float = 1e-3
    worlds: int = 64

    def scatter(self) -> dict[str, Any]:
        """How leaves scatter."""
        usual = {"geom_friction": Scale(0.95, 1.05), "body_mass": Scale(0.95, 1.05)}
        return usual if self.fields is None else dict(self.fields)


class Doubts(NamedTuple):
    """As many worlds as samples, the same for every motion that is compared: WAYS times a share of each kind (`kinds`).

    Leaves of the model, alike in all and varied; noise on controls (N, T, nu), and such that only a leap shows it;
    changes of the first state (N, nx).
    """

    even: dict[str, Array]
    varied: dict[str, Array]
    push: Array
    nearby: Array
    change: Array


def kinds(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Which of so many worlds differ from the model, and which are so near that only a leap tells them from it: (size,)
    bool. The first of each share is the model itself, the last quarter is near.
    """
    share = size // WAYS
    place = np.arange(size) % share
    near = place >= share - share // NEAR
    return (place > 0) & ~near, near


@functools.partial(soon, static_argnames=("fields", "size", "steps"))
def doubtful(task: Task, key: Array, controls: float, begin: float, fields: tuple, size: int, steps: int) -> Doubts:
    """Worlds that differ as `Doubt` says."""
    dtype, keys = task.lower.dtype, jax.random.split(key, 3)
    varied = varied_leaves(task.model, keys[0], dict(fields), size)
    even = {name: repeated(leaf_of(task.model, name), size) for name in varied}
    noise = jax.random.normal(keys[1], (size, steps, task.model.nu), dtype)
    change = jax.random.normal(keys[2], (size, tangent_size(task.model)), dtype)
    differs, near = kinds(size)

    def where(kind: np.ndarray, some: Array, others: Array | float) -> Array:
        return jnp.where(kind.reshape(-1, *[1] * (some.ndim - 1)), some, others)

    nearby = (NEARBY * half_ranges(task, noise.shape) * noise).at[0].set(0)
    return Doubts(
        even=even,
        varied={name: where(differs, x, even[name]) for name, x in varied.items()},
        push=where(differs, controls * half_ranges(task, noise.shape) * noise, where(near, nearby, 0)),
        nearby=nearby,
        change=where(differs, begin * change, 0),
    )


@functools.partial(soon, static_argnames="count")
def shaken(task: Task, state: State, doubts: Doubts, ctrl: Array | np.ndarray, count: int) -> tuple[Worlds, Array]:
    """Controls (n, T, nu), each in the first `count` worlds; n times that is all samples."""

    def tiled(x: Array) -> Array:
        return jnp.tile(x[:count], (len(ctrl), *[1] * (x.ndim - 1)))

    states = jax.vmap(integrate, in_axes=(None, None, 0))(task.model, state, tiled(doubts.change))
    worlds = Worlds(jax.tree.map(tiled, doubts.varied), states)
    return worlds, inside(task, jnp.repeat(ctrl, count, axis=0) + tiled(doubts.push))


class Find(NamedTuple):
    """A motion: what it did in the model, and under noise its costs and the goal's part of them, (worlds,)."""

    motion: Attempt
    noisy: np.ndarray
    ends: np.ndarray

    @property
    def cost(self) -> float:
        """In the model."""
        return float(self.motion.cost)

    @property
    def final(self) -> float:
        """The goal's part of it."""
        return float(self.motion.final)


def finds(tried: Attempt, costs: np.ndarray, most: int) -> list[Find]:
    """Of motions what they did, from what they did in all worlds and its cost (motions, worlds); `most` are noted."""
    (count, share), ends = costs.shape, np.asarray(tried.final).reshape(costs.shape)
    differs, near = (np.flatnonzero(kind[:share]) for kind in kinds(costs.size))
    near, noisy = np.append(0, near), differs[:most]
    found = []
    for i in range(count):
        middle = near[np.argsort(costs[i, near])[len(near) // 2]]
        same = abs(costs[i, 0] - costs[i, middle]) <= LEAPS * costs[i, middle]
        motion = row_of(tried, i * share + (0 if same else int(middle)))
        found.append(Find(motion, costs[i, noisy], ends[i, noisy]))
    return found


row_of = soon(lambda tree, *index: jax.tree.map(lambda x: x[index], tree))
