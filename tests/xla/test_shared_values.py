"""Values that several results need are stored; numbers and derivatives are those of the plain function."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diffsim.base.enums import GeomType
from diffsim.geometry.colliders import COLLIDERS
from diffsim.geometry.shapes import Shape
from diffsim.xla.shared_values import stored_where_shared


def shared(x: jax.Array, y: jax.Array) -> list[jax.Array]:
    """Three results that all need the same sum of products."""
    common = x * y + (x + 1) * (y + 2) + (x - 3) * (y - 4)
    return [common * k + x for k in (2.0, 3.0, 5.0)]


def alone(x: jax.Array, y: jax.Array) -> jax.Array:
    """One result: nothing is computed twice."""
    common = x * y + (x + 1) * (y + 2) + (x - 3) * (y - 4)
    return common * common + x


def barriers(function: object, *inputs: object) -> int:
    """How many barriers a program has."""
    return str(jax.make_jaxpr(function)(*inputs)).count("= optimization_barrier")


def test_only_what_is_shared_is_stored() -> None:
    inputs = np.array(1.5), np.array(2.5)
    assert barriers(stored_where_shared(shared), *inputs) == 1
    assert barriers(stored_where_shared(alone), *inputs) == 0


def test_no_barriers_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert barriers(stored_where_shared(shared), np.array(1.5), np.array(2.5)) == 0


def test_values_and_derivatives_are_unchanged() -> None:
    inputs = jnp.array(0.7), jnp.array(-1.3)

    def total(function: object) -> object:
        return lambda x, y: jnp.sin(sum(function(x, y)))  # type: ignore[operator]

    plain, stored = total(shared), total(stored_where_shared(shared))
    for derivative in (lambda f: f, jax.grad, jax.hessian, lambda f: jax.jacfwd(f, argnums=(0, 1))):
        expected, got = (derivative(f)(*inputs) for f in (plain, stored))  # type: ignore[arg-type]
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12), expected, got)


def pairs(count: int) -> tuple[Shape, Shape, np.ndarray]:
    """Pairs of shapes near each other, and margins."""
    random = np.random.default_rng(7)
    ends = []
    for _ in range(2):
        mat = np.linalg.qr(random.normal(size=(count, 3, 3)))[0]
        mat[np.linalg.det(mat) < 0] *= -1
        ends.append(Shape(random.uniform(-0.3, 0.3, (count, 3)), mat, random.uniform(0.1, 0.3, (count, 3))))
    return ends[0], ends[1], np.full(count, 0.01)


@pytest.mark.parametrize("types", [(GeomType.CAPSULE, GeomType.CAPSULE), (GeomType.CAPSULE, GeomType.BOX)])
def test_a_gradient_takes_fewer_operations(types: tuple[GeomType, GeomType]) -> None:
    """XLA counts the operations of the program that it compiled: those of each loop, repeated or not."""
    function = COLLIDERS[types].function
    first, second, margin = pairs(16)

    def program(pair: object) -> tuple[float, jax.Array]:
        def loss(positions: tuple[np.ndarray, np.ndarray]) -> jax.Array:
            shapes = (shape._replace(pos=pos) for shape, pos in zip((first, second), positions, strict=True))
            rows = jax.vmap(pair)(*shapes, margin)  # type: ignore[arg-type]
            return jnp.sum(rows.dist) + jnp.sum(rows.pos * rows.normal)

        compiled = jax.jit(jax.grad(loss)).lower((first.pos, second.pos)).compile()
        return compiled.cost_analysis()["flops"], compiled((first.pos, second.pos))

    flops, gradient = program(function)
    flops_without, expected = program(function.__wrapped__)  # type: ignore[attr-defined]
    assert flops < 0.5 * flops_without
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9), gradient, expected)
