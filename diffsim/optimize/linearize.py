"""Linearization of one timestep in tangent coordinates, and the linear-quadratic regulator.

    x' = x + A dx + B du,    y = y0 + C dx + D du

Here dx = (dq, dv, da) has 2 nv + na coordinates (tangent.py), du are the controls, and y are the sensors of the state
before the step. The matrices are exact, by forward mode, for every integrator: derivatives of the solver are
derivatives of its optimum. MuJoCo's mjd_transitionFD computes the same by finite differences.

The regulator u = u0 - K (x - x0) minimizes sum dx^T Q dx + du^T R du over dx' = A dx + B du. It runs on the host, by
scipy.linalg.solve_discrete_are. Source: Anderson and Moore 1990, ch. 2.
"""

from typing import NamedTuple

import jax
import numpy as np
import scipy.linalg
from jax import Array
from numpy.typing import ArrayLike

from diffsim.base.checked import checked
from diffsim.base.errors import UnsupportedError
from diffsim.optimize.tangent import difference, displaced, jacobians, no_change, tangent_size
from diffsim.simulate.arguments import check_arguments
from diffsim.simulate.step import step_data
from diffsim.types import Inputs, Model, State
from diffsim.types.record import Record, leaf, record
from diffsim.xla.compiled import compiled


@record
class Linearization(Record):
    """The matrices, with nx = 2 nv + na."""

    A: Array = leaf("nx", "nx")
    B: Array = leaf("nx", "nu")
    C: Array = leaf("nsensordata", "nx")
    D: Array = leaf("nsensordata", "nu")


@checked
def linearize(model: Model, state: State, inputs: Inputs | None = None, contacts: bool = True) -> Linearization:
    """Derivatives of the next state and the sensors with respect to state and controls. Batch it with `jax.vmap`.

    Args:
      model: the compiled model.
      state: the state to linearize about.
      inputs: the inputs there; None for `make_inputs(model)`.
      contacts: False linearizes as if nothing could touch anything; the program then compiles faster.

    Returns:
      The matrices A, B, C and D.

    Raises:
      UnsupportedError: a model with delays, whose samples are states that (dq, dv, da) leaves out.
    """
    return _linearize(model if contacts else model.without_contacts(), state, inputs)


@compiled
def _linearize(model: Model, state: State, inputs: Inputs | None) -> Linearization:
    """`linearize` as one program."""
    inputs = check_arguments(model, state, inputs)
    refuse_delays(model)
    nx = tangent_size(model)
    there = jax.lax.stop_gradient(step_data(model, state, inputs)[0])

    def outcome(dq: Array, dv: Array, da: Array, du: Array) -> tuple[tuple[Array, Array], None]:
        moved = displaced(model, state, dq, dv, da)
        later, data = step_data(model, moved, inputs.replace(ctrl=inputs.ctrl + du))
        return (difference(model, later, there), data.sensordata), None

    (transition, reading), _ = jacobians(outcome, no_change(model))
    return Linearization(A=transition[:, :nx], B=transition[:, nx:], C=reading[:, :nx], D=reading[:, nx:])


def refuse_delays(model: Model) -> None:
    """Raises an UnsupportedError for models whose state includes delayed samples or states of plugins."""
    kinds = {"delay": ("delays of controls and sensors", model.topology.nhistory)}
    kinds["plugin"] = ("states of plugins", model.topology.npluginstate)
    for place, (what, count) in kinds.items():
        if count:
            reason = f"{what} are states that (dq, dv, da) leaves out"
            raise UnsupportedError.of(place, reason)


class Regulator(NamedTuple):
    """Gains K (nu, nx), cost to go P (nx, nx), and the poles (nx,) of the closed loop, inside the unit circle."""

    K: np.ndarray
    P: np.ndarray
    poles: np.ndarray


@checked
def lqr(system: Linearization, Q: ArrayLike, R: ArrayLike) -> Regulator:
    """The infinite-horizon linear-quadratic regulator about a fixed point; runs on the host, in float64.

    Args:
      system: the linearization of one world at a fixed point.
      Q: (nx, nx) or its diagonal (nx,), cost of the state per step.
      R: (nu, nu) or its diagonal (nu,), cost of the controls per step.

    Returns:
      Gains, cost to go and poles.

    Raises:
      ValueError: a batch of systems, or a cost of the wrong size.
      numpy.linalg.LinAlgError: there is no stabilizing solution, because no control reaches a mode that has a cost.
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
