"""Cholesky factors and their solves: one kernel on CUDA for small matrices in float32, LAPACK elsewhere.

A library call ends a CUDA graph and waits for the host; a step of a humanoid would spend most of its time so.
`factor`, `solve` and `solve_sum`, which is both at once where a factor is needed once, are primitives of JAX, so that
the kernel is traced only where a program is compiled for CUDA, and a batch (`vmap`) is always an array of matrices,
whatever the order of maps. Derivatives are made from `factor` and `solve`.
"""

import os
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from diffsim.kernels.lapack_cholesky import in_shares, solve_bordered

Array = jax.Array
# of a primitive: what it computes, or how it is transformed
Rule = Callable[..., Any]

# rows of the largest matrix that is a kernel's
LARGEST = 128
# numbers that a kernel can count
MOST = 2**31 - 1


def plain_factor(matrix: Array) -> Array:
    """Lower factors L (..., n, n) of symmetric positive definite matrices, nan where one is not: the definition."""
    return jax.lax.linalg.cholesky(matrix, symmetrize_input=False)


def plain_solve(lower: Array, b: Array) -> Array:
    """x (..., n, k) with L L^T x = b, of lower factors (..., n, n) and b (..., n, k): the definition."""
    half = jax.lax.linalg.triangular_solve(lower, b, left_side=True, lower=True)
    return jax.lax.linalg.triangular_solve(lower, half, left_side=True, lower=True, transpose_a=True)


def plain_sum(*terms: Array) -> Array:
    """The sum of matrices (..., n, n) and, the last of the terms, of a diagonal (..., n)."""
    first, *others, diagonal = terms
    total = first + jnp.broadcast_to(jnp.eye(first.shape[-1], dtype=first.dtype), first.shape) * diagonal[..., None, :]
    for other in others:
        total = total + other
    return total


def plain_solve_sum(*arguments: Array) -> Array:
    """x (..., n) with `plain_sum` of the terms times x = b, the last argument (..., n): the definition."""
    *terms, b = arguments
    return plain_solve(plain_factor(plain_sum(*terms)), b[..., None])[..., 0]


def is_small(matrix: Array) -> bool:
    """Whether matrices (..., n, n) are of the type and size that kernels take, and those are not switched off."""
    on = os.environ.get("DIFFSIM_KERNELS", "1") != "0"
    return on and matrix.dtype == jnp.float32 and 0 < matrix.shape[-1] <= LARGEST


def factor(matrix: Array) -> Array:
    """`plain_factor`, by the kernel on CUDA."""
    return factor_p.bind(matrix) if is_small(matrix) else plain_factor(matrix)


def solve(lower: Array, b: Array) -> Array:
    """`plain_solve`, by the kernel on CUDA."""
    return solve_p.bind(lower, b) if is_small(lower) else plain_solve(lower, b)


def solve_sum(matrices: Sequence[Array], diagonal: Array, b: Array) -> Array:
    """`plain_solve_sum`, by one kernel on CUDA: neither the sum nor its factor is seen by anyone else."""
    solve_terms = solve_sum_p.bind if is_small(matrices[0]) else _solve_large_sum
    return solve_terms(*matrices, diagonal, b)


def _factor_jvp(primals: Sequence[Array], tangents: Sequence[Any]) -> tuple[Array, Array]:
    """dL = L Phi(L^-1 dA L^-T), Phi the lower triangle with half of the diagonal (Murray 2016, sec. 3.1)."""
    lower = factor_p.bind(*primals)
    half = jax.lax.linalg.triangular_solve(lower, tangents[0], left_side=True, lower=True)
    inner = jax.lax.linalg.triangular_solve(lower, half, left_side=False, lower=True, transpose_a=True)
    diagonal = jnp.broadcast_to(jnp.eye(inner.shape[-1], dtype=inner.dtype), inner.shape)
    return lower, _product(lower, jnp.tril(inner) - 0.5 * inner * diagonal)


def _solve_jvp(primals: Sequence[Array], tangents: Sequence[Any]) -> tuple[Array, Array]:
    """dx = A^-1 (db - dA x), dA = dL L^T + L dL^T."""
    (lower, _), (change, push) = primals, tangents
    x, push = solve_p.bind(*primals), ad.instantiate_zeros(push)
    if type(change) is not ad.Zero:
        push = push - _product(change, _product(lower.mT, x)) - _product(lower, _product(change.mT, x))
    return x, solve_p.bind(lower, push)


def _solve_sum_jvp(primals: Sequence[Array], tangents: Sequence[Any]) -> tuple[Array, Array]:
    """dx = A^-1 (db - dA x), by one factor."""
    (*terms, b), (*changes, push) = primals, [ad.instantiate_zeros(tangent) for tangent in tangents]
    lower = factor(plain_sum(*terms))
    x = solve(lower, b[..., None])
    return x[..., 0], solve(lower, push[..., None] - _product(plain_sum(*changes), x))[..., 0]


# what is no kernel's has the same derivative
_solve_large_sum = jax.custom_jvp(plain_solve_sum)
_solve_large_sum.defjvp(_solve_sum_jvp)


def _product(a: Array, b: Array) -> Array:
    return jnp.matmul(a, b, precision=jax.lax.Precision.HIGHEST)


