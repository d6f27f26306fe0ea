"""Functions with finite values and finite derivatives everywhere.

The pattern is the double `where`: replace the argument at which the derivative is infinite, compute, then select. One
`where` around an unsafe division does not help, because the unselected branch still gives inf * 0 in the backward pass.
At the singular point the result is a constant, so its derivative is zero.
"""

import jax
import jax.numpy as jnp
from jax import Array

from diffsim.math.vector import dot, scale

# the largest magnitude of a valid position, velocity, acceleration or control, in its unit (mjMAXVAL)
BAD = 1e10


def is_bad(values: Array) -> Array:
    """() whether any element is NaN, infinite or beyond `BAD`."""
    return ~jnp.all(jnp.abs(values) <= jnp.asarray(BAD, values.dtype))


def tiny(x: Array) -> Array:
    """The smallest square that counts as nonzero in the dtype of x.

    The second derivative of a square root contains its power -3/2, which must be finite.
    """
    return jnp.asarray(1e-20 if x.dtype == jnp.float32 else 1e-150, x.dtype)


def tiny_divisor(x: Array) -> Array:
    """The smallest divisor that counts as nonzero in the dtype of x.

    Derivatives of quotients contain its power -2, which must be finite.
    """
    return jnp.asarray(1e-15 if x.dtype == jnp.float32 else 1e-100, x.dtype)


def sqrt(x: Array) -> Array:
    """Square root; 0, with derivative 0, for x up to `tiny`."""
    positive = x > tiny(x)
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, x, 1)), 0)


def divide(numerator: Array, denominator: Array, fallback: float = 0.0) -> Array:
    """numerator / denominator, and `fallback` where the denominator is zero or tiny."""
    valid = jnp.abs(denominator) > tiny_divisor(denominator)
    return jnp.where(valid, numerator / jnp.where(valid, denominator, 1), fallback)


def norm(v: Array) -> Array:
    """Euclidean length over the last axis; derivative 0 at the zero vector."""
    return sqrt(dot(v, v))


def normalize(v: Array, fallback: tuple[float, ...] | None = None) -> Array:
    """v / |v| over the last axis; where v is zero, `fallback` (by default the first axis), with zero derivative.

    As in MuJoCo (mju_normalize3), a vector shorter than 1e-15 counts as zero; in float32, shorter than 1e-10.
    """
    squared = dot(v, v)
    valid = squared > (tiny(v) if v.dtype == jnp.float32 else 1e-30)
    unit = scale(v, jax.lax.rsqrt(jnp.where(valid, squared, 1)))
    constant = jnp.asarray(fallback or (1.0,) + (0.0,) * (v.shape[-1] - 1), v.dtype)
    return jnp.where(valid[..., None], unit, jnp.broadcast_to(constant, v.shape))


def arctan2(y: Array, x: Array) -> Array:
    """arctan2 with value and derivative 0 at the origin."""
    valid = x * x + y * y > tiny(x)
    return jnp.where(valid, jnp.arctan2(y, jnp.where(valid, x, 1)), 0)


def maximum(x: Array | float, y: Array | float) -> Array:
    """The greater of two numbers, with its derivative, or the derivative of x if they are equal; nan if one is nan.

    `jnp.maximum` is not safe here: its derivative compares x and y with the result, and XLA for CPU may compute x and y
    again for this comparison with different rounding. Then neither equals the result, and the derivative is zero.
    """
    x = jnp.asarray(x)
    y = jnp.asarray(y)
    return jnp.where((x >= y) | jnp.isnan(x), x, y)


def minimum(x: Array | float, y: Array | float) -> Array:
    """The smaller of two numbers, with derivatives as in `maximum`."""
    x = jnp.asarray(x)
    y = jnp.asarray(y)
    return jnp.where((x <= y) | jnp.isnan(x), x, y)


def greater(x: Array, y: Array) -> Array:
    """The greater of two numbers; if they are equal, the derivative is the mean of theirs."""
    return jnp.where(x == y, 0.5 * (x + y), maximum(x, y))


def lesser(x: Array, y: Array) -> Array:
    """The smaller of two numbers, with derivatives as in `greater`."""
    return jnp.where(x == y, 0.5 * (x + y), minimum(x, y))


def clip(x: Array, lower: Array | float, upper: Array | float) -> Array:
    """min(max(x, lower), upper), with derivative 0 outside the bounds, and 1 inside and on them (not 1/2)."""
    return jnp.where(x < lower, lower, jnp.where(x > upper, upper, x))
