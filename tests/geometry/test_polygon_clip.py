"""Four of many points that span the greatest area; of points on a line its ends; of one place that alone."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diffsim.geometry.hull.clip import widest

WIDEST = jax.jit(widest)


def chosen(points: np.ndarray, exists: np.ndarray) -> np.ndarray:
    """The points that are needed."""
    places, needed = (
        np.asarray(x) for x in WIDEST(jnp.asarray(points), jnp.asarray(exists), jnp.asarray([0.0, 0.6, 0.8]))
    )
    assert np.all(exists[places[needed]])
    return points[places[needed]]


def in_plane(flat: np.ndarray) -> np.ndarray:
    """Points (n, 3) of a plane with the normal (0, 0.6, 0.8), far from the origin."""
    return flat @ np.array([[1.0, 0, 0], [0, 0.8, -0.6]]) + [3.0, -2.0, 5.0]


def area(flat: np.ndarray) -> float:
    """Of a quadrilateral."""
    a, b = flat[2] - flat[0], flat[3] - flat[1]
    return 0.5 * abs(a[0] * b[1] - a[1] * b[0])


@pytest.mark.parametrize("seed", range(8))
def test_points_on_a_line_are_its_ends(seed: int):
    """In every direction, in any order, some of them equal, some that do not exist beyond the ends."""
    rng = np.random.default_rng(seed)
    along, angle = np.repeat(rng.uniform(-1, 1, 6), 2), rng.uniform(0, np.pi)
    along, exists = np.append(along, [5.0, -5.0]), np.append(np.ones(12, bool), [False, False])
    order = rng.permutation(14)
    points = in_plane(along[order, None] * [np.cos(angle), np.sin(angle)])
    found = chosen(points, exists[order])
    assert len(found) == 2
    np.testing.assert_allclose(np.linalg.norm(found[1] - found[0]), np.ptp(along[:12]), atol=1e-12)


@pytest.mark.parametrize("seed", range(8))
def test_four_points_span_most(seed: int):
    """At least 0.97 of the greatest area of four of eight points on a circle or ellipse."""
    rng = np.random.default_rng(seed)
    turn = np.sort(rng.uniform(0, 2 * np.pi, 8))
    flat = np.stack([np.cos(turn), rng.uniform(0.3, 1) * np.sin(turn)], axis=1)
    found = chosen(in_plane(flat), np.ones(8, bool)) - [3.0, -2.0, 5.0]
    assert len(found) == 4
    back = found @ np.array([[1.0, 0, 0], [0, 0.8, -0.6]]).T
    center = back - back.mean(axis=0)
    ring = back[np.argsort(np.arctan2(center[:, 1], center[:, 0]))]
    best = max(area(flat[list(four)]) for four in itertools.combinations(range(8), 4))
    assert area(ring) >= 0.97 * best


def test_one_place_is_one_point():
    """Also where all points are equal; none where none exists."""
    points = in_plane(np.zeros((5, 2)))
    assert len(chosen(points, np.ones(5, bool))) == 1
    assert len(chosen(points, np.zeros(5, bool))) == 0
