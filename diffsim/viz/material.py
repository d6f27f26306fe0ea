"""Looks of geoms and tendons: colour, shine, light of their own, the texture of their material; which geoms are drawn.

Colours of a model are as on a screen; `linear` makes them amounts of light.

Textures are every image at full size, at half, at a quarter ..., all in one list of texels. What a pixel shows is the
mean of the texels that it covers: it is read between the two sizes whose texels are about as large as the pixel, and
between the four texels nearest to its middle. An image is laid on an object from above, repeated over the plane of x
and y: from edge to edge of the object, or every metre where the material is `texuniform`. A cube is seen from the
object's middle. A mesh with texture coordinates has these.
Source: MuJoCo "XML reference", texture and material; `setMaterial` of 3.8.1. Williams 1983 (mipmaps). OpenGL 4.6,
section 8.13 (faces of cubes).
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer

from diffsim.base.enums import GeomType, TextureRole, TextureType
from diffsim.math import safe
from diffsim.math.vector import dot, pack, unpack
from diffsim.types import Model
from diffsim.types.topology import Topology, per_topology

# the colour of objects with a material that MuJoCo takes for none: theirs is then the material's
UNSET = (0.5, 0.5, 0.5, 1.0)
# of objects without a material
SPECULAR, SHININESS = 0.5, 0.5


class Looks(NamedTuple):
    """Looks of n objects: linear `colour` (n, 3); `specular`, `shininess`, `emission`, `reflectance` (n,), as in MJCF.

    `texture` (n,): -1 for none; `repeat` (n, 2), `uniform` (n,): of the material; `plain` (n,): no material.
    """

    colour: Array
    specular: Array
    shininess: Array
    emission: Array
    reflectance: Array
    texture: np.ndarray | Array
    repeat: Array
    uniform: np.ndarray | Array
    plain: np.ndarray | Array


def colours(model: Model, kind: str = "geom") -> Array:
    """rgba (n, 4) of geoms, sites or tendons: their own, or their material's where their own is not set."""
    rgba, material = getattr(model, f"{kind}_rgba"), getattr(model.topology, f"{kind}_matid")
    if not model.nmat:
        return rgba
    unset = jnp.all(rgba == jnp.asarray([UNSET], rgba.dtype), axis=1) & (material >= 0)
    return jnp.where(unset[:, None], model.mat_rgba[np.maximum(material, 0)], rgba)


def looks(model: Model, kind: str, ids: np.ndarray) -> Looks:
    """Looks of some geoms or tendons."""
    material = getattr(model.topology, f"{kind}_matid")[ids]

    def column(name: str, default: float) -> Array:
        # objects without a material have number -1, where the default stands
        return jnp.append(getattr(model, f"mat_{name}"), default)[material]

    textures = np.append(model.topology.mat_texid.reshape(-1, len(TextureRole))[:, TextureRole.RGB], -1)
    repeat = jnp.concatenate([model.mat_texrepeat, jnp.ones((1, 2), model.mat_texrepeat.dtype)])
    return Looks(
        colour=linear(colours(model, kind)[ids, :3]),
        specular=column("specular", SPECULAR),
        shininess=column("shininess", SHININESS),
        emission=column("emission", 0),
        reflectance=column("reflectance", 0),
        texture=textures[material].astype(np.int32),
        repeat=repeat[material],
        uniform=np.append(model.topology.mat_texuniform != 0, False)[material],
        plain=material < 0,
    )


def linear(colour: Array) -> Array:
    """Amounts of light of colours as on a screen, both in [0, 1]."""
    return jnp.clip(colour, 0, 1) ** 2.2


# groups that MuJoCo's viewer hides at first: by habit they hold collision geoms
HIDDEN_GROUPS = (3, 4, 5)


def visible_geoms(model: Model, hidden_groups: Sequence[int] = HIDDEN_GROUPS) -> np.ndarray:
    """Which geoms are drawn, (ngeom,): of groups that are not hidden, with an alpha above 0.

    The colliding geoms of moving bodies are drawn all the same where nothing else of these bodies, and of those that
    are welded to them, can be seen.
    """
    topology = model.topology
    seen = opaque(colours(model)[:, 3])
    shown = seen & ~np.isin(topology.geom_group, hidden_groups)
    body = topology.body_weldid[topology.geom_bodyid]
    lacking = np.ones(topology.nbody, bool)
    lacking[body[shown]] = False
    lacking[0] = False
    collides = (topology.geom_contype | topology.geom_conaffinity) != 0
    return shown | (seen & collides & lacking[body])


