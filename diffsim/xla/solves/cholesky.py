"""Cholesky factors, solves with them, and solves with matrices that are sums.

On CUDA, each operation on small matrices in float32 is one kernel. (A call of a GPU library would end a CUDA graph and
wait for the host; a step of a humanoid would spend most of its time waiting.) On a CPU, matrices of a few rows are
handled side by side (cpu_cholesky.py); on a TPU, so are the small matrices of a batch (tpu_cholesky.py). For all other
matrices JAX calls its library, which is LAPACK on a CPU. All operations are primitives of JAX, so that a kernel is made
only when a program is compiled for CUDA, and so that nested `vmap`s make one batch of matrices. Derivatives are
computed by `factor` and `solve`.

`solve_sum` solves with a sum of matrices and a diagonal; on CUDA they are added while they are read. `solve_gram`
solves with M + diagonal + J^T K J, where K has a small block for each constraint; on CUDA one kernel adds and solves,
and stores neither K J nor the matrix nor its factor. In float32, rounding can make such a sum lose its positive
definiteness. Then LAPACK solves again with a small addition to the diagonal, and the kernels raise pivots that are too
small to the same bound (lapack.py).
"""

import math
import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from diffsim.xla.compiled import define_eager
from diffsim.xla.loops import varying
from diffsim.xla.solves import cpu_cholesky, tpu_cholesky
from diffsim.xla.solves.cpu_cholesky import Limbs, solve_limbs
from diffsim.xla.solves.lapack import in_shares, solve_rounded
from diffsim.xla.solves.plain import (
    Assemble,
    plain_factor,
    plain_gram,
    plain_solve,
    plain_solve_gram,
    plain_solve_sum,
    plain_sum,
    product,
)
from diffsim.xla.solves.probe import check_loops, cuda_kernels
from diffsim.xla.solves.warp_cholesky import gram_in_loop, sum_in_loop
from diffsim.xla.warp.loop import CHECKS
from diffsim.xla.warp.probe import all_pass
from diffsim.xla.warp.translate import TRANSLATIONS

Array = jax.Array
# a function that computes a primitive, or that transforms it
Rule = Callable[..., Any]


class Kernels(NamedTuple):
    """The functions that compute a primitive on each backend."""

    cuda: Rule
    cpu: Rule
    tpu: Rule


# number of rows of the largest matrix for which there is a kernel
LARGEST = 64


def is_small(matrix: Array) -> bool:
    """Whether there are kernels for the dtype and size of matrices (..., n, n), and kernels are not switched off."""
    return _switched_on() and matrix.dtype == jnp.float32 and 0 < matrix.shape[-1] <= LARGEST


def is_tiny(matrix: Array) -> bool:
    """Whether a CPU handles matrices (..., n, n) by cpu_cholesky.py."""
    return _switched_on() and 0 < matrix.shape[-1] <= cpu_cholesky.LARGEST


def goes_to_tpu_cholesky(matrix: Array, limbs: Limbs | None = None) -> bool:
    """Whether matrices (..., n, n) go to tpu_cholesky.py on a TPU: batches of small matrices."""
    largest = tpu_cholesky.LARGEST_WITH_LIMBS if limbs else tpu_cholesky.LARGEST
    return _switched_on() and matrix.ndim > 2 and 0 < matrix.shape[-1] <= largest


def _switched_on() -> bool:
    """Whether the environment variable DIFFSIM_KERNELS allows kernels."""
    return os.environ.get("DIFFSIM_KERNELS", "1") != "0"


def factor(matrix: Array) -> Array:
    """Lower Cholesky factors L (..., n, n) of matrices (..., n, n), as `plain_factor`, in the fastest way."""
    return factor_p.bind(varying(matrix)) if is_small(matrix) or is_tiny(matrix) else plain_factor(matrix)


def solve(lower: Array, b: Array) -> Array:
    """x (..., n, k) with L L^T x = b, as `plain_solve`, in the fastest way."""
    return solve_p.bind(*varying((lower, b))) if is_small(lower) or is_tiny(lower) else plain_solve(lower, b)


