"""Nearest points of triangles, and on which side of them points are.

The part of a triangle (corner, edge or inside) that is nearest follows from the signs of dot products.
Source: Ericson, "Real-time collision detection", 5.1.5. Where parts of several triangles are equally near, rounding
decides between them: sums are in the order of `pointTriDistSqWithUV` of user_objects.cc (MuJoCo 3.8.1).
"""

from typing import NamedTuple

import numpy as np

from diffsim.mjcf.files.surface import cross_product

Array = np.ndarray

# part of the greatest height that it could have, below which a point is not outside
OUTSIDE = 1e-12

# the parts of a triangle, in the order in which they are asked for
A, B, AB, C, AC, BC, INSIDE = range(7)


class Nearest(NamedTuple):
    """Squared distances (k,), m^2, and shares (k,) of the second and third corner in the nearest points.

    Infinitely far where two corners are one and the point lies beside the side that is left, as in MuJoCo.
    """

    squared: Array
    second: Array
    third: Array


def nearest(point: Array, triangle: Array) -> Nearest:
    """Of each of some points (k, 3) on its triangle (k, 3, 3)."""
    a, b, c = (triangle[:, k] for k in range(3))
    ab, ac = b - a, c - a
    part, second, third = _parts(*(dot(side, point - corner) for corner in (a, b, c) for side in (ab, ac)))
    off = point - (a + second[:, None] * ab + third[:, None] * ac)
    # from the corner from which the part starts
    on_bc, at_b, at_c = (part == place for place in (BC, B, C))
    off[on_bc] = point[on_bc] - (b[on_bc] + third[on_bc, None] * (c - b)[on_bc])
    off[at_b], off[at_c] = point[at_b] - b[at_b], point[at_c] - c[at_c]
    squared = dot(off, off)
    return Nearest(np.where(np.isnan(squared), np.inf, squared), second, third)


def _parts(d1: Array, d2: Array, d3: Array, d4: Array, d5: Array, d6: Array) -> tuple[Array, Array, Array]:
    """Number (k,) of the nearest part, and shares of the second and third corner.

    Of products of both sides from the first corner with the ways from it, from the second, and from the third.
    """
    va, vb, vc = d3 * d6 - d5 * d4, d5 * d2 - d1 * d6, d1 * d4 - d3 * d2
    parts = {
        A: (d1 <= 0) & (d2 <= 0),
        B: (d3 >= 0) & (d4 <= d3),
        AB: (vc <= 0) & (d1 >= 0) & (d3 <= 0),
        C: (d6 >= 0) & (d5 <= d6),
        AC: (vb <= 0) & (d2 >= 0) & (d6 <= 0),
        BC: (va <= 0) & (d4 - d3 >= 0) & (d5 - d6 >= 0),
    }
    part = np.select(list(parts.values()), list(parts), INSIDE)
    zero, one = np.zeros(len(part)), np.ones(len(part))
    with np.errstate(divide="ignore", invalid="ignore"):
        whole, on_bc = 1.0 / (va + vb + vc), (d4 - d3) / ((d4 - d3) + (d5 - d6))
        second = zero, one, d1 / (d1 - d3), zero, zero, 1 - on_bc, vb * whole
        third = zero, zero, zero, one, d2 / (d2 - d6), on_bc, vc * whole
    return part, np.choose(part, second), np.choose(part, third)


def outside(point: Array, triangle: Array, near: Nearest) -> Array:
    """Whether points (k, 3) are before their triangles (k, 3, 3), whose nearest points are given."""
    a = triangle[:, 0]
    ab, ac = triangle[:, 1] - a, triangle[:, 2] - a
    normal = cross_product(ab, ac)
    off = point - (a + near.second[:, None] * ab + near.third[:, None] * ac)
    return dot(off, normal) > OUTSIDE * np.sqrt(dot(normal, normal)) * np.sqrt(near.squared)


def dot(a: Array, b: Array) -> Array:
    """a . b over the last axis, term by term."""
    return a[..., 0] * b[..., 0] + a[..., 1] * b[..., 1] + a[..., 2] * b[..., 2]
