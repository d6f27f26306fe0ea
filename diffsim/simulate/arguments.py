"""Checks of what users pass to `forward`, `step` and the like, when tracing; an error says what to do instead.

Shapes are compared with the declared shapes, so that a forgotten `vmap`, the state of another model, or a scalar in
place of a vector does not broadcast silently. None of these checks is in the compiled program. In a batch of models
`model_axes` says which leaves differ between worlds; all other leaves are stored once.
"""

import dataclasses
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.base.checked import checked
from diffsim.base.errors import PrecisionWarning
from diffsim.types import Inputs, Model, State
from diffsim.types.record import Record, near
from diffsim.types.state import make_inputs


def check_arguments(model: Model, state: State, inputs: Inputs | None) -> Inputs:
    """The inputs, `make_inputs(model)` for None; warns if the model is less precise than JAX's default.

    Raises:
      TypeError: numbers of another precision than the model's.
      ValueError: shapes that do not fit one world of this model.
    """
    for prefix, record in (("", model), ("opt.", model.opt)):
        for field in dataclasses.fields(record):
            value = getattr(record, field.name)
            shape = field.metadata.get("shape")
            if shape is not None and np.ndim(value) > len(shape):
                raise ValueError(
                    f"model.{prefix}{field.name} has a batch axis; use jax.vmap with "
                    "in_axes=(diffsim.model_axes(model), ...)"
                )
    if model.qpos0.dtype == jnp.float32 and jnp.result_type(float) == jnp.float64:
        message = "the model is float32 although jax_enable_x64 is on: switch it on before diffsim.load"
        warnings.warn(message, PrecisionWarning, stacklevel=2)
    check_record("state", model, state)
    if inputs is None:
        return make_inputs(model)
    check_record("inputs", model, inputs)
    return inputs


def check_record(name: str, model: Model, record: Record) -> None:
    """Compares shapes and precision of a State or Inputs with what the model declares.

    Raises:
      TypeError, ValueError: as `check_arguments`.
    """
    for field in dataclasses.fields(record):  # type: ignore[arg-type]
        value = getattr(record, field.name)
        path = f"{name}.{field.name}"
        sizes = field.metadata["shape"]
        expected = tuple(getattr(model.topology, size) if isinstance(size, str) else size for size in sizes)
        shape = np.shape(value)
        if shape != expected:
            names = ", ".join(map(str, sizes))
            advice = f"one world of this model has ({names}) there; is this of another model?"
            if len(shape) > len(expected) and shape[len(shape) - len(expected) :] == expected:
                advice = (
                    "a batch needs jax.vmap, as in jax.vmap(diffsim.step, in_axes=(None, 0, 0))(model, states, inputs)"
                )
            raise ValueError(f"{path} has shape {shape}, expected {expected}: {advice}")
        if isinstance(value, jax.Array) and field.metadata["dtype"] is float and value.dtype != model.qpos0.dtype:
            raise TypeError(
                f"{path} is {value.dtype}, the model is {model.qpos0.dtype}; make both under the same jax_enable_x64"
            )


def check_shape(name: str, value: jax.Array, *expected: int) -> None:
    """Refuses an array of another shape: JAX would broadcast it, or read only its beginning.

    Raises:
      ValueError: shapes differ.
    """
    if np.shape(value) != expected:
        raise ValueError(f"{name} has shape {np.shape(value)}, expected {expected}; batch with jax.vmap")


@checked
def model_axes(model: Model, *fields: str) -> Model:
    """The `in_axes` (or `out_axes`) of a Model some of whose leaves have a leading batch axis.

    If fields are given, these leaves are batched. Otherwise, each leaf of `model` that has one axis more than declared
    is batched. A randomized model therefore needs no fields, and `vmap` copies no other leaves, such as meshes.

    Args:
      model: a model, or a batch of models.
      fields: paths of leaves, such as "body_mass" or "opt.timestep"; none to read them from `model`.

    Returns:
      A Model with 0 in place of batched leaves, and None in place of all others.

    Example:
      axes = diffsim.model_axes(model, "body_mass", "opt.timestep")
      models = jax.vmap(randomize, out_axes=axes)(keys)
      jax.vmap(diffsim.step, in_axes=(diffsim.model_axes(models), 0))(models, states)

    Raises:
      ValueError: an unknown field; the message lists near matches.
    """
    paths, tree = jax.tree_util.tree_flatten_with_path(model)
    names = [".".join(key.name for key in path) for path, _ in paths]
    for field in fields:
        if field not in names:
            raise ValueError(f"the model has no leaf {field!r}{near(field, names)}")
    ranks = declared_ranks(model)
    batched = set(fields) or {name for name, (_, leaf) in zip(names, paths, strict=True) if leaf.ndim > ranks[name]}
    return jax.tree_util.tree_unflatten(tree, [0 if name in batched else None for name in names])


def declared_ranks(record: Any, prefix: str = "") -> dict[str, int]:
    """Number of axes of each leaf of a record without a batch, by its path."""
    ranks: dict[str, int] = {}
    for field in dataclasses.fields(record):
        if field.metadata.get("child"):
            ranks |= declared_ranks(getattr(record, field.name), f"{prefix}{field.name}.")
        elif "shape" in field.metadata:
            ranks[prefix + field.name] = len(field.metadata["shape"])
    return ranks
