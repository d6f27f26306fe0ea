"""Where the parameters theta are written in a model. Places are static: fits with the same places share programs.

The model is an argument, so that one program serves all models of one topology.
"""

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.math import safe
from diffsim.math.rotation import quat_to_mat
from diffsim.math.vector import matmul
from diffsim.optimize.coordinates.log_cholesky import INERTIAL, from_log_cholesky, principal_axes, second_moments
from diffsim.simulate.arguments import declared_ranks
from diffsim.simulate.constants import set_const
from diffsim.simulate.randomize import dependents, follow, leaf, with_leaves
from diffsim.types import Model
from diffsim.xla.compiled import jit, uncollected

# leaves of a model, by path
Leaves = dict[str, Array]


@dataclass(frozen=True)
class Entries:
    """Entries of one leaf.

    Attributes:
      field: path of the leaf.
      index: indices of the entries in the flattened leaf.
      log: whether theta holds logarithms.
      shared: whether one parameter multiplies all entries.
      last: whether the place is written after all others.
    """

    field: str
    index: tuple[int, ...]
    log: bool
    shared: bool
    last: ClassVar[bool] = False

    @property
    def size(self) -> int:
        """Number of parameters."""
        return 1 if self.shared else len(self.index)

    @property
    def paths(self) -> tuple[str, ...]:
        """The leaves that change."""
        return (self.field,)

    def write(self, leaves: Leaves, theta: Array) -> Leaves:
        """The changed leaves."""
        numbers = jnp.exp(theta) if self.log else theta
        index = np.asarray(self.index, int)
        old = leaves[self.field].reshape(-1)
        numbers = numbers * old[index] if self.shared else numbers
        return {self.field: old.at[index].set(numbers.astype(old.dtype)).reshape(leaves[self.field].shape)}


@dataclass(frozen=True)
class Tied:
    """Parameters that are written, times a factor, to entries of one or several leaves.

    `targets` are the entries of each parameter: (leaf, flat index, factor).
    """

    targets: tuple[tuple[tuple[str, int, float], ...], ...]
    log: bool
    last: ClassVar[bool] = False

    @property
    def size(self) -> int:
        """Number of parameters."""
        return len(self.targets)

    @property
    def paths(self) -> tuple[str, ...]:
        """The leaves that change."""
        return tuple(dict.fromkeys(path for entries in self.targets for path, _, _ in entries))

    def write(self, leaves: Leaves, theta: Array) -> Leaves:
        """The changed leaves."""
        numbers = jnp.exp(theta) if self.log else theta
        changed = {}
        every = [(path, i, factor, k) for k, entries in enumerate(self.targets) for path, i, factor in entries]
        for path in self.paths:
            index, factor, which = (np.asarray([entry[j] for entry in every if entry[0] == path]) for j in (1, 2, 3))
            flat = leaves[path].reshape(-1)
            changed[path] = flat.at[index].set((numbers[which] * factor).astype(flat.dtype)).reshape(leaves[path].shape)
        return changed


@dataclass(frozen=True)
class Tilt:
    """The direction of gravity: the tangents of its two angles to the model's gravity, along two axes normal to it."""

    axes: tuple[tuple[float, float, float], tuple[float, float, float]]
    log: ClassVar[bool] = False
    size: ClassVar[int] = 2
    last: ClassVar[bool] = False
    paths: ClassVar[tuple[str, ...]] = ("opt.gravity",)

    def write(self, leaves: Leaves, theta: Array) -> Leaves:
        """The changed leaf: gravity keeps its strength."""
        old = leaves["opt.gravity"]
        strength = safe.norm(old)
        across = jnp.asarray(self.axes, old.dtype)
        new = old + strength * (theta[0] * across[0] + theta[1] * across[1])
        return {"opt.gravity": new * safe.divide(strength, safe.norm(new), 1.0)}


def _with_inertia(leaves: Leaves, body: int, parts: Iterable[Array]) -> Leaves:
    """The leaves of `INERTIAL`, with another inertia of one body."""
    return {name: leaves[name].at[body].set(part) for name, part in zip(INERTIAL, parts, strict=True)}


