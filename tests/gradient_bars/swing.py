"""Swing-up of a cartpole, alone and in a batch."""

import jax
import jax.numpy as jnp
import numpy as np

import diffsim
from diffsim import optimize, parallel
from tests.gradient_bars.bar import Bar, timed
from tests.optimize.problems import swing_up


def cartpole() -> list[Bar]:
    """Swing-up by iLQR from hanging, alone and 256 at once."""
    task, settings = swing_up(), optimize.Ilqr(iterations=200)
    rng = np.random.default_rng(0)
    hanging = diffsim.make_state(task.model).replace(qpos=jnp.asarray([0.0, np.pi]))
    states = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (256, *leaf.shape)), hanging)
    states = states.replace(qpos=states.qpos + 0.1 * rng.normal(size=(256, 2)))
    guess = jnp.asarray(0.01 * rng.normal(size=(100, 1)))
    solve = jax.jit(lambda state: optimize.ilqr(task, state, guess, settings))
    plan, alone = timed(solve, hanging)
    plans, batch = timed(jax.jit(parallel.vmap(solve)), parallel.spread(states))

    def miss(plan: optimize.Plan) -> np.ndarray:
        return np.abs(1 - np.cos(np.asarray(plan.states.qpos)[..., -1, 1]))

    return [
        Bar(f"cartpole swing-up by iLQR, {int(plan.iterations)} iterations: s", alone, 2.0),
        Bar("cartpole swing-up: 1 - cos of the last angle", float(miss(plan)), 0.01),
        Bar("256 swing-ups in one batch, time over that of one", batch / alone, 30.0),
        # thirty times what one may take
        Bar("256 swing-ups in one batch: s", batch, 60.0),
        Bar("256 swing-ups: share that fails", float(np.mean(miss(plans) > 0.01)), 0.05),
    ]
