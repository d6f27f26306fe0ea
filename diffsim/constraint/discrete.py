"""Constraint rows of the integrator `discrete`: their springs and dampers act at the end of a timestep h.

There the velocity is v + h a and the violation r + h (v + h a), with a = J qacc. With stiffness K, damping B and
impedance d of a row (impedance.py), its force divided by its weight D is then

    -B (v + h a) - K d (r + h v + h^2 a) - a - Jdot qvel = s (aref - a),    s = 1 + h B + h^2 K d,
    aref = -((B + h K d) v + K d r + Jdot qvel) / s.

This is a row as for all other integrators, with another aref and with s D instead of D. The impedance refers to the
inertia with which the solver computes (simulate/metric.py).
Source: MuJoCo documentation 4.0, "Computation", "Integrators"; runs of MuJoCo 4.0.0.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from diffsim.constraint.impedance import MAXIMP, MINIMP, Reference
from diffsim.math import safe
from diffsim.math.linalg import BlockColumns
from diffsim.math.stencil_rows import Segment
from diffsim.math.vector import matmul


class Diagonals(NamedTuple):
    """The diagonals (nv,) of M and of the inertia with which the solver computes, kg or kg m^2."""

    bare: Array
    effective: Array


def resolved(ref: Reference, solref: Array, solimp: Array, timestep: Array) -> Reference:
    """K, B and d of contacts and limits (n,), no stiffer than a timestep can resolve.

    If the time constant times the damping ratio is below a timestep, the row would bounce back. It then gets the
    stiffest spring that does not, K = 1 / (dmax h^2), with the same damping ratio.
    """
    constant, ratio = solref[..., 0], solref[..., 1]
    stiff = (constant > 0) & (ratio > 0) & (constant * ratio < timestep)
    stiffness = 1 / (safe.clip(solimp[..., 1], MINIMP, MAXIMP) * timestep * timestep)
    return ref._replace(
        stiffness=jnp.where(stiff, stiffness, ref.stiffness),
        damping=jnp.where(stiff, 2 * ratio * jnp.sqrt(stiffness), ref.damping),
    )


def at_end_of_step(aref: Array, vel: Array, stiffness: Array, damping: Array, timestep: Array) -> Array:
    """The reference acceleration of rows whose springs and dampers act at the end of a timestep.

    Args:
      aref: reference acceleration at the beginning of the step.
      vel: velocities of the rows.
      stiffness, damping: K d, 1 / s^2, and B, 1 / s.
      timestep: s.
    """
    return (aref - timestep * stiffness * vel) / growth(stiffness, damping, timestep)


def growth(stiffness: Array, damping: Array, timestep: Array) -> Array:
    """s = 1 + h B + h^2 K d, by which the weight of a row grows."""
    return 1 + timestep * (damping + timestep * stiffness)


def effective_impedance(impedance: Array, factor: Array) -> Array:
    """The impedance of a row with the weight s D, at most MAXIMP; `factor` is s."""
    product = impedance * factor
    return safe.clip(product / (1 - impedance + product), MINIMP, MAXIMP)


def softened(jacobian: Array | BlockColumns | Segment | None, diagonals: Diagonals, count: int) -> Array:
    """(count,) by what factor J M^-1 J^T of the first rows of constraints is smaller with the effective inertia.

    Both are estimated by the diagonals of the two matrices, sum_j J_j^2 / M_jj.

    Args:
      jacobian: rows of J, the first row of each constraint first; None for one row for each dof.
      diagonals: of the two matrices.
      count: number of constraints.
    """
    if jacobian is None:
        return diagonals.bare / diagonals.effective
    # the product with a vector is linear in every stored entry, in whatever way J is stored
    squares: Any = jax.tree.map(
        lambda leaf: leaf * leaf if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf, jacobian
    )

    def inverse(diagonal: Array) -> Array:
        product = matmul(squares, 1 / diagonal) if isinstance(squares, Array) else squares.mul_vec(1 / diagonal)
        return product[:count]

    bare = inverse(diagonals.bare)
    moves = bare > 0
    return jnp.where(moves, inverse(diagonals.effective) / jnp.where(moves, bare, 1), 1)
