"""The rows along a line: first and second derivative of their cost at x + alpha v.

A spring (constraint/springs.py) has the slope D v clip(x + alpha v, lower, upper), and the curvature D v^2 within its
bounds. Elliptic contacts are evaluated by their law. On a GPU, where each sum of each trial is a launch, springs that
only push, those of limits and contacts, are one list.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp

from diffsim.constraint import laws
from diffsim.constraint.springs import SPRINGS, only_push, springs, stretch
from diffsim.math.vector import total
from diffsim.types.constraints import Constraints, PerGroup, RowGroup
from diffsim.xla.barriers import for_gpu, launched_once
from diffsim.xla.select import where

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


class _Pushing(NamedTuple):
    """Springs that act below zero only, of several groups: residuals, their change, and D v (n,)."""

    x: Array
    v: Array
    push: Array

    def __call__(self, alpha: Array) -> tuple[Array, Array]:
        here = self.x + alpha * self.v
        acts = here < 0
        return jnp.sum(where(acts, self.push * here, 0)), jnp.sum(where(acts, self.push * self.v, 0))


def _sum(terms: Array) -> Array:
    """Of all (k, n), the few k written out: long sums XLA for CPU takes apart, and stores their terms."""
    return jnp.sum(total(list(terms)))


class LineRows(NamedTuple):
    """The groups of a line."""

    groups: tuple[_Springs | _Cones | _Pushing, ...]

    def __call__(self, alpha: Array) -> tuple[Array, Array]:
        """First and second derivative of the sum of costs."""
        slopes, curvatures = zip(*(group(alpha) for group in self.groups), strict=True)
        return total(slopes), total(curvatures)


def line_rows(constraints: Constraints, x: PerGroup, v: PerGroup) -> LineRows:
    """The rows on the line from residuals x (dim, n) in the direction v, both of each group."""
    groups = tuple(_group(*group) for group in zip(constraints.groups, x, v, strict=True))
    return LineRows(_joined(groups) if for_gpu() else groups)


def _joined(groups: tuple[_Springs | _Cones, ...]) -> tuple[_Springs | _Cones | _Pushing, ...]:
    """The groups, with those that only push as one."""
    pushing = [each for each in groups if isinstance(each, _Springs) and only_push(each.rows)]
    others = tuple(each for each in groups if all(each is not one for one in pushing))
    return (*others, _listed(pushing)) if pushing else others


@launched_once
def _listed(groups: Sequence[_Springs]) -> _Pushing:
    parts = [(each.x, each.v, springs(each.rows).D * each.v) for each in groups]
    return _Pushing(*(jnp.concatenate([part.reshape(-1) for part in column]) for column in zip(*parts, strict=True)))


def _group(rows: RowGroup, x: Array, v: Array) -> _Springs | _Cones:
    if rows.law in SPRINGS:
        return _Springs(rows, stretch(rows, x), stretch(rows, v))
    return _Cones(rows, x, v)
