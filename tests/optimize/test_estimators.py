"""Smoothed gradients, and what is said of gradients that cannot be trusted."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diffsim import optimize


def smooth(x: jax.Array) -> jax.Array:
    return jnp.sum(jnp.sin(x)) + x[0] * x[1]


def jumps(x: jax.Array) -> jax.Array:
    """Flat but for a step at 0 along the first axis."""
    return jnp.where(x[0] > 0, 1.0, 0.0) + 0.1 * x[1]


def of(f, sigma, order, samples=4096):
    return jax.jit(jax.value_and_grad(optimize.smoothed(f, sigma, samples, order)))


@pytest.mark.parametrize("order", [0, 1, "mixed"])
def test_gradients_of_averages(order) -> None:
    x, sigma = jnp.asarray([0.3, -0.5, 1.0]), 0.4
    value, slope = of(smooth, sigma, order)(x, jax.random.key(0))
    # E sin(x + s z) = sin(x) exp(-s^2 / 2)
    damped = np.exp(-(sigma**2) / 2)
    expected = damped * np.cos(x) + np.asarray([x[1], x[0], 0])
    assert float(value) == pytest.approx(float(damped * jnp.sum(jnp.sin(x)) + x[0] * x[1]), abs=0.01)
    np.testing.assert_allclose(slope, expected, atol=0.08 if order == 0 else 0.02)


def test_only_differences_see_jumps() -> None:
    x, sigma = jnp.asarray([0.1, 0.0]), 0.2
    density = np.exp(-0.5 * (0.1 / sigma) ** 2) / (sigma * np.sqrt(2 * np.pi))
    for order, expected in ((0, density), (1, 0.0), ("mixed", density)):
        slope = of(jumps, sigma, order)(x, jax.random.key(1))[1]
        assert float(slope[0]) == pytest.approx(expected, abs=0.15), order
        assert float(slope[1]) == pytest.approx(0.1, abs=0.05)


def test_worlds_with_a_key_see_the_same_noise() -> None:
    average = optimize.smoothed(lambda tree: jnp.sum(tree["a"] ** 2), {"a": 0.1}, 8, 0)
    worlds = {"a": jnp.ones((3, 2))}
    values = jax.vmap(average, in_axes=(0, None))(worlds, jax.random.key(0))
    assert np.unique(np.asarray(values)).size == 1
    slope = jax.jvp(lambda x: average(x, jax.random.key(0)), ({"a": jnp.ones(2)},), ({"a": jnp.ones(2)},))[1]
    gradient = jax.grad(average)({"a": jnp.ones(2)}, jax.random.key(0))
    assert float(slope) == pytest.approx(float(jnp.sum(gradient["a"])))
    # a function closed over something batched
    many = jax.vmap(lambda c: jax.grad(optimize.smoothed(lambda x: c * x, 0.1, 4, 1))(1.0, jax.random.key(0)))
    np.testing.assert_allclose(many(jnp.arange(3.0)), np.arange(3.0), atol=1e-12)
    with pytest.raises(ValueError, match="expected 0, 1 or 'mixed'"):
        optimize.smoothed(smooth, 0.1, 8, 2)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="2 or more"):
        optimize.smoothed(smooth, 0.1, 1)


def test_a_good_gradient_is_trusted() -> None:
    found = optimize.diagnose(smooth, jnp.asarray([0.3, -0.5, 1.0]), reach=0.05)
    assert found.trust and found.advice.startswith("Trust it: over changes up to 0.05")
    assert found.holds == 0.05 and str(found).count("\n") == 5
    np.testing.assert_allclose(found.differences[:, 2], found.slopes, rtol=1e-6)


CASES = {
    "flat here": (lambda x: jnp.maximum(x[0] - 0.1, 0.0) * 3, "the loss is flat here"),
    "not differentiated": (lambda x: 3 * jax.lax.stop_gradient(x[1]) + x[0], "not the derivative of this loss"),
    "not finite": (lambda x: jnp.sqrt(x[0] - 5), "not finite"),
    "a kink ahead": (lambda x: x[0] - 4 * jnp.maximum(x[0] - 0.01, 0.0), "Trust it over changes up to"),
    "crooked": (lambda x: x[0] + 0.02 * jnp.sin(200 * x[0]), "Trust it over changes up to"),
}


@pytest.mark.parametrize("case", CASES)
def test_bad_gradients_are_told(case: str) -> None:
    loss, words = CASES[case]
    found = optimize.diagnose(loss, jnp.zeros(2), reach=0.5)
    assert not found.trust and words in found.advice, found
