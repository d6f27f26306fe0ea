"""Rotations: unit quaternions (w, x, y, z), rotation matrices, rotation vectors.

Exponential and logarithm use series near zero, so values and derivatives are finite at the identity.
"""

import jax
import jax.numpy as jnp

from diffsim.math import safe
from diffsim.math.quaternion import left_conjugated
from diffsim.math.quaternion import product as _product
from diffsim.math.vector import Components, cross, cross_components, dot, dot_components, pack, scale, unpack
from diffsim.xla.barriers import stored
from diffsim.xla.where import where

Array = jax.Array


def quat_mul(p: Array, q: Array) -> Array:
    """Hamilton product p q: first q, then p."""
    return _product(p, q)


def quat_conj(q: Array) -> Array:
    """Inverse of a unit quaternion."""
    return q * jnp.asarray([1, -1, -1, -1], q.dtype).reshape((1,) * (q.ndim - 1) + (4,))


def rotate(q: Array, v: Array) -> Array:
    """v rotated by the unit quaternion q: v + 2 w (u x v) + 2 u x (u x v)."""
    w, u = q[..., :1], q[..., 1:]
    t = 2 * cross(u, v)
    return v + w * t + cross(u, t)


def rotate_inv(q: Array, v: Array) -> Array:
    """v rotated by the inverse of the unit quaternion q."""
    return rotate(quat_conj(q), v)


def quat_normalize(q: Array) -> Array:
    """Unit quaternion along q; the identity where q is zero. Derivatives are projected to the tangent space."""
    return safe.normalize(q, (1.0, 0.0, 0.0, 0.0))


def quat_to_mat(q: Array) -> Array:
    """Rotation matrix (..., 3, 3) of a unit quaternion."""
    w, x, y, z = unpack(q)
    ww, xx, yy, zz = w * w, x * x, y * y, z * z
    entries = [
        *(ww + xx - yy - zz, 2 * (x * y - w * z), 2 * (x * z + w * y)),
        *(2 * (x * y + w * z), ww - xx + yy - zz, 2 * (y * z - w * x)),
        *(2 * (x * z - w * y), 2 * (y * z + w * x), ww - xx - yy + zz),
    ]
    return pack(entries).reshape(*w.shape, 3, 3)


def axis_angle_to_quat(axis: Array, angle: Array) -> Array:
    """Rotation by `angle` (rad) about the unit vector `axis`."""
    half = 0.5 * angle
    return jnp.concatenate([jnp.cos(half)[..., None], scale(axis, jnp.sin(half))], axis=-1)


def quat_exp(rotvec: Array) -> Array:
    """Unit quaternion of a rotation vector: (cos(t/2), sin(t/2) rotvec / t), t = |rotvec|."""
    squared = dot(rotvec, rotvec)
    # below the threshold the series is exact to rounding, and smooth in the square
    large = squared > 1e-3
    half = 0.5 * jnp.sqrt(where(large, squared, 1))
    cosine = where(large, jnp.cos(half), 1 - squared / 8 + squared**2 / 384 - squared**3 / 46080)
    sinc = where(
        large,
        0.5 * jnp.sin(half) / half,
        0.5 * (1 - squared / 24 + squared**2 / 1920 - squared**3 / 322560),
    )
    return jnp.concatenate([cosine[..., None], scale(rotvec, sinc)], axis=-1)


def quat_log(q: Array) -> Array:
    """Rotation vector of a unit quaternion, in the ball |r| <= pi (the shorter way round)."""
    # q and -q are one rotation: take the half with w >= 0
    q = where(jax.lax.stop_gradient(q[..., :1]) < 0, -q, q)
    w, u = q[..., 0], q[..., 1:]
    squared = dot(u, u)
    large = squared > 1e-6
    length = jnp.sqrt(where(large, squared, 1))
    # atan(s / w) / s = 1/w - s^2 / (3 w^3) + s^4 / (5 w^5) for small s, where w is near 1
    safe_w = where(large, 1, w)
    inverse = 1 / safe_w
    series = inverse * (1 - squared * inverse**2 / 3 + squared**2 * inverse**4 / 5)
    ratio = where(large, jnp.arctan2(length, w) / length, series)
    return scale(u, 2 * ratio)


def quat_sub(a: Array, b: Array) -> Array:
    """Rotation vector, in the frame of b, that takes b to a: log(b^-1 a)."""
    return quat_log(quat_mul(quat_conj(b), a))


def quat_integrate(q: Array, omega: Array, dt: Array) -> Array:
    """q after rotating with the local angular velocity omega (rad/s) for dt: q exp(omega dt)."""
    return quat_normalize(quat_mul(q, quat_exp(scale(omega, jnp.broadcast_to(dt, omega.shape[:-1])))))


def quat_rate(q: Array, change: Array) -> Array:
    """Local angular velocity of the rotation along q as q changes: 2 (q* change) / |q|^2 without its real part.

    Zero where q is zero, as the derivative of `quat_normalize`.
    """
    squared = dot(q, q)
    valid = squared > safe.tiny(q)
    return scale(left_conjugated(q, change)[..., 1:], where(valid, 2 / where(valid, squared, 1), 0))


def frame_from_z(z: Array) -> Array:
    """Right-handed orthonormal matrix (..., 3, 3) with rows z and two tangents, the first from the axis far from z."""
    return frame_along(unpack(z), unpack(axis_far_from(z)))


def axis_far_from(z: Array) -> Array:
    """The y axis, or the z axis where |z_y| >= 0.5: a discrete choice, which is not differentiated."""
    steep = jnp.abs(jax.lax.stop_gradient(z[..., 1])) >= 0.5
    zero, one = jnp.zeros_like(z[..., 0]), jnp.ones_like(z[..., 0])
    return pack([zero, where(steep, zero, one), where(steep, one, zero)])


def frame_along(z: Components, wish: Components) -> Array:
    """Right-handed orthonormal matrix (..., 3, 3) with rows z, the direction of `wish` across z, and their product.

    Of components. A wish along z leaves no direction: the second row is the y axis then, with no derivative.
    """
    part = across(z, wish)
    squared = dot_components(part, part)
    valid = squared > safe.tiny(squared)
    shrink = stored(jax.lax.rsqrt(where(valid, squared, 1)))
    first = [where(valid, x * shrink, instead) for x, instead in zip(part, (0.0, 1.0, 0.0), strict=True)]
    return jnp.stack([pack(row) for row in (z, first, cross_components(z, first))], axis=-2)


def across(z: Components, wish: Components) -> list[Array]:
    """The part of `wish` that is normal to the unit vector z, on components."""
    along = stored(dot_components(z, wish))
    return [x - along * n for x, n in zip(wish, z, strict=True)]
