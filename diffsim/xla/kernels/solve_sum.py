"""Solves with a matrix that is assembled for them: neither it nor its factor is seen by anyone else.

`solve_sum` adds matrices and a diagonal; on CUDA they are added while the factor reads them. `solve_gram` adds to a
matrix M and a diagonal what rows with weights contribute, J^T K J, K one small block for each constraint: on CUDA one
kernel writes half of the symmetric sum, without K J or J^T K J ever being stored, and another solves. Both are
primitives of JAX, as `factor` and `solve` are (cholesky.py), and differentiated by those.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad

from diffsim.xla.kernels import batched_cholesky
from diffsim.xla.kernels.cholesky import (
    MOST,
    Kernels,
    Rule,
    factor,
    is_small,
    is_tiny,
    plain_factor,
    plain_solve,
    primitive,
    product,
    solve,
    triton,
)
from diffsim.xla.kernels.lapack_cholesky import in_shares, solve_bordered

Array = jax.Array
# the matrix from what it is assembled of
Assemble = Callable[..., Array]


def plain_sum(*terms: Array) -> Array:
    """The sum of matrices (..., n, n) and, the last of the terms, of a diagonal (..., n)."""
    first, *others, diagonal = terms
    total = first + jnp.broadcast_to(jnp.eye(first.shape[-1], dtype=first.dtype), first.shape) * diagonal[..., None, :]
    for other in others:
        total = total + other
    return total


def plain_gram(matrix: Array, diagonal: Array, jacobian: Array, *weights: Array) -> Array:
    """M (..., n, n) + a diagonal (..., n) + J^T K J, of rows J (..., rows, n) and their weights.

    Weights (..., dim, count, dim) are K of `count` constraints of `dim` rows each, which follow one another in J:
    first components first.
    """
    total, start = plain_sum(matrix, diagonal), 0
    for weight in weights:
        dim, count, _ = weight.shape[-3:]
        rows = jacobian[..., start : start + dim * count, :]
        apart = rows.reshape(*rows.shape[:-2], dim, count, rows.shape[-1])
        weighted = jnp.einsum("...ick,...kcn->...icn", weight, apart, precision=jax.lax.Precision.HIGHEST)
        total, start = total + product(rows.mT, weighted.reshape(rows.shape)), start + dim * count
    return total


def plain_solve_sum(*arguments: Array) -> Array:
    """x (..., n) with `plain_sum` of the terms times x = b, the last argument (..., n): the definition."""
    return _plain(plain_sum, arguments)


def plain_solve_gram(*arguments: Array) -> Array:
    """x (..., n) with `plain_gram` of the terms times x = b, the last argument (..., n): the definition."""
    return _plain(plain_gram, arguments)


def _plain(assemble: Assemble, arguments: Sequence[Array]) -> Array:
    *terms, b = arguments
    return plain_solve(plain_factor(assemble(*terms)), b[..., None])[..., 0]


def solve_sum(matrices: Sequence[Array], diagonal: Array, b: Array) -> Array:
    """`plain_solve_sum`, by one kernel on CUDA."""
    own = is_small(matrices[0]) or is_tiny(matrices[0])
    solve_terms = solve_sum_p.bind if own else _solve_large_sum
    return solve_terms(*matrices, diagonal, b)


def solve_gram(matrix: Array, diagonal: Array, rows: tuple[Array, Sequence[Array]], b: Array) -> Array:
    """`plain_solve_gram`, by two kernels on CUDA, for small matrices; of the rows J and the weights of all of them."""
    jacobian, weights = rows
    return solve_gram_p.bind(matrix, diagonal, jacobian, *weights, b)


def _jvp(assemble: Assemble) -> Rule:
    """dx = A^-1 (db - dA x), by one factor."""

    def rule(primals: Sequence[Array], tangents: Sequence[Any]) -> tuple[Array, Array]:
        (*terms, b), (*changes, push) = primals, [ad.instantiate_zeros(tangent) for tangent in tangents]
        matrix, change = jax.jvp(assemble, tuple(terms), tuple(changes))
        lower = factor(matrix)
        x = solve(lower, b[..., None])
        return x[..., 0], solve(lower, push[..., None] - product(change, x))[..., 0]

    return rule


# what is no kernel's has the same derivative
_solve_large_sum = jax.custom_jvp(plain_solve_sum)
_solve_large_sum.defjvp(_jvp(plain_sum))


def _batch(assemble: Assemble, made: Callable[[], Primitive]) -> Rule:
    """A batch of right sides of the same terms is solved by one factor."""

    def rule(arguments: Sequence[Array], dims: Sequence[int | None]) -> tuple[Array, int]:
        (*terms, b), (*of_terms, of_b) = arguments, dims
        if all(dim is None for dim in of_terms):
            return solve(factor(assemble(*terms)), jnp.moveaxis(b, of_b or 0, -1)), b.ndim - 1
        size = next(x.shape[dim] for x, dim in zip(arguments, dims, strict=True) if dim is not None)
        pairs = zip(arguments, dims, strict=True)
        whole = (jnp.broadcast_to(x, (size, *x.shape)) if dim is None else jnp.moveaxis(x, dim, 0) for x, dim in pairs)
        return made().bind(*whole), 0

    return rule


def _transpose(made: Primitive) -> Rule:
    """The same solve; linear in b only."""

    def rule(cotangent: Array, *arguments: Any) -> list[Array | None]:
        terms = arguments[:-1]
        return [*(None for _ in terms), made.bind(*terms, ad.instantiate_zeros(cotangent))]

    return rule


def _flat(x: Array, kept: int) -> Array:
    """An array with all axes but the last few as one."""
    return x.reshape(-1, *x.shape[x.ndim - kept :])


def _sum_kernel(*arguments: Array) -> Array:
    *matrices, diagonal, b = arguments
    kernels = triton()
    if kernels is None or matrices[0].size > MOST or not is_small(matrices[0]):
        return plain_solve_sum(*arguments)
    flat = *(_flat(x, 2) for x in matrices), *(_flat(x, 1) for x in (diagonal, b))
    return kernels.solve_sum(*flat).reshape(b.shape)


def _gram_kernel(*arguments: Array) -> Array:
    matrix, diagonal, jacobian, *weights, b = arguments
    kernels = triton()
    if kernels is None or max(x.size for x in arguments) > MOST:
        return plain_solve_gram(*arguments)
    from diffsim.xla.kernels import triton_gram

    terms = _flat(matrix, 2), _flat(diagonal, 1), _flat(jacobian, 2), *(_flat(weight, 3) for weight in weights)
    return kernels.solve_packed(triton_gram.gram(*terms), _flat(b, 1)).reshape(b.shape)


def _sum_on_cpu(*arguments: Array) -> Array:
    *terms, b = arguments
    if is_tiny(terms[0]):
        return batched_cholesky.factor_and_solve(plain_sum(*terms), b)
    return _sum_lapack(*arguments)


def _sum_lapack(*arguments: Array) -> Array:
    """The diagonal, where limits and dry friction are, by a product: XLA would compute what they come from, their
    impedance too, again for each entry of the sum.
    """
    *matrices, diagonal, b = arguments
    if b.ndim == 1:
        return solve_bordered(plain_sum(*matrices, diagonal), b)
    alike = product(diagonal, jnp.eye(diagonal.shape[-1], dtype=diagonal.dtype))
    return in_shares(lambda *terms: solve_bordered(plain_sum(*terms[:-1]), terms[-1]), *matrices, alike, b)


def _assembled(name: str, assemble: Assemble, plain: Rule, kernels: Kernels) -> Primitive:
    """A solve, linear in its last argument, with what is assembled of the others."""
    made = primitive(name, plain, kernels, (_jvp(assemble), _batch(assemble, lambda: made)))
    ad.primitive_transposes[made] = _transpose(made)
    return made


solve_sum_p = _assembled("small_cholesky_solve_sum", plain_sum, plain_solve_sum, Kernels(_sum_kernel, _sum_on_cpu))
solve_gram_p = _assembled(
    "small_cholesky_solve_gram", plain_gram, plain_solve_gram, Kernels(_gram_kernel, plain_solve_gram)
)
