"""inverse: the force that causes an acceleration."""

import jax

from diffsim.base.checked import checked
from diffsim.base.enums import EnableBit
from diffsim.math.linalg import solve_blocks
from diffsim.simulate.arguments import check_arguments, check_shape
from diffsim.simulate.forward import forward, inverse_dynamics
from diffsim.simulate.integrate.integrators import discrete_inertia
from diffsim.types import Inputs, Model, State
from diffsim.types.data import Inverse
from diffsim.xla.compiled import compiled

Array = jax.Array


@checked
@compiled
def inverse(model: Model, state: State, qacc: Array, inputs: Inputs | None = None) -> Inverse:
    """The applied force that causes an acceleration, M qacc + bias - passive - constraint force.

    With the `invdiscrete` flag `qacc` (nv,) is that of a whole timestep, (qvel_next - qvel) / h, by the model's
    integrator; actuators then matter in so far as the integrator differentiates their forces.

    Returns:
      Inverse; `qfrc_inverse` (nv,) equals qfrc_applied + J^T xfrc_applied + qfrc_actuator of forward dynamics.

    Raises:
      ValueError: shapes that are not those of one world of this model.
      UnsupportedError: `invdiscrete` with an integrator that has no inverse.
    """
    inputs = check_arguments(model, state, inputs)
    check_shape("qacc", qacc, model.nv)
    # only what is used below is computed
    data = forward(model, state, inputs)
    if model.opt.enabled(EnableBit.INVDISCRETE):
        force = discrete_inertia(model, state, inputs, data).mul_vec(qacc)
        qacc = solve_blocks(data.M, force)
    return inverse_dynamics(data, qacc)
