"""Vectors (n, k) with each component of all of them in one piece of a CPU's memory.

What is computed of components is then computed for several vectors at once, and sums along trees, which are products
with a mask from the right, read them as they are. The vectors are stored in their order first, for kernels write them
that way, and copied. An operation of JAX of its own: its derivative is the identity, in whatever order.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax.core import ShapedArray
from jax.experimental.layout import Layout, with_layout_constraint
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from diffsim.kernels.alone import run_alone
from diffsim.math.xla import for_cpu, stored

Array = jax.Array


def by_components(vectors: Array) -> Array:
    """The same vectors (n, k); not on a CPU as they are."""
    return by_components_p.bind(vectors) if for_cpu() else vectors


def _plain(vectors: Array) -> Array:
    """The definition."""
    return vectors


def _laid_out(vectors: Array) -> Array:
    """The same (..., n, k). XLA would choose one order for both, if it were not told."""
    as_written = Layout(tuple(range(vectors.ndim)))
    in_order = stored(with_layout_constraint(vectors, as_written))
    components = jnp.swapaxes(in_order, -1, -2)
    return jnp.swapaxes(stored(with_layout_constraint(components, as_written)), -1, -2)


def _shape(vectors: ShapedArray) -> ShapedArray:
    return vectors


def _derivative(primals: Sequence[Array], tangents: Sequence[Array]) -> tuple[Array, Array]:
    return by_components_p.bind(primals[0]), tangents[0]


def _batch(arguments: Sequence[Array], dims: Sequence[int]) -> tuple[Array, int]:
    return by_components_p.bind(jnp.moveaxis(arguments[0], dims[0], 0)), 0


by_components_p = Primitive("by_components")
run_alone(by_components_p, _plain)
by_components_p.def_abstract_eval(_shape)
ad.primitive_jvps[by_components_p] = _derivative
batching.primitive_batchers[by_components_p] = _batch
mlir.register_lowering(by_components_p, mlir.lower_fun(_laid_out, multiple_results=False))
