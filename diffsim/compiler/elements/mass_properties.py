"""Volume, inertia and bounds of the primitive shapes, in numpy float64.

A row of `MASS_PROPERTIES` has what the compiler needs to know about a geom type: the number of its sizes (m), its
volume (m^3; for shells the area in m^2, where density is per area), the moments of inertia of 1 kg about its center
(m^2), its bounding radius and box (m).

The last part computes geom_fluid (12,) for fluidshape="ellipsoid". The geom is replaced by an ellipsoid, whose virtual
(added) mass and inertia follow from the kappa integrals of potential flow. They are computed by Gauss-Kronrod
quadrature on [0, inf) with the substitution l = x^3 / (1 - x)^2.
Source: MuJoCo "Modeling" (geom sizes, shellinertia) and "Computation" (fluid forces, ellipsoid model); Thomsen's
formula for the area of an ellipsoid; Lamb 1932, art. 114 and 115.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import pi, sqrt

import numpy as np

from diffsim.base.enums import GeomType
from diffsim.mjcf.orientation import TINY

Vector = np.ndarray


# exponent of Thomsen's formula for the area of an ellipsoid, which is accurate to 1%; MuJoCo's value
THOMSEN = 1.6075
# distance between the two ellipsoids that bound a thin shell, m, as in MuJoCo
SHELL_THICKNESS = 1e-6
# half width of the bounding box of a plane, m: MuJoCo's stand-in for infinity (mjMAXVAL)
PLANE_HALF_WIDTH = 1e10
# half depth of the same box, m
PLANE_HALF_DEPTH = 5e9


def _cross_sum(squares: Vector) -> Vector:
    """(b + c, a + c, a + b) of (a, b, c)."""
    return squares.sum() - squares


def _ellipsoid_area(size: Vector) -> float:
    """The area by Thomsen's formula, m^2."""
    a, b, c = size**THOMSEN
    return 4 * pi * ((a * b + b * c + c * a) / 3) ** (1 / THOMSEN)


def _ellipsoid_shell(size: Vector) -> Vector:
    """Inertia of a thin shell of 1 kg: the difference of two solid ellipsoids of the same density."""
    grown = size + SHELL_THICKNESS
    inner, outer = size.prod(), grown.prod()
    return (outer * _cross_sum(grown**2) - inner * _cross_sum(size**2)) / (5 * (outer - inner))


def _capsule_solid(size: Vector) -> Vector:
    """Inertia of a solid capsule of 1 kg along z: a cylinder and two half balls, moved by the parallel axis theorem."""
    radius = size[0]
    height = 2 * size[1]
    # fractions of the mass in the two half balls and in the cylinder
    ball = 4 * radius / (4 * radius + 3 * height)
    rod = 1 - ball
    across = rod * (3 * radius**2 + height**2) / 12 + ball * (
        2 * radius**2 / 5 + height * (3 * radius + 2 * height) / 8
    )
    along = rod * radius**2 / 2 + 2 * ball * radius**2 / 5
    return np.array([across, across, along])


def _capsule_shell(size: Vector) -> Vector:
    """Inertia of a thin shell of 1 kg in the shape of a capsule along z."""
    radius = size[0]
    height = 2 * size[1]
    # fractions of the mass in the two half spheres and in the side
    ball = 2 * radius / (2 * radius + height)
    rod = 1 - ball
    # distances of the center of mass of a hemispherical shell: from its sphere's center, and from the capsule's
    from_sphere = radius / 2
    from_capsule = size[1] + radius / 2
    across = rod * (6 * radius**2 + height**2) / 12 + ball * (2 * radius**2 / 3 + from_capsule**2 - from_sphere**2)
    along = rod * radius**2 + 2 * ball * radius**2 / 3
    return np.array([across, across, along])


def _cylinder_solid(size: Vector) -> Vector:
    """Inertia of a solid cylinder of 1 kg along z."""
    across = (3 * size[0] ** 2 + (2 * size[1]) ** 2) / 12
    return np.array([across, across, size[0] ** 2 / 2])


