"""The signed distance field of a spur gear with involute teeth, extruded along z.

Parameters (5,): angle `alpha` (rad), pitch diameter (m), number of teeth, thickness (m), inner diameter (m; below 0 for
that of the rule). Source: shadertoy 3lG3WR; gear.cc of MuJoCo's sdf plugins (3.8.1), whose pressure angle follows
from the number of teeth by a fitted parabola.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from diffsim.math import safe
from diffsim.math.vector import pack, unpack

Array = jax.Array

# inside of the hole, and this far outside of the tips (m), the teeth are not looked at
FAR = 0.2
NOTHING = -1e6


class Gear(NamedTuple):
    """Radii, m: of pitch, base and tips of the teeth, of their feet, of the hole; tooth to tooth and its part, rad."""

    pitch: Array
    base: Array
    tip: Array
    foot: Array
    hole: Array
    stride: Array
    shift: Array


def gear_distance(parameters: Array, point: Array) -> Array:
    """Signed distance (...), m, of points (..., 3)."""
    flat = _outline(parameters, point)
    ends = jnp.abs(point[..., 2]) - parameters[3] / 2
    return safe.minimum(safe.maximum(flat, ends), 0) + safe.norm(pack([safe.maximum(flat, 0), safe.maximum(ends, 0)]))


def gear_half_sides(parameters: Array) -> list[Array]:
    """Half sides, m, of the box that is looked at for the surface."""
    across = parameters[1] / 2 * 1.25
    return [across, across, parameters[3] / 2 * 1.1]


def _gear(parameters: Array) -> Gear:
    diameter, teeth = parameters[1], parameters[2]
    addendum = diameter / teeth
    pressure = 3.096e-5 * teeth * teeth - 6.557e-3 * teeth + 0.551
    pitch, tip = diameter / 2, diameter / 2 + addendum
    foot = tip - 2.2 * addendum
    hole = jnp.where(parameters[4] >= 0, parameters[4] / 2, foot - 0.14 * diameter)
    stride = 2 * jnp.pi / teeth
    return Gear(pitch, pitch * jnp.cos(pressure), tip, foot, hole, stride, stride / 2 - 2 * _involute(pressure))


def _involute(angle: Array) -> Array:
    """inv(a) = tan a - a."""
    return jnp.tan(angle) - angle


def _outline(parameters: Array, point: Array) -> Array:
    """Signed distance in the plane of the gear."""
    gear = _gear(parameters)
    x, y, _ = unpack(point)
    radius, angle = safe.norm(pack([x, y])), safe.arctan2(y, x) + parameters[0]
    teeth = _teeth(gear, radius, angle, 0.0035 * parameters[1])
    outside = jnp.where(gear.tip - radius < -FAR, radius - gear.tip, teeth)
    return jnp.where(gear.hole > radius, gear.hole - radius, outside)


def _teeth(gear: Gear, radius: Array, angle: Array, rounding: Array) -> Array:
    """Teeth between two involutes, cut off at the tips, on a disk with a hole."""
    half = gear.shift / 2
    first = _modulo(angle + half, gear.stride) - half
    second = _modulo(-angle - half, gear.stride) - half
    flanks = safe.maximum(_involute_distance(gear, radius, first), _involute_distance(gear, radius, second))
    gap = gear.stride - gear.shift
    teeth = safe.maximum(safe.maximum(first - gap, second - gap), flanks)
    teeth = _smooth_intersection(radius - gear.tip, teeth, rounding)
    teeth = _smooth_union(radius - gear.foot, teeth, gear.base - gear.foot)
    return safe.maximum(teeth, gear.hole - radius)


def _involute_distance(gear: Gear, radius: Array, angle: Array) -> Array:
    """Distance from an involute of the base circle at polar coordinates; far inside below that circle."""
    outside = radius > gear.base
    tangent = safe.sqrt(jnp.where(outside, radius * radius - gear.base * gear.base, 0))
    unrolled = angle + jnp.arctan2(tangent, gear.base)
    return jnp.where(outside, tangent - gear.base * unrolled, NOTHING)


def _modulo(x: Array, period: Array) -> Array:
    return x - period * jnp.floor(x / period)


def _smooth_union(a: Array, b: Array, width: Array) -> Array:
    share = safe.clip(0.5 + 0.5 * (b - a) / width, 0.0, 1.0)
    return b * (1 - share) + a * share - width * share * (1 - share)


def _smooth_intersection(a: Array, b: Array, width: Array) -> Array:
    apart = _smooth_union(safe.maximum(a, -b), safe.maximum(b, -a), width)
    return safe.maximum(safe.maximum(a, b), -apart)
