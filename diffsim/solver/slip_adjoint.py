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
from diffsim.math.block_matrix import BlockDiagonal, general_factor, general_solve, solved
from diffsim.math.blocks import PerSize, block_factor, block_solve, blocks_of
from diffsim.math.linalg import matmul
from diffsim.math.vector import dot, scale

Array = jax.Array
# (number of contacts, friction rows of each) of each group of balls, whose rows come after all intervals
Cones = tuple[tuple[int, int], ...]


class Slip(NamedTuple):
    """Friction rows: J (m, nv) and aref (m,) in the coordinates of y; bound of each row, the radius for balls."""

    jacobian: Array
    aref: Array
    limit: Array


class Zones(NamedTuple):
    """What is constant near a solution: which rows slip, which have no force, unit forces, multipliers, and diag(A)."""

    slips: Array
    empty: Array
    unit: Array
    multiplier: Array
    diagonal: Array


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def at_rest(cones: Cones, y: Array, qM: BlockDiagonal, force: Array, slip: Slip) -> Array:
    """y (m,), as a differentiable function of inertia, all other forces (nv,) and rows; its own tangent is ignored."""
    return y


@at_rest.defjvp
def _at_rest_jvp(cones: Cones, primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    y, qM, force, slip = primals
    factor = block_factor(qM.parts)
    response = matmul(slip.jacobian, jax.vmap(lambda row: solved(block_solve, qM, factor, row))(slip.jacobian).T)
    x = residual(factor, y, qM, force, slip)
    zones = jax.lax.stop_gradient(_zones(cones, y, x, response, slip))
    whole = blocks_of(np.zeros(y.shape[0], int))
    matrix = BlockDiagonal(whole, (_matrix(cones, zones, response)[None],))
    decomposed = general_factor(matrix)
    x, push = jax.jvp(lambda *given: residual(factor, y, *given), (qM, force, slip), tangents[1:])
    rates = (push, tangents[3].limit)
    _, change = jax.jvp(lambda *given: conditions(cones, zones, y, *given), (x, slip.limit), rates)
    return y, -solved(general_solve, matrix, decomposed, change)


def residual(factor: PerSize, y: Array, qM: BlockDiagonal, force: Array, slip: Slip) -> Array:
    """x = J qacc - aref (m,) of the friction rows, by a factor of the inertia."""
    return matmul(slip.jacobian, solved(block_solve, qM, factor, force + matmul(y, slip.jacobian))) - slip.aref


def conditions(cones: Cones, zones: Zones, y: Array, x: Array, limit: Array) -> Array:
    """(m,) what is zero at the solution, in zones that do not change."""
    reach = _along(cones, zones, y) - limit
    across = x - zones.unit * _along(cones, zones, x)
    slipping = jnp.where(zones.empty, 0, across + zones.diagonal * zones.unit * reach)
    return jnp.where(zones.slips, slipping, x)


def _blocks(cones: Cones, values: Array) -> list[Array]:
    """(m, ...) as (n, k, ...) blocks: intervals have k = 1."""
    shapes = [(values.shape[0] - sum(count * width for count, width in cones), 1), *cones]
    parts, start = [], 0
    for count, width in shapes:
        stop = start + count * width
        parts.append(values[start:stop].reshape(count, width, *values.shape[1:]))
        start = stop
    return parts


def _join(parts: list[Array]) -> Array:
    return jnp.concatenate([part.reshape(-1, *part.shape[2:]) for part in parts])


def _along(cones: Cones, zones: Zones, values: Array) -> Array:
    """unit . values of the block of each row, (m,)."""
    pairs = zip(_blocks(cones, zones.unit), _blocks(cones, values), strict=True)
    return _join([jnp.broadcast_to(dot(unit, part)[:, None], part.shape) for unit, part in pairs])


def _zones(cones: Cones, y: Array, x: Array, response: Array, slip: Slip) -> Zones:
    rounding = 64 * float(jnp.finfo(y.dtype).eps)
    size, speed = (
        _join([jnp.broadcast_to(safe.norm(part)[:, None], part.shape) for part in _blocks(cones, v)]) for v in (y, x)
    )
    diagonal = jnp.diagonal(response)
    # rows without a body have no diagonal, and no limit
    diagonal = jnp.where(diagonal > 0, diagonal, 1)
    mean = [jnp.broadcast_to(jnp.mean(part, axis=1, keepdims=True), part.shape) for part in _blocks(cones, diagonal)]
    return Zones(
        slips=size >= slip.limit * (1 - rounding),
        empty=size == 0,
        unit=safe.divide(y, size),
        multiplier=safe.divide(speed, slip.limit),
        diagonal=_join(mean),
    )


def _matrix(cones: Cones, zones: Zones, response: Array) -> Array:
    """(m, m) derivative of the conditions with respect to y."""
    size = response.shape[0]
    small = 4 * float(jnp.finfo(response.dtype).eps) ** 0.75
    block = np.concatenate(_block_ids(cones, size))
    same = jnp.asarray(block[:, None] == block[None])
    identity = jnp.eye(size, dtype=response.dtype)
    # unit unit^T within blocks
    inward = jnp.where(same, zones.unit[:, None] * zones.unit[None], 0)
    across = identity - inward
    slipping = matmul(across, response) + scale(across, zones.multiplier) + scale(inward, zones.diagonal)
    pinned = scale(identity, zones.diagonal)
    slipping = jnp.where(zones.empty[:, None], pinned, slipping)
    return jnp.where(zones.slips[:, None], slipping, response + small * pinned)


def _block_ids(cones: Cones, size: int) -> list[np.ndarray]:
    """Number of the block of each row."""
    boxes = size - sum(count * width for count, width in cones)
    parts, start = [np.arange(boxes)], boxes
    for count, width in cones:
        parts.append(start + np.repeat(np.arange(count), width))
        start += count
    return parts
