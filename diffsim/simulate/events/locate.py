"""When the first decision of a motion is no longer right: the events of a step that is split (step.py).

Signals are positive while decisions are right (constraint/active_set.py). Of those that are negative at the end of a
piece each has a zero at about that of a parabola through begin, middle and end; the earliest is the change,
touches before all else. There the motion is evaluated once, and the zero corrected by the slope of another parabola.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from diffsim.constraint.active_set import Signals
from diffsim.math import safe

Array = jax.Array

# how far behind the zero of a signal the motion goes on, as a part of its change within the step, by bytes of a number:
# there the decisions are those that follow, whatever the rounding
BEYOND = {4: 2e-3, 8: 1e-4}
# the same where forces are continuous, at all but touches and what leaves: there it costs next to nothing, and is more
# than the found time is off where impedance bends. A release found a hair too early would be none: the rest of the
# step would begin with a derivative of the contact that has ended
PAST = 4e-3


class Change(NamedTuple):
    """The first decision that is no longer right: index of its signal, about when (0 to 1), the signal at begin and
    end, the value just behind zero that it shall have.
    """

    event: Array
    signal: Array
    guess: Array
    ends: tuple[Array, Array]
    goal: Array

    def corrected(self, there: Signals) -> Array:
        """The time, from the signals at the guess."""
        found = jnp.concatenate(there)
        if not found.size:
            return self.guess
        value, part, (first, last) = found[self.signal], self.guess, self.ends
        # of the parabola through three points
        slope = (1 - part) * safe.divide(value - first, part) + part * safe.divide(last - value, 1 - part)
        return safe.clip(part - safe.divide(value - self.goal, slope), 0.0, 1.0)


def first_change(three: tuple[Signals, Signals, Signals]) -> Change:
    """The first signal to become negative, touches before others, from values at begin, middle and end of a piece."""
    touches, jumps = three[0].touches.size, three[0].touches.size + three[0].leaves.size
    all_three = [jnp.concatenate(each) for each in three]
    first, middle, end = jax.lax.stop_gradient(all_three)
    if not first.size:
        zero, one = jnp.zeros((), first.dtype), jnp.ones((), first.dtype)
        return Change(zero > 0, jnp.zeros((), jnp.int32), one, (zero, zero), zero)
    crosses, place = _crosses(three[2]), jnp.arange(first.size)
    part = jnp.where(place < jumps, BEYOND[first.dtype.itemsize], PAST)
    order = _zero(first, middle, end, part * end) + jnp.where(place < touches, 0.0, 1.0)
    index = jnp.argmin(jnp.where(crosses, order, jnp.inf))
    first, middle, end = (values[index] for values in all_three)
    goal = part[index] * end
    return Change(jnp.any(crosses), index, _zero(first, middle, end, goal), (first, end), goal)


def _crosses(end: Signals) -> Array:
    """Which signals have become negative; a turn of the rise only where the motion stays within it."""
    *others, rises, turns = (jax.lax.stop_gradient(each) < 0 for each in end)
    return jnp.concatenate([*others, rises, turns & ~rises])


def _zero(first: Array, middle: Array, end: Array, goal: Array) -> Array:
    """When a parabola through three values is at a goal beyond 0, from 0 to 1; for values that end below 0."""
    # a s^2 + b s + c; one zero within
    a, b, c = 2 * first - 4 * middle + 2 * end, 4 * middle - 3 * first - end, first - goal
    root = safe.sqrt(jnp.where(end < 0, b * b - 4 * a * c, 1))
    return safe.clip(safe.divide(2 * c, root - b, 1.0), 0.0, 1.0)
