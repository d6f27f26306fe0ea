"""Products of quaternions (w, x, y, z) as single operations, with a factor conjugated or not.

The three are each other's transposes: <p q, c> = <p, c q*> = <q, p* c>, of any quaternions.
"""

import jax

from diffsim.math.vector import Components, pack, unpack
from diffsim.xla.bilinear import Rule, bilinear

Array = jax.Array


def product(p: Array, q: Array) -> Array:
    """Hamilton product p q."""
    return _product(p, q)


def right_conjugated(p: Array, q: Array) -> Array:
    """p q*."""
    return _right_conjugated(p, q)


def left_conjugated(p: Array, q: Array) -> Array:
    """p* q."""
    return _left_conjugated(p, q)


def _multiplied(p: Components, q: Components) -> Array:
    (pw, px, py, pz), (qw, qx, qy, qz) = p, q
    return pack(
        [
            pw * qw - px * qx - py * qy - pz * qz,
            pw * qx + px * qw + py * qz - pz * qy,
            pw * qy - px * qz + py * qw + pz * qx,
            pw * qz + px * qy - py * qx + pz * qw,
        ]
    )


def _conjugated(q: Array) -> Components:
    w, *u = unpack(q)
    return [w, *(-x for x in u)]


_product = bilinear(
    "quaternion_product",
    Rule(
        lambda p, q: _multiplied(unpack(p), unpack(q)),
        4,
        left=lambda c, q: right_conjugated(c, q),
        right=lambda c, p: left_conjugated(p, c),
    ),
)
_right_conjugated = bilinear(
    "quaternion_product_right_conjugated",
    Rule(
        lambda p, q: _multiplied(unpack(p), _conjugated(q)),
        4,
        left=lambda c, q: product(c, q),
        right=lambda c, p: left_conjugated(c, p),
    ),
)
_left_conjugated = bilinear(
    "quaternion_product_left_conjugated",
    Rule(
        lambda p, q: _multiplied(_conjugated(p), unpack(q)),
        4,
        left=lambda c, q: right_conjugated(q, c),
        right=lambda c, p: product(p, c),
    ),
)
