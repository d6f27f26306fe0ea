"""Optimizers that keep parameters valid: within bounds, positive, or unit quaternions; and optimizers of some leaves.

    optimizer = optimize.masked({
        "body_mass": optimize.in_logs(optax.adam(1e-2)),
        "dof_damping": optax.chain(optax.adam(1e-3), optimize.bounds(0.0, 5.0)),
        optimize.INERTIAL: optimize.in_log_cholesky(optax.adam(1e-2), rows=[1, 2]),
    })
    state = optimizer.init(model)
    updates, state = optimizer.update(jax.grad(loss)(model), state, model)
    model = diffsim.set_const(optax.apply_updates(model, updates))

Inertias stay positive definite with `in_log_cholesky`. Quaternions stay normalized with `unit_quaternions` at the end
of a chain: p <- (p + u) / |p + u|, the metric retraction of the sphere (Absil, Mahony and Sepulchre 2008, sec. 4.1).
The component of a gradient along a quaternion has no meaning, because the simulator normalizes quaternions; `project`
removes it.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from diffsim.base.checked import checked
from diffsim.base.errors import expect
from diffsim.kinematics.joints import groups
from diffsim.math.rotation import quat_normalize
from diffsim.math.vector import dot, scale
from diffsim.types import Inputs, Model, State
from diffsim.types.model import switch_fields
from diffsim.types.record import near

T = TypeVar("T")
Paths = str | tuple[str, ...]
# (quaternions, other quaternions) -> quaternions, (n, 4) each
OnQuaternions = Callable[[Array, Array], Array]

# leaves that are position vectors (nq,), which contain the quaternions of joints
POSITIONS = {State: ("qpos",), Inputs: (), Model: ("qpos0", "key_qpos")}

# largest change of a logarithm in one update; a factor beyond e^10 would leave nothing but rounding errors
LARGEST_LOG = 10.0
# the expected type of optimizers, for messages
OPTIMIZER = "an optimizer of optax, such as optax.adam(1e-2)"


class Transformation(NamedTuple):
    """An optax gradient transformation: init(params), update(updates, state, params)."""

    init: Callable[[Any], Any]
    update: Callable[..., tuple[Any, Any]]


def in_coordinates(optimizer: Any, encode: Callable[[Any], Any], decode: Callable[[Any], Any]) -> Transformation:
    """An optimizer of parameters p that works in coordinates z, with p = decode(z) and z = encode(p).

    `optimizer` gets the gradient with respect to z, (dp/dz)^T dloss/dp. Its step u becomes the update
    decode(z + u) - p.

    Args:
      optimizer: a complete optax optimizer, whose updates are steps (with learning rate and sign).
      encode: function from parameters to coordinates, both pytrees.
      decode: differentiable function from coordinates to parameters.

    Returns:
      An optimizer of p, with the interface of optax. Its `update` raises ValueError if it is called without parameters.

    Raises:
      ArgumentError: `optimizer` is not an optimizer.
    """

    expect(optimizer, "optimizer", OPTIMIZER, *Transformation._fields)

    def init(params: Any) -> Any:
        return optimizer.init(encode(params))

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        if params is None:
            raise ValueError("this optimizer needs the parameters: optimizer.update(gradient, state, params)")
        z = encode(params)
        slope = jax.vjp(decode, z)[1](updates)[0]
        steps, state = optimizer.update(slope, state, z)
        moved = decode(jax.tree.map(jnp.add, z, steps))
        return jax.tree.map(jnp.subtract, moved, params), state

    return Transformation(init, update)


def in_logs(optimizer: Any) -> Transformation:
    """An optimizer of positive parameters that works on their logarithms, so that they stay positive.

    Its steps are relative: one update changes a parameter by a factor of at most e^10.

    Args:
      optimizer: a complete optax optimizer, whose updates are steps (with learning rate and sign).

    Returns:
      An optimizer of the parameters themselves, with the interface of optax.

    Raises:
      ArgumentError: `optimizer` is not an optimizer.
    """

    expect(optimizer, "optimizer", OPTIMIZER, *Transformation._fields)

    def limited(gradient: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        steps, state = optimizer.update(gradient, state, params)
        return jax.tree.map(lambda step: jnp.clip(step, -LARGEST_LOG, LARGEST_LOG), steps), state

    inner = Transformation(optimizer.init, limited)
    return in_coordinates(inner, lambda p: jax.tree.map(jnp.log, p), lambda z: jax.tree.map(jnp.exp, z))


def bounds(lower: ArrayLike, upper: ArrayLike) -> Transformation:
    """A gradient transformation that keeps parameters within lower <= p <= upper, up to rounding.

    Put it at the end of a chain (projected gradients).

    Args:
      lower: lower bound, a number or an array that broadcasts to each leaf, in the leaf's units; may be infinite.
      upper: upper bound, likewise.

    Returns:
      A gradient transformation with the interface of optax. Its `update` raises ValueError if it is called without
      parameters.
    """

    def inside(p: Array, u: Array) -> Array:
        return jnp.clip(p + u, jnp.asarray(lower, p.dtype), jnp.asarray(upper, p.dtype)) - p

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        if params is None:
            raise ValueError("bounds needs the parameters: optimizer.update(gradient, state, params)")
        return jax.tree.map(inside, params, updates), state

    return Transformation(lambda params: (), update)


@checked
def project(model: Model, value: T, gradient: T) -> T:
    """The gradient without its components along quaternions.

    Args:
      model: the model, which says where qpos has quaternions.
      value: a State, an Inputs or a Model.
      gradient: a gradient with respect to `value`, of the same type.

    Returns:
      The gradient, of the same type.
    """
    return _on_quaternions(model, lambda q, g: g - scale(q, dot(q, g)), value, gradient)


@checked
def unit_quaternions(model: Model) -> Transformation:
    """A gradient transformation that keeps the quaternions of a State, an Inputs or a Model normalized.

    Put it at the end of a chain.

    Args:
      model: the model, which says where qpos has quaternions.

    Returns:
      A gradient transformation with the interface of optax. Its `update` raises ValueError if it is called without
      parameters.
    """

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        if params is None:
            raise ValueError("unit_quaternions needs the parameters: optimizer.update(gradient, state, params)")
        return _on_quaternions(model, lambda q, u: quat_normalize(q + u) - q, params, updates), state

    return Transformation(lambda params: (), update)


def masked(optimizers: Mapping[Paths, Any]) -> Transformation:
    """An optimizer of some leaves of a record (a Model, State or Inputs); all other leaves do not change.

    Args:
      optimizers: optimizers by the path of a leaf, such as "body_mass" or "opt.timestep", or by a tuple of paths. The
        optimizer for a tuple of paths gets a dictionary of these leaves.

    Returns:
      An optimizer of the record, with the interface of optax. Its `init` raises ValueError if a path does not exist or
      is given twice, or if a leaf was zero when the model was loaded, so that programs have no code for it
      (`load(..., keep=...)`).

    Raises:
      ArgumentError: an argument is not an optimizer.
    """

    expect(optimizers, "optimizers", "a dictionary of optimizers by the paths of leaves", "items")
    for paths, optimizer in optimizers.items():
        expect(optimizer, f"the optimizer of {paths!r}", OPTIMIZER, *Transformation._fields)

    def init(params: Any) -> Any:
        chosen = [path for paths in optimizers for path in (paths if isinstance(paths, tuple) else (paths,))]
        known = _leaves(params)
        for path in chosen:
            if path not in known:
                raise ValueError(f"{type(params).__name__} has no leaf {path!r}{near(path, known)}")
            if chosen.count(path) > 1:
                raise ValueError(f"{path} is given twice")
            name = path.rpartition(".")[2]
            if isinstance(params, Model) and name in switch_fields() and not params.topology.present[name].all():
                raise ValueError(
                    f"{path} was zero when the model was loaded and has no code; load it with keep={path!r}"
                )
        return tuple(optimizer.init(_read(params, paths)) for paths, optimizer in optimizers.items())

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        result = jax.tree.map(jnp.zeros_like, updates)
        states = []
        for (paths, optimizer), before in zip(optimizers.items(), state, strict=True):
            at = None if params is None else _read(params, paths)
            steps, after = optimizer.update(_read(updates, paths), before, at)
            states.append(after)
            for path, leaf in steps.items() if isinstance(paths, tuple) else [(paths, steps)]:
                result = _write(result, path.split("."), leaf)
        return result, tuple(states)

    return Transformation(init, update)


def _read(record: Any, paths: Paths) -> Any:
    """The leaf at a path, or a dictionary of the leaves at several paths."""
    if isinstance(paths, tuple):
        return {path: _read(record, path) for path in paths}
    for name in paths.split("."):
        record = getattr(record, name)
    return record


def _write(record: Any, names: Sequence[str], value: Any) -> Any:
    """A copy of the record with one leaf replaced. It is not checked, because updates need not be valid values."""
    inner = value if len(names) == 1 else _write(getattr(record, names[0]), names[1:], value)
    return dataclasses.replace(record, **{names[0]: inner})


def _leaves(record: Any) -> list[str]:
    """Paths of all leaves of a record."""
    paths = []
    for field in dataclasses.fields(record):
        if field.metadata.get("child"):
            paths += [f"{field.name}.{path}" for path in _leaves(getattr(record, field.name))]
        elif not field.metadata.get("static"):
            paths.append(field.name)
    return paths


def _on_quaternions(model: Model, function: OnQuaternions, value: T, other: T) -> T:
    """The record `other`, with each quaternion replaced by `function(quaternion of value, quaternion of other)`."""
    kind = type(value)
    if kind not in POSITIONS:
        raise TypeError(f"expected a State, an Inputs or a Model, got a {kind.__name__}")
    changed = {}
    for field in dataclasses.fields(value):  # type: ignore[arg-type]
        point, moved = getattr(value, field.name), getattr(other, field.name)
        if field.name in POSITIONS[kind]:
            # the quaternions of free joints (the last four of seven elements) and of balls (all four elements)
            of_joints = [group.qpos[:, -4:] for group in groups(model.topology) if group.kind.nq > group.kind.nv]
            places = np.concatenate([np.zeros((0, 4), int), *of_joints])
            if places.size:
                turned = function(jnp.asarray(point[..., places]), jnp.asarray(moved[..., places]))
                moved = jnp.asarray(moved).at[..., places].set(turned)
            changed[field.name] = moved
        elif field.metadata.get("shape", ())[-1:] == (4,) and field.name.endswith("quat"):
            changed[field.name] = function(jnp.asarray(point), jnp.asarray(moved))
    return dataclasses.replace(other, **changed)  # type: ignore[type-var]
