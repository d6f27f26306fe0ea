"""Receding horizon control: at every step a plan from where the world is, begun from the one before."""

import jax
import jax.numpy as jnp

from diffsim.base.checked import checked
from diffsim.optimize.trajectory.ilqr import Ilqr, ilqr
from diffsim.optimize.trajectory.task import Task, Trajectory, controls_of
from diffsim.simulate.step import step_data
from diffsim.types import Model, State

Array = jax.Array


@checked
def mpc(
    task: Task, state: State, ctrl: Array, steps: int, plant: Model | None = None, settings: Ilqr | None = None
) -> Trajectory:
    """Controls a world for some steps. Jit it with static `steps`; batch it with `jax.vmap` over states and controls.

    Args:
      task: what plans cost, over a horizon of ctrl.shape[0] steps.
      state: where the world is.
      ctrl: (horizon, nu) guess of the first plan; each later one begins from the last, shifted by a step.
      steps: how many steps to take.
      plant: the world's own model, None for that of the task.
      settings: of each plan; None for one iteration, as in MuJoCo MPC.

    Returns:
      What the world did: states, controls (steps, nu), bits of status, and the cost of the last plan.

    Raises:
      ValueError: fewer than one step. For controls and models those of `ilqr`.
    """
    ctrl = controls_of(task, ctrl)
    if steps < 1:
        raise ValueError(f"steps is {steps}, expected one or more")
    settings = Ilqr(iterations=1) if settings is None else settings

    def advance(carry: tuple[State, Array], _: None) -> tuple[tuple[State, Array], tuple[State, Array, Array, Array]]:
        now, guess = carry
        plan = ilqr(task, now, guess, settings)
        if plant is None:
            later = jax.tree.map(lambda leaf: leaf[1], plan.states)
            status = plan.status
        else:
            later, data = step_data(plant, now, task.inputs.replace(ctrl=plan.ctrl[0]))
            status = data.status
        shifted = jnp.concatenate([plan.ctrl[1:], plan.ctrl[-1:]])
        return (later, shifted), (now, plan.ctrl[0], plan.cost, status)

    (final, _), (states, taken, costs, bits) = jax.lax.scan(advance, (state, ctrl), None, length=steps)
    states = jax.tree.map(lambda many, one: jnp.concatenate([many, one[None]]), states, final)
    status = jax.lax.reduce(bits, jnp.zeros((), jnp.int32), jax.lax.bitwise_or, (0,))
    return Trajectory(states=states, ctrl=taken, cost=costs[-1], status=status)
