"""Fluid interaction coefficients of a geom with fluidshape="ellipsoid": geom_fluid [12].

The geom is taken as an ellipsoid; the added (virtual) mass and inertia follow from the kappa integrals of potential
flow, done by Gauss-Kronrod quadrature on [0, inf) with l = x^3 / (1 - x)^2. Host only, once per geom.
Source: MuJoCo "Computation", fluid forces, ellipsoid model; Lamb 1932, art. 114 and 115.
"""

from math import pi

import numpy as np

from diffsim.base.enums import GeomType
from diffsim.mjcf.orientation import TINY

Vector = np.ndarray

_HALF_NODES = np.array(
    [
        0.991455371120812639, 0.949107912342758525, 0.864864423359769073, 0.741531185599394440,
        0.586087235467691130, 0.405845151377397167, 0.207784955007898468,
    ]
)  # fmt: skip
_HALF_WEIGHTS = np.array(
    [0.01146766, 0.03154605, 0.05239501, 0.07032663, 0.08450236, 0.09517529, 0.10221647]
)  # fmt: skip
_NODES = (1 + np.concatenate([-_HALF_NODES, [0.0], _HALF_NODES[::-1]])) / 2
_WEIGHTS = np.concatenate([_HALF_WEIGHTS, [0.10474107], _HALF_WEIGHTS[::-1]])
_LENGTHS = _NODES**3 / (1 - _NODES) ** 2
_SLOPES = _NODES**2 * (3 - _NODES) / (1 - _NODES) ** 3


def semiaxes(kind: GeomType, size: Vector) -> Vector:
    """Half axes of the equivalent ellipsoid."""
    if kind == GeomType.SPHERE:
        return np.full(3, size[0])
    if kind == GeomType.CAPSULE:
        return np.array([size[0], size[0], size[0] + size[1]])
    if kind == GeomType.CYLINDER:
        return np.array([size[0], size[0], size[1]])
    return size.copy()


def _kappa(a: float, b: float, c: float) -> float:
    """a b c times the integral over l of 1 / sqrt((a^2 + l)^3 (b^2 + l) (c^2 + l)), made dimensionless."""
    scale = (a**3 * b * c) ** 0.4
    along, side, other = (1 + scale * _LENGTHS / x**2 for x in (a, b, c))
    return float(np.sum(scale * _SLOPES * _WEIGHTS / (along * np.sqrt(along * side * other)))) / a**2


def fluid_coefficients(kind: GeomType, size: Vector, drag: Vector) -> Vector:
    """(1, the five drag and lift coefficients, virtual mass [3], virtual inertia [3])."""
    axes = semiaxes(kind, size)
    x, y, z = axes
    kappa = np.array([_kappa(x, y, z), _kappa(y, z, x), _kappa(z, x, y)])
    volume = 4.0 / 3.0 * pi * x * y * z
    square = axes**2
    following, last = np.roll(square, -1), np.roll(square, -2)
    difference, total = following - last, following + last
    spread = np.roll(kappa, -2) - np.roll(kappa, -1)
    factor = difference**2 * np.abs(spread) / np.maximum(TINY, np.abs(2 * difference - total * spread))
    mass = volume * kappa / np.maximum(TINY, 2 - kappa)
    return np.concatenate([[1.0], drag, mass, volume * factor / 5])
