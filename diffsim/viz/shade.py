"""Colour of rays: one sun with its shadow, light from the sky, a highlight, a checkered floor that fades away.

All colours are linear inside; the caller applies the sRGB curve. Shading after Blinn and Phong.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.enums import GeomType
from diffsim.geometry.ray import RayHits, Rays, cast
from diffsim.math import safe
from diffsim.math.vector import dot, mul_vec_t, scale
from diffsim.types import Model

Array = jax.Array

SUN = np.array([1.0, 0.96, 0.88]) * 1.9
SKY = np.array([0.50, 0.62, 0.80])
GROUND = np.array([0.30, 0.28, 0.26])
ZENITH = np.array([0.12, 0.30, 0.65])
HORIZON = np.array([0.58, 0.70, 0.85])
# two blue greys of the floor's checker
TILES = np.array([[0.10, 0.13, 0.17], [0.19, 0.24, 0.30]])


class Scene(NamedTuple):
    """What a ray can see: poses, linear colours (ngeom, 3), which geoms are shown, and sizes of the floor's pattern."""

    model: Model
    xpos: Array
    xmat: Array
    colour: Array
    shown: Array
    tile: Array
    fade: Array


def radiance(scene: Scene, origin: Array, direction: Array, sun: Array) -> Array:
    """Linear colours (k, 3) that come along rays (k, 3); `sun` (3,) is the unit direction towards the light."""
    hits = _cast(scene, origin, direction)
    hit = hits.distance >= 0
    point = origin + scale(direction, jnp.where(hit, hits.distance, 0))
    # a surface seen from behind (inside a shape) turns towards the eye
    normal = jnp.where((dot(hits.normal, direction) > 0)[:, None], -hits.normal, hits.normal)
    towards = jnp.broadcast_to(sun[None], point.shape)
    lifted = point + 1e-3 * scene.tile * normal
    lit = jnp.where(_cast(scene, lifted, towards).distance < 0, 1, 0).astype(point.dtype)
    base, far = _surface(scene, hits, point)
    shaded = base * _light(normal, towards, lit) + _highlight(normal, direction, towards, lit)
    sky = _background(direction)
    mixed = shaded + (sky - shaded) * far[:, None]
    return jnp.where(hit[:, None], mixed, sky)


def _cast(scene: Scene, origin: Array, direction: Array) -> RayHits:
    rays = Rays(origin, direction, exclude=np.full(len(origin), -1))
    return cast(scene.model, scene.xpos, scene.xmat, rays, scene.shown)


def _light(normal: Array, towards: Array, lit: Array) -> Array:
    """Light that falls on a surface: the sun's, and the sky's from above, the ground's from below."""
    upward = (0.5 + 0.5 * normal[:, 2])[:, None]
    ambient = _constant(GROUND, normal) + (_constant(SKY, normal) - _constant(GROUND, normal)) * upward
    direct = jnp.maximum(dot(normal, towards), 0) * lit
    return 0.6 * ambient + _constant(SUN, normal) * direct[:, None]


def _highlight(normal: Array, direction: Array, towards: Array, lit: Array) -> Array:
    halfway = safe.normalize(towards - direction)
    strength = 0.18 * jnp.maximum(dot(normal, halfway), 0) ** 40 * lit
    return strength[:, None] * _constant(SUN, normal)


def _surface(scene: Scene, hits: RayHits, point: Array) -> tuple[Array, Array]:
    """Base colours (k, 3), and how far a floor has faded into the horizon (k,), 0 for other geoms."""
    geom = jnp.maximum(hits.geom, 0)
    kinds = np.asarray(scene.model.topology.geom_type)
    plane = jnp.asarray(kinds == GeomType.PLANE)[geom]
    local = mul_vec_t(scene.xmat[geom], point - scene.xpos[geom])
    odd = jnp.mod(jnp.floor(local[:, 0] / scene.tile) + jnp.floor(local[:, 1] / scene.tile), 2)[:, None]
    tiles = _constant(TILES[0], point) + (_constant(TILES[1], point) - _constant(TILES[0], point)) * odd
    # a material tints the tiles, as it would tint a texture
    own = jnp.asarray(np.asarray(scene.model.topology.geom_matid) >= 0)[geom][:, None]
    colour = scene.colour[geom]
    tiled = jnp.where(own, colour, 1) * tiles
    far = 1 - jnp.exp(-((jnp.maximum(hits.distance, 0) / scene.fade) ** 2))
    return jnp.where(plane[:, None], tiled, colour), jnp.where(plane, far, 0)


def _background(direction: Array) -> Array:
    height = jnp.clip(direction[:, 2], 0, 1)[:, None] ** 0.6
    return _constant(HORIZON, direction) + (_constant(ZENITH, direction) - _constant(HORIZON, direction)) * height


def _constant(colour: np.ndarray, like: Array) -> Array:
    return jnp.asarray(colour, like.dtype)[None]
