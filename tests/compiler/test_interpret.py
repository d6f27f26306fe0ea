"""Derived constants without XLA: the interpreter agrees with JAX, and a load compiles nothing."""

import gc

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiler.features import FEATURES
from jax.extend.core import JaxprEqn
from programs import compilations

from diffsim.compiler.host.interpret import interpret
from diffsim.compiler.passes import compile_all
from diffsim.mjcf import read
from diffsim.xla import loops

TABLE = np.arange(60.0).reshape(3, 4, 5)
PLACES = np.array([[0, 2], [3, 1], [1, 1]])


def _picked(table: jax.Array, places: jax.Array) -> jax.Array:
    return jax.vmap(lambda rows, at: rows[at])(table, places)


def _windows(table: jax.Array, places: jax.Array) -> jax.Array:
    return jax.vmap(lambda rows, at: jax.lax.dynamic_slice(rows, (at[0], at[1]), (1, 2)))(table, places)


def _added(table: jax.Array, places: jax.Array) -> jax.Array:
    return jax.vmap(lambda rows, at: rows.at[at].add(1.5))(table, places)


def _rounded(table: jax.Array, places: jax.Array) -> jax.Array:
    return jnp.round(table / 2) + jnp.sum(places)


def _halved(table: jax.Array, places: jax.Array) -> jax.Array:
    """Loops that end element by element."""
    return jax.vmap(jax.vmap(lambda x: jax.lax.while_loop(lambda y: y > 3, lambda y: y / 2 - 1, x)))(table[0])


def _sums(table: jax.Array, places: jax.Array) -> tuple[jax.Array, ...]:
    """Loops over rows, forward, backward, and over none; one reads a constant."""
    add = lambda total, row: (total + row * table[0, 0], 2 * total)  # noqa: E731
    sums = [
        jax.lax.scan(add, table[0, 1], table[1, :k], reverse=back) for k, back in ((3, False), (3, True), (0, False))
    ]
    return tuple(jax.tree.leaves(sums))


def _bits(table: jax.Array, places: jax.Array) -> jax.Array:
    words = places.astype(jnp.uint32)
    return (words | 4) & ~(words + 1)


def _quotients(table: jax.Array, places: jax.Array) -> tuple[jax.Array, ...]:
    """Integers of either sign, rounded towards zero and down."""
    numbers = jnp.arange(-7, 8, dtype=jnp.int32)
    return jax.lax.div(numbers, jnp.full_like(numbers, 3)), numbers // jnp.int32(-3), numbers % jnp.int32(3)


def _least(table: jax.Array, places: jax.Array) -> jax.Array:
    edged = jax.lax.pad(jnp.square(table - 7), 3.5, ((1, 2, 0), (0, 0, 0), (0, 1, 0)))
    slope = jax.grad(lambda t: jnp.sum(jax.checkpoint(jnp.square)(t) + t))(table)
    return jnp.argmin(edged, axis=1) * jnp.sign(edged[:, 0] - 3.5) + jnp.sum(slope)


def _shapes(table: jax.Array, places: jax.Array) -> tuple[jax.Array, ...]:
    """Views of nothing and of one number, parts that lie backwards, a choice that all elements share, finite or not."""
    nothing = jnp.broadcast_to(table[:0, :1, 0], (0, 4))
    turned = jnp.flip(table, 1) + jnp.broadcast_to(table[:1, :1, :1], (3, 4, 5))
    parts = jnp.unstack(table, axis=1)
    chosen = jax.lax.select(places[0, 0] > 0, table, -table)
    large = jnp.broadcast_to(table[0, 0, 1], (90, 80))
    finite = jnp.isfinite(jnp.divide(table, table[0, 0, 0]))
    windows = [jax.lax.dynamic_slice(table, (places[0, 0] + k, 2, 9), (2, 1, 3)) for k in (-1, 1, 5)]
    return nothing, turned, parts[1] - parts[3], chosen, finite, jnp.sum(large), *windows, jnp.tile(table[0], (2, 1))


CASES = [_picked, _windows, _added, _rounded, _halved, _sums, _bits, _quotients, _least, _shapes]


@pytest.mark.parametrize("function", CASES)
def test_the_interpreter_agrees_with_jax(function) -> None:
    jax.tree.map(np.testing.assert_array_equal, interpret(function, TABLE, PLACES), function(TABLE, PLACES))


@pytest.mark.parametrize("name", ["spatial", "every_actuator"])
def test_a_load_compiles_nothing(name: str) -> None:
    with compilations() as seen:
        compile_all(read(FEATURES[name]), refuse=False)
    assert seen == []


def test_what_a_load_traced_goes_with_it() -> None:
    """Models of many shapes may be loaded by one process."""

    def left(name: str) -> int:
        body = f'<body name="{name}"><joint/><geom size=".1"/></body>'
        compile_all(read(f"<mujoco><worldbody>{body}</worldbody></mujoco>"))
        gc.collect()
        return sum(isinstance(each, JaxprEqn) for each in gc.get_objects())

    first = left("one")
    assert left("another") - first < 100


def _looped(x: jax.Array) -> jax.Array:
    """Compiled functions of jax.numpy, and each loop of xla/loops.py."""
    x = jnp.where(x > 1, x, jnp.clip(x, -1, 1))
    x = loops.fori_loop(0, 3, lambda _, y: jnp.where(y > 5, y, 2 * y), x)
    x = loops.while_loop(lambda y: y[0] < 50, lambda y: y + 7, x)
    x, sums = loops.scan(lambda y, row: (y + row, jnp.sum(y)), x, jnp.arange(12.0).reshape(4, 3))
    return loops.cond(sums[0] > 0, lambda: jnp.flip(x), lambda: x)


def test_written_out_functions_have_the_same_values() -> None:
    """Nothing is a compiled function of its own, and loops stay loops."""
    x = jnp.array([0.3, 2.0, -4.0])
    np.testing.assert_array_equal(interpret(_looped, x, written_out=True), interpret(_looped, x))
    with loops.inlined():
        names = [equation.primitive.name for equation in jax.make_jaxpr(_looped)(x).eqns]
    assert not {"jit", "pjit"} & set(names)
    assert sorted(set(names) & {"scan", "while", "cond"}) == ["cond", "scan", "while"]
    # the user's own `disable_jit` runs loops in Python, where he can look into them
    seen = []
    with jax.disable_jit():
        loops.fori_loop(0, 3, lambda k, y: seen.append(int(k)) or y, x)
    assert seen == [0, 1, 2]