def _factor_jvp(primals: Sequence[Array], tangents: Sequence[Any]) -> tuple[Array, Array]:
    """dL = L Phi(L^-1 dA L^-T), Phi the lower triangle with half of the diagonal (Murray 2016, sec. 3.1)."""
    lower = factor_p.bind(*primals)
    half = jax.lax.linalg.triangular_solve(lower, tangents[0], left_side=True, lower=True)
    inner = jax.lax.linalg.triangular_solve(lower, half, left_side=False, lower=True, transpose_a=True)
    diagonal = jnp.broadcast_to(jnp.eye(inner.shape[-1], dtype=inner.dtype), inner.shape)
    return lower, product(lower, jnp.tril(inner) - 0.5 * inner * diagonal)


def _solve_jvp(primals: Sequence[Array], tangents: Sequence[Any]) -> tuple[Array, Array]:
    """dx = A^-1 (db - dA x), dA = dL L^T + L dL^T."""
    lower, _ = primals
    dlower, db = tangents
    x = solve_p.bind(*primals)
    right = ad.instantiate_zeros(db)
    if type(dlower) is not ad.Zero:
        right = right - product(dlower, product(lower.mT, x)) - product(lower, product(dlower.mT, x))
    return x, solve_p.bind(lower, right)


def _factor_kernel(matrix: Array) -> Array:
    """`factor` on CUDA."""
    kernels = cuda_kernels()
    if kernels is None or not is_small(matrix):
        return plain_factor(matrix)
    return kernels.factor(_flat(matrix, 2)).reshape(matrix.shape)


def _solve_kernel(lower: Array, b: Array) -> Array:
    """`solve` on CUDA."""
    kernels = cuda_kernels()
    if kernels is None or not is_small(lower):
        return plain_solve(lower, b)
    return kernels.solve(_flat(lower, 2), _flat(b, 2)).reshape(b.shape)


def _batch_solve(arguments: Sequence[Array], dims: Sequence[int | None]) -> tuple[Array, int]:
    """The batch rule of `solve`: a batch of right-hand sides for the same matrices becomes more columns."""
    lower, b = arguments
    of_lower, of_b = dims
    if of_lower is None and of_b is not None:
        columns = jnp.moveaxis(b, of_b, -1)
        solution = solve_p.bind(lower, columns.reshape(*columns.shape[:-2], -1))
        return solution.reshape(columns.shape), solution.ndim
    lower = jnp.moveaxis(lower, of_lower or 0, 0)
    b = jnp.broadcast_to(b, (lower.shape[0], *b.shape)) if of_b is None else jnp.moveaxis(b, of_b, 0)
    return solve_p.bind(lower, b), 0


def primitive(name: str, plain: Rule, kernels: Kernels, rules: tuple[Rule, Rule]) -> Primitive:
    """A new primitive, whose result has the shape of its last argument.

    Args:
      name: its name.
      plain: its definition, which other platforms use.
      kernels: the functions that compute it on CUDA, on a CPU and on a TPU.
      rules: its jvp rule and its batch rule.
    """
    new = Primitive(name)
    define_eager(new, plain, ("limbs",))
    new.def_abstract_eval(lambda *arguments, **_: arguments[-1].update(weak_type=False))
    ad.primitive_jvps[new], batching.primitive_batchers[new] = rules
    for platform, computed in ((None, plain), *kernels._asdict().items()):
        mlir.register_lowering(new, mlir.lower_fun(computed, multiple_results=False), platform=platform)
    return new


factor_p = primitive(
    "small_cholesky",
    plain_factor,
    Kernels(
        cuda=_factor_kernel,
        cpu=lambda a: (cpu_cholesky.factor if is_tiny(a) else plain_factor)(a),
        tpu=lambda a: (tpu_cholesky.factor if goes_to_tpu_cholesky(a) else plain_factor)(a),
    ),
    (_factor_jvp, lambda matrix, dims: (factor_p.bind(jnp.moveaxis(matrix[0], dims[0], 0)), 0)),
)
solve_p = primitive(
    "small_cholesky_solve",
    plain_solve,
    Kernels(
        cuda=_solve_kernel,
        cpu=lambda lower, b: (cpu_cholesky.solve if is_tiny(lower) else plain_solve)(lower, b),
        tpu=lambda lower, b: (tpu_cholesky.solve if goes_to_tpu_cholesky(lower) else plain_solve)(lower, b),
    ),
    (_solve_jvp, _batch_solve),
)
# A is symmetric; the solve is linear in b only
ad.primitive_transposes[solve_p] = lambda cotangent, lower, b: (None, solve_p.bind(lower, cotangent))