def opaque(alpha: Array) -> np.ndarray:
    """Which alphas (n,) are above 0; all, where they are only known when a program runs."""
    return np.ones(len(alpha), bool) if isinstance(alpha, Tracer) else np.asarray(alpha) > 0


def drawn_type(model: Model, geom: int) -> GeomType:
    """The type that a geom is drawn as: a signed distance field as the mesh that it was made from."""
    kind = GeomType(int(model.topology.geom_type[geom]))
    return GeomType.MESH if kind == GeomType.SDF and model.topology.geom_dataid[geom] >= 0 else kind


class Atlas(NamedTuple):
    """All textures: `texels` (n, 3) uint8; of each texture and size, at least one texture.

    `first` (m, sizes): its first texel; `width`, `height` (m, sizes): of a face; `faces` (m,): 1 or 6, one below the
    other; `flat` (m,): an image that repeats, not a cube.
    """

    texels: Array | np.ndarray
    first: Array | np.ndarray
    width: Array | np.ndarray
    height: Array | np.ndarray
    faces: Array | np.ndarray
    flat: Array | np.ndarray


class Spot(NamedTuple):
    """Where k textures are looked at: which, on which `face`, `place` (k, 2) in [0, 1] to the right and down.

    `covered` (k,): texels of the full size along a side of what is to be seen.
    """

    texture: Array
    face: Array
    place: Array
    covered: Array


@per_topology
def atlas_of(topology: Topology) -> Atlas:
    """The textures of a model, in numpy: it is kept, and may be asked for within a program."""
    pyramids = [_pyramid(image) for image in images(topology)] or [[np.full((1, 1, 1, 3), 255, np.uint8)]]
    sizes = max(map(len, pyramids))
    tables, texels, start = [], [], 0
    for pyramid in pyramids:
        rows = []
        for image in pyramid:
            rows.append((start, image.shape[2], image.shape[1]))
            texels.append(image.reshape(-1, 3))
            start += len(texels[-1])
        # the smallest stands for what would be smaller still
        tables.append(rows + rows[-1:] * (sizes - len(rows)))
    first, width, height = np.moveaxis(np.array(tables, np.int32), 2, 0)
    faces = np.array([len(pyramid[0]) for pyramid in pyramids], np.int32)
    flat = np.append(topology.tex_type == TextureType.TWO_D, not topology.ntex)[: len(pyramids)]
    return Atlas(np.concatenate(texels), first, width, height, faces, flat)


