"""texture_rows: all textures as bytes, from builtin patterns, one image or six images, top row first.

A cube has six faces, one below the other (right, left, up, down, front, back), or one face that is repeated. A file
outside the model's folder that may not be opened becomes one white pixel, with a warning.

Patterns are gradients, checkers and flat colours with marks on them, byte for byte as in MuJoCo: a colour c in [0, 1]
is the byte floor(255 c).

The size in the header of a PNG image is checked before the image is decompressed. Pixels equal what
MuJoCo's decoder reads: they have 8 bits, and a texture of one channel has the first channel of the image.

Source: MuJoCo "XML reference", texture; `mjCTexture` of 3.8.1. The PNG specification (header, sRGB chunk). Matsumoto
and Nishimura 2000 and ISO C++, [rand.eng.mers], mt19937_64, for the numbers that place random marks.
"""

import functools
import io
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from diffsim.base.enums import ColorSpace, TextureType
from diffsim.compiler.draft import Draft, Node, addresses
from diffsim.mjcf.resources import MOST_PIXELS, MOST_TEXELS, AssetError, OutsideError, check_count, kind_of

Array = np.ndarray

# attributes with the files of a cube's faces, in the order of its faces
FACES = ("fileright", "fileleft", "fileup", "filedown", "filefront", "fileback")
# letters of the faces in attribute 'gridlayout', in the same order
LETTERS = "RLUDFB"
# media types by the extension of a file
KINDS = {".png": "image/png", ".ktx": "image/ktx"}
# legal numbers of channels
CHANNELS = (1, 3, 4)


def texture_rows(draft: Draft) -> None:
    """tex_type, tex_width ... and tex_data, the bytes of all textures."""
    images = []
    total = 0
    for node in draft.nodes["texture"]:
        try:
            image, space = _texture(draft, node)
            total += image.shape[0] * image.shape[1]
            check_count(total, MOST_TEXELS, "pixels together with the textures before it")
        except AssetError as error:
            draft.refuse(node, error)
            continue
        images.append(image)
        height, width, channels = image.shape
        kind = int(node.e.type)
        node.row = {"tex_type": kind, "tex_colorspace": int(space), "tex_height": height, "tex_width": width}
        node.row["tex_nchannel"] = channels
    draft.problems.raise_if_any()
    draft.columns("texture")
    lengths = np.array([image.size for image in images], int)
    data = np.concatenate([np.zeros(0, np.uint8), *(image.ravel() for image in images)])
    draft.fields.update(ntex=len(images), ntexdata=len(data), tex_adr=addresses(lengths), tex_data=data)


def _texture(draft: Draft, node: Node) -> tuple[Array, ColorSpace]:
    """Pixels (height, width, channels) and the colour space. Raises AssetError."""
    e = node.e
    if e.nchannel not in CHANNELS:
        raise AssetError(f"attribute 'nchannel': must be 1, 3 or 4, not {e.nchannel}")
    try:
        if e.builtin != "none":
            return _builtin(e), e.colorspace
        if e.file_:
            image, space = _image(draft, node, "file_")
            return (image if e.type == TextureType.TWO_D else _cube_of_one(e, image)), space
        return _cube_of_six(draft, node)
    except AssetError as error:
        if isinstance(error.__cause__, OutsideError):
            place = f"{node.source.file}:{node.source.line} {node.source.label}"
            warnings.warn(f"{place} is white: {error.__cause__} ({error.__cause__.hint})", stacklevel=2)
            return np.full((1, 1, 3), 255, np.uint8), e.colorspace
        raise


def _builtin(e: Any) -> Array:
    """Pixels (height, width, channels) of a builtin pattern."""
    if e.nchannel != 3 and (e.nchannel < 3 or e.type != TextureType.TWO_D):
        raise AssetError(f"attribute 'nchannel': a builtin texture needs 3 channels, not {e.nchannel}")
    flat = e.type == TextureType.TWO_D
    faces, height = (1, e.height) if flat else (6, e.width)
    check_count(faces * e.width * height, MOST_PIXELS, f"pixels ({e.width} by {faces * height})")
    first, second, mark = (tuple(np.asarray(colour, float).tolist()) for colour in (e.rgb1, e.rgb2, e.markrgb))
    pattern = Pattern(
        builtin=e.builtin,
        mark=e.mark,
        rgb1=first,
        rgb2=second,
        markrgb=mark,
        random=float(e.random),
        faces=faces,
        width=e.width,
        height=height,
    )
    pixels = pattern_pixels(pattern)
    # as in MuJoCo, a fourth channel is not interleaved: its bytes come after all others, as zeros
    spare = np.zeros((e.nchannel - 3) * faces * height * e.width, np.uint8)
    return np.concatenate([pixels.ravel(), spare]).reshape(faces * height, e.width, e.nchannel)


