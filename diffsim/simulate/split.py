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
Sources: Shampine and Thompson 2000, "Event location for ordinary differential equations"; Kong et al. 2024, "Saltation
matrices".
"""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp

from diffsim.collision.layout import layout_of
from diffsim.constraint.held import Signals, held_as, signals
from diffsim.enums import Solver
from diffsim.errors import Problem, UnsupportedError
from diffsim.math.vector import total
from diffsim.math.xla import anywhere
from diffsim.physics.joint import position_difference
from diffsim.simulate.change import Change, Curve, first_change
from diffsim.simulate.forward import forward
from diffsim.simulate.runge_kutta import Rates, Slopes, advance, average_slopes, last, rates_of
from diffsim.solver.objective import residuals_at
from diffsim.types import Data, Inputs, Model, State
from diffsim.types.constraints import Held

Array = jax.Array
T = TypeVar("T")
# acceleration (nv,), velocities of actuators (nu,)
Ends = tuple[Array, Array]

# Simpson's rule over both halves of a piece: weights of the accelerations at 0, 1/4 .. 1, for the gain of velocity, and
# for that of position, where each counts with the time that is left
VELOCITY = (1 / 12, 4 / 12, 2 / 12, 4 / 12, 1 / 12)
POSITION = (1 / 12, 3 / 12, 1 / 12, 1 / 12, 0.0)


class Split(NamedTuple):
    """A timestep: mean rates over all of it, the next velocity; of the last evaluation, acceleration and velocities of
    actuators.
    """

    slopes: Slopes
    qvel: Array
    qacc: Array
    actuator_velocity: Array


class _Start(NamedTuple):
    """What the motion from a state needs of its Data: rates, decisions and their signals."""

    state: State
    rates: Rates
    held: Held
    signals: Signals


class _Part(NamedTuple):
    """Where the step is: what goes on from there, for how long (s), whether a change ends that, which, and on which
    curve; what the last evaluation found.
    """

    start: _Start
    rest: Array
    event: Array
    change: Change
    curve: Curve
    ends: Ends


class _Motion:
    """What moves a state: model and inputs, and `forward`, traced once however often it is called."""

    def __init__(self, model: Model, inputs: Inputs) -> None:
        self.model, self.inputs = model, inputs
        self._forward = jax.jit(lambda model, state, inputs, held: forward(model, state, inputs, held))

    def at(self, state: State, held: Held | None = None) -> Data:
        """Data of a state, with decisions held or its own."""
        return self._forward(self.model, state, self.inputs, held)


def split_step(model: Model, state: State, inputs: Inputs, data: Data) -> Split:
    """One timestep of a state whose Data is at hand.

    Raises:
      UnsupportedError: what cannot be held (see `_check`).
    """
    _check(model)
    motion = _Motion(model, inputs)
    h = model.opt.timestep

    part, only = _one_piece(motion, _start(model, state, data), h, _ends(data))
    end, ends = _if_anywhere(part.event, lambda: _in_pieces(motion, part), (part.start.state, part.ends))
    path, qacc = position_difference(model, end.qpos, state.qpos) / h, (end.qvel - state.qvel) / h
    # one piece is a Runge-Kutta step
    slopes = _select(part.event, Slopes(path, qacc, (end.act - state.act) / h), only)
    return Split(slopes, jnp.where(part.event, end.qvel, state.qvel + h * slopes.qacc), *ends)


def _in_pieces(motion: _Motion, part: _Part) -> tuple[State, Ends]:
    """The end of a step whose first piece ends with a change."""

    def go_on(part: _Part, _: None) -> tuple[_Part, None]:
        return _if_anywhere(part.event, lambda: _next_piece(motion, part), part), None

    def to_the_end() -> tuple[Slopes, Ends]:
        return _plain(motion, part)

    # one scan, so that a piece is compiled once; what comes after the last change is not looked at
    part, _ = jax.lax.scan(go_on, part, None, motion.model.opt.events)
    still = Slopes(part.start.state.qvel, *part.start.rates)
    slopes, ends = _if_anywhere(part.event, to_the_end, (still, part.ends))
    return advance(motion.model, part.start.state, slopes, part.rest), ends


def _if_anywhere(flag: Array, then: Callable[[], T], otherwise: T) -> T:
    """A choice for a whole batch: what some world needs happens in all of them."""
    return jax.lax.cond(anywhere(flag), then, lambda: otherwise)


def _select(condition: Array, yes: T, no: T) -> T:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), yes, no)


def _ends(data: Data) -> Ends:
    return data.qacc, data.actuator_velocity


def _told(model: Model, data: Data, qacc: Array, held: Held) -> Signals:
    """The signals of a state at an acceleration."""
    return signals(model, data.efc, residuals_at(data.efc, qacc), held)


def _start(model: Model, state: State, data: Data) -> _Start:
    held = held_as(data.efc, residuals_at(data.efc, data.qacc))
    return _Start(state, rates_of(data), held, _told(model, data, data.qacc, held))


def _plain(motion: _Motion, part: _Part) -> tuple[Slopes, Ends]:
    """A Runge-Kutta step over the rest, in which states decide."""
    state, rates, *_ = part.start
    slopes, reads = average_slopes(motion.model, state, rates, part.rest, motion.at, _ends)
    return slopes, _select(part.rest > 0, last(reads), part.ends)


def _one_piece(motion: _Motion, begin: _Start, h: Array, before: Ends) -> tuple[_Part, Slopes]:
    """The motion with all decisions held, for the rest of the step, and the first of them that is wrong in the end."""
    model, (state, rates, held, first) = motion.model, begin

    def evaluate(point: State) -> Data:
        return motion.at(point, held)

    def read(found: Data) -> tuple[Signals, Ends]:
        return _told(model, found, found.qacc, held), _ends(found)

    slopes, (told, ends) = average_slopes(model, state, rates, h, evaluate, read)
    end, (qacc, velocity) = advance(model, state, slopes, h), last(ends)
    after = evaluate(end)
    change = first_change((first, jax.tree.map(lambda leaf: leaf[1], told), _told(model, after, after.qacc, held)))
    event = change.event & (h > 0)
    start, rest = begin._replace(state=_select(event, state, end)), jnp.where(event, h, 0)
    curve = Curve(state, rates, end.qvel, after.qacc, h)
    return _Part(start, rest, event, change, curve, _select(h > 0, (qacc, velocity), before)), slopes


def _next_piece(motion: _Motion, part: _Part) -> _Part:
    """Goes to the change, in the worlds that have one, and on from there."""
    model, (state, _, held, _), change, curve = motion.model, part.start, part.change, part.curve

    def seen(fraction: Array) -> tuple[Rates, Signals]:
        found = motion.at(curve(model, fraction), held)
        return rates_of(found), _told(model, found, found.qacc, held)

    # side by side
    between, told = jax.vmap(seen)(change.guess * jnp.asarray([0.25, 0.5, 0.75, 1.0], change.guess.dtype))
    rates, there = jax.tree.map(lambda leaf: leaf[-1], (between, told))
    when, h = change.corrected(there), curve.h
    guessed = advance(model, state, _simpson(curve, between, change.guess * h), change.guess * h)
    behind = _select(part.event, _coast(model, guessed, rates, (when - change.guess) * h), state)
    start = _start(model, behind, motion.at(behind))
    return _one_piece(motion, start, jnp.where(part.event, (1 - when) * h, 0), part.ends)[0]


def _simpson(curve: Curve, between: Rates, h: Array) -> Slopes:
    """Mean rates over the first h seconds of a curve, from those at 1/4, 1/2, 3/4 and all of them."""
    qacc, act_dot = (jnp.concatenate([a[None], b]) for a, b in zip(curve.rates, between, strict=True))
    return Slopes(curve.state.qvel + h * _weigh(POSITION, qacc), _weigh(VELOCITY, qacc), _weigh(VELOCITY, act_dot))


def _weigh(weights: tuple[float, ...], values: Array) -> Array:
    return total([weight * value for weight, value in zip(weights, values, strict=True)])


def _coast(model: Model, state: State, rates: Rates, h: Array) -> State:
    """The state after a very short time of constant rates."""
    qacc, act_dot = rates
    return advance(model, state, Slopes(state.qvel + 0.5 * h * qacc, qacc, act_dot), h)


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
