"""Checks of a function of (what is given, a variation): jvp and vjp against Richardson differences, and finiteness."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest

from tests.uncompiled import uncompiled

Variation = dict[str, Any]
# of the differences, where nothing else is said
STEP = 2e-4


def weigh(record: Any) -> jax.Array:
    """One number that depends on every element of a record."""
    leaves = [jnp.ravel(leaf) for leaf in jax.tree.leaves(record)]
    joined = jnp.concatenate(leaves)
    return jnp.sum(joined * jnp.cos(1.0 + jnp.arange(joined.size)))


def inner(a: Any, b: Any) -> float:
    return float(sum(np.vdot(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)))


def richardson(function: Any, direction: Any, step: float) -> np.ndarray:
    """Derivative at zero along a direction, by central differences of steps h and 2 h: error of order h^4."""

    def central(h: float) -> np.ndarray:
        ahead, behind = (jax.tree.map(lambda d, s=s: s * h * d, direction) for s in (1, -1))
        return (np.asarray(function(ahead)) - np.asarray(function(behind))) / (2 * h)

    return (4 * central(step) - central(2 * step)) / 3


def contact_rows(contacts: Any, near: Any = 0.0) -> jax.Array:
    """Distance, position and normal (n, 7) of contacts nearer than `near`, zero of all others."""
    columns = jnp.concatenate([contacts.dist[:, None], contacts.pos, contacts.frame[:, 0]], axis=1)
    return jnp.where((contacts.dist < near)[:, None], columns, 0)


class Slopes(NamedTuple):
    """Of a function in some worlds (b, ...): its value, its derivative along a change by forward mode and by
    differences, how far values bend within the steps of these, and what reverse mode makes of cosines as weights.
    """

    value: Any
    tangent: Any
    numeric: Any
    bends: Any
    gradient: Any


def slopes_in_worlds(function: Callable[[Any, Any], jax.Array], change: Any, worlds: Any, h: float = 1e-5) -> Slopes:
    """The slopes of `function(change, world)` at no change, where reverse mode and forward mode agree."""

    def along(step: jax.Array, world: Any) -> tuple:
        at = jax.tree.map(lambda leaf: step * leaf, change)
        value, slope = jax.linearize(lambda x: function(x, world), at)
        weights = jnp.cos(jnp.arange(value.size, dtype=value.dtype)).reshape(value.shape)
        tangent, gradient = slope(change), jax.linear_transpose(slope, at)(weights)[0]
        pulled = sum(map(jnp.vdot, jax.tree.leaves(gradient), jax.tree.leaves(change)))
        return value, tangent, gradient, pulled, jnp.sum(weights * tangent)

    run = uncompiled(jax.vmap(jax.jit(along), (None, 0)))
    ahead, behind, further, before = (run(step, worlds)[0] for step in (h, -h, 2 * h, -2 * h))
    value, tangent, gradient, pulled, pushed = run(0.0, worlds)
    np.testing.assert_allclose(pulled, pushed, atol=1e-9)
    bends = np.maximum(np.abs(ahead + behind - 2 * value), np.abs(further + before - 2 * value))
    return Slopes(value, tangent, (8 * (ahead - behind) - (further - before)) / (12 * h), bends, gradient)


class Derivatives(NamedTuple):
    """A function of (state, inputs, variation) -> (k,), its jvp and vjp at the zero variation."""

    value: Callable[..., Any]
    forward: Callable[..., Any]
    backward: Callable[..., Any]
    zero: Variation


def derivatives(result: Callable[..., jax.Array], zero: Variation) -> Derivatives:
    """The functions of a result, run by numpy."""

    def forward(state: Any, inputs: Any, direction: Variation) -> tuple[jax.Array, jax.Array]:
        return jax.jvp(lambda v: result(state, inputs, v), (zero,), (direction,))

    def backward(state: Any, inputs: Any, weight: jax.Array) -> Variation:
        return jax.vjp(lambda v: result(state, inputs, v), zero)[1](weight)[0]

    zero = jax.tree.map(np.asarray, zero)
    return Derivatives(*map(uncompiled, (result, forward, backward)), zero)


def assert_match_differences(
    functions: Derivatives,
    state: Any,
    inputs: Any,
    steps: dict[str, float],
    choose: Callable[[str, Any], Any] = lambda part, direction: direction,
) -> None:
    """Along random directions, which `choose` may restrict: the parts of the variation with the same step at once."""
    value, forward, backward, zero = functions
    rng = np.random.default_rng(0)
    random = {part: choose(part, jax.tree.map(lambda leaf: rng.normal(size=leaf.shape), zero[part])) for part in zero}
    for step in {steps.get(part, STEP) for part in zero}:
        direction = {part: random[part] if steps.get(part, STEP) == step else zero[part] for part in zero}
        found, slope = forward(state, inputs, direction)
        expected = richardson(lambda v: value(state, inputs, v), direction, step)
        scale = 1 + np.abs(found) + np.abs(slope)
        oracle.assert_close(f"step {step}", slope / scale, expected / scale, 1e-6)
        weight = rng.normal(size=found.shape) / scale
        back = inner(backward(state, inputs, weight), direction)
        assert back == pytest.approx(float(weight @ slope), rel=1e-9, abs=1e-9)


def assert_finite(functions: Derivatives, state: Any, inputs: Any) -> None:
    """All derivatives are numbers."""
    value, slope = functions.forward(state, inputs, jax.tree.map(np.ones_like, functions.zero))
    back = functions.backward(state, inputs, np.ones_like(value))
    for leaf in jax.tree.leaves((value, slope, back)):
        assert np.all(np.isfinite(leaf))