def _image(draft: Draft, node: Node, attribute: str) -> tuple[Array, ColorSpace]:
    """Pixels of a file, flipped by `hflip` and `vflip`, and their colour space."""
    e = node.e
    name = getattr(node.e, attribute)
    data = draft.contents(node, attribute)
    kind = kind_of(name, e.content_type, KINDS)
    srgb = False
    if kind == KINDS[".png"]:
        pixels = png_pixels(data, e.nchannel)
        srgb = png_is_srgb(data)
    elif kind == KINDS[".ktx"]:
        space = ColorSpace.LINEAR if e.colorspace == ColorSpace.AUTO else e.colorspace
        return np.frombuffer(data, np.uint8).reshape(1, -1, 1), space
    else:
        # MuJoCo's own format: width and height as integers, then the pixels
        width, height = np.frombuffer(data[:8].ljust(8, b"\0"), "<i4").tolist()
        check_count(max(width, 0) * max(height, 0), MOST_PIXELS, f"pixels ({width} by {height})")
        if min(width, height) < 1 or len(data) != 8 + 3 * width * height:
            wrong = "is a damaged PNG file" if data[:8] == SIGNATURE else "is neither PNG nor MuJoCo's format"
            raise AssetError(f"{wrong}: {len(data)} bytes for {width} by {height} pixels")
        pixels = np.frombuffer(data, np.uint8, offset=8).reshape(height, width, 3)
    space = e.colorspace if e.colorspace != ColorSpace.AUTO else ColorSpace.SRGB if srgb else ColorSpace.LINEAR
    return pixels[:: -1 if e.vflip else 1, :: -1 if e.hflip else 1], space


def _cube_of_one(e: Any, image: Array) -> Array:
    """A cube from one image: each face is a square of it. An image of a single square is used for all faces."""
    rows, columns = (int(number) for number in e.gridsize)
    height, width, channels = image.shape
    if min(rows, columns) < 1 or rows * columns > len(e.gridlayout):
        raise AssetError(f"attribute 'gridsize': must give 1 to 12 squares, not {rows} by {columns}")
    if height % rows or width % columns or height // rows != width // columns:
        raise AssetError(f"an image of {width} by {height} pixels is not a grid of {rows} by {columns} squares")
    _check_colours(channels)
    if rows * columns == 1:
        return image
    side = width // columns
    faces = {}
    for square, letter in enumerate(e.gridlayout[: rows * columns]):
        if letter not in LETTERS + ".":
            raise AssetError(f"attribute 'gridlayout': has '{letter}', which is not one of {LETTERS}.")
        top = side * (square // columns)
        left = side * (square % columns)
        faces[letter] = image[top : top + side, left : left + side]
    return _joined(e, [faces.get(letter) for letter in LETTERS], side)


def _cube_of_six(draft: Draft, node: Node) -> tuple[Array, ColorSpace]:
    """A cube from a file for each face."""
    e = node.e
    faces = []
    space = ColorSpace.AUTO
    if e.type == TextureType.TWO_D:
        raise AssetError("a 2d texture needs attribute 'file' or 'builtin'")
    for face in FACES:
        image, space_of_face = _image(draft, node, face) if getattr(e, face) else (None, space)
        faces.append(image)
        # the colour space of the first image counts
        space = space_of_face if space == ColorSpace.AUTO else space
    shapes = {face.shape for face in faces if face is not None}
    if not shapes:
        raise AssetError("a texture needs attribute 'builtin' or 'file', or a file for each face")
    height, width, channels = next(iter(shapes))
    if len(shapes) > 1 or height != width:
        raise AssetError("the faces of a cube must be square and of the same size")
    _check_colours(channels)
    return _joined(e, faces, width), e.colorspace if e.colorspace != ColorSpace.AUTO else space


def _check_colours(channels: int) -> None:
    if channels != 3:
        raise AssetError(f"the images of a cube must have 3 channels, not {channels}")


def _joined(e: Any, faces: list[Array | None], side: int) -> Array:
    """Six faces, one below the other; missing faces have the colour rgb1."""
    plain = np.broadcast_to((255 * np.asarray(e.rgb1, float)).astype(np.uint8), (side, side, 3))
    return np.concatenate([plain if face is None else face for face in faces])


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


# mt19937_64, the 64-bit Mersenne twister of the C++ library (numpy has only the 32-bit one); names of [rand.eng.mers]:
# words of its state (n)
WORDS = 312
# the word that is mixed into the first one (m)
MIDDLE = 156
# xor mask of the twist (a)
TWIST = np.uint64(0xB5026F5AA96619E9)
# the lower 31 bits, which come from the next word (r)
LOW = np.uint64((1 << 31) - 1)
ONE = np.uint64(1)
# factor of the seeding recurrence (f)
SEEDING = 6364136223846793005
# the four steps of tempering: shift to the right (positive) or left, then a mask (u d, s b, t c, l)
TEMPER = (
    (29, 0x5555555555555555),
    (-17, 0x71D67FFFEDA60000),
    (-37, 0xFFF7EEE000000000),
    (43, 2**64 - 1),
)


def uniform(seed: int, count: int) -> Array:
    """(count,) random numbers in [0, 1), equal to C++'s `std::uniform_real_distribution<double>` with mt19937_64."""
    start = [seed]
    for k in range(1, WORDS):
        start.append((SEEDING * (start[-1] ^ (start[-1] >> 62)) + k) % 2**64)
    words = np.empty(WORDS + -(-count // MIDDLE) * MIDDLE, np.uint64)
    words[:WORDS] = start
    # word k depends on words k - WORDS, k - WORDS + 1 and k - WORDS + MIDDLE, so MIDDLE words are made at once
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
