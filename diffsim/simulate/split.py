"""A timestep split where contacts begin or end, so that its derivative is the slope that a user sees.

The plain step looks at contacts at its own times only. Whether a touch falls early or late within a step then changes
the impulse by more than the motion itself does, and the derivative of the step, which is exact, says nothing of it: two
elastic balls have an error of 13 at 4 ms where the truth is 0 and 1. Here, with `opt.events` = n:

1. the rest of the step is tried by Runge-Kutta with all decisions held (constraint/held.py): smooth, of fourth order;
2. if a decision is no longer right at its end, the time t of the first change is solved for, touches before all else
   (change.py): a guess by a parabola, corrected where the motion is then (velocities between the ends are a cubic);
3. the motion until t is that of Simpson's rule over both its halves, exact for forces with a bend in the middle, as
   that of a rising impedance; it goes on from there, n times over; the last rest is a plain Runge-Kutta step.

t depends on the state: where g(t, x) = 0 is the distance, dt = -(dg/dx dx) / (dg/dt), which carries the jump of the
force at touch into the derivative (the saltation term). At all other changes forces are continuous, and t has little
influence: as much as the motion goes on behind the zero, so that it is differentiated too. Steps in which nothing
begins or ends are those of Runge-Kutta, and cost little more: 2 and 3 run only where some world of a batch needs them.

All of this is one loop over phases (1, or 2 and 3) in one over the points that they look at (nodes.py), so that the
dynamics are compiled once, and once more for reverse mode, which computes them again at each point.
Sources: Shampine and Thompson 2000, "Event location for ordinary differential equations"; Kong et al. 2024, "Saltation
matrices".
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from diffsim.collision.layout import layout_of
from diffsim.constraint.held import Signals, held_as, signals
from diffsim.enums import Solver
from diffsim.errors import Problem, UnsupportedError
from diffsim.math.xla import anywhere, entwined, recomputed
from diffsim.physics.joint import position_difference
from diffsim.simulate.change import Change, first_change
from diffsim.simulate.forward import forward
from diffsim.simulate.nodes import (
    KNOWN,
    VISITS,
    Nodes,
    at_node,
    coast,
    mean_rates,
    quarters,
    runge_kutta,
    simpson,
)
from diffsim.simulate.runge_kutta import Slopes
from diffsim.solver.objective import residuals_at
from diffsim.types import Data, Inputs, Model, State
from diffsim.types.constraints import Held

Array = jax.Array
T = TypeVar("T")


class Split(NamedTuple):
    """A timestep: mean rates over all of it, the next velocity; of the last evaluation, acceleration and velocities of
    actuators.
    """

    slopes: Slopes
    qvel: Array
    qacc: Array
    actuator_velocity: Array


class _Seen(NamedTuple):
    """What is found at a point: rates (nv + na,), what holds from there, its signals, velocities of actuators."""

    rates: Array
    held: Held
    signals: Signals
    actuator_velocity: Array


class _Part(NamedTuple):
    """Where a step is: a state, the time that is left (s), whether a change ends the piece that begins there, which;
    the rates of that piece at its begin, in the mean and at its end, and what holds in it; the last evaluation.
    """

    state: State
    rest: Array
    event: Array
    change: Change
    known: Array
    held: Held
    last: tuple[Array, Array]


class _Phase(NamedTuple):
    """A piece, or the way to its change: whether it is that, which of its points (VISITS,) are looked at, and whether
    decisions are held there.
    """

    seeks: Array
    looks: Array
    holds: Array


NONE, ALL, BUT_FIRST, BUT_LAST = (
    5 * (False,),
    5 * (True,),
    (False, True, True, True, True),
    (True, True, True, True, False),
)
# what is found at the begin of the first piece may be at hand; no change is looked for at the end of the last
FIRST, SEEK = (False, BUT_FIRST, BUT_FIRST), (True, BUT_LAST, ALL)
PIECE, LAST = (False, ALL, BUT_FIRST), (False, BUT_LAST, NONE)


def phases(events: int, begun: bool) -> _Phase:
    """Of a step with that many changes, along a leading axis; `begun`: what is found at its begin is at hand."""
    order = [FIRST if begun else PIECE, *[SEEK, PIECE] * (events - 1), SEEK, LAST]
    seeks, looks, holds = zip(*order, strict=True)
    return _Phase(jnp.asarray(seeks), jnp.asarray(looks), jnp.asarray(holds))


def split_step(model: Model, state: State, inputs: Inputs, data: Data | None) -> Split:
    """One timestep of a state, with its Data if that is at hand.

    Raises:
      UnsupportedError: what cannot be held (see `_check`).
    """
    _check(model)
    h = model.opt.timestep
    begin = _seen(model, data, None) if data is not None else _nothing_seen(model, state, inputs)
    end = _Motion(model, inputs, begin, data is not None).run(state)
    path, qacc = position_difference(model, end.state.qpos, state.qpos) / h, (end.state.qvel - state.qvel) / h
    return Split(Slopes(path, qacc, (end.state.act - state.act) / h), end.state.qvel, *end.last)


def _seen(model: Model, data: Data, held: Held | None) -> _Seen:
    """What a piece needs of Data; where nothing binds, what holds is what the state decides."""
    x = residuals_at(data.efc, data.qacc)
    own = held_as(data.efc, x)
    now = own if held is None else _select(held.binds, held, own)
    rates = jnp.concatenate([data.qacc, data.act_dot])
    return _Seen(rates, now, signals(model, data.efc, x, now), data.actuator_velocity)


# traced once, wherever it is called, differentiated and computed again
@jax.jit
def _look(model: Model, state: State, inputs: Inputs, held: Held | None) -> _Seen:
    """The dynamics at a point."""
    return _seen(model, forward(model, state, inputs, held), held)


def _nothing_seen(model: Model, state: State, inputs: Inputs) -> _Seen:
    """Zeros."""
    shapes = jax.eval_shape(_look, model, state, inputs, None)
    return jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), shapes)


class _Motion(NamedTuple):
    """What moves a state: model and inputs; what is found at its begin, or zeros if that is not known."""

    model: Model
    inputs: Inputs
    begin: _Seen
    begun: bool

    def run(self, state: State) -> _Part:
        """To the end of a step."""
        flat, unpack = ravel_pytree(self.start(state))

        def go_on(flat: Array, phase: _Phase) -> tuple[Array, None]:
            part = unpack(flat)
            due = jnp.where(phase.seeks, part.event, part.rest > 0)
            # a choice for a whole batch: what some world needs happens in all of them
            return jax.lax.cond(
                anywhere(due), lambda: jnp.where(due, self.after(flat, unpack, phase), flat), lambda: flat
            ), None

        flat = entwined(flat, (state.qpos, state.qvel, state.act))
        return unpack(jax.lax.scan(go_on, flat, phases(self.model.opt.events, self.begun))[0])

    def start(self, state: State) -> _Part:
        """Before the first piece."""
        seen = self.begin
        change = first_change((seen.signals, seen.signals, seen.signals))
        last = seen.rates[: self.model.nv], seen.actuator_velocity
        known = jnp.broadcast_to(seen.rates, (KNOWN, seen.rates.size))
        return _Part(state, self.model.opt.timestep, jnp.zeros((), bool), change, known, seen.held, last)

    def after(self, flat: Array, unpack: Callable[[Array], _Part], phase: _Phase) -> Array:
        """A phase; parts are vectors."""

        @recomputed
        def at_change(flat: Array, rates: Array, seen: Array) -> Array:
            return _packed(self.at_change(unpack(flat), rates, self.rows(seen)))

        @recomputed
        def at_end(flat: Array, rates: Array, seen: Array) -> Array:
            return _packed(self.at_end(unpack(flat), rates, self.rows(seen), phase.holds[1]))

        rates, seen = self.visit(flat, unpack, phase)
        return jax.lax.cond(phase.seeks, at_change, at_end, flat, rates, seen)

    def visit(self, flat: Array, unpack: Callable[[Array], _Part], phase: _Phase) -> tuple[Array, Array]:
        """The rates that are known in the end, and all that is seen at the nodes one after another, a vector each."""
        begin, unpack_seen = ravel_pytree(self.begin)
        part = unpack(flat)
        held, unpack_held = ravel_pytree(part.held)

        @recomputed
        def look(flat: Array, rates: Array, held: Array, node: Nodes, holds: Array) -> Array:
            part = unpack(flat)
            point = at_node(self.model, part.state, rates, part.rest, node)
            return _packed(_look(self.model, point, self.inputs, unpack_held(held)._replace(binds=holds)))

        def each(carry: tuple[Array, Array], row: tuple) -> tuple[tuple[Array, Array], Array]:
            (rates, held), (place, node, looks, holds) = carry, row
            seen = jax.lax.cond(looks, lambda: look(flat, rates, held, node, holds), lambda: begin)
            found = unpack_seen(seen)
            return (rates.at[place].set(found.rates), _packed(found.held)), seen

        guess, stages = part.change.guess, runge_kutta(flat.dtype)
        nodes = jax.lax.cond(phase.seeks, lambda: quarters(guess), lambda: stages)
        rates = jnp.concatenate([part.known, jnp.broadcast_to(part.known[:1], (VISITS, part.known.shape[1]))])
        rows = KNOWN + jnp.arange(VISITS), nodes, phase.looks, phase.holds
        (rates, _), seen = jax.lax.scan(each, (rates, held), rows)
        return rates, seen

    def rows(self, seen: Array) -> _Seen:
        """What is seen at the nodes, from their vectors."""
        return jax.vmap(ravel_pytree(self.begin)[1])(seen)

    def at_end(self, part: _Part, rates: Array, seen: _Seen, holds: Array) -> _Part:
        """The end of a Runge-Kutta step, or its begin with the change that ends it before."""
        model = self.model
        end = _row(runge_kutta(rates.dtype), VISITS - 1)
        first, middle, last = (_row(seen.signals, k) for k in (0, 2, 4))
        change = first_change((first, middle, last))
        event = change.event & holds
        return _Part(
            state=_select(event, part.state, at_node(model, part.state, rates, part.rest, end)),
            rest=jnp.where(event, part.rest, 0),
            event=event,
            change=change,
            known=jnp.stack([rates[KNOWN], mean_rates(rates, end.gain), rates[-1]]),
            held=_row(seen.held, 0),
            last=(rates[-2, : model.nv], seen.actuator_velocity[-2]),
        )

    def at_change(self, part: _Part, rates: Array, seen: _Seen) -> _Part:
        """Where decisions change: by Simpson's rule to the guess, and on to where it should have been."""
        model, guess = self.model, part.change.guess
        when = part.change.corrected(_row(seen.signals, 3))
        guessed = at_node(model, part.state, rates, part.rest, simpson(guess))
        behind = coast(model, guessed, rates[KNOWN + 3], (when - guess) * part.rest)
        return part._replace(state=behind, rest=(1 - when) * part.rest, event=jnp.zeros_like(part.event))


def _packed(tree: Any) -> Array:
    """All in one vector, so that loops carry, store and add up one array."""
    return ravel_pytree(tree)[0]


def _row(tree: T, k: int) -> T:
    return jax.tree.map(lambda leaf: leaf[k], tree)


def _select(condition: Array, yes: T, no: T) -> T:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), yes, no)


def _check(model: Model) -> None:
    """Refuses what the split step cannot hold."""
    opt, reasons = model.opt, []
    if opt.solver == Solver.PGS or opt.noslip_iterations:
        reasons.append("its solver must be Newton or CG, without noslip")
    layout = layout_of(model)
    if layout.culls or any(block.kept < block.stop - block.start for block in layout.blocks):
        reasons.append("all contacts must have a slot; load with a larger max_contacts and max_pairs")
    if any(group.collider.rows == 0 for group in layout.groups):
        reasons.append("contacts of distance fields have no distance until they touch")
    if model.topology.nhistory:
        reasons.append("delays of controls and sensors are not supported")
    if reasons:
        raise UnsupportedError([Problem("", 0, "<option events>", reason, unsupported=True) for reason in reasons])
