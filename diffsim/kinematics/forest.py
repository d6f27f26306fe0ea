"""Sums along the trees of a forest, over the ancestors or the descendants of each node.

Trees of equal shape share one static 0/1 mask of that shape: a product with it sums along all of them, where a mask of
all nodes would be zeros for the most part. Along small trees the sums are written out.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.math.linalg import matmul
from diffsim.xla.barriers import for_gpu, launched_once
from diffsim.xla.pick import pick

Array = jax.Array

# nodes of the largest trees whose sums are written out
SMALL = 8


class Shape(NamedTuple):
    """Trees of one shape: `nodes` (count, size), and the parent (size,) of each node within its tree, -1 for none."""

    nodes: np.ndarray
    parent: np.ndarray


def shapes_of(parent: np.ndarray) -> tuple[Shape, ...]:
    """The trees of nodes with parents (n,), -1 for none, by shape. Parents come before children."""
    root, place = np.arange(len(parent)), np.zeros(len(parent), int)
    trees: dict[int, list[int]] = {}
    for node, above in enumerate(parent):
        root[node] = node if above < 0 else root[above]
        own = trees.setdefault(int(root[node]), [])
        place[node] = len(own)
        own.append(node)
    found: dict[tuple[int, ...], list[list[int]]] = {}
    for nodes in trees.values():
        within = tuple(int(place[parent[node]]) if parent[node] >= 0 else -1 for node in nodes)
        found.setdefault(within, []).append(nodes)
    return tuple(Shape(np.array(nodes), np.array(within)) for within, nodes in found.items())


def ancestor_mask(parent: np.ndarray) -> np.ndarray:
    """(n, n) bool: row i marks i and all its ancestors. Parents come before children."""
    mask = np.eye(len(parent), dtype=bool)
    for node, above in enumerate(parent):
        if above >= 0:
            mask[node] |= mask[above]
    return mask


def sum_above(shapes: Sequence[Shape], values: Array) -> Array:
    """(n, k): sum of `values` (n, k) over each node and its ancestors."""
    return _sums(shapes, values, False)


def sum_below(shapes: Sequence[Shape], values: Array) -> Array:
    """(n, k): sum of `values` (n, k) over each node and its descendants."""
    return _sums(shapes, values, True)


def _sums(shapes: Sequence[Shape], values: Array, below: bool) -> Array:
    parts = []
    for shape in shapes:
        own = pick(values, shape.nodes)
        along = _along_small if shape.nodes.shape[1] <= SMALL else _along
        parts.append(along(shape.parent, own, below).reshape(-1, values.shape[1]))
    nodes = np.concatenate([shape.nodes.reshape(-1) for shape in shapes])
    return pick(jnp.concatenate(parts), np.argsort(nodes))


def _along_small(parent: np.ndarray, values: Array, below: bool) -> Array:
    """Sums (count, size, k) along trees, node after node."""
    found = [values[:, node] for node in range(len(parent))]
    for node in reversed(range(len(parent))) if below else range(len(parent)):
        above = parent[node]
        if above >= 0:
            receives, gives = (above, node) if below else (node, above)
            found[receives] = found[receives] + found[gives]
    return jnp.stack(found, axis=1)


def _along(parent: np.ndarray, values: Array, below: bool) -> Array:
    """Sums (count, size, k) along trees, by the mask of their shape."""
    mask = ancestor_mask(parent)
    mask = jnp.asarray(mask.T if below else mask, values.dtype)
    return _written_out(mask, values) if for_gpu() else jnp.swapaxes(matmul(jnp.swapaxes(values, 1, 2), mask.T), 1, 2)


@launched_once
def _written_out(mask: Array, values: Array) -> Array:
    """The same, in a form that does not become one matrix product of all worlds."""
    return jnp.sum(mask[None, :, :, None] * values[:, None], axis=2)
