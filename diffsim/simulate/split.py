"""A timestep split where contacts begin or end, so that its derivative is the slope that a user sees.

The plain step looks at contacts at its own times only. Whether a touch falls early or late within a step then changes
the impulse by more than the motion itself does, and the derivative of the step, which is exact, says nothing of it: two
elastic balls have an error of 13 at 4 ms where the truth is 0 and 1. Here, with `opt.events` = n:

1. the rest of the step is tried by Runge-Kutta with all decisions held (constraint/held.py): smooth, of fourth order;
2. if a decision is no longer right at its end, the time t of the first change is solved for, touches before all else:
   a guess by a parabola, corrected where the motion is then (velocities between the ends are a cubic);
3. the motion until t is that of Simpson's rule, and it goes on from there, n times over; the last rest is a plain
   Runge-Kutta step.

t depends on the state: where g(t, x) = 0 is the distance, dt = -(dg/dx dx) / (dg/dt), which carries the jump of the
force at touch into the derivative (the saltation term). At all other changes forces are continuous, and t has little
influence: as much as the motion goes on behind the zero, so that it is differentiated too. Steps in which nothing
begins or ends are those of Runge-Kutta. Sources: Shampine and Thompson 2000, "Event location for ordinary
differential equations"; Kong et al. 2024, "Saltation matrices".
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from diffsim.collision.layout import layout_of
from diffsim.constraint.held import held_as, signals
from diffsim.enums import Solver
from diffsim.errors import Problem, UnsupportedError
from diffsim.math import safe
from diffsim.math.vector import total
from diffsim.physics.joint import integrate_position, position_difference
from diffsim.simulate.forward import forward
from diffsim.simulate.runge_kutta import Slopes, advance, average_slopes, last
from diffsim.solver.objective import residuals_at
from diffsim.types import Data, Inputs, Model, State

Array = jax.Array

# how far behind the zero of a signal the motion goes on, as a part of its change within the step, by bytes of a number:
# there the decisions are those that follow, whatever the rounding
BEYOND = {4: 2e-3, 8: 1e-4}
# the same of all signals but touches: forces are continuous there, so that it costs next to nothing, and it is more
# than the found time is off where impedance bends. A release found a hair too early would be none: the rest of the
# step would begin with a derivative of the contact that has ended
PAST = 4e-3


class Split(NamedTuple):
    """A timestep: mean rates over all of it, the next velocity; of the last evaluation, acceleration and velocities of
    actuators.
    """

    slopes: Slopes
    qvel: Array
    qacc: Array
    actuator_velocity: Array


Ends = tuple[Array, Array]
# acceleration (nv,), rates of activation (na,)
Rates = tuple[Array, Array]


def split_step(model: Model, state: State, inputs: Inputs, data: Data) -> Split:
    """One timestep of a state whose Data is at hand.

    Raises:
      UnsupportedError: what cannot be held (see `_check`).
    """
    _check(model)
    h = model.opt.timestep

    def go_on(carry: _Part, _: None) -> tuple[_Part, tuple[Slopes, Ends]]:
        piece = _until_event(model, carry.state, inputs, carry.data, carry.rest)
        ahead = forward(model, piece.state, inputs)
        return _Part(piece.state, ahead, piece.rest, carry.split | piece.event), (piece.slopes, piece.ends)

    # one scan, so that a piece is compiled once
    start = _Part(state, data, h, jnp.zeros((), bool))
    (here, now, rest, split), pieces = jax.lax.scan(go_on, start, None, model.opt.events)
    plain, ends = jax.tree.map(lambda leaf: leaf[0], pieces)
    slopes, reads = average_slopes(model, here, now, rest, lambda point: forward(model, point, inputs), _ends)
    final = advance(model, here, slopes, rest)
    path, qacc = position_difference(model, final.qpos, state.qpos) / h, (final.qvel - state.qvel) / h
    whole = Slopes(path, qacc, (final.act - state.act) / h), last(reads)
    chosen: tuple[Slopes, Ends] = jax.tree.map(lambda a, b: jnp.where(split, a, b), whole, (plain, ends))
    slopes, (qacc, velocity) = chosen
    return Split(slopes, jnp.where(split, final.qvel, state.qvel + h * slopes.qacc), qacc, velocity)


def _ends(data: Data) -> Ends:
    return data.qacc, data.actuator_velocity


class _Part(NamedTuple):
    """Where the step is after some pieces: what is found there, how much time is left, whether anything has changed."""

    state: State
    data: Data
    rest: Array
    split: Array


class _Piece(NamedTuple):
    """A part of a step: where it ends, how much time is left, whether something begins or ends there; and its rates and
    last evaluation if nothing did.
    """

    state: State
    rest: Array
    event: Array
    slopes: Slopes
    ends: Ends


def _until_event(model: Model, state: State, inputs: Inputs, data: Data, h: Array) -> _Piece:
    """The motion with all decisions held, for h seconds or until one of them changes."""
    held = held_as(data.efc, residuals_at(data.efc, data.qacc))

    def evaluate(point: State) -> Data:
        return forward(model, point, inputs, held)

    def told(found: Data) -> Array:
        return jnp.concatenate(signals(model, found.efc, residuals_at(found.efc, found.qacc), held))

    slopes, reads = average_slopes(model, state, data, h, evaluate, lambda each: (told(each), _ends(each)))
    stages, ends = reads
    end = advance(model, state, slopes, h)
    after = evaluate(end)
    touches = signals(model, data.efc, residuals_at(data.efc, data.qacc), held).touches.size
    change = _first_change((told(data), stages[1], told(after)), touches)
    curve = Curve(state, data.qacc, end.qvel, after.qacc, h)

    def seen(part: Array) -> tuple[Rates, Array]:
        found = evaluate(curve(model, part))
        return _rates(found), told(found)

    # half way and there, side by side
    rates, values = jax.vmap(seen)(jnp.stack([0.5 * change.guess, change.guess]))
    half, found = (jax.tree.map(lambda leaf, i=i: leaf[i], rates) for i in range(2))
    part = change.corrected(values[1])
    guessed = advance(model, state, _simpson(state, (_rates(data), half, found), change.guess * h), change.guess * h)
    there = _coast(model, guessed, found, (part - change.guess) * h)
    state = jax.tree.map(lambda a, b: jnp.where(change.event, a, b), there, end)
    return _Piece(state, jnp.where(change.event, (1 - part) * h, 0), change.event, slopes, last(ends))


def _rates(data: Data) -> Rates:
    return data.qacc, data.act_dot


def _simpson(state: State, three: tuple[Rates, Rates, Rates], h: Array) -> Slopes:
    """Mean rates over h seconds, from those at their begin, middle and end: integrals of a parabola."""
    (first, _), (middle, _), _ = three
    qacc, act_dot = ((a + 4 * b + c) / 6 for a, b, c in zip(*three, strict=True))
    return Slopes(state.qvel + h * (first + 2 * middle) / 6, qacc, act_dot)


def _coast(model: Model, state: State, rates: Rates, h: Array) -> State:
    """The state after a very short time of constant rates."""
    qacc, act_dot = rates
    return advance(model, state, Slopes(state.qvel + 0.5 * h * qacc, qacc, act_dot), h)


class Curve(NamedTuple):
    """The motion between the ends of a piece of h seconds: cubic velocities, with the accelerations of both ends."""

    state: State
    qacc: Array
    end_qvel: Array
    end_qacc: Array
    h: Array

    def __call__(self, model: Model, part: Array) -> State:
        """The state after a part of it, 0 to 1. Activations stay: they only matter for where something begins."""
        s, h, state = part, self.h, self.state
        values = state.qvel, h * self.qacc, self.end_qvel, h * self.end_qacc
        weights = 1 - 3 * s**2 + 2 * s**3, s - 2 * s**2 + s**3, 3 * s**2 - 2 * s**3, s**3 - s**2
        # their integrals
        moved = s - s**3 + s**4 / 2, s**2 / 2 - 2 * s**3 / 3 + s**4 / 4, s**3 - s**4 / 2, s**4 / 4 - s**3 / 3
        qvel, path = (total([w * value for w, value in zip(each, values, strict=True)]) for each in (weights, moved))
        return state.replace(time=state.time + s * h, qpos=integrate_position(model, state.qpos, path, h), qvel=qvel)


class _Change(NamedTuple):
    """The first decision that is no longer right: index of its signal, about when (0 to 1), the signal at begin and
    end, the value just behind zero that it shall have.
    """

    event: Array
    signal: Array
    guess: Array
    ends: tuple[Array, Array]
    goal: Array

    def corrected(self, there: Array) -> Array:
        """The time, from the signals at the guess."""
        if not there.size:
            return self.guess
        value, part, (first, last) = there[self.signal], self.guess, self.ends
        # of the parabola through three points
        slope = (1 - part) * safe.divide(value - first, part) + part * safe.divide(last - value, 1 - part)
        return safe.clip(part - safe.divide(value - self.goal, slope), 0.0, 1.0)


def _first_change(three: tuple[Array, Array, Array], touches: int) -> _Change:
    """The first signal to become negative, touches before others, from values at begin, middle and end of a piece."""
    first, _, end = jax.lax.stop_gradient(three)
    if not first.size:
        zero, one = jnp.zeros((), first.dtype), jnp.ones((), first.dtype)
        return _Change(zero > 0, jnp.zeros((), jnp.int32), one, (zero, zero), zero)
    crosses = end < 0
    order = jnp.where(crosses, safe.divide(first, first - end, 1.0), jnp.inf) + (jnp.arange(first.size) >= touches)
    index = jnp.argmin(order)
    touch = index < touches
    c0, c1, c2 = (values[index] for values in three)
    goal = jnp.where(touch, BEYOND[first.dtype.itemsize], PAST) * c2
    # the parabola a s^2 + b s + c through the three values, less the goal; one zero within
    a, b, c = 2 * c0 - 4 * c1 + 2 * c2, 4 * c1 - 3 * c0 - c2, c0 - goal
    root = safe.sqrt(jnp.where(crosses[index], b * b - 4 * a * c, 1))
    guess = safe.clip(safe.divide(2 * c, root - b, 1.0), 0.0, 1.0)
    return _Change(jnp.any(crosses), index, guess, (c0, c2), goal)


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
    if opt.contact_reach:
        reasons.append("contact_reach must be 0")
    if model.topology.nhistory:
        reasons.append("delays of controls and sensors are not supported")
    if reasons:
        raise UnsupportedError([Problem("", 0, "<option events>", reason, unsupported=True) for reason in reasons])
