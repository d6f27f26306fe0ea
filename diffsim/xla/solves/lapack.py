"""Cholesky solves by LAPACK on a CPU, of sums of matrices and with a bordered matrix.

LAPACK is called directly, without the operations that JAX adds. JAX transposes the matrices to columns, and writes each
factor again, with zeros above the diagonal, or with NaN if there is no factor. For a matrix of 27 rows, these
operations take half as long as the factor. Here matrices are stored by rows, which makes no difference for symmetric
matrices, and only x can become NaN. The right-hand side is one more column and row of the matrix:

    [A   b]   [U^T 0] [U y]
    [b^T c] = [y^T d] [0 d],   y = U^-T b,

so that the factorization also does the first of the two triangular solves. (b is scaled to size 1, because derivatives
can have any size.) The second one, U x = y, is contained in the first rows of

    [U y] [ x]   [ 0]
    [0 d] [-1] = [-d].

In float32, a sum of matrices can lose its smallest eigenvalues to rounding. For example, the inertia of a chain of
forty links has eigenvalues a million times smaller than its largest, and stiff constraints between its ends increase
the largest. If the sum then has no factor, it is solved again with an addition to its diagonal, about as large as the
rounding error.
"""

import os
from collections.abc import Callable

import jax
import jax.numpy as jnp
import jaxlib.version
import numpy as np
from jaxlib import lapack

from diffsim.xla.loops import cond

Array = jax.Array

# the corner c of the bordered matrix, larger than b A^-1 b can be for b of size 1
CORNER = 1e30
# the smallest number of matrices for one core; distributing fewer costs more than it saves
SMALLEST_SHARE = 64
# the largest number of shares, each of which is a separate call in the program
MOST_SHARES = 8
# the first version of jaxlib whose LAPACK calls distribute their matrices over cores
DISTRIBUTED_SINCE = (0, 10)
# flags of LAPACK. It expects matrices by columns, so our upper triangles are lower triangles for it.
LEFT = np.uint8(ord("L"))
LOWER = np.uint8(ord("L"))
TRANSPOSED = np.uint8(ord("T"))
GENERAL = np.uint8(ord("N"))


def in_shares(function: Callable[..., Array], *batches: Array) -> Array:
    """The results of a function of batches (n, ...), computed in one share per core, side by side.

    A call of LAPACK handles its matrices one after another, while other cores wait. Newer versions of jaxlib distribute
    them over the cores themselves.
    """
    count = 1 if jaxlib.version.__version_info__ >= DISTRIBUTED_SINCE else cores()
    size = batches[-1].shape[0]
    if size % count or size < SMALLEST_SHARE * count:
        return function(*batches)
    shares = zip(*(jnp.split(batch, count) for batch in batches), strict=True)
    return jnp.concatenate([function(*share) for share in shares])


def cores() -> int:
    """The number of cores that share the work of one device: a power of two, and at most `MOST_SHARES`."""
    devices = jax.local_device_count() if jax.default_backend() == "cpu" else 1
    cores = (os.cpu_count() or 1) // devices
    return 1 << (max(1, min(cores, MOST_SHARES)).bit_length() - 1)


def solve_rounded(summed: Callable[[], Array], b: Array) -> Array:
    """x (..., n) with A x = b (..., n), where `summed()` returns A, a sum of float32 matrices.

    x is NaN if A is far from positive definite.
    """
    x, lost = solve_bordered(summed(), b)

    def raised() -> Array:
        # the sum is computed again, which is cheaper than storing it for this rare case
        total = summed()
        more = lost_to_rounding(b.shape[-1]) * jnp.eye(b.shape[-1], dtype=total.dtype)
        again, _ = solve_bordered(total + total * jnp.broadcast_to(more, total.shape), b)
        return jnp.where(lost[..., None], again, x)

    return cond(jnp.any(lost), raised, lambda: x)


def lost_to_rounding(n: int) -> float:
    """A bound for the rounding error of a pivot of n x n float32 matrices, relative to the diagonal entry."""
    return float(2 * np.sqrt(n) * np.finfo(np.float32).eps)


def solve_bordered(matrix: Array, b: Array) -> tuple[Array, Array]:
    """The solution of A x = b (..., n), for symmetric positive definite A in float32, by a bordered matrix.

    Returns:
      x (..., n), NaN if A is not positive definite; and (...) bool, whether A is not positive definite although b is
        finite.
    """
    n = b.shape[-1]
    size = jnp.max(jnp.abs(b), axis=-1, keepdims=True)
    size = jnp.where(size > 0, size, 1)
    b = b / size
    batch = [(0, 0)] * (b.ndim - 1)
    column = jnp.pad(b, [*batch, (0, 1)], constant_values=CORNER)[..., None]
    bordered = jnp.pad(matrix, [*batch, (0, 1), (0, 1)])
    # `where` makes one pass over memory; concatenating b and a last row would make three
    is_last = np.arange(n + 1).reshape(*[1] * b.ndim, -1) == n
    upper, info = _factor(jnp.where(is_last, column, bordered))
    right = jnp.concatenate([jnp.zeros((*b.shape, 1), b.dtype), -upper[..., n:, n:]], axis=-2)
    x = jnp.where((info == 0)[..., None], size * _solve_upper(upper, right)[..., :n, 0], jnp.nan)
    return x, (info != 0) & jnp.isfinite(size[..., 0])


def _factor(matrix: Array) -> tuple[Array, Array]:
    """Upper factors (..., n, n), and LAPACK's info (...), which is not 0 for a matrix that is not positive definite.

    Below the diagonal, LAPACK leaves the entries of the matrix.
    """
    outputs = jax.ShapeDtypeStruct(matrix.shape, matrix.dtype), jax.ShapeDtypeStruct(matrix.shape[:-2], jnp.int32)
    name = lapack.prepare_lapack_call("potrf_ffi", matrix.dtype)
    upper, info = jax.ffi.ffi_call(name, outputs, input_output_aliases={0: 0})(matrix, uplo=LOWER)
    return upper, info


def _solve_upper(upper: Array, b: Array) -> Array:
    """x (..., n, 1) with U x = b, for upper factors U (..., n, n) and b (..., n, 1)."""
    name = lapack.prepare_lapack_call("trsm_ffi", b.dtype)
    call = jax.ffi.ffi_call(name, jax.ShapeDtypeStruct(b.shape, b.dtype), input_output_aliases={1: 0})
    return call(upper, b, side=LEFT, uplo=LOWER, trans_x=TRANSPOSED, diag=GENERAL)
