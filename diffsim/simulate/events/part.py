"""A piece of a step: what is seen at its points, and where it leads to, with all decisions held (step.py)."""

from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp

from diffsim.constraint.active_set import Signals, held_as, signals
from diffsim.simulate.events.locate import Change, first_change
from diffsim.simulate.events.tableau import KNOWN, VISITS, at_node, coast, mean_rates, runge_kutta, simpson
from diffsim.simulate.forward import forward
from diffsim.solver.objective import residuals_at
from diffsim.types import Data, Inputs, Model, State
from diffsim.types.constraints import Held

Array = jax.Array
T = TypeVar("T")


class Seen(NamedTuple):
    """What is found at a point: rates (nv + na,), what holds from there, its signals, velocities of actuators."""

    rates: Array
    held: Held
    signals: Signals
    actuator_velocity: Array


class Part(NamedTuple):
    """Where a step is: a state, the time that is left (s), whether a change ends the piece that begins there, which;
    the rates of that piece at its begin, in the mean and at its end (KNOWN, nv + na), and what holds in it; of the last
    evaluation, acceleration and velocities of actuators.
    """

    state: State
    rest: Array
    event: Array
    change: Change
    known: Array
    held: Held
    last: tuple[Array, Array]


def seen_in(model: Model, data: Data, held: Held | None = None) -> Seen:
    """What a piece needs of Data; where nothing binds, what holds is what the state decides."""
    x = residuals_at(data.efc, data.qacc)
    own = held_as(data.efc, x)
    now = own if held is None else select(held.binds, held, own)
    rates = jnp.concatenate([data.qacc, data.act_dot])
    return Seen(rates, now, signals(model, data.efc, x, now), data.actuator_velocity)


# traced once, wherever it is called, differentiated and computed again
@jax.jit
def look(model: Model, state: State, inputs: Inputs, held: Held) -> Seen:
    """The dynamics at a point."""
    return seen_in(model, forward(model, state, inputs, held), held)


def begin(model: Model, state: State, nothing: Seen) -> Part:
    """A step of which nothing is known yet but its first state."""
    zero = jnp.zeros_like(nothing.rates)
    return Part(
        state=state,
        rest=model.opt.timestep,
        event=jnp.zeros((), bool),
        change=first_change((nothing.signals, nothing.signals, nothing.signals)),
        known=jnp.stack(KNOWN * [zero]),
        held=nothing.held,
        last=(zero[: model.nv], nothing.actuator_velocity),
    )


def at_end(model: Model, state: State, h: Array, seen: Seen, holds: Array) -> Part:
    """The end of a Runge-Kutta step of h seconds, or its begin `state` with the change that ends it before.

    Args:
      seen: at its nodes; holds: whether decisions are held, so that a change ends it.
    """
    end = row(runge_kutta(seen.rates.dtype), VISITS - 1)
    rates = jnp.concatenate([jnp.zeros_like(seen.rates[:KNOWN]), seen.rates])
    change = first_change((row(seen.signals, 0), row(seen.signals, 2), row(seen.signals, 4)))
    event = change.event & holds
    return Part(
        state=select(event, state, at_node(model, state, rates, h, end)),
        rest=jnp.where(event, h, 0),
        event=event,
        change=change,
        known=jnp.stack([seen.rates[0], mean_rates(rates, end.gain), seen.rates[-1]]),
        held=seen.held,
        last=(seen.rates[-2, : model.nv], seen.actuator_velocity[-2]),
    )


def at_change(model: Model, part: Part, seen: Seen) -> Part:
    """Where decisions change: by Simpson's rule to the guess, and on to where it should have been."""
    guess, when = part.change.guess, part.change.corrected(row(seen.signals, 3))
    rates = jnp.concatenate([part.known, seen.rates])
    guessed = at_node(model, part.state, rates, part.rest, simpson(guess))
    behind = coast(model, guessed, seen.rates[3], (when - guess) * part.rest)
    return part._replace(state=behind, rest=(1 - when) * part.rest, event=jnp.zeros_like(part.event))


def row(tree: T, k: int) -> T:
    """One row of all leaves."""
    return jax.tree.map(lambda leaf: leaf[k], tree)


def select(condition: Array, yes: T, no: T) -> T:
    """A choice between trees."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), yes, no)
