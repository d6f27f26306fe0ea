"""Solving with the Hessian H = M + J^T K J of the objective.

M couples the dofs of one kinematic tree, and constraints may couple two trees. A model of few dofs is one block, with
one dense Cholesky factor. In a model of many trees H is solved by linear conjugate gradients, preconditioned by the
factors of its diagonal blocks, one per tree: the first step is exact while no constraint couples two trees, and a few
products with J suffice where some do.
(Preconditioned conjugate gradients: Golub and Van Loan 2013, sec. 11.5.)
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from diffsim.math.block_solves import solved
from diffsim.math.linalg import (
    BlockColumns,
    BlockDiagonal,
    PerSize,
    assemble,
    block_factor,
    block_solve,
    cho_solve,
    per_block,
    split,
)
from diffsim.math.stencil_rows import SparseRows
from diffsim.math.vector import inner, matmul
from diffsim.solver.objective import (
    Objective,
    PerGroup,
    dof_curvature,
    hessian,
    hessian_product,
    hessian_terms,
    may_join,
    row_weights,
)
from diffsim.xla.barriers import for_cpu, for_gpu
from diffsim.xla.batched_loops import Loop, last_eighth, run
from diffsim.xla.reverse_mode import SEARCH_RESULT
from diffsim.xla.solves.cholesky import is_small, solve_gram, solve_sum

Array = jax.Array


# size of the blocks of points: a vertex of a flex has three translations
POINT = 3


class Factored(NamedTuple):
    """The blocks of H at residuals x, and their Cholesky factors."""

    matrix: BlockDiagonal
    factor: PerSize


def factor_hessian(objective: Objective, x: PerGroup) -> Factored:
    """H's blocks at residuals x, factored."""
    matrix = hessian(objective, x)
    return Factored(matrix, block_factor(matrix.parts))


def solve_hessian(factored: Factored, objective: Objective, x: PerGroup, b: Array) -> Array:
    """H^-1 b (nv,) at residuals x."""
    if objective.qM.blocks.single:
        return solved(block_solve, factored.matrix, factored.factor, b)
    factor = jax.lax.stop_gradient(factored.factor)

    def product(vector: Array) -> Array:
        return hessian_product(objective, x, vector)

    def solve(_: Callable[[Array], Array], b: Array) -> Array:
        # near rounding, but not below what conjugate gradients can reach
        relative = float(jnp.finfo(b.dtype).eps) ** 0.75
        return linear_conjugate_gradients(_Preconditioned(objective, x, factor), b, relative, 0.0)

    # derivatives are solves with H again, not derivatives of the loop
    return jax.lax.custom_linear_solve(product, b, solve, symmetric=True)


def solve_hessian_inexactly(
    factored: Factored, objective: Objective, x: PerGroup, b: Array, relative: float, floor: Array
) -> Array:
    """Approximately H^-1 b (nv,) at residuals x, without derivatives.

    Iterates until r^T P^-1 r, with the residual r and the blocks P of H, is `relative`^2 of its start or below `floor`.
    """
    return linear_conjugate_gradients(_Preconditioned(objective, x, factored.factor), b, relative, floor)


def solve_hessian_once(objective: Objective, x: PerGroup, b: Array) -> Array:
    """H^-1 b (nv,) at residuals x, where the factor is used once: sum, factor and solve are one operation.

    On a GPU this operation also computes J^T K J.
    """
    constraints = objective.constraints
    inertia = objective.qM.parts[0][0]
    jacobian = constraints.jacobian
    if not objective.qM.blocks.single or not isinstance(jacobian, BlockColumns):
        return solve_hessian(factor_hessian(objective, x), objective, x, b)
    # GPU: one kernel forms M + J^T K J, factors and solves; neither the matrix nor its factor is ever stored
    if for_gpu() and is_small(inertia) and jacobian.height:
        rows = jacobian.parts[0][0], row_weights(constraints, x)
        return solve_gram(inertia, dof_curvature(constraints, x), rows, b)
    # CPU: J^T K J by matrix products; `limbs` says which entries of H are always zero
    diagonal, matrices = hessian_terms(objective, x)
    return solve_sum([matrix.parts[0][0] for matrix in matrices], diagonal, b, constraints.limbs)


def solve_hessian_linear(objective: Objective, x: PerGroup, b: Array) -> Array:
    """H^-1 b (nv,) at residuals x, where b is a tangent: reverse mode transposes it."""
    qM = objective.qM
    if qM.blocks.single and is_small(qM.parts[0]):
        return solve_hessian_once(objective, x, b)
    return solve_hessian(factor_hessian(objective, x), objective, x, b)


