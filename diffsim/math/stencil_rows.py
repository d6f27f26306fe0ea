"""Rows that touch a few points each: the strain of an edge touches two, the contact of a tetrahedron four.

A row measures sum_k c_k . v_k, c_k a coefficient (d,) and v_k the velocity (d,) of its k-th point along the axes that
the point slides on. Of 900 points and 2,700 rows a matrix would have 7 million entries, which are zero but for 16,000.
Which points a row touches is known when tracing (edges), or only at run time (contacts); the product with the transpose
then gathers what all rows give to each point, or adds it.

A contact of articulated bodies touches two trees: a row has columns for the dofs of both (`PairRows`), where those of
all trees would be zero but for these. Segments of such rows, and of rows with columns of all dofs, are J.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.math.linalg import BlockColumns, BlockDiagonal, Blocks, PerSize, assemble, gram
from diffsim.math.vector import HIGHEST, total
from diffsim.xla.barriers import stored
from diffsim.xla.gather import add_products, add_rows, gather_rows, pick, pick_columns, pick_some, place, sum_gathered

# how many times as many numbers as there are may be read by points
WASTE = 3


@dataclasses.dataclass(frozen=True, eq=False)
class Fixed:
    """Numbers that are known when tracing, compared by value."""

    array: np.ndarray

    @functools.cached_property
    def _key(self) -> tuple:
        return self.array.shape, self.array.tobytes()

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Fixed) and self._key == other._key)

    def __hash__(self) -> int:
        return hash(self._key)


class Points(NamedTuple):
    """Points and the entries of a vector (size,) that are theirs: `dofs` (npoint, d), -1 where one has fewer than d."""

    size: int
    dofs: Fixed

    @property
    def number(self) -> int:
        """How many points there are."""
        return len(self.dofs.array)

    @property
    def blocks(self) -> Blocks:
        """A block for each point; blocks of as many entries follow one another."""
        dofs = self.dofs.array
        number = np.sum(dofs >= 0, axis=1)
        return Blocks(self.size, tuple(dofs[number == n, :n] for n in sorted(set(number.tolist()), reverse=True)))

    def components(self, vector: Array) -> list[Array]:
        """The d components (npoint,) of a vector (size,) along the axes of the points."""
        return [pick_some(vector, axis) for axis in self.dofs.array.T]

    def vector(self, components: Array) -> Array:
        """The vector (size,) with these components (d, npoint) of the points; zero elsewhere."""
        dofs = self.dofs.array.T.reshape(-1)
        exists = np.flatnonzero(dofs >= 0)
        return place(self.size, dofs[exists], pick(components.reshape(-1), exists))


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["coefficient", "index", "by_points"],
    meta_fields=["points", "touched"],
)
@dataclasses.dataclass(frozen=True, eq=False)
class StencilRows:
    """n constraints of `dim` rows each, component-major: `coefficient` (k, d, dim, n) of the k points of each.

    The points are `touched`, or where that is None `index` (k, n); ids below zero, and beyond all points, are none.
    """

    points: Points
    coefficient: Array
    touched: Fixed | None = None
    index: Array | None = None
    by_points: Array | None = None

    def readable_by_points(self) -> "StencilRows":
        """These rows with their coefficients stored a second time, in the order in which points read them."""
        places = None if self.touched is None else _places(self.touched, self.points.number)
        if places is None:
            return self
        points, axes, dim, count = self.coefficient.shape
        flat = jnp.moveaxis(self.coefficient, 0, 2).reshape(axes * dim, points * count)
        tables = [jnp.stack([gather_rows(row, place) for row in flat]) for place in places.entry]
        return dataclasses.replace(self, by_points=jnp.stack(tables).reshape(-1, axes, dim, self.points.number))

    @property
    def height(self) -> int:
        """Number of rows."""
        return self.coefficient.shape[2] * self.coefficient.shape[3]

    @property
    def ids(self) -> Array:
        """(k, n) the points of each constraint."""
        return self._beyond if self.touched is None else jnp.asarray(self.touched.array)

    def mul_vec(self, vector: Array) -> Array:
        """The product (dim * n,) with a vector (size,)."""
        of_points = self.points.components(vector)
        terms = [
            self.coefficient[k, axis] * self._gather(component, k)[None]
            for k in range(self.coefficient.shape[0])
            for axis, component in enumerate(of_points)
        ]
        return total(terms).reshape(-1)

    def mul_vec_t(self, vector: Array) -> Array:
        """The transposed matrix times a vector (dim * n,)."""
        force = vector.reshape(self.coefficient.shape[2:])
        if self.by_points is not None and self.touched is not None:
            places = _places(self.touched, self.points.number)
            assert places is not None
            # of each round and row the force that points read
            read = [[gather_rows(row, place) for row in stored(force)] for place in places.row]
            pairs = [(self.by_points[i, :, j], row[None]) for i, rows in enumerate(read) for j, row in enumerate(rows)]
            return self.points.vector(total([table * row for table, row in pairs]))
        terms = total([self.coefficient[:, :, row] * force[row][None, None] for row in range(force.shape[0])])
        return self.points.vector(self._sum(jnp.swapaxes(terms, 0, 1)))

    def gram(self, weigh: Callable[[Array], Array]) -> BlockDiagonal:
        """The blocks of points on the diagonal of J^T K J, where `weigh` takes y (dim, n, m) to K y."""
        points, axes, dim, count = self.coefficient.shape
        flat = jnp.moveaxis(self.coefficient.reshape(points * axes, dim, count), 0, -1)
        weighted = jnp.moveaxis(weigh(flat), -1, 0).reshape(self.coefficient.shape)
        blocks = total([self.coefficient[:, :, None, row] * weighted[:, None, :, row] for row in range(dim)])
        summed = self._sum(jnp.moveaxis(blocks, 0, 2).reshape(axes * axes, points, count))
        of_points = jnp.moveaxis(summed.reshape(axes, axes, -1), -1, 0)
        return BlockDiagonal(self.points.blocks, squares(self.points.blocks, of_points))

    @property
    def dense(self) -> Array:
        """The whole matrix (dim * n, size)."""
        return jax.vmap(self.mul_vec_t)(jnp.eye(self.height, dtype=self.coefficient.dtype))

    def _gather(self, component: Array, k: int) -> Array:
        """(n,) a component (npoint,) of the k-th point of each constraint."""
        if self.touched is not None:
            return gather_rows(component, self.touched.array[k])
        assert self.index is not None
        return component.at[self._beyond[k]].get(mode="fill", fill_value=0)

    def _sum(self, values: Array) -> Array:
        """(m, npoint) what values (m, k, n) of the points of all constraints add up to."""
        size, flat = self.points.number, values.reshape(len(values), -1)
        if self.touched is not None:
            ids = tuple(self.touched.array.ravel().tolist())
            return jnp.stack([sum_gathered(row, ids, size, 0) for row in flat])
        return jnp.zeros((len(values), size), values.dtype).at[:, self._beyond.reshape(-1)].add(flat, mode="drop")

    @property
    def _beyond(self) -> Array:
        """The traced ids, with those of no point beyond all."""
        assert self.index is not None
        return jnp.where(self.index < 0, self.points.number, self.index)


@functools.partial(jax.tree_util.register_dataclass, data_fields=["entries", "block"], meta_fields=["blocks"])
@dataclasses.dataclass(frozen=True, eq=False)
class PairRows:
    """n constraints of `dim` rows each that touch at most two blocks: `entries` (2, d, dim, n), component-major.

    `block` (2, n) are their numbers in `blocks.table`, whose length stands for none; d is the size of the largest.
    """

    blocks: Blocks
    entries: Array
    block: Array

    @property
    def height(self) -> int:
        """Number of rows."""
        return self.entries.shape[2] * self.entries.shape[3]

    @property
    def joins(self) -> Array:
        """(n,) whether a constraint touches two blocks."""
        return jnp.all(self.block < len(self.blocks.table), axis=0)

    def leading(self, dim: int) -> "PairRows":
        """The first rows of each constraint."""
        return dataclasses.replace(self, entries=self.entries[:, :, :dim])

    def read(self, table: Array) -> Array:
        """(2, ..., n) the rows of a table (count, ...) that belong to the blocks, zero where there is none."""
        return pick_columns(jnp.concatenate([table, jnp.zeros_like(table[:1])]), self.block)

    def mul_vec(self, vector: Array) -> Array:
        """The product (dim * n,) with a vector (size,)."""
        of_blocks = self.read(pick_some(vector, self.blocks.table))
        return jnp.sum(self.entries * of_blocks[:, :, None], axis=(0, 1)).reshape(-1)

    def mul_vec_t(self, vector: Array) -> Array:
        """The transposed matrix times a vector (dim * n,)."""
        force = vector.reshape(self.entries.shape[2:])
        parts = total([self.entries[:, :, row] * force[row][None, None] for row in range(len(force))])
        listed = jnp.moveaxis(parts, 1, 2).reshape(-1, parts.shape[1])
        sums = self.blocks.by_size(add_rows(listed, self.block.reshape(-1), len(self.blocks.table)))
        pairs = zip(sums, self.blocks.index, strict=True)
        return assemble(self.blocks, tuple(part[:, : index.shape[1]] for part, index in pairs))

    def gram(self, weigh: Callable[[Array], Array]) -> BlockDiagonal:
        """The blocks on the diagonal of J^T K J, where `weigh` takes y (dim, n, m) to K y."""
        _, size, dim, count = self.entries.shape
        weighted = jnp.moveaxis(weigh(jnp.moveaxis(self.entries.reshape(-1, dim, count), 0, -1)), -1, 0)
        left, right = (jnp.transpose(x.reshape(self.entries.shape), (0, 3, 2, 1)) for x in (self.entries, weighted))
        left, right = (x.reshape(2 * count, dim, size) for x in (left, right))
        sums = add_products(left, right, self.block.reshape(-1), len(self.blocks.table))
        return BlockDiagonal(self.blocks, squares(self.blocks, sums))

    @property
    def dense(self) -> Array:
        """The whole matrix (dim * n, size)."""
        table = self.blocks.table
        own = (self.block[..., None] == np.arange(len(table))[None, None]).astype(self.entries.dtype)
        # (count, d, dim, n), then the columns of the blocks in the order of the matrix
        columns = jnp.einsum("sdin,snb->bdin", self.entries, own, precision=HIGHEST).reshape(table.size, self.height)
        exists = np.flatnonzero(table >= 0)
        return place(self.blocks.size, table.reshape(-1)[exists], pick(columns, exists)).T


def squares(blocks: Blocks, listed: Array) -> PerSize:
    """The blocks of a matrix (count, size, size) from blocks as large as the largest (count, d, d)."""
    pairs = zip(blocks.by_size(listed), blocks.index, strict=True)
    return tuple(part[:, : index.shape[1], : index.shape[1]] for part, index in pairs)


class _Places(NamedTuple):
    """For each point (npoint,), in each round, one of its places (k * n,), -1 for none; and the row of that place."""

    entry: np.ndarray
    row: np.ndarray


@functools.cache
def _places(touched: Fixed, points: int) -> _Places | None:
    """Rounds as many as most rows touch one point; -1 where there are no more. None where most would be none."""
    ids = touched.array.reshape(-1)
    exists = np.flatnonzero(ids >= 0)
    order = exists[np.argsort(ids[exists], kind="stable")]
    count = np.bincount(ids[exists], minlength=points)
    rounds = int(np.max(count, initial=0))
    if not rounds or rounds * points > WASTE * len(ids):
        return None
    number = np.arange(rounds)[:, None]
    at = np.minimum((np.cumsum(count) - count)[None] + number, len(order) - 1)
    entry = np.where(number < count[None], order[at], -1)
    return _Places(entry, np.where(entry < 0, 0, entry % touched.array.shape[1]))


@functools.partial(jax.tree_util.register_dataclass, data_fields=["columns", "stencil"], meta_fields=[])
@dataclasses.dataclass(frozen=True, eq=False)
class Segment:
    """Rows that are a matrix by blocks, or touch points or two blocks, or a sum of these."""

    columns: BlockColumns | None
    stencil: StencilRows | PairRows | None = None

    @property
    def parts(self) -> list[BlockColumns | StencilRows | PairRows]:
        """The parts whose sum the rows are."""
        return [part for part in (self.columns, self.stencil) if part is not None]

    @property
    def height(self) -> int:
        """Number of rows."""
        return self.parts[0].height

    def mul_vec(self, vector: Array) -> Array:
        """The product (k,) with a vector (n,)."""
        return total([part.mul_vec(vector) for part in self.parts])

    def mul_vec_t(self, vector: Array) -> Array:
        """The transposed matrix times a vector (k,)."""
        return total([part.mul_vec_t(vector) for part in self.parts])

    def add_gram(self, matrix: BlockDiagonal, weight: Array) -> BlockDiagonal:
        """A matrix plus the blocks of J^T K J, of weights (k,) of rows of one dimension."""
        if self.columns is not None:
            weighted = tuple(part * weight[None, :, None] for part in self.columns.parts)
            matrix = matrix.plus(gram(self.columns, BlockColumns(self.columns.blocks, weighted)))
        if self.stencil is not None:
            matrix = matrix.plus(self.stencil.gram(lambda y: y * weight[None, :, None]))
        return matrix

    @property
    def dense(self) -> Array:
        """The whole matrix (k, n)."""
        return total([part.dense for part in self.parts])


@functools.partial(jax.tree_util.register_dataclass, data_fields=["segments"], meta_fields=["blocks"])
@dataclasses.dataclass(frozen=True, eq=False)
class SparseRows:
    """A Jacobian of many trees, or of points: segments one below the other, with what BlockColumns can do.

    `blocks` are those of M; the columns of a segment may leave out some of them.
    """

    blocks: Blocks
    segments: tuple[Segment, ...]

    def segment_at(self, row: int) -> tuple[Segment, int]:
        """The segment that a row belongs to, and its number there."""
        starts = np.cumsum([0, *(segment.height for segment in self.segments)])
        number = int(np.searchsorted(starts, row, side="right")) - 1
        return self.segments[number], row - int(starts[number])

    @property
    def of_points(self) -> bool:
        """Whether rows touch points of flexes."""
        return any(isinstance(segment.stencil, StencilRows) for segment in self.segments)

    @property
    def height(self) -> int:
        """Number of rows."""
        return sum(segment.height for segment in self.segments)

    @property
    def dtype(self) -> jnp.dtype:
        """The dtype of the entries."""
        return jax.tree.leaves(self.segments)[0].dtype

    def readable_by_columns(self) -> "SparseRows":
        """These rows, with stencils that points can read; blocks of many trees are not transposed."""
        readable = (
            dataclasses.replace(s, stencil=s.stencil.readable_by_points()) if isinstance(s.stencil, StencilRows) else s
            for s in self.segments
        )
        return dataclasses.replace(self, segments=tuple(readable))

    def mul_vec(self, vector: Array) -> Array:
        """The product (k,) with a vector (n,)."""
        return jnp.concatenate([segment.mul_vec(vector) for segment in self.segments])

    def mul_vec_t(self, vector: Array) -> Array:
        """The transposed matrix times a vector (k,)."""
        cuts = jnp.split(vector, np.cumsum([segment.height for segment in self.segments])[:-1])
        return total([segment.mul_vec_t(cut) for segment, cut in zip(self.segments, cuts, strict=True)])

    @property
    def dense(self) -> Array:
        """The whole matrix (k, n)."""
        return jnp.concatenate([segment.dense for segment in self.segments])
