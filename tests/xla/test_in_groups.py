"""Searches of a batch: the same as each alone where they are needed, and not made where they are not."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diffsim.xla import batched_searches
from diffsim.xla.batched_searches import GROUP, in_groups
from diffsim.xla.select import if_anywhere

WORLDS, CASES = 7, 5


def collatz(needed: jax.Array, arguments: tuple[jax.Array, jax.Array]) -> dict[str, jax.Array]:
    """Steps until a number is 1, a loop of data-dependent length; and something of an array."""
    number, table = arguments

    def step(carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        n, count = carry
        return jnp.where(n % 2 == 0, n // 2, 3 * n + 1), count + 1

    _, steps = jax.lax.while_loop(lambda carry: needed & (carry[0] > 1), step, (number, jnp.asarray(0)))
    return {"steps": steps, "sum": steps + jnp.sum(table)}


@pytest.mark.parametrize("shared", [(False, False), (False, True), (True, True)])
@pytest.mark.parametrize("share", [0.0, 0.2, 1.0])
def test_a_batch_is_as_each_alone(share: float, shared: tuple[bool, bool]) -> None:
    random = np.random.default_rng(0)
    needed = jnp.asarray(random.random((WORLDS, CASES)) < share)
    numbers = jnp.asarray(random.integers(1, 99, (CASES,) if shared[0] else (WORLDS, CASES)))
    tables = jnp.asarray(random.random((CASES, 3) if shared[1] else (WORLDS, CASES, 3)))
    axes = (None if shared[0] else 0, None if shared[1] else 0)

    def over_all(search: Callable[..., dict[str, jax.Array]]) -> dict[str, jax.Array]:
        cases = jax.vmap(lambda needed, number, table: search(needed, (number, table)))
        return jax.jit(jax.vmap(cases, (0, *axes)))(needed, numbers, tables)

    found = over_all(lambda needed, arguments: in_groups(collatz, needed, arguments))
    for name, values in over_all(collatz).items():
        np.testing.assert_array_equal(np.asarray(found[name])[needed], np.asarray(values)[needed])


def test_what_is_not_needed_is_not_searched() -> None:
    seen: list[int] = []

    def search(needed: jax.Array, number: jax.Array) -> jax.Array:
        jax.debug.callback(lambda n: seen.append(int(n)), number)
        return number + 1

    count = 4 * GROUP
    numbers, needed = jnp.arange(count), jnp.arange(count) % 8 == 3
    found = jax.vmap(lambda needed, number: in_groups(search, needed, number))(needed, numbers)
    jax.effects_barrier()
    assert set(np.flatnonzero(needed).tolist()) <= set(seen) and len(seen) == GROUP
    np.testing.assert_array_equal(np.asarray(found)[needed], np.asarray(numbers + 1)[needed])


def test_what_no_world_needs_is_not_computed() -> None:
    """And flags of rows choose rows: a world is in a batch as alone, whoever else has a flag set."""
    seen: list[int] = []

    def one(flag: jax.Array, value: jax.Array) -> jax.Array:
        def compute() -> jax.Array:
            jax.debug.callback(lambda: seen.append(1))
            return value**2

        return if_anywhere(flag, compute, -value)

    values = jnp.arange(1.0, 13.0).reshape(3, 4)
    for flags in (np.zeros((3, 4), bool), np.arange(12).reshape(3, 4) == 6):
        seen.clear()
        found = jax.jit(jax.vmap(one))(jnp.asarray(flags), values)
        jax.effects_barrier()
        assert bool(seen) == flags.any()
        np.testing.assert_array_equal(found, np.where(flags, values**2, -values))
        slope = jax.jit(jax.vmap(jax.grad(lambda value, flag: jnp.sum(one(flag, value)))))(values, jnp.asarray(flags))
        np.testing.assert_array_equal(slope, np.where(flags, 2 * values, -1))


def test_models_of_each_world_and_one_alone() -> None:
    tables = jnp.arange(6.0).reshape(2, 3)
    number = jnp.array([6, 7])
    # the table comes as a batch after the number has
    each = jax.vmap(jax.vmap(lambda n, t: in_groups(collatz, n > 0, (n, t)), (0, None)), (None, 0))(number, tables)
    assert each["steps"].tolist() == [[8, 16], [8, 16]]
    np.testing.assert_allclose(each["sum"], [[11, 19], [20, 28]])
    assert int(in_groups(collatz, jnp.asarray(True), (number[0], tables[0]))["steps"]) == 8


def test_a_large_batch_goes_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the numbers are those of the whole; shared arrays are not copied for each world."""
    monkeypatch.setattr(batched_searches, "PART_VALUES", 20 * 50)
    table, numbers = jnp.arange(50.0), jnp.arange(7 * 30.0).reshape(7, 30)

    def cases() -> Callable[[jax.Array], jax.Array]:
        wide = lambda _, given: jnp.sum(jnp.cos(given[0] * given[1]))  # noqa: E731
        return jax.vmap(jax.vmap(lambda x: in_groups(wide, True, (x, table), numbers=50)))

    whole = cases()(numbers)
    assert "while" not in str(jax.make_jaxpr(cases())(numbers))
    monkeypatch.setattr(batched_searches, "LARGEST_WHOLE", 1)
    assert "while" in str(jax.make_jaxpr(cases())(numbers))
    np.testing.assert_allclose(cases()(numbers), whole, rtol=1e-6)
