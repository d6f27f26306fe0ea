"""Where the numbers of theta go in a model. Places are static: fits of the same places share their programs.

The model is an argument, so that a program serves all models of one topology.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.optimize.coordinates.log_cholesky import INERTIAL, from_log_cholesky
from diffsim.simulate.arguments import declared_ranks
from diffsim.simulate.constants import set_const
from diffsim.simulate.randomize import dependents, follow, leaf, with_leaves
from diffsim.types import Model

Array = jax.Array
Leaves = dict[str, Array]


@dataclass(frozen=True)
class Entries:
    """Entries of one leaf, by their indices in the flattened leaf; `shared` if one number multiplies them all."""

    field: str
    index: tuple[int, ...]
    log: bool
    shared: bool

    @property
    def size(self) -> int:
        """How many numbers of theta."""
        return 1 if self.shared else len(self.index)

    @property
    def paths(self) -> tuple[str, ...]:
        """The leaves that change."""
        return (self.field,)

    def write(self, leaves: Leaves, theta: Array) -> Leaves:
        """The changed leaves."""
        numbers, index = jnp.exp(theta) if self.log else theta, np.asarray(self.index, int)
        old = leaves[self.field].reshape(-1)
        numbers = numbers * old[index] if self.shared else numbers
        return {self.field: old.at[index].set(numbers.astype(old.dtype)).reshape(leaves[self.field].shape)}


@dataclass(frozen=True)
class Inertia:
    """All that is inertial of a body, in log-Cholesky coordinates about the axes that the model has."""

    body: int
    log: ClassVar[bool] = False
    size: ClassVar[int] = 10
    paths: ClassVar[tuple[str, ...]] = INERTIAL

    def write(self, leaves: Leaves, theta: Array) -> Leaves:
        """The changed leaves."""
        quat = jax.lax.stop_gradient(leaves["body_iquat"][self.body])
        found = from_log_cholesky(theta.astype(quat.dtype), quat)
        return {name: leaves[name].at[self.body].set(part) for name, part in zip(INERTIAL, found, strict=True)}


Place = Entries | Inertia


def with_numbers(model: Model, places: Sequence[Place], theta: Array) -> Model:
    """The model with the numbers of theta (n,), its derived fields included; differentiable.

    A whole inertia is written last: nothing goes with it.
    """
    ends = np.cumsum([place.size for place in places])[:-1]
    parts = list(zip(places, jnp.split(theta, ends), strict=True))
    leaves = follow(model, _written(model, {}, [part for part in parts if isinstance(part[0], Entries)]))
    leaves = _written(model, leaves, [part for part in parts if isinstance(part[0], Inertia)])
    return set_const(with_leaves(model, leaves))


def changed_leaves(model: Model, places: Sequence[Place], theta: Array) -> list[str]:
    """Paths of the leaves that depend on theta; nothing is computed."""
    paths = list(declared_ranks(model))

    def every(given: Leaves) -> Leaves:
        found = with_numbers(model, places, given["theta"])
        return {path: leaf(found, path) for path in paths}

    return dependents(every, {"theta": theta})


def _written(model: Model, leaves: Leaves, parts: list[tuple[Place, Array]]) -> Leaves:
    """Leaves by path, with the numbers of some places."""
    for place, own in parts:
        leaves = {path: leaf(model, path) for path in place.paths} | leaves
        leaves = leaves | place.write(leaves, own)
    return leaves
