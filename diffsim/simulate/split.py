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

The first piece is written out, as most steps are one piece (piece.py). All others are one loop over phases (1, or 2 and
3) and in it one over the points that a phase looks at (nodes.py), so that the dynamics are compiled twice for however
many changes; reverse mode computes them again at each point.
Sources: Shampine and Thompson 2000, "Event location for ordinary differential equations"; Kong et al. 2024, "Saltation
matrices".
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from diffsim.collision.layout import layout_of
from diffsim.enums import Solver
from diffsim.errors import Problem, UnsupportedError
from diffsim.math.xla import anywhere, entwined, recomputed
from diffsim.physics.joint import position_difference
from diffsim.simulate.nodes import VISITS, Nodes, at_node, quarters, runge_kutta
from diffsim.simulate.piece import Part, Seen, at_change, at_end, first_piece, look, row, seen_in, select
from diffsim.simulate.runge_kutta import Slopes
from diffsim.types import Data, Inputs, Model, State

Array = jax.Array


class Split(NamedTuple):
    """A timestep: mean rates over all of it, the next velocity; of the last evaluation, acceleration and velocities of
    actuators.
    """

    slopes: Slopes
    qvel: Array
    qacc: Array
    actuator_velocity: Array


def split_step(model: Model, state: State, inputs: Inputs, data: Data) -> Split:
    """One timestep of a state whose Data is at hand.

    Raises:
      UnsupportedError: what cannot be held (see `_check`).
    """
    _check(model)
    h, begin = model.opt.timestep, seen_in(model, data)
    part = first_piece(model, state, inputs, begin)
    end = jax.lax.cond(anywhere(part.event), lambda: _Pieces(model, inputs, begin, part).to_the_end(), lambda: part)
    path, qacc = position_difference(model, end.state.qpos, state.qpos) / h, (end.state.qvel - state.qvel) / h
    return Split(Slopes(path, qacc, (end.state.act - state.act) / h), end.state.qvel, *end.last)


class _Phase(NamedTuple):
    """A piece, or the way to its change: whether it is that, and at which points (VISITS,) decisions are held."""

    seeks: Array
    holds: Array


# a state decides at the begin of a piece, and everywhere in the last
SEEK, PIECE, LAST = (True, VISITS * (True,)), (False, (False, True, True, True, True)), (False, VISITS * (False,))


def phases(events: int) -> _Phase:
    """What follows the first piece of a step with that many changes, along a leading axis."""
    seeks, holds = zip(*[*[SEEK, PIECE] * (events - 1), SEEK, LAST], strict=True)
    return _Phase(jnp.asarray(seeks), jnp.asarray(holds))


class _Pieces:
    """The pieces after the first. Parts and what is seen are vectors in loops, which then carry and store one array."""

    def __init__(self, model: Model, inputs: Inputs, like: Seen, part: Part) -> None:
        self.model, self.inputs = model, inputs
        self.flat, self.part = ravel_pytree(part)
        self.room, self.seen = ravel_pytree(like)

    def to_the_end(self) -> Part:
        """Of the step."""

        def go_on(flat: Array, phase: _Phase) -> tuple[Array, None]:
            part = self.part(flat)
            due = jnp.where(phase.seeks, part.event, part.rest > 0)
            # a choice for a whole batch: what some world needs happens in all of them
            return jax.lax.cond(anywhere(due), lambda: select(due, self.after(flat, phase), flat), lambda: flat), None

        return self.part(jax.lax.scan(go_on, self.flat, phases(self.model.opt.events))[0])

    def after(self, flat: Array, phase: _Phase) -> Array:
        """The part after a phase."""

        def changed(flat: Array, seen: Array) -> Array:
            return _packed(at_change(self.model, self.part(flat), self.rows(seen)))

        def ended(flat: Array, seen: Array) -> Array:
            part = self.part(flat)
            return _packed(at_end(self.model, part.state, part.rest, self.rows(seen), phase.holds[1]))

        return jax.lax.cond(phase.seeks, recomputed(changed), recomputed(ended), flat, self.visit(flat, phase))

    def visit(self, flat: Array, phase: _Phase) -> Array:
        """What is seen at the nodes of a phase, one after another."""
        guess, stages = self.part(flat).change.guess, runge_kutta(flat.dtype)
        nodes = jax.lax.cond(phase.seeks, lambda: quarters(guess), lambda: stages)

        @recomputed
        def at(flat: Array, seen: Array, node: Nodes, holds: Array) -> Array:
            part, before = self.part(flat), self.rows(seen)
            rates = jnp.concatenate([part.known, before.rates])
            held = select(phase.seeks, part.held, row(before.held, 0))
            point = at_node(self.model, part.state, rates, part.rest, node)
            return _packed(look(self.model, point, self.inputs, held._replace(binds=holds)))

        def each(seen: Array, here: tuple[Array, Nodes, Array]) -> tuple[Array, None]:
            place, node, holds = here
            return seen.at[place].set(at(flat, seen, node, holds)), None

        room = entwined(jnp.broadcast_to(self.room, (VISITS, self.room.size)), flat)
        return jax.lax.scan(each, room, (jnp.arange(VISITS), nodes, phase.holds))[0]

    def rows(self, seen: Array) -> Seen:
        """What is seen at all nodes, from a vector each."""
        return jax.vmap(self.seen)(seen)


def _packed(tree: Any) -> Array:
    return ravel_pytree(tree)[0]


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
