"""The first triangle of a mesh that each of many rays hits, by a search in the trees of bvh.py. Not differentiated.

Many rays are searched at once, one in each lane. A lane goes down its tree, the nearest child first, and remembers the
children that are left on each level. In each round, either all lanes at a node or all lanes at a leaf take one step,
whichever are more. When half of the lanes are done, they take up the next rays, so that a few long searches do not hold
up the others. Source: Wald et al. 2008; Moeller and Trumbore 1997 (triangles).
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from diffsim.geometry.rays.bvh import CHILDREN, LEAF, Trees, trees
from diffsim.geometry.rays.surfaces import through_box
from diffsim.math.vector import cross_components, dot_components, minus_components, unpack
from diffsim.types.model import Model
from diffsim.xla.barriers import computed_once
from diffsim.xla.batched_loops import spread, with_batch_rule, work_through
from diffsim.xla.loops import cond, while_loop
from diffsim.xla.select import INTEGERS

# number of rays that are searched at once
LANES = 1024
# a list of children is an integer: three bits a child, after a leading 1 that marks the end of the list
EMPTY = 1
BITS = 3
# a sorting network for eight values: compare each pair of places in turn, and swap the values if they are out of order
SORTING = (
    *((0, 1), (2, 3), (4, 5), (6, 7), (0, 2), (1, 3), (4, 6), (5, 7), (1, 2), (5, 6)),
    *((0, 4), (3, 7), (1, 5), (2, 6), (1, 4), (3, 6), (2, 4), (3, 5), (3, 4)),
)


class Meshes(NamedTuple):
    """The data of a search: corners (leaves, 9, 8) and boxes (nodes, 6, 8), m, and the static trees."""

    corners: Array
    boxes: Array
    plan: Trees


class Queries(NamedTuple):
    """n rays in their meshes' frames: `origin`, `direction` (n, 3), `mesh` (n,), and which rays are `wanted` (n,)."""

    origin: Array
    direction: Array
    mesh: Array
    wanted: Array


class Nearest(NamedTuple):
    """First hits of n rays: distance (n,) in units of |direction|, infinite for a miss; leaf triangle (n,)."""

    distance: Array
    triangle: Array


class _Lanes(NamedTuple):
    """The state of b searches: `level` (-1 when done) and `node` on it (b,); children `left` per level (b, depth)."""

    level: Array
    node: Array
    left: Array
    nearest: Nearest


class _Rays(NamedTuple):
    """The rays (b, 3) of the lanes, and the `Trees.places` (b, 4) of their trees."""

    origin: Array
    direction: Array
    place: Array


def search_meshes(model: Model, queries: Queries) -> Nearest:
    """The first triangle on each wanted ray; triangles are numbered consecutively through all leaves.

    Under `vmap` it is one search: worlds that share their meshes put all their rays together.
    """
    plan = trees(model.topology)

    def of_a_batch(size: int, batched: Any, corners: Array, boxes: Array, queries: Queries) -> Nearest:
        *of_mesh, of_queries = batched
        queries = jax.tree.map(partial(spread, size), queries, of_queries)
        if any(of_mesh):
            corners, boxes = map(partial(spread, size), (corners, boxes), of_mesh)
            return jax.lax.map(lambda world: search(*world), (corners, boxes, queries))
        flat = search(corners, boxes, jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), queries))
        return jax.tree.map(lambda x: x.reshape(size, -1), flat)

    search = with_batch_rule(
        lambda corners, boxes, queries: _in_lanes(Meshes(corners, boxes, plan), queries), of_a_batch
    )
    hit = search(*jax.lax.stop_gradient((model.mesh_leafvert, model.mesh_boxes, queries)))
    return Nearest(*jax.lax.stop_gradient(hit))


