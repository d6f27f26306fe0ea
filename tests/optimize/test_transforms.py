"""Optimizers under which numbers stay legal."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import diffsim
from diffsim import optimize
from diffsim.math import quat_normalize, quat_to_mat
from diffsim.optimize.coordinates.log_cholesky import Inertial, from_log_cholesky, principal_axes, to_log_cholesky

ARM = """<mujoco><worldbody><body><joint name="a" axis="0 1 0" damping=".1"/><geom type="capsule" size=".04 .2"/>
<body pos="0 0 .4"><joint name="b" axis="0 1 0" damping=".1"/>
<geom type="box" size=".1 .05 .07" pos=".02 .03 .1"/></body></body></worldbody></mujoco>"""


def minimize(optimizer, loss, params, steps=300):
    @jax.jit
    def update(params, memory):
        updates, memory = optimizer.update(jax.grad(loss)(params), memory, params)
        return optax.apply_updates(params, updates), memory

    memory = optimizer.init(params)
    for _ in range(steps):
        params, memory = update(params, memory)
    return params


def test_bounds_and_logs() -> None:
    p = jnp.asarray([0.5, 2.0])
    ends = minimize(optax.chain(optax.sgd(0.1), optimize.bounds(0.0, 1.5)), lambda p: jnp.sum((p - 3) ** 2), p, 50)
    np.testing.assert_allclose(ends, 1.5, atol=1e-14)
    # the optimum of a function of logarithms, in one step of sgd
    goal = jnp.asarray([1e-3, 50.0])
    ends = minimize(optimize.in_logs(optax.sgd(1.0)), lambda p: 0.5 * jnp.sum((jnp.log(p) - jnp.log(goal)) ** 2), p, 2)
    np.testing.assert_allclose(ends, goal, rtol=1e-9)
    low = minimize(optimize.in_logs(optax.adam(5.0)), lambda p: jnp.sum(p), p, 20)
    assert np.all(np.asarray(low) > 0)
    with pytest.raises(ValueError, match="needs the parameters"):
        optimize.bounds(0, 1).update(p, ())


def turned(moments, seed=0):
    q = quat_normalize(jnp.asarray(np.random.default_rng(seed).normal(size=4)))
    return Inertial(jnp.asarray(2.0), jnp.asarray([0.1, -0.2, 0.3]), jnp.asarray(moments), q)


def matrix(inertial: Inertial) -> jax.Array:
    axes = quat_to_mat(inertial.quat)
    return axes @ jnp.diag(inertial.moments) @ axes.T


@pytest.mark.parametrize("moments", [(0.3, 0.2, 0.15), (0.2, 0.2, 0.1), (0.2, 0.2, 0.2), (0.2, 0.2, 1e-4)])
def test_log_cholesky_and_back(moments) -> None:
    one = turned(moments)
    back = from_log_cholesky(to_log_cholesky(one), one.quat)
    np.testing.assert_allclose(back.mass, one.mass, rtol=1e-14)
    np.testing.assert_allclose(back.center, one.center, atol=1e-14)
    np.testing.assert_allclose(matrix(back), matrix(one), atol=2e-6 * max(moments))
    # the axes keep their order and signs where they can be told apart
    if len(set(moments)) == 3:
        np.testing.assert_allclose(back.moments, one.moments, rtol=1e-9)
        np.testing.assert_allclose(back.quat, one.quat, atol=1e-9)


@pytest.mark.parametrize("moments", [(0.3, 0.2, 0.15), (0.2, 0.2, 0.2)])
def test_derivatives_of_inertias(moments) -> None:
    """Of the full matrix, which is what moves; also where the body has no axes of its own."""
    one = turned(moments)
    theta = to_log_cholesky(one)

    def physical(theta):
        return matrix(from_log_cholesky(theta, one.quat))

    run, slope, eps = jax.jit(physical), jax.jit(jax.jacfwd(physical))(theta), 1e-4
    differences = [(run(theta + eps * e) - run(theta - eps * e)) / (2 * eps) for e in np.eye(10)]
    np.testing.assert_allclose(slope, np.stack(differences, axis=-1), atol=1e-7)
    assert np.isfinite(jax.jit(jax.jacrev(physical))(theta)).all()


def test_any_numbers_are_physical() -> None:
    thetas = jnp.asarray(np.random.default_rng(3).normal(size=(200, 10)))
    found = jax.vmap(from_log_cholesky, in_axes=(0, None))(thetas, jnp.asarray([1.0, 0, 0, 0]))
    moments = np.asarray(found.moments)
    assert np.all(found.mass > 0) and np.all(moments > 0)
    assert np.all(2 * moments.max(axis=1) < moments.sum(axis=1) * (1 + 1e-9))
    equal = principal_axes(jnp.eye(3), jnp.asarray([1.0, 0, 0, 0]))
    np.testing.assert_allclose(equal[0], 1, atol=1e-15)


def test_leaves_of_a_model() -> None:
    model = diffsim.load(ARM)
    goal = model.replace(dof_damping=jnp.asarray([0.4, 0.02]), body_mass=2 * model.body_mass)
    wanted = turned((0.03, 0.02, 0.015), 4)

    def loss(model):
        one = Inertial(*(getattr(model, name)[2] for name in optimize.INERTIAL))
        apart = jnp.sum((jnp.log(model.dof_damping) - jnp.log(goal.dof_damping)) ** 2)
        return apart + 1e3 * jnp.sum((matrix(one) - matrix(wanted)) ** 2) + jnp.sum((one.center - wanted.center) ** 2)

    optimizer = optimize.masked(
        {
            "dof_damping": optimize.in_logs(optax.adam(0.05)),
            optimize.INERTIAL: optimize.in_log_cholesky(optax.adam(0.05), rows=[2]),
        }
    )
    found = minimize(optimizer, loss, model, 400)
    np.testing.assert_allclose(found.dof_damping, goal.dof_damping, rtol=1e-3)
    one = Inertial(*(getattr(found, name)[2] for name in optimize.INERTIAL))
    np.testing.assert_allclose(matrix(one), matrix(wanted), atol=2e-5)
    np.testing.assert_allclose(np.linalg.norm(found.body_iquat, axis=1), 1, atol=1e-12)
    # nothing else moved
    np.testing.assert_array_equal(found.body_inertia[1], model.body_inertia[1])
    np.testing.assert_array_equal(found.geom_size, model.geom_size)


def test_wrong_leaves_are_refused() -> None:
    model = diffsim.load(ARM)
    adam = optax.adam(0.1)
    with pytest.raises(ValueError, match=r"no leaf 'body_mas'.*body_mass"):
        optimize.masked({"body_mas": adam}).init(model)
    with pytest.raises(ValueError, match="given twice"):
        optimize.masked({"body_mass": adam, ("body_mass", "body_ipos"): adam}).init(model)
    with pytest.raises(ValueError, match="has no code"):
        optimize.masked({"dof_frictionloss": adam}).init(model)
    with pytest.raises(ValueError, match=r"bodies \[0\] have no log-Cholesky"):
        optimize.masked({optimize.INERTIAL: optimize.in_log_cholesky(adam, [0, 1])}).init(model)
    held = optimize.masked({"opt.gravity": optax.sgd(1.0)})
    updates, _ = held.update(jax.tree.map(jnp.ones_like, model), held.init(model), model)
    assert float(updates.opt.gravity[2]) == -1 and float(jnp.sum(jnp.abs(updates.body_mass))) == 0
