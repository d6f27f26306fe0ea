"""Log-Cholesky coordinates of the inertia of a body: any ten real numbers give a physical inertia.

The pseudo inertia J = integral of rho [x; 1] [x; 1]^T (4 x 4; kg m^2, kg m, kg) of a body is positive definite if and
only if some distribution of mass has this mass, center and moments. Every such J is U U^T with

    U = e^alpha [[e^d1, s12, s13, t1], [0, e^d2, s23, t2], [0, 0, e^d3, t3], [0, 0, 0, 1]],
    theta = (alpha, d1, d2, d3, s12, s13, s23, t1, t2, t3),

and mass = e^(2 alpha), center of mass = (t1, t2, t3), all in the body's frame. MuJoCo keeps mass, center, principal
moments and the orientation of the principal axes. These axes are eigenvectors. The eigenvalue solver is not
differentiated; `principal_axes` adds the derivative of the axes by a formula.
Source: Rucker and Wensing 2022, "Smooth parameterization of rigid-body inertia".
"""

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.math import safe
from diffsim.math.rotation import mat_to_quat, quat_exp, quat_mul, quat_to_mat
from diffsim.math.vector import matmul
from diffsim.optimize.coordinates.transforms import Transformation, in_coordinates

# the fields of a Model that make up the inertia of a body
INERTIAL = ("body_mass", "body_ipos", "body_inertia", "body_iquat")

# smallest relative difference of second moments of mass, by the size of a number in bytes. Closer moments are moved
# apart, because the principal axes of equal moments are undefined
APART = {4: 1e-3, 8: 1e-6}

# all permutations of three axes
ORDERS = np.asarray(list(itertools.permutations(range(3))))


class Inertial(NamedTuple):
    """The inertia of a body in its frame.

    Attributes:
      mass: () kg.
      center: (3,) center of mass, m.
      moments: (3,) principal moments about the center of mass, kg m^2.
      quat: (4,) orientation of the principal axes.
    """

    mass: Array
    center: Array
    moments: Array
    quat: Array


def second_moments(moments: Array) -> Array:
    """(3,) second moments of mass about its center, along the principal axes: S_i = (I_j + I_k - I_i) / 2."""
    return 0.5 * (jnp.roll(moments, 1) + jnp.roll(moments, 2) - moments)


def to_log_cholesky(inertial: Inertial) -> Array:
    """theta (10,) of a strictly physical inertia: each principal moment is less than the sum of the others."""
    mass, center = inertial.mass, inertial.center
    axes = quat_to_mat(inertial.quat)
    spread = _apart(second_moments(inertial.moments))
    # J / m = [[S / m + c c^T, c], [c^T, 1]] with S about the center: the last column of U is e^alpha (c, 1)
    covariance = matmul(axes * (spread / mass)[None], axes.T)
    # U U^T = S / m with upper U
    upper = jnp.linalg.cholesky(covariance[::-1, ::-1])[::-1, ::-1]
    shear = jnp.stack([upper[0, 1], upper[0, 2], upper[1, 2]])
    return jnp.concatenate([0.5 * jnp.log(mass)[None], jnp.log(jnp.diag(upper)), shear, center])


def from_log_cholesky(theta: Array, near: Array) -> Inertial:
    """The inertia of theta (10,). Its principal axes have the order and signs nearest to the axes of `near` (4,)."""
    alpha = theta[0]
    d = jnp.exp(theta[1:4])
    s12, s13, s23 = theta[4:7]
    center = theta[7:]
    zero = jnp.zeros_like(alpha)
    upper = jnp.stack([jnp.stack([d[0], s12, s13]), jnp.stack([zero, d[1], s23]), jnp.stack([zero, zero, d[2]])])
    mass = jnp.exp(2 * alpha)
    second, quat = principal_axes(mass * matmul(upper, upper.T), near)
    return Inertial(mass, center, jnp.roll(second, 1) + jnp.roll(second, 2), quat)


