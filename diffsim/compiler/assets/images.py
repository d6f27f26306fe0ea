"""PNG images as arrays. Nothing is inflated before the size that the header declares is known to be small.

Source: the PNG specification (header, sRGB chunk); values as MuJoCo's decoder makes them: 8 bits, one channel is the
first one.
"""

import io
import warnings

import numpy as np
from PIL import Image

from diffsim.mjcf.resources import MOST_PIXELS, AssetError, check_count

Array = np.ndarray

SIGNATURE = b"\x89PNG\r\n\x1a\n"
# what an image is converted to, by the number of channels that are wanted
MODES = {3: "RGB", 4: "RGBA"}


def png_size(data: bytes) -> tuple[int, int]:
    """Width and height that the header of a PNG file declares. Raises AssetError without one, or if it is too large."""
    if len(data) < 24 or data[:8] != SIGNATURE or data[12:16] != b"IHDR":
        raise AssetError("is not a PNG file")
    width, height = int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")
    if not width or not height:
        raise AssetError(f"is not a PNG file: it is {width} by {height} pixels")
    check_count(width * height, MOST_PIXELS, f"pixels ({width} by {height})")
    return width, height


def png_gray(data: bytes) -> Array:
    """Gray values (rows, columns) uint8, top row first. Raises AssetError where the file is damaged."""
    return _gray(_decoded(data))


def png_pixels(data: bytes, channels: int) -> Array:
    """Pixels (rows, columns, channels) uint8, top row first; 1, 3 or 4 channels. Raises AssetError as `png_gray`."""
    image = _decoded(data)
    if channels == 1:
        return _gray(image)[:, :, None]
    if image.mode.startswith("I"):
        image = Image.fromarray(_gray(image))
    return np.asarray(image.convert(MODES[channels]))


def png_is_srgb(data: bytes) -> bool:
    """Whether a PNG file says, before its pixels, that its colours are sRGB."""
    place = len(SIGNATURE)
    while place + 8 <= len(data) and (kind := data[place + 4 : place + 8]) != b"IDAT":
        if kind == b"sRGB":
            return True
        place += 12 + int.from_bytes(data[place : place + 4], "big")
    return False


def _decoded(data: bytes) -> Image.Image:
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
    if image.mode.startswith("I"):
        return (np.asarray(image).astype(np.int64) >> 8).clip(0, 255).astype(np.uint8)
    if image.mode in ("1", "P"):
        image = image.convert("RGB")
    return np.asarray(image.getchannel(0))
