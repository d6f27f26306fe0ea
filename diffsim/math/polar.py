"""polar_rotation: the nearest rotation to a matrix, with its derivatives."""

import jax
import jax.numpy as jnp
from jax import Array

from diffsim.math import safe
from diffsim.math.vector import (
    cross,
    dot,
    mul_mat,
    pack,
    total,
    transpose,
    turn,
)

# iterations of Newton's method for tr S in `polar_rotation`; from the fifth on, each nearly doubles the correct digits
POLAR_STEPS = 16
# if the divisor in `polar_rotation` is below this, for A scaled to |A| = 1, the rotation counts as not unique
UNIQUE = 1e-4


@jax.custom_jvp
def polar_rotation(matrix: Array) -> Array:
    """The nearest rotation R (n, 3, 3) to each matrix A = R S (n, 3, 3), with S symmetric.

    R maximizes tr(R^T A). A is scaled to |A| = 1 first. Then lambda = tr S is the largest root of

        x^4 - 2 |A|^2 x^2 - 8 det(A) x + |A|^4 - 4 |cof A|^2.

    Newton's method finds it: started above the largest root, it decreases to it. Then (Markley 1993, "Attitude
    determination using vector observations: a fast optimal matrix algorithm")

        R = ((k + |A|^2) A + lambda cof A - A A^T A) / (k lambda - det A),   k = (lambda^2 - |A|^2) / 2.

    The divisor is (s1 + s2) (s2 + s3) (s3 + s1) of the singular values. It vanishes where R is not unique: A is
    flattened to a line or turned inside out. There R is the identity, with zero derivative.
    """
    unit = jnp.eye(3, dtype=matrix.dtype)[None]
    squared = total([dot(matrix[:, i], matrix[:, i]) for i in range(3)])
    scaled = matrix * safe.divide(jnp.ones_like(squared), safe.sqrt(squared))[:, None, None]
    first, second, third = (scaled[:, i] for i in range(3))
    cofactor = jnp.stack([cross(second, third), cross(third, first), cross(first, second)], axis=1)
    determinant = dot(first, cofactor[:, 0])
    constant = 1 - 4 * total([dot(cofactor[:, i], cofactor[:, i]) for i in range(3)])
    # tr S <= sqrt(3) |S|, so this is an upper bound of the root
    root = jnp.full_like(squared, 3**0.5)
    for _ in range(POLAR_STEPS):
        square = root * root
        value = (square - 2) * square - 8 * determinant * root + constant
        root = root - safe.divide(value, 4 * (square - 1) * root - 8 * determinant)
    half = 0.5 * (root * root - 1)
    divisor = half * root - determinant
    product = mul_mat(mul_mat(scaled, transpose(scaled)), scaled)
    raised = (half + 1)[:, None, None] * scaled + root[:, None, None] * cofactor - product
    exists = divisor > UNIQUE
    return jnp.where(
        exists[:, None, None],
        raised / jnp.where(exists, divisor, 1)[:, None, None],
        jnp.broadcast_to(unit, raised.shape),
    )


@polar_rotation.defjvp
def _polar_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    """R^T dR = [w]x, where (tr(S) 1 - S) w is twice the axial vector of R^T dA, solved by cofactors."""
    (matrix,) = primals
    (change,) = tangents
    rotation = polar_rotation(matrix)
    stretch = mul_mat(transpose(rotation), matrix)
    moved = mul_mat(transpose(rotation), change)
    axial = pack([moved[:, 2, 1] - moved[:, 1, 2], moved[:, 0, 2] - moved[:, 2, 0], moved[:, 1, 0] - moved[:, 0, 1]])
    trace = total([stretch[:, i, i] for i in range(3)])
    rows = [trace[:, None] * jnp.eye(3, dtype=trace.dtype)[i][None] - stretch[:, i] for i in range(3)]
    columns = [cross(rows[1], rows[2]), cross(rows[2], rows[0]), cross(rows[0], rows[1])]
    determinant = dot(rows[0], columns[0])
    unique = determinant > UNIQUE * trace * trace * trace
    solution = total([column * axial[:, i, None] for i, column in enumerate(columns)])
    spin = jnp.where(unique[:, None], solution / jnp.where(unique, determinant, 1)[:, None], jnp.zeros_like(solution))
    # R [w]x = [R w]x R
    world = total([rotation[:, :, i] * spin[:, i, None] for i in range(3)])
    return rotation, turn(world, rotation)
