"""PNG images as pixels, with 8 bits, as MuJoCo's decoder reads them.

The size in the header is checked before the image is decompressed. A texture of one channel has the first channel of
the image. Source: the PNG specification (header, sRGB chunk).
"""

import io
import warnings

import numpy as np
from PIL import Image

from diffsim.mjcf.resources import MOST_PIXELS, AssetError, check_count

Array = np.ndarray

# the first 8 bytes of a PNG file
SIGNATURE = b"\x89PNG\r\n\x1a\n"
# Pillow's mode for a number of channels
MODES = {3: "RGB", 4: "RGBA"}


def png_size(data: bytes) -> tuple[int, int]:
    """Width and height in the header of a PNG file. Raises AssetError if it is not PNG, or if it is too large."""
    if len(data) < 24 or data[:8] != SIGNATURE or data[12:16] != b"IHDR":
        raise AssetError("is not a PNG file")
    width, height = int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")
    if not width or not height:
        raise AssetError(f"is not a PNG file: it is {width} by {height} pixels")
    check_count(width * height, MOST_PIXELS, f"pixels ({width} by {height})")
    return width, height


def png_gray(data: bytes) -> Array:
    """(rows, columns) uint8: gray values, top row first. Raises AssetError if the file is damaged."""
    return _gray(_decoded(data))


def png_pixels(data: bytes, channels: int) -> Array:
    """(rows, columns, channels) uint8: pixels, top row first. Raises AssetError if the file is damaged.

    channels: 1, 3 or 4.
    """
    image = _decoded(data)
    if channels == 1:
        return _gray(image)[:, :, None]
    if image.mode.startswith("I"):
        image = Image.fromarray(_gray(image))
    return np.asarray(image.convert(MODES[channels]))


def png_is_srgb(data: bytes) -> bool:
    """Whether a PNG file has an sRGB chunk before its pixels."""
    place = len(SIGNATURE)
    while place + 8 <= len(data) and (kind := data[place + 4 : place + 8]) != b"IDAT":
        if kind == b"sRGB":
            return True
        place += 12 + int.from_bytes(data[place : place + 4], "big")
    return False


def _decoded(data: bytes) -> Image.Image:
    """The image in a PNG file, checked for its size first. Raises AssetError if the file is damaged."""
    png_size(data)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            image = Image.open(io.BytesIO(data), formats=("PNG",))
            image.load()
    except Exception as error:  # a damaged file makes the decoder raise almost anything
        raise AssetError(f"is a damaged PNG file: {str(error)[:80]}") from None
    return image


def _gray(image: Image.Image) -> Array:
    """(rows, columns) uint8: the first channel; of 16-bit images the upper 8 bits."""
    if image.mode.startswith("I"):
        return (np.asarray(image).astype(np.int64) >> 8).clip(0, 255).astype(np.uint8)
    if image.mode in ("1", "P"):
        image = image.convert("RGB")
    return np.asarray(image.getchannel(0))
