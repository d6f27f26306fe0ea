"""Line searches that are cut short, the slope along their line, and iterations whose direction leads nowhere."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diffsim.constraint import laws
from diffsim.math.linalg import blocks_of, columns_of
from diffsim.solver import iteration
from diffsim.solver.line_search import FEW, line_rows, line_search
from diffsim.solver.objective import Objective
from diffsim.types.constraints import Constraints, Law
from tests.constraint.cases import PYRAMIDAL, cases
from tests.constraint.test_laws import KINDS, cone_consistent, rows_of
from tests.uncompiled import uncompiled

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
    search = uncompiled(lambda one: line_search(Stuck(root), one, -one, 1e-6 * one, FEW, jnp.zeros((), bool)))
    alpha = search(np.ones((), dtype))
    assert 0.3 * root < alpha < 3 * root


def test_a_long_search_finds_the_root() -> None:
    search = uncompiled(lambda one: line_search(Stuck(0.2), one, -one, 1e-9 * one, 100, jnp.zeros((), bool)))
    assert abs(search(np.ones(())) - 0.2) < 1e-9


def uphill(point: iteration.Iterate, previous: iteration.Direction) -> iteration.Direction:
    return iteration.Direction(point.gradient, point.gradient, point.gradient)


@pytest.mark.parametrize("full_step", [True, False])
def test_a_direction_that_does_not_descend_is_no_convergence(full_step: bool) -> None:
    inertia, force, start, constraints = cases("contact_dims", PYRAMIDAL)[0].problem
    settings = iteration.Settings(jnp.asarray(1e-10), jnp.asarray(1e-10), 100, 50, full_step, unroll=False)
    rule = lambda *_: iteration.Rule(uphill)  # noqa: E731
    iterate = uncompiled(lambda objective, start: iteration.iterate(objective, rule, settings, start))
    end = iterate(Objective(inertia, force, constraints), iteration.Start(start, inertia.mul_vec(start)))
    assert end.stuck and end.done and end.iterations == 1
    assert (end.point.qacc == start).all()


@pytest.mark.parametrize(("law", "dim"), KINDS)
def test_slope_and_curvature_along_a_line_are_those_of_the_cost(law: Law, dim: int) -> None:
    rows, rng = cone_consistent(rows_of(law, dim)), np.random.default_rng(1)
    x, v = (jnp.asarray(rng.normal(size=(dim, rows.count))) for _ in range(2))
    jacobian = columns_of(blocks_of(np.zeros(1)), jnp.zeros((dim * rows.count, 1)))
    given = Constraints(jacobian=jacobian, groups=(rows,), warm=jnp.zeros(0))
    cost = lambda alpha: jnp.sum(laws.cost(rows, x + alpha * v))  # noqa: E731

    @uncompiled
    def slopes(alpha: Array) -> tuple[Array, ...]:
        return *line_rows(given, (x,), (v,))(alpha), jax.grad(cost)(alpha), jax.grad(jax.grad(cost))(alpha)

    for alpha in (0.0, 0.3, -1.2):
        slope, curvature, first, second = slopes(alpha)
        np.testing.assert_allclose(slope, first, rtol=1e-12, atol=1e-8)
        np.testing.assert_allclose(curvature, second, rtol=1e-9, atol=1e-8)


def test_groups_as_one_list_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    constraints = cases("contact_dims", PYRAMIDAL)[0].problem[3]
    rng, alpha = np.random.default_rng(2), jnp.asarray(0.4)
    x, v = (tuple(jnp.asarray(rng.normal(size=(g.dim, g.count))) for g in constraints.groups) for _ in range(2))
    cpu = line_rows(constraints, x, v)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    gpu = line_rows(constraints, x, v)
    assert len(gpu.groups) < len(cpu.groups)
    np.testing.assert_allclose(gpu(alpha), cpu(alpha), rtol=1e-13)