def _cylinder_shell(size: Vector) -> Vector:
    """Inertia of a thin shell of 1 kg in the shape of a cylinder along z, with its two end disks."""
    radius = size[0]
    height = 2 * size[1]
    # fractions of the mass in each end disk and in the side
    disk = radius / (2 * radius + 2 * height)
    side = 1 - 2 * disk
    across = side * (6 * radius**2 + height**2) / 12 + 2 * disk * (radius**2 / 4 + size[1] ** 2)
    return np.array([across, across, side * radius**2 + disk * radius**2])


def _box_shell(size: Vector) -> Vector:
    """Six thin rectangles; the pair perpendicular to axis k is at the distance size[k] from the center."""
    area = size.prod() / size
    weight = area / area.sum()
    inertia = np.zeros(3)
    for axis in range(3):
        plate = size**2 / 3
        plate[axis] = size[axis] ** 2
        inertia += weight[axis] * _cross_sum(plate)
    return inertia


@dataclass(frozen=True)
class MassProperties:
    """Mass properties and bounds of one geom type; all functions take the three sizes (m).

    Attributes:
      sizes: number of sizes.
      volume: m^3.
      solid: (3,) m^2, moments of inertia of a solid of 1 kg.
      area: m^2.
      shell: (3,) m^2, moments of inertia of a thin shell of 1 kg.
      radius: m, of the bounding sphere.
      half: (3,) m, half sizes of the bounding box.
      center: (3,) m, center of the bounding box.
    """

    sizes: int
    volume: Callable[[Vector], float]
    solid: Callable[[Vector], Vector]
    area: Callable[[Vector], float]
    shell: Callable[[Vector], Vector]
    radius: Callable[[Vector], float]
    half: Callable[[Vector], Vector]
    center: Callable[[Vector], Vector] = lambda size: np.zeros(3)


MASS_PROPERTIES: dict[GeomType, MassProperties] = {
    GeomType.PLANE: MassProperties(
        sizes=3,
        volume=lambda s: 0.0,
        solid=lambda s: np.zeros(3),
        area=lambda s: 0.0,
        shell=lambda s: np.zeros(3),
        radius=lambda s: 0.0,
        half=lambda s: np.array([PLANE_HALF_WIDTH, PLANE_HALF_WIDTH, PLANE_HALF_DEPTH]),
        center=lambda s: np.array([0.0, 0.0, -PLANE_HALF_DEPTH]),
    ),
    GeomType.SPHERE: MassProperties(
        sizes=1,
        volume=lambda s: 4 * pi * s[0] ** 3 / 3,
        solid=lambda s: np.full(3, 2 * s[0] ** 2 / 5),
        area=lambda s: 4 * pi * s[0] ** 2,
        shell=lambda s: np.full(3, 2 * s[0] ** 2 / 3),
        radius=lambda s: s[0],
        half=lambda s: np.full(3, s[0]),
    ),
    GeomType.CAPSULE: MassProperties(
        sizes=2,
        volume=lambda s: pi * (s[0] ** 2 * 2 * s[1] + 4 * s[0] ** 3 / 3),
        solid=_capsule_solid,
        area=lambda s: 4 * pi * s[0] ** 2 + 4 * pi * s[0] * s[1],
        shell=_capsule_shell,
        radius=lambda s: s[0] + s[1],
        half=lambda s: np.array([s[0], s[0], s[0] + s[1]]),
    ),
    GeomType.ELLIPSOID: MassProperties(
        sizes=3,
        volume=lambda s: 4 * pi * s.prod() / 3,
        solid=lambda s: _cross_sum(s**2) / 5,
        area=_ellipsoid_area,
        shell=_ellipsoid_shell,
        radius=lambda s: s.max(),
        half=lambda s: s.copy(),
    ),
    GeomType.CYLINDER: MassProperties(
        sizes=2,
        volume=lambda s: pi * s[0] ** 2 * 2 * s[1],
        solid=_cylinder_solid,
        area=lambda s: 2 * pi * s[0] ** 2 + 4 * pi * s[0] * s[1],
        shell=_cylinder_shell,
        radius=lambda s: sqrt(s[0] ** 2 + s[1] ** 2),
        half=lambda s: np.array([s[0], s[0], s[1]]),
    ),
    GeomType.BOX: MassProperties(
        sizes=3,
        volume=lambda s: 8 * s.prod(),
        solid=lambda s: _cross_sum(s**2) / 3,
        area=lambda s: 8 * (s.prod() / s).sum(),
        shell=_box_shell,
        radius=lambda s: sqrt(s @ s),
        half=lambda s: s.copy(),
    ),
}


