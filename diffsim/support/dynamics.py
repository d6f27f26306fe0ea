"""What dynamics is made of, one quantity at a time: M and its square root, Newton-Euler, the cost of constraints.

`data` comes from `diffsim.forward`. Names are MuJoCo's, without `mj_`; source: MuJoCo, "API reference".
"""

import jax
import jax.numpy as jnp

from diffsim.base.checked import checked
from diffsim.constraint import laws
from diffsim.dynamics.bias import moving, newton_euler
from diffsim.math.linalg import cholesky, matmul, solve_spd
from diffsim.simulate.arguments import check_shape
from diffsim.simulate.constants.set_const import set_const
from diffsim.solver.objective import constraint_force, residuals_at
from diffsim.types import Data, Model, State

Array = jax.Array


@checked
def full_m(model: Model, data: Data) -> Array:
    """The inertia matrix (nv, nv)."""
    return data.qM


@checked
def mul_m(model: Model, data: Data, vector: Array) -> Array:
    """M vector, (nv,) or (nv, k)."""
    return matmul(data.qM, vector)


@checked
def solve_m(model: Model, data: Data, vector: Array) -> Array:
    """M^-1 vector, (nv,) or (nv, k)."""
    return solve_spd(data.qM, vector)


@checked
def mul_m2(model: Model, data: Data, vector: Array) -> Array:
    """sqrt(D) L vector, (nv,) or (nv, k), with M = L^T D L: a square root of M, |result|^2 = vector^T M vector."""
    return matmul(_upper_root(data).T, vector)


@checked
def solve_m2(model: Model, data: Data, vector: Array) -> Array:
    """sqrt(D)^-1 L^-T vector, (nv,) or (nv, k), with M = L^T D L: half a solve, |result|^2 = vector^T M^-1 vector."""
    return jax.scipy.linalg.solve_triangular(_upper_root(data), vector, lower=False)


def _upper_root(data: Data) -> Array:
    """L^T sqrt(D) (nv, nv), upper triangular, with M = L^T D L: the Cholesky factor of the dofs in reverse order."""
    return cholesky(data.qM[::-1, ::-1])[::-1, ::-1]


@checked
def rne(model: Model, state: State, data: Data, qacc: Array | None = None) -> Array:
    """(nv,) force, N or N m, of recursive Newton-Euler: that of the velocities and gravity, and with `qacc` of M qacc.

    As in MuJoCo, armature (of joints, tendons and actuators) is not part of it.
    """
    if qacc is not None:
        check_shape("qacc", qacc, model.nv)
    return newton_euler(model.topology, moving(model, state.qvel, data, data), qacc)


@checked
def constraint_cost(model: Model, data: Data, qacc: Array) -> Array:
    """Cost () of the constraints at an acceleration (nv,): sum of s(J qacc - aref), what mj_constraintUpdate returns.

    The constrained acceleration minimizes this plus 1/2 (qacc - qacc_smooth)^T M (qacc - qacc_smooth).
    """
    check_shape("qacc", qacc, model.nv)
    rows = zip(data.efc.groups, residuals_at(data.efc, qacc), strict=True)
    return sum((jnp.sum(laws.cost(group, x)) for group, x in rows), jnp.zeros((), qacc.dtype))


@checked
def constraint_gradient(model: Model, data: Data, qacc: Array) -> Array:
    """(nv,) derivative of `constraint_cost`: minus the force of the constraints at this acceleration."""
    check_shape("qacc", qacc, model.nv)
    return -constraint_force(data.efc, qacc)


@checked
def total_mass(model: Model) -> Array:
    """Mass of all bodies, kg."""
    return jnp.sum(model.body_mass)


@checked
def set_total_mass(model: Model, mass: Array | float) -> Model:
    """The model with masses and inertias scaled to a total mass (kg), derived constants computed again."""
    factor = mass / total_mass(model)
    return set_const(model.replace(body_mass=model.body_mass * factor, body_inertia=model.body_inertia * factor))
