"""Vectors and matrices of 3, 4 or 6 elements, with every sum written out; and products of larger matrices.

`unpack` turns the last axis into separate arrays, and `pack` joins them again. Formulas are written on these
components, so that XLA fuses them as elementwise operations. Unpacking is one `split`, and its transpose is one
concatenation. Indexing would cost a padding and an addition for each element in reverse mode.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import Array

from diffsim.xla import products
from diffsim.xla.bilinear import Rule, bilinear
from diffsim.xla.bilinear import unpack as unpack

# one array for each element of a vector
Components = Sequence[Array]
# components as a sequence, or as one array with the components along its first axis
Leading = Components | Array
# TF32 and bfloat16, the defaults on accelerators, are too coarse for dynamics
HIGHEST = jax.lax.Precision.HIGHEST


def matmul(a: Array, b: Array) -> Array:
    """a @ b for matrices as large as the model, at the highest precision."""
    return products.matmul(a, b)


def inner(a: Array, b: Array) -> Array:
    """a . b for vectors as large as the model, at the highest precision."""
    return jnp.vdot(a, b, precision=HIGHEST)


def pack(components: Components) -> Array:
    """Joins components along a new last axis."""
    shape = jnp.broadcast_shapes(*(c.shape for c in components))
    columns = [jax.lax.expand_dims(jnp.broadcast_to(c, shape), [len(shape)]) for c in components]
    return jax.lax.concatenate(columns, len(shape))


def total(terms: Sequence[Array]) -> Array:
    """Sum of several arrays."""
    result = terms[0]
    for term in terms[1:]:
        result = result + term
    return result


def minus_components(a: Components, b: Components) -> list[Array]:
    """a - b, on components."""
    return [x - y for x, y in zip(a, b, strict=True)]


def dot_components(a: Leading, b: Leading) -> Array:
    """a . b, on components."""
    return total([x * y for x, y in zip(a, b, strict=True)])


def cross_components(a: Leading, b: Leading) -> list[Array]:
    """a x b, on components."""
    return [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]]


def dot(a: Array, b: Array) -> Array:
    """Sum of products over the last axis, a_i b_i."""
    return _dot(a, b)


def scale(v: Array, factor: Array) -> Array:
    """v times a scalar per vector: `factor` has the shape of v without its last axis."""
    return v * factor[..., None]


def cross(a: Array, b: Array) -> Array:
    """Cross product a x b of 3-vectors."""
    return _cross(a, b)


def turn(w: Array, matrix: Array) -> Array:
    """w x (each column of a rotation matrix (..., 3, 3)): dR/dt at angular velocity w (..., 3)."""
    turned = _turn(w, matrix.reshape(*matrix.shape[:-2], 9))
    return turned.reshape(*turned.shape[:-1], 3, 3)


def axial(a: Array, b: Array) -> Array:
    """(..., 3) sum of a_k x b_k over the columns k of two matrices (..., 9) in row-major order."""
    return _axial(a, b)


def mul_vec(matrix: Array, v: Array) -> Array:
    """Matrix (..., m, n) times vector (..., n), n small."""
    return dot(matrix, v[..., None, :])


def mul_vec_t(matrix: Array, v: Array) -> Array:
    """Transpose of a matrix (..., n, m) times vector (..., n), n small: world to local axes for a rotation matrix."""
    return total(unpack(matrix * v[..., :, None], axis=-2))


def mul_mat(a: Array, b: Array) -> Array:
    """Product of small matrices (..., l, m) (..., m, n)."""
    columns = unpack(a, axis=-1)
    rows = unpack(b, axis=-2)
    return total([column[..., :, None] * row[..., None, :] for column, row in zip(columns, rows, strict=True)])


def transpose(matrix: Array) -> Array:
    """Exchanges the last two axes."""
    return jnp.swapaxes(matrix, -1, -2)


def outer(a: Array, b: Array) -> Array:
    """Outer product a_i b_j."""
    return a[..., :, None] * b[..., None, :]


def solve3(matrix: Array, b: Array) -> Array:
    """The solution x (3,) of matrix x = b for a nonsingular matrix (3, 3), by cofactors."""
    first, second, third = matrix[0], matrix[1], matrix[2]
    columns = cross(second, third), cross(third, first), cross(first, second)
    return total([column * b[k] for k, column in enumerate(columns)]) / dot(first, columns[0])


def _scaled(factor: Array, v: Array) -> Array:
    """The transpose of `dot` with v: `scale` with its arguments in the other order."""
    return scale(v, factor)


def _columns(matrix: Components) -> list[Components]:
    """Columns of a matrix from its nine components in row-major order."""
    return [matrix[k::3] for k in range(3)]


def _turn_formula(w: Array, matrix: Array) -> Array:
    """w x each column of a matrix (..., 9)."""
    columns = [cross_components(unpack(w), column) for column in _columns(unpack(matrix))]
    return pack([column[i] for i in range(3) for column in columns])


def _axial_formula(a: Array, b: Array) -> Array:
    """The sum of a_k x b_k over the columns k of two matrices (..., 9)."""
    pairs = zip(_columns(unpack(a)), _columns(unpack(b)), strict=True)
    products = [cross_components(*pair) for pair in pairs]
    return pack([total(parts) for parts in zip(*products, strict=True)])


_dot = bilinear("vector_dot", Rule(lambda a, b: total(unpack(a * b)), None, left=_scaled, right=_scaled))
# the transposes follow from (a x b) . c = a . (b x c) = b . (c x a)
_cross = bilinear(
    "vector_cross",
    Rule(
        lambda a, b: pack(cross_components(unpack(a), unpack(b))),
        3,
        left=lambda c, b: cross(b, c),
        right=lambda c, a: cross(c, a),
    ),
)
# with sums over columns k: (w x a_k) . b_k = w . (a_k x b_k) = -a_k . (w x b_k)
_turn = bilinear("vector_turn", Rule(_turn_formula, 9, left=lambda c, a: _axial(a, c), right=lambda c, w: -_turn(w, c)))
_axial = bilinear(
    "vector_axial", Rule(_axial_formula, 3, left=lambda c, b: -_turn(c, b), right=lambda c, a: _turn(c, a))
)
