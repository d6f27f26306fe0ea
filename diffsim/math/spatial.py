"""Spatial (6D) vectors, rotation first, and rigid-body inertias as 10 numbers.

Motion is (angular, linear), force is (torque, force), both world-oriented at the centre of mass of the kinematic tree.
An inertia is (Ixx, Iyy, Izz, Ixy, Ixz, Iyz, m cx, m cy, m cz, m) about that point. Featherstone 2008, ch. 2.
"""

import jax
import jax.numpy as jnp

from diffsim.math.vector import cross, pack, scale

Array = jax.Array


def join(rotation: Array, translation: Array) -> Array:
    """(..., 6) from its two halves."""
    return jnp.concatenate([rotation, translation], axis=-1)


def cross_motion(v: Array, m: Array) -> Array:
    """v x m: rate of change of a motion vector m that moves with velocity v."""
    w, u = v[..., :3], v[..., 3:]
    return join(cross(w, m[..., :3]), cross(w, m[..., 3:]) + cross(u, m[..., :3]))


def cross_force(v: Array, f: Array) -> Array:
    """v x* f: rate of change of a force vector f that moves with velocity v."""
    w, u = v[..., :3], v[..., 3:]
    return join(cross(w, f[..., :3]) + cross(u, f[..., 3:]), cross(w, f[..., 3:]))


def inertia_mul(inertia: Array, v: Array) -> Array:
    """I v: momentum (angular, linear) of a body with inertia (..., 10) that moves with velocity (..., 6)."""
    xx, yy, zz, xy, xz, yz = (inertia[..., i] for i in range(6))
    moment, mass = inertia[..., 6:9], inertia[..., 9]
    w, u = v[..., :3], v[..., 3:]
    rotated = pack(
        [
            xx * w[..., 0] + xy * w[..., 1] + xz * w[..., 2],
            xy * w[..., 0] + yy * w[..., 1] + yz * w[..., 2],
            xz * w[..., 0] + yz * w[..., 1] + zz * w[..., 2],
        ]
    )
    return join(rotated + cross(moment, u), scale(u, mass) - cross(moment, w))


def transport_force(force: Array, offset: Array) -> Array:
    """A wrench (torque, force) acting at a point, taken to the point that lies `offset` before it: torque + offset x force."""
    return join(force[..., :3] + cross(offset, force[..., 3:]), force[..., 3:])


def transport_motion(motion: Array, offset: Array) -> Array:
    """A velocity (angular, linear) of a point, at the point that lies `offset` further on: linear + angular x offset."""
    return join(motion[..., :3], motion[..., 3:] + cross(motion[..., :3], offset))
