"""Loops of a batch that end at different times, some of them side by side.

Under `jax.vmap` a while loop runs until its slowest member ends, and all others wait. Here a batch of N loops shares a
few slots: what has ended leaves, and the next takes its place, so that the work is that of the sum of all lengths, not
of N times the longest. Slots of one loop may have loops of their own, with other slots.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.core
import jax.numpy as jnp

Array = jax.Array


class Loop(NamedTuple):
    """carry = start(*arguments); while not ended(carry): carry = advance(carry, *arguments). All of one problem."""

    start: Callable[..., Any]
    advance: Callable[..., Any]
    ended: Callable[[Any], Array]


def run(loop: Loop, arguments: tuple, slots: int) -> Any:
    """The last carry; under `jax.vmap` those of a batch, in slots.

    Args:
      loop: what runs; its functions may hold values of transformations outside.
      arguments: pytrees, batched or not.
      slots: how many loops of a batch run side by side; 0 for all.
    """
    start, held = _explicit(loop.start, *arguments)
    carry = jax.eval_shape(start, held, *arguments)
    advance, also_held = _explicit(loop.advance, carry, *arguments)

    def whole(held: tuple, arguments: tuple) -> Any:
        first = start(held[0], *arguments)
        return jax.lax.while_loop(lambda now: ~loop.ended(now), lambda now: advance(held[1], now, *arguments), first)

    alone = jax.custom_batching.custom_vmap(whole)

    @alone.def_vmap
    def many(size: int, batched: Any, held: tuple, arguments: tuple) -> tuple[Any, Any]:
        given, own = (held, arguments), tuple(batched)

        def turn(index: Array, now: Any) -> Any:
            held, arguments = jax.tree.map(lambda leaf, many: leaf[index] if many else leaf, given, own)
            return advance(held[1], now, *arguments)

        axes = jax.tree.map(lambda many: 0 if many else None, own)
        if 0 < slots < size:
            firsts = jax.vmap(lambda held, arguments: start(held[0], *arguments), axes)(*given)
            ends = _in_slots(turn, loop.ended, firsts, slots)
        else:
            ends = jax.vmap(whole, axes)(*given)
        return ends, jax.tree.map(lambda _: True, ends)

    return alone((held, also_held), arguments)


def in_turn(function: Callable[..., Any], arguments: tuple, width: int) -> Any:
    """The function's result; under `jax.vmap` those of a batch, a few side by side, one group after another.

    Args:
      function: of the arguments, pytrees, batched or not; it may hold values of transformations outside.
      width: how many are computed side by side; 0 for all.
    """
    whole, held = _explicit(function, *arguments)
    alone = jax.custom_batching.custom_vmap(lambda held, arguments: whole(held, *arguments))

    @alone.def_vmap
    def many(size: int, batched: Any, held: list[Array], arguments: tuple) -> tuple[Any, Any]:
        leaves, tree = jax.tree.flatten((held, arguments))
        own = jax.tree.leaves(tuple(batched))

        def one(parts: list[Array]) -> Any:
            rest = iter(parts)
            held, arguments = tree.unflatten(next(rest) if many else x for x, many in zip(leaves, own, strict=True))
            return whole(held, *arguments)

        parts = [x for x, many in zip(leaves, own, strict=True) if many]
        found = jax.lax.map(one, parts, batch_size=width) if 0 < width < size else jax.vmap(one)(parts)
        return found, jax.tree.map(lambda _: True, found)

    return alone(held, arguments)


def _explicit(function: Callable[..., Any], *arguments: Any) -> tuple[Callable[..., Any], list[Array]]:
    """The function, with what it holds from outside as its first argument; and what it holds.

    A rule for batches must be told of everything that may have a batch axis.
    """
    closed, shape = jax.make_jaxpr(function, return_shape=True)(*arguments)
    tree = jax.tree.structure(shape)

    def call(held: list[Array], *arguments: Any) -> Any:
        return jax.tree.unflatten(tree, jax.core.eval_jaxpr(closed.jaxpr, held, *jax.tree.leaves(arguments)))

    return call, list(closed.consts)


class _Board(NamedTuple):
    """The carries of all loops (N), those in the slots, whose they are (N and more: nobody's), and the next in line."""

    every: Any
    held: Any
    owner: Array
    following: Array


def _in_slots(advance: Callable[[Array, Any], Any], ended: Callable[[Any], Array], starts: Any, slots: int) -> Any:
    """The last carries of N loops.

    Args:
      advance: (index of the loop, carry) -> carry, of one loop.
      ended: carry -> bool; a loop that has ended keeps its carry.
      starts: first carries, stacked (N, ...).
      slots: how many run side by side.
    """
    count = len(jax.tree.leaves(starts)[0])

    def unfinished(board: _Board) -> Array:
        return jnp.any(board.owner < count)

    def turn(board: _Board) -> _Board:
        index = jnp.minimum(board.owner, count - 1)
        held = _where(jax.vmap(ended)(board.held), board.held, jax.vmap(advance)(index, board.held))
        done = jax.vmap(ended)(held)
        place = jnp.where(done, board.owner, count)
        every = jax.tree.map(lambda all, own: all.at[place].set(own, mode="drop"), board.every, held)
        owner = jnp.where(done, board.following + jnp.cumsum(done) - 1, board.owner)
        fresh = jax.tree.map(lambda leaf: leaf[jnp.minimum(owner, count - 1)], every)
        return _Board(every, _where(done, fresh, held), owner, board.following + jnp.sum(done))

    first = jax.tree.map(lambda leaf: leaf[:slots], starts)
    start = _Board(starts, first, jnp.arange(slots), jnp.asarray(slots))
    return jax.lax.while_loop(unfinished, turn, start).every


def _where(chosen: Array, one: Any, other: Any) -> Any:
    """By slot, of pytrees."""

    def pick(a: Array, b: Array) -> Array:
        return jnp.where(chosen.reshape(-1, *(1,) * (a.ndim - 1)), a, b)

    return jax.tree.map(pick, one, other)
