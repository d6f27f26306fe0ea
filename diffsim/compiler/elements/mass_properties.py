"""Volume, inertia and bounds of the primitive shapes, in numpy float64.

A row of `MASS_PROPERTIES` says all that the compiler has to know of a geom type: how many sizes it has (m), its volume
(m^3; or area, m^2, for shells, where density is per area), the inertia of 1 kg of it about its center (m^2), its
bounding radius and box (m). Host only.
Source: MuJoCo "Modeling" (geom sizes, shellinertia); Thomsen's formula for the area of an ellipsoid.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import pi, sqrt

import numpy as np

from diffsim.base.enums import GeomType

Vector = np.ndarray


def _cross_sum(squares: Vector) -> Vector:
    """(b + c, a + c, a + b) of (a, b, c)."""
    return squares.sum() - squares


def _ellipsoid_area(size: Vector) -> float:
    a, b, c = size**1.6075
    return 4 * pi * ((a * b + b * c + c * a) / 3) ** (1 / 1.6075)


def _ellipsoid_shell(size: Vector) -> Vector:
    """Unit-mass inertia of a thin shell: the difference of two solid ellipsoids 1e-6 apart."""
    grown = size + 1e-6
    inner, outer = size.prod(), grown.prod()
    return (outer * _cross_sum(grown**2) - inner * _cross_sum(size**2)) / (5 * (outer - inner))


def _capsule_solid(size: Vector) -> Vector:
    radius, height = size[0], 2 * size[1]
    ball = 4 * radius / (4 * radius + 3 * height)
    rod = 1 - ball
    across = rod * (3 * radius**2 + height**2) / 12 + ball * (
        2 * radius**2 / 5 + height * (3 * radius + 2 * height) / 8
    )
    along = rod * radius**2 / 2 + 2 * ball * radius**2 / 5
    return np.array([across, across, along])


def _capsule_shell(size: Vector) -> Vector:
    radius, height = size[0], 2 * size[1]
    ball = 2 * radius / (2 * radius + height)
    rod = 1 - ball
    # a hemisphere shell has its center of mass at half the radius
    own, far = radius / 2, size[1] + radius / 2
    across = rod * (6 * radius**2 + height**2) / 12 + ball * (2 * radius**2 / 3 + far**2 - own**2)
    along = rod * radius**2 + 2 * ball * radius**2 / 3
    return np.array([across, across, along])


def _cylinder_solid(size: Vector) -> Vector:
    radius, height = size[0], 2 * size[1]
    across = (3 * radius**2 + height**2) / 12
    return np.array([across, across, radius**2 / 2])


def _cylinder_shell(size: Vector) -> Vector:
    radius, height = size[0], 2 * size[1]
    disk = radius / (2 * radius + 2 * height)
    side = 1 - 2 * disk
    across = side * (6 * radius**2 + height**2) / 12 + 2 * disk * (radius**2 / 4 + size[1] ** 2)
    return np.array([across, across, side * radius**2 + disk * radius**2])


def _box_shell(size: Vector) -> Vector:
    """Six thin rectangles: the pair of faces across axis k lies at distance size[k]."""
    area = size.prod() / size
    weight = area / area.sum()
    inertia = np.zeros(3)
    for axis in range(3):
        plate = size**2 / 3
        plate[axis] = size[axis] ** 2
        inertia += weight[axis] * _cross_sum(plate)
    return inertia


def _origin(size: Vector) -> Vector:
    return np.zeros(3)


@dataclass(frozen=True)
class MassProperties:
    """What the compiler knows of one geom type; every function takes the three sizes."""

    sizes: int
    volume: Callable[[Vector], float]
    solid: Callable[[Vector], Vector]
    area: Callable[[Vector], float]
    shell: Callable[[Vector], Vector]
    radius: Callable[[Vector], float]
    half: Callable[[Vector], Vector]
    center: Callable[[Vector], Vector] = _origin


def _nothing(size: Vector) -> float:
    return 0.0


def _no_inertia(size: Vector) -> Vector:
    return np.zeros(3)


MASS_PROPERTIES: dict[GeomType, MassProperties] = {
    GeomType.PLANE: MassProperties(
        sizes=3,
        volume=_nothing,
        solid=_no_inertia,
        area=_nothing,
        shell=_no_inertia,
        radius=_nothing,
        half=lambda s: np.array([1e10, 1e10, 5e9]),
        center=lambda s: np.array([0.0, 0.0, -5e9]),
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
    """Axis-aligned box in the geom frame as (center, half sizes) [6]; a plane fills the half space below it."""
    return np.concatenate([shape.center(size), shape.half(size)])


def rotated_inertia(inertia: Vector, axes: Vector) -> Vector:
    """Inertia matrix [3, 3] in the frame that the columns of `axes` are given in."""
    return axes @ np.diag(inertia) @ axes.T


def offset_inertia(mass: float, offset: Vector) -> Vector:
    """Inertia matrix of a point mass at `offset` (parallel axis theorem)."""
    return mass * (float(offset @ offset) * np.eye(3) - np.outer(offset, offset))
