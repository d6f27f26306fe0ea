"""rollout with a policy: the same steps as by hand, new randomness at each, derivatives, and what it may cost."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import diffsim
from tests.uncompiled import uncompiled

MODEL = """
<mujoco>
  <worldbody>
    <body>
      <joint name="hinge" axis="0 1 0" damping="0.1"/><geom type="capsule" fromto="0 0 0 0 0 -1" size="0.05"/>
    </body>
  </worldbody>
  <actuator><motor name="drive" joint="hinge"/></actuator>
  <sensor><jointactuatorfrc joint="hinge"/><jointpos joint="hinge"/></sensor>
</mujoco>
"""


@pytest.fixture(scope="module")
def model() -> diffsim.Model:
    return diffsim.load(MODEL)


def act(state: diffsim.State, data: diffsim.Data, key: jax.Array) -> jax.Array:
    # the actuator's force is that of the control before
    noise = 0.1 * jax.random.normal(key, (1,))
    return 0.5 * data.sensordata[:1] - data.sensordata[1:] + noise


def test_the_loop_is_that_of_steps_by_hand(model: diffsim.Model) -> None:
    state = diffsim.make_state(model).replace(qpos=jnp.array([0.4]))
    key = jax.random.key(3)
    policy = diffsim.Policy(act, 5, key)
    read = lambda state, data: (state.time, data.sensordata)  # noqa: E731
    final, (times, seen) = jax.jit(lambda s: diffsim.rollout(model, s, policy, read))(state)
    inputs = diffsim.make_inputs(model)
    forward, step_data = uncompiled(diffsim.forward), uncompiled(diffsim.step_data)
    for step, own in enumerate(jax.random.split(key, 5)):
        inputs = inputs.replace(ctrl=act(state, forward(model, state, inputs), own))
        assert float(times[step]) == float(state.time)
        state, data = step_data(model, state, inputs)
        np.testing.assert_allclose(seen[step], data.sensordata, atol=1e-12)
    np.testing.assert_allclose(final.qpos, state.qpos, atol=1e-12)


def test_without_a_key_and_with_derivatives(model: diffsim.Model) -> None:
    state = diffsim.make_state(model).replace(qpos=jnp.array([0.4]))

    def end(gain: jax.Array) -> jax.Array:
        policy = diffsim.Policy(lambda state, data, key: -gain * state.qvel, 4)
        return diffsim.rollout(model, state, policy)[0].qpos[0]

    both, h = uncompiled(jax.value_and_grad(end)), 1e-4
    expected = (both(2.0 + h)[0] - both(2.0 - h)[0]) / (2 * h)
    np.testing.assert_allclose(both(2.0)[1], expected, rtol=1e-6)


def test_what_the_policy_does_not_read_is_not_computed(model: diffsim.Model) -> None:
    """Floating point operations of a loop that reads the state, beside those of given controls."""
    state = diffsim.make_state(model)

    def flops(ctrl: diffsim.Policy | jax.Array) -> float:
        compiled = jax.jit(lambda s: diffsim.rollout(model, s, ctrl)[0]).lower(state).compile()
        return compiled.cost_analysis()["flops"]

    closed = flops(diffsim.Policy(lambda state, data, key: -state.qvel, 5))
    assert closed < 1.05 * flops(jnp.zeros((5, 1))) + 10


def test_wrong_controls_are_refused(model: diffsim.Model) -> None:
    policy = diffsim.Policy(lambda state, data, key: jnp.zeros(2), 3)
    with pytest.raises(ValueError, match=r"shape \(2,\), expected \(1,\)"):
        diffsim.rollout(model, diffsim.make_state(model), policy)
