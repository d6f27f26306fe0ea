"""Builtin textures: gradients, checkers and flat colours, with marks on them, byte for byte as MuJoCo makes them.

A colour c in [0, 1] is the byte floor(255 c). The faces of a cube are right, left, up, down, front, back.
Source: MuJoCo "XML reference", texture; `mjCTexture` of 3.8.1. Matsumoto and Nishimura 2000 and ISO C++,
[rand.eng.mers], mt19937_64, for the numbers that place random marks.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

Array = np.ndarray
Colour = tuple[float, ...]

UP, DOWN = 2, 3
# of these two faces the colours of a checker are exchanged
FRONT_AND_BACK = (4, 5)
# MuJoCo's seed of random marks
SEED = 42


class Pattern(NamedTuple):
    """What a builtin texture is made from; `faces` is 1 for an image and 6 for a cube."""

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
    """Pixels (faces, height, width, 3) uint8, top row first; read-only."""
    with np.errstate(all="ignore"):
        pixels = np.ascontiguousarray(FACES[pattern.builtin, pattern.faces](pattern))
    mark = _bytes(pattern.markrgb)
    if pattern.mark == "edge":
        pixels[:, [0, -1]] = pixels[:, :, [0, -1]] = mark
    elif pattern.mark == "cross":
        pixels[:, pattern.height // 2] = pixels[:, :, pattern.width // 2] = mark
    elif pattern.mark == "random" and pattern.random > 0:
        # single pixels, each with a probability
        pixels[uniform(SEED, pixels[..., 0].size).reshape(pixels.shape[:3]) < pattern.random] = mark
    pixels.flags.writeable = False
    return pixels


def _bytes(colour: Array | Colour) -> Array:
    """Colours in [0, 1] as bytes; what is no number is 0."""
    return np.nan_to_num(255 * np.asarray(colour, float), nan=0.0).astype(np.int64).astype(np.uint8)


def _blend(first: Colour, second: Colour, place: Array) -> Array:
    """Colours from `second` at place -1 to `first` at 1, along a sigmoid."""
    alpha = np.clip(0.5 * (1 + place / np.sqrt(1 + place * place) / (1.0 / np.sqrt(2.0))), 0, 1)[..., None]
    return _bytes(alpha * np.asarray(first) + (1 - alpha) * np.asarray(second))


def _grid(pattern: Pattern) -> tuple[Array, Array]:
    """x (width,) and y (height, 1), from -1 to 1, to the right and upwards."""
    x = 2 * np.arange(pattern.width) / np.float64(pattern.width - 1) - 1
    y = 1 - 2 * np.arange(pattern.height) / np.float64(pattern.height - 1)
    return x, y[:, None]


def _radial(pattern: Pattern) -> Array:
    """rgb1 in the middle, rgb2 at the rim."""
    x, y = _grid(pattern)
    return _blend(pattern.rgb2, pattern.rgb1, 2 * np.sqrt(x * x + y * y) - 1)[None]


def _sky(pattern: Pattern) -> Array:
    """rgb1 above, rgb2 below, by the elevation of a pixel seen from the middle of the cube."""
    x, y = _grid(pattern)
    length = np.sqrt(1 + x * x + y * y)
    side = _blend(pattern.rgb1, pattern.rgb2, np.arcsin(y / length) / (0.5 * np.pi))
    up = 1 - np.arccos(1.0 / length) / (0.5 * np.pi)
    faces = [side] * 6
    faces[UP], faces[DOWN] = (_blend(pattern.rgb1, pattern.rgb2, sign * up) for sign in (1, -1))
    return np.stack(faces)


def _checker(pattern: Pattern) -> Array:
    """Two squares by two."""
    right, low = np.arange(pattern.width) >= pattern.width // 2, np.arange(pattern.height) >= pattern.height // 2
    second = np.repeat((right != low[:, None])[None], pattern.faces, axis=0)
    second[FRONT_AND_BACK[0] :] ^= True
    return np.where(second[..., None], _bytes(pattern.rgb2), _bytes(pattern.rgb1))


def _flat(pattern: Pattern) -> Array:
    """rgb1; on the lower face of a cube rgb2."""
    pixels = np.tile(_bytes(pattern.rgb1), (pattern.faces, pattern.height, pattern.width, 1))
    pixels[DOWN : DOWN + 1] = _bytes(pattern.rgb2)
    return pixels


FACES: dict[tuple[str, int], Callable[[Pattern], Array]] = {
    ("gradient", 1): _radial,
    ("gradient", 6): _sky,
    ("checker", 1): _checker,
    ("checker", 6): _checker,
    ("flat", 1): _flat,
    ("flat", 6): _flat,
}


# the 64-bit Mersenne twister, as the C++ library has it; numpy has the 32-bit one
WORDS, MIDDLE = 312, 156
TWIST = np.uint64(0xB5026F5AA96619E9)
LOW = np.uint64((1 << 31) - 1)
ONE = np.uint64(1)
# shift to the left (negative) or right, mask
TEMPER = ((29, 0x5555555555555555), (-17, 0x71D67FFFEDA60000), (-37, 0xFFF7EEE000000000), (43, 2**64 - 1))


def uniform(seed: int, count: int) -> Array:
    """(count,) numbers in [0, 1), as `uniform_real_distribution<double>` draws them."""
    start = [seed]
    for k in range(1, WORDS):
        start.append((6364136223846793005 * (start[-1] ^ (start[-1] >> 62)) + k) % 2**64)
    words = np.empty(WORDS + -(-count // MIDDLE) * MIDDLE, np.uint64)
    words[:WORDS] = start
    # a word follows from those WORDS, WORDS - 1 and WORDS - MIDDLE before it: MIDDLE of them at once
    for first in range(0, count, MIDDLE):
        joined = (words[first : first + MIDDLE] & ~LOW) | (words[first + 1 : first + MIDDLE + 1] & LOW)
        mixed = (joined >> ONE) ^ ((joined & ONE) * TWIST)
        target = words[first + WORDS : first + WORDS + MIDDLE]
        np.bitwise_xor(words[first + MIDDLE : first + 2 * MIDDLE], mixed, out=target)
    words = words[WORDS : WORDS + count]
    for shift, mask in TEMPER:
        moved = words >> np.uint64(shift) if shift > 0 else words << np.uint64(-shift)
        words = words ^ (moved & np.uint64(mask))
    return np.minimum(words.astype(float) * 2.0**-64, np.nextafter(1, 0))
