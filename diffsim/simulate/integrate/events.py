"""A timestep split where contacts begin or end, so that its derivative is the slope that a user sees.

The plain step finds contacts only at the beginnings of steps. Whether bodies touch early or late within a step then
changes the impulse by more than the motion itself does. The derivative of the step is exact, but does not see this:
for two elastic balls and a timestep of 4 ms, it is wrong by 13, where the true values are 0 and 1. Here, with
`opt.events` = n:

1. The rest of the step is tried by Runge-Kutta with a fixed active set (constraint/active_set.py): smooth, of fourth
   order.
2. Signals are positive while the decisions are right. Each signal that is negative at the end of a piece has a zero,
   approximated by a parabola through begin, middle and end. The earliest zero is the first change, touches before all
   others. There the motion is evaluated once (velocities between the ends are a cubic), and the zero is corrected by
   the slope of another parabola: the time t of the change.
3. The motion until t is computed by Simpson's rule over both its halves, which is exact for forces with a kink in the
   middle, such as the force of a rising impedance. The step goes on from there, n times; what is left at the end is a
   plain Runge-Kutta step.

t depends on the state. With the distance g(t, x) = 0, dt = -(dg/dx dx) / (dg/dt) carries the jump of the force at touch
into the derivative (the saltation term). At all other changes forces are continuous, and t has little influence: only
through the short motion behind the zero, so that it is differentiated too. A step in which nothing begins or ends is a
Runge-Kutta step and costs little more: 2 and 3 run only if some world of a batch needs them.

All pieces are one loop over phases (1, or 2 and 3), and in it one loop over the points of a phase
(integrate/runge_kutta.py), so that the dynamics are compiled once for any number of changes. (A first piece outside of
the loop, which would begin with the Data at hand, doubles the time of compilation.) Reverse mode computes phases, and
points, again.
Sources: Shampine and Thompson 2000, "Event location for ordinary differential equations"; Kong et al. 2024, "Saltation
matrices".
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.flatten_util import ravel_pytree

from diffsim.base.enums import Solver
from diffsim.base.errors import Problem, UnsupportedError
from diffsim.collision.layout import layout_of
from diffsim.constraint.active_set import Signals, active_set_of, signals
from diffsim.kinematics.joints import position_difference
from diffsim.math import safe
from diffsim.simulate.forward import evaluate
from diffsim.simulate.integrate.runge_kutta import (
    KNOWN,
    VISITS,
    Nodes,
    Slopes,
    at_node,
    coast,
    mean_rates,
    quarters,
    runge_kutta,
    simpson,
)
from diffsim.solver.objective import residuals_at
from diffsim.types import Data, Inputs, Model, State
from diffsim.types.constraints import ActiveSet
from diffsim.xla.loops import cond, scan
from diffsim.xla.reverse_mode import entwined, recomputed
from diffsim.xla.select import anywhere, where_tree

# how far behind the zero of a signal the motion goes on, as a fraction of the signal's change in the step, by bytes of
# a number: far enough that rounding does not undo the decision
BEYOND = {4: 2e-3, 8: 1e-4}
# the same for changes at which forces are continuous (all but touches and leaves): it costs next to nothing, and covers
# the error of the found time where the impedance has a kink. If a release were found a little too early, the rest of
# the step would begin with a derivative of the contact that has ended
PAST = 4e-3


class Change(NamedTuple):
    """The first decision that is no longer right.

    Attributes:
      event: whether there is one.
      signal: the index of its signal.
      guess: about when it changes, from 0 to 1.
      ends: the signal at begin and end.
      goal: the value just behind zero at which the piece ends.
    """

    event: Array
    signal: Array
    guess: Array
    ends: tuple[Array, Array]
    goal: Array

    def corrected(self, there: Signals) -> Array:
        """The time, from the signals at the guess."""
        times = jnp.concatenate(there)
        if not times.size:
            return self.guess
        value = times[self.signal]
        part = self.guess
        first, last = self.ends
        # one Newton step, with the slope at the guess of the parabola through begin, guess and end
        slope = (1 - part) * safe.divide(value - first, part) + part * safe.divide(last - value, 1 - part)
        return safe.clip(part - safe.divide(value - self.goal, slope), 0.0, 1.0)


def first_change(three: tuple[Signals, Signals, Signals]) -> Change:
    """The first signal to become negative, touches before others, from values at begin, middle and end of a piece."""
    touches = three[0].touches.size
    jumps = three[0].touches.size + three[0].leaves.size
    all_three = [jnp.concatenate(column) for column in three]
    first, middle, end = jax.lax.stop_gradient(all_three)
    if not first.size:
        zero, one = jnp.zeros((), first.dtype), jnp.ones((), first.dtype)
        return Change(zero > 0, jnp.zeros((), jnp.int32), one, (zero, zero), zero)
    # which signals have become negative; the midpoint of a rise counts only if the motion stays within the rise
    *others, rises, turns = (jax.lax.stop_gradient(signal) < 0 for signal in three[2])
    crosses = jnp.concatenate([*others, rises, turns & ~rises])
    place = jnp.arange(first.size)
    # how far behind its zero each piece ends; the earliest zero is chosen without derivatives, then found with them
    part = jnp.where(place < jumps, BEYOND[first.dtype.itemsize], PAST)
    order = _zero(first, middle, end, part * end) + jnp.where(place < touches, 0.0, 1.0)
    index = jnp.argmin(jnp.where(crosses, order, jnp.inf))
    first, middle, end = (values[index] for values in all_three)
    goal = part[index] * end
    return Change(jnp.any(crosses), index, _zero(first, middle, end, goal), (first, end), goal)


def _zero(first: Array, middle: Array, end: Array, goal: Array) -> Array:
    """When a parabola through three values is at a goal beyond 0, from 0 to 1; for values that end below 0."""
    # a s^2 + b s + c = 0 by the formula without cancellation, s = 2 c / (-b + sqrt(b^2 - 4 a c)): one zero lies within
    a = 2 * first - 4 * middle + 2 * end
    b = 4 * middle - 3 * first - end
    c = first - goal
    root = safe.sqrt(jnp.where(end < 0, b * b - 4 * a * c, 1))
    return safe.clip(safe.divide(2 * c, root - b, 1.0), 0.0, 1.0)


class Seen(NamedTuple):
    """The dynamics at a point: rates (nv + na,), the active set from there on, its signals, actuator velocities."""

    rates: Array
    active_set: ActiveSet
    signals: Signals
    actuator_velocity: Array


class Part(NamedTuple):
    """Where a step is, and the piece that begins there.

    Attributes:
      state, rest: the state, and the time that is left, s.
      event, change: whether a change ends the piece, and which.
      known: (KNOWN, nv + na) rates of the piece at its begin, in the mean and at its end.
      active_set: the active set of the piece.
      last: acceleration and velocities of actuators of the last evaluation.
    """

    state: State
    rest: Array
    event: Array
    change: Change
    known: Array
    active_set: ActiveSet
    last: tuple[Array, Array]


def seen_in(model: Model, data: Data, active_set: ActiveSet | None = None) -> Seen:
    """The fields of Data that a piece needs; if the active set does not bind, the state decides."""
    x = residuals_at(data.efc, data.qacc)
    current = active_set_of(data.efc, x)
    now = current if active_set is None else where_tree(active_set.binds, active_set, current)
    rates = jnp.concatenate([data.qacc, data.act_dot])
    return Seen(rates, now, signals(model, data.efc, x, now), data.actuator_velocity)


# traced once, wherever it is called, differentiated and computed again
@jax.jit
def look(model: Model, state: State, inputs: Inputs, active_set: ActiveSet) -> Seen:
    """The dynamics at a point."""
    return seen_in(model, evaluate(model, state, inputs, active_set), active_set)


def begin(model: Model, state: State, nothing: Seen) -> Part:
    """A step of which only the first state is known."""
    zero = jnp.zeros_like(nothing.rates)
    return Part(
        state=state,
        rest=model.opt.timestep,
        event=jnp.zeros((), bool),
        change=first_change((nothing.signals, nothing.signals, nothing.signals)),
        known=jnp.stack(KNOWN * [zero]),
        active_set=nothing.active_set,
        last=(zero[: model.nv], nothing.actuator_velocity),
    )


def at_end(model: Model, state: State, h: Array, seen: Seen, holds: Array) -> Part:
    """The end of a Runge-Kutta step of h seconds, or its begin `state` with the change that ends it earlier.

    Args:
      seen: the dynamics at its nodes.
      holds: whether the active set is fixed, so that a change ends it.
    """
    # the Runge-Kutta step as if nothing changed; if something does, the piece stays at its begin and keeps its change
    end = row(runge_kutta(seen.rates.dtype), VISITS - 1)
    rates = jnp.concatenate([jnp.zeros_like(seen.rates[:KNOWN]), seen.rates])
    change = first_change((row(seen.signals, 0), row(seen.signals, 2), row(seen.signals, 4)))
    event = change.event & holds
    return Part(
        state=where_tree(event, state, at_node(model, state, rates, h, end)),
        rest=jnp.where(event, h, 0),
        event=event,
        change=change,
        known=jnp.stack([seen.rates[0], mean_rates(rates, end.gain), seen.rates[-1]]),
        active_set=seen.active_set,
        last=(seen.rates[-2, : model.nv], seen.actuator_velocity[-2]),
    )


def at_change(model: Model, part: Part, seen: Seen) -> Part:
    """The part where decisions change: by Simpson's rule to the guess, then at constant rates to the corrected time."""
    guess = part.change.guess
    when = part.change.corrected(row(seen.signals, 3))
    rates = jnp.concatenate([part.known, seen.rates])
    guessed = at_node(model, part.state, rates, part.rest, simpson(guess))
    behind = coast(model, guessed, seen.rates[3], (when - guess) * part.rest)
    return part._replace(state=behind, rest=(1 - when) * part.rest, event=jnp.zeros_like(part.event))


