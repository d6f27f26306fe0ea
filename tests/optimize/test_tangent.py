"""The tangent space of states, and quaternions under optimizers."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import diffsim
from diffsim import optimize
from tests.uncompiled import uncompiled

XML = """<mujoco><worldbody><body quat="1 1 0 0"><freejoint/><geom size=".1"/>
<body><joint type="ball"/><geom size=".1" pos=".2 0 0"/>
<body><joint name="h"/><geom size=".1" pos="0 .2 0"/></body></body>
</body></worldbody><actuator><general joint="h" dyntype="filter" dynprm=".1"/></actuator></mujoco>"""


@pytest.fixture(scope="module")
def model() -> diffsim.Model:
    return diffsim.load(XML)


integrate, difference = uncompiled(optimize.integrate), uncompiled(optimize.difference)


def random_state(model: diffsim.Model, seed: int) -> diffsim.State:
    change = np.random.default_rng(seed).normal(size=2 * model.nv + model.na)
    return integrate(model, diffsim.make_state(model), jnp.asarray(change))


def test_integrate_undoes_difference(model: diffsim.Model) -> None:
    a, b = random_state(model, 0), random_state(model, 1)
    change = difference(model, a, b)
    assert change.shape == (2 * 10 + 1,)
    back = integrate(model, b, change)
    signs = np.sign(np.asarray(back.qpos) * np.asarray(a.qpos))[[3, 7]]
    expected = np.asarray(a.qpos) * np.repeat([1, signs[0], signs[1], 1], [3, 4, 4, 1])
    np.testing.assert_allclose(back.qpos, expected, atol=1e-12)
    np.testing.assert_allclose(back.qvel, a.qvel, atol=1e-12)
    np.testing.assert_allclose(back.act, a.act, atol=1e-12)
    slope = uncompiled(jax.jacfwd(lambda d: optimize.difference(model, optimize.integrate(model, a, d), a)))(0 * change)
    np.testing.assert_allclose(slope, np.eye(21), atol=1e-12)


def off_manifold(state: diffsim.State) -> jax.Array:
    """A function that sees the lengths of quaternions too."""
    return jnp.sum(jnp.sin(3 * state.qpos)) + jnp.sum(state.qvel**3) + jnp.sum(jnp.exp(state.act))


def test_gradients_in_tangent_coordinates(model: diffsim.Model) -> None:
    state = random_state(model, 2)
    gradient = uncompiled(jax.grad(off_manifold))(state)
    expected = uncompiled(jax.grad(lambda d: off_manifold(optimize.integrate(model, state, d))))(jnp.zeros(21))
    np.testing.assert_allclose(optimize.tangent_gradient(model, state, gradient), expected, atol=1e-12)
    projected = optimize.project(model, state, gradient)
    for start in (3, 7):
        quat, part = (np.asarray(record.qpos)[start : start + 4] for record in (state, projected))
        assert abs(quat @ part) < 1e-12
    # nothing that counts is lost
    np.testing.assert_allclose(optimize.tangent_gradient(model, state, projected), expected, atol=1e-12)


def test_quaternions_stay_unit_under_optax(model: diffsim.Model) -> None:
    optimizer = optax.chain(optax.adam(0.1), optimize.unit_quaternions(model))
    goal = random_state(model, 5)

    def loss(state: diffsim.State) -> jax.Array:
        return jnp.sum(optimize.difference(model, state, goal) ** 2)

    @jax.jit
    def update(state: diffsim.State, memory: optax.OptState) -> tuple[diffsim.State, optax.OptState]:
        updates, memory = optimizer.update(jax.grad(loss)(state), memory, state)
        return optax.apply_updates(state, updates), memory

    state = diffsim.make_state(model)
    memory, before = optimizer.init(state), float(loss(state))
    for _ in range(50):
        state, memory = update(state, memory)
        for start in (3, 7):
            assert abs(np.linalg.norm(state.qpos[start : start + 4]) - 1) < 1e-14
    assert float(loss(state)) < 0.02 * before


def test_quaternions_of_models_stay_unit(model: diffsim.Model) -> None:
    transformation = optimize.unit_quaternions(model)
    updates = jax.tree.map(jnp.ones_like, model)
    updates, _ = transformation.update(updates, (), model)
    later = jax.tree.map(jnp.add, model, updates)
    for name in ("body_quat", "body_iquat", "geom_quat"):
        np.testing.assert_allclose(np.linalg.norm(getattr(later, name), axis=1), 1, atol=1e-14)
    np.testing.assert_allclose(np.linalg.norm(later.qpos0[3:7]), 1, atol=1e-14)
    np.testing.assert_allclose(later.body_mass, model.body_mass + 1)
    with pytest.raises(ValueError, match="needs the parameters"):
        transformation.update(updates, ())


def test_inputs_can_be_differentiated(model: diffsim.Model) -> None:
    inputs = diffsim.make_inputs(model)

    def energy(inputs: diffsim.Inputs) -> jax.Array:
        return jnp.sum(inputs.ctrl**2) + jnp.sum(jnp.where(inputs.eq_active, 1.0, 2.0))

    gradient = jax.grad(energy)(inputs.replace(ctrl=jnp.ones(1)))
    assert isinstance(gradient, diffsim.Inputs) and float(gradient.ctrl[0]) == 2
    memory = optax.adam(0.1).init(inputs)
    updates, _ = optax.adam(0.1).update(gradient, memory, inputs)
    assert optax.apply_updates(inputs, updates).eq_active.dtype == bool
