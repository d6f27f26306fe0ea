"""What the gradient of a long motion keeps: the quadruped over 1,000 steps, by all of its controls."""

from typing import Any

import jax
import jax.numpy as jnp

import diffsim
from diffsim import envs
from tests.gradient_bars.bar import Bar

STEPS, WORLDS = 1000, 16


def memory() -> list[Bar]:
    """Bytes of the compiled program: what it allocates, its results included, a world."""
    model = diffsim.load(envs.MODELS / "quadruped.xml")
    state = diffsim.make_state(model)

    def distance(ctrl: jax.Array) -> jax.Array:
        return diffsim.rollout(model, state, ctrl).final.qpos[0]

    ctrl = jnp.zeros((WORLDS, STEPS, model.nu))
    needs: Any = jax.jit(jax.vmap(jax.grad(distance))).lower(ctrl).compile().memory_analysis()
    size = (needs.temp_size_in_bytes + needs.output_size_in_bytes) / WORLDS
    return [Bar(f"quadruped, gradient of {STEPS:,} steps: MB a world", size / 1e6, 1.0)]
