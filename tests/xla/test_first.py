"""Places of greatest values, and what is at a place."""

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.xla.select import first, greatest, one_of


def test_the_greatest_is_that_of_argmax() -> None:
    values = np.random.default_rng(0).normal(size=(50, 30))
    np.testing.assert_array_equal(greatest(jnp.asarray(values), 1), np.argmax(values, axis=1))
    np.testing.assert_array_equal(greatest(jnp.asarray(-np.inf + 0 * values), 1), 0)


def test_of_equal_ones_it_is_the_first_also_where_rounding_differs() -> None:
    values = jnp.array([[0.5, 1, 1 + 2e-16, 1], [-1, 0, -1, 1e-16]])
    np.testing.assert_array_equal(greatest(values, 1), [1, 1])


def test_the_first_that_is_true() -> None:
    np.testing.assert_array_equal(first(jnp.array([[0, 1, 1], [1, 0, 0], [0, 0, 0]], bool)), [1, 0, 2])


def test_one_of_a_few_has_its_derivative_alone() -> None:
    """Also where another one is not a number."""

    def chosen(x: jax.Array, place: int) -> jax.Array:
        return one_of(jnp.asarray(place), [(x * x, 2 * x), (jnp.log(-x), x), (3 * x, -x)])[0][0]

    slopes = [jax.grad(lambda x, place=place: chosen(x, place))(jnp.array([2.0]))[0] for place in (0, 2)]
    np.testing.assert_allclose(slopes, [4, 3])
