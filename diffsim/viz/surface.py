"""What each of many rays meets first, and the surface there: its normal, and its colour from the texture.

Rays lie in bundles: the pixels of a small square of a picture. Objects whose bounding balls a bundle misses are not
looked at. The bundles and objects that remain are pairs, of which a block at a time is worked on, type after type, so
that the work follows what is there and not rays times objects. Normals are smooth over the triangles of a mesh.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.base.enums import GeomType
from diffsim.geometry.rays.bvh import trees
from diffsim.geometry.rays.ray import ROOM, BundledHits, BundledRays, bundles_of, may_meet_ball, nearest, no_hits
from diffsim.geometry.rays.surfaces import SURFACES
from diffsim.geometry.rays.triangle_surfaces import FACETED, Lines, outside
from diffsim.math import safe
from diffsim.math.vector import cross, dot, mul_vec, mul_vec_t, scale, unpack
from diffsim.types.topology import Topology, per_topology
from diffsim.viz.scene import Group, Scene
from diffsim.viz.texture import Spot, on_cube, on_image, sample
from diffsim.xla.batched_loops import fold_wanted

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
    xpos, xmat, size = (values[thing] for values in scene.places[:3])
    point = mul_vec_t(xmat, met.point - xpos)
    normal, uv = jnp.zeros_like(point), jnp.full_like(point, -1)
    plane = jnp.zeros(len(point), bool)
    for group in groups:
        inside = (thing >= group.first) & (thing < group.first + group.number)
        if group.kind in FACETED:
            facet, asset = jnp.where(inside, met.facet, 0), jnp.where(inside, scene.asset[thing], 0)
            corners = FACETED[group.kind].corners(scene.model, asset, facet)
            outward = outside(corners)
            if group.kind == GeomType.MESH:
                outward, on_mesh = _on_triangle(scene, facet, corners, point, outward)
                uv = jnp.where(inside[:, None], on_mesh, uv)
        else:
            outward = SURFACES[group.kind].normal(jnp.where(inside[:, None], size, 1), point)
        normal = jnp.where(inside[:, None], outward, normal)
        plane = plane | inside if group.kind == GeomType.PLANE else plane
    colour = scene_colour(scene, thing, point, met.width, uv)
    bare = plane & (jnp.asarray(scene.looks.texture)[thing] < 0)
    # the checker of a floor without texture
    odd = jnp.mod(jnp.floor(point[:, 0] / scene.tile) + jnp.floor(point[:, 1] / scene.tile), 2)[:, None]
    first, second = (jnp.asarray(tile, point.dtype)[None] for tile in TILES)
    tiles = jnp.where(jnp.asarray(scene.looks.plain)[thing][:, None], 1, colour) * (first + (second - first) * odd)
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
    per_metre = unpack(jnp.broadcast_to(density, place.shape))
    texels = [jnp.where(flat, repeats, steep) * side for repeats, side in zip(per_metre, sides, strict=True)]
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
    normals = unpack(scene.model.mesh_normal[jnp.asarray(rows.normal)[facet]], axis=1)
    smooth = safe.normalize(sum((scale(n, w) for n, w in zip(normals, weights, strict=True)), 0 * a))
    # a normal that points inwards is the file's mistake
    normal = jnp.where((dot(smooth, flat) > 0.2)[:, None], smooth, flat)
    if not len(scene.model.mesh_texcoord):
        return normal, jnp.full_like(a, -1)
    row = jnp.asarray(rows.texcoord)[facet]
    p, q, r = unpack(scene.model.mesh_texcoord[jnp.maximum(row, 0)], axis=1)
    place = sum((scale(corner, w) for corner, w in zip((p, q, r), weights, strict=True)), 0 * p)
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


# pairs of a bundle and an object that are worked on at once; searches of meshes work on many rays at a time
BLOCK, FACETED_BLOCK = 256, 1024


def trace(scene: Scene, groups: tuple[Group, ...], rays: BundledRays) -> BundledHits:
    """The first object that each ray meets."""
    hits, bundles = no_hits(rays), bundles_of(rays)
    for group in groups:
        members = slice(group.first, group.first + group.number)
        near = may_meet_ball(bundles, scene.places.xpos[members], scene.places.reach[members])
        hits = _trace_group(scene, group, rays, near, hits)
    return hits


def _trace_group(scene: Scene, group: Group, rays: BundledRays, near: Array, hits: BundledHits) -> BundledHits:
    """Hits with those of one group; near (b, n): which of its objects bundles may meet."""

    def work(pair: Array, hits: BundledHits) -> BundledHits:
        exists, pair = pair < near.size, jnp.minimum(pair, near.size - 1)
        bundle, number = pair // group.number, pair % group.number
        members = BundledRays(*(values[bundle] for values in rays))
        members = members._replace(wanted=members.wanted & exists[:, None])
        return nearest(hits, bundle, _on_objects(scene, group, number, members, hits.distance[bundle]))

    return fold_wanted(near.reshape(-1), FACETED_BLOCK if group.kind in FACETED else BLOCK, work, hits)


def _on_objects(scene: Scene, group: Group, number: Array, rays: BundledRays, limit: Array) -> BundledHits:
    """What the rays of p bundles meet of an object (p,) of a group each, nearer than `limit` (p, l)."""
    thing = group.first + number
    xpos, xmat, size, reach = (values[thing][:, None] for values in scene.places)
    offset = rays.origin - xpos
    ahead, reach = -dot(offset, rays.direction), ROOM * reach
    meets = (ahead >= -reach) & (ahead - reach <= limit) & (dot(offset, offset) - ahead * ahead <= reach * reach)
    wanted = rays.wanted & (meets | (reach == jnp.inf))
    origin, direction = mul_vec_t(xmat, offset), mul_vec_t(xmat, rays.direction)
    facet = jnp.zeros(wanted.shape, jnp.int32)
    if group.kind in FACETED:
        lines = Lines(*(jnp.swapaxes(values, 0, 1) for values in (origin, direction, wanted)))
        distance, facet = (x.T for x in FACETED[group.kind].search(scene.model, scene.asset[thing], lines))
    else:
        distance = SURFACES[group.kind].distance(jnp.broadcast_to(size, origin.shape), origin, direction)
    distance = jnp.where(wanted & (distance >= 0), distance, jnp.inf)
    return BundledHits(distance, jnp.broadcast_to(thing[:, None], facet.shape), facet)


def ends(rays: BundledRays, hits: BundledHits) -> Array:
    """Points (b, l, 3) where rays end; their origins where they meet nothing."""
    return rays.origin + scale(rays.direction, jnp.where(hits.thing >= 0, hits.distance, 0))
