"""Linearization of one timestep, in tangent coordinates.

    x' = x + A dx + B du,    y = y0 + C dx + D du

with dx = (dq, dv, da), 2 nv + na coordinates (tangent.py), du the controls, and y the sensors of the state before the
step. Exact, by forward mode, for every integrator: derivatives of the solver are those of its optimum. Source: MuJoCo's
mjd_transitionFD, which takes differences.
"""

import jax

from diffsim.base.checked import checked
from diffsim.base.errors import Problem, UnsupportedError
from diffsim.optimize.identify.jacobian import columns
from diffsim.optimize.tangent import difference, displaced, no_change, tangent_size
from diffsim.simulate.arguments import check_arguments
from diffsim.simulate.step import step_data
from diffsim.types import Inputs, Model, State
from diffsim.types.record import Record, leaf, record
from diffsim.xla.compiled import compiled

Array = jax.Array


@record
class Linearization(Record):
    """The matrices, with nx = 2 nv + na."""

    A: Array = leaf("nx", "nx")
    B: Array = leaf("nx", "nu")
    C: Array = leaf("nsensordata", "nx")
    D: Array = leaf("nsensordata", "nu")


@checked
@compiled
def linearize(model: Model, state: State, inputs: Inputs | None = None) -> Linearization:
    """How the next state and the sensors change with state and controls. Batch it with `jax.vmap`.

    Args:
      state: where; inputs: what is applied there, None for `make_inputs(model)`.

    Raises:
      UnsupportedError: a model with delays, whose samples are states that (dq, dv, da) has no place for.
    """
    inputs = check_arguments(model, state, inputs)
    refuse_delays(model)
    nx = tangent_size(model)
    there = jax.lax.stop_gradient(step_data(model, state, inputs)[0])

    def outcome(dq: Array, dv: Array, da: Array, du: Array) -> tuple[tuple[Array, Array], None]:
        moved = displaced(model, state, dq, dv, da)
        later, data = step_data(model, moved, inputs.replace(ctrl=inputs.ctrl + du))
        return (difference(model, later, there), data.sensordata), None

    (transition, reading), _ = columns(outcome, no_change(model))
    return Linearization(A=transition[:, :nx], B=transition[:, nx:], C=reading[:, :nx], D=reading[:, nx:])


def refuse_delays(model: Model) -> None:
    """Refuses models whose state has delayed samples."""
    if model.topology.nhistory:
        reason = "delays of controls and sensors are states that (dq, dv, da) leaves out"
        raise UnsupportedError([Problem("", 0, "delay", reason, unsupported=True)])
