"""Domain randomization: many versions of a model, in which dependent fields are consistent with the drawn ones.

    fields = {"body_mass": Scale(0.8, 1.2), "geom_friction": Uniform(0.3, 1.2, only="floor")}
    models, axes = diffsim.randomize(model, key, fields, 1024)
    states = jax.vmap(diffsim.step, in_axes=(axes, 0))(models, states)

When the mass of a body is scaled, its inertia is scaled too. When sizes of geoms change, so do their bounding volumes.
Inverse weights, which scale soft constraints, and all other constants that MuJoCo's compiler derives are computed again
(`set_const`). Only leaves that differ between worlds get a batch axis.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.custom_derivatives import SymbolicZero

from diffsim.base.checked import checked
from diffsim.base.enums import GeomType
from diffsim.base.errors import ArgumentError
from diffsim.geometry.shapes import bounding_boxes, bounding_radii
from diffsim.math.safe import divide
from diffsim.simulate.arguments import declared_ranks, model_axes
from diffsim.simulate.constants import constants
from diffsim.simulate.stack import on_batched, stack
from diffsim.types import Model
from diffsim.types.record import near
from diffsim.types.views import named_rows

Leaves = dict[str, Array]
Numbers = float | tuple[float, ...]

# the geom types whose bounding volumes follow from their size
PRIMITIVES = (GeomType.SPHERE, GeomType.CAPSULE, GeomType.ELLIPSOID, GeomType.CYLINDER, GeomType.BOX)


@dataclasses.dataclass(frozen=True)
class Draw:
    """Values drawn uniformly from a range, one per object; the base class of `Scale`, `Shift` and `Uniform`.

    Attributes:
      low, high: the range. If they are numbers, an object gets one drawn value for its whole row; if they are tuples,
        one for each column.
      only: name or index of the objects that change, or several of them; None for all.
      shared: whether all objects of a world get the same drawn value.
    """

    low: Numbers
    high: Numbers
    only: Any = None
    shared: bool = False

    def combine(self, value: Array, drawn: Array) -> Array:
        """The new value of a leaf or of some of its rows, from the model's value and the drawn value."""
        raise NotImplementedError


class Scale(Draw):
    """The model's values times a factor between `low` and `high`."""

    def combine(self, value: Array, drawn: Array) -> Array:
        """The product."""
        return value * drawn


class Shift(Draw):
    """The model's values plus an offset between `low` and `high`, in units of the field."""

    def combine(self, value: Array, drawn: Array) -> Array:
        """The sum."""
        return value + drawn


class Uniform(Draw):
    """Values between `low` and `high`, in units of the field, in place of the model's."""

    def combine(self, value: Array, drawn: Array) -> Array:
        """The draw itself."""
        return jnp.broadcast_to(drawn, value.shape)


# (key, value of the leaf) -> value in one world
Sampler = Draw | Callable[[Array, Array], Array]


class Posterior(Protocol):
    """A probability distribution of model parameters, such as the result of `optimize.fit`."""

    def worlds(self, model: Model, key: Array, count: int) -> Leaves:
        """Leaves (count, ...) that differ between worlds, by path, including derived leaves."""
        ...


@checked
def randomize(
    model: Model | Iterable[Model], key: Array, fields: Mapping[str, Sampler] | Posterior, count: int
) -> tuple[Model, Model]:
    """Draws `count` versions of a model, or of several models with different shapes.

    Args:
      model: the model. Or n models that `stack` can join: world i then gets the model with the number i modulo n.
      key: a key of `jax.random.key`.
      fields: for each leaf of the model by its path ("body_mass", "opt.timestep") a `Scale`, `Shift` or `Uniform`, or a
        function (key, the model's value) -> the value in one world. Or the result of `optimize.fit`, whose posterior is
        sampled.
      count: number of worlds.

    Returns:
      (models, axes): a Model whose changed leaves have a leading axis of length `count`, and its `in_axes` for `vmap`.

    Raises:
      ValueError: a field does not exist, is derived from others, or is given without a way to draw it; or `count` is
        less than 1. KeyError: no object has a name in `only`.
      ArgumentError: the models cannot be stacked, or a posterior is given for several models.
    """
    if isinstance(fields, Mapping):
        models, axes = (model, None) if isinstance(model, Model) else _in_turn(*stack(model), count)
        values = varied_leaves(models, key, fields, count, axes)
    elif isinstance(model, Model):
        models, values = model, fields.worlds(model, key, count)
    else:
        raise ArgumentError("randomize: a posterior is of one model; for several models, give fields")
    # `replace` changes the topology here if a field was zero before, so that programs get code for it
    models = with_leaves(models, values)
    return models, model_axes(models)


def _in_turn(models: Model, axes: Model, count: int) -> tuple[Model, Model]:
    """`count` worlds of a batch of n models, world i with model i modulo n; and their axes."""
    return on_batched(lambda values: values[np.arange(count) % len(values)], models, axes), axes


def varied_leaves(
    model: Model, key: Array, fields: Mapping[str, Sampler], count: int, axes: Model | None = None
) -> Leaves:
    """The leaves (count, ...), by path, that `randomize` draws or computes from draws.

    Args as for `randomize`; the model may be a batch of models with these axes.
    """
    known = declared_ranks(model)
    derived = {field.name for field in dataclasses.fields(Model) if field.metadata.get("derived")}
    for name, sampler in fields.items():
        if name not in known:
            raise ValueError(f"the model has no leaf {name!r}{near(name, known)}")
        if name in derived or name.startswith("stat."):
            raise ValueError(f"{name} follows from other fields; randomize those")
        if not isinstance(sampler, Draw) and not callable(sampler):
            raise ValueError(f"{name}: give Scale(low, high), Shift, Uniform, or a function of (key, value)")
    if count < 1:
        raise ArgumentError(f"randomize: count is the number of worlds, 1 or more, not {count}")

    def one_world(model: Model, key: Array) -> Leaves:
        drawn = follow(model, _draw(model, key, fields))
        derived = _constants(with_leaves(model, drawn))
        return drawn | {name: derived[name] for name in dependent}

    one = model if axes is None else on_batched(lambda values: values[0], model, axes)
    drawn = jax.eval_shape(lambda model, key: follow(model, _draw(model, key, fields)), one, key)
    dependent = dependents(lambda leaves: _constants(with_leaves(one, leaves)), drawn)
    dependent = [name for name in dependent if name not in drawn]
    return jax.jit(jax.vmap(one_world, in_axes=(axes, 0)))(model, jax.random.split(key, count))


