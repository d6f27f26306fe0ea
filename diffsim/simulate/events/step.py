"""A timestep split where contacts begin or end, so that its derivative is the slope that a user sees.

The plain step looks at contacts at its own times only. Whether a touch falls early or late within a step then changes
the impulse by more than the motion itself does, and the derivative of the step, which is exact, says nothing of it: two
elastic balls have an error of 13 at 4 ms where the truth is 0 and 1. Here, with `opt.events` = n:

1. the rest of the step is tried by Runge-Kutta with all decisions held
   (constraint/active_set.py): smooth, of fourth order;
2. if a decision is no longer right at its end, the time t of the first change is solved for, touches before all else
   (locate.py): a guess by a parabola, corrected where the motion is then (velocities between the ends are a cubic);
3. the motion until t is that of Simpson's rule over both its halves, exact for forces with a bend in the middle, as
   that of a rising impedance; it goes on from there, n times over; the last rest is a plain Runge-Kutta step.

t depends on the state: where g(t, x) = 0 is the distance, dt = -(dg/dx dx) / (dg/dt), which carries the jump of the
force at touch into the derivative (the saltation term). At all other changes forces are continuous, and t has little
influence: as much as the motion goes on behind the zero, so that it is differentiated too. Steps in which nothing
begins or ends are those of Runge-Kutta, and cost little more: 2 and 3 run only where some world of a batch needs them.

All pieces (part.py) are one loop over phases (1, or 2 and 3) and in it one over the points that a phase looks at
(tableau.py), so that the dynamics are compiled once for however many changes. A first piece that is written out, and
begins with the Data at hand, makes a program that takes twice as long to compile. Reverse mode computes phases, and
points, again.
Sources: Shampine and Thompson 2000, "Event location for ordinary differential equations"; Kong et al. 2024, "Saltation
matrices".
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from diffsim.base.enums import Solver
from diffsim.base.errors import Problem, UnsupportedError
from diffsim.collision.layout import layout_of
from diffsim.kinematics.joints import position_difference
from diffsim.simulate.events.part import Part, Seen, at_change, at_end, begin, look, seen_in, select
from diffsim.simulate.events.tableau import KNOWN, VISITS, Nodes, at_node, quarters, runge_kutta
from diffsim.simulate.integrate.runge_kutta import Slopes
from diffsim.types import Data, Inputs, Model, State
from diffsim.types.constraints import Held
from diffsim.xla.barriers import anywhere, entwined, recomputed

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
    """One timestep.

    Args:
      data: of the state; tells what there is to hold. Its numbers are found again, as those of the first point.

    Raises:
      UnsupportedError: what cannot be held (see `_check`).
    """
    _check(model)
    h, end = model.opt.timestep, _Pieces(model, state, inputs, seen_in(model, data)).to_the_end()
    path, qacc = position_difference(model, end.state.qpos, state.qpos) / h, (end.state.qvel - state.qvel) / h
    return Split(Slopes(path, qacc, (end.state.act - state.act) / h), end.state.qvel, *end.last)


class _Phase(NamedTuple):
    """A piece, or the way to its change: whether it is that, and at which points (VISITS,) decisions are held."""

    seeks: Array
    holds: Array


# a state decides at the begin of a piece, and everywhere in the last
SEEK, PIECE, LAST = (True, VISITS * (True,)), (False, (False, True, True, True, True)), (False, VISITS * (False,))


def phases(events: int) -> _Phase:
    """Of a step with that many changes, along a leading axis."""
    seeks, holds = zip(*[*[PIECE, SEEK] * events, LAST], strict=True)
    return _Phase(jnp.asarray(seeks), jnp.asarray(holds))


class _Pieces:
    """Of a step. A part is a vector in the loop over phases, which then carries and stores one array."""

    def __init__(self, model: Model, state: State, inputs: Inputs, like: Seen) -> None:
        self.model, self.inputs = model, inputs
        nothing = jax.tree.map(jnp.zeros_like, like)
        flat, self.part = ravel_pytree(begin(model, state, nothing))
        self.flat = entwined(flat, inputs)

    def to_the_end(self) -> Part:
        """Of the step."""

        @recomputed
        def go_on(flat: Array, phase: _Phase) -> tuple[Array, None]:
            part = self.part(flat)
            due = jnp.where(phase.seeks, part.event, part.rest > 0)
            # a choice for a whole batch: what some world needs happens in all of them
            return jax.lax.cond(anywhere(due), lambda: select(due, self.after(flat, phase), flat), lambda: flat), None

        return self.part(jax.lax.scan(go_on, self.flat, phases(self.model.opt.events))[0])

    def after(self, flat: Array, phase: _Phase) -> Array:
        """The part after a phase."""

        def changed(flat: Array, seen: Seen) -> Array:
            return _packed(at_change(self.model, self.part(flat), seen))

        def ended(flat: Array, seen: Seen) -> Array:
            part = self.part(flat)
            return _packed(at_end(self.model, part.state, part.rest, seen, phase.holds[1]))

        return jax.lax.cond(phase.seeks, recomputed(changed), recomputed(ended), flat, self.visit(flat, phase))

    def visit(self, flat: Array, phase: _Phase) -> Seen:
        """What is seen at the nodes of a phase, one after another, with the decisions that hold in it."""
        part = self.part(flat)
        nodes = select(phase.seeks, quarters(part.change.guess), runge_kutta(flat.dtype))

        @recomputed
        def at(state: State, rest: Array, rates: Array, held: Held, node: Nodes) -> Seen:
            return look(self.model, at_node(self.model, state, rates, rest, node), self.inputs, held)

        def each(carry: tuple[Array, Held], here: tuple[Array, Nodes, Array]) -> tuple[Any, Any]:
            (rates, held), (place, node, holds) = carry, here
            seen = at(part.state, part.rest, rates, held._replace(binds=holds), node)
            return (rates.at[place].set(seen.rates), seen.held), (seen.signals, seen.actuator_velocity)

        rates = jnp.concatenate([part.known, jnp.zeros((VISITS, part.known.shape[1]), flat.dtype)])
        places = KNOWN + jnp.arange(VISITS)
        (rates, held), told = jax.lax.scan(each, (rates, part.held), (places, nodes, phase.holds))
        return Seen(rates[KNOWN:], held, *told)


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
