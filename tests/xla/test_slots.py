"""Loops in slots within loops in slots, and groups in turn, against the same one by one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diffsim.xla.batched_loops import Loop, in_turn, run_in_slots

COUNT = 7


def _sum_of_halvings(start: jax.Array, scale: jax.Array, slots: tuple[int, int], width: int) -> jax.Array:
    """Counts down from `start`; each step adds how often the number can be halved, and the square of an odd one."""

    def halvings(number: jax.Array) -> jax.Array:
        inner = Loop(
            start=lambda number: (number, jnp.zeros_like(number)),
            advance=lambda now, number: (now[0] // 2, now[1] + 1),
            ended=lambda now: now[0] <= 1,
        )
        return run_in_slots(inner, (number,), slots[1])[1]

    def advance(now: tuple[jax.Array, jax.Array], start: jax.Array) -> tuple[jax.Array, jax.Array]:
        number, total = now
        square = in_turn(lambda number: scale * number**2, (number,), width, number % 2 == 1)
        return number - 1, total + halvings(number) + square

    outer = Loop(lambda start: (start, jnp.zeros_like(start)), advance, lambda now: now[0] <= 0)
    return run_in_slots(outer, (start,), slots[0])[1]


@pytest.mark.parametrize(("slots", "width"), [((0, 0), 0), ((3, 2), 2), ((5, 0), 3), ((9, 4), 9)])
def test_loops_within_loops(slots: tuple[int, int], width: int) -> None:
    starts, scales = jnp.arange(COUNT) * 3, jnp.arange(COUNT)[::-1]
    found = jax.jit(jax.vmap(lambda start, scale: _sum_of_halvings(start, scale, slots, width)))(starts, scales)
    halvings = [0, 0, *(int(np.log2(n)) for n in range(2, 3 * COUNT))]
    expected = [
        sum(halvings[n] + s * n**2 * (n % 2) for n in range(1, x + 1))
        for x, s in zip(starts.tolist(), scales.tolist(), strict=True)
    ]
    np.testing.assert_array_equal(found, expected)