def _factor_kernel(matrix: Array) -> Array:
    kernels, flat = _triton(), matrix.reshape(-1, *matrix.shape[-2:])
    if kernels is None or flat.size > MOST:
        return plain_factor(matrix)
    return kernels.factor(flat).reshape(matrix.shape)


def _solve_kernel(lower: Array, b: Array) -> Array:
    kernels, flat = _triton(), [x.reshape(-1, *x.shape[-2:]) for x in (lower, b)]
    if kernels is None or max(x.size for x in flat) > MOST:
        return plain_solve(lower, b)
    return kernels.solve(*flat).reshape(b.shape)


def _solve_sum_kernel(*arguments: Array) -> Array:
    kernels, n = _triton(), arguments[-1].shape[-1]
    if kernels is None or arguments[0].size > MOST:
        return plain_solve_sum(*arguments)
    *matrices, diagonal, b = arguments
    flat = *(x.reshape(-1, n, n) for x in matrices), *(x.reshape(-1, n) for x in (diagonal, b))
    return kernels.solve_sum(*flat).reshape(b.shape)


def _solve_sum_lapack(*arguments: Array) -> Array:
    """The diagonal, where limits and dry friction are, by a product: XLA would compute what they come from, their
    impedance too, again for each entry of the sum.
    """
    *matrices, diagonal, b = arguments
    if b.ndim == 1:
        return solve_bordered(plain_sum(*matrices, diagonal), b)
    alike = _product(diagonal, jnp.eye(diagonal.shape[-1], dtype=diagonal.dtype))
    return in_shares(lambda *terms: solve_bordered(plain_sum(*terms[:-1]), terms[-1]), *matrices, alike, b)


def _triton() -> Any:
    """The kernels; None where this jax has no Triton."""
    try:
        from diffsim.kernels import triton_cholesky
    except ImportError:
        return None
    return triton_cholesky


def _batch_factor(arguments: Sequence[Array], dims: Sequence[int]) -> tuple[Array, int]:
    return factor_p.bind(jnp.moveaxis(arguments[0], dims[0], 0)), 0


def _batch_solve(arguments: Sequence[Array], dims: Sequence[int | None]) -> tuple[Array, int]:
    """A batch of right sides of the same matrices is more columns."""
    (lower, b), (of_lower, of_b) = arguments, dims
    if of_lower is None and of_b is not None:
        columns = jnp.moveaxis(b, of_b, -1)
        found = solve_p.bind(lower, columns.reshape(*columns.shape[:-2], -1))
        return found.reshape(columns.shape), found.ndim
    lower = jnp.moveaxis(lower, of_lower or 0, 0)
    b = jnp.broadcast_to(b, (lower.shape[0], *b.shape)) if of_b is None else jnp.moveaxis(b, of_b, 0)
    return solve_p.bind(lower, b), 0


def _batch_solve_sum(arguments: Sequence[Array], dims: Sequence[int | None]) -> tuple[Array, int]:
    """A batch of right sides of the same terms is solved by one factor."""
    (*terms, b), (*of_terms, of_b) = arguments, dims
    if all(dim is None for dim in of_terms):
        return solve_p.bind(factor_p.bind(plain_sum(*terms)), jnp.moveaxis(b, of_b or 0, -1)), b.ndim - 1
    size = next(x.shape[dim] for x, dim in zip(arguments, dims, strict=True) if dim is not None)
    pairs = zip(arguments, dims, strict=True)
    whole = (jnp.broadcast_to(x, (size, *x.shape)) if dim is None else jnp.moveaxis(x, dim, 0) for x, dim in pairs)
    return solve_sum_p.bind(*whole), 0


def _transpose_solve(cotangent: Array, lower: Array, b: Any) -> tuple[None, Array]:
    """A is symmetric; the solve is linear in b only."""
    return None, solve_p.bind(lower, cotangent)


def _transpose_solve_sum(cotangent: Array, *arguments: Any) -> list[Array | None]:
    """The same solve; linear in b only."""
    terms = arguments[:-1]
    return [*(None for _ in terms), solve_sum_p.bind(*terms, ad.instantiate_zeros(cotangent))]


def _primitive(name: str, plain: Rule, kernel: Rule, jvp: Rule, batch: Rule) -> Primitive:
    """A function of arrays whose result has the shape of its last argument."""
    made = Primitive(name)
    made.def_impl(jax.jit(made.bind))
    made.def_abstract_eval(lambda *arguments: ShapedArray(arguments[-1].shape, arguments[-1].dtype))
    ad.primitive_jvps[made], batching.primitive_batchers[made] = jvp, batch
    mlir.register_lowering(made, mlir.lower_fun(plain, multiple_results=False))
    mlir.register_lowering(made, mlir.lower_fun(kernel, multiple_results=False), platform="cuda")
    return made


factor_p = _primitive("small_cholesky", plain_factor, _factor_kernel, _factor_jvp, _batch_factor)
solve_p = _primitive("small_cholesky_solve", plain_solve, _solve_kernel, _solve_jvp, _batch_solve)
solve_sum_p = _primitive(
    "small_cholesky_solve_sum", plain_solve_sum, _solve_sum_kernel, _solve_sum_jvp, _batch_solve_sum
)
mlir.register_lowering(solve_sum_p, mlir.lower_fun(_solve_sum_lapack, multiple_results=False), platform="cpu")
ad.primitive_transposes[solve_p] = _transpose_solve
ad.primitive_transposes[solve_sum_p] = _transpose_solve_sum
