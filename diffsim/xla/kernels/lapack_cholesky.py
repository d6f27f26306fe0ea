"""Solves with sums of matrices on a CPU: LAPACK, called without what JAX puts around it.

JAX passes matrices on by columns and writes each factor once more, with zeros above the diagonal and nan where there is
none. For a matrix of 27 rows that takes as long as half of the factor. Here matrices stay by rows, which for symmetric
ones is the same, and only x can become nan. The right side is one more column of the matrix:

    [A   b]   [U^T 0] [U y]
    [b^T c] = [y^T d] [0 d],   y = U^-T b,

so that the factor brings the first of the two triangular solves with it (b is scaled to 1, as derivatives can be of any
size). The second, U x = y, is the first rows of

    [U y] [ x]   [ 0]
    [0 d] [-1] = [-d].
"""

import os
from collections.abc import Callable

import jax
import jax.numpy as jnp
import jaxlib.version
import numpy as np
from jaxlib import lapack

Array = jax.Array

# the corner c, larger than b A^-1 b can be for b of size 1
CORNER = 1e30
# fewest matrices of a share, and most shares
SMALLEST_SHARE, MOST_SHARES = 64, 8
# the first jaxlib whose calls share their matrices out
SHARED_OUT = (0, 10)
# flags of LAPACK, which sees our upper triangles by columns: as lower ones
LEFT, LOWER, TRANSPOSED, GENERAL = (np.uint8(ord(letter)) for letter in "LLTN")


def in_shares(function: Callable[..., Array], *batches: Array) -> Array:
    """A function of the matrices of batches (n, ...), one share of them for each core, side by side.

    One call of LAPACK takes its matrices one after another, while other cores wait.
    """
    count, size = _shares(), batches[-1].shape[0]
    if size % count or size < SMALLEST_SHARE * count:
        return function(*batches)
    shares = zip(*(jnp.split(batch, count) for batch in batches), strict=True)
    return jnp.concatenate([function(*share) for share in shares])


def _shares() -> int:
    """A power of two, as batches are; one where jaxlib shares the matrices of a call out, or cores are devices."""
    if jaxlib.version.__version_info__ >= SHARED_OUT:
        return 1
    devices = jax.local_device_count() if jax.default_backend() == "cpu" else 1
    cores = (os.cpu_count() or 1) // devices
    return 1 << (max(1, min(cores, MOST_SHARES)).bit_length() - 1)


def solve_bordered(matrix: Array, b: Array) -> Array:
    """x (..., n) with A x = b (..., n), for symmetric positive definite A in float32; nan where one is not."""
    n, size = b.shape[-1], jnp.max(jnp.abs(b), axis=-1, keepdims=True)
    size = jnp.where(size > 0, size, 1)
    b = b / size
    below = jnp.concatenate([jnp.zeros_like(b), jnp.full((*b.shape[:-1], 1), CORNER, b.dtype)], axis=-1)
    rows = jnp.concatenate([matrix, b[..., None]], axis=-1)
    upper, info = _factor(jnp.concatenate([rows, below[..., None, :]], axis=-2))
    right = jnp.concatenate([jnp.zeros((*b.shape, 1), b.dtype), -upper[..., n:, n:]], axis=-2)
    return jnp.where((info == 0)[..., None], size * _solve_upper(upper, right)[..., :n, 0], jnp.nan)


def _factor(matrix: Array) -> tuple[Array, Array]:
    """Upper factors (..., n, n), with what was there below their diagonals, and whether there are none (...)."""
    found = jax.ShapeDtypeStruct(matrix.shape, matrix.dtype), jax.ShapeDtypeStruct(matrix.shape[:-2], jnp.int32)
    name = lapack.prepare_lapack_call("potrf_ffi", matrix.dtype)
    upper, info = jax.ffi.ffi_call(name, found, input_output_aliases={0: 0})(matrix, uplo=LOWER)
    return upper, info


def _solve_upper(upper: Array, b: Array) -> Array:
    """x (..., n, 1) with U x = b, for upper factors U (..., n, n)."""
    name = lapack.prepare_lapack_call("trsm_ffi", b.dtype)
    call = jax.ffi.ffi_call(name, jax.ShapeDtypeStruct(b.shape, b.dtype), input_output_aliases={1: 0})
    return call(upper, b, side=LEFT, uplo=LOWER, trans_x=TRANSPOSED, diag=GENERAL)
