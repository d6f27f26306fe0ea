"""Sparse rows of a Jacobian: rows that touch a few points of a flex, or two kinematic trees.

The strain of an edge touches two points of a flex, and the contact of a tetrahedron touches four. Such a row
(`StencilRows`) is sum_k c_k . v_k, where v_k (d,) is the velocity of its k-th point along the axes that the point
slides on, and c_k (d,) are coefficients. For 900 points and 2,700 rows a dense matrix would have 7 million entries, of
which 16,000 are nonzero. The points of a row are known at trace time (edges) or only at run time (contacts). In the
first case the product with the transpose gathers the terms of each point, in the second it scatters them.

A contact of articulated bodies touches two trees. Such a row (`PairRows`) has columns only for the dofs of these two
trees. The whole Jacobian (`SparseRows`) is made of segments: sparse rows, and rows with columns for all dofs.
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

# how many numbers `readable_by_points` may store at most, as a multiple of the number of coefficients. If one point is
# in many more rows than the others, the table of rounds is mostly padding.
WASTE = 3


@dataclasses.dataclass(frozen=True, eq=False)
class Fixed:
    """A static array that is hashed and compared by value."""

    array: np.ndarray

    @functools.cached_property
    def _key(self) -> tuple:
        """What equality and the hash compare."""
        return self.array.shape, self.array.tobytes()

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Fixed) and self._key == other._key)

    def __hash__(self) -> int:
        return hash(self._key)


class Points(NamedTuple):
    """Which entries of a vector belong to each point.

    Attributes:
      size: number of entries of the vector.
      dofs: (npoint, d) the entries of each point; -1 if it has fewer than d.
    """

    size: int
    dofs: Fixed

    @property
    def number(self) -> int:
        """Number of points."""
        return len(self.dofs.array)

    @property
    def blocks(self) -> Blocks:
        """A block for each point; blocks of equal size are consecutive."""
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
    """n constraints of `dim` rows, each of which touches k points.

    The first rows of all constraints come first, then all second rows, and so on. An id below zero, or beyond all
    points, stands for no point.

    Attributes:
      points: the entries of each point in a vector of dofs.
      coefficient: (k, d, dim, n) the coefficients of each constraint.
      touched: (k, n) ids of the points of each constraint, if they are static; else None.
      index: (k, n) the same ids if they are known only at run time; else None.
      by_points: (rounds, d, dim, npoint) the coefficients in the order in which points read them
        (`readable_by_points`); None if they are not stored in this order.
    """

    points: Points
    coefficient: Array
    touched: Fixed | None = None
    index: Array | None = None
    by_points: Array | None = None

    def readable_by_points(self) -> "StencilRows":
        """These rows with a second copy of their coefficients, in the order in which points read them.

        Round i of the copy holds, for each point, the coefficients of the i-th constraint that touches it. The product
        with the transpose is then a sum over rounds, without scatters.
        """
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
            # for each round and row, the force that each point reads
            read = [[gather_rows(row, place) for row in stored(force)] for place in places.row]
            pairs = [(self.by_points[i, :, j], row[None]) for i, rows in enumerate(read) for j, row in enumerate(rows)]
            return self.points.vector(total([table * row for table, row in pairs]))
        terms = total([self.coefficient[:, :, row] * force[row][None, None] for row in range(force.shape[0])])
        return self.points.vector(self._sum(jnp.swapaxes(terms, 0, 1)))

    def gram(self, weigh: Callable[[Array], Array]) -> BlockDiagonal:
        """The diagonal blocks of J^T K J, one for each point, where `weigh` maps y (dim, n, m) to K y."""
        points, axes, dim, count = self.coefficient.shape
        # the block c_k^T K c_k of the k-th point of each constraint, then the sum over all constraints of each point
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
        """(n,) the values of a component (npoint,) at the k-th point of each constraint."""
        if self.touched is not None:
            return gather_rows(component, self.touched.array[k])
        assert self.index is not None
        return component.at[self._beyond[k]].get(mode="fill", fill_value=0)

    def _sum(self, values: Array) -> Array:
        """(m, npoint) for each point, the sum of values (m, k, n) over all constraints that touch it."""
        size = self.points.number
        flat = values.reshape(len(values), -1)
        if self.touched is not None:
            ids = tuple(self.touched.array.ravel().tolist())
            return jnp.stack([sum_gathered(row, ids, size, 0) for row in flat])
        return jnp.zeros((len(values), size), values.dtype).at[:, self._beyond.reshape(-1)].add(flat, mode="drop")

    @property
    def _beyond(self) -> Array:
        """The traced ids, with npoint instead of ids below zero: gathers and scatters drop ids beyond the last point.

        They would count negative ids from the end.
        """
        assert self.index is not None
        return jnp.where(self.index < 0, self.points.number, self.index)


@functools.partial(jax.tree_util.register_dataclass, data_fields=["entries", "block"], meta_fields=["blocks"])
@dataclasses.dataclass(frozen=True, eq=False)
class PairRows:
    """n constraints of `dim` rows, each of which touches at most two blocks.

    The first rows of all constraints come first, then all second rows, and so on.

    Attributes:
      blocks: the blocks of all dofs.
      entries: (2, d, dim, n) entries in the columns of the two blocks; d is the size of the largest block.
      block: (2, n) numbers of the two blocks in `blocks.table`; the length of the table stands for no block.
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
        """The first `dim` rows of each constraint."""
        return dataclasses.replace(self, entries=self.entries[:, :, :dim])

    def read(self, table: Array) -> Array:
        """(2, ..., n) the rows of a table (count, ...) of the two blocks of each constraint, zero for no block."""
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
        """The diagonal blocks of J^T K J, where `weigh` maps y (dim, n, m) to K y."""
        _, size, dim, count = self.entries.shape
        weighted = jnp.moveaxis(weigh(jnp.moveaxis(self.entries.reshape(-1, dim, count), 0, -1)), -1, 0)

        def listed(entries: Array) -> Array:
            """(2 n, dim, d) the entries of each constraint in each of its two blocks."""
            return jnp.transpose(entries.reshape(self.entries.shape), (0, 3, 2, 1)).reshape(2 * count, dim, size)

        # each constraint adds (its entries)^T (its weighted entries) to both of its blocks
        sums = add_products(listed(self.entries), listed(weighted), self.block.reshape(-1), len(self.blocks.table))
        return BlockDiagonal(self.blocks, squares(self.blocks, sums))

    @property
    def dense(self) -> Array:
        """The whole matrix (dim * n, size)."""
        table = self.blocks.table
        # a product with the one-hot numbers of blocks moves the entries to (count, d, dim, n); then the columns go to
        # their dofs
        one_hot = (self.block[..., None] == np.arange(len(table))[None, None]).astype(self.entries.dtype)
        columns = jnp.einsum("sdin,snb->bdin", self.entries, one_hot, precision=HIGHEST)
        columns = columns.reshape(table.size, self.height)
        exists = np.flatnonzero(table >= 0)
        return place(self.blocks.size, table.reshape(-1)[exists], pick(columns, exists)).T


