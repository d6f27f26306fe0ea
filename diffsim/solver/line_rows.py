"""The rows along a line: first and second derivative of their cost at x + alpha v.

A spring (constraint/springs.py) has the slope D v clip(x + alpha v, lower, upper), and the curvature D v^2 within its
bounds. Elliptic contacts are evaluated by their law.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from diffsim.constraint import laws
from diffsim.constraint.springs import SPRINGS, springs, stretch
from diffsim.math.choose import where
from diffsim.math.vector import total
from diffsim.solver.objective import PerGroup
from diffsim.types.constraints import Constraints, RowGroup

Array = jax.Array


class _Cones(NamedTuple):
    """Contacts of one dimension: residuals and their change (dim, n)."""

    rows: RowGroup
    x: Array
    v: Array

    def __call__(self, alpha: Array) -> tuple[Array, Array]:
        here = self.x + alpha * self.v
        slope = -laws.force(self.rows, here) * self.v
        return jnp.sum(slope), jnp.sum(laws.hessian_product(self.rows, here, self.v) * self.v)


class _Springs(NamedTuple):
    """Residuals of the springs of a group and their change (k, n); their weights and bounds."""

    rows: RowGroup
    x: Array
    v: Array

    def __call__(self, alpha: Array) -> tuple[Array, Array]:
        spring = springs(self.rows)
        push, pull = spring.D * self.v, spring.pull(self.x + alpha * self.v)
        return _sum(push * pull.clipped), _sum(where(pull.sticks, push * self.v, 0))


def _sum(terms: Array) -> Array:
    """Of all (k, n), the few k written out: long sums XLA for CPU takes apart, and stores their terms."""
    return jnp.sum(total(list(terms)))


class LineRows(NamedTuple):
    """The groups of a line."""

    groups: tuple[_Springs | _Cones, ...]

    def __call__(self, alpha: Array) -> tuple[Array, Array]:
        """First and second derivative of the sum of costs."""
        slopes, curvatures = zip(*(group(alpha) for group in self.groups), strict=True)
        return total(slopes), total(curvatures)


def line_rows(constraints: Constraints, x: PerGroup, v: PerGroup) -> LineRows:
    """The rows on the line from residuals x (dim, n) in the direction v, both of each group."""
    return LineRows(tuple(_group(*group) for group in zip(constraints.groups, x, v, strict=True)))


def _group(rows: RowGroup, x: Array, v: Array) -> _Springs | _Cones:
    if rows.law in SPRINGS:
        return _Springs(rows, stretch(rows, x), stretch(rows, v))
    return _Cones(rows, x, v)
