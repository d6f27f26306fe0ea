"""Groups of indices that a matrix does not couple, as inertia couples only the dofs of one tree.

Blocks of one size are stored and factored together. With a single block everything is the dense algebra of linalg.py.
"""

import dataclasses
import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.math.linalg import cho_solve, cholesky
from diffsim.xla.pick import pick_some

Array = jax.Array
# one array (count, size, size) per block size
PerSize = tuple[Array, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class Blocks:
    """Groups of indices of a square matrix of `size` rows: `index` (count, size of block), one array per block size.

    Rows and columns that are in no block are zero.
    """

    size: int
    index: tuple[np.ndarray, ...]

    @functools.cached_property
    def _key(self) -> tuple:
        return (self.size, *((index.shape, index.tobytes()) for index in self.index))

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Blocks) and self._key == other._key)

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def single(self) -> bool:
        """Whether one block is the whole matrix."""
        return len(self.index) == 1 and self.index[0].shape == (1, self.size)

    @functools.cached_property
    def entry(self) -> np.ndarray:
        """(size, size) where each entry of the matrix stands among those of all blocks, counted from 1; 0 for none."""
        table, start = np.zeros((self.size, self.size), np.int32), 1
        for index in self.index:
            count, size = index.shape
            own = start + np.arange(count * size * size).reshape(count, size, size)
            table[index[:, :, None], index[:, None, :]] = own
            start += own.size
        return table

    @functools.cached_property
    def order(self) -> np.ndarray | None:
        """Where each index stands in the concatenation of all blocks, -1 for nowhere; None where it stands in place."""
        listed = np.concatenate([index.reshape(-1) for index in self.index])
        if np.array_equal(listed, np.arange(self.size)):
            return None
        place = np.full(self.size, -1)
        place[listed] = np.arange(len(listed))
        return place


def blocks_of(label: np.ndarray) -> Blocks:
    """Blocks of equal labels (n,); one block without indices if there are none."""
    groups = [np.flatnonzero(label == value) for value in np.unique(label)] or [np.zeros(0, int)]
    sizes = sorted({len(group) for group in groups}, reverse=True)
    return Blocks(len(label), tuple(np.stack([g for g in groups if len(g) == size]) for size in sizes))


def split(values: Array, index: np.ndarray) -> Array:
    """(..., count, size) of values (..., n): the entries of each block."""
    return values[..., _place(index)].reshape(*values.shape[:-1], *index.shape)


def _place(index: np.ndarray) -> slice | np.ndarray:
    """All indices of blocks of one size, as a slice where they follow one another."""
    flat = index.reshape(-1)
    start = int(flat[0]) if flat.size else 0
    follow = np.array_equal(flat, start + np.arange(flat.size))
    return slice(start, start + flat.size) if follow else flat


def assemble(blocks: Blocks, parts: tuple[Array, ...]) -> Array:
    """(n,) from the entries (count, size) of the blocks of each size."""
    flat = jnp.concatenate([part.reshape(-1) for part in parts])
    return flat if blocks.order is None else pick_some(flat, blocks.order)


def each(function: Callable[..., Array], *parts: Array | np.ndarray) -> Array:
    """A function of each block of one size; without a batch where there is one block."""
    if parts[0].shape[0] == 1:
        return function(*(part[0] for part in parts))[None]
    return jax.vmap(function)(*parts)


def block_factor(parts: PerSize) -> PerSize:
    """Lower Cholesky factors of positive definite blocks."""
    return tuple(cholesky(part) for part in parts)


def block_solve(blocks: Blocks, factor: PerSize, b: Array) -> Array:
    """x (n,) with matrix x = b."""
    if blocks.single:
        return cho_solve(factor[0][0], b)
    pairs = zip(factor, blocks.index, strict=True)
    return assemble(blocks, tuple(jax.vmap(cho_solve)(part, split(b, index)) for part, index in pairs))