def row(tree: Any, k: int) -> Any:
    """Row k of all leaves of a pytree."""
    return jax.tree.map(lambda leaf: leaf[k], tree)


class Split(NamedTuple):
    """A timestep: mean rates over all of it, and the next velocity (nv,).

    Acceleration and actuator velocities are taken from the last evaluation.
    """

    slopes: Slopes
    qvel: Array
    qacc: Array
    actuator_velocity: Array


def split_step(model: Model, state: State, inputs: Inputs, data: Data) -> Split:
    """One timestep, split where contacts begin or end.

    Args:
      data: of the state; says which groups of rows there are. Its numbers are computed again at the first point.

    Raises:
      UnsupportedError: options whose decisions no active set can fix.
    """
    opt = model.opt
    layout = layout_of(model)
    reasons = []
    if opt.solver == Solver.PGS or opt.noslip_iterations:
        reasons.append("its solver must be Newton or CG, without noslip")
    if layout.culls or any(block.kept < block.stop - block.start for block in layout.blocks):
        reasons.append("all contacts must have a slot; load with a larger max_contacts and max_pairs")
    if any(group.collider.rows == 0 for group in layout.groups):
        reasons.append("contacts of distance fields have no distance until they touch")
    if model.topology.nhistory:
        reasons.append("delays of controls and sensors are not supported")
    if reasons:
        raise UnsupportedError([Problem("", 0, "<option events>", reason, unsupported=True) for reason in reasons])
    h = model.opt.timestep
    end = _Pieces(model, state, inputs, seen_in(model, data)).to_the_end()
    path = position_difference(model, end.state.qpos, state.qpos) / h
    qacc = (end.state.qvel - state.qvel) / h
    return Split(Slopes(path, qacc, (end.state.act - state.act) / h), end.state.qvel, *end.last)


