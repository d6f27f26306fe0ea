"""Shading: one sun with its shadow, ambient light from the sky, highlights, floors that fade into the horizon.

One can look through objects with an alpha below 1; they cast no shadows. Planes and the tops of boxes mirror once, if
their material has a reflectance: the image is blended with their colour.

All colours here are linear; the caller converts them to the screen with `developed`. The shading model is Blinn-Phong.
A ray that hits nothing sees the model's skybox, or a plain sky. The skybox is a cube texture turned by 90 degrees about
x, so that its upper face is above. Source: MuJoCo "XML reference", texture (type skybox).
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.base.enums import GeomType
from diffsim.geometry.rays.ray import BundledHits, BundledRays
from diffsim.math import safe
from diffsim.math.vector import dot, pack, scale, unpack
from diffsim.viz.material import GAMMA, Atlas, Spot, on_cube, sample
from diffsim.viz.scene import Plan, Scene
from diffsim.viz.surface import HitPoints, Surface, ends, surface_of, trace

# linear colour of the light of the sun: slightly warm
SUNLIGHT = np.array([1.0, 0.96, 0.88]) * 1.9
# linear colour of the ambient light from above: bluish
SKY = np.array([0.50, 0.62, 0.80])
# linear colour of the ambient light from below, as reflected by a gray floor
GROUND = np.array([0.30, 0.28, 0.26])
# fraction of SKY and GROUND that reaches a surface, so that the sun remains the main light
AMBIENT = 0.6
# blur of the sky that floors fade into, rad, so that the horizon shows no details of a skybox
HAZE = 0.5
# amount of light in the highlight at specular 1
HIGHLIGHT = 0.36
# Phong exponent of the highlight at shininess 1
SHARPNESS = 80.0
# most surfaces that a ray meets; the last one looks opaque
LAYERS = 6
# a ray ends when clear objects have left less than this fraction of its light: less than one step of 8 bits
FAINT = 2e-3
# types without an inside: both of their sides are drawn
OPEN = (GeomType.PLANE, GeomType.HFIELD, GeomType.FLEX)


class Light(NamedTuple):
    """Unit direction `sun` (3,) to the light, and the `angle` () that a pixel spans, rad."""

    sun: Array
    angle: Array


def radiance(scene: Scene, plan: Plan, rays: BundledRays, hits: BundledHits, light: Light) -> Array:
    """Linear colours (b, l, 3) of b bundles of l rays whose first hits are `hits`."""
    if not plan.clear:
        return _layer(scene, plan, rays, hits, light).colour

    # Surfaces are blended from front to back: a surface of opacity a adds a times its colour, and lets 1 - a of the
    # light from behind it pass. The next ray starts a little behind the surface. It does not hit the back of the same
    # object, so that another object that touches this back is drawn.
    def next_layer(carry: tuple, last: Array) -> tuple[tuple, None]:
        """The rays, their hits, the colours so far and the light that is left, after one more surface."""
        return jax.lax.cond(jnp.any(carry[0].wanted), partial(through, last), lambda *carry: carry, *carry), None

    def through(last: Array, rays: BundledRays, hits: BundledHits, total: Array, left: Array) -> tuple:
        """`next_layer` where some ray still goes on; `last` says that the surface looks opaque."""
        layer = _layer(scene, plan, rays, hits, light)
        opacity = jnp.where(rays.wanted, jnp.where(last, 1, layer.opacity), 0)[..., None]
        total = total + left * opacity * layer.colour
        left = left * (1 - opacity)
        on = BundledRays(
            ends(rays, hits) + 1e-3 * scene.tile * rays.direction,
            rays.direction,
            rays.wanted & (hits.thing >= 0) & (left[..., 0] > FAINT),
        )
        return on, trace(scene, plan.groups, on, hits.thing), total, left

    nothing = jnp.zeros_like(rays.direction)
    last = np.arange(LAYERS) == LAYERS - 1
    (*_, total, _), _ = jax.lax.scan(next_layer, (rays, hits, nothing, nothing[..., :1] + 1), last)
    return total


class _Layer(NamedTuple):
    """Linear `colour` (b, l, 3) of what rays met, and its `opacity` (b, l)."""

    colour: Array
    opacity: Array


def _layer(scene: Scene, plan: Plan, rays: BundledRays, hits: BundledHits, light: Light) -> _Layer:
    """Colours and opacities of the surfaces that rays hit, or of the sky."""
    hit = (hits.thing >= 0).reshape(-1)
    shape = rays.direction.shape
    direction = rays.direction.reshape(-1, 3)
    sky = sky_colour(scene.atlas, plan.sky, direction, light.angle)
    if not plan.groups:
        return _Layer(sky.reshape(shape), jnp.ones(shape[:2], sky.dtype))
    distance = jnp.where(hit, hits.distance.reshape(-1), 0)
    point = ends(rays, hits)
    points = HitPoints(
        thing=hits.thing.reshape(-1),
        facet=hits.facet.reshape(-1),
        point=point.reshape(-1, 3),
        width=light.angle * distance,
    )
    thing = jnp.maximum(points.thing, 0)
    surface = surface_of(scene, plan.groups, points)
    # flip the normals of surfaces that are seen from behind, as from inside a shape
    away = dot(surface.normal, direction) > 0
    surface = surface._replace(normal=jnp.where(away[:, None], -surface.normal, surface.normal))
    # a shadow ray to the sun; it starts a little above the surface, so that rounding does not make it hit this surface
    normal = surface.normal.reshape(point.shape)
    faces = dot(normal, jnp.broadcast_to(light.sun, normal.shape)) > 0
    start = point + 1e-3 * scene.tile * normal
    wanted = rays.wanted & (hits.thing >= 0) & faces
    to_sun = BundledRays(start, jnp.broadcast_to(light.sun, start.shape), wanted)
    shadow = trace(_casting(scene) if plan.clear else scene, plan.groups, to_sun)
    lit = (faces & (shadow.thing < 0)).reshape(-1).astype(normal.dtype)
    shaded = _shaded(scene, thing, surface, direction, light, lit)
    if plan.mirrors:
        amount = jnp.where(surface.mirror & ~away & hit, jnp.asarray(scene.looks.reflectance)[thing], 0)
        turned = rays.direction - scale(normal, 2 * dot(normal, rays.direction))
        reflected = BundledRays(start, turned, rays.wanted & (amount > 0).reshape(faces.shape))
        # a mirror in a mirror does not mirror
        plain = plan._replace(mirrors=False)
        image = radiance(scene, plain, reflected, trace(scene, plan.groups, reflected), light).reshape(-1, 3)
        shaded = shaded + amount[:, None] * (image - shaded)
    if any(group.kind == GeomType.PLANE for group in plan.groups):
        # floors fade into the horizon with weight 1 - exp(-(distance / fade)^2)
        faded = jnp.where(surface.floor, 1 - jnp.exp(-((distance / scene.fade) ** 2)), 0)[:, None]
        level = safe.normalize(direction * jnp.asarray([[1, 1, 0]], direction.dtype))
        horizon = sky_colour(scene.atlas, plan.sky, level, jnp.full((), HAZE, direction.dtype))
        shaded = shaded + (horizon - shaded) * faded
    colour = jnp.where(hit[:, None], shaded, sky).reshape(shape)
    if not plan.clear:
        return _Layer(colour, jnp.ones(shape[:2], colour.dtype))
    # of a clear shape only the outside is drawn, as in MuJoCo
    closed = np.concatenate([np.full(group.number, group.kind not in OPEN) for group in plan.groups])
    alpha = jnp.asarray(scene.looks.alpha)[thing]
    alpha = jnp.where(away & jnp.asarray(closed)[thing] & (alpha < 1), 0, alpha)
    return _Layer(colour, jnp.where(hit, alpha, 1).reshape(shape[:2]))


def _casting(scene: Scene) -> Scene:
    """The scene without the clear objects, which cast no shadows."""
    reach = jnp.where(jnp.asarray(scene.looks.alpha) < 1, -jnp.inf, scene.places.reach)
    return scene._replace(places=scene.places._replace(reach=reach))


def _shaded(scene: Scene, thing: Array, surface: Surface, direction: Array, light: Light, lit: Array) -> Array:
    """Light (k, 3) from surfaces to the eye, by Blinn-Phong.

    colour (ambient + sun max(n . s, 0) + emission) + highlight max(n . h, 0)^p, where s is the direction to the sun and
    h is halfway between s and the direction to the eye. Ambient light blends from ground to sky with the normal's z.
    """
    look = scene.looks
    normal = surface.normal
    sun = jnp.broadcast_to(light.sun, normal.shape)
    upward = (0.5 + 0.5 * normal[:, 2])[:, None]
    ground, sky, bright = (jnp.asarray(colour, normal.dtype)[None] for colour in (GROUND, SKY, SUNLIGHT))
    ambient = AMBIENT * (ground + (sky - ground) * upward)
    direct = bright * (jnp.maximum(dot(normal, sun), 0) * lit)[:, None]
    of_things = look.emission, look.specular, look.shininess
    emission, specular, shininess = (jnp.asarray(values)[thing][:, None] for values in of_things)
    halfway = jnp.maximum(dot(normal, safe.normalize(sun - direction)), 0)[:, None]
    shine = HIGHLIGHT * specular * halfway ** jnp.maximum(SHARPNESS * shininess, 1)
    return surface.colour * (ambient + direct + emission) + shine * lit[:, None] * bright


# linear colour of the plain sky straight up
ZENITH = np.array([0.12, 0.30, 0.65])
# linear colour of the plain sky at the horizon
HORIZON = np.array([0.58, 0.70, 0.85])
# exponent of the sine of the elevation with which the plain sky darkens from horizon to zenith
SKY_EXPONENT = 0.6
# lower bound of the arguments of powers: it looks black, and the derivative of the power is finite there
DARK = 1e-9


def sky_colour(atlas: Atlas, sky: int, direction: Array, angle: Array) -> Array:
    """Linear colours (k, 3) of the sky in unit directions (k, 3).

    Args:
      atlas: textures of the model.
      sky: index of the skybox texture, -1 for the plain sky.
      direction: in the world frame.
      angle: rad, the angle that a pixel spans.
    """
    if sky < 0:
        height = jnp.clip(direction[:, 2:], DARK, 1) ** SKY_EXPONENT
        zenith, horizon = (jnp.asarray(colour, direction.dtype)[None] for colour in (ZENITH, HORIZON))
        return horizon + (zenith - horizon) * height
    x, y, z = unpack(direction)
    face, place, largest = on_cube(pack([x, z, -y]))
    texture = jnp.full(face.shape, sky)
    # a place on a face is 0.5 + 0.5 d / largest, so a pixel covers 0.5 side angle / largest texels
    side = atlas.width[sky, 0]
    return exposed(sample(atlas, Spot(texture, face, place, 0.5 * side * angle / largest)))


def developed(light: Array) -> Array:
    """Converts linear light x to colours of a screen in [0, 1]: tone curve x (1 + x / 9) / (1 + 0.55 x), then gamma."""
    bright = jnp.clip(light, 0, None)
    shown = jnp.clip(bright * (1 + bright / 9) / (1 + 0.55 * bright), 0, 1)
    return jnp.where(shown > DARK, jnp.maximum(shown, DARK) ** (1 / GAMMA), 0)


def exposed(colour: Array) -> Array:
    """The inverse of `developed`: converts colours in [0, 1] to linear light."""
    # y = x (1 + x / 9) / (1 + 0.55 x), solved for x: x^2 / 9 + (1 - 0.55 y) x - y = 0
    y = colour**GAMMA
    b = 1 - 0.55 * y
    return 4.5 * (jnp.sqrt(b * b + 4 * y / 9) - b)
