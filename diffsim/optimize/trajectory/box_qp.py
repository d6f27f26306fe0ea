"""A small quadratic program in a box, and how its solution depends on a linear parameter.

    minimize 1/2 u^T H u + (g + G x)^T u,  lower <= u <= upper,  at x = 0

By projected Newton steps: variables that press against a bound are held, and the others take the Newton step of the
rest. Several lengths of it are tried side by side and clipped to the box, one of which ends where the first variable
meets its bound. Beside them stands the best position of each variable alone, which is lower unless u is the solution:
clipping may spoil a Newton step. du/dx = -H_ff^-1 G_f on the free variables, 0 on the held ones.
Sources: Bertsekas 1982, "Projected Newton methods"; Tassa, Mansard and Todorov 2014.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from diffsim.math import safe
from diffsim.math.linalg import cho_solve, cholesky, inner, matmul

Array = jax.Array

LENGTHS = (1.0, 0.5, 0.1)
# what is left of a step is rounding below this many machine epsilons
ROUNDING = 16.0


class Quadratic(NamedTuple):
    """H (n, n), positive definite; g (n,); G (n, m)."""

    hessian: Array
    gradient: Array
    mixed: Array


def box_qp(problem: Quadratic, lower: Array, upper: Array) -> tuple[Array, Array]:
    """The solution (n,) and its derivative (n, m); bounds (n,) may be infinite."""
    hessian, gradient, mixed = problem

    def cost(u: Array) -> Array:
        return inner(u, gradient + 0.5 * matmul(hessian, u))

    def improve(point: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        u, _, steps = point
        slope = gradient + matmul(hessian, u)
        step = -_solve_free(hessian, _free(u, slope, lower, upper), slope)
        lengths = jnp.append(jnp.asarray(LENGTHS, u.dtype), _to_first_bound(u, step, lower, upper))
        moves = jnp.concatenate([jax.vmap(lambda length: length * step)(lengths), jnp.diag(-slope / jnp.diag(hessian))])
        trials = jax.vmap(lambda move: jnp.clip(u + move, lower, upper))(moves)
        best = trials[jnp.argmin(jax.vmap(cost)(trials))]
        small = ROUNDING * float(jnp.finfo(u.dtype).eps) * (1e-10 + jnp.abs(u))
        return best, jnp.all(jnp.abs(best - u) <= small), steps + 1

    def unfinished(point: tuple[Array, Array, Array]) -> Array:
        return ~point[1] & (point[2] < 4 + 4 * gradient.size)

    target = -cho_solve(cholesky(hessian), gradient)
    u = jnp.clip(target, lower, upper)
    # within the box nothing is left to do, nor is there where one variable was clipped and there is no other
    if gradient.size > 1:
        u = jax.lax.while_loop(unfinished, improve, (u, jnp.all(u == target), jnp.zeros((), jnp.int32)))[0]
    free = _free(u, gradient + matmul(hessian, u), lower, upper)
    return u, -_solve_free(hessian, free, mixed)


def _free(u: Array, slope: Array, lower: Array, upper: Array) -> Array:
    """(n,) bool: variables that do not press against a bound."""
    return ~((u <= lower) & (slope > 0)) & ~((u >= upper) & (slope < 0))


def _to_first_bound(u: Array, step: Array, lower: Array, upper: Array) -> Array:
    """The part of the step, 1 at most, that takes the first variable to its bound, or a rounding beyond."""
    room = jnp.where(step > 0, upper - u, u - lower)
    share = jnp.where((step != 0) & (room > 0), safe.divide(room, jnp.abs(step), 1.0), 1.0)
    beyond = 1 + ROUNDING * float(jnp.finfo(u.dtype).eps)
    return jnp.minimum(beyond * jnp.min(share), 1.0)


def _solve_free(hessian: Array, free: Array, b: Array) -> Array:
    """H_ff^-1 b_f on the free variables, zero on the others; b is (n,) or (n, m)."""
    both = free[:, None] & free[None, :]
    eye = jnp.eye(free.size, dtype=hessian.dtype)
    mask = free if b.ndim == 1 else free[:, None]
    return jnp.where(mask, cho_solve(cholesky(jnp.where(both, hessian, eye)), jnp.where(mask, b, 0)), 0)
