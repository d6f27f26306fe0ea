"""bind: fields of the objects of an `mujoco.MjSpec`, in a model or in Data, by the short names of types/views.py.

    model.bind(spec.bodies).mass                         # (n,)
    data.bind(model, spec.joints).qpos                   # their coordinates, one after another
    data = data.bind(model, spec.actuators).set("ctrl", [0.1, 0.2])

Objects are an element of a spec or a list of elements of one kind. Which object of the model an element is, its `id`
says, so the spec must be the one that the model was compiled from.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np

from diffsim.types.kinds import KINDS
from diffsim.types.record import near
from diffsim.types.topology import Topology
from diffsim.types.views import View, fields_of


class Bound:
    """Objects of a model, whose fields are attributes: a row for each, or, of `qpos` and the like, all their rows.

    Raises:
      KeyError: an element that is not in the compiled model. TypeError: elements of several kinds.
      AttributeError: no such field; the message lists near matches.
    """

    def __init__(self, record: Any, model: Any, objects: Any) -> None:
        alone = hasattr(objects, "id")
        elements = [objects] if alone else list(objects)
        kinds = {type(element).__name__.removeprefix("Mjs").lower() for element in elements} or {"body"}
        if len(kinds) > 1 or not kinds <= set(KINDS):
            raise TypeError(f"bind takes elements of one kind that a model counts, not {', '.join(sorted(kinds))}")
        (kind,) = kinds
        removed = [element.id for element in elements if element.id < 0]
        if removed:
            raise KeyError(f"invalid id: {removed[0]}: this {kind} is not in the model")
        self._record, self._alone, self._kind = record, alone, kind
        self._views = [View(model, kind, element.id) for element in elements]

    @property
    def id(self) -> Any:
        """Indices of the objects."""
        ids = [view.id for view in self._views]
        return ids[0] if self._alone else np.array(ids, int)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        array, place, _ = self._place(name)
        return array[place]

    def set(self, name: str, value: Any) -> Any:
        """The record with other values of a field of these objects, of the shape that the attribute has."""
        array, place, field = self._place(name)
        array, value = jnp.asarray(array), jnp.asarray(value, array.dtype)
        shape = array[place].shape
        value = value.reshape(shape) if value.size == np.prod(shape) else jnp.broadcast_to(value, shape)
        return self._record.replace(**{field: array.at[place].set(value)})

    def _place(self, name: str) -> tuple[Any, tuple[Any, ...], str]:
        """The array of a field, where the objects are in it, and the field's full name."""
        known = fields_of(self._kind)
        field = known.get(name)
        holder = self._record.topology if field and field.owner is Topology else self._record
        if field is None or not hasattr(holder, field.name):
            owners = (Topology, type(self._record)) if hasattr(self._record, "topology") else (type(self._record),)
            shown = [word for word, each in known.items() if any(issubclass(owner, each.owner) for owner in owners)]
            raise AttributeError(f"{name} is not available for this type, {self._kind}{near(name, shown)}")
        array = getattr(holder, field.name)
        declared = type(holder).__dataclass_fields__[field.name].metadata.get("shape", array.shape)
        axis = array.ndim - len(declared)
        rows = [np.arange(array.shape[axis])[view.rows(name)] for view in self._views]
        index = rows[0] if self._alone else np.concatenate([np.zeros(0, int), *map(np.atleast_1d, rows)])
        return array, (..., index, *[slice(None)] * (len(declared) - 1)), field.name
