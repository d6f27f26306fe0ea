"""Layouts of vectors in memory, and bilinear products of vectors as single operations of JAX.

Vectors (n, k) can be split into k arrays (`unpack`), or stored by components (`by_components`): first the first
components of all vectors, then all second components, and so on. Then arithmetic runs for several vectors at once, and
sums along trees, which are products with a mask from the right, read memory in order. `powers` fills the last vector
register of a CPU, and `arrow_product` avoids concatenating arrays.

In components, a cross product is about twenty operations, which JAX traces, batches, differentiates and transposes one
by one. Most operations of the gradient of a simulation come from such products. As a primitive (`bilinear`), a product
is one operation, whose derivatives and transposes are such products again. Its components are written out once, when a
program is lowered.
"""

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.core import ShapedArray
from jax.experimental.layout import Layout, with_layout_constraint
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from diffsim.xla.barriers import for_cpu, for_gpu, stored
from diffsim.xla.compiled import define_eager
from diffsim.xla.loops import varying
from diffsim.xla.numpy_rules import RULES, unchanged
from diffsim.xla.reverse_mode import entwined

# number of float32 values in a vector register of a CPU
VECTOR = 8
# LLVM unrolls the loop over a row (see `powers`) unless the row is longer than this
UNROLLED_ROW = 48


def unpack(v: Array, axis: int = -1) -> list[Array]:
    """The slices along an axis as separate arrays, without this axis."""
    axis = axis % v.ndim
    return [jax.lax.squeeze(part, [axis]) for part in jax.lax.split(v, (1,) * v.shape[axis], axis)]


def stored_in_order(values: Array) -> Array:
    """The same array, `stored` with its last axis contiguous in memory.

    XLA would otherwise store a transposed array in its old order, and transpose it each time it is read.
    """
    return stored(in_order_p.bind(values)) if for_cpu() else values


def _lowered(context: mlir.LoweringRuleContext, value: Any) -> Any:
    """A layout constraint; in an exported program, which may not contain any, the array itself."""
    if context.module_context.lowering_parameters.for_export:
        return [value]
    order = Layout(tuple(range(context.avals_out[0].ndim)))
    return mlir.lower_fun(lambda x: with_layout_constraint(x, order), multiple_results=False)(context, value)


in_order_p = Primitive("in_order")
RULES["in_order"] = unchanged
define_eager(in_order_p, lambda values: values)
in_order_p.def_abstract_eval(lambda values: values)
ad.deflinear2(in_order_p, lambda cotangent, _: [cotangent])
batching.primitive_batchers[in_order_p] = lambda values, dims: (in_order_p.bind(jnp.moveaxis(values[0], dims[0], 0)), 0)
mlir.register_lowering(in_order_p, lambda _, value: [value])
mlir.register_lowering(in_order_p, _lowered, platform="cpu")


def with_transpose(matrix: Array, compute_transpose: Callable[[], Array]) -> tuple[Array, Array]:
    """A matrix and its transpose.

    On a GPU, `compute_transpose` computes the transpose from the beginning, which is cheaper than one more kernel. On a
    CPU the matrix is stored and transposed. Otherwise XLA would compute it again for its transpose, column by column,
    which takes 0.9 us instead of 0.4 us for 27 rows, and reverse mode would store the entries of two matrices.
    """
    matrix = stored(matrix)
    return matrix, compute_transpose() if for_gpu() else matrix.T


@jax.custom_jvp
def by_components(vectors: Array) -> Array:
    """The same vectors (n, k); on a CPU each component is contiguous in memory.

    The vectors are first stored in the order in which kernels write them, and then copied. Reverse mode stores the sum
    of their cotangents, in a layout that XLA chooses; otherwise each kernel that reads the sum would compute it again.
    """
    return _transposed_in(stored_in_order, vectors)


