"""Bound: the fields of some elements of an `mujoco.MjSpec`, the result of `bind` of Model and Data."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from diffsim.types.kinds import KINDS
from diffsim.types.record import near
from diffsim.types.topology import Topology
from diffsim.types.views import View, fields_of


class Bound:
    """The fields of some elements of an `mujoco.MjSpec`, in a model or in Data, by their short names (types/views.py).

        model.bind(spec.bodies).mass                         # (n,)
        data.bind(model, spec.joints).qpos                   # their coordinates, concatenated
        data = data.bind(model, spec.actuators).set("ctrl", [0.1, 0.2])

    Takes one element, or a list of elements of one kind. Their `id` is their index in the model, so the model must be
    compiled from this spec. Most fields have one row per element; for fields such as `qpos`, each element has several
    rows or none.

    Raises:
      KeyError: an element is not in the compiled model.
      TypeError: the elements are of several kinds.
      AttributeError: there is no such field; the message lists similar names.
    """

    def __init__(self, record: Any, model: Any, objects: Any) -> None:
        alone = hasattr(objects, "id")
        elements = [objects] if alone else list(objects)
        kinds = {type(element).__name__.removeprefix("Mjs").lower() for element in elements} or {"body"}
        if len(kinds) > 1 or not kinds <= set(KINDS):
            raise TypeError(f"bind takes elements of one kind that has rows in a model, not {', '.join(sorted(kinds))}")
        (kind,) = kinds
        removed = [element.id for element in elements if element.id < 0]
        if removed:
            raise KeyError(f"invalid id: {removed[0]}: this {kind} is not in the model")
        self._record = record
        self._alone = alone
        self._kind = kind
        self._views = [View(model, kind, element.id) for element in elements]

    @property
    def id(self) -> Any:
        """Indices of the elements in the model."""
        ids = [view.id for view in self._views]
        return ids[0] if self._alone else np.array(ids, int)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        array, place, _ = self._place(name)
        return array[place]

    def set(self, name: str, value: Any) -> Any:
        """Returns the record with new values in a field of these elements; the value has the shape of the attribute."""
        array, place, field = self._place(name)
        array = jnp.asarray(array)
        value = jnp.asarray(value, array.dtype)
        shape = array[place].shape
        value = value.reshape(shape) if value.size == np.prod(shape) else jnp.broadcast_to(value, shape)
        return self._record.replace(**{field: array.at[place].set(value)})

    def _place(self, name: str) -> tuple[Any, tuple[Any, ...], str]:
        """The array of a field, the index of the elements in it, and the full name of the field."""
        known = fields_of(self._kind)
        field = known.get(name)
        holder = self._record.topology if field and field.owner is Topology else self._record
        if field is None or not hasattr(holder, field.name):
            owners = (Topology, type(self._record)) if hasattr(self._record, "topology") else (type(self._record),)
            shown = [word for word, other in known.items() if any(issubclass(owner, other.owner) for owner in owners)]
            raise AttributeError(f"{name} is not available for this type, {self._kind}{near(name, shown)}")
        array = getattr(holder, field.name)
        declared = type(holder).__dataclass_fields__[field.name].metadata.get("shape", array.shape)
        # axes beyond the declared ones are batch axes, and come first
        axis = array.ndim - len(declared)
        rows = [np.arange(array.shape[axis])[view.rows(name)] for view in self._views]
        index = rows[0] if self._alone else np.concatenate([np.zeros(0, int), *map(np.atleast_1d, rows)])
        return array, (..., index, *[slice(None)] * (len(declared) - 1)), field.name