@jax.custom_jvp
def newton_step(objective: Objective, x: PerGroup, gradient: Array) -> Array:
    """-H^-1 gradient (nv,) at residuals x.

    Its derivative s' follows from H s = -gradient: H s' = -gradient' - H' s. Here H' s is the derivative of a product
    with the vector s; the matrix H' is never formed.
    """
    return -solve_hessian_once(objective, x, gradient)


@newton_step.defjvp
def _newton_step_jvp(primals: tuple[Any, Any, Any], tangents: tuple[Any, Any, Any]) -> tuple[Array, Array]:
    step = checkpoint_name(newton_step(*primals), SEARCH_RESULT)

    def residual(objective: Objective, x: PerGroup, gradient: Array) -> Array:
        """H s + gradient (nv,), zero at the step s."""
        return hessian_product(objective, x, step) + gradient

    _, change = jax.jvp(residual, primals, tangents)
    return step, -solve_hessian_linear(*primals[:2], change)


class _Preconditioned(NamedTuple):
    """H at residuals x, and the factors of its blocks."""

    objective: Objective
    x: PerGroup
    factor: PerSize

    def product(self, vector: Array) -> Array:
        """H v (nv,)."""
        return hessian_product(self.objective, self.x, vector)

    def precondition(self, residual: Array) -> Array:
        """P^-1 r (nv,), where P are the blocks of H."""
        blocks = self.objective.qM.blocks
        if not isinstance(self.objective.constraints.jacobian, SparseRows):
            return block_solve(blocks, self.factor, residual)
        entries = (split(residual, index) for index in blocks.index)
        parts = [
            per_block(matmul, part, entry) if part.shape[-1] <= POINT else jax.vmap(cho_solve)(part, entry)
            for part, entry in zip(self.factor, entries, strict=True)
        ]
        return assemble(blocks, tuple(parts))


class _Iterate(NamedTuple):
    """State of linear conjugate gradients.

    Attributes:
      x, residual, direction: (nv,) the solution so far, b - H x, the next direction.
      energy: () r . P^-1 r.
      floor: () the energy below which it ends.
      left: () how many products may still be computed.
    """

    x: Array
    residual: Array
    direction: Array
    energy: Array
    floor: Array
    left: Array


def linear_conjugate_gradients(problem: _Preconditioned, b: Array, relative: float, floor: Array | float) -> Array:
    """x (n,) with H x = b, until the preconditioned residual r^T P^-1 r is `relative`^2 of its start, or below `floor`,
    or after 2 n products.

    Where no acting row couples two blocks, the first step is exact, and on a CPU the only one. On a GPU all worlds of a
    batch take as many steps as the slowest.
    """
    if isinstance(problem.objective.constraints.jacobian, SparseRows):
        # products with inverses of the small blocks of points are faster than solves with their factors
        problem = problem._replace(factor=tuple(inverse_of_points(part) for part in problem.factor))
    # from x = 0: residual b, and direction P^-1 b
    first = problem.precondition(b)
    energy = inner(b, first)
    floor = jnp.maximum(energy * relative**2, floor)
    start = _Iterate(jnp.zeros_like(b), b, first, energy, floor, jnp.full((), 2 * b.shape[0], jnp.int32))
    if for_cpu():
        joined = jax.lax.stop_gradient(may_join(problem.objective.constraints))
        start = start._replace(x=jnp.where(joined, start.x, first), left=jnp.where(joined, start.left, 0))

    def unfinished(point: _Iterate) -> Array:
        return (point.energy > point.floor) & (point.left > 0)

    return run(Loop(unfinished, _advance), problem, start, cpu=last_eighth, gpu=last_eighth).x


def inverse_of_points(factor: Array) -> Array:
    """The inverses of blocks (count, n, n) of points from their factors; larger factors are returned unchanged."""
    count, size, _ = factor.shape
    unit = jnp.broadcast_to(jnp.eye(size, dtype=factor.dtype), (count, size, size))
    return jax.vmap(cho_solve)(factor, unit) if size <= POINT else factor


def _advance(problem: _Preconditioned, point: _Iterate) -> _Iterate:
    """One product with H and one solve with its blocks: a step of preconditioned conjugate gradients."""
    # the minimum of 1/2 x^T H x - b^T x along d is at (r . P^-1 r) / (d . H d)
    image = problem.product(point.direction)
    length = point.energy / inner(point.direction, image)
    residual = point.residual - length * image
    step = problem.precondition(residual)
    energy = inner(residual, step)
    # conjugate to all directions before: d_new . H d = 0
    direction = step + (energy / point.energy) * point.direction
    return _Iterate(point.x + length * point.direction, residual, direction, energy, point.floor, point.left - 1)
