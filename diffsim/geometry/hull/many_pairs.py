"""Contacts of many pairs of hulls at once, computed only for the pairs that are near."""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.geometry.hull.features import Feature, HullPair, separation
from diffsim.geometry.hull.pairs import Contact, contact_row, searched, with_copies
from diffsim.geometry.shapes import Candidates, Shape
from diffsim.xla.batched_searches import in_groups
from diffsim.xla.select import if_anywhere


class HullPairs(NamedTuple):
    """Pairs (n,) of rounded hulls, which can be searched together with other pairs.

    Attributes:
      first: (n, v, 3) m, vertices of the first hulls, or (v, 3) of one hull for all pairs.
      second: (n, w, 3) m, vertices of the second hulls.
      pos, mat: (n, 3) m and (3, 3), the frames in which the vertices are given.
      radii: of the first and of the second hulls, m.
      near: (n,) which pairs have a row.
    """

    first: Array
    second: Array
    pos: Array
    mat: Array
    radii: tuple[Array, Array]
    near: Array


# hulls with at most this many vertices share one search
SMALL = 8


def rows_of_hulls(several: Sequence[HullPairs]) -> list[Candidates]:
    """The rows (n,) of each set of pairs: the closest points of the hulls."""
    small = [number for number, pairs in enumerate(several) if pairs.first.shape[-2] <= SMALL]
    groups = [small, *([number] for number in range(len(several)) if number not in small)]
    rows = dict[int, Candidates]()
    for group in filter(None, groups):
        features = _features([several[number] for number in group])
        rows |= {number: _hull_rows(several[number], feature) for number, feature in zip(group, features, strict=True)}
    return [rows[number] for number in range(len(several))]


def _features(several: Sequence[HullPairs]) -> list[Feature]:
    """The closest features of all pairs, found by one search."""
    fixed = [jax.lax.stop_gradient((pairs.first, pairs.second, pairs.near)) for pairs in several]
    firsts, seconds, nears = (list(column) for column in zip(*fixed, strict=True))
    shared = len(fixed) == 1 and firsts[0].ndim == 2

    def joined(parts: list[Array]) -> Array:
        """All vertices (n, v, 3), padded with copies of the first vertex, which change no result."""
        most = max(part.shape[-2] for part in parts)
        whole = (jnp.broadcast_to(part, (len(near), *part.shape[-2:])) for part, near in zip(parts, nears, strict=True))
        return jnp.concatenate([jax.vmap(functools.partial(with_copies, length=most))(part) for part in whole])

    def search(near: Array, first: Array, second: Array) -> Feature:
        pair = HullPair(first, second, jnp.eye(3, dtype=first.dtype), jnp.zeros((3,), first.dtype))
        return in_groups(lambda _, pair: searched(pair), near, pair)

    arguments = jnp.concatenate(nears), firsts[0] if shared else joined(firsts), joined(seconds)
    features = jax.vmap(search, (0, None if shared else 0, 0))(*arguments)
    # a single corner where nothing was searched
    features = jax.lax.stop_gradient(features._replace(corners=jnp.maximum(features.corners, 1)))
    cuts = np.cumsum([len(near) for near in nears])[:-1]
    columns = zip(*(jnp.split(column, cuts) for column in features), strict=True)
    return [Feature(*column) for column in columns]


def _hull_rows(pairs: HullPairs, feature: Feature) -> Candidates:
    """The rows (n,) of pairs with these features, in closed form; nothing is computed if no pair is near."""
    shared = pairs.first.ndim == 2

    def row(feature: Feature, first: Array, second: Array, pos: Array, near: Array) -> Candidates:
        pair = HullPair(first, second, jnp.eye(3, dtype=pos.dtype), jnp.zeros_like(pos))
        frame = Shape(pos, pairs.mat, jnp.zeros_like(pos))
        return contact_row(frame, Contact(*separation(pair, feature)), *pairs.radii)._replace(valid=near)

    def rows() -> Candidates:
        columns = feature, pairs.first, pairs.second, pairs.pos, pairs.near
        return jax.vmap(row, (0, None if shared else 0, 0, 0, 0))(*columns)

    return rows_if_near(pairs.near, rows, pairs.pos.dtype)


def rows_if_near(near: Array, rows: Callable[[], Candidates], dtype: jnp.dtype) -> Candidates:
    """`rows()`, (n,), if some pair is near; otherwise rows that are not valid, and nothing is computed."""
    dist = jnp.zeros(near.shape, dtype)
    pos, upright = (jnp.broadcast_to(jnp.asarray([0, 0, z], dtype), (len(near), 3)) for z in (0, 1))
    return if_anywhere(near, rows, Candidates(dist, pos, upright, pos, dist > 0))
