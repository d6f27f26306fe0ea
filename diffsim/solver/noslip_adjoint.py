"""The derivative of rigid friction: the implicit function theorem at the fixed point of the noslip sweeps.

A friction row (or the sides of an elliptic contact) at the solution either sticks or slips:
- sticks: its acceleration x = J qacc - aref is zero;
- slips in an interval: y is at the bound, y = s limit;
- slips in a ball: |y| = limit, and x has no part across y. As x = -m y, a change of y turns that condition by m dy.
These equations, linear in the changes at fixed zones, give dy by one solve of the size of the friction rows. Rows that
stick together may depend on each other (a box on four corners): the forces are then not unique but the acceleration
is, and a small multiple of the diagonal chooses.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.math import safe
from diffsim.math.linalg import (
    BlockDiagonal,
    PerSize,
    block_factor,
    block_solve,
    blocks_of,
    general_factor,
    general_solve,
    solved,
)
from diffsim.math.vector import dot, matmul, scale
from diffsim.solver.friction_cone import Cones, concatenate
from diffsim.solver.friction_rows import FrictionRows

Array = jax.Array


class Zones(NamedTuple):
    """What is constant near a solution: which rows slip, which have no force, unit forces, multipliers, and diag(A)."""

    slips: Array
    empty: Array
    unit: Array
    multiplier: Array
    diagonal: Array


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def at_fixed_point(cones: Cones, y: Array, qM: BlockDiagonal, force: Array, rows: FrictionRows) -> Array:
    """y (m,), as a differentiable function of inertia, all other forces (nv,) and rows; its own tangent is ignored."""
    return y


@at_fixed_point.defjvp
def _at_fixed_point_jvp(cones: Cones, primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    y, qM, force, rows = primals
    factor = block_factor(qM.parts)
    response = matmul(rows.jacobian, jax.vmap(lambda each: solved(block_solve, qM, factor, each))(rows.jacobian).T)
    x = residual(factor, y, qM, force, rows)
    zones = jax.lax.stop_gradient(_zones(cones, y, x, response, rows))
    whole = blocks_of(np.zeros(y.shape[0], int))
    matrix = BlockDiagonal(whole, (_matrix(cones, zones, response)[None],))
    decomposed = general_factor(matrix)
    x, push = jax.jvp(lambda *given: residual(factor, y, *given), (qM, force, rows), tangents[1:])
    rates = (push, tangents[3].limit)
    _, change = jax.jvp(lambda *given: conditions(cones, zones, y, *given), (x, rows.limit), rates)
    return y, -solved(general_solve, matrix, decomposed, change)


def residual(factor: PerSize, y: Array, qM: BlockDiagonal, force: Array, rows: FrictionRows) -> Array:
    """x = J qacc - aref (m,) of the friction rows, by a factor of the inertia."""
    return matmul(rows.jacobian, solved(block_solve, qM, factor, force + matmul(y, rows.jacobian))) - rows.aref


def conditions(cones: Cones, zones: Zones, y: Array, x: Array, limit: Array) -> Array:
    """(m,) what is zero at the solution, in zones that do not change."""
    reach = _along(cones, zones, y) - limit
    across = x - zones.unit * _along(cones, zones, x)
    slipping = jnp.where(zones.empty, 0, across + zones.diagonal * zones.unit * reach)
    return jnp.where(zones.slips, slipping, x)


def _along(cones: Cones, zones: Zones, values: Array) -> Array:
    """unit . values of the block of each row, (m,)."""
    pairs = zip(cones.split(zones.unit), cones.split(values), strict=True)
    return concatenate([jnp.broadcast_to(dot(unit, part)[:, None], part.shape) for unit, part in pairs])


def _zones(cones: Cones, y: Array, x: Array, response: Array, rows: FrictionRows) -> Zones:
    rounding = 64 * float(jnp.finfo(y.dtype).eps)
    size, speed = (
        concatenate([jnp.broadcast_to(safe.norm(part)[:, None], part.shape) for part in cones.split(v)]) for v in (y, x)
    )
    # rows without a body have no diagonal, and no limit
    own: Array = jnp.diagonal(response)
    diagonal = jnp.where(own > 0, own, 1)
    mean = [jnp.broadcast_to(jnp.mean(part, axis=1, keepdims=True), part.shape) for part in cones.split(diagonal)]
    return Zones(
        slips=size >= rows.limit * (1 - rounding),
        empty=size == 0,
        unit=safe.divide(y, size),
        multiplier=safe.divide(speed, rows.limit),
        diagonal=concatenate(mean),
    )


def _matrix(cones: Cones, zones: Zones, response: Array) -> Array:
    """(m, m) derivative of the conditions with respect to y."""
    size = response.shape[0]
    small: float = 4 * float(jnp.finfo(response.dtype).eps) ** 0.75
    block = cones.label()
    same = jnp.asarray(block[:, None] == block[None])
    identity = jnp.eye(size, dtype=response.dtype)
    # unit unit^T within blocks
    inward = jnp.where(same, zones.unit[:, None] * zones.unit[None], 0)
    across = identity - inward
    slipping = matmul(across, response) + scale(across, zones.multiplier) + scale(inward, zones.diagonal)
    pinned = scale(identity, zones.diagonal)
    slipping = jnp.where(zones.empty[:, None], pinned, slipping)
    return jnp.where(zones.slips[:, None], slipping, response + small * pinned)
