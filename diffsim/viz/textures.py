"""Textures of objects: mipmaps, and the place on a texture that belongs to a point of a surface.

All textures are stored in one list of texels (the atlas), as mipmaps: each image at full size, half size, quarter size
and so on. Trilinear filtering gives a pixel about the mean of the texels that it covers: bilinear interpolation between
the four nearest texels, in each of the two mipmap levels whose texels are about as large as the pixel, and then linear
interpolation between the two levels.

A 2D texture is projected onto an object along the object's z axis, and repeats in its x-y plane: `texrepeat` times over
the size of the object, or over two metres if the material has `texuniform`. A cube texture is looked up by the
direction from the center of the object. A mesh that has texture coordinates uses these. Source: MuJoCo "XML reference",
texture; Williams 1983 (mipmaps); OpenGL 4.6, section 8.13 (faces of cubes).
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.base.enums import GeomType, TextureType
from diffsim.math import safe
from diffsim.math.vector import dot, pack, unpack
from diffsim.types.topology import Topology, per_topology
from diffsim.viz.material import Looks


class Atlas(NamedTuple):
    """All m textures as mipmaps, at least one texture.

    Attributes:
      texels: (n, 3) uint8, row by row, face by face, level by level.
      first: (m, levels) index of the first texel of a level.
      width, height: (m, levels) size of one face, in texels.
      faces: (m,) number of faces: 1, or 6 for a cube, whose faces are stored one below the other.
      flat: (m,) whether the texture is a 2D image, which repeats, and not a cube.
    """

    texels: Array | np.ndarray
    first: Array | np.ndarray
    width: Array | np.ndarray
    height: Array | np.ndarray
    faces: Array | np.ndarray
    flat: Array | np.ndarray


class TextureLookup(NamedTuple):
    """k lookups in textures.

    Attributes:
      texture: (k,) index of the texture.
      face: (k,) face of a cube.
      place: (k, 2) texture coordinates in [0, 1], to the right and down.
      footprint: (k,) length of the area that a pixel covers, in texels of the full size; selects the mipmap level.
    """

    texture: Array
    face: Array
    place: Array
    footprint: Array


@per_topology
def atlas_of(topology: Topology) -> Atlas:
    """The textures of a model, as numpy arrays, because the result is cached (JAX arrays of a trace must not be)."""
    # a model without textures gets one white texel
    pyramids = [_pyramid(image) for image in images(topology)] or [[np.full((1, 1, 1, 3), 255, np.uint8)]]
    levels = max(map(len, pyramids))
    tables = []
    texels = []
    start = 0
    for pyramid in pyramids:
        rows = []
        for image in pyramid:
            rows.append((start, image.shape[2], image.shape[1]))
            texels.append(image.reshape(-1, 3))
            start += len(texels[-1])
        # smaller textures have fewer levels: repeat the last one, so that the tables are rectangular
        tables.append(rows + rows[-1:] * (levels - len(rows)))
    first, width, height = np.moveaxis(np.array(tables, np.int32), 2, 0)
    faces = np.array([len(pyramid[0]) for pyramid in pyramids], np.int32)
    flat = np.append(topology.tex_type == TextureType.TWO_D, not topology.ntex)[: len(pyramids)]
    return Atlas(
        texels=np.concatenate(texels),
        first=first,
        width=width,
        height=height,
        faces=faces,
        flat=flat,
    )


def images(topology: Topology) -> list[np.ndarray]:
    """Pixels (faces, height, width, 3) of each texture; gray becomes three equal channels, alpha is dropped."""
    result = []
    columns = (topology.tex_adr, topology.tex_height, topology.tex_width, topology.tex_nchannel, topology.tex_type)
    for start, height, width, channels, kind in zip(*(column.tolist() for column in columns), strict=True):
        pixels = topology.tex_data[start : start + height * width * channels].reshape(height, width, channels)
        pixels = np.repeat(pixels, 3, axis=2) if channels == 1 else pixels[:, :, :3]
        faces = 6 if kind != TextureType.TWO_D and height == 6 * width else 1
        result.append(pixels.reshape(faces, height // faces, width, 3))
    return result


def _pyramid(image: np.ndarray) -> list[np.ndarray]:
    """The mipmap levels of an image (faces, height, width, 3), each half as large as the last, down to one texel."""
    levels = [image]
    while max(levels[-1].shape[1:3]) > 1:
        last = levels[-1]
        # if a side is odd, its last row or column is repeated; each new texel is the rounded mean of 2 x 2 texels
        odd = [(0, 0), *((0, side % 2) for side in last.shape[1:3]), (0, 0)]
        even = np.pad(last, odd, mode="edge").astype(np.uint16)
        four = even[:, ::2, ::2] + even[:, 1::2, ::2] + even[:, ::2, 1::2] + even[:, 1::2, 1::2]
        levels.append(((four + 2) // 4).astype(np.uint8))
    return levels


def sample(atlas: Atlas, lookup: TextureLookup) -> Array:
    """Reads textures with trilinear filtering: colors (k, 3) as on a screen, in [0, 1].

    A texel of level n spans 2^n texels of the full size, so a footprint of s texels is read at level log2(s).
    """
    last = atlas.first.shape[1] - 1
    level = jnp.clip(jnp.log2(jnp.maximum(lookup.footprint, 1e-6)), 0, last)
    fine = jnp.floor(level).astype(jnp.int32)
    blend = (level - fine)[:, None]
    coarse = _between_four(atlas, lookup, jnp.minimum(fine + 1, last))
    return (_between_four(atlas, lookup, fine) * (1 - blend) + coarse * blend) / 255


def _between_four(atlas: Atlas, lookup: TextureLookup, level: Array) -> Array:
    """Colors (k, 3), 0 to 255, by bilinear interpolation between the four nearest texels of one level."""
    texture = lookup.texture
    flat = atlas.flat[texture]
    face = jnp.minimum(lookup.face, atlas.faces[texture] - 1)
    first, width, height = (table[texture, level] for table in (atlas.first, atlas.width, atlas.height))
    columns, right = _two_texels(lookup.place[:, 0], width, flat)
    rows, low = _two_texels(lookup.place[:, 1], height, flat)
    color = jnp.zeros((len(texture), 3), lookup.place.dtype)
    for row, down in zip(rows, (1 - low, low), strict=True):
        for column, along in zip(columns, (1 - right, right), strict=True):
            texel = atlas.texels[first + (face * height + row) * width + column]
            color = color + texel.astype(color.dtype) * (down * along)[:, None]
    return color


def _two_texels(place: Array, count: Array, repeats: Array) -> tuple[tuple[Array, Array], Array]:
    """The indices of the two texels next to a place along one axis, and the fraction of the way between them.

    Beyond the edge, a 2D image repeats, and a face of a cube continues with its last texel.
    """
    # centers of texels lie at half-integers
    exact = place * count - 0.5
    first = jnp.floor(exact).astype(jnp.int32)
    both = tuple(jnp.where(repeats, jnp.mod(k, count), jnp.clip(k, 0, count - 1)) for k in (first, first + 1))
    return both, exact - first  # type: ignore[return-value]


# the columns of geom_size that contain the extent of a geom along x, y and z; (0, 1, 2) for types not listed here
EXTENTS = {
    GeomType.SPHERE: (0, 0, 0),
    GeomType.CAPSULE: (0, 0, 1),
    GeomType.CYLINDER: (0, 0, 1),
}
# types for which MuJoCo does not divide texture coordinates by the size of the geom
METRIC = (GeomType.PLANE, GeomType.MESH, GeomType.HFIELD)
# directions that point to the right on the images of the faces +x, -x, +y, -y, +z, -z of a cube (OpenGL 4.6, table
# 8.19)
RIGHT = np.array([[0, 0, -1], [0, 0, 1], [1, 0, 0], [1, 0, 0], [1, 0, 0], [-1, 0, 0]])
# directions that point down on the same images
DOWN = np.array([[0, -1, 0], [0, -1, 0], [0, 0, 1], [0, 0, -1], [0, -1, 0], [0, -1, 0]])


def factors(kinds: np.ndarray, size: Array, looks: Looks) -> tuple[Array, Array]:
    """Factors that map points (m) in the frames of objects to texture coordinates, as MuJoCo's `setMaterial` does.

    Args:
      kinds: (n,) GeomType of each object.
      size: (n, 3) m.
      looks: of the objects.

    Returns:
      (n, 2) factors to coordinates on an image, in repeats, and (n, 3) factors to a direction into a cube texture.
    """
    columns = np.array([EXTENTS.get(GeomType(kind), (0, 1, 2)) for kind in kinds.tolist()], int).reshape(-1, 3)
    extent = jnp.take_along_axis(size, jnp.asarray(columns), axis=1)
    extent = jnp.where(extent > 0, extent, 1)
    uniform = looks.uniform[:, None]
    metric = np.isin(kinds, METRIC)[:, None]
    # An image repeats `texrepeat` times over the full extent, which is twice the size, or over 2 m if uniform. Its
    # second axis points down.
    to_image = 0.5 * looks.repeat * jnp.where(uniform, 1, 1 / extent[:, :2]) * jnp.asarray([[1, -1]], extent.dtype)
    to_cube = jnp.where(metric, jnp.where(uniform, extent, 1), jnp.where(uniform, 1, 1 / extent))
    return to_image, to_cube


def on_image(factor: Array, point: Array) -> tuple[Array, Array]:
    """Texture coordinates (k, 2) of points (k, 3), m, and their change per metre (k, 2), in repeats of the image."""
    return factor * point[:, :2] - 0.5, jnp.abs(factor)


def on_cube(direction: Array) -> tuple[Array, Array, Array]:
    """Looks up directions (k, 3) in a cube: faces (k,), places on them (k, 2) in [0, 1], largest components (k,).

    The largest component selects the face; the other two divided by it are the place (OpenGL 4.6, section 8.13).
    """
    x, y, z = unpack(direction)
    a = jnp.abs(x)
    b = jnp.abs(y)
    c = jnp.abs(z)
    x_is_largest = (a >= b) & (a >= c)
    y_beats_z = b >= c
    largest = jnp.where(x_is_largest, a, jnp.where(y_beats_z, b, c))
    axis = jnp.where(x_is_largest, 0, jnp.where(y_beats_z, 1, 2))
    signed = jnp.where(x_is_largest, x, jnp.where(y_beats_z, y, z))
    face = 2 * axis + (signed < 0)
    right, down = (dot(jnp.asarray(table, direction.dtype)[face], direction) for table in (RIGHT, DOWN))
    place = pack([0.5 + 0.5 * safe.divide(along, largest) for along in (right, down)])
    return face, place, largest
