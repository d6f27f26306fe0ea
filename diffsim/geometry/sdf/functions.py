"""Signed distance functions: the primitive shapes, and MuJoCo's sdf plugins under their own names.

A function gets its parameters and points in the geom's frame (any number of leading axes). It returns signed distances
in m, negative inside. Values and derivatives are finite everywhere.

The primitive shapes have the two functions that MuJoCo's SDF collisions use: `distance(size, point)` and
`gradient(size, point)`, the direction that gradient descent follows. Both copy MuJoCo, so that descents end at the same
points. Inside a box or a cylinder, `gradient` is not the gradient of `distance`. The distance of an ellipsoid is exact
only to first order.

For plugins, the gradient is the derivative of the distance; at an edge it is the derivative on one of the two sides.
Bolt and nut have only the parameter `radius`. Their threads (12 turns per metre) and their hexagons do not scale with
it. The gear is a spur gear with involute teeth, extruded along z. Its parameters (5,) are the angle `alpha` (rad), the
pitch diameter (m), the number of teeth, the thickness (m) and the inner diameter (m); if the last one is negative, the
hole gets a default radius.
Source: plugin/sdf of MuJoCo 3.8.1, where a fitted parabola gives the pressure angle from the number of teeth;
`geomDistance` and `geomGradient` of engine_collision_sdf.c; shadertoy XtffzX (bolt, nut), 3lG3WR (gear); Quilez,
"Distance functions".
"""

from collections.abc import Callable
from math import pi, sqrt
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from diffsim.base.enums import GeomType
from diffsim.math import safe
from diffsim.math.vector import pack, scale, unpack

# lower bound (1 / mjMAXVAL) of the lengths by which a cylinder's gradient divides
SHORTEST = 1e-10


class Field(NamedTuple):
    """A signed distance and the direction in which it grows: (parameters, point (..., 3)) -> (...) m, (..., 3)."""

    distance: Callable[[Any, Array], Array]
    gradient: Callable[[Any, Array], Array]


def sphere_distance(size: Array, point: Array) -> Array:
    """Distance from the centre less the radius."""
    return safe.norm(point) - size[0]


def capsule_distance(size: Array, point: Array) -> Array:
    """Distance from the axis segment less the radius."""
    return safe.norm(_off_axis(size, point)) - size[0]


def _off_axis(size: Array, point: Array) -> Array:
    x, y, z = unpack(point)
    return pack([x, y, z - safe.clip(z, -size[1], size[1])])


def ellipsoid_distance(size: Array, point: Array) -> Array:
    """k0 (k0 - 1) / k1, where k0 = |p / s| and k1 = |p / s^2|."""
    k0 = safe.norm(point / _along(size, point))
    k1 = safe.norm(point / _along(size * size, point))
    return safe.divide(k0 * (k0 - 1), k1)


def ellipsoid_gradient(size: Array, point: Array) -> Array:
    """The gradient of the distance, as a unit vector."""
    half = _along(size, point)
    once = point / half
    twice = point / (half * half)
    k0, k1 = safe.norm(once), safe.norm(twice)
    by_k0 = safe.divide(2 * k0 - 1, k0 * k1)
    by_k1 = safe.divide(k0 * (k0 - 1), k1 * k1 * k1)
    return safe.normalize(scale(twice, by_k0) - scale(twice / (half * half), by_k1))


def cylinder_distance(size: Array, point: Array) -> Array:
    """Distance from the surface; inside, from the side or an end, whichever is nearer."""
    beyond, above = _past_cylinder(size, point)
    outside = safe.norm(pack([safe.maximum(beyond, 0), safe.maximum(above, 0)]))
    return safe.minimum(safe.maximum(beyond, above), 0) + outside


