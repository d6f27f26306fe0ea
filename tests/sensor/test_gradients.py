"""Derivatives of all sensors: forward and reverse mode against Richardson differences, finite at singular states.

What is varied are the float inputs of the stage (poses, velocities, forces, state) in random directions, all at once.
Sensors with a discrete output are left out of the comparison with differences, not out of finiteness.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from oracle import MODELS, load_pair, sample, visited_states

from diffsim.sensor import read_sensors
from tests.derivatives import richardson
from tests.sensor.feed import readings_of
from tests.uncompiled import uncompiled

Array = jax.Array
STEP = 5e-5

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


def floats_of(arguments: Any) -> list:
    """The float leaves of the arguments of `read_sensors` that are varied."""
    model, *others = arguments
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(others)]
    return [leaf for leaf in leaves if leaf.dtype == float] + [np.asarray(getattr(model, name)) for name in FIELDS]


def evaluate(arguments: Any, values: list) -> Array:
    """read_sensors, with other values for those leaves."""
    model, *others = arguments
    leaves, tree = jax.tree.flatten(others)
    rest = iter(values)
    merged = [next(rest) if jnp.issubdtype(jnp.asarray(leaf).dtype, jnp.floating) else leaf for leaf in leaves]
    changed = dict(zip(FIELDS, rest, strict=True))
    return read_sensors(model.replace(**changed), *jax.tree.unflatten(tree, merged))


@uncompiled
def push(arguments: Any, values: list, direction: list) -> tuple[Array, Array]:
    return jax.jvp(lambda v: evaluate(arguments, v), (values,), (direction,))


@uncompiled
def pull(arguments: Any, values: list, weights: Array) -> list:
    return jax.vjp(lambda v: evaluate(arguments, v), values)[1](weights)[0]


value = uncompiled(evaluate)


def direction_of(values: list, seed: int) -> list:
    """A random relative change: zeros stay zero, so that no cutoff, margin or opacity appears."""
    rng = np.random.default_rng(seed)
    return [value * rng.normal(size=value.shape) for value in values]


def test_jvp_and_vjp_against_differences() -> None:
    arguments = readings_of(XML, visited_states(load_pair(XML)[1], 3)[2])
    values = floats_of(arguments)
    direction = direction_of(values, 0)
    out, tangent = push(arguments, values, direction)

    def shifted(change: list) -> jax.Array:
        return value(arguments, [v + c for v, c in zip(values, change, strict=True)])

    numeric = richardson(shifted, direction, STEP)
    scale = 1 + np.abs(numeric)
    np.testing.assert_allclose(np.asarray(tangent) / scale, numeric / scale, rtol=0, atol=1e-6)
    weights = np.random.default_rng(1).normal(size=out.shape) / (1 + np.abs(tangent))
    pulled = pull(arguments, values, weights)
    product = sum(float(np.vdot(a, b)) for a, b in zip(pulled, direction, strict=True))
    np.testing.assert_allclose(product, float(np.vdot(weights, tangent)), rtol=1e-9)


def test_finite_at_rest_without_contacts() -> None:
    model, mjmodel = load_pair(XML)
    arguments = readings_of(XML, sample(mjmodel, 0, speed=0.0, spread=0.0))
    pulled = pull(arguments, floats_of(arguments), np.ones(model.topology.nsensordata))
    assert all(np.all(np.isfinite(value)) for value in pulled)
