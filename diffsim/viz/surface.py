"""The surface that a ray has met: its normal, smooth over the triangles of a mesh, and its colour from the texture."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.base.enums import GeomType
from diffsim.geometry.rays.bvh import trees
from diffsim.geometry.rays.surfaces import SURFACES
from diffsim.geometry.rays.triangle_surfaces import FACETED, outside
from diffsim.math import safe
from diffsim.math.vector import cross, dot, mul_vec, mul_vec_t, scale, unpack
from diffsim.types.topology import Topology, per_topology
from diffsim.viz.mapping import on_cube, on_image
from diffsim.viz.scene import Group, Scene
from diffsim.viz.texture import Spot, sample

Array = jax.Array

# two blue greys of the floor's checker
TILES = np.array([[0.10, 0.13, 0.17], [0.19, 0.24, 0.30]])


class Met(NamedTuple):
    """Where k rays have met objects: `thing`, `facet` (k,), world `point` (k, 3), `width` (k,) of a pixel there, m."""

    thing: Array
    facet: Array
    point: Array
    width: Array


class Surface(NamedTuple):
    """World unit `normal` (k, 3), linear `colour` (k, 3), and whether it is a `floor` (k,)."""

    normal: Array
    colour: Array
    floor: Array


class _Corners(NamedTuple):
    """Of each facet of the trees, rows (n, 3) of mesh_normal and of mesh_texcoord at its corners; -1 for none."""

    normal: np.ndarray
    texcoord: np.ndarray


def surface_of(scene: Scene, groups: tuple[Group, ...], met: Met) -> Surface:
    """What the rays have met; arbitrary where `thing` is -1."""
    thing = jnp.maximum(met.thing, 0)
    xpos, xmat, size = (each[thing] for each in scene.places[:3])
    point = mul_vec_t(xmat, met.point - xpos)
    normal, uv = jnp.zeros_like(point), jnp.full_like(point, -1)
    plane = jnp.zeros(len(point), bool)
    for group in groups:
        own = (thing >= group.first) & (thing < group.first + group.number)
        if group.kind in FACETED:
            facet, asset = jnp.where(own, met.facet, 0), jnp.where(own, scene.asset[thing], 0)
            corners = FACETED[group.kind].corners(scene.model, asset, facet)
            found = outside(corners)
            if group.kind == GeomType.MESH:
                found, own_uv = _on_triangle(scene, facet, corners, point, found)
                uv = jnp.where(own[:, None], own_uv, uv)
        else:
            found = SURFACES[group.kind].normal(jnp.where(own[:, None], size, 1), point)
        normal = jnp.where(own[:, None], found, normal)
        plane = plane | own if group.kind == GeomType.PLANE else plane
    colour = scene_colour(scene, thing, point, met.width, uv)
    bare = plane & (jnp.asarray(scene.looks.texture)[thing] < 0)
    tiles = jnp.where(jnp.asarray(scene.looks.plain)[thing][:, None], 1, colour) * _tiles(scene, point)
    return Surface(mul_vec(xmat, normal), jnp.where(bare[:, None], tiles, colour), plane)


def scene_colour(scene: Scene, thing: Array, point: Array, width: Array, uv: Array) -> Array:
    """Linear colours (k, 3) of objects at points (k, 3) of their frames; uv (k, 3): place on a mesh's image and repeats
    of it per metre, below 0 for none."""
    colour = jnp.asarray(scene.looks.colour)[thing]
    if not scene.model.ntex:
        return colour
    wanted = jnp.asarray(scene.looks.texture)[thing]
    texture = jnp.maximum(wanted, 0)
    flat = scene.atlas.flat[texture]
    place, density = on_image(jnp.asarray(scene.on_image)[thing], point)
    explicit = (uv[:, 2] >= 0)[:, None]
    place, density = jnp.where(explicit, uv[:, :2], place), jnp.where(explicit, uv[:, 2:], density)
    factor = jnp.asarray(scene.on_cube)[thing]
    face, on_face, largest = on_cube(factor * point)
    steep = 0.5 * jnp.max(factor, axis=1) / jnp.maximum(largest, 1e-9)
    sides = [table[texture, 0] for table in (scene.atlas.width, scene.atlas.height)]
    texels = [
        jnp.where(flat, each, steep) * side
        for each, side in zip(unpack(jnp.broadcast_to(density, place.shape)), sides, strict=True)
    ]
    spot = Spot(
        texture,
        jnp.where(flat, 0, face),
        jnp.where(flat[:, None], place - jnp.floor(place), on_face),
        jnp.maximum(*texels) * width,
    )
    return jnp.where((wanted >= 0)[:, None], colour * sample(scene.atlas, spot) ** 2.2, colour)


def _on_triangle(scene: Scene, facet: Array, corners: Array, point: Array, flat: Array) -> tuple[Array, Array]:
    """Smooth normals (k, 3) at points of triangles (k, 3, 3), and their places on the image with repeats per metre."""
    rows = _corners(scene.model.topology)
    a, b, c = unpack(corners, axis=1)
    whole = cross(b - a, c - a)
    area = dot(whole, whole)
    second, third = (safe.divide(dot(cross(*edges), whole), area) for edges in ((point - a, c - a), (b - a, point - a)))
    weights = [1 - second - third, second, third]
    own = scene.model.mesh_normal[jnp.asarray(rows.normal)[facet]]
    smooth = safe.normalize(sum((scale(each, w) for each, w in zip(unpack(own, axis=1), weights, strict=True)), 0 * a))
    # a normal that points inwards is the file's mistake
    normal = jnp.where((dot(smooth, flat) > 0.2)[:, None], smooth, flat)
    if not len(scene.model.mesh_texcoord):
        return normal, jnp.full_like(a, -1)
    row = jnp.asarray(rows.texcoord)[facet]
    p, q, r = unpack(scene.model.mesh_texcoord[jnp.maximum(row, 0)], axis=1)
    place = sum((scale(each, w) for each, w in zip((p, q, r), weights, strict=True)), 0 * p)
    covered = jnp.abs((q - p)[:, 0] * (r - p)[:, 1] - (q - p)[:, 1] * (r - p)[:, 0])
    density = jnp.sqrt(safe.divide(covered, jnp.sqrt(area)))
    return normal, jnp.where((row[:, :1] >= 0), jnp.concatenate([place, density[:, None]], axis=1), -1.0)


@per_topology
def _corners(topology: Topology) -> _Corners:
    faces = trees(topology).faces.reshape(-1)
    mesh = np.searchsorted(topology.mesh_faceadr, faces, side="right") - 1
    normal = topology.mesh_facenormal[faces] + topology.mesh_normaladr[mesh][:, None]
    first = topology.mesh_texcoordadr[mesh][:, None]
    return _Corners(normal, np.where(first >= 0, topology.mesh_facetexcoord[faces] + first, -1))


def _tiles(scene: Scene, point: Array) -> Array:
    """The checker (k, 3) of a floor without texture."""
    odd = jnp.mod(jnp.floor(point[:, 0] / scene.tile) + jnp.floor(point[:, 1] / scene.tile), 2)[:, None]
    first, second = (jnp.asarray(tile, point.dtype)[None] for tile in TILES)
    return first + (second - first) * odd
