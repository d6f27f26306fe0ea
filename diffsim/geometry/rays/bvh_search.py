"""The first triangle of a mesh that each of many rays meets, by the trees of bvh.py. Not differentiated.

Rays are worked on in lanes, side by side. A lane goes down its tree, the nearest child first, and keeps for each level
which children are left; in each round all lanes that stand at a node, or all that stand at a leaf, take one step,
whichever are more. When half of the lanes are done, these take up the next rays, so that a few long searches do not
hold up the others. Source: Wald et al. 2008 (trees with many children); Moeller and Trumbore 1997 (triangles).
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from diffsim.geometry.rays.bvh import CHILDREN, LEAF, Trees, trees
from diffsim.geometry.rays.ray_aabb import through_box
from diffsim.math.vector import cross_components, dot_components, minus_components, unpack
from diffsim.types.model import Model
from diffsim.xla.barriers import computed_once
from diffsim.xla.needed import spread
from diffsim.xla.ranked import INTEGERS

Array = jax.Array

# rays that are searched side by side
LANES = 1024
# three bits a child, and a leading 1 that says how many there are
EMPTY = 1
BITS = 3
# pairs of places that, exchanged where they are out of order, one after another sort eight values
SORTING = (
    *((0, 1), (2, 3), (4, 5), (6, 7), (0, 2), (1, 3), (4, 6), (5, 7), (1, 2), (5, 6)),
    *((0, 4), (3, 7), (1, 5), (2, 6), (1, 4), (3, 6), (2, 4), (3, 5), (3, 4)),
)


class Meshes(NamedTuple):
    """What is searched: corners (leaves, 9, 8) and boxes (nodes, 6, 8), m, and the static trees."""

    corners: Array
    boxes: Array
    plan: Trees


class Queries(NamedTuple):
    """n rays in the frames of their meshes: `origin`, `direction` (n, 3), `mesh` (n,), and which are searched (n,)."""

    origin: Array
    direction: Array
    mesh: Array
    wanted: Array


class Nearest(NamedTuple):
    """What n rays meet first: distance (n,) in units of |direction|, infinite for nothing, and leaf triangle (n,)."""

    distance: Array
    triangle: Array


class _Lanes(NamedTuple):
    """Where b searches stand: at a `node` of its `level` (b,), -1 when done; children left on each level (b, depth)."""

    level: Array
    node: Array
    left: Array
    nearest: Nearest


class _Work(NamedTuple):
    """The query (b,) that each lane works on, n for none, with its ray (b, 3) and the place of its tree (b, 4)."""

    query: Array
    origin: Array
    direction: Array
    place: Array


def search_meshes(model: Model, queries: Queries) -> Nearest:
    """The first triangle on each ray, of those that are wanted; triangles are counted through all leaves."""
    corners, boxes, queries = jax.lax.stop_gradient((model.mesh_leafvert, model.mesh_boxes, queries))
    found = _search(trees(model.topology))(corners, boxes, queries)
    return Nearest(*jax.lax.stop_gradient(found))


def _search(plan: Trees) -> Callable[[Array, Array, Queries], Nearest]:
    """A search whose `vmap` is one search: the rays of all worlds that share their meshes are worked on together."""

    @jax.custom_batching.custom_vmap
    def search(corners: Array, boxes: Array, queries: Queries) -> Nearest:
        return _in_lanes(Meshes(corners, boxes, plan), queries)

    @search.def_vmap
    def in_one_go(size: int, batched: Any, corners: Array, boxes: Array, queries: Queries) -> tuple[Nearest, Nearest]:
        *own_mesh, own_queries = batched
        whole = jax.tree.map(partial(spread, size), queries, own_queries)
        if any(own_mesh):
            corners, boxes = (spread(size, *each) for each in zip((corners, boxes), own_mesh, strict=True))
            found = jax.lax.map(lambda each: search(*each), (corners, boxes, whole))
        else:
            flat = search(corners, boxes, jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), whole))
            found = jax.tree.map(lambda x: x.reshape(size, -1), flat)
        return found, Nearest(True, True)  # type: ignore[arg-type]

    return search


def _in_lanes(meshes: Meshes, queries: Queries) -> Nearest:
    """The search itself: lanes take up rays, work, and hand in what they found, until no ray is left."""
    count = len(queries.wanted)
    # wanted ones first
    order = jnp.nonzero(queries.wanted, size=count, fill_value=0)[0].astype(jnp.int32)
    number = jnp.sum(queries.wanted, dtype=jnp.int32)
    idle = _idle(meshes, min(count, LANES), queries.origin.dtype)
    found = _nothing(count, queries.origin.dtype)
    work = _Work(jnp.full_like(idle.node, count), *_rays_of(meshes, queries, idle.node))

    def unfinished(carry: tuple[_Lanes, _Work, Nearest, Array]) -> Array:
        return (carry[3] < number) | jnp.any(carry[0].level >= 0)

    def work_on(carry: tuple[_Lanes, _Work, Nearest, Array]) -> tuple[_Lanes, _Work, Nearest, Array]:
        lanes, work, found, taken = carry
        found = _record(found, work, lanes)
        free = lanes.level < 0
        ticket = taken + jnp.cumsum(free, dtype=jnp.int32) - 1
        fresh = free & (ticket < number)
        query = jnp.where(fresh, order[jnp.minimum(ticket, count - 1)], jnp.where(free, count, work.query))
        rays = _rays_of(meshes, queries, jnp.where(fresh, query, 0))
        work = _Work(query, *(_where(fresh, *each) for each in zip(rays, work[1:], strict=True)))
        lanes = jax.tree.map(partial(_where, fresh), idle._replace(level=jnp.zeros_like(query)), lanes)
        taken = jnp.minimum(taken + jnp.sum(free, dtype=jnp.int32), number)
        return _rounds(meshes, work, lanes, taken == number), work, found, taken

    lanes, work, found, _ = jax.lax.while_loop(unfinished, work_on, (idle, work, found, jnp.int32(0)))
    return _record(found, work, lanes)


def _nothing(count: int, dtype: jnp.dtype) -> Nearest:
    return Nearest(jnp.full(count, jnp.inf, dtype), jnp.full(count, -1, jnp.int32))


def _idle(meshes: Meshes, count: int, dtype: jnp.dtype) -> _Lanes:
    """Lanes without work."""
    depth = max(tree.depth for tree in meshes.plan.trees)
    left = jnp.full((count, depth), EMPTY, jnp.int32)
    return _Lanes(jnp.full(count, -1, jnp.int32), jnp.zeros(count, jnp.int32), left, _nothing(count, dtype))


def _record(found: Nearest, work: _Work, lanes: _Lanes) -> Nearest:
    """The results with those of the lanes in their places; a lane without work has none."""
    pairs = zip(found, lanes.nearest, strict=True)
    return Nearest(*(into.at[work.query].set(each, mode="drop") for into, each in pairs))


@computed_once
def _rays_of(meshes: Meshes, queries: Queries, query: Array) -> tuple[Array, Array, Array]:
    """Origin, direction and place of the tree of some queries."""
    origin, direction, mesh = (_rows(values, query) for values in queries[:3])
    return origin, direction, _rows(jnp.asarray(meshes.plan.places), mesh)


def _where(condition: Array, yes: Array, no: Array) -> Array:
    """Selects rows by a condition (b,)."""
    return jnp.where(condition.reshape(-1, *[1] * (yes.ndim - 1)), yes, no)


def _rounds(meshes: Meshes, work: _Work, lanes: _Lanes, last: Array) -> _Lanes:
    """Rounds until half of the lanes are free to take up the next rays, or all are done after the last ray."""
    depth = work.place[:, 2]

    def busy(lanes: _Lanes) -> Array:
        working = jnp.sum(lanes.level >= 0, dtype=jnp.int32)
        return (working > 0) & (last | (2 * working > len(lanes.level)))

    def one_round(lanes: _Lanes) -> _Lanes:
        at_leaf = lanes.level == depth
        at_node = (lanes.level >= 0) & ~at_leaf
        more_leaves = jnp.sum(at_leaf, dtype=jnp.int32) >= jnp.sum(at_node, dtype=jnp.int32)
        return jax.lax.cond(
            more_leaves,
            lambda: _look_at_triangles(meshes, work, lanes, at_leaf),
            lambda: _look_at_boxes(meshes, work, lanes, at_node),
        )

    return jax.lax.while_loop(busy, one_round, lanes)


def _look_at_boxes(meshes: Meshes, work: _Work, lanes: _Lanes, here: Array) -> _Lanes:
    """Lanes at a node go to its nearest child that the ray meets before anything known, or back up."""
    first, _, _, top = unpack(work.place)
    # nodes of the levels above: 1, top, 8 top, 64 top ...
    above = jnp.where(lanes.level > 0, 1 + top * (0o1111111111 & ((1 << BITS * (lanes.level - 1)) - 1)), 0)
    rows = _rows(meshes.boxes.reshape(-1, 6 * CHILDREN), jnp.where(here, first + above + lanes.node, 0))
    entry = _entry(rows.reshape(-1, 6, CHILDREN), work, lanes.nearest.distance)
    column = jnp.arange(lanes.left.shape[1], dtype=jnp.int32)[None]
    left = jnp.where(column == lanes.level[:, None], _in_order(entry)[:, None], lanes.left)
    return _descend(lanes, lanes.level, lanes.node, left, here)


@computed_once
def _rows(values: Array, index: Array) -> Array:
    """values[index], copied before anything is computed with it."""
    return values.at[index].get(mode="promise_in_bounds")


@computed_once
def _entry(box: Array, work: _Work, limit: Array) -> Array:
    """(b, 8) distance at which the ray enters each box, infinite if it misses it or another surface is nearer."""
    lower, upper = unpack(box[:, :3], axis=1), unpack(box[:, 3:], axis=1)
    origin, direction = unpack(work.origin[:, :, None], axis=1), unpack(work.direction[:, :, None], axis=1)
    enter, leave = through_box(lower, upper, origin, direction)
    return jnp.where(enter <= jnp.minimum(leave, limit[:, None]), enter, jnp.inf)


@computed_once
def _in_order(entry: Array) -> Array:
    """(b,) the children that are met, nearest in the lowest bits, under a leading 1.

    Distances, which are not negative, are in the order of their bits, the last of which give way to the child's number.
    """
    kind, last = INTEGERS[entry.dtype], CHILDREN - 1
    bits, never = (jax.lax.bitcast_convert_type(each, kind) for each in (entry, jnp.full_like(entry[0, 0], jnp.inf)))
    keys = unpack(bits & ~last | jnp.arange(CHILDREN, dtype=kind)[None])
    for a, b in SORTING:
        keys[a], keys[b] = jnp.minimum(keys[a], keys[b]), jnp.maximum(keys[a], keys[b])
    result = jnp.full(len(entry), EMPTY, jnp.int32)
    for key in reversed(keys):
        result = jnp.where(key < never, result << BITS | (key & last).astype(jnp.int32), result)
    return result


@computed_once
def _descend(lanes: _Lanes, level: Array, node: Array, left: Array, here: Array) -> _Lanes:
    """Lanes that are `here` go on to the next child left on the deepest level at or above their own, or are done."""
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


def _look_at_triangles(meshes: Meshes, work: _Work, lanes: _Lanes, here: Array) -> _Lanes:
    """Lanes at a leaf take the nearest of its triangles, if it is nearer than what they know, and go on."""
    leaf = jnp.where(here, work.place[:, 1] + lanes.node, 0)
    rows = _rows(meshes.corners.reshape(-1, 9 * LEAF), leaf)
    distance = _triangle_distances(rows.reshape(-1, 3, 3, LEAF), work)
    nearest, triangle = lanes.nearest
    for each, column in enumerate(unpack(distance)):
        better = here & (column < nearest)
        nearest, triangle = (jnp.where(better, *pair) for pair in ((column, nearest), (leaf * LEAF + each, triangle)))
    lanes = lanes._replace(nearest=Nearest(nearest, triangle))
    return _descend(lanes, lanes.level - 1, lanes.node >> BITS, lanes.left, here)


@computed_once
def _triangle_distances(corners: Array, work: _Work) -> Array:
    """(b, 8) where rays cross triangles with corners (b, 3, 3, 8), infinite if they do not."""
    origin, direction = unpack(work.origin[:, :, None], axis=1), unpack(work.direction[:, :, None], axis=1)
    a, b, c = (minus_components(unpack(each, axis=1), origin) for each in unpack(corners, axis=1))
    # volumes of the ray with each edge: of one sign inside, of equal size for the two triangles at an edge
    volumes = [dot_components(direction, cross_components(*edge)) for edge in ((c, b), (a, c), (b, a))]
    whole = volumes[0] + volumes[1] + volumes[2]
    least = jnp.minimum(*(volumes[k] * jnp.sign(whole) for k in (0, 1)))
    least = jnp.minimum(least, volumes[2] * jnp.sign(whole))
    inside = (whole != 0) & (least >= -8 * jnp.finfo(whole.dtype).eps * jnp.abs(whole))
    normal = cross_components(minus_components(b, a), minus_components(c, a))
    slope = dot_components(normal, direction)
    distance = dot_components(normal, a) / jnp.where(slope == 0, 1, slope)
    return jnp.where(inside & (slope != 0) & (distance >= 0), distance, jnp.inf)
