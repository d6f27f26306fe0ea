"""Runs Brax and MuJoCo Playground on the newest JAX: `prepare` restores functions that JAX has removed.

Brax 0.14.2 (March 2026) calls `jax.device_put_replicated`, and two environments of Playground 0.2.0 call
`jnp.clip(x, a_max=1)`. JAX 0.12 has removed both.
"""

import inspect
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp


def prepare() -> None:
    """Makes Brax's trainers and Playground's environments run on JAX 0.12 and later; does nothing on older JAX.

    Call it before training:

        envs.brax.prepare()
        ppo.train(environment=envs.make("hopper"), wrap_env_fn=envs.wrap, ...)
    """
    if not hasattr(jax, "device_put_replicated"):
        jax.device_put_replicated = device_put_replicated
    now: Any = jnp.clip
    if "a_max" not in inspect.signature(now).parameters:

        def clip(x: Any, *bounds: Any, a_min: Any = None, a_max: Any = None, **named: Any) -> jax.Array:
            """`jnp.clip` that also takes the old names of its bounds."""
            old = {"min": a_min, "max": a_max}
            return now(x, *bounds, **named, **{name: bound for name, bound in old.items() if bound is not None})

        jnp.clip = clip


def device_put_replicated(tree: Any, devices: Sequence[Any]) -> Any:
    """Copies the arrays of a pytree to each device; the result has a leading axis over devices, as `pmap` expects."""
    mesh = jax.sharding.Mesh(list(devices), "devices")
    one_each = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("devices"))
    return jax.tree.map(lambda leaf: jax.device_put(jnp.stack([leaf] * len(devices)), one_each), tree)
