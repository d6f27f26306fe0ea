"""Cholesky factors and their solves: one kernel on CUDA for small matrices in float32; on a CPU side by side those of
few rows (batched_cholesky.py); LAPACK elsewhere.

A library call ends a CUDA graph and waits for the host; a step of a humanoid would spend most of its time so.
`factor` and `solve` are primitives of JAX, so that the kernel is traced only where a program is compiled for CUDA, and
a batch (`vmap`) is always an array of matrices, whatever the order of maps. Derivatives are made from both.
"""

import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from diffsim.xla.kernels import batched_cholesky
from diffsim.xla.kernels.primitive import run_alone

Array = jax.Array
# of a primitive: what it computes, or how it is transformed
Rule = Callable[..., Any]


class Kernels(NamedTuple):
    """What computes a primitive on each of these."""

    cuda: Rule
    cpu: Rule


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


def is_small(matrix: Array) -> bool:
    """Whether matrices (..., n, n) are of the type and size that kernels take, and those are not switched off."""
    return _switched_on() and matrix.dtype == jnp.float32 and 0 < matrix.shape[-1] <= LARGEST


def is_tiny(matrix: Array) -> bool:
    """Whether matrices (..., n, n) are for batched_cholesky.py on a CPU."""
    return _switched_on() and 0 < matrix.shape[-1] <= batched_cholesky.LARGEST


def _switched_on() -> bool:
    return os.environ.get("DIFFSIM_KERNELS", "1") != "0"


def factor(matrix: Array) -> Array:
    """`plain_factor`, as this module says."""
    return factor_p.bind(matrix) if is_small(matrix) or is_tiny(matrix) else plain_factor(matrix)


def solve(lower: Array, b: Array) -> Array:
    """`plain_solve`, as this module says."""
    return solve_p.bind(lower, b) if is_small(lower) or is_tiny(lower) else plain_solve(lower, b)


def _factor_jvp(primals: Sequence[Array], tangents: Sequence[Any]) -> tuple[Array, Array]:
    """dL = L Phi(L^-1 dA L^-T), Phi the lower triangle with half of the diagonal (Murray 2016, sec. 3.1)."""
    lower = factor_p.bind(*primals)
    half = jax.lax.linalg.triangular_solve(lower, tangents[0], left_side=True, lower=True)
    inner = jax.lax.linalg.triangular_solve(lower, half, left_side=False, lower=True, transpose_a=True)
    diagonal = jnp.broadcast_to(jnp.eye(inner.shape[-1], dtype=inner.dtype), inner.shape)
    return lower, product(lower, jnp.tril(inner) - 0.5 * inner * diagonal)


def _solve_jvp(primals: Sequence[Array], tangents: Sequence[Any]) -> tuple[Array, Array]:
    """dx = A^-1 (db - dA x), dA = dL L^T + L dL^T."""
    (lower, _), (change, push) = primals, tangents
    x, push = solve_p.bind(*primals), ad.instantiate_zeros(push)
    if type(change) is not ad.Zero:
        push = push - product(change, product(lower.mT, x)) - product(lower, product(change.mT, x))
    return x, solve_p.bind(lower, push)


def product(a: Array, b: Array) -> Array:
    """a @ b at the highest precision."""
    return jnp.matmul(a, b, precision=jax.lax.Precision.HIGHEST)


def _factor_on_cpu(matrix: Array) -> Array:
    return (batched_cholesky.factor if is_tiny(matrix) else plain_factor)(matrix)


def _solve_on_cpu(lower: Array, b: Array) -> Array:
    return (batched_cholesky.solve if is_tiny(lower) else plain_solve)(lower, b)


def _factor_kernel(matrix: Array) -> Array:
    kernels, flat = triton(), matrix.reshape(-1, *matrix.shape[-2:])
    if kernels is None or flat.size > MOST or not is_small(matrix):
        return plain_factor(matrix)
    return kernels.factor(flat).reshape(matrix.shape)


def _solve_kernel(lower: Array, b: Array) -> Array:
    kernels, flat = triton(), [x.reshape(-1, *x.shape[-2:]) for x in (lower, b)]
    if kernels is None or max(x.size for x in flat) > MOST or not is_small(lower):
        return plain_solve(lower, b)
    return kernels.solve(*flat).reshape(b.shape)


def triton() -> Any:
    """The module of kernels; None where this jax has no Triton."""
    try:
        from diffsim.xla.kernels import triton_cholesky
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


def _transpose_solve(cotangent: Array, lower: Array, b: Any) -> tuple[None, Array]:
    """A is symmetric; the solve is linear in b only."""
    return None, solve_p.bind(lower, cotangent)


def primitive(name: str, plain: Rule, kernels: Kernels, rules: tuple[Rule, Rule]) -> Primitive:
    """A function of arrays whose result has the shape of its last argument.

    Args:
      kernels: what computes it on CUDA, and on a CPU.
      rules: of its derivative, and of a batch.
    """
    made = Primitive(name)
    run_alone(made, plain)
    made.def_abstract_eval(lambda *arguments: ShapedArray(arguments[-1].shape, arguments[-1].dtype))
    ad.primitive_jvps[made], batching.primitive_batchers[made] = rules
    for platform, computed in ((None, plain), ("cuda", kernels.cuda), ("cpu", kernels.cpu)):
        mlir.register_lowering(made, mlir.lower_fun(computed, multiple_results=False), platform=platform)
    return made


factor_p = primitive(
    "small_cholesky", plain_factor, Kernels(_factor_kernel, _factor_on_cpu), (_factor_jvp, _batch_factor)
)
solve_p = primitive(
    "small_cholesky_solve", plain_solve, Kernels(_solve_kernel, _solve_on_cpu), (_solve_jvp, _batch_solve)
)
ad.primitive_transposes[solve_p] = _transpose_solve
