"""What is stored is computed once, whatever the program is compiled with."""

import functools
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.ad_checkpoint import checkpoint_name

from diffsim.xla.barriers import decided, stored
from diffsim.xla.reverse_mode import SEARCH_RESULT, split_function

Array = jax.Array


def _uses(y: Array) -> Array:
    return jnp.sum(jnp.tanh(y - 2) @ jnp.exp(y)) * jnp.max(jnp.sum(y, axis=0))


def _stored(x: Array) -> Array:
    return _uses(stored(jnp.abs(x)))


def _free(x: Array) -> Array:
    return _uses(jnp.abs(x))


def _count(function: Callable[[Array], Array]) -> int:
    """Of how many absolute values a program is made."""
    program = jax.jit(function).lower(jnp.ones((8, 8))).compile()
    return len(re.findall(r" abs\(", str(program.as_text())))


def _rollout(x: Array) -> Array:
    return jax.lax.scan(lambda now, _: (now + _stored(now), None), x, None, length=3)[0].sum()


@pytest.mark.parametrize(
    "function",
    [_stored, jax.jit(_stored), jax.vmap(lambda x: _stored(jnp.outer(x, x))), jax.grad(_stored), jax.grad(_rollout)],
)
def test_what_is_stored_is_computed_once(function: Callable[[Array], Array]) -> None:
    """In programs of plain `jax.jit`, forward and backward, in batches and loops."""
    assert _count(function) == 1


def test_what_is_not_stored_is_computed_in_every_use() -> None:
    """So the test above can fail."""
    assert _count(_free) > 1


def test_values_and_derivatives_are_those_of_what_is_stored() -> None:
    x = jnp.asarray(np.random.default_rng(0).normal(size=(4, 4)))
    for one, other in ((_stored, _free), (jax.grad(_stored), jax.grad(_free))):
        np.testing.assert_allclose(jax.jit(one)(x), other(x), rtol=1e-14)
    tangent = jnp.ones_like(x)
    np.testing.assert_allclose(*(jax.jvp(f, (x,), (tangent,))[1] for f in (_stored, _free)), rtol=1e-14)


def test_trees_and_truths_pass_through() -> None:
    truths = jnp.asarray([True, False])
    tree = {"a": jnp.arange(3), "b": (truths, [])}
    assert jax.tree.all(jax.tree.map(lambda a, b: bool(jnp.all(a == b)), stored(tree), tree))
    assert jax.jit(decided)(truths).tolist() == [True, False]


def _root(x: Array) -> Array:
    """The root of each number, by a search, then by a step of Newton's method, which has derivatives."""
    found = jax.lax.while_loop(lambda y: jnp.any(jnp.abs(y * y - x) > 1e-12), lambda y: 0.5 * (y + x / y), x)
    found = checkpoint_name(jax.lax.stop_gradient(found), SEARCH_RESULT)
    return 0.5 * (found + x / found)


def _halves(moving: tuple[Array, Array], factor: Array) -> tuple[dict[str, Array], Array]:
    x, y = moving
    root = jax.lax.cond(factor > 0, _root, lambda x: x, x * x + y)
    return {"root": factor * root, "sine": jnp.sin(x)}, root > 2


def test_derivatives_of_a_split_function_do_not_search_again() -> None:
    x, y, factor = jnp.asarray([1.0, 2.0]), jnp.asarray([0.5, 3.0]), jnp.asarray(1.5)
    step = split_function(_halves, (x, y), factor)
    (results, rest), needed = jax.jit(step.evaluate)((x, y), factor)
    plain, truths = _halves((x, y), factor)
    jax.tree.map(np.testing.assert_array_equal, (results, rest), (plain, truths))

    def differentiable(x: Array, y: Array, needed: Any) -> dict[str, Array]:
        return step.differentiable(needed, ((jax.lax.stop_gradient(x), y), factor), (x, y))

    jax.tree.map(np.testing.assert_array_equal, differentiable(x, y, needed), plain)
    slopes = jax.jacfwd(differentiable, (0, 1))
    expected = jax.jacfwd(lambda x, y: _halves((x, y), factor)[0], (0, 1))(x, y)
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-14), slopes(x, y, needed), expected)
    assert "while" in str(jax.make_jaxpr(step.evaluate)((x, y), factor))
    assert "while" not in str(jax.make_jaxpr(slopes)(x, y, needed))
