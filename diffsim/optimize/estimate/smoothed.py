"""Functions averaged over noise, E f(x + sigma z) with z standard normal: smooth where f itself jumps or is flat.

Two estimates of the gradient of the average, from the same antithetic pairs x +- sigma z:

    order 1, pathwise        mean of (grad f(x + sigma z) + grad f(x - sigma z)) / 2       little noise; blind to jumps
    order 0, score function  mean of z (f(x + sigma z) - f(x - sigma z)) / (2 sigma)       sees jumps; noisy

"mixed" weights them by the inverse of their variances if their difference can be explained by chance. Otherwise f jumps
between samples (contacts begin, friction slips). Order 1 does not include these jumps, so order 0 is used alone.

Sources: Parmas et al. 2018, "PIPPS"; Suh et al. 2022, "Do differentiable simulators give better policy gradients?"
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.flatten_util import ravel_pytree

from diffsim.math import safe
from diffsim.math.vector import inner

Order = Literal[0, 1, "mixed"]
Function = Callable[[Any], Array]

# two estimates agree if they differ by no more than this number of standard errors
AGREE = 3.0


class Estimate(NamedTuple):
    """A gradient (n,) with respect to x flattened, and the variance (n,) of the estimate."""

    mean: Array
    variance: Array


class Samples(NamedTuple):
    """Noise z (samples, n), its scale sigma (n,), and f (samples,) at x + sigma z and at x - sigma z."""

    noise: Array
    sigma: Array
    plus: Array
    minus: Array


def smoothed(f: Function, sigma: Any, samples: int = 32, order: Order = "mixed") -> Callable[[Any, Array], Array]:
    """Averages f over normal noise. The derivative of the average, in either mode, is an estimate of a given order.

        average = optimize.smoothed(loss, sigma=0.05, samples=64)
        value, gradient = jax.value_and_grad(average)(x, jax.random.key(0))

    Args:
      f: x -> scalar, with x a pytree of floats. Derivatives with respect to closed-over values are not defined.
      sigma: standard deviation of the noise, in the units of x: a number, or a pytree of numbers or arrays like x.
      samples: number of pairs x + sigma z, x - sigma z; two or more.
      order: 0, 1 or "mixed". Order 0 takes no derivative of f.

    Returns:
      (x, key) -> scalar, with `key` from `jax.random.key`. Equal keys give equal noise (common random numbers), so that
      values can be compared.

    Raises:
      ValueError: another order, or fewer than two samples.
    """
    if order not in ESTIMATORS:
        raise ValueError(f"order is {order!r}, expected 0, 1 or 'mixed'")
    if samples < 2:
        raise ValueError(f"samples is {samples}, expected 2 or more: the variance of the estimate needs them")

    @jax.custom_jvp
    def average(x: Any, key: Array) -> Array:
        return _mean_value(sample(f, x, key, sigma, samples))

    @average.defjvp
    def derivative(primals: tuple[Any, Array], tangents: tuple[Any, Any]) -> tuple[Array, Array]:
        x, key = primals
        drawn = sample(f, x, key, sigma, samples)
        slope = ESTIMATORS[order](f, x, drawn).mean
        return _mean_value(drawn), inner(slope, ravel_pytree(tangents[0])[0])

    return lambda x, key: average(jax.tree.map(jnp.asarray, x), key)


def sample(f: Function, x: Any, key: Array, sigma: Any, samples: int) -> Samples:
    """Samples of f on both sides of x; equal keys give equal noise."""
    flat, unflatten = ravel_pytree(x)
    if jax.tree.structure(sigma) == jax.tree.structure(x):
        sigma = jax.tree.map(lambda s, leaf: jnp.broadcast_to(jnp.asarray(s, leaf.dtype), leaf.shape), sigma, x)
        width = ravel_pytree(sigma)[0]
    else:
        width = jnp.broadcast_to(jnp.asarray(sigma, flat.dtype), flat.shape)
    noise = jax.random.normal(key, (samples, flat.size), flat.dtype)
    values = jax.vmap(lambda move: f(unflatten(flat + move)))
    moves = width[None] * noise
    # one program for both sides
    both = values(jnp.concatenate([moves, -moves]))
    return Samples(noise, width, both[:samples], both[samples:])


def pathwise(f: Function, x: Any, drawn: Samples) -> Estimate:
    """The estimate of order 1: the mean of the gradients of f."""
    flat, unflatten = ravel_pytree(x)
    moves = drawn.sigma[None] * drawn.noise
    slopes = jax.vmap(jax.grad(lambda move: f(unflatten(flat + move))))(jnp.concatenate([moves, -moves]))
    plus, minus = jnp.split(slopes, 2)
    return _over_pairs(0.5 * (plus + minus))


def score(f: Function, x: Any, drawn: Samples) -> Estimate:
    """The estimate of order 0: the mean of the noise times the difference of f that it causes."""
    per_unit = safe.divide(drawn.noise, jnp.broadcast_to(2 * drawn.sigma[None], drawn.noise.shape))
    return _over_pairs(per_unit * (drawn.plus - drawn.minus)[:, None])


def mixed(f: Function, x: Any, drawn: Samples) -> Estimate:
    """The mean of both orders, weighted by inverse variances; order 0 alone if they disagree."""
    first, zeroth = pathwise(f, x, drawn), score(f, x, drawn)
    total = first.variance + zeroth.variance
    weight = safe.divide(zeroth.variance, total, 1.0)
    mean = weight * first.mean + (1 - weight) * zeroth.mean
    variance = weight * first.variance
    agree = jnp.linalg.norm(first.mean - zeroth.mean) <= AGREE * safe.sqrt(jnp.sum(total))
    return Estimate(jnp.where(agree, mean, zeroth.mean), jnp.where(agree, variance, zeroth.variance))


ESTIMATORS: dict[Any, Callable[[Function, Any, Samples], Estimate]] = {0: score, 1: pathwise, "mixed": mixed}


def _mean_value(drawn: Samples) -> Array:
    return jnp.mean(0.5 * (drawn.plus + drawn.minus))


def _over_pairs(parts: Array) -> Estimate:
    """Mean over samples (axis 0), and the variance of that mean."""
    return Estimate(jnp.mean(parts, axis=0), jnp.var(parts, axis=0, ddof=1) / parts.shape[0])