@dataclass(frozen=True)
class Inertia:
    """The whole inertia of a body, in log-Cholesky coordinates; its principal axes stay near the model's."""

    body: int
    log: ClassVar[bool] = False
    size: ClassVar[int] = 10
    last: ClassVar[bool] = True
    paths: ClassVar[tuple[str, ...]] = INERTIAL

    def write(self, leaves: Leaves, theta: Array) -> Leaves:
        """The changed leaves."""
        quat = jax.lax.stop_gradient(leaves["body_iquat"][self.body])
        parts = from_log_cholesky(theta.astype(quat.dtype), quat)
        return _with_inertia(leaves, self.body, parts)


@dataclass(frozen=True)
class Payload:
    """A point mass (kg) fixed to a body, and its place (m, frame of the body); it is added to the body's inertia."""

    body: int
    log: ClassVar[bool] = False
    size: ClassVar[int] = 4
    last: ClassVar[bool] = True
    paths: ClassVar[tuple[str, ...]] = INERTIAL

    def write(self, leaves: Leaves, theta: Array) -> Leaves:
        """The changed leaves.

        The second moments about the common center of mass grow by (m p / (m + p)) d d^T, with d the offset of the load
        p.
        """
        mass, center, moments, quat = (leaves[name][self.body] for name in INERTIAL)
        theta = theta.astype(mass.dtype)
        total = mass + theta[0]
        offset = theta[1:] - center
        axes = quat_to_mat(quat)
        reduced = safe.divide(mass * theta[0], total)
        spread = matmul(axes * second_moments(moments)[None], axes.T) + reduced * offset[:, None] * offset[None]
        values, turned = principal_axes(spread, jax.lax.stop_gradient(quat))
        parts = (
            total,
            center + safe.divide(theta[0], total) * offset,
            jnp.roll(values, 1) + jnp.roll(values, 2),
            turned,
        )
        return _with_inertia(leaves, self.body, parts)


Place = Entries | Tied | Tilt | Inertia | Payload


def with_numbers(model: Model, places: Sequence[Place], theta: Array) -> Model:
    """The model with the parameters theta (n,), with its derived fields; differentiable.

    Whole inertias are written last, since nothing else follows from them.
    """
    if not places:
        return model
    ends = np.cumsum([place.size for place in places])[:-1]
    parts = list(zip(places, jnp.split(theta, ends), strict=True))
    leaves = follow(model, _written(model, {}, [part for part in parts if not part[0].last]))
    leaves = _written(model, leaves, [part for part in parts if part[0].last])
    return set_const(with_leaves(model, leaves))


@functools.partial(jit, quick=True, static_argnums=0)
@uncollected()
def numbers(places: tuple[Place, ...], model: Model, theta: Array) -> tuple[Leaves, Leaves]:
    """The leaves of the model that depend on theta (n,), by path, and their derivatives (..., n)."""
    names = changed_leaves(model, places, theta)

    def leaves_of(theta: Array) -> tuple[Leaves, Leaves]:
        changed = with_numbers(model, places, theta)
        leaves = {name: leaf(changed, name) for name in names}
        return leaves, leaves

    slopes, leaves = jax.jacfwd(leaves_of, has_aux=True)(theta)
    return leaves, slopes


def changed_leaves(model: Model, places: Sequence[Place], theta: Array) -> list[str]:
    """Paths of the leaves that depend on theta, by tracing alone."""
    paths = list(declared_ranks(model))

    def every(leaves: Leaves) -> Leaves:
        changed = with_numbers(model, places, leaves["theta"])
        return {path: leaf(changed, path) for path in paths}

    return dependents(every, {"theta": theta})


def _written(model: Model, leaves: Leaves, parts: list[tuple[Place, Array]]) -> Leaves:
    """Leaves by path, with the parameters of some places."""
    for place, numbers in parts:
        leaves = {path: leaf(model, path) for path in place.paths} | leaves
        leaves = leaves | place.write(leaves, numbers)
    return leaves
