"""What a rollout says of its first state: it is the one that was given, whatever the controls are."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import diffsim
from tests.uncompiled import uncompiled

SLIDER = """<mujoco><worldbody><body><joint name="x" type="slide"/><geom size=".1"/></body></worldbody>
  <actuator><motor joint="x"/></actuator></mujoco>"""


@pytest.mark.parametrize("first", [0.3, np.nan, np.inf])
def test_the_first_state_is_no_function_of_the_controls(first: float) -> None:
    model = diffsim.load(SLIDER)
    state = diffsim.make_state(model)
    state = state.replace(qpos=state.qpos + 0.5, qvel=state.qvel - 0.25)

    def states(ctrl: jax.Array) -> jax.Array:
        kept = diffsim.rollout(model, state, ctrl).readouts
        return jnp.concatenate([kept.qpos, kept.qvel], axis=-1)

    controls = jnp.array([[[first], [0.0]], [[first], [1.0]]])
    found, slopes = (uncompiled(jax.vmap(function))(controls) for function in (states, jax.jacrev(states)))
    np.testing.assert_array_equal(found[:, 0], [[0.5, -0.25]] * 2)
    np.testing.assert_array_equal(slopes[:, 0], 0)
    # the next velocity is
    mass = float(model.body_mass[1])
    if np.isfinite(first):
        np.testing.assert_allclose(slopes[:, 1, 1, 0, 0], float(model.opt.timestep) / mass, rtol=1e-12)


def test_batches_of_what_only_slides_have_derivatives() -> None:
    """Orientations are the same in all worlds there, and have no batch axis."""
    model = diffsim.load(
        "<mujoco><worldbody><body><joint type='slide'/><geom size='.1' pos='0 .1 .2'/></body></worldbody></mujoco>"
    )
    state = diffsim.make_state(model)

    def reached(qvel: jax.Array) -> jax.Array:
        final = jax.vmap(lambda v: diffsim.rollout(model, state.replace(qvel=v), jnp.zeros((2, 0))).final)(qvel)
        return jnp.sum(final.qpos)

    slope = jax.grad(reached)(jnp.ones((3, 1)))
    np.testing.assert_allclose(slope, 2 * model.opt.timestep, rtol=1e-9)
