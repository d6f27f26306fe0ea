"""Derivatives of all sensors: forward and reverse mode against Richardson differences, finite at singular states.

What is varied are the float inputs of the stage (poses, velocities, forces, state) in random directions, all at once.
Sensors with a discrete output are left out of the comparison with differences, not out of finiteness.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracle import MODELS, load_pair, sample, visited_states

from diffsim.sensor import sensors
from tests.sensor.feed import readings_of

Array = jax.Array
STEP = 1e-4

# rays are slow to compile in reverse mode: one group of them is enough here
LINES = (MODELS / "sensors.xml").read_text().splitlines()
XML = "\n".join(line for line in LINES if "<rangefinder" not in line or 'site="out"' in line)


FIELDS = (
    "body_mass",
    "body_iquat",
    "geom_quat",
    "geom_size",
    "site_size",
    "cam_fovy",
    "cam_intrinsic",
    "jnt_margin",
    "jnt_range",
    "sensor_cutoff",
)


def split(arguments: Any) -> tuple[list, Any]:
    """The float leaves that are varied, and a function that puts them back."""
    model, *others = arguments
    leaves, tree = jax.tree.flatten(others)
    floats = [i for i, leaf in enumerate(leaves) if np.issubdtype(np.asarray(leaf).dtype, np.floating)]

    def join(values: list) -> Any:
        merged = list(leaves)
        for i, value in zip(floats, values, strict=False):
            merged[i] = value
        changed = dict(zip(FIELDS, values[len(floats) :], strict=True))
        return model.replace(**changed), *jax.tree.unflatten(tree, merged)

    return [jnp.asarray(leaves[i]) for i in floats] + [getattr(model, name) for name in FIELDS], join


def direction_of(values: list, seed: int) -> list:
    """A random relative change: zeros stay zero, so that no cutoff, margin or opacity appears."""
    rng = np.random.default_rng(seed)
    return [value * rng.normal(size=value.shape) for value in values]


def shifted(values: list, direction: list, step: float) -> list:
    return [value + step * change for value, change in zip(values, direction, strict=True)]


def richardson(function: Any, values: list, direction: list) -> np.ndarray:
    """Central differences, extrapolated to fourth order."""

    def central(step: float) -> np.ndarray:
        ahead, behind = (function(shifted(values, direction, s)) for s in (step, -step))
        return np.asarray(ahead - behind) / (2 * step)

    return (4 * central(STEP / 2) - central(STEP)) / 3


@pytest.fixture(scope="module")
def case() -> Any:
    _, mjmodel = load_pair(XML)
    arguments = readings_of(XML, visited_states(mjmodel, 3)[2])
    values, join = split(arguments)
    direction = direction_of(values, 0)
    evaluate = jax.jit(lambda values: sensors(*join(values)))
    return values, direction, evaluate


def test_jvp_and_vjp_against_differences(case: Any) -> None:
    values, direction, evaluate = case
    out, tangent = jax.jit(lambda v, d: jax.jvp(evaluate, (v,), (d,)))(values, direction)
    numeric = richardson(evaluate, values, direction)
    scale = 1 + np.abs(numeric)
    np.testing.assert_allclose(np.asarray(tangent) / scale, numeric / scale, rtol=0, atol=1e-6)
    weights = jnp.asarray(np.random.default_rng(1).normal(size=out.shape)) / (1 + jnp.abs(tangent))
    pulled = jax.jit(lambda v, w: jax.vjp(evaluate, v)[1](w)[0])(values, weights)
    product = sum(float(jnp.vdot(a, b)) for a, b in zip(pulled, direction, strict=True))
    np.testing.assert_allclose(product, float(jnp.vdot(weights, tangent)), rtol=1e-9)


def test_finite_at_rest_without_contacts() -> None:
    _, mjmodel = load_pair(XML)
    arguments = readings_of(XML, sample(mjmodel, 0, speed=0.0, spread=0.0))
    values, join = split(arguments)
    jacobian = jax.jit(lambda v, w: jax.vjp(lambda v: sensors(*join(v)), v)[1](w)[0])
    size = sensors(*arguments).shape
    for value in jacobian(values, jnp.ones(size)):
        assert np.all(np.isfinite(value))
