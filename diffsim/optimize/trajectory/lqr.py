"""The linear-quadratic regulator: the best feedback on a linear system, by scipy on the host.

u = u0 - K (x - x0) minimizes sum dx^T Q dx + du^T R du over dx' = A dx + B du; P is the cost to go, dx^T P dx.
Source: Anderson and Moore 1990, ch. 2; scipy.linalg.solve_discrete_are.
"""

from typing import NamedTuple

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike

from diffsim.base.checked import checked
from diffsim.optimize.linearize import Linearization


class Regulator(NamedTuple):
    """Gains K (nu, nx), cost to go P (nx, nx), and the poles (nx,) of the closed loop, inside the unit circle."""

    K: np.ndarray
    P: np.ndarray
    poles: np.ndarray


@checked
def lqr(system: Linearization, Q: ArrayLike, R: ArrayLike) -> Regulator:
    """The infinite-horizon regulator about a fixed point; runs on the host, in float64.

    Args:
      system: the linearization of one world at a fixed point.
      Q: (nx, nx) or its diagonal (nx,), cost of the state per step.
      R: (nu, nu) or its diagonal (nu,), cost of the controls per step.

    Raises:
      ValueError: a batch of systems, a cost of another size. numpy.linalg.LinAlgError: no stabilizing solution, such as
        a mode with a cost that no control reaches.
    """
    A, B = (np.asarray(matrix, np.float64) for matrix in (system.A, system.B))
    if A.ndim != 2:
        raise ValueError(f"A has shape {A.shape}: one world at a time")
    Q, R = _matrix("Q", Q, A.shape[1]), _matrix("R", R, B.shape[1])
    P = scipy.linalg.solve_discrete_are(A, B, Q, R)
    K = np.linalg.solve(R + B.T @ P @ B, B.T @ P @ A)
    return Regulator(K, P, np.linalg.eigvals(A - B @ K))


def _matrix(name: str, weight: ArrayLike, size: int) -> np.ndarray:
    """(size, size) from a matrix or its diagonal."""
    weight = np.asarray(weight, np.float64)
    if weight.shape not in ((size,), (size, size)):
        raise ValueError(f"{name} has shape {weight.shape}, expected ({size},) or ({size}, {size})")
    return np.diag(weight) if weight.ndim == 1 else weight
