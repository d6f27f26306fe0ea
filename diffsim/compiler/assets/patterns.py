"""pattern_pixels: builtin textures, byte for byte as in MuJoCo.

Patterns are gradients, checkers and flat colours with marks on them. A colour c in [0, 1] is the byte floor(255 c).
Source: `mjCTexture` of 3.8.1.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from diffsim.compiler.assets.mersenne_twister import uniform

Array = np.ndarray

# red, green, blue in [0, 1]
Colour = tuple[float, ...]
# faces of a cube are numbered right, left, up, down, front, back
UP = 2
DOWN = 3
# the first of the two faces (front, back) on which a checker has its colours exchanged
FRONT = 4
# MuJoCo's seed for random marks
SEED = 42


class Pattern(NamedTuple):
    """The parameters of a builtin texture; `faces` is 1 for an image and 6 for a cube."""

    builtin: str
    mark: str
    rgb1: Colour
    rgb2: Colour
    markrgb: Colour
    random: float
    faces: int
    width: int
    height: int


@functools.lru_cache(maxsize=16)
def pattern_pixels(pattern: Pattern) -> Array:
    """(faces, height, width, 3) uint8: pixels, top row first; read-only."""
    with np.errstate(all="ignore"):
        pixels = np.ascontiguousarray(PATTERNS[pattern.builtin, pattern.faces](pattern))
    mark = _bytes(pattern.markrgb)
    if pattern.mark == "edge":
        pixels[:, [0, -1]] = pixels[:, :, [0, -1]] = mark
    elif pattern.mark == "cross":
        pixels[:, pattern.height // 2] = pixels[:, :, pattern.width // 2] = mark
    elif pattern.mark == "random" and pattern.random > 0:
        # each pixel is marked with a probability
        pixels[uniform(SEED, pixels[..., 0].size).reshape(pixels.shape[:3]) < pattern.random] = mark
    pixels.flags.writeable = False
    return pixels


def _bytes(colour: Array | Colour) -> Array:
    """Colours in [0, 1] as bytes; NaN becomes 0."""
    return np.nan_to_num(255 * np.asarray(colour, float), nan=0.0).astype(np.int64).astype(np.uint8)


def _blend(first: Colour, second: Colour, place: Array) -> Array:
    """Colours from `second` at place -1 to `first` at place 1, along a sigmoid."""
    alpha = np.clip(0.5 * (1 + place / np.sqrt(1 + place * place) / (1.0 / np.sqrt(2.0))), 0, 1)[..., None]
    return _bytes(alpha * np.asarray(first) + (1 - alpha) * np.asarray(second))


def _pixel_grid(pattern: Pattern) -> tuple[Array, Array]:
    """x (width,) to the right and y (height, 1) upwards, both from -1 to 1."""
    x = 2 * np.arange(pattern.width) / np.float64(pattern.width - 1) - 1
    y = 1 - 2 * np.arange(pattern.height) / np.float64(pattern.height - 1)
    return x, y[:, None]


def _radial(pattern: Pattern) -> Array:
    """rgb1 in the middle, rgb2 at the rim."""
    x, y = _pixel_grid(pattern)
    return _blend(pattern.rgb2, pattern.rgb1, 2 * np.sqrt(x * x + y * y) - 1)[None]


def _sky(pattern: Pattern) -> Array:
    """rgb1 above and rgb2 below, by the elevation angle of a pixel seen from the middle of the cube."""
    x, y = _pixel_grid(pattern)
    length = np.sqrt(1 + x * x + y * y)
    side = _blend(pattern.rgb1, pattern.rgb2, np.arcsin(y / length) / (0.5 * np.pi))
    up = 1 - np.arccos(1.0 / length) / (0.5 * np.pi)
    faces = [side] * 6
    faces[UP], faces[DOWN] = (_blend(pattern.rgb1, pattern.rgb2, sign * up) for sign in (1, -1))
    return np.stack(faces)


def _checker(pattern: Pattern) -> Array:
    """Two by two squares."""
    right, low = np.arange(pattern.width) >= pattern.width // 2, np.arange(pattern.height) >= pattern.height // 2
    second = np.repeat((right != low[:, None])[None], pattern.faces, axis=0)
    second[FRONT:] ^= True
    return np.where(second[..., None], _bytes(pattern.rgb2), _bytes(pattern.rgb1))


def _flat(pattern: Pattern) -> Array:
    """rgb1, or rgb2 on the lower face of a cube."""
    pixels = np.tile(_bytes(pattern.rgb1), (pattern.faces, pattern.height, pattern.width, 1))
    pixels[DOWN : DOWN + 1] = _bytes(pattern.rgb2)
    return pixels


# functions that make the patterns, by name and number of faces
PATTERNS: dict[tuple[str, int], Callable[[Pattern], Array]] = {
    ("gradient", 1): _radial,
    ("gradient", 6): _sky,
    ("checker", 1): _checker,
    ("checker", 6): _checker,
    ("flat", 1): _flat,
    ("flat", 6): _flat,
}
