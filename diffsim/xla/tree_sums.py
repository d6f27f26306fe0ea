"""Sums over the ancestors or the descendants of each node of a static tree, in the fastest form.

Every recursion over a kinematic tree is such a sum if all its quantities are expressed in one frame. `Trees` describes
a forest of nodes, and computes the sums in one of three ways:

- by a product with a 0/1 mask (n, n), for up to 160 nodes;
- by one mask, or one unrolled sum, for each shape of tree, if a forest has many small trees of few shapes;
- by pointer jumping, for large trees: after round k each node has the sum over its 2^k nearest ancestors, and points to
  the next ancestor (Hillis and Steele 1986). Rotations are composed in the same way, with products instead of sums.

On a GPU, products with a mask are written as sums. XLA would otherwise turn them into one matrix product for all
worlds, with transposes before and after it.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from diffsim.xla.barriers import computed_once, for_cpu, for_gpu, stored, stored_on_gpu
from diffsim.xla.compiled import define_eager
from diffsim.xla.gather import pick, pick_some
from diffsim.xla.numpy_rules import RULES

# vectors (n, k), such as motion axes, and factors (n,), such as their rates
Scaled = tuple[Array, Array]

# with more nodes than this, a product with a mask costs more than pointer jumping
MASK_LIMIT = 160
# the largest number of shapes for which trees are summed shape by shape
MOST_SHAPES = 4
# sums by shapes pay if their masks have this many times fewer entries than one mask of all nodes
FEWER_ENTRIES = 4
# number of nodes of the largest tree whose sums are unrolled
UNROLLED_NODES = 8
# a CPU pads the columns of a product if it has more columns than this
NARROW = 8
# columns are padded to a multiple of this number, which fills vector registers
COLUMN_MULTIPLE = 32
# precision of matrix products
HIGHEST = jax.lax.Precision.HIGHEST


class Shape(NamedTuple):
    """Trees of one shape: the `nodes` (count, size) of each, and the `parent` (size,) of each node in it, or -1."""

    nodes: np.ndarray
    parent: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class Trees:
    """A forest of n nodes.

    Attributes:
      parent: (n,) the parent of each node, -1 for none. Parents come before their children.
      rooted: whether node 0 is an ancestor of all others, as the world body is. Then the children of node 0 are the
        roots of the trees.
    """

    parent: np.ndarray
    rooted: bool = False

    @functools.cached_property
    def mask(self) -> np.ndarray:
        """(n, n) bool: row i marks node i and its ancestors."""
        return ancestor_mask(self.parent)

    @functools.cached_property
    def shapes(self) -> tuple[Shape, ...] | None:
        """The trees, grouped by shape; None if sums by shapes take more work than one mask or pointer jumping."""
        parent = self.parent[1:] - 1 if self.rooted else self.parent
        shapes = shapes_of(parent)
        largest = max((shape.nodes.shape[1] for shape in shapes), default=0)
        entries = sum(shape.nodes.size * shape.nodes.shape[1] for shape in shapes)
        few = len(shapes) <= MOST_SHAPES
        small = largest <= MASK_LIMIT
        return shapes if few and small and FEWER_ENTRIES * entries < len(parent) ** 2 else None

    @functools.cached_property
    def rounds(self) -> tuple[np.ndarray, ...]:
        """The pointers (n,) of each round of pointer jumping, -1 where no ancestor is left."""
        return jump_rounds(self.parent)

    @functools.cached_property
    def rounds_below_root(self) -> tuple[np.ndarray, ...]:
        """The rounds of pointer jumping without the common root."""
        return jump_rounds(np.where(self.parent == 0, -1, self.parent)) if self.rooted else self.rounds

    def below(self, values: Array) -> Array:
        """(n, k) for each node, the sum of `values` (n, k) over itself and its descendants."""
        if self.shapes is not None:
            below_root = _sums_by_shape(self.shapes, values[1:] if self.rooted else values, True)
            return jnp.concatenate([jnp.sum(values, axis=0, keepdims=True), below_root]) if self.rooted else below_root
        if len(self.parent) <= MASK_LIMIT:
            return _masked_sum(self.mask.T, values) if for_gpu() else _product(self.mask.T, values)
        for pointer in reversed(self.rounds):
            target = np.where(pointer < 0, len(pointer), pointer)
            values = values.at[target].add(values, mode="drop")
        return values

    def above(self, values: Array) -> Array:
        """(n, k) for each node, the sum of `values` (n, k) over itself and its ancestors.

        The value of a common root must be zero.
        """
        if self.shapes is not None:
            below_root = _sums_by_shape(self.shapes, values[1:] if self.rooted else values, False)
            return jnp.concatenate([values[:1], below_root]) if self.rooted else below_root
        if len(self.parent) <= MASK_LIMIT:
            if for_gpu():
                return _masked_sum(self.mask, values)
            return jnp.matmul(jnp.asarray(self.mask, values.dtype), values, precision=HIGHEST)
        for pointer in self.rounds_below_root:
            values = values + pick_some(values, pointer)
        return values

    def above_at(self, nodes: np.ndarray, *terms: Scaled) -> Array:
        """(m, k) for each of `nodes` (m,), the sum over itself and its ancestors; zero for node -1.

        Each term is a pair of vectors (n, k) and factors (n,). What is summed is the total
        of all vectors times their factors.
        """
        if self.shapes is None and len(self.parent) <= MASK_LIMIT:
            mask = np.vstack([self.mask, np.zeros((1, len(self.parent)), dtype=bool)])[nodes]
            return stored_on_gpu((_masked_sum if for_gpu() else _product)(mask, _total(terms)))
        return stored_on_gpu(pick_some(self.above(_total(terms)), nodes))

    def compose(self, values: Array, product: Callable[[Array, Array], Array], identity: np.ndarray) -> Array:
        """(n, k) for each node, the product of `values` (n, k) from its root to itself.

        The value of a common root must be `identity`. Each round ends with a barrier; otherwise XLA would compute all
        earlier rounds again for each input of the next one.
        """
        for pointer in self.rounds_below_root:
            one_round = computed_once(lambda x, at=pointer: product(pick_some(x, at, identity), x))
            values = one_round(values)
        return values


def ancestor_mask(parent: np.ndarray) -> np.ndarray:
    """(n, n) bool: row i marks node i and all its ancestors. Parents come before children."""
    mask = np.eye(len(parent), dtype=bool)
    for node, above in enumerate(parent):
        if above >= 0:
            mask[node] |= mask[above]
    return mask


def jump_rounds(parent: np.ndarray) -> tuple[np.ndarray, ...]:
    """The pointers (n,) of each round of pointer jumping, -1 where no ancestor is left."""
    # node -1, the last entry, points to itself
    pointer = np.append(parent, -1)
    rounds = []
    while np.any(pointer >= 0):
        rounds.append(pointer[:-1])
        pointer = pointer[pointer]
    return tuple(rounds)


def shapes_of(parent: np.ndarray) -> tuple[Shape, ...]:
    """The trees of a forest with these parents (n,), -1 for none, grouped by shape. Parents come before children."""
    root = np.arange(len(parent))
    # the index of each node in its tree
    place = np.zeros(len(parent), int)
    trees: dict[int, list[int]] = {}
    for node, above in enumerate(parent):
        root[node] = node if above < 0 else root[above]
        members = trees.setdefault(int(root[node]), [])
        place[node] = len(members)
        members.append(node)
    by_shape: dict[tuple[int, ...], list[list[int]]] = {}
    for nodes in trees.values():
        within = tuple(int(place[parent[node]]) if parent[node] >= 0 else -1 for node in nodes)
        by_shape.setdefault(within, []).append(nodes)
    return tuple(Shape(nodes=np.array(nodes), parent=np.array(within)) for within, nodes in by_shape.items())


def _total(terms: Sequence[Scaled]) -> Array:
    """(n, k) the sum of all terms, vectors (n, k) times factors (n,)."""
    return functools.reduce(jnp.add, [vectors * factor[:, None] for vectors, factor in terms])


def _product(mask: np.ndarray, values: Array) -> Array:
    """(m, k) a static mask (m, n) times values (n, k), as a primitive whose transpose is such a product too."""
    return mask_product_p.bind(values, mask=tuple(row.tobytes() for row in mask))


def _mask_array(mask: tuple[bytes, ...], values: Any) -> np.ndarray:
    """The mask (m, n) from the bytes of its rows, for values (..., n, k)."""
    return np.frombuffer(b"".join(mask), bool).reshape(len(mask), values.shape[-2])


def _mask_product(values: Array, *, mask: tuple[bytes, ...]) -> Array:
    """The product of a mask and a batch of values (..., n, k).

    It is computed as (values^T mask^T)^T, so that the batch axis stays the first axis. If the columns do not fill the
    vector registers of a CPU, the product takes up to twice as long; therefore columns of zeros are added.
    """
    count = len(mask)
    padding = -count % COLUMN_MULTIPLE if for_cpu() and count > NARROW else 0
    weights = jnp.asarray(np.pad(_mask_array(mask, values).T, ((0, 0), (0, padding))), values.dtype)
    return jnp.swapaxes(jnp.matmul(jnp.swapaxes(values, -1, -2), weights, precision=HIGHEST)[..., :count], -1, -2)


def _mask_product_in_numpy(values: np.ndarray, *, mask: tuple[bytes, ...]) -> np.ndarray:
    """The product in numpy."""
    return _mask_array(mask, values).astype(values.dtype) @ values


mask_product_p = Primitive("mask_product")
RULES["mask_product"] = _mask_product_in_numpy
define_eager(mask_product_p, _mask_product, ("mask",))
mask_product_p.def_abstract_eval(
    lambda values, *, mask: values.update(shape=(*values.shape[:-2], len(mask), values.shape[-1]))
)
# cotangents are stored; otherwise a kernel that reads them by columns would compute them again for each column
ad.deflinear2(
    mask_product_p, lambda cotangent, values, *, mask: [_product(_mask_array(mask, values.aval).T, stored(cotangent))]
)
batching.primitive_batchers[mask_product_p] = lambda values, dims, *, mask: (
    mask_product_p.bind(jnp.moveaxis(values[0], dims[0], 0), mask=mask),
    0,
)
mlir.register_lowering(mask_product_p, mlir.lower_fun(_mask_product, multiple_results=False))


def _masked_sum(mask: np.ndarray, values: Array) -> Array:
    """A mask (n, n) times values (..., n, k) as a sum, which XLA does not turn into a matrix product of all worlds."""
    weights = jnp.asarray(mask, values.dtype).reshape((1,) * (values.ndim - 2) + (*mask.shape, 1))
    return stored_on_gpu(jnp.sum(weights * values[..., None, :, :], axis=-2))


def _sums_by_shape(shapes: Sequence[Shape], values: Array, below: bool) -> Array:
    """(n, k) sums over descendants (`below`) or ancestors; trees of one shape are summed together."""
    parts = []
    for shape in shapes:
        members = pick(values, shape.nodes)
        sums = _node_by_node if shape.nodes.shape[1] <= UNROLLED_NODES else _by_mask
        parts.append(sums(shape.parent, members, below).reshape(-1, values.shape[1]))
    nodes = np.concatenate([shape.nodes.reshape(-1) for shape in shapes])
    return pick(jnp.concatenate(parts), np.argsort(nodes))


def _node_by_node(parent: np.ndarray, values: Array, below: bool) -> Array:
    """(count, size, k) sums of values (count, size, k) along trees of one shape, unrolled node by node."""
    sums = [values[:, node] for node in range(len(parent))]
    for node in reversed(range(len(parent))) if below else range(len(parent)):
        above = parent[node]
        if above >= 0:
            receives, gives = (above, node) if below else (node, above)
            sums[receives] = sums[receives] + sums[gives]
    return jnp.stack(sums, axis=1)


def _by_mask(parent: np.ndarray, values: Array, below: bool) -> Array:
    """(count, size, k) sums of values (count, size, k) along trees of one shape, by a product with its mask."""
    mask = ancestor_mask(parent)
    mask = mask.T if below else mask
    if for_gpu():
        return _masked_sum(mask, values)
    weights = jnp.asarray(mask.T, values.dtype)
    return jnp.swapaxes(jnp.matmul(jnp.swapaxes(values, 1, 2), weights, precision=HIGHEST), 1, 2)