def solve_sum(matrices: Sequence[Array], diagonal: Array, b: Array, limbs: Limbs | None = None) -> Array:
    """x (n,) with A x = b, where A, a sum of matrices and a diagonal, is symmetric positive definite.

    It is `plain_solve_sum`, by one kernel on CUDA.

    Args:
      matrices: (n, n) each.
      diagonal: (n,), or (0,) for none.
      b: (n,) right-hand side.
      limbs: the sparsity of A by limbs, which a CPU uses for batches; None if it is not known.
    """
    if is_small(matrices[0]) or is_tiny(matrices[0]):
        return solve_sum_p.bind(*varying([*matrices, diagonal, b]), limbs=limbs)
    return _solve_large_sum(*matrices, diagonal, b)


def solve_gram(matrix: Array, diagonal: Array, rows: tuple[Array, Sequence[Array]], b: Array) -> Array:
    """x (n,) with (M + diagonal + J^T K J) x = b, for a small matrix M.

    It is `plain_solve_gram`, by one kernel on CUDA.

    Args:
      matrix: M (n, n).
      diagonal: (n,).
      rows: J (k, n), and the K (dim, count, dim) of each group of its rows.
      b: (n,) right-hand side.
    """
    jacobian, weights = rows
    return solve_gram_p.bind(*varying([matrix, diagonal, jacobian, *weights, b]))


def _jvp(assemble: Assemble) -> Rule:
    """The jvp rule of a solve with an assembled matrix A: dx = A^-1 (db - dA x), with one factor for x and dx."""

    def rule(primals: Sequence[Array], tangents: Sequence[Any], **_: Any) -> tuple[Array, Array]:
        *terms, b = primals
        *dterms, db = [ad.instantiate_zeros(tangent) for tangent in tangents]
        matrix, dmatrix = jax.jvp(assemble, tuple(terms), tuple(dterms))
        lower = factor(matrix)
        x = solve(lower, b[..., None])
        return x[..., 0], solve(lower, db[..., None] - product(dmatrix, x))[..., 0]

    return rule


# solves with large matrices, which have no kernel, have the same derivative
_solve_large_sum = jax.custom_jvp(plain_solve_sum)
_solve_large_sum.defjvp(_jvp(plain_sum))


def _batch(assemble: Assemble, primitive_of: Callable[[], Primitive]) -> Rule:
    """The batch rule of such a solve: a batch of right-hand sides for one matrix is solved with one factor."""

    def rule(arguments: Sequence[Array], dims: Sequence[int | None], **known: Any) -> tuple[Array, int]:
        *terms, b = arguments
        *of_terms, of_b = dims
        if all(dim is None for dim in of_terms):
            return solve(factor(assemble(*terms)), jnp.moveaxis(b, of_b or 0, -1)), b.ndim - 1
        size = next(x.shape[dim] for x, dim in zip(arguments, dims, strict=True) if dim is not None)
        pairs = zip(arguments, dims, strict=True)
        whole = (jnp.broadcast_to(x, (size, *x.shape)) if dim is None else jnp.moveaxis(x, dim, 0) for x, dim in pairs)
        return primitive_of().bind(*whole, **known), 0

    return rule


def _transpose(itself: Primitive) -> Rule:
    """The transpose rule of such a solve, which is linear in b only; A is symmetric."""

    def rule(cotangent: Array, *arguments: Any, **known: Any) -> list[Array | None]:
        terms = arguments[:-1]
        return [*(None for _ in terms), itself.bind(*terms, ad.instantiate_zeros(cotangent), **known)]

    return rule


def _flat(x: Array, kept: int) -> Array:
    """The array with all axes except the last `kept` ones merged into one."""
    return x.reshape(math.prod(x.shape[: x.ndim - kept]), *x.shape[x.ndim - kept :])


