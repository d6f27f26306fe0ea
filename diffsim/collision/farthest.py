"""thin: which contacts of a meeting are kept, if there are too many.

First the deepest contact is kept, then, repeatedly, the one farthest from all contacts chosen so far (Gonzalez 1985).
MuJoCo swaps each chosen contact to the front of its list, but does not swap its flag and distance. This affects which
contacts are kept, so diffsim does the same.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from diffsim.collision.flex_slots import (
    MOST,
)
from diffsim.collision.narrowphase import FAR
from diffsim.math.vector import dot_components
from diffsim.xla.loops import cond, fori_loop
from diffsim.xla.select import anywhere


class _Sampling(NamedTuple):
    """The state of `farthest`: a list of contacts, of which some are chosen.

    Attributes:
      row, pos: (n,), (3, n) m, row and position of each contact of the list.
      chosen: (n,) which entries of the list are chosen.
      distance: (n,) m^2, squared distance of each from the nearest chosen one.
      best: () the entry to choose next.
    """

    row: Array
    pos: Array
    chosen: Array
    distance: Array
    best: Array


def thin(dist: Array, pos: Array, active: Array, most: int = MOST) -> tuple[Array, Array]:
    """The `most` rows that are kept of n > most, and which of them are contacts (most,); not differentiated.

    Args:
      dist: (n,) m.
      pos: (n, 3) m.
      active: (n,) which rows are contacts; if they are no more than `most`, all are kept, in their order.
      most: number of rows to keep.
    """
    dist, pos = jax.lax.stop_gradient((dist, pos))
    # contacts first, in their order
    order = jnp.argsort(~active, stable=True)
    count = jnp.sum(active)
    rows = cond(
        anywhere(count > most), lambda: farthest(order, dist[order], pos[order], count, most), lambda: order[:most]
    )
    return jnp.where(count > most, rows, order[:most]), jnp.arange(most) < count


def farthest(order: Array, dist: Array, pos: Array, count: Array, most: int) -> Array:
    """The chosen rows of `order` (n,), in the order of choice; the first `count` of `order` are contacts."""
    number = jnp.arange(len(order))
    beyond = number >= count
    start = jnp.argmin(jnp.where(beyond, FAR, dist)).astype(number.dtype)

    def choose(turn: Array, state: _Sampling) -> _Sampling:
        row, pos, chosen, distance, best = state
        chosen = chosen | (number == best)
        offset = list(pos - pos[:, best, None])
        distance = jnp.where(chosen, distance, jnp.minimum(distance, dot_components(offset, offset)))
        following = jnp.argmax(jnp.where(chosen, -1, distance)).astype(best.dtype)
        # the last choice is not swapped
        swaps = turn < most - 1
        at = jnp.where(swaps, best, turn)
        # selects instead of scatters: a batch does them in one pass, while scatters copy the whole array for each world
        row, pos = (
            jnp.where(number == turn, x[..., at, None], jnp.where(number == at, x[..., turn, None], x))
            for x in (row, pos)
        )
        return _Sampling(row, pos, chosen, distance, jnp.where(swaps & (following == turn), best, following))

    state = _Sampling(order, pos.T, beyond, jnp.full_like(dist, FAR), start)
    return fori_loop(0, most, choose, state).row[:most]
