"""What rays see that meet nothing: the model's skybox, or a plain sky.

Source of the skybox's orientation: MuJoCo "XML reference", texture (type skybox); the cube is turned by 90 degrees
about x, so that its upper face is above.
"""

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.math.vector import pack, unpack
from diffsim.viz.mapping import on_cube
from diffsim.viz.texture import Atlas, Spot, sample

Array = jax.Array

ZENITH = np.array([0.12, 0.30, 0.65])
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
        height = jnp.clip(direction[:, 2:], 0, 1) ** 0.6
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
    return jnp.clip(bright * (1 + bright / 9) / (1 + 0.55 * bright), 0, 1) ** (1 / 2.2)


def exposed(colour: Array) -> Array:
    """The amounts of light that `developed` makes these colours of."""
    wanted = colour**2.2
    slope = 1 - 0.55 * wanted
    return 4.5 * (jnp.sqrt(slope * slope + 4 * wanted / 9) - slope)