def principal_axes(matrix: Array, near: Array) -> tuple[Array, Array]:
    """Eigenvalues (3,) and the unit quaternion (4,) of the eigenvectors, of a symmetric matrix (3, 3).

    For derivatives, the axes V are constants. The value of A = V^T matrix V is diagonal, but its derivative is not. The
    eigenvalues are A_ii. The axes turn by w_i = A_jk / (A_jj - A_kk), with (i, j, k) cyclic. This is exact to first
    order, and zero for equal eigenvalues.

    Args:
      matrix: (3, 3) symmetric.
      near: (4,) a quaternion; the order and signs of the axes nearest to its axes are chosen.
    """
    frame = quat_to_mat(near)
    inside = matmul(frame.T, matmul(matrix, frame))
    axes = _nearest_to_identity(jnp.linalg.eigh(jax.lax.stop_gradient(inside))[1])
    diagonal = matmul(axes.T, matmul(inside, axes))
    values = jnp.diag(diagonal)
    j, k = np.asarray([1, 2, 0]), np.asarray([2, 0, 1])
    off = diagonal[j, k]
    turn = safe.divide(off - jax.lax.stop_gradient(off), values[j] - values[k])
    return values, quat_mul(near, quat_mul(mat_to_quat(axes), quat_exp(turn)))


def _nearest_to_identity(axes: Array) -> Array:
    """The rotation nearest to the identity among all orders and signs of orthogonal columns (3, 3)."""
    ordered = axes[:, ORDERS]
    fit = jnp.sum(jnp.abs(jnp.diagonal(ordered, axis1=0, axis2=2)), axis=-1)
    best = ordered[:, jnp.argmax(fit)]
    best = best * jnp.where(jnp.diag(best) < 0, -1.0, 1.0)[None].astype(axes.dtype)
    return best.at[:, 2].multiply(jnp.sign(jnp.linalg.det(best)))


def in_log_cholesky(optimizer: Any, rows: Sequence[int]) -> Transformation:
    """An optimizer that moves inertias in their log-Cholesky coordinates (n, 10), so that they stay physical.

    Use it as `masked({INERTIAL: in_log_cholesky(...)})`. The key is the tuple of the names of four fields of a Model,
    and the optimizer gets a dictionary of these fields.

    Args:
      optimizer: the optax optimizer of the coordinates, with its learning rate.
      rows: ids of the n bodies.

    Returns:
      An optimizer of the four fields, with the interface of optax. Its `init` raises ValueError for a body without
      mass, or with moments that no distribution of mass has.
    """
    index = np.asarray(rows, int)

    def encode(leaves: dict[str, Array]) -> Array:
        return jax.vmap(to_log_cholesky)(Inertial(*(leaves[name][index] for name in INERTIAL)))

    def decode(leaves: dict[str, Array], theta: Array) -> dict[str, Array]:
        inertials = jax.vmap(from_log_cholesky)(theta, leaves["body_iquat"][index])
        return {name: leaves[name].at[index].set(part) for name, part in zip(INERTIAL, inertials, strict=True)}

    def around(params: dict[str, Array]) -> Transformation:
        return in_coordinates(optimizer, encode, lambda theta: decode(params, theta))

    def init(params: dict[str, Array]) -> Any:
        check_physical(params, index)
        return around(params).init(params)

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        if params is None:
            raise ValueError("in_log_cholesky needs the parameters: optimizer.update(gradient, state, params)")
        return around(params).update(updates, state, params)

    return Transformation(init, update)


def check_physical(params: dict[str, Array], index: np.ndarray) -> None:
    """Checks that the inertias of some bodies are strictly physical.

    Raises:
      ValueError: some are not; the message names the bodies.
    """
    mass, _, moments, _ = (np.asarray(params[name])[index] for name in INERTIAL)
    second = moments.sum(axis=1, keepdims=True) / 2 - moments
    bad = index[(mass <= 0) | (second.min(axis=1) <= 10 * np.finfo(moments.dtype).eps * second.max(axis=1))]
    if bad.size:
        reason = "each principal moment must be less than the sum of the other two, and the mass positive"
        raise ValueError(f"bodies {bad.tolist()} have no log-Cholesky coordinates: {reason}")


def _apart(second: Array) -> Array:
    """Positive numbers (3,), moved apart by a small fraction of themselves if two are nearly equal."""
    order = jnp.argsort(jax.lax.stop_gradient(second))
    low, middle, high = (second[order[i]] for i in range(3))
    part = APART[second.dtype.itemsize]
    close = (middle - low < part * middle) | (high - middle < part * high)
    spread = jnp.stack([low * (1 - part), middle, high * (1 + part)])
    return jnp.where(close, second.at[order].set(spread), second)
