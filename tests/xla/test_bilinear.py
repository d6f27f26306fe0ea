"""Products that are single operations: values and derivatives of what they are written out, in batches too."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from uncompiled import uncompiled

from diffsim.compiler.host.interpret import interpret
from diffsim.math import rotation, spatial, vector
from diffsim.math.rotation import quat_conj, quat_mul
from diffsim.xla.bilinear import FORMULAS


def _turned(w: jax.Array, matrix: jax.Array) -> jax.Array:
    turned = vector.turn(w, matrix.reshape(*matrix.shape[:-1], 3, 3))
    return turned.reshape(*turned.shape[:-2], 9)


# name -> (product, sizes of its operands)
PRODUCTS = {
    "vector_dot": (vector.dot, 3, 3),
    "vector_cross": (vector.cross, 3, 3),
    "vector_turn": (_turned, 3, 9),
    "vector_axial": (vector.axial, 9, 9),
    "quaternion_product": (rotation._product, 4, 4),
    "quaternion_product_right_conjugated": (rotation._right_conjugated, 4, 4),
    "quaternion_product_left_conjugated": (rotation._left_conjugated, 4, 4),
    "cross_motion": (spatial.cross_motion, 6, 6),
    "cross_force": (spatial.cross_force, 6, 6),
    "inertia_product": (spatial.inertia_mul, 10, 6),
    "inertia_slope": (spatial.inertia_slope, 6, 6),
}
# leading axes of both: equal, and repeated along some
SHAPES = [((), ()), ((4, 5), (4, 5)), ((4, 1), (1, 5)), ((1, 5), (4, 5))]


def test_every_product_is_here() -> None:
    assert set(PRODUCTS) == set(FORMULAS)


def _operands(name: str, left: tuple[int, ...], right: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    rng, (_, a, b) = np.random.default_rng(0), PRODUCTS[name]
    return rng.normal(size=(*left, a)), rng.normal(size=(*right, b))


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("shapes", SHAPES)
def test_values_and_both_modes(name: str, shapes: tuple) -> None:
    product, formula, operands = PRODUCTS[name][0], FORMULAS[name], _operands(name, *shapes)
    changes = tuple(np.cos(3 * x) for x in operands)
    np.testing.assert_allclose(product(*operands), formula(*operands), rtol=1e-14)
    for mine, plain in zip(*(jax.jvp(f, operands, changes) for f in (product, formula)), strict=True):
        # sums that cancel keep the rounding of their terms
        np.testing.assert_allclose(mine, plain, rtol=1e-13, atol=1e-14)
    weight = np.random.default_rng(1).normal(size=formula(*operands).shape)
    (mine, _), (plain, _) = (
        (jax.grad(lambda a, b, f=f: jnp.sum(weight * f(a, b) ** 2), (0, 1))(*operands), f) for f in (product, formula)
    )
    for one, other in zip(mine, plain, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", PRODUCTS)
def test_batches_of_one_operand_and_curvature(name: str) -> None:
    product, formula, (a, b) = PRODUCTS[name][0], FORMULAS[name], _operands(name, (4,), (4,))
    curved = []
    for axes in ((0, None), (None, 0), (0, 0), (1, None)):
        pairs = zip((a, b), axes, strict=True)
        given = [x if axis is None else np.moveaxis(np.stack([x, 2 * x, -x]), 0, axis) for x, axis in pairs]
        mine, plain = (uncompiled(jax.vmap(f, axes))(*given) for f in (product, formula))
        np.testing.assert_allclose(mine, plain, rtol=1e-14)
    for f in (product, formula):
        curved.append(uncompiled(jax.hessian(lambda x, f=f: jnp.sum(jnp.sin(f(x, b)) * f(x, jnp.cos(b)))))(a))
    np.testing.assert_allclose(*curved, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("name", PRODUCTS)
def test_in_numpy(name: str) -> None:
    product, operands = PRODUCTS[name][0], _operands(name, (4,), (4,))
    np.testing.assert_allclose(interpret(product, *operands), product(*operands), rtol=1e-14)


def test_operands_of_other_rank() -> None:
    a, b = _operands("vector_cross", (5,), (4, 5))
    np.testing.assert_allclose(vector.cross(a, b), np.cross(a, b), rtol=1e-13)
    mine = jax.grad(lambda a: jnp.sum(jnp.square(vector.cross(a, b))))(a)
    np.testing.assert_allclose(mine, 2 * np.sum(np.cross(b, np.cross(a, b)), axis=0), rtol=1e-12)


def test_conjugated_products() -> None:
    p, q = (jnp.asarray(x) for x in _operands("quaternion_product", (5,), (5,)))
    mine = rotation._right_conjugated(p, q), rotation._left_conjugated(p, q)
    np.testing.assert_allclose(mine[0], quat_mul(p, quat_conj(q)), rtol=1e-13)
    np.testing.assert_allclose(mine[1], quat_mul(quat_conj(p), q), rtol=1e-13)