@by_components.defjvp
def _derivative(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    """The layout of the vectors, and the tangents, stored as they are."""
    return _transposed_in(stored, *primals), stored(tangents[0])


def _transposed_in(store: Callable[[Array], Array], vectors: Array) -> Array:
    """The vectors, first stored in their own order, and then by components."""
    return jnp.swapaxes(store(jnp.swapaxes(store(vectors), 0, 1)), 0, 1) if for_cpu() else vectors


def powers(base: Array, exponent: Array) -> Array:
    """(n,) base^exponent for positive bases.

    On a CPU n is padded to whole vector registers, because a partly filled register takes as long as a full one. If all
    worlds of a batch share the exponents, these are copied for each world, so that both arrays have the same shape and
    the operation is one long loop. Otherwise LLVM would unroll the loop over a row, with exp and log, and the operation
    would take four times as long.
    """
    n = base.shape[-1]
    if not for_cpu() or not VECTOR < n < UNROLLED_ROW:
        return jnp.exp(exponent * jnp.log(base))
    exponent = entwined(exponent, base)
    base, exponent = (stored(jnp.pad(x, (0, -n % VECTOR), constant_values=1)) for x in (base, exponent))
    return stored(jnp.exp(exponent * jnp.log(base)))[:n]


def arrow_product(tip: Array, side: Array, diagonal: Array, y: Array) -> Array:
    """Products of n arrow matrices with vectors; an arrow matrix has entries in first row, first column and diagonal.

    Args:
      tip: (1, n, ...) the first entries.
      side: (k, n, ...) the other entries of the first row, which equal the other entries of the first column.
      diagonal: (k, n, ...) the other entries of the diagonal.
      y: (k + 1, n, ...) the vectors; the other arguments broadcast against it.

    Returns:
      (k + 1, n, ...) the products.
    """
    if not for_cpu():
        first = tip * y[:1] + _total(side * y[1:])[None]
        return jnp.concatenate([first, side * y[:1] + diagonal * y[1:]])
    # on a CPU, concatenating arrays as wide as y takes three times as long as adding zeros below the first row
    diagonal = stored(jnp.concatenate([tip, diagonal]))
    side = stored(jnp.concatenate([jnp.zeros_like(tip), side]))
    first = jnp.pad(_total(side[1:] * y[1:])[None], [(0, y.shape[0] - 1)] + [(0, 0)] * (y.ndim - 1))
    return diagonal * y + side * y[:1] + first


def _total(parts: Array) -> Array:
    """The sum over the first axis, written out."""
    return functools.reduce(operator.add, list(parts))


# (a, b) -> c
Product = Callable[[Array, Array], Array]


class Rule(NamedTuple):
    """A bilinear product c = f(a, b) of vectors (..., na) and (..., nb), whose leading axes broadcast.

    Attributes:
      formula: f, written out in components.
      size: number of components of c; None if c is a scalar.
      left: (cotangent of c, b) -> cotangent of a.
      right: (cotangent of c, a) -> cotangent of b.
    """

    formula: Product
    size: int | None
    left: Product
    right: Product


# the formula of each product, by the name of its primitive
FORMULAS: dict[str, Product] = {}


def bilinear(name: str, rule: Rule) -> Product:
    """The product of a rule as one operation: a primitive with this name."""
    FORMULAS[name] = rule.formula
    primitive = Primitive(name)
    define_eager(primitive, rule.formula)
    tail = () if rule.size is None else (rule.size,)

    def shape(a: ShapedArray, b: ShapedArray) -> ShapedArray:
        return b.update(shape=(*jnp.broadcast_shapes(a.shape[:-1], b.shape[:-1]), *tail), weak_type=False)

    def batch(arguments: Sequence[Array], dims: Sequence[int | None]) -> tuple[Array, int]:
        pairs = zip(arguments, dims, strict=True)
        moved = (x[None] if dim is None else jnp.moveaxis(x, dim, 0) for x, dim in pairs)
        return primitive.bind(*moved), 0

    def of_left(cotangent: Array, a: ad.UndefinedPrimal, b: Array) -> Array:
        return _summed(rule.left(cotangent, b), a.aval.shape)

    def of_right(cotangent: Array, a: Array, b: ad.UndefinedPrimal) -> Array:
        return _summed(rule.right(cotangent, a), b.aval.shape)

    primitive.def_abstract_eval(shape)
    batching.primitive_batchers[primitive] = batch
    ad.defbilinear(primitive, of_left, of_right)
    mlir.register_lowering(primitive, mlir.lower_fun(rule.formula, multiple_results=False))

    def product(a: Any, b: Any) -> Array:
        # convert both to arrays with the same dtype and number of axes
        dtype = jnp.result_type(a, b)
        rank = max(jnp.ndim(a), jnp.ndim(b))
        arrays = varying([jnp.asarray(x, dtype) for x in (a, b)])
        return primitive.bind(*(x if x.ndim == rank else x.reshape((1,) * (rank - x.ndim) + x.shape) for x in arrays))

    return product


def _summed(values: Array, shape: tuple[int, ...]) -> Array:
    """The sum of `values` over the axes along which an array of this shape was broadcast to them.

    The sum is stored, because inside a larger kernel a CPU would not compute it in vector lanes.
    """
    repeated = tuple(i for i, (now, then) in enumerate(zip(values.shape, shape, strict=True)) if now != then)
    return stored(jnp.sum(values, axis=repeated, keepdims=True)) if repeated else values
