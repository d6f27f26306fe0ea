"""Line searches that are cut short, and iterations whose direction leads nowhere."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import pytest

from diffsim.solver import iteration
from diffsim.solver.line_search import FEW, line_search
from diffsim.solver.objective import Objective
from tests.constraint.cases import PYRAMIDAL, cases

Array = jax.Array


class Stuck(NamedTuple):
    """A slope from -1 up to a root, and 10^6 times steeper over a short way behind it: a stiff row."""

    root: float

    def __call__(self, alpha: Array) -> tuple[Array, Array]:
        behind = jnp.maximum(alpha - self.root, 0)
        slope = alpha / self.root - 1 + 1e6 * jnp.minimum(behind, 1e-2)
        return slope, 1 / self.root + jnp.where((behind > 0) & (behind < 1e-2), 1e6, 0.0)


@pytest.mark.parametrize("root", [0.04, 0.2, 0.45])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_search_that_is_cut_short_makes_way(root: float, dtype: str) -> None:
    one = jnp.ones((), dtype)
    alpha = line_search(Stuck(root), one, -one, 1e-6 * one, FEW, jnp.zeros((), bool))
    assert 0.3 * root < alpha < 3 * root


def test_a_long_search_finds_the_root() -> None:
    one = jnp.ones(())
    assert abs(line_search(Stuck(0.2), one, -one, 1e-9 * one, 100, jnp.zeros((), bool)) - 0.2) < 1e-9


def uphill(point: iteration.Iterate, previous: iteration.Direction) -> iteration.Direction:
    return iteration.Direction(point.gradient, point.gradient, point.gradient)


@pytest.mark.parametrize("full_step", [True, False])
def test_a_direction_that_does_not_descend_is_no_convergence(full_step: bool) -> None:
    inertia, force, start, constraints = cases("contact_dims", PYRAMIDAL)[0].problem
    settings = iteration.Settings(jnp.asarray(1e-10), jnp.asarray(1e-10), 100, 50, full_step, unroll=False)
    end = iteration.iterate(Objective(inertia, force, constraints), uphill, settings, start)
    assert end.stuck and end.done and end.iterations == 1
    assert (end.point.qacc == start).all()
