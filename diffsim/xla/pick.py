"""Rows whose numbers are known when tracing: a slice where they follow one another, else a gather without checks.

Plain indexing would compare, shift and clamp the numbers in every step, and gather what is a slice. What reverse mode
does is in `gather_sum.py`.
"""

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.xla.gather_sum import gather_rows

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
    rows = _rows(values, np.where(flat < 0, flat + size, flat))
    return rows if np.ndim(ids) == 1 else rows.reshape(*np.shape(ids), *values.shape[1:])


def _rows(values: Array, flat: np.ndarray) -> Array:
    """values[flat]."""
    if not len(flat):
        return values[:0]
    step = _step(flat)
    if not step:
        return gather_rows(values, flat)
    return values if len(flat) == len(values) else jax.lax.slice_in_dim(values, flat[0], flat[-1] + 1, step)


def pick_some(values: Array, ids: np.ndarray, default: np.ndarray | float = 0) -> Array:
    """values[ids] for ids (n,), and `default`, a constant row, where an id is -1."""
    if np.all(ids >= 0):
        return pick(values, ids)
    missing = (ids < 0).reshape(-1, *[1] * (values.ndim - 1))
    constant = np.where(missing, default, 0)
    if not values.shape[0]:
        return jnp.broadcast_to(jnp.asarray(constant, values.dtype), (len(ids), *values.shape[1:]))
    rows = gather_rows(values, ids)
    return rows + jnp.asarray(constant, values.dtype) if np.any(constant) else rows


def pick_existing(values: Array, ids: np.ndarray | Array) -> Array:
    """The same; ids that are known only at run time are those of rows that exist, which nothing checks."""
    if isinstance(ids, jax.Array):
        return values.at[ids].get(mode="promise_in_bounds", wrap_negative_indices=False)
    return pick(values, ids)


def place(size: int, ids: np.ndarray, values: Array) -> Array:
    """(size, ...) with `values` (n, ...) at `ids` (n,), which are distinct, and zeros elsewhere: again a gather."""
    row = np.full(size, -1)
    row[ids] = np.arange(len(ids))
    return pick_some(values, row)


def _step(flat: np.ndarray) -> int:
    """The distance of ids that go up in equal steps; 0 if they do not."""
    if len(flat) < 2:
        return len(flat)
    steps = np.diff(flat)
    return max(int(steps[0]), 0) if np.all(steps == steps[0]) else 0
