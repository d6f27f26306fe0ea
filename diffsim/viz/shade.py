"""Light along rays: one sun with its shadow, light from the sky, highlights, floors that fade away, mirrors.

All colours are linear inside; the caller develops them. Shading after Blinn and Phong. What meets nothing sees the
model's skybox, or a plain sky. Source of the skybox's orientation: MuJoCo "XML reference", texture (type skybox); the
cube is turned by 90 degrees about x, so that its upper face is above.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.base.enums import GeomType
from diffsim.geometry.rays.ray import BundledHits, BundledRays
from diffsim.math import safe
from diffsim.math.vector import dot, pack, unpack
from diffsim.viz.scene import Plan, Scene
from diffsim.viz.surface import Met, Surface, ends, surface_of, trace
from diffsim.viz.texture import Atlas, Spot, on_cube, sample

Array = jax.Array

SUN = np.array([1.0, 0.96, 0.88]) * 1.9
SKY = np.array([0.50, 0.62, 0.80])
GROUND = np.array([0.30, 0.28, 0.26])
# how blurred the sky is into which floors fade, rad
HAZE = 0.5
# of a material with specular 1, and the exponent of shininess 1
HIGHLIGHT, SHARPNESS = 0.36, 80.0


class Light(NamedTuple):
    """Unit direction `sun` (3,) towards the light; `angle` () that a pixel spans, rad."""

    sun: Array
    angle: Array


def radiance(scene: Scene, plan: Plan, rays: BundledRays, hits: BundledHits, light: Light) -> Array:
    """Linear colours (b, l, 3) that come along rays, which meet `hits` first."""
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
    lit = _lit(scene, plan, BundledRays(point, rays.direction, rays.wanted & (hits.thing >= 0)), surface, light)
    shaded = _shaded(scene, jnp.maximum(met.thing, 0), surface, direction, light, lit)
    if any(group.kind == GeomType.PLANE for group in plan.groups):
        far = jnp.where(surface.floor, 1 - jnp.exp(-((distance / scene.fade) ** 2)), 0)[:, None]
        level = safe.normalize(direction * jnp.asarray([[1, 1, 0]], direction.dtype))
        shaded = shaded + (sky_colour(scene.atlas, plan.sky, level, jnp.full((), HAZE, direction.dtype)) - shaded) * far
    return jnp.where(hit[:, None], shaded, sky).reshape(rays.direction.shape)


def _lit(scene: Scene, plan: Plan, ended: BundledRays, surface: Surface, light: Light) -> Array:
    """(k,) 1 where the sun reaches the ends of rays, else 0."""
    normal = surface.normal.reshape(ended.origin.shape)
    faces = dot(normal, jnp.broadcast_to(light.sun, normal.shape)) > 0
    start = ended.origin + 1e-3 * scene.tile * normal
    up = BundledRays(start, jnp.broadcast_to(light.sun, start.shape), ended.wanted & faces)
    shadow = trace(scene, plan.groups, up)
    return (faces & (shadow.thing < 0)).reshape(-1).astype(normal.dtype)


def _shaded(scene: Scene, thing: Array, surface: Surface, direction: Array, light: Light, lit: Array) -> Array:
    """Light (k, 3) that surfaces send back along rays."""
    look, normal = scene.looks, surface.normal
    sun = jnp.broadcast_to(light.sun, normal.shape)
    upward = (0.5 + 0.5 * normal[:, 2])[:, None]
    ground, sky, bright = (jnp.asarray(colour, normal.dtype)[None] for colour in (GROUND, SKY, SUN))
    ambient = 0.6 * (ground + (sky - ground) * upward)
    direct = bright * (jnp.maximum(dot(normal, sun), 0) * lit)[:, None]
    numbers = look.emission, look.specular, look.shininess
    emission, specular, shininess = (jnp.asarray(values)[thing][:, None] for values in numbers)
    halfway = jnp.maximum(dot(normal, safe.normalize(sun - direction)), 0)[:, None]
    shine = HIGHLIGHT * specular * halfway ** jnp.maximum(SHARPNESS * shininess, 1)
    return surface.colour * (ambient + direct + emission) + shine * lit[:, None] * bright


ZENITH = np.array([0.12, 0.30, 0.65])
# what nobody can tell from 0, where powers have no derivative
DARK = 1e-9
HORIZON = np.array([0.58, 0.70, 0.85])


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
    """Amounts of light as colours on a screen in [0, 1]: a filmic shoulder, then the gamma curve."""
    bright = jnp.clip(light, 0, None)
    shown = jnp.clip(bright * (1 + bright / 9) / (1 + 0.55 * bright), 0, 1)
    return jnp.where(shown > DARK, jnp.maximum(shown, DARK) ** (1 / 2.2), 0)


def exposed(colour: Array) -> Array:
    """The amounts of light that `developed` makes these colours of."""
    wanted = colour**2.2
    slope = 1 - 0.55 * wanted
    return 4.5 * (jnp.sqrt(slope * slope + 4 * wanted / 9) - slope)
