"""Task: the cost of a motion and the bounds of its controls; evaluation and linearization of one motion.

The cost is half a sum of squares of residuals, which are functions of state, Data and controls:

    cost = sum_t 1/2 |running(x_t, data_t, u_t)|^2 + 1/2 |final(x_T, data_T)|^2

Only first derivatives of the residuals are needed (Gauss-Newton). A weight w is a factor of a residual: sqrt(w) (x -
goal). The derivatives of all steps of a motion form its linear-quadratic model (`expand`).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from diffsim.base.checked import checked
from diffsim.math import safe
from diffsim.math.vector import inner, matmul
from diffsim.optimize.tangent import difference, displaced, jacobians, no_change, tangent_size
from diffsim.simulate.arguments import check_arguments
from diffsim.simulate.step import step_data
from diffsim.types import Data, Inputs, Model, State
from diffsim.types.record import Record, child, leaf, record, static
from diffsim.types.state import make_inputs
from diffsim.xla.reverse_mode import SplitFunction, recomputed, split_function

Running = Callable[[State, Data, Array], Array]
Final = Callable[[State, Data], Array]
# (state, row) -> controls (nu,)
ControlLaw = Callable[[State, Any], Array]
Step = Callable[[Any, State, Array, Array], tuple[tuple[State, Array, Array], Any]]


@record
class Task(Record):
    """A trajectory optimization task: a model, the residuals of a motion, and the bounds of the controls."""

    model: Model = child()
    inputs: Inputs = child()
    lower: Array = leaf("nu")
    upper: Array = leaf("nu")
    running: Running = static()
    final: Final | None = static()


@checked
def make_task(
    model: Model,
    running: Running,
    final: Final | None = None,
    inputs: Inputs | None = None,
    bounds: tuple[ArrayLike, ArrayLike] | None = None,
    contacts: bool = True,
) -> Task:
    """Makes a task. Make it once: its functions are part of compiled programs, so that new functions compile again.

    Args:
      model: the model that moves.
      running: (state, data, ctrl) -> residuals (k,) of each step, at the state before the step.
      final: (state, data) -> residuals (m,) of the last state; None for no final cost. Data is computed with ctrl = 0.
      inputs: all other inputs, constant in time; None for `make_inputs(model)`.
      bounds: lower and upper bounds of the controls, (nu,) or numbers; None for actuator_ctrlrange, where it is
        limited.
      contacts: whether bodies can touch. Without contacts, for motions through free space, programs compile faster, but
        collisions go unnoticed: evaluate the plan in a task with contacts.

    Returns:
      The task.
    """
    if not contacts:
        model = model.without_contacts()
    dtype = model.qpos0.dtype
    if bounds is None:
        limited = model.topology.actuator_ctrllimited != 0
        far = jnp.full(model.nu, jnp.inf, dtype)
        ranges = model.actuator_ctrlrange
        bounds = jnp.where(limited, ranges[:, 0], -far), jnp.where(limited, ranges[:, 1], far)
    lower, upper = (jnp.broadcast_to(jnp.asarray(bound, dtype), (model.nu,)) for bound in bounds)
    inputs = make_inputs(model) if inputs is None else inputs
    return Task(model=model, inputs=inputs, lower=lower, upper=upper, running=running, final=final)


@record
class Trajectory(Record):
    """A motion: states x_0 to x_T stacked, controls (T, nu), its cost, and all status bits that its steps set."""

    states: State = child()
    ctrl: Array = leaf("T", "nu")
    cost: Array = leaf()
    status: Array = leaf(dtype=int)


def residuals(task: Task, state: State, ctrl: Array, last: Array) -> tuple[State, Array, Array]:
    """One step: the next state, the residuals (k + m,) at this one, and its status.

    Args:
      task: the task.
      state: x_t.
      ctrl: (nu,) u_t.
      last: bool, whether this is x_T. Running residuals are zero there, and final residuals elsewhere.
    """
    later, data = step_data(task.model, state, task.inputs.replace(ctrl=ctrl))
    parts = [jnp.where(last, 0, task.running(state, data, ctrl))]
    if task.final is not None:
        parts.append(jnp.where(last, task.final(state, data), 0))
    return later, jnp.concatenate(parts), data.status


def half_square(residual: Array) -> Array:
    """1/2 |r|^2."""
    return 0.5 * inner(residual, residual)


def split_step(task: Task, state: State, ctrl: Array) -> SplitFunction:
    """A step in two parts: the simulation, and its derivatives, which are computed later without solving again."""

    def step(moving: tuple[Array, ...], task: Task, state: State, last: Array) -> tuple[Any, Any]:
        qpos, qvel, act, ctrl = moving
        later, r, status = residuals(task, state.replace(qpos=qpos, qvel=qvel, act=act), ctrl, last)
        return (later.qpos, later.qvel, later.act, r), (later, status)

    return split_function(step, *_inputs(task, state, ctrl, jnp.asarray(False)))


def _inputs(task: Task, state: State, ctrl: Array, last: Array) -> tuple:
    """Inputs of a split step. It is differentiated with respect to the first of them, a tuple."""
    return (state.qpos, state.qvel, state.act, ctrl), task, state, last


def simulate_step(step: SplitFunction, task: Task, state: State, ctrl: Array, last: Array) -> tuple[tuple, Any]:
    """`residuals`, and the arrays of the simulation that the derivatives of this step need."""
    ((*_, r), (later, status)), needed = step.evaluate(*_inputs(task, state, ctrl, last))
    return (later, r, status), needed


def follow(
    task: Task, state: State, law: ControlLaw, rows: Any, length: int, step: Step | None = None
) -> tuple[Trajectory, Any]:
    """Simulates a motion under a control law, clipped to the bounds.

    Args:
      task: the task.
      state: x_0.
      law: (x_t, row t) -> controls (nu,).
      rows: a pytree of arrays with a leading axis of length T; the law gets one row at each step.
      length: T.
      step: (task, state, ctrl, last) -> what `residuals` returns, and a pytree of arrays; None for `residuals` alone.

    Returns:
      The motion, and the pytrees that `step` returned, stacked over T + 1 steps.
    """
    step = step or (lambda *inputs: (residuals(*inputs), None))
    check_arguments(task.model, state, task.inputs)
    # the final cost is computed in one more step, so that the step is compiled once
    padded = jax.tree.map(lambda leaf: jnp.concatenate([leaf, leaf[-1:]]), rows)

    def one_step(carry: tuple[State, Array, Array], row: Any) -> tuple[tuple[State, Array, Array], Any]:
        now, cost, status = carry
        row, last = row
        ctrl = jnp.where(last, 0, safe.clip(law(now, row), task.lower, task.upper))
        (later, residual, bits), more = step(task, now, ctrl, last)
        return (later, cost + half_square(residual), status | bits), (now, ctrl, more)

    start = (state, jnp.zeros((), state.qpos.dtype), jnp.zeros((), jnp.int32))
    (_, cost, status), (states, ctrl, more) = jax.lax.scan(
        recomputed(one_step), start, (padded, jnp.arange(length + 1) == length)
    )
    return Trajectory(states=states, ctrl=ctrl[:-1], cost=cost, status=status), more


@checked
def evaluate(task: Task, state: State, ctrl: Array) -> Trajectory:
    """Simulates controls, clipped to the bounds, and computes the cost; differentiable.

    Args:
      task: costs and bounds.
      state: where the motion begins.
      ctrl: (T, nu) controls.

    Returns:
      States, controls, cost and status.

    Raises:
      ValueError: controls of the wrong shape.
    """
    ctrl = controls_of(task, ctrl)
    return follow(task, state, lambda now, row: row, ctrl, ctrl.shape[0])[0]


def controls_of(task: Task, ctrl: Array) -> Array:
    """(T, nu) controls in the precision of the Model.

    Raises:
      ValueError: the wrong shape; the message has the expected one.
    """
    ctrl = jnp.asarray(ctrl, task.lower.dtype)
    if ctrl.ndim != 2 or ctrl.shape[1] != task.model.nu or not ctrl.shape[0]:
        raise ValueError(f"ctrl has shape {ctrl.shape}, expected (T, {task.model.nu}); batch with jax.vmap")
    return ctrl


class LinearQuadratic(NamedTuple):
    """The linear-quadratic model about a motion, in T + 1 rows: dynamics A, B, and residuals r with derivatives."""

    A: Array
    B: Array
    r: Array
    r_x: Array
    r_u: Array

    def unreached(self) -> Array:
        """The cost of the residuals that depend on the state, but only on coordinates that no control moves.

        Derivatives between bodies that do not touch are exactly zero. Therefore the non-zero entries of A and B tell
        which coordinates the controls reach, directly or by way of other coordinates (a transitive closure).
        """
        A, B, r, r_x, r_u = self
        moves = (jnp.any(A != 0, axis=0) | jnp.eye(A.shape[1], dtype=bool)).astype(A.dtype)
        # each square doubles the length of the chains of coordinates that are found, so log2(nx) squares find all
        for _ in range(A.shape[1].bit_length()):
            moves = (matmul(moves, moves) > 0).astype(A.dtype)
        reached = matmul(moves, jnp.any(B != 0, axis=(0, 2)).astype(A.dtype)) > 0
        depends = r_x != 0
        seen = jnp.any(depends & reached[None, None], axis=2) | jnp.any(r_u != 0, axis=2)
        return jnp.sum(jnp.where(jnp.any(depends, axis=2) & ~seen, 0.5 * r * r, 0))

    def change(self, step: Array, gains: Array) -> Array:
        """A bound of the change of the cost by steps (T, nu) with feedback: |first-order term| + second-order term."""

        def advance(dx: Array, row: tuple[LinearQuadratic, Array, Array]) -> tuple[Array, tuple[Array, Array]]:
            (A, B, r, r_x, r_u), step, gain = row
            du = step + matmul(gain, dx)
            dr = matmul(r_x, dx) + matmul(r_u, du)
            return matmul(A, dx) + matmul(B, du), (inner(r, dr), 0.5 * inner(dr, dr))

        rows = jax.tree.map(lambda leaf: jnp.concatenate([leaf, jnp.zeros_like(leaf[:1])]), (step, gains))
        slope, curvature = jax.lax.scan(advance, jnp.zeros_like(self.A[0, 0]), (self, *rows))[1]
        return jnp.abs(jnp.sum(slope)) + jnp.sum(curvature)


def expand(
    task: Task, states: State, ctrl: Array, needed: Any = None, step: SplitFunction | None = None, together: bool = True
) -> LinearQuadratic:
    """The linear-quadratic model about a motion: derivatives of all steps side by side, in tangent coordinates.

    Args:
      task: the task.
      states: T + 1 states of the motion.
      ctrl: (T, nu) its controls.
      needed: arrays of the simulated steps that derivatives need; None to simulate the steps once more.
      step: the split step that returned `needed`; None if `needed` is None.
      together: whether to differentiate with respect to all coordinates in one pass, as in `jacobians`.
    """
    model = task.model
    length = ctrl.shape[0]
    nx = tangent_size(task.model)
    ctrl = jnp.concatenate([ctrl, jnp.zeros_like(ctrl[:1])])
    # the state after each step; the one after the last step is not used
    there = jax.tree.map(lambda leaf: jnp.concatenate([leaf[1:], leaf[-1:]]), states)

    def of_step(state: State, later: State, ctrl: Array, last: Array, needed: Any) -> LinearQuadratic:
        def outcome(dq: Array, dv: Array, da: Array, du: Array) -> tuple[tuple[Array, Array], Array]:
            moved = displaced(model, state, dq, dv, da)
            if step is None:
                ahead, r, _ = residuals(task, moved, ctrl + du, last)
            else:
                inputs, moving = (_inputs(task, x, u, last) for x, u in ((state, ctrl), (moved, ctrl + du)))
                qpos, qvel, act, r = step.differentiable(needed, inputs, moving[0])
                ahead = later.replace(qpos=qpos, qvel=qvel, act=act)
            return (difference(model, ahead, later), r), r

        (transition, slope), r = jacobians(outcome, no_change(model), together)
        return LinearQuadratic(transition[:, :nx], transition[:, nx:], r, slope[:, :nx], slope[:, nx:])

    return jax.vmap(of_step)(states, there, ctrl, jnp.arange(length + 1) == length, needed)