def squares(blocks: Blocks, listed: Array) -> PerSize:
    """Cuts blocks that are padded to the size d of the largest, (count, d, d), to their own sizes."""
    pairs = zip(blocks.by_size(listed), blocks.index, strict=True)
    return tuple(part[:, : index.shape[1], : index.shape[1]] for part, index in pairs)


class _Places(NamedTuple):
    """Where each point occurs in the list (k * n,) of the points of all constraints.

    Attributes:
      entry: (rounds, npoint) in row i, the place of the i-th occurrence of each point; -1 if it occurs less often.
      row: (rounds, npoint) the constraint of that occurrence; 0 if there is none.
    """

    entry: np.ndarray
    row: np.ndarray


@functools.cache
def _places(touched: Fixed, points: int) -> _Places | None:
    """The occurrences of each point; the number of rounds is the largest number of constraints that touch one point.

    None if the table would be mostly padding (`WASTE`).
    """
    ids = touched.array.reshape(-1)
    exists = np.flatnonzero(ids >= 0)
    order = exists[np.argsort(ids[exists], kind="stable")]
    count = np.bincount(ids[exists], minlength=points)
    rounds = int(np.max(count, initial=0))
    if not rounds or rounds * points > WASTE * len(ids):
        return None
    number = np.arange(rounds)[:, None]
    # `order` lists the occurrences of point 0, then the occurrences of point 1, and so on
    first = np.cumsum(count) - count
    at = np.minimum(first[None] + number, len(order) - 1)
    entry = np.where(number < count[None], order[at], -1)
    return _Places(entry=entry, row=np.where(entry < 0, 0, entry % touched.array.shape[1]))


@functools.partial(jax.tree_util.register_dataclass, data_fields=["columns", "stencil"], meta_fields=[])
@dataclasses.dataclass(frozen=True, eq=False)
class Segment:
    """Consecutive rows of a Jacobian: the sum of `columns` and `stencil`, of which one may be None."""

    columns: BlockColumns | None
    stencil: StencilRows | PairRows | None = None

    @property
    def parts(self) -> list[BlockColumns | StencilRows | PairRows]:
        """The matrices whose sum these rows are."""
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
        """A matrix plus the diagonal blocks of J^T K J, where K is diagonal with the weights (k,)."""
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
    """A Jacobian of many trees, or of points of flexes: segments stacked vertically, with the methods of BlockColumns.

    Attributes:
      blocks: the blocks of the inertia matrix M; the columns of a segment may leave out some of them.
      segments: consecutive rows.
    """

    blocks: Blocks
    segments: tuple[Segment, ...]

    def segment_at(self, row: int) -> tuple[Segment, int]:
        """The segment that a row belongs to, and the number of the row in it."""
        starts = np.cumsum([0, *(segment.height for segment in self.segments)])
        number = int(np.searchsorted(starts, row, side="right")) - 1
        return self.segments[number], row - int(starts[number])

    @property
    def of_points(self) -> bool:
        """Whether any rows touch points of flexes."""
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
        """These rows, with coefficients in the order in which points read them; blocks of trees are not transposed."""
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
