"""Signed distance fields that are functions: MuJoCo's own sdf plugins by their names, one row each.

A function takes its parameters and points in the geom's frame to signed distances in m, negative inside. Gradients are
derivatives; where a field has an edge they are those of one of its sides. Bolt and nut have no parameter but `radius`:
their threads, of 12 turns a metre, and their hexagons do not scale with it.
Source: plugin/sdf of MuJoCo 3.8.1; shadertoy XtffzX (bolt, nut); Quilez, "Distance functions" (bowl, torus).
"""

from collections.abc import Callable
from math import pi, sqrt
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from diffsim.geometry.sdf.gear import gear_distance, gear_half_sides
from diffsim.geometry.sdf.primitives import Field
from diffsim.math import safe
from diffsim.math.vector import pack, unpack

Array = jax.Array

TURNS = 12
HALF = sqrt(2) / 2


class FieldFunction(NamedTuple):
    """A field: the names of its parameters, what they are by default, its distance, and half sides of a box around it.

    `half_sides(parameters)`: of the box in which its surface is looked for when the model is compiled, (3,) in m.
    `direction`: what searches for contacts follow, where this is not the derivative of the distance.
    """

    names: tuple[str, ...]
    defaults: tuple[float, ...]
    distance: Callable[[Any, Array], Array]
    half_sides: Callable[[Array], list[Array]]
    direction: Callable[[Any, Array], Array] | None = None

    @property
    def field(self) -> Field:
        """Its distance, and what searches follow."""
        return Field(self.distance, self.direction or self.gradient)

    def gradient(self, parameters: Any, point: Array) -> Array:
        """Derivative (..., 3) of the distance by points (..., 3)."""
        distance, pull = jax.vjp(lambda place: self.distance(parameters, place), point)
        return pull(jnp.ones_like(distance))[0]


def torus_distance(radii: Array, point: Array) -> Array:
    """A ring of radius radii[0] about z, whose tube has radius radii[1]."""
    x, y, z = unpack(point)
    return safe.norm(pack([safe.norm(pack([x, y])) - radii[0], z])) - radii[1]


def bowl_distance(parameters: Array, point: Array) -> Array:
    """A shell (height, radius, thickness): the part of a sphere below a height, as thick as twice the thickness."""
    height, radius, thickness = parameters[0], parameters[1], parameters[2]
    width = safe.sqrt(radius * radius - height * height)
    x, y, z = unpack(point)
    across = safe.norm(pack([x, y]))
    rim = safe.norm(pack([across - width, z - height]))
    shell = jnp.abs(safe.norm(pack([across, z])) - radius)
    return jnp.where(height * across < width * z, rim, shell) - thickness


def bolt_distance(parameters: Array, point: Array) -> Array:
    """A thread of some radius below a hexagonal head."""
    past = _past(parameters, point)
    z = point[..., 2]
    thread = safe.maximum(_thread(past, point), jnp.abs(z + 0.5) - 0.5)
    thread = safe.maximum(thread, -((z - past) * HALF + HALF))
    return safe.minimum(thread, _head(past, point))


def nut_distance(parameters: Array, point: Array) -> Array:
    """A hexagon with a threaded hole of some radius."""
    past = _past(parameters, point)
    cone = (point[..., 2] - past) * HALF
    hole = safe.maximum(_thread(past, point), -(cone + 0.5 * HALF))
    hole = safe.minimum(hole, -cone - 0.05 * HALF)
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
    return (past - wave / TURNS) * HALF


def _head(past: Array, point: Array) -> Array:
    """A hexagon, 0.5 m high, whose corners are rounded by a cone."""
    x, y, z = unpack(point)
    sector = jnp.floor(safe.arctan2(y, x) * (3 / pi) + 0.5) * (pi / 3)
    side = jnp.cos(sector) * x + jnp.sin(sector) * y - 0.5
    return safe.maximum(safe.maximum(side, jnp.abs(z + 0.25) - 0.25), (z + past - 0.22) * HALF)


def _thread_sides(parameters: Array) -> list[Array]:
    one = jnp.ones_like(parameters[0])
    return [0.6 * one, 0.6 * one, one]


def _bowl_sides(parameters: Array) -> list[Array]:
    return [parameters[1] + parameters[2]] * 3


def _torus_sides(radii: Array) -> list[Array]:
    return [radii[0] + radii[1], radii[0] + radii[1], radii[1]]


FUNCTIONS: dict[str, FieldFunction] = {
    "mujoco.sdf.bolt": FieldFunction(("radius",), (0.26,), bolt_distance, _thread_sides),
    "mujoco.sdf.bowl": FieldFunction(("height", "radius", "thickness"), (0.4, 1.0, 0.02), bowl_distance, _bowl_sides),
    "mujoco.sdf.gear": FieldFunction(
        ("alpha", "diameter", "teeth", "thickness", "innerdiameter"),
        (0.0, 2.8, 25.0, 0.2, -1.0),
        gear_distance,
        gear_half_sides,
    ),
    "mujoco.sdf.nut": FieldFunction(("radius",), (0.26,), nut_distance, _thread_sides),
    "mujoco.sdf.torus": FieldFunction(("radius1", "radius2"), (0.35, 0.15), torus_distance, _torus_sides),
}
