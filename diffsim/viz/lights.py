"""Lights: the model's own lights and its headlight, or one sun for models without an active light.

A light of type spot shines from a point into a cone, a point light shines from a point in all directions, and a
directional light shines in one direction from infinitely far. Lights of type image are not drawn. The headlight is
directional, shines where the camera looks, and casts no shadow.

MuJoCo's renderer multiplies colours of a screen with the colours of lights. Here all colours are linear, so the colours
of lights are converted like the colours of objects, times `BRIGHT`.
Source: MuJoCo "XML reference", light and headlight; `mjv_makeLights` of 3.8.1; OpenGL 2.1, section 2.14.1 (lighting).
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.base.enums import LightType
from diffsim.math import safe
from diffsim.math.vector import dot
from diffsim.types import Model
from diffsim.types.topology import Topology
from diffsim.viz.material import GAMMA

# linear colour of the light of the sun: slightly warm
SUNLIGHT = np.array([1.0, 0.96, 0.88]) * 1.9
# fraction of a light in highlights at specular 1; whole highlights would wash out flat surfaces
HIGHLIGHT = 0.36
# linear light of a lamp with colour 1: MuJoCo's default, 0.7, is as bright as the sun
BRIGHT = 1.9 / 0.7**GAMMA
# direction to the sun (right, up, back) relative to the camera's azimuth: the sun is behind the left shoulder
TO_SUN = (-0.5, 0.95, 0.45)
# angular radius of lights, rad, which softens shadows: about 2.5 times the sun's, so that few samples show it
SOFTNESS = 0.012
# lower bound of the base of a power, so that its derivative is finite
DARK = 1e-9
# types of lights that are drawn
DRAWN = (LightType.SPOT, LightType.DIRECTIONAL, LightType.POINT)


class Lights(NamedTuple):
    """m lights.

    Attributes:
      position: (m, 3) m; arbitrary for directional lights.
      direction: (m, 3) unit, in which a light shines.
      ambient, diffuse, specular: (m, 3) linear colours.
      attenuation: (m, 3) coefficients of 1, distance and distance^2 of the divisor of the light.
      cutoff: (m,) degrees, half the angle of the cone.
      exponent: (m,) of the cosine of the angle to the axis of the cone.
      kind: (m,) LightType.
      shadow: (m,) whether the light casts shadows.
    """

    position: Array
    direction: Array
    ambient: Array
    diffuse: Array
    specular: Array
    attenuation: Array
    cutoff: Array
    exponent: Array
    kind: Array
    shadow: Array


class Lamps(NamedTuple):
    """Where m lights of a model are: `xpos` (m, 3) m, and unit directions `xdir` (m, 3) in which they shine."""

    xpos: Array
    xdir: Array


class Incident(NamedTuple):
    """Light at k points: unit direction `towards` (k, 3) the light, `distance` (k,) m to it, `amount` (k,) of it."""

    towards: Array
    distance: Array
    amount: Array


def drawn_lights(topology: Topology) -> tuple[int, ...]:
    """Ids of the active lights of types that are drawn."""
    return tuple(np.flatnonzero((topology.light_active != 0) & np.isin(topology.light_type, DRAWN)).tolist())


def lights_of(model: Model, ids: tuple[int, ...], lamps: Lamps, matrix: Array) -> Lights:
    """The lights `ids` of a model and its headlight, for a camera with axes `matrix` (3, 3)."""
    chosen = np.array(ids)
    head = model.vis.headlight

    def colour(kind: str) -> Array:
        """Linear colours (m + 1, 3)."""
        given = getattr(model, f"light_{kind}")[chosen]
        return BRIGHT * jnp.maximum(jnp.concatenate([given, (head.active * getattr(head, kind))[None]]), 0) ** GAMMA

    return Lights(
        position=jnp.concatenate([lamps.xpos, jnp.zeros_like(matrix[:1])]),
        direction=jnp.concatenate([lamps.xdir, -matrix[None, :, 2]]),
        ambient=colour("ambient"),
        diffuse=colour("diffuse"),
        specular=HIGHLIGHT * colour("specular"),
        attenuation=jnp.concatenate([model.light_attenuation[chosen], jnp.ones_like(matrix[:1])]),
        cutoff=jnp.append(model.light_cutoff[chosen], 180),
        exponent=jnp.append(model.light_exponent[chosen], 0),
        kind=jnp.asarray(np.append(model.topology.light_type[chosen], LightType.DIRECTIONAL)),
        shadow=jnp.asarray(np.append(model.topology.light_castshadow[chosen] != 0, False)),
    )


def sun_over(matrix: Array) -> Lights:
    """The sun, which turns with the azimuth of a camera with axes `matrix` (3, 3)."""
    # the camera's right, made horizontal, and the horizontal direction backward
    right = matrix[:, 0]
    level = jnp.sqrt(right[0] ** 2 + right[1] ** 2 + 1e-12)
    side = right[:2] / level
    back = jnp.stack([right[1], -right[0]]) / level
    flat = side * TO_SUN[0] + back * TO_SUN[2]
    direction = -safe.normalize(jnp.stack([flat[0], flat[1], jnp.asarray(TO_SUN[1], flat.dtype)]))[None]
    nothing, ones = jnp.zeros_like(direction), jnp.ones_like(direction)
    bright = jnp.asarray(SUNLIGHT, direction.dtype)[None]
    return Lights(
        position=nothing,
        direction=direction,
        ambient=nothing,
        diffuse=bright,
        specular=HIGHLIGHT * bright,
        attenuation=ones,
        cutoff=180 * ones[:, 0],
        exponent=nothing[:, 0],
        kind=jnp.full(1, LightType.DIRECTIONAL),
        shadow=jnp.full(1, True),
    )


def incident(light: Lights, point: Array, spread: Array) -> Incident:
    """The light that one of the `Lights` sends to points (k, 3), m, before anything is in its way.

    `spread` (3,) is added to the unit directions to the light: a lamp that has a size is a mean over such directions.
    A spot light at angle a to its axis has the factor cos(a)^exponent up to the cutoff, and 0 beyond it.
    """
    offset = light.position[None] - point
    distant = light.kind == LightType.DIRECTIONAL
    length = safe.norm(offset)
    towards = jnp.where(distant, -light.direction[None], safe.normalize(offset))
    constant, linear, square = light.attenuation
    fading = safe.divide(jnp.ones_like(length), constant + linear * length + square * length**2)
    cosine = dot(-towards, jnp.broadcast_to(light.direction[None], towards.shape))
    within = cosine >= jnp.cos(jnp.radians(light.cutoff))
    cone = jnp.where(within, jnp.maximum(cosine, DARK) ** light.exponent, 0)
    cone = jnp.where((light.kind == LightType.SPOT) & (light.cutoff < 180), cone, 1)
    return Incident(
        towards=safe.normalize(towards + spread[None]),
        distance=jnp.where(distant, jnp.inf, length),
        amount=jnp.where(distant, 1, fading * cone),
    )