def _sum_kernel(*arguments: Array, **_: Any) -> Array:
    """`solve_sum` on CUDA."""
    *matrices, diagonal, b = arguments
    kernels = cuda_kernels()
    if kernels is None or not is_small(matrices[0]):
        return plain_solve_sum(*arguments)
    diagonal = diagonal if diagonal.shape[-1] else jnp.zeros_like(b)
    flat = [_flat(x, 2) for x in matrices]
    return kernels.solve_sum(*flat, _flat(diagonal, 1), _flat(b, 1)).reshape(b.shape)


def _gram_kernel(*arguments: Array) -> Array:
    """`solve_gram` on CUDA."""
    matrix, diagonal, jacobian, *weights, b = arguments
    kernels = cuda_kernels()
    if kernels is None:
        return plain_solve_gram(*arguments)
    terms = _flat(matrix, 2), _flat(diagonal, 1), _flat(jacobian, 2), *(_flat(weight, 3) for weight in weights)
    return kernels.solve_gram(*terms, _flat(b, 1)).reshape(b.shape)


def _sum_on_cpu(*arguments: Array, limbs: Limbs | None) -> Array:
    """`solve_sum` on a CPU: side by side for few rows, by limbs for many worlds, and else by LAPACK."""
    *matrices, diagonal, b = arguments
    if is_tiny(matrices[0]):
        return cpu_cholesky.factor_and_solve(plain_sum(*arguments[:-1]), b)
    if limbs is None or b.ndim == 1 or b.size < cpu_cholesky.SIDE_BY_SIDE * b.shape[-1]:
        return _sum_lapack(*arguments)
    return solve_limbs([_flat(x, 2) for x in matrices], _flat(diagonal, 1), _flat(b, 1), limbs).reshape(b.shape)


def _sum_lapack(*arguments: Array) -> Array:
    """`solve_sum` by LAPACK.

    The diagonal comes from joint limits and dry friction. A product with the identity turns it into a matrix; otherwise
    XLA would compute it, with the impedances on which it depends, again for each entry of the sum.
    """
    *matrices, diagonal, b = arguments
    if b.ndim == 1:
        return solve_rounded(lambda: plain_sum(*matrices, diagonal), b)
    if diagonal.shape[-1]:
        diagonal = product(diagonal, jnp.eye(diagonal.shape[-1], dtype=diagonal.dtype))
    return in_shares(lambda *terms: solve_rounded(lambda: plain_sum(*terms[:-1]), terms[-1]), *matrices, diagonal, b)


def _sum_on_tpu(*arguments: Array, limbs: Limbs | None) -> Array:
    """`solve_sum` on a TPU."""
    if goes_to_tpu_cholesky(arguments[0], limbs):
        return tpu_cholesky.solve_sum(*arguments, limbs=limbs)
    return plain_solve_sum(*arguments)


def _gram_on_tpu(*arguments: Array) -> Array:
    """`solve_gram` on a TPU."""
    return (tpu_cholesky.solve_gram if goes_to_tpu_cholesky(arguments[0]) else plain_solve_gram)(*arguments)


def _assembled(name: str, assemble: Assemble, plain: Rule, kernels: Kernels) -> Primitive:
    """A new primitive: a solve with a matrix that is assembled from all arguments except the last, b."""
    solver = primitive(name, plain, kernels, (_jvp(assemble), _batch(assemble, lambda: solver)))
    ad.primitive_transposes[solver] = _transpose(solver)
    return solver


solve_sum_p = _assembled(
    "small_cholesky_solve_sum",
    plain_sum,
    plain_solve_sum,
    Kernels(cuda=_sum_kernel, cpu=_sum_on_cpu, tpu=_sum_on_tpu),
)
solve_gram_p = _assembled(
    "small_cholesky_solve_gram",
    plain_gram,
    plain_solve_gram,
    Kernels(cuda=_gram_kernel, cpu=plain_solve_gram, tpu=_gram_on_tpu),
)
# how loop kernels compute the primitives
TRANSLATIONS["small_cholesky_solve_sum"] = sum_in_loop
TRANSLATIONS["small_cholesky_solve_gram"] = gram_in_loop
CHECKS.append(lambda: cuda_kernels() is not None and all_pass(lambda: check_loops(solve_gram)))
