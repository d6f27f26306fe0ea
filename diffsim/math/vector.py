"""Vectors and matrices of 3, 4 or 6 elements, with every sum written out."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp

Array = jax.Array


def dot(a: Array, b: Array) -> Array:
    """Sum of products over the last axis, a_i b_i."""
    total = a[..., 0] * b[..., 0]
    for i in range(1, a.shape[-1]):
        total = total + a[..., i] * b[..., i]
    return total


def scale(v: Array, factor: Array) -> Array:
    """v times a scalar per vector: `factor` has the shape of v without its last axis."""
    return v * factor[..., None]


def pack(components: Sequence[Array]) -> Array:
    """Components as the last axis of one array."""
    return jnp.stack(components, axis=-1)


def cross(a: Array, b: Array) -> Array:
    """Cross product a x b of 3-vectors."""
    return pack(
        [
            a[..., 1] * b[..., 2] - a[..., 2] * b[..., 1],
            a[..., 2] * b[..., 0] - a[..., 0] * b[..., 2],
            a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0],
        ]
    )


def mul_vec(matrix: Array, v: Array) -> Array:
    """Matrix (..., m, n) times vector (..., n), n small."""
    return dot(matrix, v[..., None, :])


def mul_vec_t(matrix: Array, v: Array) -> Array:
    """Transposed matrix (..., n, m) times vector (..., n), n small: takes world vectors to a local frame."""
    total = matrix[..., 0, :] * v[..., 0, None]
    for i in range(1, matrix.shape[-2]):
        total = total + matrix[..., i, :] * v[..., i, None]
    return total


def mul_mat(a: Array, b: Array) -> Array:
    """Product of small matrices (..., l, m) (..., m, n)."""
    total = a[..., :, 0, None] * b[..., None, 0, :]
    for i in range(1, a.shape[-1]):
        total = total + a[..., :, i, None] * b[..., None, i, :]
    return total


def transpose(matrix: Array) -> Array:
    """Last two axes exchanged."""
    return jnp.swapaxes(matrix, -1, -2)


def outer(a: Array, b: Array) -> Array:
    """a_i b_j."""
    return a[..., :, None] * b[..., None, :]