def _in_lanes(meshes: Meshes, queries: Queries) -> Nearest:
    """The hits of all rays: each lane takes a ray, searches, and returns its hit, until no ray is left."""
    count = len(queries.wanted)
    kind = queries.origin.dtype
    depth = max(tree.depth for tree in meshes.plan.trees)
    number = jnp.sum(queries.wanted, dtype=jnp.int32)
    # wanted rays first
    order = jnp.nonzero(queries.wanted, size=count, fill_value=count)[0].astype(jnp.int32)

    def start(job: Array) -> _Lanes:
        left = jnp.full((len(job), depth), EMPTY, jnp.int32)
        return _Lanes(jnp.where(job < number, 0, -1), jnp.zeros_like(job), left, _nothing(len(job), kind))

    def work(job: Array, lanes: _Lanes, is_last: Array) -> _Lanes:
        query = jnp.where(job < number, order[jnp.minimum(job, count - 1)], 0)
        return _rounds(meshes, _rays_of(meshes, queries, query), lanes, is_last)

    results = work_through(
        _nothing(count, kind),
        count=number,
        slots=min(count, LANES),
        start=start,
        advance=work,
        ended=lambda lanes: lanes.level < 0,
        result=lambda lanes: lanes.nearest,
    )
    pairs = zip(_nothing(count, kind), results, strict=True)
    return Nearest(*(nothing.at[order].set(value, mode="drop") for nothing, value in pairs))


def _nothing(count: int, dtype: jnp.dtype) -> Nearest:
    return Nearest(jnp.full(count, jnp.inf, dtype), jnp.full(count, -1, jnp.int32))


@computed_once
def _rays_of(meshes: Meshes, queries: Queries, query: Array) -> _Rays:
    """The rays of some queries, and the places of their trees."""
    origin, direction, mesh = (_rows(values, query) for values in queries[:3])
    return _Rays(origin, direction, _rows(jnp.asarray(meshes.plan.places), mesh))


def _rounds(meshes: Meshes, rays: _Rays, lanes: _Lanes, last: Array) -> _Lanes:
    """Rounds until half of the lanes are free for the next rays; after the last ray, until all lanes are done."""
    depth = rays.place[:, 2]

    def busy(lanes: _Lanes) -> Array:
        working = jnp.sum(lanes.level >= 0, dtype=jnp.int32)
        return (working > 0) & (last | (2 * working > len(lanes.level)))

    def one_round(lanes: _Lanes) -> _Lanes:
        at_leaf = lanes.level == depth
        at_node = (lanes.level >= 0) & ~at_leaf
        more_leaves = jnp.sum(at_leaf, dtype=jnp.int32) >= jnp.sum(at_node, dtype=jnp.int32)
        return cond(
            more_leaves,
            lambda: _look_at_triangles(meshes, rays, lanes, at_leaf),
            lambda: _look_at_boxes(meshes, rays, lanes, at_node),
        )

    return while_loop(busy, one_round, lanes)


def _look_at_boxes(meshes: Meshes, rays: _Rays, lanes: _Lanes, here: Array) -> _Lanes:
    """Lanes at a node go to its nearest child, if the ray enters it before the nearest hit so far, or else back up."""
    first, _, _, top = unpack(rays.place)
    # the number of nodes on all higher levels; a level has 1, top, 8 top, 64 top ... nodes
    above = jnp.where(lanes.level > 0, 1 + top * (0o1111111111 & ((1 << BITS * (lanes.level - 1)) - 1)), 0)
    rows = _rows(meshes.boxes.reshape(-1, 6 * CHILDREN), jnp.where(here, first + above + lanes.node, 0))
    entry = _entry(rows.reshape(-1, 6, CHILDREN), rays, lanes.nearest.distance)
    column = jnp.arange(lanes.left.shape[1], dtype=jnp.int32)[None]
    left = jnp.where(column == lanes.level[:, None], _in_order(entry)[:, None], lanes.left)
    return _descend(lanes, lanes.level, lanes.node, left, here)


@computed_once
def _rows(values: Array, index: Array) -> Array:
    """values[index], copied before any computation uses it."""
    return values.at[index].get(mode="promise_in_bounds")


@computed_once
def _entry(box: Array, rays: _Rays, limit: Array) -> Array:
    """(b, 8) distance at which the ray enters each box, infinite if it misses it or another surface is nearer."""
    lower = unpack(box[:, :3], axis=1)
    upper = unpack(box[:, 3:], axis=1)
    origin, direction = unpack(rays.origin[:, :, None], axis=1), unpack(rays.direction[:, :, None], axis=1)
    enter, leave = through_box(lower, upper, origin, direction)
    return jnp.where(enter <= jnp.minimum(leave, limit[:, None]), enter, jnp.inf)


