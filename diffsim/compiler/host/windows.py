"""Gathers and scatters of a traced function, in numpy: windows of an operand, picked by index arrays."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray
Values = Sequence[Any]


class _Axes(NamedTuple):
    """What the axes of a gather or scatter mean.

    mapped: axes of the operand that the indices are for. dropped: axes of the operand that the result lacks. batching:
    axes of the operand that run together with one of the indices. windows: axes of the result that run inside a window.
    """

    mapped: Values
    dropped: Values
    batching: dict[int, int]
    windows: Values


def _window(operand: Array, indices: Array, axes: _Axes, shape: Values) -> Any:
    """Index arrays that pick the windows of a gather or scatter, one per axis of the operand; they have `shape`.

    indices: first element of each window. None where an index lies outside of the operand.
    """
    left = [axis for axis in range(operand.ndim) if axis not in axes.dropped and axis not in axes.batching]
    kept = dict(zip(left, axes.windows, strict=True))
    outer = [axis for axis in range(len(shape)) if axis not in axes.windows]

    def along(axis: int) -> Array:
        return np.arange(shape[axis]).reshape([-1 if a == axis else 1 for a in range(len(shape))])

    result = []
    for axis in range(operand.ndim):
        index = np.zeros([1] * len(shape), int)
        if axis in kept:
            index = index + along(kept[axis])
        if axis in axes.batching:
            index = index + along(outer[axes.batching[axis]])
        if axis in axes.mapped:
            spread = [1] * len(shape)
            for place, size in zip(outer, indices.shape[:-1], strict=True):
                spread[place] = size
            index = index + indices[..., list(axes.mapped).index(axis)].reshape(spread)
        if np.any((index < 0) | (index >= operand.shape[axis])):
            return None
        result.append(index)
    return tuple(result)


def gather(operand: Array, indices: Array, *, dimension_numbers: Any, slice_sizes: Values, **params: Any) -> Any:
    """Windows of the operand; anything out of the ordinary is left to JAX."""
    numbers = dimension_numbers
    windows, rank = numbers.offset_dims, indices.ndim - 1 + len(numbers.offset_dims)
    batching = dict(zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True))
    gone = (*numbers.collapsed_slice_dims, *batching)
    sizes = [size for axis, size in enumerate(slice_sizes) if axis not in gone]
    batch = iter(indices.shape[:-1])
    shape = [sizes[list(windows).index(axis)] if axis in windows else next(batch) for axis in range(rank)]
    axes = _Axes(numbers.start_index_map, numbers.collapsed_slice_dims, batching, windows)
    index = _window(operand, indices, axes, shape)
    return NotImplemented if index is None else operand[index]


def scatter(combine: Callable[[Array, Any, Array], None]) -> Callable[..., Any]:
    """operand.at[...].set, add or max."""

    def rule(operand: Array, indices: Array, updates: Array, *, dimension_numbers: Any, **params: Any) -> Any:
        numbers, result = dimension_numbers, operand.copy()
        mapped, dropped = numbers.scatter_dims_to_operand_dims, numbers.inserted_window_dims
        batching = dict(zip(numbers.operand_batching_dims, numbers.scatter_indices_batching_dims, strict=True))
        axes = _Axes(mapped, dropped, batching, numbers.update_window_dims)
        index = _window(operand, indices, axes, updates.shape)
        if index is None:
            return NotImplemented
        combine(result, index, updates)
        return result

    return rule
