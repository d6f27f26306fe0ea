"""Unit quaternions under optimizers that know nothing of them: gradients made tangent, steps retracted.

A gradient with respect to a quaternion q has a part along q, which says nothing: the simulator normalizes. `project`
removes it, in any record or pytree of records (State, Inputs, Model). `unit_quaternions` is an optax transformation,
the last of a chain, after whose updates all quaternions are unit:

    optimizer = optax.chain(optax.adam(1e-2), optimize.unit_quaternions(model))

p <- (p + u) / |p + u|, the metric retraction of the sphere (Absil, Mahony and Sepulchre 2008, sec. 4.1).
"""

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import numpy as np

from diffsim.base.checked import checked
from diffsim.kinematics.joints import groups
from diffsim.math.rotation import quat_normalize
from diffsim.math.vector import dot, scale
from diffsim.optimize.coordinates.transforms import Transformation
from diffsim.types import Inputs, Model, State
from diffsim.types.topology import Topology, per_topology

Array = jax.Array
T = TypeVar("T")
# (quaternions, other quaternions) -> quaternions, (n, 4) each
OnQuaternions = Callable[[Array, Array], Array]

# position vectors (nq,), in which the quaternions of the joints stand
POSITIONS = {State: ("qpos",), Inputs: (), Model: ("qpos0", "key_qpos")}


@checked
def project(model: Model, value: T, gradient: T) -> T:
    """The gradient without what points along quaternions.

    Args:
      model: tells where in qpos the quaternions stand.
      value: a State, an Inputs or a Model.
      gradient: with respect to it; of the same kind.
    """
    return _on_quaternions(model, lambda q, g: g - scale(q, dot(q, g)), value, gradient)


@checked
def unit_quaternions(model: Model) -> Transformation:
    """An optax transformation for parameters that are a State, an Inputs or a Model; the last of a chain."""

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        if params is None:
            raise ValueError("unit_quaternions needs the parameters: optimizer.update(gradient, state, params)")
        return _on_quaternions(model, lambda q, u: quat_normalize(q + u) - q, params, updates), state

    return Transformation(lambda params: (), update)


def _on_quaternions(model: Model, function: OnQuaternions, value: T, other: T) -> T:
    """`other`, with the function of (value, other) in the place of its quaternions."""
    kind = type(value)
    if kind not in POSITIONS:
        raise TypeError(f"expected a State, an Inputs or a Model, got a {kind.__name__}")
    changed = {}
    for field in dataclasses.fields(value):  # type: ignore[arg-type]
        here, there = getattr(value, field.name), getattr(other, field.name)
        if field.name in POSITIONS[kind]:
            changed[field.name] = _in_position(model.topology, function, here, there)
        elif field.metadata.get("shape", ())[-1:] == (4,) and field.name.endswith("quat"):
            changed[field.name] = function(here, there)
    return dataclasses.replace(other, **changed)  # type: ignore[type-var]


def _in_position(topology: Topology, function: OnQuaternions, value: Array, other: Array) -> Array:
    places = _quaternion_places(topology)
    return other.at[..., places].set(function(value[..., places], other[..., places])) if places.size else other


@per_topology
def _quaternion_places(topology: Topology) -> np.ndarray:
    """(n, 4) where in qpos the quaternions of ball and free joints stand."""
    # the last four of seven, or all
    found = [group.qpos[:, -4:] for group in groups(topology) if group.kind.nq > group.kind.nv]
    return np.concatenate([np.zeros((0, 4), int), *found])