def bounding_box(shape: MassProperties, size: Vector) -> Vector:
    """(6,) m: center and half sizes of the bounding box in the geom's frame; a plane bounds the half space below it."""
    return np.concatenate([shape.center(size), shape.half(size)])


def rotated_inertia(inertia: Vector, axes: Vector) -> Vector:
    """(3, 3) the inertia matrix with these moments about the columns of `axes`."""
    return axes @ np.diag(inertia) @ axes.T


def offset_inertia(mass: float, offset: Vector) -> Vector:
    """(3, 3) the inertia matrix of a point mass at `offset` (parallel axis theorem)."""
    return mass * (float(offset @ offset) * np.eye(3) - np.outer(offset, offset))


# the first half of the 15 Gauss-Kronrod nodes on [0, 1] and their weights, rounded to eight digits as in MuJoCo:
# results for thin geoms depend on this rounding
_HALF_NODES = np.array([0.00427231, 0.02544604, 0.06756779, 0.12923441, 0.20695638, 0.29707742, 0.39610752])
_HALF_WEIGHTS = np.array(
    [0.01146766, 0.03154605, 0.05239501, 0.07032663, 0.08450236, 0.09517529, 0.10221647]
)  # fmt: skip
_NODES = np.concatenate([_HALF_NODES, [0.5], 1 - _HALF_NODES[::-1]])
_WEIGHTS = np.concatenate([_HALF_WEIGHTS, [0.10474107], _HALF_WEIGHTS[::-1]])
# l and dl / dx at the nodes x
_LENGTHS = _NODES**3 / (1 - _NODES) ** 2
_SLOPES = _NODES**2 * (3 - _NODES) / (1 - _NODES) ** 3


def semiaxes(kind: GeomType, size: Vector) -> Vector:
    """(3,) m: half axes of the equivalent ellipsoid."""
    if kind == GeomType.SPHERE:
        return np.full(3, size[0])
    if kind == GeomType.CAPSULE:
        return np.array([size[0], size[0], size[0] + size[1]])
    if kind == GeomType.CYLINDER:
        return np.array([size[0], size[0], size[1]])
    return size.copy()


def _kappa(a: float, b: float, c: float) -> float:
    """a b c times the integral over l >= 0 of 1 / sqrt((a^2 + l)^3 (b^2 + l) (c^2 + l)).

    The quadrature runs over l / scale, so that its accuracy does not depend on the size.
    """
    scale = (a**3 * b * c) ** 0.4
    along, side, other = (1 + scale * _LENGTHS / x**2 for x in (a, b, c))
    return float(np.sum(scale * _SLOPES * _WEIGHTS / (along * np.sqrt(along * side * other)))) / a**2


def fluid_coefficients(kind: GeomType, size: Vector, drag: Vector) -> Vector:
    """(12,) geom_fluid: 1, the five drag and lift coefficients, virtual mass (3,), virtual inertia (3,).

    Per unit of fluid density, an ellipsoid with half axes a, b, c and volume V has along axis a (Lamb, art. 114, 115)

      virtual mass = V k_a / (2 - k_a),
      virtual inertia = V / 5 (b^2 - c^2)^2 (k_c - k_b) / (2 (b^2 - c^2) - (b^2 + c^2) (k_c - k_b)).

    Args:
      kind: the geom type.
      size: (3,) m.
      drag: (5,) attribute 'fluidcoef'.
    """
    axes = semiaxes(kind, size)
    x, y, z = axes
    kappa = np.array([_kappa(x, y, z), _kappa(y, z, x), _kappa(z, x, y)])
    volume = 4.0 / 3.0 * pi * x * y * z
    # entry a of each array belongs to axis a, and is made from the next two axes b and c, cyclically
    square = axes**2
    following, last = np.roll(square, -1), np.roll(square, -2)
    difference = following - last
    total = following + last
    spread = np.roll(kappa, -2) - np.roll(kappa, -1)
    factor = difference**2 * np.abs(spread) / np.maximum(TINY, np.abs(2 * difference - total * spread))
    mass = volume * kappa / np.maximum(TINY, 2 - kappa)
    return np.concatenate([[1.0], drag, mass, volume * factor / 5])
