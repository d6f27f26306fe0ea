"""M + diagonal + J^T K J of many small matrices: a Pallas kernel for CUDA (Triton).

A program takes one world. It reads M once, then rows of J, some at a time, and adds their product with K J, which is
made of the same rows and stays in registers. Of the sum, which is symmetric, it writes what lies on and above the
diagonal, row after row; that is where triton_cholesky.py reads it.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from diffsim.xla.kernels.triton_cholesky import offset, packed_size

Array = jax.Array

# the smallest matrix that Triton multiplies, and the most rows of J that are added at once
SMALLEST, AT_ONCE = 16, 32
# of a product A^T B, and full precision
TRANSPOSED, HIGHEST = (((0,), (0,)), ((), ())), jax.lax.Precision.HIGHEST
# entries of the sum that one warp of 32 threads takes
WARP_TILE = 1024


class _Group(NamedTuple):
    """Rows of J from `start` on: `number` of constraints of `dim` rows each, first components first."""

    start: int
    dim: int
    number: int

    @property
    def height(self) -> int:
        """Number of rows."""
        return self.dim * self.number


def _groups(weights: tuple[Any, ...]) -> list[_Group]:
    """Where the rows of each weight (batch, dim, count, dim) are."""
    groups, start = [], 0
    for weight in weights:
        groups.append(_Group(start, weight.shape[1], weight.shape[2]))
        start += groups[-1].height
    return groups


def _power(number: int) -> int:
    """The next power of two, at least `SMALLEST`."""
    return max(1 << (number - 1).bit_length(), SMALLEST)


def _iota(rows: int, columns: int, axis: int) -> Array:
    return jax.lax.broadcasted_iota(jnp.int32, (rows, columns), axis)


def _add(group: _Group, refs: tuple[Any, Any], total: Array) -> Array:
    """The sum with J^T K J of a group; `refs` are J (batch, rows, n) and K (batch, dim, count, dim)."""
    (j_ref, k_ref), world, n = refs, pl.program_id(0), refs[0].shape[-1]
    height = min(_power(group.height), AT_ONCE)
    tall, column = (height, total.shape[1]), _iota(height, total.shape[1], 1)

    def rows(index: Array, is_one: Array) -> Array:
        place = jnp.broadcast_to(group.start + index, tall)
        return triton.load(j_ref.at[world, place, column], mask=is_one & (column < n), other=0.0)

    def some(step: Array, total: Array) -> Array:
        row = step * height + _iota(height, 1, 0)
        is_one = row < group.height
        component, contact = row // group.number, row % group.number
        weighted = jnp.zeros(tall, total.dtype)
        for other in range(group.dim):
            # K of this row and that of another component of the same constraint
            weight = triton.load(k_ref.at[world, component, contact, other], mask=is_one, other=0.0)
            weighted += weight * rows(other * group.number + contact, is_one)
        return total + jax.lax.dot_general(rows(row, is_one), weighted, TRANSPOSED, precision=HIGHEST)

    return jax.lax.fori_loop(0, pl.cdiv(group.height, height), some, total)


def _gram_kernel(m_ref: Any, d_ref: Any, j_ref: Any, *refs: Any) -> None:
    """Writes the upper triangles (batch, n (n + 1) / 2)."""
    *weights, out_ref = refs
    world, n = pl.program_id(0), m_ref.shape[-1]
    size = _power(n)
    row, column = (_iota(size, size, axis) for axis in (0, 1))
    is_upper = (row <= column) & (column < n)
    total = triton.load(m_ref.at[world, row, column], mask=is_upper, other=0.0)
    total += triton.load(d_ref.at[world, row], mask=is_upper & (row == column), other=0.0)
    for group, k_ref in zip(_groups(tuple(weights)), weights, strict=True):
        total = _add(group, (j_ref, k_ref), total)
    # the interpreter puts back what was there where the mask is false: nowhere
    place = jnp.where(is_upper, offset(n, row) + column, out_ref.shape[-1])
    triton.store(out_ref.at[world, place], total, mask=is_upper)


@functools.partial(jax.jit, static_argnames="interpret")
def gram(matrix: Array, diagonal: Array, jacobian: Array, *weights: Array, interpret: bool = False) -> Array:
    """M + diagonal + J^T K J, its upper triangles (batch, n (n + 1) / 2) by rows.

    Args:
      matrix: M (batch, n, n), symmetric.
      diagonal: (batch, n).
      jacobian: J (batch, rows, n).
      weights: K (batch, dim, count, dim) of all rows, each for `count` constraints of `dim` rows.
      interpret: runs the kernel without a GPU.
    """
    batch, n, _ = matrix.shape
    out = jax.ShapeDtypeStruct((batch, packed_size(n)), matrix.dtype)
    params = triton.CompilerParams(num_warps=max(_power(n) ** 2 // WARP_TILE, 1), num_stages=1)
    call = pl.pallas_call(_gram_kernel, out_shape=out, grid=(batch,), compiler_params=params, interpret=interpret)
    return call(matrix, diagonal, jacobian, *weights)
