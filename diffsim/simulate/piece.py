"""A piece of a step: what is seen at its points, and where it leads to, with all decisions held (split.py)."""

from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp

from diffsim.constraint.held import Signals, held_as, signals
from diffsim.math.xla import recomputed
from diffsim.simulate.change import Change, first_change
from diffsim.simulate.forward import forward
from diffsim.simulate.nodes import KNOWN, VISITS, Nodes, at_node, coast, mean_rates, runge_kutta, simpson
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


def first_piece(model: Model, state: State, inputs: Inputs, begin: Seen) -> Part:
    """Where the step is after its first piece, from what is seen at the begin."""
    h, nodes = model.opt.timestep, runge_kutta(begin.rates.dtype)

    @recomputed
    def at(rates: Array, node: Nodes) -> Seen:
        return look(model, at_node(model, state, rates, h, node), inputs, begin.held)

    def each(rates: Array, row: tuple[Array, Nodes]) -> tuple[Array, tuple[Array, ...]]:
        place, node = row
        seen = at(rates, node)
        return rates.at[place].set(seen.rates), (*seen.signals, seen.actuator_velocity)

    start = jnp.broadcast_to(begin.rates, (KNOWN + VISITS, begin.rates.size))
    rows = KNOWN + jnp.arange(1, VISITS), jax.tree.map(lambda leaf: leaf[1:], nodes)
    rates, (*later, velocity) = jax.lax.scan(each, start, rows)
    told = Signals(*(jnp.concatenate([one[None], more]) for one, more in zip(begin.signals, later, strict=True)))
    held = jax.tree.map(lambda leaf: leaf[None], begin.held)
    return at_end(model, state, h, Seen(rates[KNOWN:], held, told, velocity), jnp.ones((), bool))


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
        held=row(seen.held, 0),
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
