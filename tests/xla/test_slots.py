"""Loops in slots within loops in slots, and groups in turn, against the same one by one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diffsim.xla.batched_loops import Explicit, Loop, slots
from diffsim.xla.batched_searches import in_groups

COUNT = 7


def _sum_of_halvings(start: jax.Array, scale: jax.Array, counts: tuple[int, int], width: int) -> jax.Array:
    """Counts down from `start`; each step adds how often the number can be halved, and the square of an odd one."""

    def halvings(number: jax.Array) -> jax.Array:
        inner = Loop(unfinished=lambda now: now[0] > 1, advance=lambda _, now: (now[0] // 2, now[1] + 1))
        return slots(counts[1])(inner, number, (number, jnp.zeros_like(number)))[1]

    def advance(_: None, now: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        number, total = now
        square = Explicit.of(lambda number: scale * number**2, number)
        odd = number % 2 == 1
        added = in_groups(lambda _, given: square.call(*given), odd, (square.held, number), at_once=width)
        return number - 1, total + halvings(number) + jnp.where(odd, added, 0)

    outer = Loop(unfinished=lambda now: now[0] > 0, advance=advance)
    return slots(counts[0])(outer, None, (start, jnp.zeros_like(start)))[1]


@pytest.mark.parametrize(("counts", "width"), [((0, 0), 1), ((3, 2), 2), ((5, 0), 3), ((9, 4), 9)])
def test_loops_within_loops(counts: tuple[int, int], width: int) -> None:
    starts, scales = jnp.arange(COUNT) * 3, jnp.arange(COUNT)[::-1]
    found = jax.jit(jax.vmap(lambda start, scale: _sum_of_halvings(start, scale, counts, width)))(starts, scales)
    halvings = [0, 0, *(int(np.log2(n)) for n in range(2, 3 * COUNT))]
    expected = [
        sum(halvings[n] + s * n**2 * (n % 2) for n in range(1, x + 1))
        for x, s in zip(starts.tolist(), scales.tolist(), strict=True)
    ]
    np.testing.assert_array_equal(found, expected)