def with_leaves(model: Model, leaves: Mapping[str, Array]) -> Model:
    """The model with other values of some leaves, by path: "body_mass", "opt.timestep"."""
    plain = {name: value for name, value in leaves.items() if "." not in name}
    for child in ("opt", "stat"):
        inside = {name.partition(".")[2]: leaves[name] for name in leaves if name.startswith(f"{child}.")}
        plain |= {child: getattr(model, child).replace(**inside)} if inside else {}
    return model.replace(**plain)


def dependents(function: Callable[[Leaves], Leaves], leaves: Leaves) -> list[str]:
    """The names of a function's results that depend on its arguments, found by tracing without computing anything.

    Args:
      function: a differentiable function from a dictionary of arrays to another one.
      leaves: its argument, or the shapes and dtypes of its argument.
    """
    # differentiate with symbolic zeros: a result depends on the arguments if its tangent is not a symbolic zero
    names: list[str] = []

    def tangent(leaves: Leaves) -> Leaves:
        probed = lambda values: {name: _probe(name, names)(value) for name, value in function(values).items()}  # noqa: E731
        return jax.jvp(probed, (leaves,), (leaves,))[1]

    jax.eval_shape(tangent, leaves)
    return names


def _probe(name: str, names: list[str]) -> Callable[[Array], Array]:
    """The identity function, whose derivative appends `name` to `names` unless the tangent is a symbolic zero."""
    identity = jax.custom_jvp(lambda value: value)

    def rule(primals: tuple[Array], tangents: tuple[Any]) -> tuple[Array, Array]:
        (value,) = primals
        (change,) = tangents
        if isinstance(change, SymbolicZero):
            return value, jnp.zeros_like(value)
        names.append(name)
        return value, change

    identity.defjvp(rule, symbolic_zeros=True)
    return identity


def _constants(model: Model) -> Leaves:
    """The derived leaves of a model, computed again, by path."""
    derived = constants(model)
    stat = {f"stat.{name}": value for name, value in derived.pop("stat").items()}
    return derived | stat


def _draw(model: Model, key: Array, fields: Mapping[str, Sampler]) -> Leaves:
    """The drawn leaves of one world."""
    # a leaf of the model has one row per object if the first size of its shape has a name; leaves of options have none
    declared = {field.name: field.metadata.get("shape") for field in dataclasses.fields(Model)}
    drawn: Leaves = {}
    keys = jax.random.split(key, max(len(fields), 1))
    for i, name in enumerate(sorted(fields)):
        value = leaf(model, name)
        sampler = fields[name]
        key = keys[i]
        if not isinstance(sampler, Draw):
            drawn[name] = jnp.asarray(sampler(key, value), value.dtype)
        elif sampler.only is None:
            has_rows = isinstance((declared.get(name) or (None,))[0], str)
            drawn[name] = sampler.combine(value, _even(key, value, sampler, has_rows))
        else:
            rows = np.concatenate(named_rows(model, name, len(value), sampler.only, "only"))
            drawn[name] = value.at[rows].set(sampler.combine(value[rows], _even(key, value[rows], sampler, True)))
    return drawn


def _even(key: Array, value: Array, sampler: Draw, by_object: bool) -> Array:
    """Drawn values that broadcast to a leaf: one per row if `by_object`, unless they are shared, else one for the leaf;
    and one per column if the range has columns.
    """
    low, high = np.broadcast_arrays(sampler.low, sampler.high)
    rows = (1 if sampler.shared else value.shape[0],) if by_object else ()
    between = (1,) * (value.ndim - len(rows) - low.ndim)
    unit = jax.random.uniform(key, (*rows, *between, *low.shape), value.dtype)
    low, high = (end.astype(value.dtype).reshape((1,) * (value.ndim - low.ndim) + end.shape) for end in (low, high))
    return jnp.asarray(low) + (high - low) * unit


def follow(model: Model, drawn: Leaves) -> Leaves:
    """The drawn leaves with the leaves that depend on them: inertias on masses, bounding volumes on sizes of geoms."""
    if "body_mass" in drawn and "body_inertia" not in drawn:
        factor = divide(drawn["body_mass"], model.body_mass)
        drawn = drawn | {"body_inertia": model.body_inertia * factor[:, None]}
    if "geom_size" in drawn and "geom_rbound" not in drawn:
        types = model.topology.geom_type
        size = drawn["geom_size"]
        primitive = np.isin(types, PRIMITIVES)
        radius = jnp.where(primitive, bounding_radii(types, size), model.geom_rbound)
        sides = jnp.concatenate([model.geom_aabb[:, :3], bounding_boxes(types, size)], axis=1)
        box = jnp.where(primitive[:, None], sides, model.geom_aabb)
        drawn = drawn | {"geom_rbound": radius, "geom_aabb": box}
    return drawn


def leaf(model: Model, name: str) -> Array:
    """A leaf of a model, by path: "body_mass", "opt.timestep"."""
    return functools.reduce(getattr, name.split("."), model)