def images(topology: Topology) -> list[np.ndarray]:
    """Pixels (faces, height, width, 3) of each texture; gray is three equal channels, a fourth is left out."""
    result = []
    columns = (topology.tex_adr, topology.tex_height, topology.tex_width, topology.tex_nchannel, topology.tex_type)
    for start, height, width, channels, kind in zip(*(column.tolist() for column in columns), strict=True):
        pixels = topology.tex_data[start : start + height * width * channels].reshape(height, width, channels)
        pixels = np.repeat(pixels, 3, axis=2) if channels == 1 else pixels[:, :, :3]
        faces = 6 if kind != TextureType.TWO_D and height == 6 * width else 1
        result.append(pixels.reshape(faces, height // faces, width, 3))
    return result


def _pyramid(image: np.ndarray) -> list[np.ndarray]:
    """An image (faces, height, width, 3) and all halves of it, down to one texel."""
    sizes = [image]
    while max(sizes[-1].shape[1:3]) > 1:
        last = sizes[-1]
        odd = [(0, 0), *((0, side % 2) for side in last.shape[1:3]), (0, 0)]
        even = np.pad(last, odd, mode="edge").astype(np.uint16)
        four = even[:, ::2, ::2] + even[:, 1::2, ::2] + even[:, ::2, 1::2] + even[:, 1::2, 1::2]
        sizes.append(((four + 2) // 4).astype(np.uint8))
    return sizes


def sample(atlas: Atlas, spot: Spot) -> Array:
    """Colours (k, 3) as on a screen, in [0, 1]."""
    last = atlas.first.shape[1] - 1
    level = jnp.clip(jnp.log2(jnp.maximum(spot.covered, 1e-6)), 0, last)
    fine = jnp.floor(level).astype(jnp.int32)
    blend = (level - fine)[:, None]
    coarse = _between_four(atlas, spot, jnp.minimum(fine + 1, last))
    return (_between_four(atlas, spot, fine) * (1 - blend) + coarse * blend) / 255


def _between_four(atlas: Atlas, spot: Spot, size: Array) -> Array:
    """Colours (k, 3), 0 to 255, from the four nearest texels of one size."""
    texture = spot.texture
    flat, face = atlas.flat[texture], jnp.minimum(spot.face, atlas.faces[texture] - 1)
    first, width, height = (table[texture, size] for table in (atlas.first, atlas.width, atlas.height))
    columns, right = _two(spot.place[:, 0], width, flat)
    rows, low = _two(spot.place[:, 1], height, flat)
    colour = jnp.zeros((len(texture), 3), spot.place.dtype)
    for row, down in zip(rows, (1 - low, low), strict=True):
        for column, along in zip(columns, (1 - right, right), strict=True):
            texel = atlas.texels[first + (face * height + row) * width + column]
            colour = colour + texel.astype(colour.dtype) * (down * along)[:, None]
    return colour


def _two(place: Array, count: Array, repeats: Array) -> tuple[tuple[Array, Array], Array]:
    """The two texels next to a place along one side, and how far it is from the first to the second."""
    exact = place * count - 0.5
    first = jnp.floor(exact).astype(jnp.int32)
    both = tuple(jnp.where(repeats, jnp.mod(k, count), jnp.clip(k, 0, count - 1)) for k in (first, first + 1))
    return both, exact - first  # type: ignore[return-value]


# sizes (x, y, z) of an object, by columns of geom_size
EXTENTS = {
    GeomType.SPHERE: (0, 0, 0),
    GeomType.CAPSULE: (0, 0, 1),
    GeomType.CYLINDER: (0, 0, 1),
}
# objects whose coordinates MuJoCo does not scale by their size
METRIC = (GeomType.PLANE, GeomType.MESH, GeomType.HFIELD)
# of each face: what of (x, y, z) is the place to the right and down, and their signs
RIGHT = np.array([[0, 0, -1], [0, 0, 1], [1, 0, 0], [1, 0, 0], [1, 0, 0], [-1, 0, 0]])
DOWN = np.array([[0, -1, 0], [0, -1, 0], [0, 0, 1], [0, 0, -1], [0, -1, 0], [0, -1, 0]])


def factors(kinds: np.ndarray, size: Array, looks: Looks) -> tuple[Array, Array]:
    """What points (m) are multiplied by: (n, 2) to the repeats of an image, (n, 3) to a direction in a cube."""
    columns = np.array([EXTENTS.get(GeomType(kind), (0, 1, 2)) for kind in kinds.tolist()], int).reshape(-1, 3)
    extent = jnp.take_along_axis(size, jnp.asarray(columns), axis=1)
    extent = jnp.where(extent > 0, extent, 1)
    uniform, metric = looks.uniform[:, None], np.isin(kinds, METRIC)[:, None]
    flat = 0.5 * looks.repeat * jnp.where(uniform, 1, 1 / extent[:, :2]) * jnp.asarray([[1, -1]], extent.dtype)
    return flat, jnp.where(metric, jnp.where(uniform, extent, 1), jnp.where(uniform, 1, 1 / extent))


def on_image(factor: Array, point: Array) -> tuple[Array, Array]:
    """Places (k, 2) on an image, in repeats of it, and repeats per metre (k, 2), of points (k, 3), m."""
    return factor * point[:, :2] - 0.5, jnp.abs(factor)


def on_cube(direction: Array) -> tuple[Array, Array, Array]:
    """Faces (k,), places (k, 2) on them in [0, 1], and lengths of the directions' largest components (k,)."""
    x, y, z = unpack(direction)
    a, b, c = jnp.abs(x), jnp.abs(y), jnp.abs(z)
    first, second = (a >= b) & (a >= c), b >= c
    largest = jnp.where(first, a, jnp.where(second, b, c))
    axis, signed = jnp.where(first, 0, jnp.where(second, 1, 2)), jnp.where(first, x, jnp.where(second, y, z))
    face = 2 * axis + (signed < 0)
    right, down = (dot(jnp.asarray(table, direction.dtype)[face], direction) for table in (RIGHT, DOWN))
    place = pack([0.5 + 0.5 * safe.divide(along, largest) for along in (right, down)])
    return face, place, largest
