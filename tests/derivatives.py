"""Checks of a function of (what is given, a variation): jvp and vjp against Richardson differences, and finiteness."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest

from tests.physics.test_gradients import inner, richardson
from tests.uncompiled import uncompiled

Variation = dict[str, Any]


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

    return Derivatives(*map(uncompiled, (result, forward, backward)), zero)


def assert_match_differences(
    functions: Derivatives,
    state: Any,
    inputs: Any,
    steps: dict[str, float],
    choose: Callable[[str, Any], Any] = lambda part, direction: direction,
) -> None:
    """Each part of the variation along a random direction, which `choose` may restrict, by steps of its own size."""
    value, forward, backward, zero = functions
    rng = np.random.default_rng(0)
    for part in zero:
        random = jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=leaf.shape)), zero[part])
        direction = {**jax.tree.map(jnp.zeros_like, zero), part: choose(part, random)}
        found, slope = forward(state, inputs, direction)
        expected = richardson(lambda v: value(state, inputs, v), direction, steps.get(part, 2e-4))
        scale = 1 + np.abs(np.asarray(found)) + np.abs(np.asarray(slope))
        oracle.assert_close(part, slope / scale, expected / scale, 1e-6)
        weight = jnp.asarray(rng.normal(size=found.shape)) / scale
        back = inner(backward(state, inputs, weight), direction)
        assert back == pytest.approx(float(weight @ slope), rel=1e-9, abs=1e-9)


def assert_finite(functions: Derivatives, state: Any, inputs: Any) -> None:
    """All derivatives are numbers."""
    value, slope = functions.forward(state, inputs, jax.tree.map(jnp.ones_like, functions.zero))
    back = functions.backward(state, inputs, jnp.ones_like(value))
    for leaf in jax.tree.leaves((value, slope, back)):
        assert np.all(np.isfinite(leaf))
