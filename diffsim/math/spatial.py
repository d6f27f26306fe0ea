"""Spatial (6D) vectors, rotation first, and rigid-body inertias as 10 numbers.

A motion vector is (angular, linear) and a force vector is (torque, force). Both are in world axes, at the center of
mass of the kinematic tree (as MuJoCo's cvel and cfrc). An inertia is (Ixx, Iyy, Izz, Ixy, Ixz, Iyz, m cx, m cy, m cz,
m) about this point. Source: Featherstone 2008, ch. 2.
"""

import jax
import jax.numpy as jnp
from jax import Array

from diffsim.math.vector import Components, cross, cross_components, dot, dot_components, matmul, pack, total, unpack
from diffsim.xla.barriers import for_cpu, stored
from diffsim.xla.bilinear import Rule, bilinear


def spatial_vector(rotation: Array, translation: Array) -> Array:
    """(..., 6) the spatial vector of a rotational and a translational half (..., 3)."""
    return jnp.concatenate([rotation, translation], axis=-1)


def _halves(v: Array) -> tuple[list[Array], list[Array]]:
    """Components of the rotation and of the translation."""
    parts = unpack(v)
    return parts[:3], parts[3:]


def _sum(a: Components, b: Components) -> list[Array]:
    """a + b, on components."""
    return [x + y for x, y in zip(a, b, strict=True)]


def cross_motion(v: Array, m: Array) -> Array:
    """(..., 6) v x m: rate of change of a motion vector m that moves with velocity v."""
    return _cross_motion(v, m)


def cross_force(v: Array, f: Array) -> Array:
    """(..., 6) v x* f: rate of change of a force vector f that moves with velocity v."""
    return _cross_force(v, f)


def inertia_mul(inertia: Array, v: Array) -> Array:
    """I v: momentum (angular, linear) of a body with inertia (..., 10) that moves with velocity (..., 6)."""
    return _inertia_mul(inertia, v)


def inertia_slope(c: Array, v: Array) -> Array:
    """The derivative (..., 10) of c . I v with respect to I, for motion vectors c and v (..., 6); symmetric in both."""
    return _inertia_slope(c, v)


def _cross_motion_formula(v: Array, m: Array) -> Array:
    """(w x rotation, w x translation + u x rotation), for v = (w, u)."""
    w, u = _halves(v)
    rotation, translation = _halves(m)
    linear = _sum(cross_components(w, translation), cross_components(u, rotation))
    return pack([*cross_components(w, rotation), *linear])


def _cross_force_formula(v: Array, f: Array) -> Array:
    """(w x torque + u x force, w x force), for v = (w, u)."""
    w, u = _halves(v)
    torque, force = _halves(f)
    angular = _sum(cross_components(w, torque), cross_components(u, force))
    return pack([*angular, *cross_components(w, force)])


def _inertia_formula(inertia: Array, v: Array) -> Array:
    """(I w + m c x u, m u - m c x w), for v = (w, u)."""
    xx, yy, zz, xy, xz, yz, *moment, mass = unpack(inertia)
    w, u = _halves(v)
    rotated = [dot_components(row, w) for row in ((xx, xy, xz), (xy, yy, yz), (xz, yz, zz))]
    angular = _sum(rotated, cross_components(moment, u))
    linear = [mass * a - b for a, b in zip(u, cross_components(moment, w), strict=True)]
    return pack([*angular, *linear])


def _inertia_slope_formula(c: Array, v: Array) -> Array:
    """The derivatives with respect to (Ixx, Iyy, Izz), (Ixy, Ixz, Iyz), m c and m, for c = (a, b) and v = (w, u)."""
    a, b = _halves(c)
    w, u = _halves(v)
    diagonal = [x * y for x, y in zip(a, w, strict=True)]
    products = [a[i] * w[j] + a[j] * w[i] for i, j in ((0, 1), (0, 2), (1, 2))]
    moment = _sum(cross_components(u, a), cross_components(b, w))
    return pack([*diagonal, *products, *moment, dot_components(b, u)])


# Each product is a primitive whose derivatives are these primitives again (xla/bilinear.py). The transposes follow from
# (v x m) . c = -m . (v x* c) and v x m = -m x v.
_cross_motion = bilinear(
    "cross_motion",
    Rule(_cross_motion_formula, 6, left=lambda c, m: cross_force(m, c), right=lambda c, v: -cross_force(v, c)),
)
_cross_force = bilinear(
    "cross_force",
    Rule(_cross_force_formula, 6, left=lambda c, f: -cross_force(c, f), right=lambda c, v: -cross_motion(v, c)),
)
_inertia_mul = bilinear(
    "inertia_product",
    Rule(_inertia_formula, 6, left=lambda c, v: inertia_slope(c, v), right=lambda c, inertia: inertia_mul(inertia, c)),
)
_inertia_slope = bilinear(
    "inertia_slope",
    Rule(
        _inertia_slope_formula,
        10,
        left=lambda change, v: inertia_mul(change, v),
        right=lambda change, c: inertia_mul(change, c),
    ),
)


def transport_force(force: Array, offset: Array) -> Array:
    """Moves a wrench (torque, force) from a point p to p - offset: (torque + offset x force, force)."""
    return spatial_vector(force[..., :3] + cross(offset, force[..., 3:]), force[..., 3:])


def transport_motion(motion: Array, offset: Array) -> Array:
    """Moves a velocity (angular, linear) from a point p to p + offset: (angular, linear + angular x offset)."""
    return spatial_vector(motion[..., :3], motion[..., 3:] + cross(motion[..., :3], offset))


@jax.custom_jvp
def pair_products(a: Array, b: Array) -> Array:
    """(m, n) dot products a_i . b_j of spatial vectors a (m, 6) and b (n, 6).

    The value is a sum of six outer products, so that XLA can fuse a mask with it. On a CPU the derivative is
    elementwise too: in reverse mode, matrix products with six columns take three times as long as sums over rows and
    columns. Elsewhere the derivative is two matrix products.
    """
    return total([x[:, None] * y[None] for x, y in zip(unpack(a), unpack(b), strict=True)])


@pair_products.defjvp
def _pair_products_jvp(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    """da_i . b_j + a_i . db_j; see `pair_products` for the two forms."""
    a, b = primals
    da, db = tangents
    if for_cpu():
        return pair_products(a, b), stored(dot(da[:, None], b[None]) + dot(a[:, None], db[None]))
    return pair_products(a, b), matmul(da, b.T) + matmul(a, db.T)
