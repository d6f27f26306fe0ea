"""Brax's trainers on the newest JAX: `prepare` gives JAX back what they call and it has no more.

Brax 0.14.2, of March 2026, calls `jax.device_put_replicated`, which JAX 0.12 has removed.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp


def prepare() -> None:
    """Makes Brax's trainers run on JAX 0.12 and later; before them it changes nothing.

    Call it before training:

        envs.brax.prepare()
        ppo.train(environment=envs.make("hopper"), wrap_env_fn=envs.wrap, ...)
    """
    if not hasattr(jax, "device_put_replicated"):
        jax.device_put_replicated = device_put_replicated


def device_put_replicated(tree: Any, devices: Sequence[Any]) -> Any:
    """The arrays of a pytree on each of some devices, with a leading axis over these, as `pmap` takes them."""
    mesh = jax.sharding.Mesh(list(devices), "devices")
    one_each = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("devices"))
    return jax.tree.map(lambda leaf: jax.device_put(jnp.stack([leaf] * len(devices)), one_each), tree)
