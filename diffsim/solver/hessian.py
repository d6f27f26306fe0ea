"""Solving with the Hessian H = M + J^T K J of the objective.

M couples the dofs of one kinematic tree, constraints couple two. A model of few dofs is one block and takes one dense
Cholesky factor. A model of many trees takes the factors of H's diagonal blocks, one per tree, as the preconditioner of
linear conjugate gradients on the whole of H: exact at once while no constraint joins two trees, and a few products with
J where some do.
(Preconditioned conjugate gradients: Golub and Van Loan 2013, sec. 11.5.)
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from diffsim.math.block_matrix import BlockDiagonal, solved
from diffsim.math.blocks import PerSize, block_factor, block_solve
from diffsim.solver.objective import PerFamily, hessian, hessian_product
from diffsim.types.constraints import Constraints

Array = jax.Array
Product = Callable[[Array], Array]


class Factored(NamedTuple):
    """The blocks of H at residuals x, and their Cholesky factors."""

    matrix: BlockDiagonal
    factor: PerSize


def factor_hessian(qM: BlockDiagonal, constraints: Constraints, x: PerFamily) -> Factored:
    """H's blocks at residuals x, factored."""
    matrix = hessian(qM, constraints, x)
    return Factored(matrix, block_factor(matrix.parts))


def solve_hessian(found: Factored, qM: BlockDiagonal, constraints: Constraints, x: PerFamily, b: Array) -> Array:
    """H^-1 b (nv,) at residuals x."""
    blocks, factor = qM.blocks, found.factor
    if blocks.single:
        return solved(block_solve, found.matrix, factor, b)
    factor = jax.lax.stop_gradient(factor)

    def product(vector: Array) -> Array:
        return hessian_product(qM, constraints, x, vector)

    def solve(product: Product, b: Array) -> Array:
        return conjugate_gradients(product, lambda r: block_solve(blocks, factor, r), b)

    # so that derivatives are solves with H again, and not those of the loop
    return jax.lax.custom_linear_solve(product, b, solve, symmetric=True)


class _Search(NamedTuple):
    """Solution so far, residual, direction, residual . preconditioned residual, number of products."""

    x: Array
    residual: Array
    direction: Array
    energy: Array
    products: Array


def conjugate_gradients(product: Product, precondition: Product, b: Array) -> Array:
    """x (n,) with product(x) = b, until the preconditioned residual is eps^(3/4) of its start, or 2 n products."""
    first = precondition(b)
    start = jnp.vdot(b, first)
    floor = start * float(jnp.finfo(b.dtype).eps) ** 1.5

    def unfinished(search: _Search) -> Array:
        return (search.energy > floor) & (search.products < 2 * b.shape[0])

    def advance(search: _Search) -> _Search:
        image = product(search.direction)
        length = search.energy / jnp.vdot(search.direction, image)
        residual = search.residual - length * image
        step = precondition(residual)
        energy = jnp.vdot(residual, step)
        direction = step + (energy / search.energy) * search.direction
        return _Search(search.x + length * search.direction, residual, direction, energy, search.products + 1)

    none = _Search(jnp.zeros_like(b), b, first, start, jnp.zeros((), jnp.int32))
    return jax.lax.while_loop(unfinished, advance, none).x