class _Phase(NamedTuple):
    """A piece of a step, or the way to the change that ends it.

    Attributes:
      seeks: () whether it is the way to a change.
      holds: (VISITS,) at which points the active set is fixed.
    """

    seeks: Array
    holds: Array


# a phase as (seeks, holds): on the way to a change, the active set of the piece holds everywhere
SEEK = (True, VISITS * (True,))
# at the begin of a piece the state decides on the active set, which holds from there on
PIECE = (False, (False, True, True, True, True))
# in the last piece the state decides everywhere, as in a plain Runge-Kutta step
LAST = (False, VISITS * (False,))


def phases(events: int) -> _Phase:
    """The phases of a step with that many changes, along a leading axis."""
    seeks, holds = zip(*[*[PIECE, SEEK] * events, LAST], strict=True)
    return _Phase(jnp.asarray(seeks), jnp.asarray(holds))


class _Pieces:
    """The pieces of a step. The loop over phases carries a part as one vector, which reverse mode stores."""

    def __init__(self, model: Model, state: State, inputs: Inputs, like: Seen) -> None:
        self.model, self.inputs = model, inputs
        nothing = jax.tree.map(jnp.zeros_like, like)
        flat, self.part = ravel_pytree(begin(model, state, nothing))
        self.flat = entwined(flat, inputs)

    def to_the_end(self) -> Part:
        """The end of the step."""

        @recomputed
        def go_on(flat: Array, phase: _Phase) -> tuple[Array, None]:
            part = self.part(flat)
            due = jnp.where(phase.seeks, part.event, part.rest > 0)
            # one branch for the whole batch: what some world needs runs in all worlds, and is kept where it is due
            passed = lambda: where_tree(due, self.after(flat, phase), flat)  # noqa: E731
            return cond(anywhere(due), passed, lambda: flat), None

        return self.part(scan(go_on, self.flat, phases(self.model.opt.events))[0])

    def after(self, flat: Array, phase: _Phase) -> Array:
        """The part after a phase."""

        def changed(flat: Array, seen: Seen) -> Array:
            return _packed(at_change(self.model, self.part(flat), seen))

        def ended(flat: Array, seen: Seen) -> Array:
            part = self.part(flat)
            return _packed(at_end(self.model, part.state, part.rest, seen, phase.holds[1]))

        return cond(phase.seeks, recomputed(changed), recomputed(ended), flat, self.visit(flat, phase))

    def visit(self, flat: Array, phase: _Phase) -> Seen:
        """What is seen at the nodes of a phase, one after another, with the decisions that hold in it."""
        part = self.part(flat)
        nodes = where_tree(phase.seeks, quarters(part.change.guess), runge_kutta(flat.dtype))

        @recomputed
        def at(state: State, rest: Array, rates: Array, active_set: ActiveSet, node: Nodes) -> Seen:
            return look(self.model, at_node(self.model, state, rates, rest, node), self.inputs, active_set)

        def at_place(carry: tuple[Array, ActiveSet], here: tuple[Array, Nodes, Array]) -> tuple[Any, Any]:
            rates, active_set = carry
            place, node, holds = here
            seen = at(part.state, part.rest, rates, active_set._replace(binds=holds), node)
            return (rates.at[place].set(seen.rates), seen.active_set), (seen.signals, seen.actuator_velocity)

        rates = jnp.concatenate([part.known, jnp.zeros((VISITS, part.known.shape[1]), flat.dtype)])
        places = KNOWN + jnp.arange(VISITS)
        (rates, active_set), seen_at_nodes = scan(at_place, (rates, part.active_set), (places, nodes, phase.holds))
        return Seen(rates[KNOWN:], active_set, *seen_at_nodes)


def _packed(tree: Any) -> Array:
    return ravel_pytree(tree)[0]
