"""set_const: the same numbers however it is run, and derivatives with respect to the model."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest
from compiler.compare import differences
from compiler.features import FEATURES
from uncompiled import uncompiled

from diffsim.compiler import from_mujoco
from diffsim.compiler.host.interpret import interpret
from diffsim.simulate.constants import constants, set_const
from diffsim.types import Model

SERVOS = FEATURES["servos"]


@pytest.fixture(scope="module")
def model() -> Model:
    """A model with free, hinge and slide joints, tendons, servos, equalities."""
    return from_mujoco(oracle.load_oracle(SERVOS))


compute = jax.jit(set_const)


def test_it_restores_what_the_oracle_computes(model: Model) -> None:
    derived = {f.name: 0 * getattr(model, f.name) for f in dataclasses.fields(Model) if f.metadata.get("derived")}
    emptied = dataclasses.replace(model, **derived)
    assert differences(compute(emptied), oracle.load_oracle(SERVOS)) == []


def test_numpy_and_xla_agree(model: Model) -> None:
    interpreted, complete = interpret(constants, model), compute(model)
    compiled = {name: getattr(complete, name) for name in interpreted if name != "stat"}
    compiled["stat"] = {name: getattr(complete.stat, name) for name in interpreted["stat"]}
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12), interpreted, compiled)


def test_dtypes_are_those_of_the_model(model: Model) -> None:
    before, after = jax.tree.leaves(model), jax.tree.leaves(compute(model))
    assert all(a.dtype == b.dtype and a.shape == b.shape for a, b in zip(before, after, strict=True))
    assert not any(leaf.weak_type for leaf in after)


def _summary(model: Model, mass: jax.Array, arm: jax.Array) -> jax.Array:
    """A number that depends on every derived field."""
    changed = set_const(model.replace(body_mass=mass, body_pos=arm))
    rng = np.random.default_rng(0)
    total = jnp.zeros(())
    for leaf in jax.tree.leaves(changed):
        if jnp.issubdtype(leaf.dtype, jnp.floating):
            total = total + jnp.sum(jnp.sin(leaf) * rng.normal(size=leaf.shape))
    return total


def test_derivatives_agree_with_differences(model: Model) -> None:
    rng = np.random.default_rng(1)
    point = (model.body_mass, model.body_pos)
    along = tuple(jnp.asarray(rng.normal(size=value.shape)) for value in point)

    @uncompiled
    def line(step: jax.Array) -> tuple:
        place = tuple(p + step * d for p, d in zip(point, along, strict=True))
        value, slope = jax.linearize(lambda *at: _summary(model, *at), *place)
        return value, slope(*along), jax.linear_transpose(slope, *place)(jnp.ones(()))

    _, forward, gradient = line(0.0)
    reverse = sum(jnp.vdot(g, d) for g, d in zip(gradient, along, strict=True))
    slopes = [(line(h)[0] - line(-h)[0]) / (2 * h) for h in (1e-4, 2e-4)]
    richardson = (4 * slopes[0] - slopes[1]) / 3
    np.testing.assert_allclose(forward, richardson, rtol=1e-6)
    np.testing.assert_allclose(reverse, forward, rtol=1e-9)
    assert all(np.isfinite(g).all() for g in gradient)
