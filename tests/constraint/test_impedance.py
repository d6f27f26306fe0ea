"""Solver parameters at their corners: formats, saturation, ties; values by hand, gradients finite everywhere."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diffsim.constraint.impedance import impedance, reference, regularization, usable_solref
from tests.uncompiled import uncompiled

STEP = jnp.asarray(0.01)
SOLREF, SOLIMP = np.array([[0.02, 1.0]]), np.array([[0.9, 0.95, 0.001, 0.5, 2.0]])


@pytest.mark.parametrize(
    ("given", "refsafe", "expected"),
    [
        ([0.05, 0.7], True, [0.05, 0.7]),
        ([0.001, 1.0], True, [0.02, 1.0]),
        ([0.001, 1.0], False, [0.001, 1.0]),
        ([0.05, -1.0], True, [0.02, 1.0]),
        ([0.0, 1.0], True, [0.02, 1.0]),
        ([-500.0, -20.0], True, [-500.0, -20.0]),
        ([0.0, 0.0], True, [0.0, 0.0]),
    ],
)
def test_solref_formats(given, refsafe, expected):
    np.testing.assert_array_equal(usable_solref(jnp.asarray(given), (0.02, 1.0), STEP, refsafe), expected)


@pytest.mark.parametrize("count", [1, 8, 13, 16, 50])
def test_of_many_rows_as_of_each(count: int) -> None:
    """Some are computed in whole vectors, with rows that do not exist."""
    rng = np.random.default_rng(count)
    solimp = jnp.asarray(rng.uniform([0.1, 0.5, 0.01, 0.2, 1.0], [0.4, 0.9, 0.1, 0.8, 4.0], (count, 5)))
    violation = jnp.asarray(rng.uniform(-0.1, 0.1, count))
    slope = jax.grad(lambda x: jnp.sum(impedance(solimp, x)))(violation)
    for k, row in enumerate(solimp):
        alone, own = jax.value_and_grad(lambda x, row=row: impedance(row[None], x[None])[0])(violation[k])
        np.testing.assert_allclose(impedance(solimp, violation)[k], alone, rtol=1e-13)
        np.testing.assert_allclose(slope[k], own, rtol=1e-12)


@pytest.mark.parametrize(
    ("violation", "expected"),
    [(0.0, 0.9), (-0.0005, 0.925), (0.0005, 0.925), (-0.00025, 0.90625), (-0.001, 0.95), (-1.0, 0.95)],
)
def test_impedance_curve(violation, expected):
    np.testing.assert_allclose(impedance(jnp.asarray(SOLIMP), jnp.asarray([violation])), [expected], rtol=1e-12)


def test_standard_and_direct_formats():
    ref = reference(jnp.asarray(SOLREF), jnp.asarray(SOLIMP), jnp.zeros(1), STEP, True)
    np.testing.assert_allclose(ref.stiffness, 1 / (0.95 * 0.02) ** 2, rtol=1e-12)
    np.testing.assert_allclose(ref.damping, 2 / (0.95 * 0.02), rtol=1e-12)
    ref = reference(jnp.asarray([[-400.0, -30.0]]), jnp.asarray(SOLIMP), jnp.zeros(1), STEP, True)
    np.testing.assert_allclose(ref.stiffness, 400 / 0.95**2, rtol=1e-12)
    np.testing.assert_allclose(ref.damping, 30 / 0.95, rtol=1e-12)


CORNERS = {
    "on the bound": (SOLIMP, 0.0),
    "saturated": (SOLIMP, -0.001),
    "at the midpoint": (SOLIMP, -0.0005),
    "no width": (np.array([[0.9, 0.95, 0.0, 0.5, 2.0]]), -0.1),
    "flat": (np.array([[0.9, 0.9, 0.001, 0.5, 2.0]]), -0.0003),
    "linear": (np.array([[0.9, 0.95, 0.001, 0.5, 1.0]]), -0.0003),
    "out of range": (np.array([[-1.0, 2.0, -1.0, 3.0, 0.2]]), -0.0003),
}


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_gradients_are_finite(dtype):
    def total(solref, solimp, violation, diagonal):
        ref = reference(solref, solimp, violation, STEP.astype(dtype), True)
        return jnp.sum(ref.stiffness + ref.damping + ref.impedance + regularization(ref.impedance, diagonal))

    both = uncompiled(jax.value_and_grad(total, argnums=(0, 1, 2, 3)))
    solrefs = [[0.02, 1.0], [0.0, 0.0], [-400.0, -30.0], [0.02, -1.0]]
    for solref, (name, (solimp, violation)) in itertools.product(solrefs, CORNERS.items()):
        value, gradients = both(*(np.asarray(a, dtype) for a in ([solref], solimp, [violation], [0.0])))
        assert np.isfinite(value), (solref, name)
        assert value.dtype == dtype
        assert all(np.all(np.isfinite(part)) for part in gradients), (solref, name)
