"""The decorator `checked`, with which public functions refuse an argument of the wrong type before they use it.

The check compares an argument with the annotation of its parameter: one of diffsim's classes, or an array, for which
numbers and sequences are accepted too. Checks run while JAX traces and leave nothing in the compiled program.
"""

import functools
import inspect
import types
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

import jax
import jax.numpy as jnp
import numpy as np

P = ParamSpec("P")
T = TypeVar("T")

# how to make an object of each type, for messages
MADE_BY = {
    "Model": "diffsim.load(path)",
    "State": "diffsim.make_state(model)",
    "Inputs": "diffsim.make_inputs(model).replace(ctrl=...)",
    "Data": "diffsim.forward(model, state, inputs)",
    "Spec": "diffsim.mjcf.read(path)",
    "Task": "diffsim.optimize.make_task(model, running)",
    "Linearization": "diffsim.optimize.linearize(model, state)",
}


def checked(function: Callable[P, T]) -> Callable[P, T]:
    """The function, wrapped so that it raises TypeError if an argument does not match its annotation."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        bound = signature.bind(*args, **kwargs)
        for name, kinds in _kinds(function).items():
            if name in bound.arguments:
                bound.arguments[name] = _fit(name, bound.arguments[name], kinds, signature)
        return function(*bound.args, **bound.kwargs)

    return call


@functools.cache
def _kinds(function: Callable[..., Any]) -> dict[str, tuple[type, ...]]:
    """The types that each checked parameter accepts.

    Only parameters whose annotation consists of diffsim's classes, arrays, floats and None are checked.
    """

    def is_known(kind: Any) -> bool:
        ours = isinstance(kind, type) and kind.__module__.startswith("diffsim")
        return (ours and not getattr(kind, "_is_protocol", False)) or kind in (jax.Array, types.NoneType, float)

    known: dict[str, tuple[type, ...]] = {}
    for name, hint in get_type_hints(function).items():
        kinds = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
        if name != "return" and all(map(is_known, kinds)):
            known[name] = kinds
    return known


def _fit(name: str, value: Any, kinds: tuple[type, ...], signature: inspect.Signature) -> Any:
    """The argument, converted to an array if the parameter takes one."""
    # an int is fine where a float is expected
    if isinstance(value, kinds) or (float in kinds and isinstance(value, int | np.number)):
        return value
    if jax.Array in kinds:
        return _array(name, value)
    expected = next(kind for kind in kinds if kind is not types.NoneType).__name__
    advice = f", such as {MADE_BY[expected]}" if expected in MADE_BY else ""
    order = f" (arguments in order: {', '.join(signature.parameters)})" if type(value).__name__ in MADE_BY else ""
    raise TypeError(f"{name} is a {type(value).__name__}, expected {expected}{advice}{order}")


def _array(name: str, value: Any) -> Any:
    """Numbers as an array; tracers and other objects with a shape and a dtype pass unchanged."""
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        # JAX has dtypes of its own, for random keys and for the cotangents of integers
        if not isinstance(value.dtype, np.dtype) or value.dtype.kind in "biufV":
            return value
        described = f"an array of {value.dtype}"
    else:
        described = f"a {type(value).__name__}"
        try:
            array = np.asarray(value)
        except ValueError:
            array = np.zeros(0, object)
        if array.dtype.kind in "biuf":
            return jnp.asarray(array)
    raise TypeError(f"{name} is {described}, expected an array of numbers")
