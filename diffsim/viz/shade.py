"""Shading: lights with their shadows, ambient light, highlights, floors that fade into the horizon.

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
from diffsim.geometry.rays.bundles import BundledHits, BundledRays
from diffsim.math import safe
from diffsim.math.vector import dot, pack, scale, unpack
from diffsim.viz.lights import Lights, incident
from diffsim.viz.material import GAMMA
from diffsim.viz.scene import Plan, Scene
from diffsim.viz.surface import HitPoints, Surface, ends, surface_of, trace
from diffsim.viz.textures import Atlas, TextureLookup, on_cube, sample

# linear colour of the ambient light from above: bluish
SKY = np.array([0.50, 0.62, 0.80])
# linear colour of the ambient light from below, as reflected by a gray floor
GROUND = np.array([0.30, 0.28, 0.26])
# fraction of SKY and GROUND that reaches a surface, so that the sun remains the main light
AMBIENT = 0.6
# blur of the sky that floors fade into, rad, so that the horizon shows no details of a skybox
HAZE = 0.5
# Phong exponent of the highlight at shininess 1
SHARPNESS = 80.0
# most surfaces that a ray meets; the last one looks opaque
LAYERS = 6
# a ray ends when clear objects have left less than this fraction of its light: less than one step of 8 bits
FAINT = 2e-3
# types without an inside: both of their sides are drawn
OPEN = (GeomType.PLANE, GeomType.HFIELD, GeomType.FLEX)


class Lighting(NamedTuple):
    """What is the same for all pixels of one sample.

    Attributes:
      lights: the lights.
      spread: (3,) added to unit directions to lights.
      angle: () rad, that a pixel spans.
    """

    lights: Lights
    spread: Array
    angle: Array


def radiance(scene: Scene, plan: Plan, rays: BundledRays, hits: BundledHits, light: Lighting) -> Array:
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


def _layer(scene: Scene, plan: Plan, rays: BundledRays, hits: BundledHits, light: Lighting) -> _Layer:
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
    normal = surface.normal.reshape(point.shape)
    # rays from here start a little above the surface, so that rounding does not make them hit this surface
    start = point + 1e-3 * scene.tile * normal
    seen = BundledRays(start, rays.direction, rays.wanted & (hits.thing >= 0))
    shaded = _shaded(scene, plan, thing, surface, seen, light)
    if plan.mirrors:
        amount = jnp.where(surface.mirror & ~away & hit, jnp.asarray(scene.looks.reflectance)[thing], 0)
        turned = rays.direction - scale(normal, 2 * dot(normal, rays.direction))
        reflected = BundledRays(start, turned, rays.wanted & (amount > 0).reshape(start.shape[:2]))
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


def _shaded(scene: Scene, plan: Plan, thing: Array, surface: Surface, seen: BundledRays, light: Lighting) -> Array:
    """Light (k, 3) from surfaces to the eye, by Blinn-Phong.

    The sum of colour emission and, for each light, colour (ambient + diffuse max(n . s, 0)) + specular max(n . h, 0)^p,
    where s is the direction to the light and h is halfway between s and the direction to the eye. With the sun, ambient
    light comes from the sky and the ground, and blends with the normal's z.

    Args:
      scene, plan: what is drawn.
      thing: (k,) index of the object of each surface.
      surface: the surfaces.
      seen: rays (b, l) with b l = k; each begins at its surface, in the direction in which the eye looks.
      light: the lights.
    """
    look = scene.looks
    of_things = look.emission, look.specular, look.shininess
    emission, specular, shininess = (jnp.asarray(values)[thing][:, None] for values in of_things)
    point, direction = seen.origin.reshape(-1, 3), seen.direction.reshape(-1, 3)
    glow = emission
    if not plan.lights:
        upward = (0.5 + 0.5 * surface.normal[:, 2])[:, None]
        ground, sky = (jnp.asarray(colour, upward.dtype)[None] for colour in (GROUND, SKY))
        glow = glow + AMBIENT * (ground + (sky - ground) * upward)
    casting = _casting(scene) if plan.clear else scene

    def with_light(total: Array, lamp: Lights) -> tuple[Array, None]:
        """`total` and the light of one lamp."""
        towards, distance, amount = incident(lamp, point, light.spread)
        cosine = dot(surface.normal, towards)
        wanted = seen.wanted & ((cosine > 0) & (amount > 0) & lamp.shadow).reshape(seen.wanted.shape)
        shadow = trace(casting, plan.groups, BundledRays(seen.origin, towards.reshape(seen.origin.shape), wanted))
        blocked = (shadow.thing >= 0) & (shadow.distance < distance.reshape(wanted.shape))
        lit = jnp.where((cosine > 0) & ~blocked.reshape(-1), amount, 0)[:, None]
        halfway = jnp.maximum(dot(surface.normal, safe.normalize(towards - direction)), 0)[:, None]
        shine = specular * halfway ** jnp.maximum(SHARPNESS * shininess, 1)
        direct = lamp.diffuse[None] * jnp.maximum(cosine, 0)[:, None] * lit
        ambient = lamp.ambient[None] * amount[:, None]
        return total + surface.colour * (ambient + direct) + lamp.specular[None] * shine * lit, None

    return jax.lax.scan(with_light, surface.colour * glow, light.lights)[0]


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
    return exposed(sample(atlas, TextureLookup(texture, face, place, 0.5 * side * angle / largest)))


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
