"""Light along rays: one sun with its shadow, light from the sky, highlights, floors that fade into the horizon.

All colours are linear inside; the caller maps them to the screen by `developed`. Shading after Blinn and Phong. A ray
that meets nothing sees the model's skybox, or a plain sky. Source of the skybox's orientation: MuJoCo "XML reference",
texture (type skybox); the cube is turned by 90 degrees about x, so that its upper face is above.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.base.enums import GeomType
from diffsim.geometry.rays.ray import BundledHits, BundledRays
from diffsim.math import safe
from diffsim.math.vector import dot, pack, unpack
from diffsim.viz.material import Atlas, Spot, on_cube, sample
from diffsim.viz.scene import Plan, Scene
from diffsim.viz.surface import Met, Surface, ends, surface_of, trace

# linear colours of the light of the sun, and of what comes from above and from below
SUNLIGHT = np.array([1.0, 0.96, 0.88]) * 1.9
SKY = np.array([0.50, 0.62, 0.80])
GROUND = np.array([0.30, 0.28, 0.26])
# rad, over which the sky that floors fade into is blurred
HAZE = 0.5
# strength of the highlight at specular 1, and its exponent at shininess 1
HIGHLIGHT, SHARPNESS = 0.36, 80.0


class Light(NamedTuple):
    """Unit direction `sun` (3,) towards the light; `angle` () that a pixel spans, rad."""

    sun: Array
    angle: Array


def radiance(scene: Scene, plan: Plan, rays: BundledRays, hits: BundledHits, light: Light) -> Array:
    """Linear colours (b, l, 3) along b bundles of l rays, which first meet `hits`."""
    hit, direction = (hits.thing >= 0).reshape(-1), rays.direction.reshape(-1, 3)
    sky = sky_colour(scene.atlas, plan.sky, direction, light.angle)
    if not plan.groups:
        return sky.reshape(rays.direction.shape)
    distance = jnp.where(hit, hits.distance.reshape(-1), 0)
    point = ends(rays, hits)
    met = Met(hits.thing.reshape(-1), hits.facet.reshape(-1), point.reshape(-1, 3), light.angle * distance)
    surface = surface_of(scene, plan.groups, met)
    # a surface seen from behind (inside a shape) turns towards the eye
    away = dot(surface.normal, direction) > 0
    surface = surface._replace(normal=jnp.where(away[:, None], -surface.normal, surface.normal))
    # whether the sun reaches it, seen from a little above the surface, which does not shade itself
    normal = surface.normal.reshape(point.shape)
    faces = dot(normal, jnp.broadcast_to(light.sun, normal.shape)) > 0
    start = point + 1e-3 * scene.tile * normal
    wanted = rays.wanted & (hits.thing >= 0) & faces
    shadow = trace(scene, plan.groups, BundledRays(start, jnp.broadcast_to(light.sun, start.shape), wanted))
    lit = (faces & (shadow.thing < 0)).reshape(-1).astype(normal.dtype)
    shaded = _shaded(scene, jnp.maximum(met.thing, 0), surface, direction, light, lit)
    if any(group.kind == GeomType.PLANE for group in plan.groups):
        faded = jnp.where(surface.floor, 1 - jnp.exp(-((distance / scene.fade) ** 2)), 0)[:, None]
        level = safe.normalize(direction * jnp.asarray([[1, 1, 0]], direction.dtype))
        horizon = sky_colour(scene.atlas, plan.sky, level, jnp.full((), HAZE, direction.dtype))
        shaded = shaded + (horizon - shaded) * faded
    return jnp.where(hit[:, None], shaded, sky).reshape(rays.direction.shape)


def _shaded(scene: Scene, thing: Array, surface: Surface, direction: Array, light: Light, lit: Array) -> Array:
    """(k, 3) light of surfaces towards the eye, after Blinn and Phong: colour (ambient + sun max(n . s, 0) + emission)
    + highlight max(n . h, 0)^p, with h halfway between the directions to the sun s and to the eye.
    """
    look, normal = scene.looks, surface.normal
    sun = jnp.broadcast_to(light.sun, normal.shape)
    upward = (0.5 + 0.5 * normal[:, 2])[:, None]
    ground, sky, bright = (jnp.asarray(colour, normal.dtype)[None] for colour in (GROUND, SKY, SUNLIGHT))
    ambient = 0.6 * (ground + (sky - ground) * upward)
    direct = bright * (jnp.maximum(dot(normal, sun), 0) * lit)[:, None]
    of_things = look.emission, look.specular, look.shininess
    emission, specular, shininess = (jnp.asarray(values)[thing][:, None] for values in of_things)
    halfway = jnp.maximum(dot(normal, safe.normalize(sun - direction)), 0)[:, None]
    shine = HIGHLIGHT * specular * halfway ** jnp.maximum(SHARPNESS * shininess, 1)
    return surface.colour * (ambient + direct + emission) + shine * lit[:, None] * bright


# linear colours of the plain sky
ZENITH, HORIZON = np.array([0.12, 0.30, 0.65]), np.array([0.58, 0.70, 0.85])
# a floor that looks like 0 and where powers have finite derivatives
DARK = 1e-9


def sky_colour(atlas: Atlas, sky: int, direction: Array, angle: Array) -> Array:
    """Linear colours (k, 3) along unit directions (k, 3).

    Args:
      atlas: textures of the model.
      sky: that of the sky, -1 for none.
      direction: where to look, world.
      angle: of a pixel, rad.
    """
    if sky < 0:
        height = jnp.clip(direction[:, 2:], DARK, 1) ** 0.6
        zenith, horizon = (jnp.asarray(colour, direction.dtype)[None] for colour in (ZENITH, HORIZON))
        return horizon + (zenith - horizon) * height
    x, y, z = unpack(direction)
    face, place, largest = on_cube(pack([x, z, -y]))
    texture = jnp.full(face.shape, sky)
    side = atlas.width[sky, 0]
    return exposed(sample(atlas, Spot(texture, face, place, 0.5 * side * angle / largest)))


def developed(light: Array) -> Array:
    """Linear light x as colours on a screen in [0, 1]: the tone curve x (1 + x / 9) / (1 + 0.55 x), then gamma 2.2."""
    bright = jnp.clip(light, 0, None)
    shown = jnp.clip(bright * (1 + bright / 9) / (1 + 0.55 * bright), 0, 1)
    return jnp.where(shown > DARK, jnp.maximum(shown, DARK) ** (1 / 2.2), 0)


def exposed(colour: Array) -> Array:
    """The inverse of `developed`: linear light of colours in [0, 1]."""
    # y = x (1 + x / 9) / (1 + 0.55 x), solved for x: x^2 / 9 + (1 - 0.55 y) x - y = 0
    y = colour**2.2
    b = 1 - 0.55 * y
    return 4.5 * (jnp.sqrt(b * b + 4 * y / 9) - b)
