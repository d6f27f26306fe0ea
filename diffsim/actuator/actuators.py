"""What a law of actuation sees: n actuators that share the law, in one state of the world.

Positions and lengths are m along slides and tendons, rad about hinges, times the gear; velocities are per second, and
forces N or N m. Controls and activations have the units that the law gives them.
"""

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.math import safe
from diffsim.types.model import Model
from diffsim.xla.pick import pick
from diffsim.xla.where import where

Array = jax.Array


class UserLaws(NamedTuple):
    """What the user's hooks say: rates (na,), gains and biases (nu,); zero for actuators of other types."""

    rate: Array
    gain: Array
    bias: Array


class Command(NamedTuple):
    """Controls (nu,), and what the user's hooks say; without these, actuators of type `user` do nothing."""

    ctrl: Array
    user: UserLaws | None = None


class Conditions(NamedTuple):
    """All actuators: activations (na,), controls, lengths and velocities (nu,)."""

    act: Array
    command: Command
    length: Array
    velocity: Array


@dataclasses.dataclass(frozen=True)
class Actuators:
    """Actuators of one law.

    Attributes:
      model: theirs.
      ids: (n,) which actuators of the model these are.
      places: (n, k) which activation of the model holds each state of the law; -1 where an actuator lacks the state.
      act: (n, k) the states; 0 for those that are lacking.
      ctrl, length, velocity: (n,).
      user: what hooks say, of the whole model.
    """

    model: Model
    ids: np.ndarray
    places: np.ndarray
    act: Array
    ctrl: Array
    length: Array
    velocity: Array
    user: UserLaws | None

    @property
    def has(self) -> np.ndarray:
        """(n, k) bool: the states that each actuator has."""
        return self.places >= 0

    @property
    def timestep(self) -> Array:
        """Seconds."""
        return self.model.opt.timestep

    @functools.cached_property
    def dynprm(self) -> Array:
        """(n, 10) parameters of the dynamics."""
        return pick(self.model.actuator_dynprm, self.ids)

    @functools.cached_property
    def gainprm(self) -> Array:
        """(n, 10) parameters of the gain."""
        return pick(self.model.actuator_gainprm, self.ids)

    @functools.cached_property
    def biasprm(self) -> Array:
        """(n, 10) parameters of the bias."""
        return pick(self.model.actuator_biasprm, self.ids)

    @functools.cached_property
    def lengthrange(self) -> Array:
        """(n, 2) shortest and longest length."""
        return pick(self.model.actuator_lengthrange, self.ids)

    @functools.cached_property
    def acc0(self) -> Array:
        """(n,) norm of the acceleration that a unit force causes at qpos0, 1 / kg or 1 / (kg m^2)."""
        return pick(self.model.actuator_acc0, self.ids)

    def within_range(self, act: Array) -> Array:
        """Activations (n, k) clamped to the actuators' ranges."""
        limited = self.model.topology.actuator_actlimited[self.ids]
        ranges = pick(self.model.actuator_actrange, self.ids)
        return clamp(act, ranges[:, None], limited[:, None])


def clamp(values: Array, ranges: Array, limited: np.ndarray) -> Array:
    """Values (...) within ranges (..., 2) where `limited` (...) is not 0; axes of length 1 stand for all."""
    if not limited.any():
        return values
    return where(limited != 0, safe.clip(values, ranges[..., 0], ranges[..., 1]), values)


def at_places(values: Array, places: np.ndarray) -> Array:
    """values[places]; 0 where a place is negative."""
    if (places >= 0).all():
        return pick(values, places) if places.size else jnp.zeros(places.shape, values.dtype)
    held = jnp.concatenate([values, jnp.zeros((1,), values.dtype)])
    return pick(held, np.where(places >= 0, places, len(values)))
