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
            # the quaternions of ball and free joints: the last four of seven numbers, or all
            of_joints = [group.qpos[:, -4:] for group in groups(model.topology) if group.kind.nq > group.kind.nv]
            places = np.concatenate([np.zeros((0, 4), int), *of_joints])
            if places.size:
                there = there.at[..., places].set(function(here[..., places], there[..., places]))
            changed[field.name] = there
        elif field.metadata.get("shape", ())[-1:] == (4,) and field.name.endswith("quat"):
            changed[field.name] = function(here, there)
    return dataclasses.replace(other, **changed)  # type: ignore[type-var]