def cylinder_gradient(size: Array, point: Array) -> Array:
    """Outside, the gradient of the distance; inside, the direction to the side or to an end, whichever is nearer."""
    x, y, z = unpack(point)
    beyond, above = _past_cylinder(size, point)
    side = safe.norm(pack([x, y]))
    rise = jnp.abs(z)
    over, top = safe.maximum(beyond, 0), safe.maximum(above, 0)
    length = safe.norm(pack([over, top]))
    first = beyond > above
    inside = safe.maximum(beyond, above) < 0
    radial = jnp.where(inside, jnp.where(first, 1, 0), over / safe.maximum(length, SHORTEST))
    axial = jnp.where(inside, jnp.where(first, 0, 1), top / safe.maximum(length, SHORTEST))
    by_side = radial / safe.maximum(side, SHORTEST)
    return pack([x * by_side, y * by_side, z * axial / safe.maximum(rise, SHORTEST)])


def _past_cylinder(size: Array, point: Array) -> tuple[Array, Array]:
    """Signed distances by which a point is beyond the side, and beyond the ends."""
    x, y, z = unpack(point)
    return safe.norm(pack([x, y])) - size[0], jnp.abs(z) - size[1]


def box_distance(size: Array, point: Array) -> Array:
    """Outside, the distance; inside, minus the distance to a face along the direction of `box_gradient`."""
    past = jnp.abs(point) - _along(size, point)
    outside = safe.norm(safe.maximum(past, 0))
    inside, depth, reach = _inside_box(size, past)
    x, y, z = unpack(depth * depth / _along(size, depth))
    return jnp.where(inside, -safe.minimum(x, safe.minimum(y, z)) * safe.norm(reach), outside)


def box_gradient(size: Array, point: Array) -> Array:
    """Outside, away from the nearest point; inside, half size / depth per axis: near a face, this is its normal."""
    past = jnp.abs(point) - _along(size, point)
    inside, _, reach = _inside_box(size, past)
    outward = jnp.where(inside[..., None], safe.normalize(reach), safe.normalize(safe.maximum(past, 0)))
    return outward * jnp.where(point < 0, -1, 1)


def _inside_box(size: Array, past: Array) -> tuple[Array, Array, Array]:
    """Whether a point is inside, its depths below the faces (..., 3), m, and half sizes / depths (..., 3)."""
    x, y, z = unpack(past)
    inside = safe.maximum(x, safe.maximum(y, z)) < 0
    depth = jnp.where(inside[..., None], -past, 1)
    return inside, depth, safe.divide(_along(size, depth), depth)


def _along(size: Array, point: Array) -> Array:
    """The size, repeated for each point."""
    return jnp.broadcast_to(size, point.shape)


PRIMITIVES: dict[GeomType, Field] = {
    GeomType.SPHERE: Field(sphere_distance, lambda size, point: safe.normalize(point)),
    GeomType.CAPSULE: Field(capsule_distance, lambda size, point: safe.normalize(_off_axis(size, point))),
    GeomType.ELLIPSOID: Field(ellipsoid_distance, ellipsoid_gradient),
    GeomType.CYLINDER: Field(cylinder_distance, cylinder_gradient),
    GeomType.BOX: Field(box_distance, box_gradient),
}


# the distance ignores the teeth inside the hole, and farther than this (m) outside the tips
FAR = 0.2
# m, less than any distance from an involute
NOTHING = -1e6


class Gear(NamedTuple):
    """The outline of a gear.

    Radii, m: the circles of `pitch`, `base`, `tip` and `foot` of the teeth, and the `hole`. Angles, rad: `stride`, from
    one tooth to the next, and `shift`, the width of the gap between two teeth on the base circle.
    """

    pitch: Array
    base: Array
    tip: Array
    foot: Array
    hole: Array
    stride: Array
    shift: Array


def gear_distance(parameters: Array, point: Array) -> Array:
    """Signed distance (...), m, of points (..., 3)."""
    gear = _gear(parameters)
    x, y, z = unpack(point)
    # in the plane of the gear
    radius = safe.norm(pack([x, y]))
    angle = safe.arctan2(y, x) + parameters[0]
    teeth = _teeth(gear, radius, angle, 0.0035 * parameters[1])
    outline = jnp.where(gear.tip - radius < -FAR, radius - gear.tip, teeth)
    flat = jnp.where(gear.hole > radius, gear.hole - radius, outline)
    ends = jnp.abs(z) - parameters[3] / 2
    return safe.minimum(safe.maximum(flat, ends), 0) + safe.norm(pack([safe.maximum(flat, 0), safe.maximum(ends, 0)]))


