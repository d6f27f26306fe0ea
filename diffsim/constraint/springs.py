"""Rows as springs within bounds: all laws but elliptic cones have forces f = -D clip(x, lower, upper).

One force for each row, or for each edge of a pyramid. A quadratic row has no bounds, a one-sided row or edge is silent
above 0, dry friction slides where D |x| is beyond frictionloss. What laws.py says of each family is then one formula
for all of them, as the line search needs it, which evaluates little else so often.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from diffsim.constraint.laws import bound, edge_bounds, edges
from diffsim.math import safe
from diffsim.types.constraints import Law, RowGroup
from diffsim.xla.select import where

Array = jax.Array


class Pull(NamedTuple):
    """Of springs at x: x within their bounds, and whether it is strictly within."""

    clipped: Array
    sticks: Array


class Springs(NamedTuple):
    """Weights (k, n) of the springs of a group, and x (k, n) -> within their bounds."""

    D: Array
    pull: Callable[[Array], Pull]


def _free(x: Array) -> Pull:
    return Pull(x, jnp.ones(x.shape, bool))


def _below(until: Array) -> Callable[[Array], Pull]:
    def pull(x: Array) -> Pull:
        sticks = x < until
        return Pull(where(sticks, x, 0), sticks)

    return pull


def _bounded(rows: RowGroup) -> Springs:
    most = safe.divide(rows.frictionloss[None], rows.D)

    def pull(x: Array) -> Pull:
        sticks = jnp.abs(x) < most
        return Pull(where(sticks, x, jnp.sign(x) * most), sticks)

    return Springs(rows.D, pull)


def _pyramid(rows: RowGroup) -> Springs:
    """Edges plus, then edges minus."""
    until = jnp.concatenate(edge_bounds(rows)) if rows.until.size else bound(rows)
    return Springs(jnp.broadcast_to(rows.D, (rows.force_count, rows.count)), _below(until))


SPRINGS: dict[Law, Callable[[RowGroup], Springs]] = {
    Law.QUADRATIC: lambda rows: Springs(rows.D, _free),
    Law.BOUNDED: _bounded,
    Law.ONE_SIDED: lambda rows: Springs(rows.D, _below(bound(rows))),
    Law.PYRAMID: _pyramid,
}


def springs(rows: RowGroup) -> Springs:
    """The springs of a group whose law is in `SPRINGS`."""
    return SPRINGS[rows.law](rows)


def stretch(rows: RowGroup, values: Array) -> Array:
    """(k, n) values of the springs from those of the basis rows (dim, n)."""
    return jnp.concatenate(edges(rows, values)) if rows.law == Law.PYRAMID else values


def only_push(rows: RowGroup) -> bool:
    """Whether the springs of a group act below zero only: of limits and contacts that are not held (active_set.py)."""
    return rows.law in (Law.ONE_SIDED, Law.PYRAMID) and not rows.until.size
