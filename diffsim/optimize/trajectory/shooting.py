"""Shooting: trajectory optimization by gradients with respect to the controls, with any optimizer of optax.

The gradient is propagated backwards through the whole motion, and each step is recomputed instead of stored.
First-order methods end in local minima; therefore many starts run side by side, and the best result is returned. After
each update, controls are clipped to their bounds (projected gradients).
"""

from typing import Any, Protocol

import jax
import jax.numpy as jnp
from jax import Array

from diffsim.base.checked import checked
from diffsim.base.errors import expect
from diffsim.optimize.coordinates.transforms import OPTIMIZER, Transformation
from diffsim.optimize.trajectory.task import Task, Trajectory, controls_of, evaluate
from diffsim.types import State
from diffsim.types.record import Record, child, leaf, record


class Optimizer(Protocol):
    """The two functions of an optimizer of optax."""

    @property
    def init(self) -> Any:
        """params -> state."""
        ...

    @property
    def update(self) -> Any:
        """(gradient, state, params) -> (updates, state)."""
        ...


@record
class Shots(Record):
    """The result of `shooting`; with several guesses, `costs` and `ctrl` have a first axis for them.

    Attributes:
      best: the best motion of all guesses.
      costs: (iterations,) costs.
      ctrl: (T, nu) the best controls.
    """

    best: Trajectory = child()
    costs: Array = leaf("iterations")
    ctrl: Array = leaf("T", "nu")


@checked
def shooting(task: Task, state: State, ctrl: Array, optimizer: Optimizer, iterations: int = 100) -> Shots:
    """Minimizes the cost of a motion by gradient descent, from one guess or several.

    Batch it with `jax.vmap` over states; jit it with optimizer and iterations bound.

    Args:
      task: costs and bounds.
      state: where the motion begins.
      ctrl: (T, nu) a guess, or (starts, T, nu) several.
      optimizer: such as `optax.adam(1e-2)`.
      iterations: number of updates.

    Returns:
      The best motion, and costs and controls from each guess.

    Raises:
      ValueError: controls of the wrong shape.
      ArgumentError: an optimizer without `init` and `update`.
    """
    expect(optimizer, "optimizer", OPTIMIZER, *Transformation._fields)
    ctrl = jnp.asarray(ctrl)
    starts = jax.vmap(lambda one: controls_of(task, one))(ctrl) if ctrl.ndim == 3 else controls_of(task, ctrl)[None]

    def cost(controls: Array) -> Array:
        return evaluate(task, state, controls).cost

    def inside(controls: Array) -> Array:
        return jnp.clip(controls, task.lower[None], task.upper[None])

    def advance(carry: tuple, _: None) -> tuple[tuple, Array]:
        controls, memory, best, lowest = carry
        value, slope = jax.value_and_grad(cost)(controls)
        better = value < lowest
        best, lowest = jnp.where(better, controls, best), jnp.where(better, value, lowest)
        # if the motion diverged, there is no direction to go
        updates, memory = optimizer.update(jnp.where(jnp.isfinite(slope), slope, 0), memory, controls)
        return (inside(controls + updates), memory, best, lowest), value

    def from_start(controls: Array) -> tuple[Array, Array, Array]:
        controls = inside(controls)
        start = (controls, optimizer.init(controls), controls, jnp.full((), jnp.inf, controls.dtype))
        (_, _, best, lowest), costs = jax.lax.scan(advance, start, None, length=iterations)
        return best, lowest, costs

    ends, lowest, costs = jax.vmap(from_start)(starts)
    best = evaluate(task, state, ends[jnp.argmin(lowest)])
    several = ctrl.ndim == 3
    return Shots(best=best, costs=costs if several else costs[0], ctrl=ends if several else ends[0])
