"""The first object that each of many rays hits, and the surface there: its normal, and its colour from the texture.

Rays come in bundles, one for each small square of pixels. A bundle skips the objects whose bounding balls it misses, so
that the work grows with what is visible and not with rays times objects. There are two searches:

- primitive shapes: a few bundles (a tile) at a time intersect one object after another by its formula;
- meshes and height fields: the remaining pairs of a bundle and an object are listed, and searched a block at a time.

Normals are interpolated smoothly over the triangles of a mesh.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.base.enums import GeomType
from diffsim.geometry.rays.bundles import ROOM, BundledHits, BundledRays, bundles_of, may_meet_ball, nearest
from diffsim.geometry.rays.bvh import trees
from diffsim.geometry.rays.surfaces import SURFACES
from diffsim.geometry.rays.triangle_surfaces import FACETED, Lines, height_over, outward_normals
from diffsim.math import safe
from diffsim.math.vector import cross, dot, mul_vec, mul_vec_t, scale, unpack
from diffsim.types.topology import Topology, per_topology
from diffsim.viz.material import GAMMA, MIRRORS
from diffsim.viz.scene import Group, Scene
from diffsim.viz.textures import TextureLookup, on_cube, on_image, sample
from diffsim.xla.barriers import computed_once
from diffsim.xla.batched_searches import fold_wanted

# linear colours of the checker on floors without texture: two blue-grays
TILES = np.array([[0.10, 0.13, 0.17], [0.19, 0.24, 0.30]])


class HitPoints(NamedTuple):
    """k points that rays hit.

    Attributes:
      thing: (k,) index of the object, -1 for none.
      facet: (k,) index of its triangle, for meshes and height fields.
      point: (k, 3) m, world.
      width: (k,) m, width of a pixel at the point.
    """

    thing: Array
    facet: Array
    point: Array
    width: Array


class Surface(NamedTuple):
    """Surfaces at k hits.

    Attributes:
      normal: (k, 3) unit, in the world frame.
      colour: (k, 3) linear.
      floor: (k,) whether the object is a plane.
      mirror: (k,) whether a reflectance has an effect here: on planes, and on the sides +z of boxes.
    """

    normal: Array
    colour: Array
    floor: Array
    mirror: Array


class _Corners(NamedTuple):
    """Rows of mesh_normal and mesh_texcoord (n, 3) at the corners of each triangle of the search trees; -1 for none."""

    normal: np.ndarray
    texcoord: np.ndarray


@computed_once
def surface_of(scene: Scene, groups: tuple[Group, ...], hits: HitPoints) -> Surface:
    """The surfaces at hits; where `thing` is -1 the result is arbitrary."""
    thing = jnp.maximum(hits.thing, 0)
    xpos, xmat, size = (values[thing] for values in scene.places[:3])
    point = mul_vec_t(xmat, hits.point - xpos)
    normal = jnp.zeros_like(point)
    uv = jnp.full_like(point, -1)
    plane = jnp.zeros(len(point), bool)
    mirror = jnp.zeros(len(point), bool)
    for group in groups:
        inside = (thing >= group.first) & (thing < group.first + group.number)
        if group.kind in FACETED:
            facet = jnp.where(inside, hits.facet, 0)
            asset = jnp.where(inside, scene.asset[thing], 0)
            corners = FACETED[group.kind].corners(scene.model, asset, facet)
            outward = outward_normals(corners)
            if group.kind == GeomType.MESH:
                outward, on_mesh = _on_triangle(scene, facet, corners, point, outward)
                uv = jnp.where(inside[:, None], on_mesh, uv)
        else:
            outward = SURFACES[group.kind].normal(jnp.where(inside[:, None], size, 1), point)
        normal = jnp.where(inside[:, None], outward, normal)
        plane = plane | inside if group.kind == GeomType.PLANE else plane
        mirror = mirror | (inside & (outward[:, 2] > 0.5)) if group.kind in MIRRORS else mirror
    colour = scene_colour(scene, thing, point, hits.width, uv)
    bare = plane & (jnp.asarray(scene.looks.texture)[thing] < 0)
    # a floor without texture is a checker of two blue-grays, tinted by its material
    odd = jnp.mod(jnp.floor(point[:, 0] / scene.tile) + jnp.floor(point[:, 1] / scene.tile), 2)[:, None]
    first, second = (jnp.asarray(tile, point.dtype)[None] for tile in TILES)
    tiles = jnp.where(jnp.asarray(scene.looks.plain)[thing][:, None], 1, colour) * (first + (second - first) * odd)
    return Surface(mul_vec(xmat, normal), jnp.where(bare[:, None], tiles, colour), plane, mirror)


def scene_colour(scene: Scene, thing: Array, point: Array, width: Array, uv: Array) -> Array:
    """Linear colours (k, 3) of objects at points, from their rgba and texture.

    Args:
      scene: the scene.
      thing: (k,) index of the object.
      point: (k, 3) m, in the frame of the object.
      width: (k,) m, width of a pixel at the point.
      uv: (k, 3) texture coordinates of a mesh and their change per metre; below 0 for none.
    """
    colour = jnp.asarray(scene.looks.colour)[thing]
    if not scene.model.ntex:
        return colour
    wanted = jnp.asarray(scene.looks.texture)[thing]
    texture = jnp.maximum(wanted, 0)
    flat = scene.atlas.flat[texture]
    place, density = on_image(jnp.asarray(scene.on_image)[thing], point)
    explicit = (uv[:, 2] >= 0)[:, None]
    place = jnp.where(explicit, uv[:, :2], place)
    density = jnp.where(explicit, uv[:, 2:], density)
    # Texture coordinates of a cube are d / (2 max|d|) with d = factor * point, so they change by at most
    # max(factor) / (2 max|d|) per metre (ignoring the change of max|d|).
    factor = jnp.asarray(scene.on_cube)[thing]
    face, on_face, largest = on_cube(factor * point)
    steep = 0.5 * jnp.max(factor, axis=1) / jnp.maximum(largest, 1e-9)
    sides = [table[texture, 0] for table in (scene.atlas.width, scene.atlas.height)]
    per_metre = unpack(jnp.broadcast_to(density, place.shape))
    texels = [jnp.where(flat, repeats, steep) * side for repeats, side in zip(per_metre, sides, strict=True)]
    lookup = TextureLookup(
        texture=texture,
        face=jnp.where(flat, 0, face),
        place=jnp.where(flat[:, None], place - jnp.floor(place), on_face),
        footprint=jnp.maximum(*texels) * width,
    )
    return jnp.where((wanted >= 0)[:, None], colour * sample(scene.atlas, lookup) ** GAMMA, colour)


def _on_triangle(scene: Scene, facet: Array, corners: Array, point: Array, flat: Array) -> tuple[Array, Array]:
    """Smooth normals (k, 3) at points of triangles (k, 3, 3), and the `uv` (k, 3) of `scene_colour`.

    Barycentric coordinates of the point p, with n = (b - a) x (c - a): w_b = (p - a) x (c - a) . n / n . n,
    w_c = (b - a) x (p - a) . n / n . n, w_a = 1 - w_b - w_c. They interpolate what is given at the corners.
    """
    rows = _corners(scene.model.topology)
    a, b, c = unpack(corners, axis=1)
    whole = cross(b - a, c - a)
    area = dot(whole, whole)
    second, third = (safe.divide(dot(cross(*edges), whole), area) for edges in ((point - a, c - a), (b - a, point - a)))
    weights = [1 - second - third, second, third]
    normals = unpack(scene.model.mesh_normal[jnp.asarray(rows.normal)[facet]], axis=1)
    smooth = safe.normalize(sum((scale(n, w) for n, w in zip(normals, weights, strict=True)), 0 * a))
    # a normal of the file is wrong if it differs from the triangle's by more than about 80 degrees (cosine 0.2)
    normal = jnp.where((dot(smooth, flat) > 0.2)[:, None], smooth, flat)
    if not len(scene.model.mesh_texcoord):
        return normal, jnp.full_like(a, -1)
    row = jnp.asarray(rows.texcoord)[facet]
    p, q, r = unpack(scene.model.mesh_texcoord[jnp.maximum(row, 0)], axis=1)
    place = sum((scale(corner, w) for corner, w in zip((p, q, r), weights, strict=True)), 0 * p)
    # texture coordinates per metre: the root of the ratio of the areas on the image and in space (twice each)
    covered = jnp.abs((q - p)[:, 0] * (r - p)[:, 1] - (q - p)[:, 1] * (r - p)[:, 0])
    density = safe.sqrt(safe.divide(covered, safe.sqrt(area)))
    return normal, jnp.where((row[:, :1] >= 0), jnp.concatenate([place, density[:, None]], axis=1), -1.0)


@per_topology
def _corners(topology: Topology) -> _Corners:
    """Rows of normals and texture coordinates for the triangles in the order of the search trees."""
    faces = trees(topology).faces.reshape(-1)
    mesh = np.searchsorted(topology.mesh_faceadr, faces, side="right") - 1
    normal = topology.mesh_facenormal[faces] + topology.mesh_normaladr[mesh][:, None]
    first = topology.mesh_texcoordadr[mesh][:, None]
    return _Corners(normal, np.where(first >= 0, topology.mesh_facetexcoord[faces] + first, -1))


# number of bundles that intersect a primitive shape at once: a larger tile skips fewer objects, a smaller one does not
# fill the vector units
TILE = 16
# number of pairs of a bundle and a mesh or height field that are searched at once: the search is efficient with many
# rays
BLOCK = 1024


def first_hits(scene: Scene, groups: tuple[Group, ...], rays: BundledRays) -> BundledHits:
    """The first hit of each ray, differentiable.

    `trace` has no derivatives. On the surface F(o + t v) = 0 with normal n = grad F, the distance t has the derivative
    dt = -dF / (n . v), where dF is the change of F at fixed t. A grazing ray (n . v = 0) gets derivative 0.
    """
    hits = trace(scene, groups, rays)
    shape = rays.direction.shape
    thing = jnp.maximum(hits.thing, 0)
    xpos, xmat, size = (values[thing] for values in scene.places[:3])
    direction = mul_vec_t(xmat, rays.direction)
    point = mul_vec_t(xmat, rays.origin - xpos) + scale(direction, jnp.where(hits.thing >= 0, hits.distance, 0))
    beyond = jnp.zeros(shape[:2], point.dtype)
    normal = jnp.zeros_like(point)
    for group in groups:
        inside = (hits.thing >= group.first) & (hits.thing < group.first + group.number)
        if group.kind in FACETED:
            facet, asset = (jnp.where(inside, values, 0).reshape(-1) for values in (hits.facet, scene.asset[thing]))
            corners = FACETED[group.kind].corners(scene.model, asset, facet)
            gap = height_over(corners, point.reshape(-1, 3)).reshape(shape[:2])
            across = outward_normals(corners).reshape(shape)
        else:
            # the sizes of other objects would give nan here: use 1 instead
            wanted = jnp.where(inside[..., None], size, 1)
            gap = SURFACES[group.kind].signed_distance(wanted, point)
            across = SURFACES[group.kind].normal(wanted, point)
        beyond = jnp.where(inside, gap, beyond)
        normal = jnp.where(inside[..., None], across, normal)
    # adds (F - F) / (n . v), which is 0 but has the derivative above
    slope = jax.lax.stop_gradient(dot(normal, direction))
    return hits._replace(distance=hits.distance - safe.divide(beyond - jax.lax.stop_gradient(beyond), slope))


def trace(scene: Scene, groups: tuple[Group, ...], rays: BundledRays, passed: Array | None = None) -> BundledHits:
    """The first hit of each ray, without derivatives; `passed` (b, l) is an object that a ray does not hit."""
    scene, rays = jax.lax.stop_gradient((scene, rays))
    near = may_meet_ball(bundles_of(rays), scene.places.xpos, scene.places.reach)
    hits = _on_shapes(scene, [group for group in groups if group.kind not in FACETED], rays, near, passed)
    for group in groups:
        if group.kind in FACETED:
            members = slice(group.first, group.first + group.number)
            hits = _on_facets(scene, group, rays, near[:, members], hits, passed)
    return hits


def _on_shapes(scene: Scene, groups: list[Group], rays: BundledRays, near: Array, passed: Array | None) -> BundledHits:
    """Hits with primitive shapes; near (b, n) says which objects each bundle may hit."""
    count, lanes = rays.wanted.shape
    tiles = -(-count // TILE)

    def tiled(values: Array) -> Array:
        """Splits rows of bundles (b, ...) into (tiles, bundles of a tile, ...), padded with zeros."""
        missing = [(0, tiles * TILE - count), *[(0, 0)] * (values.ndim - 1)]
        return jnp.pad(values, missing).reshape(tiles, TILE, *values.shape[1:])

    # the axis of rays last, so that vector instructions work on neighboring rays
    origin, direction = (jnp.moveaxis(tiled(x), 3, 1).reshape(tiles, 3, -1) for x in rays[:2])
    wanted = tiled(rays.wanted).reshape(tiles, -1)
    near = jnp.any(tiled(near), axis=1)
    passed = None if passed is None else tiled(passed).reshape(tiles, -1)
    near_groups = [near[:, group.first : group.first + group.number] for group in groups]
    # in each group, the objects that some bundle of the tile may hit come first; the loop visits only these
    orders = [group.first + jnp.argsort(~may, axis=1) for group, may in zip(groups, near_groups, strict=True)]
    counts = [jnp.sum(may, axis=1, dtype=jnp.int32) for may in near_groups]

    def of_tile(part: tuple) -> tuple[Array, Array]:
        """The distance and the object of the first hit of each ray of a tile."""
        rays, passed, orders, counts = part
        best = jnp.full(rays.wanted.shape, jnp.inf, rays.origin.dtype), jnp.full(rays.wanted.shape, -1, jnp.int32)
        for group, order, number in zip(groups, orders, counts, strict=True):
            best = jax.lax.fori_loop(0, number, partial(look, group, order, rays, passed), best)
        return best

    def look(
        group: Group, order: Array, rays: BundledRays, passed: Array | None, k: Array, best: tuple
    ) -> tuple[Array, Array]:
        """The best hits so far, after the k-th object that the tile may hit."""
        thing = order[k].astype(jnp.int32)
        xpos, xmat, size, _ = (x[thing][None] for x in scene.places)
        start = mul_vec_t(xmat, rays.origin.T - xpos)
        along = mul_vec_t(xmat, rays.direction.T)
        distance = SURFACES[group.kind].distance(jnp.broadcast_to(size, start.shape), start, along)
        distance = distance.astype(best[0].dtype)
        nearer = rays.wanted & (distance >= 0) & (distance < best[0])
        nearer = nearer if passed is None else nearer & (passed != thing)
        return jnp.where(nearer, distance, best[0]), jnp.where(nearer, thing, best[1])

    hit = jax.lax.map(of_tile, (BundledRays(origin, direction, wanted), passed, orders, counts))
    distance, thing = (x.reshape(-1, lanes)[:count] for x in hit)
    return BundledHits(distance, thing, jnp.zeros_like(thing))


def _on_facets(
    scene: Scene, group: Group, rays: BundledRays, near: Array, hits: BundledHits, passed: Array | None
) -> BundledHits:
    """Updates hits with a group of meshes or height fields; near (b, n) says which of them each bundle may hit."""

    def work(pair: Array, hits: BundledHits) -> BundledHits:
        """The hits after a block of pairs, numbered bundle * group.number + object; larger numbers fill the block."""
        exists = pair < near.size
        pair = jnp.minimum(pair, near.size - 1)
        bundle = pair // group.number
        thing = group.first + pair % group.number
        members = BundledRays(*(values[bundle] for values in rays))
        # a ray is searched only if it meets the bounding ball, and enters it before its nearest hit so far
        xpos, xmat, _, reach = (x[thing][:, None] for x in scene.places)
        offset = members.origin - xpos
        limit = hits.distance[bundle]
        ahead = -dot(offset, members.direction)
        reach = ROOM * reach
        meets = (ahead >= -reach) & (ahead - reach <= limit) & (dot(offset, offset) - ahead * ahead <= reach * reach)
        wanted = members.wanted & exists[:, None] & (meets | (reach == jnp.inf))
        wanted = wanted if passed is None else wanted & (passed[bundle] != thing[:, None])
        local = mul_vec_t(xmat, offset), mul_vec_t(xmat, members.direction)
        lines = Lines(*(jnp.swapaxes(x, 0, 1) for x in (*local, wanted)))
        distance, facet = (x.T for x in FACETED[group.kind].search(scene.model, scene.asset[thing], lines))
        distance = jnp.where(wanted & (distance >= 0), distance, jnp.inf)
        return nearest(hits, bundle, BundledHits(distance, jnp.broadcast_to(thing[:, None], facet.shape), facet))

    return fold_wanted(near.reshape(-1), BLOCK, work, hits)


def ends(rays: BundledRays, hits: BundledHits) -> Array:
    """Points (b, l, 3) of the hits; the origin of the ray where there is no hit."""
    return rays.origin + scale(rays.direction, jnp.where(hits.thing >= 0, hits.distance, 0))