@computed_once
def _in_order(entry: Array) -> Array:
    """(b,) the list of children that are hit, the nearest in the lowest bits, below a leading 1.

    Distances are not negative, so they can be sorted by their bits as integers. The last three bits are replaced by the
    child's number.
    """
    kind = INTEGERS[entry.dtype]
    last = CHILDREN - 1
    bits, never = (jax.lax.bitcast_convert_type(value, kind) for value in (entry, jnp.full_like(entry[0, 0], jnp.inf)))
    keys = unpack(bits & ~last | jnp.arange(CHILDREN, dtype=kind)[None])
    for a, b in SORTING:
        keys[a], keys[b] = jnp.minimum(keys[a], keys[b]), jnp.maximum(keys[a], keys[b])
    result = jnp.full(len(entry), EMPTY, jnp.int32)
    for key in reversed(keys):
        result = jnp.where(key < never, result << BITS | (key & last).astype(jnp.int32), result)
    return result


@computed_once
def _descend(lanes: _Lanes, level: Array, node: Array, left: Array, here: Array) -> _Lanes:
    """Lanes that are `here` go to the next child that is left, on the deepest level up to theirs, or are done."""
    column = jnp.arange(left.shape[1], dtype=jnp.int32)[None]
    deepest = jnp.max(jnp.where((left != EMPTY) & (column <= level[:, None]), column, -1), axis=1)
    there = column == deepest[:, None]
    children = jnp.max(jnp.where(there, left, 0), axis=1)
    up = BITS * jnp.maximum(level - deepest, 0)
    child = ((node >> up) << BITS) + (children & (CHILDREN - 1))
    return lanes._replace(
        level=jnp.where(here, jnp.where(deepest < 0, -1, deepest + 1), lanes.level),
        node=jnp.where(here, jnp.where(deepest < 0, 0, child), lanes.node),
        left=jnp.where(here[:, None], jnp.where(there, left >> BITS, left), lanes.left),
    )


def _look_at_triangles(meshes: Meshes, rays: _Rays, lanes: _Lanes, here: Array) -> _Lanes:
    """Lanes at a leaf keep its nearest triangle if that is nearer than the nearest hit so far, and go on."""
    leaf = jnp.where(here, rays.place[:, 1] + lanes.node, 0)
    rows = _rows(meshes.corners.reshape(-1, 9 * LEAF), leaf)
    distance = _triangle_distances(rows.reshape(-1, 3, 3, LEAF), rays)
    nearest, triangle = lanes.nearest
    for child, column in enumerate(unpack(distance)):
        better = here & (column < nearest)
        nearest, triangle = (jnp.where(better, *pair) for pair in ((column, nearest), (leaf * LEAF + child, triangle)))
    lanes = lanes._replace(nearest=Nearest(nearest, triangle))
    return _descend(lanes, lanes.level - 1, lanes.node >> BITS, lanes.left, here)


@computed_once
def _triangle_distances(corners: Array, rays: _Rays) -> Array:
    """(b, 8) where rays cross triangles with corners (b, 3, 3, 8), infinite if they do not."""
    origin, direction = unpack(rays.origin[:, :, None], axis=1), unpack(rays.direction[:, :, None], axis=1)
    a, b, c = (minus_components(unpack(corner, axis=1), origin) for corner in unpack(corners, axis=1))
    # volumes of the ray with each edge: inside, all have one sign; the two triangles at an edge get the same volume
    volumes = [dot_components(direction, cross_components(*edge)) for edge in ((c, b), (a, c), (b, a))]
    whole = volumes[0] + volumes[1] + volumes[2]
    least = jnp.minimum(*(volumes[k] * jnp.sign(whole) for k in (0, 1)))
    least = jnp.minimum(least, volumes[2] * jnp.sign(whole))
    inside = (whole != 0) & (least >= -8 * jnp.finfo(whole.dtype).eps * jnp.abs(whole))
    normal = cross_components(minus_components(b, a), minus_components(c, a))
    slope = dot_components(normal, direction)
    distance = dot_components(normal, a) / jnp.where(slope == 0, 1, slope)
    return jnp.where(inside & (slope != 0) & (distance >= 0), distance, jnp.inf)
