"""The laws: force and curvature are the derivatives of the cost; nothing is infinite at the singular points."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracle import assert_close

from diffsim.compiler.host.interpret import interpret
from diffsim.constraint import laws
from diffsim.constraint.laws import SPRINGS
from diffsim.types.constraints import Law, RowGroup
from tests.uncompiled import uncompiled

COUNT = 300


def rows_of(law: Law, dim: int, friction: float = 0.6, seed: int = 0) -> RowGroup:
    rng = np.random.default_rng(seed)
    none = np.zeros(0)
    contact = dim > 1
    table = friction * rng.uniform(0.5, 1.5, size=(dim - 1, COUNT)) if contact else np.zeros((0, COUNT))
    return RowGroup(
        family="made up",
        law=law,
        dim=dim,
        sign=0,
        start=0,
        slot=None,
        pos=np.zeros(COUNT),
        margin=np.zeros(COUNT),
        kinks=np.zeros((2, COUNT)),
        vel=np.zeros((dim, COUNT)),
        aref=np.zeros((dim, COUNT)),
        D=rng.uniform(1, 50, size=(1 if law == Law.PYRAMID else dim, COUNT)),
        threshold=np.zeros((0, COUNT)),
        frictionloss=rng.uniform(1, 9, size=COUNT) if law == Law.BOUNDED else none,
        friction=table,
        mu=0.8 * table[0] if contact else none,
        anchor=np.zeros((0, 2, 3)),
    )


KINDS = [
    (Law.QUADRATIC, 1),
    (Law.BOUNDED, 1),
    (Law.ONE_SIDED, 1),
    *[(law, dim) for law in (Law.PYRAMID, Law.CONE) for dim in (3, 4, 6)],
]


def cone_consistent(rows: RowGroup) -> RowGroup:
    """Elliptic weights as make_constraints builds them, which make the zones meet smoothly."""
    if rows.law != Law.CONE:
        return rows
    impratio = (rows.friction[0] / rows.mu) ** 2
    sides = rows.D[:1] * impratio * (rows.friction / rows.friction[:1]) ** 2
    return rows.replace(D=np.concatenate([rows.D[:1], sides]))


def test_kinds_cover_the_table():
    assert {law for law, _ in KINDS} == {*SPRINGS, Law.CONE} == set(Law)


@pytest.mark.parametrize(("law", "dim"), KINDS)
def test_force_and_curvature_are_derivatives_of_the_cost(law, dim):
    rows = cone_consistent(rows_of(law, dim))
    x = np.random.default_rng(1).normal(size=(dim, COUNT))

    way = np.random.default_rng(3).normal(size=(2, dim, COUNT))

    def derivatives(x, way):
        slope = jax.grad(lambda x: jnp.sum(laws.cost(rows, x)))(x)
        force, change = jax.jvp(lambda x: laws.force(rows, x), (x,), (way[0],))
        both = laws.hessian_product(rows, x, jnp.stack(way, axis=-1))
        return slope, force, change, laws.hessian_product(rows, x, way[0]), both[..., 0]

    slope, force, change, bent, both = interpret(derivatives, x, way)
    assert_close("force", force, -slope, 1e-12, rtol=1e-12)
    assert_close("K y", bent, -change, 1e-11, rtol=1e-11)
    assert_close("K Y", both, bent, 1e-12, rtol=1e-12)


@pytest.mark.parametrize(("law", "dim"), KINDS)
def test_the_cost_is_smooth_across_zones(law, dim):
    rows = cone_consistent(rows_of(law, dim))
    rng = np.random.default_rng(2)
    x, way = rng.normal(size=(2, dim, COUNT))
    steps = np.linspace(-3, 3, 4001)
    force = interpret(jax.vmap(lambda t: laws.force(rows, x + t * way)), steps)
    jump = np.max(np.abs(np.diff(force, axis=0)))
    assert jump < 200 * (steps[1] - steps[0]) * np.max(rows.D) / 50 * 10


SINGULAR = {
    "tip": lambda dim: np.zeros((dim, COUNT)),
    "no slip, pressed": lambda dim: np.concatenate([-np.ones((1, COUNT)), np.zeros((dim - 1, COUNT))]),
    "no slip, apart": lambda dim: np.concatenate([np.ones((1, COUNT)), np.zeros((dim - 1, COUNT))]),
    "tiny slip": lambda dim: np.full((dim, COUNT), -1e-160),
}


@pytest.mark.parametrize("friction", [0.6, 0.0])
@pytest.mark.parametrize(("law", "dim"), KINDS)
def test_nothing_is_infinite_at_singular_points(law, dim, friction):
    rows = rows_of(law, dim, friction)

    def total(D, frictionloss, table, mu, x):
        changed = rows.replace(D=D, frictionloss=frictionloss, friction=table, mu=mu)
        return jnp.sum(laws.force(changed, x)) + jnp.sum(laws.hessian_product(changed, x, jnp.ones_like(x)))

    both = uncompiled(jax.value_and_grad(total, argnums=(0, 1, 2, 3, 4)))
    for where, at in SINGULAR.items():
        value, gradients = both(rows.D, rows.frictionloss, rows.friction, rows.mu, at(dim))
        assert np.isfinite(value), where
        assert all(np.all(np.isfinite(part)) for part in gradients), where


def test_a_row_without_friction_has_no_derivative_at_rest():
    """Dofs without friction are rows with bound 0; where nothing accelerates them x is exactly 0."""
    rows = rows_of(Law.BOUNDED, 1)
    rows = rows.replace(frictionloss=np.zeros(COUNT))
    x, way = np.zeros((1, COUNT)), np.ones((1, COUNT))
    force, slope = jax.jvp(lambda x: laws.force(rows, x), (x,), (way,))
    assert not np.any(force) and not np.any(slope)
    assert not np.any(laws.hessian_product(rows, jnp.asarray(x), jnp.asarray(way)))
