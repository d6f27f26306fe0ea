"""PyTreeNode: MJX's base class of dataclasses that are pytrees."""

import dataclasses
import typing
from collections.abc import Mapping
from typing import Any, Self, dataclass_transform

import jax
import numpy as np
from jax import Array

from diffsim.types.record import child, leaf, static

# (key, child of a node)
Leaf = tuple[Any, Any]


class _Static:
    """A numpy array in the static structure of a pytree: hashed and compared by content."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self._key = (array.shape, array.dtype.str, array.tobytes())

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Static) and self._key == other._key


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(leaf, static, child))
class PyTreeNode:
    """Base class of frozen, keyword-only dataclasses that are pytrees; Brax and others inherit from it.

    As in MJX, a field is a child of the pytree if its type contains `jax.Array`; so is a field declared with `leaf` or
    `child` (types/record.py). All other fields are static, and may be numpy arrays.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)(cls)
        fields = dataclasses.fields(typing.cast(Any, cls))
        children = [field.name for field in fields if _is_child(field)]
        others = [field.name for field in fields if not _is_child(field)]

        def flatten(node: Any) -> tuple[list[Leaf], tuple[Any, ...]]:
            values = (getattr(node, name) for name in others)
            structure = tuple(_Static(value) if isinstance(value, np.ndarray) else value for value in values)
            return [(jax.tree_util.GetAttrKey(name), getattr(node, name)) for name in children], structure

        def unflatten(structure: tuple[Any, ...], leaves: Any) -> Any:
            node = object.__new__(cls)
            values = (value.array if isinstance(value, _Static) else value for value in structure)
            node.__dict__.update(zip(others, values, strict=True))
            node.__dict__.update(zip(children, leaves, strict=True))
            return node

        jax.tree_util.register_pytree_with_keys(cls, flatten, unflatten)

    @classmethod
    def fields(cls) -> tuple[dataclasses.Field, ...]:
        """The declared fields."""
        return dataclasses.fields(typing.cast(Any, cls))

    def replace(self, **fields: Any) -> Self:
        """A copy with some fields changed."""
        return dataclasses.replace(typing.cast(Any, self), **fields)

    def tree_replace(self, params: Mapping[str, Any]) -> Self:
        """A copy with fields changed, given by dotted paths: `model.tree_replace({"opt.timestep": 0.01})`."""
        changed = self
        for path, value in params.items():
            changed = _replaced(changed, path.split("."), value)
        return changed


def _replaced(node: Any, path: list[str], value: Any) -> Any:
    """A copy of the node with the field at a path changed."""
    name, *rest = path
    return node.replace(**{name: _replaced(getattr(node, name), rest, value) if rest else value})


def _is_child(field: dataclasses.Field) -> bool:
    """Whether a field is a child of the pytree."""
    declared = field.metadata
    if "static" in declared or "shape" in declared or "child" in declared:
        return not declared.get("static")
    return _has_array(field.type)


def _has_array(kind: Any) -> bool:
    """Whether `jax.Array` occurs in a type."""
    if kind is Array:
        return True
    if dataclasses.is_dataclass(kind):
        return any(_is_child(field) for field in dataclasses.fields(kind))
    return any(map(_has_array, typing.get_args(kind)))
