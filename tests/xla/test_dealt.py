"""Rows dealt out over a batch: the same as in each world alone, with derivatives; nothing where nothing is near."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diffsim.xla.select import ROUNDS, rows_where

WORLDS = 5
Inputs = tuple[jax.Array, jax.Array, jax.Array]


def inputs(rows: int, share: float) -> Inputs:
    random = np.random.default_rng(rows)
    near = random.random((WORLDS, rows)) < share
    return jnp.asarray(near), jnp.asarray(random.normal(size=(WORLDS, rows, 2))), jnp.asarray(random.normal(size=rows))


def of_rows(x: jax.Array, scale: jax.Array) -> dict[str, jax.Array]:
    return {"sine": jnp.sin(x) * scale[:, None], "number": jnp.sum(x * x, axis=-1), "above": x[:, 0] > 0}


def one(near: jax.Array, x: jax.Array, scale: jax.Array) -> dict[str, jax.Array]:
    """Where a row is near, a function of it; elsewhere another."""
    otherwise = {"sine": 2 * x, "number": -scale, "above": jnp.zeros(len(x), bool)}
    return rows_where(near, of_rows, (x, scale), otherwise)


def expected(near: jax.Array, x: jax.Array, scale: jax.Array) -> dict[str, jax.Array]:
    sine = jnp.where(near[:, None], jnp.sin(x) * scale[:, None], 2 * x)
    return {"sine": sine, "number": jnp.where(near, jnp.sum(x * x, -1), -scale), "above": near & (x[:, 0] > 0)}


def over_worlds(function: Callable) -> Callable:
    return jax.jit(jax.vmap(function, (0, 0, None)))


@pytest.mark.parametrize("share", [0.0, 0.1, 0.6, 1.0])
@pytest.mark.parametrize("rows", [1, 3, ROUNDS, 21])
def test_a_batch_is_as_each_alone(rows: int, share: float) -> None:
    given = inputs(rows, share)
    jax.tree.map(np.testing.assert_array_equal, over_worlds(one)(*given), over_worlds(expected)(*given))


def test_alone_and_in_a_batch_of_batches() -> None:
    near, x, scale = inputs(11, 0.3)
    jax.tree.map(np.testing.assert_array_equal, one(near[0], x[0], scale), expected(near[0], x[0], scale))
    twice = [jnp.stack([part, part[::-1]]) for part in (near, x)]
    found = jax.vmap(over_worlds(one), (0, 0, None))(*twice, scale)
    jax.tree.map(np.testing.assert_array_equal, found, jax.vmap(over_worlds(expected), (0, 0, None))(*twice, scale))


@pytest.mark.parametrize("share", [0.1, 0.9])
def test_derivatives(share: float) -> None:
    """Forward and reverse, of what differs between worlds and of what they share, before and after a batch is made."""
    near, x, scale = inputs(11, share)

    def loss(function: Callable) -> Callable:
        def of_world(near: jax.Array, x: jax.Array, scale: jax.Array) -> jax.Array:
            rows = function(near, x, scale)
            return jnp.sum(jnp.cos(rows["sine"])) + jnp.sum(rows["number"] ** 2)

        return of_world

    def total(function: Callable) -> Callable:
        return lambda x, scale: jnp.sum(over_worlds(loss(function))(near, x, scale))

    change = jnp.cos(x), jnp.sin(scale)
    for transform in (
        lambda f: jax.grad(total(f), (0, 1))(x, scale),
        lambda f: jax.jvp(total(f), (x, scale), change),
        lambda f: over_worlds(jax.grad(loss(f), (1, 2)))(near, x, scale),
        lambda f: jax.jvp(jax.grad(total(f)), (x, scale), change),
    ):
        found, right = transform(one), transform(expected)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12), found, right)


def test_what_is_far_is_not_computed() -> None:
    """Of few near rows one round is computed, whichever worlds they are in; of none nothing."""
    seen: list[int] = []

    def counted(near: jax.Array, x: jax.Array) -> jax.Array:
        def compute(x: jax.Array) -> jax.Array:
            jax.debug.callback(lambda: seen.append(1))
            return x + 1

        return rows_where(near, compute, (x,), x)

    x = jnp.zeros((16, 2 * ROUNDS))
    for near, rounds in ((0, 0), (1, 1), (2 * 16, 1), (2 * 16 + 1, 2), (x.size, ROUNDS)):
        seen.clear()
        found = jax.jit(jax.vmap(counted))(jnp.arange(x.size).reshape(x.shape) < near, x)
        jax.effects_barrier()
        # as often for each world
        assert len(seen) in (rounds, 16 * rounds) and int(found.sum()) == near
