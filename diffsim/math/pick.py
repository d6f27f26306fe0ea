"""Rows whose numbers are known when tracing: a slice where they follow one another, else a gather without checks.

Plain indexing would compare, shift and clamp the numbers in every step, and gather what is a slice.
"""

import jax
import jax.numpy as jnp
import numpy as np

Array = jax.Array


def pick(values: Array, ids: np.ndarray | Array) -> Array:
    """values[ids], of shape ids.shape + values.shape[1:]; static ids below zero count from the end.

    Ids that are known only at run time are clamped, as in plain indexing.

    Raises:
      IndexError: a static id beyond the rows.
    """
    if isinstance(ids, jax.Array):
        return values[ids]
    size, flat = values.shape[0], np.asarray(ids).reshape(-1)
    if np.any((flat < -size) | (flat >= size)):
        raise IndexError(f"ids from {flat.min()} to {flat.max()} of {size} rows")
    flat = np.where(flat < 0, flat + size, flat)
    step = _step(flat)
    rows = jax.lax.slice_in_dim(values, flat[0], flat[-1] + 1, step) if step else _gather(values, flat)
    return rows.reshape(*np.shape(ids), *values.shape[1:])


def pick_existing(values: Array, ids: np.ndarray | Array) -> Array:
    """The same; ids that are known only at run time are those of rows that exist, which nothing checks."""
    if isinstance(ids, jax.Array):
        return values.at[ids].get(mode="promise_in_bounds", wrap_negative_indices=False)
    return pick(values, ids)


def place(size: int, ids: np.ndarray, values: Array) -> Array:
    """(size, ...) with `values` (n, ...) at `ids` (n,), which are distinct, and zeros elsewhere: again a gather."""
    row = np.full(size, len(ids))
    row[ids] = np.arange(len(ids))
    if len(ids) < size:
        values = jnp.concatenate([values, jnp.zeros((1, *values.shape[1:]), values.dtype)])
    return pick(values, row)


def _step(flat: np.ndarray) -> int:
    """The distance of ids that go up in equal steps; 0 if they do not."""
    if len(flat) < 2:
        return len(flat)
    steps = np.diff(flat)
    return max(int(steps[0]), 0) if np.all(steps == steps[0]) else 0


def _gather(values: Array, flat: np.ndarray) -> Array:
    """values[flat]."""
    rest = tuple(range(1, values.ndim))
    return jax.lax.gather(
        values,
        flat[:, None].astype(np.int32),
        jax.lax.GatherDimensionNumbers(offset_dims=rest, collapsed_slice_dims=(0,), start_index_map=(0,)),
        (1, *values.shape[1:]),
        indices_are_sorted=bool(np.all(np.diff(flat) >= 0)),
        unique_indices=len(np.unique(flat)) == len(flat),
        mode=jax.lax.GatherScatterMode.PROMISE_IN_BOUNDS,
    )