def gear_half_sides(parameters: Array) -> list[Array]:
    """Half sides, m, of the box in which the surface is searched for."""
    across = parameters[1] / 2 * 1.25
    return [across, across, parameters[3] / 2 * 1.1]


def _gear(parameters: Array) -> Gear:
    diameter, teeth = parameters[1], parameters[2]
    addendum = diameter / teeth
    pressure = 3.096e-5 * teeth * teeth - 6.557e-3 * teeth + 0.551
    pitch = diameter / 2
    tip = diameter / 2 + addendum
    foot = tip - 2.2 * addendum
    hole = jnp.where(parameters[4] >= 0, parameters[4] / 2, foot - 0.14 * diameter)
    stride = 2 * jnp.pi / teeth
    involute = jnp.tan(pressure) - pressure
    return Gear(pitch, pitch * jnp.cos(pressure), tip, foot, hole, stride, stride / 2 - 2 * involute)


def _teeth(gear: Gear, radius: Array, angle: Array, rounding: Array) -> Array:
    """Teeth with two involute flanks, cut off at the tip circle, on a disk with a hole."""
    half = gear.shift / 2
    first = _modulo(angle + half, gear.stride) - half
    second = _modulo(-angle - half, gear.stride) - half
    flanks = safe.maximum(_involute_distance(gear, radius, first), _involute_distance(gear, radius, second))
    gap = gear.stride - gear.shift
    teeth = safe.maximum(safe.maximum(first - gap, second - gap), flanks)
    beyond = radius - gear.tip
    apart = _smooth_union(safe.maximum(beyond, -teeth), safe.maximum(teeth, -beyond), rounding)
    teeth = safe.maximum(safe.maximum(beyond, teeth), -apart)
    teeth = _smooth_union(radius - gear.foot, teeth, gear.base - gear.foot)
    return safe.maximum(teeth, gear.hole - radius)


def _involute_distance(gear: Gear, radius: Array, angle: Array) -> Array:
    """Distance from an involute of the base circle, in polar coordinates; `NOTHING` inside the base circle."""
    outside = radius > gear.base
    tangent = safe.sqrt(jnp.where(outside, radius * radius - gear.base * gear.base, 0))
    unrolled = angle + jnp.arctan2(tangent, gear.base)
    return jnp.where(outside, tangent - gear.base * unrolled, NOTHING)


def _modulo(x: Array, period: Array) -> Array:
    return x - period * jnp.floor(x / period)


def _smooth_union(a: Array, b: Array, width: Array) -> Array:
    share = safe.clip(0.5 + 0.5 * (b - a) / width, 0.0, 1.0)
    return b * (1 - share) + a * share - width * share * (1 - share)


# turns of a thread per metre
TURNS = 12
# sine of 45 degrees: the slope of threads and cones
SLOPE = sqrt(2) / 2


class FieldFunction(NamedTuple):
    """A field: the names and default values of its parameters, and its distance.

    `half_sides(parameters)`: half sides (3,), m, of the box in which the compiler searches for its surface.
    `direction`: the direction that searches for contacts follow, if it is not the derivative of the distance.
    """

    names: tuple[str, ...]
    defaults: tuple[float, ...]
    distance: Callable[[Any, Array], Array]
    half_sides: Callable[[Array], list[Array]]
    direction: Callable[[Any, Array], Array] | None = None

    @property
    def field(self) -> Field:
        """Its distance, and the direction that searches follow."""
        return Field(self.distance, self.direction or self.gradient)

    def gradient(self, parameters: Any, point: Array) -> Array:
        """Derivative (..., 3) of the distance with respect to the points (..., 3)."""
        distance, pull = jax.vjp(lambda place: self.distance(parameters, place), point)
        return pull(jnp.ones_like(distance))[0]


