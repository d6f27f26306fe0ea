"""Pairs of flex elements that are near each other, in two flexes or in one.

Two elements can touch only if their boxes overlap and they share no body. With few elements, all pairs of boxes are
compared. With many, the boxes of clusters of neighbouring elements are compared first, and then the boxes of the
elements in clusters that overlap. Near pairs are examined exactly, up to a number that grows with the number of
elements. Pairs beyond it are only counted. Source: `engine_collision_driver.c` of 3.8.1 for the rules.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.flex.points import flex_elements
from diffsim.types.model import Model
from diffsim.types.topology import Topology, per_topology, rows_of
from diffsim.xla.gather import pick
from diffsim.xla.select import if_anywhere

# pairs of elements up to which the boxes of all pairs are compared; beyond that clusters are compared first
MOST_COMPARED = 1 << 15
# elements of a cluster, so that two clusters that overlap make 256 pairs of boxes
CLUSTER = 16
# pairs of elements that are examined exactly: EXAMINED_PER_ELEMENT for each element of the larger flex, and at least
# this many in total
LEAST_EXAMINED = 256
# room for the neighbours of the element that an element lies on
EXAMINED_PER_ELEMENT = 4
# number of cluster pairs whose elements are compared: this many for each cluster (itself and its neighbours),
PAIRS_PER_CLUSTER = 8
# and this many in addition, so that flexes of few clusters compare all of them
MORE_CLUSTER_PAIRS = 256


class NearPairs(NamedTuple):
    """Pairs (n,) of elements, numbered within their flexes; whether each exists; and how many did not fit."""

    first: Array
    second: Array
    exists: Array
    left_out: Array


@per_topology
def active_elements(topology: Topology, flex: int) -> np.ndarray:
    """(m,) the elements of a flex that are searched for contacts, in order; in a solid, only its outer layers."""
    rows = rows_of(topology, "flex_elem", flex)
    layer, order = topology.flex_elemlayer[rows], topology.flex_elemorder[rows]
    return order[(topology.flex_dim[flex] < 3) | (layer[order] < topology.flex_activelayers[flex])]


def near_pairs(model: Model, vertices: Array, flexes: tuple[int, int], margin: Array) -> NearPairs:
    """Pairs of elements whose boxes overlap, of vertices (nflexvert, 3) in the world."""
    vertices, margin = jax.lax.stop_gradient((vertices, margin))
    boxes = [element_boxes(model, vertices, flex, 0.5 * margin) for flex in flexes]
    static = _static_pairs(model.topology, flexes)
    if static is not None:
        first, second = static
        near = _overlap(*(pick(box, ids) for box, ids in zip(boxes, static, strict=True)))
        return _first_of(jnp.asarray(first), jnp.asarray(second), near, _most(model.topology, flexes))
    return pairs_by_clusters(model.topology, flexes, boxes)


def element_boxes(model: Model, vertices: Array, flex: int, margin: Array) -> Array:
    """(m, 2, 3) lower and upper corners of the boxes around elements, with their radius and a margin, m."""
    corner = jax.lax.stop_gradient(pick(vertices, flex_elements(model.topology, flex)))
    reach = jax.lax.stop_gradient(model.flex_radius[flex]) + margin
    return jnp.stack([jnp.min(corner, axis=1) - reach, jnp.max(corner, axis=1) + reach], axis=1)


def _overlap(first: Array, second: Array) -> Array:
    """Whether boxes (..., 2, 3) overlap."""
    apart = (first[..., 0, :] > second[..., 1, :]) | (second[..., 0, :] > first[..., 1, :])
    return ~(apart[..., 0] | apart[..., 1] | apart[..., 2])


def _most(topology: Topology, flexes: tuple[int, int]) -> int:
    """The number of pairs that are examined exactly."""
    sizes = [len(active_elements(topology, flex)) for flex in flexes]
    return max(LEAST_EXAMINED, EXAMINED_PER_ELEMENT * max(sizes))


@per_topology
def pair_count(topology: Topology, flexes: tuple[int, int]) -> int:
    """The largest number of pairs of elements of two flexes that are examined exactly."""
    static = _static_pairs(topology, flexes)
    return _most(topology, flexes) if static is None else min(len(static[0]), _most(topology, flexes))


def _first_of(first: Array, second: Array, near: Array, most: int) -> NearPairs:
    """The first pairs (n,) that are near, at most `most` of them."""
    if len(near) <= most:
        return NearPairs(first, second, near, jnp.zeros((), jnp.int32))
    place = jnp.nonzero(near, size=most, fill_value=len(near))[0]
    exists = place < len(near)
    place = jnp.where(exists, place, 0)
    count = jnp.sum(near, dtype=jnp.int32)
    return NearPairs(first[place], second[place], exists, jnp.maximum(count - most, 0))


@per_topology
def _static_pairs(topology: Topology, flexes: tuple[int, int]) -> tuple[np.ndarray, np.ndarray] | None:
    """All pairs of elements that share no body; None if there are too many."""
    ids = [active_elements(topology, flex) for flex in flexes]
    if len(ids[0]) * len(ids[1]) > MOST_COMPARED * (2 if flexes[0] == flexes[1] else 1):
        return None
    first, second = (grid.ravel() for grid in np.meshgrid(*ids, indexing="ij"))
    if flexes[0] == flexes[1]:
        first, second = first[first < second], second[first < second]
    bodies = [_bodies(topology, flex) for flex in flexes]
    apart = ~_share(np, bodies[0][first], bodies[1][second])
    return first[apart], second[apart]


@per_topology
def _bodies(topology: Topology, flex: int) -> np.ndarray:
    """(m, dim + 1) the bodies of the vertices of elements, -1 where they are interpolated."""
    return topology.flex_vertbodyid[flex_elements(topology, flex)]


def _share(np_or_jnp, first: np.ndarray | Array, second: np.ndarray | Array):
    """(n,) whether bodies (n, k) and (n, l) have a body in common."""
    same = (first[..., :, None] == second[..., None, :]) & (first >= 0)[..., :, None]
    return np_or_jnp.any(same, axis=(-2, -1))


@per_topology
def clusters(topology: Topology, flex: int) -> np.ndarray:
    """(c, 16) clusters of neighbouring active elements, -1 for none; each grows from the first unassigned element."""
    element, active = flex_elements(topology, flex), active_elements(topology, flex)
    at_vertex: dict[int, list[int]] = {}
    for number in active.tolist():
        for vertex in element[number].tolist():
            at_vertex.setdefault(vertex, []).append(number)
    free = set(active.tolist())
    table = []
    for start in active.tolist():
        if start not in free:
            continue
        members = [start]
        free.remove(start)
        for number in members:
            for vertex in element[number].tolist():
                for other in at_vertex[vertex]:
                    if other in free and len(members) < CLUSTER:
                        free.remove(other)
                        members.append(other)
        table.append(np.pad(members, (0, CLUSTER - len(members)), constant_values=-1))
    return np.array(table).reshape(-1, CLUSTER)


def pairs_by_clusters(topology: Topology, flexes: tuple[int, int], boxes: list[Array]) -> NearPairs:
    """Near pairs of many elements, found through pairs of clusters."""
    same = flexes[0] == flexes[1]
    tables = [clusters(topology, flex) for flex in flexes]
    around = []
    for table, box in zip(tables, boxes, strict=True):
        members = pick(box, np.where(table < 0, table[:, :1], table))
        around.append(jnp.stack([jnp.min(members[:, :, 0], axis=1), jnp.max(members[:, :, 1], axis=1)], axis=1))
    pairs = np.triu_indices(len(tables[0])) if same else tuple(x.ravel() for x in np.indices([*map(len, tables)]))
    touch = _overlap(*(pick(box, ids) for box, ids in zip(around, pairs, strict=True)))
    most = MORE_CLUSTER_PAIRS + PAIRS_PER_CLUSTER * max(map(len, tables))

    def of_elements() -> NearPairs:
        overlapping = _first_of(jnp.asarray(pairs[0]), jnp.asarray(pairs[1]), touch, most)
        first, second = (
            jnp.asarray(t)[ids] for t, ids in zip(tables, (overlapping.first, overlapping.second), strict=True)
        )
        first, second = jnp.broadcast_arrays(first[:, :, None], second[:, None, :])
        exists = overlapping.exists[:, None, None] & (first >= 0) & (second >= 0)
        if same:
            exists = exists & ((overlapping.first != overlapping.second)[:, None, None] | (first < second))
        first, second, exists = (x.reshape(-1) for x in (jnp.maximum(first, 0), jnp.maximum(second, 0), exists))
        bodies = [jnp.asarray(_bodies(topology, flex))[ids] for flex, ids in zip(flexes, (first, second), strict=True)]
        near = exists & _overlap(boxes[0][first], boxes[1][second]) & ~_share(jnp, *bodies)
        nearest = _first_of(first, second, near, _most(topology, flexes))
        return nearest._replace(left_out=nearest.left_out + overlapping.left_out)

    if same:
        return of_elements()
    # for flexes that are apart, such as the fingers of a gripper, the search ends here if no world needs it
    none = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(of_elements))
    return if_anywhere(jnp.any(touch), of_elements, none)
