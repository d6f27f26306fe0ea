"""PNG images: what their header says, and their gray values. Nothing is inflated before its size is known to be small.

Textures are only looked at: files inside the model's folder must be there and be of a bounded size. Whoever renders
decodes them.
Source: the PNG specification (header); gray values as MuJoCo's decoder makes them: 8 bits of the first channel.
"""

import io
import warnings

import numpy as np

from diffsim.compiler.assets.limits import MOST_PIXELS, AssetError, check_count, refuse
from diffsim.compiler.draft import Draft, Node
from diffsim.mjcf.resources import OutsideError, ResourceError

Array = np.ndarray

SIGNATURE = b"\x89PNG\r\n\x1a\n"

TEXTURE_FILES = ("file_", "fileright", "fileleft", "fileup", "filedown", "filefront", "fileback")


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
    # imported here: only models with such a file pay for it
    from PIL import Image

    png_size(data)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            image = Image.open(io.BytesIO(data), formats=("PNG",))
            image.load()
    except Exception as error:  # a damaged file makes the decoder raise almost anything
        raise AssetError(f"is a damaged PNG file: {str(error)[:80]}") from None
    if image.mode.startswith("I"):
        return (np.asarray(image).astype(np.int64) >> 8).clip(0, 255).astype(np.uint8)
    if image.mode in ("1", "P"):
        image = image.convert("RGB")
    return np.asarray(image.getchannel(0))


def texture_rows(draft: Draft) -> None:
    """Check the files of all textures, and that those made from numbers have a bounded size."""
    for node in draft.nodes["texture"]:
        try:
            _check_texture(draft, node)
        except AssetError as error:
            refuse(draft, node, error)
    draft.problems.raise_if_any()
    draft.fields["ntex"] = len(draft.nodes["texture"])


def _check_texture(draft: Draft, node: Node) -> None:
    e = node.e
    check_count(max(0, e.width) * max(0, e.height), MOST_PIXELS, f"pixels ({e.width} by {e.height})")
    for attribute in TEXTURE_FILES:
        name = getattr(e, attribute)
        if not name:
            continue
        try:
            data = draft.spec.read_file(node.source, attribute)
        except OutsideError:
            # nobody opens it, so it does no harm that it is there
            continue
        except ResourceError as error:
            raise AssetError(str(error), error.hint) from None
        if data[:8] == SIGNATURE:
            png_size(data)
