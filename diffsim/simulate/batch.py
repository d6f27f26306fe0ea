"""Batches of models: which leaves differ between worlds. The rest is stored once, whatever the number of worlds."""

import dataclasses
from typing import Any

import jax

from diffsim.base.checked import checked
from diffsim.types import Model
from diffsim.types.record import near


@checked
def model_axes(model: Model, *fields: str) -> Model:
    """The `in_axes` (or `out_axes`) of a Model some of whose leaves have a leading batch axis.

    With fields, these are batched. Without, the leaves of `model` that have an axis more than they are declared with:
    so a randomized model says itself what differs, and `vmap` copies nothing else (meshes, say).

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
