"""Layouts of vectors in memory, and bilinear products of vectors that JAX sees as single operations.

Vectors (n, k) may be taken apart into k arrays (`unpack`), or stored by components, the first component of all vectors
before the second (`by_components`). Then arithmetic runs for several vectors at once, and sums along trees, which are
products with a mask from the right, read memory in order. `powers` fills up the last vector register of a CPU, and
`arrow_product` avoids joining arrays that are as wide as its vectors.

Written out on components, a cross product is some twenty operations, which JAX traces, batches, differentiates and
transposes one by one; a gradient of a simulation consists of little else. As a primitive (`bilinear`) it is one
operation. Its derivatives and transposes are such products again; it is written out once, when a program is lowered.
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
from diffsim.xla.compiled import run_alone
from diffsim.xla.loops import varying
from diffsim.xla.numpy_rules import RULES, unchanged
from diffsim.xla.reverse_mode import entwined

# `powers`: numbers that a CPU raises to a power at once, 8 floats of a vector register
VECTOR = 8
# `powers`: numbers of a row from which on LLVM keeps a loop instead of writing it out
LONG = 48


def unpack(v: Array, axis: int = -1) -> list[Array]:
    """The elements along an axis as separate arrays."""
    axis = axis % v.ndim
    return [jax.lax.squeeze(part, [axis]) for part in jax.lax.split(v, (1,) * v.shape[axis], axis)]


def stored_in_order(values: Array) -> Array:
    """The same array, `stored` with its last axis contiguous in memory.

    XLA would otherwise store a transposed array in the old order, and transpose it where it is read.
    """
    return stored(in_order_p.bind(values)) if for_cpu() else values


def _lowered(context: mlir.LoweringRuleContext, value: Any) -> Any:
    """A layout constraint; in a program that is exported, which may hold none, the array itself."""
    if context.module_context.lowering_parameters.for_export:
        return [value]
    order = Layout(tuple(range(context.avals_out[0].ndim)))
    return mlir.lower_fun(lambda x: with_layout_constraint(x, order), multiple_results=False)(context, value)


in_order_p = Primitive("in_order")
RULES["in_order"] = unchanged
run_alone(in_order_p, lambda values: values)
in_order_p.def_abstract_eval(lambda values: values)
ad.deflinear2(in_order_p, lambda cotangent, _: [cotangent])
batching.primitive_batchers[in_order_p] = lambda values, dims: (in_order_p.bind(jnp.moveaxis(values[0], dims[0], 0)), 0)
mlir.register_lowering(in_order_p, lambda _, value: [value])
mlir.register_lowering(in_order_p, _lowered, platform="cpu")


def with_transpose(matrix: Array, again: Callable[[], Array]) -> tuple[Array, Array]:
    """A matrix and its transpose. On a GPU `again` computes the transpose, which would be one more kernel there.

    On a CPU the matrix is stored: XLA would compute it again for its transpose, column by column (0.9 us for 27 rows
    instead of 0.4). Reverse mode then needs the entries of one matrix, not of two.
    """
    matrix = stored(matrix)
    return matrix, again() if for_gpu() else matrix.T


@jax.custom_jvp
def by_components(vectors: Array) -> Array:
    """The same vectors (n, k), on a CPU with each component of all of them contiguous in memory.

    They are first stored in their own order, in which kernels write them, and then copied. In reverse mode the sum of
    their cotangents is stored, which several kernels would otherwise add up again; XLA chooses its layout.
    """
    return _transposed_in(stored_in_order, vectors)


@by_components.defjvp
def _derivative(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    return _transposed_in(stored, *primals), stored(tangents[0])


def _transposed_in(store: Callable[[Array], Array], vectors: Array) -> Array:
    """The vectors, stored as they are and then by components."""
    return jnp.swapaxes(store(jnp.swapaxes(store(vectors), 0, 1)), 0, 1) if for_cpu() else vectors


def powers(base: Array, exponent: Array) -> Array:
    """base^exponent (n,) of positive bases.

    On a CPU n is padded to whole vector registers, because a register that is filled in part takes the same time. An
    exponent that all worlds of a batch share is copied for each world: operations on tables of one shape are one long
    loop. Otherwise LLVM would write out the loop over a row, with exp and log, which takes four times as long.
    """
    n = base.shape[-1]
    if not for_cpu() or not VECTOR < n < LONG:
        return jnp.exp(exponent * jnp.log(base))
    exponent = entwined(exponent, base)
    base, exponent = (stored(jnp.pad(x, (0, -n % VECTOR), constant_values=1)) for x in (base, exponent))
    return stored(jnp.exp(exponent * jnp.log(base)))[:n]


def arrow_product(tip: Array, side: Array, diagonal: Array, y: Array) -> Array:
    """The product with an arrow matrix, which is zero except in its first row, first column and diagonal.

    Args:
      tip: (1, n, ...) its first element.
      side: (k, n, ...) the rest of its first row, and of its first column.
      diagonal: (k, n, ...) the rest of its diagonal.
      y: (k + 1, n, ...) vectors; the other arguments broadcast against it.

    Returns:
      (k + 1, n, ...).
    """
    if not for_cpu():
        first = tip * y[:1] + _total(side * y[1:])[None]
        return jnp.concatenate([first, side * y[:1] + diagonal * y[1:]])
    # joining arrays as wide as y takes a CPU three times as long as adding zeros below the first row
    diagonal = stored(jnp.concatenate([tip, diagonal]))
    side = stored(jnp.concatenate([jnp.zeros_like(tip), side]))
    first = jnp.pad(_total(side[1:] * y[1:])[None], [(0, y.shape[0] - 1)] + [(0, 0)] * (y.ndim - 1))
    return diagonal * y + side * y[:1] + first


def _total(parts: Array) -> Array:
    """Sum over the leading axis, written out."""
    return functools.reduce(operator.add, list(parts))


Product = Callable[[Array, Array], Array]


class Rule(NamedTuple):
    """A product c = f(a, b) of vectors (..., na) and (..., nb), whose leading axes broadcast, and its transposes.

    Attributes:
      formula: f on components.
      size: of the result, or None for a number.
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
    """The product as one operation."""
    FORMULAS[name] = rule.formula
    primitive = Primitive(name)
    run_alone(primitive, rule.formula)
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
        # both as arrays of one type, with as many axes
        dtype, rank = jnp.result_type(a, b), max(jnp.ndim(a), jnp.ndim(b))
        arrays = varying([jnp.asarray(x, dtype) for x in (a, b)])
        return primitive.bind(*(x if x.ndim == rank else x.reshape((1,) * (rank - x.ndim) + x.shape) for x in arrays))

    return product


def _summed(values: Array, shape: tuple[int, ...]) -> Array:
    """The sum over the axes along which an array of this shape was repeated.

    It is stored: within a larger kernel of a CPU the elements of the sum would not be computed in vector lanes.
    """
    repeated = tuple(i for i, (now, then) in enumerate(zip(values.shape, shape, strict=True)) if now != then)
    return stored(jnp.sum(values, axis=repeated, keepdims=True)) if repeated else values