def torus_distance(radii: Array, point: Array) -> Array:
    """A ring of radius radii[0] about z, whose tube has radius radii[1]."""
    x, y, z = unpack(point)
    return safe.norm(pack([safe.norm(pack([x, y])) - radii[0], z])) - radii[1]


def bowl_distance(parameters: Array, point: Array) -> Array:
    """A shell (height, radius, thickness): the part of a sphere below z = height, with a wall of 2 * thickness."""
    height, radius, thickness = parameters[0], parameters[1], parameters[2]
    width = safe.sqrt(radius * radius - height * height)
    x, y, z = unpack(point)
    across = safe.norm(pack([x, y]))
    rim = safe.norm(pack([across - width, z - height]))
    shell = jnp.abs(safe.norm(pack([across, z])) - radius)
    return jnp.where(height * across < width * z, rim, shell) - thickness


def bolt_distance(parameters: Array, point: Array) -> Array:
    """A hexagonal head and a thread with the given radius."""
    past = _past(parameters, point)
    z = point[..., 2]
    thread = safe.maximum(_thread(past, point), jnp.abs(z + 0.5) - 0.5)
    thread = safe.maximum(thread, -((z - past) * SLOPE + SLOPE))
    return safe.minimum(thread, _head(past, point))


def nut_distance(parameters: Array, point: Array) -> Array:
    """A hexagon with a threaded hole of the given radius."""
    past = _past(parameters, point)
    cone = (point[..., 2] - past) * SLOPE
    hole = safe.maximum(_thread(past, point), -(cone + 0.5 * SLOPE))
    hole = safe.minimum(hole, -cone - 0.05 * SLOPE)
    return safe.maximum(_head(past, point), -hole)


def _past(parameters: Array, point: Array) -> Array:
    """Distance from the z axis less the radius."""
    x, y, _ = unpack(point)
    return safe.norm(pack([x, y])) - parameters[0]


def _thread(past: Array, point: Array) -> Array:
    """A triangle wave that winds about z."""
    x, y, z = unpack(point)
    turn = z * TURNS - safe.arctan2(y, x) / (2 * pi)
    wave = jnp.abs(turn - jnp.floor(turn) - 0.5)
    return (past - wave / TURNS) * SLOPE


def _head(past: Array, point: Array) -> Array:
    """A hexagon, 0.5 m high, whose corners are rounded by a cone."""
    x, y, z = unpack(point)
    sector = jnp.floor(safe.arctan2(y, x) * (3 / pi) + 0.5) * (pi / 3)
    side = jnp.cos(sector) * x + jnp.sin(sector) * y - 0.5
    return safe.maximum(safe.maximum(side, jnp.abs(z + 0.25) - 0.25), (z + past - 0.22) * SLOPE)


def _thread_sides(parameters: Array) -> list[Array]:
    one = jnp.ones_like(parameters[0])
    return [0.6 * one, 0.6 * one, one]


FUNCTIONS: dict[str, FieldFunction] = {
    "mujoco.sdf.bolt": FieldFunction(("radius",), (0.26,), bolt_distance, _thread_sides),
    "mujoco.sdf.bowl": FieldFunction(
        ("height", "radius", "thickness"), (0.4, 1.0, 0.02), bowl_distance, lambda p: [p[1] + p[2]] * 3
    ),
    "mujoco.sdf.gear": FieldFunction(
        ("alpha", "diameter", "teeth", "thickness", "innerdiameter"),
        (0.0, 2.8, 25.0, 0.2, -1.0),
        gear_distance,
        gear_half_sides,
    ),
    "mujoco.sdf.nut": FieldFunction(("radius",), (0.26,), nut_distance, _thread_sides),
    "mujoco.sdf.torus": FieldFunction(
        ("radius1", "radius2"), (0.35, 0.15), torus_distance, lambda r: [r[0] + r[1], r[0] + r[1], r[1]]
    ),
}
