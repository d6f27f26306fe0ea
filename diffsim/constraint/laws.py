"""Laws: cost, force and curvature of a family of rows as functions of x = J qacc - aref.

The solver minimizes the smooth cost of an acceleration plus sum cost(x) over all families (solver/objective.py).
The force is -d cost / dx. The curvature K = d^2 cost / dx^2 is one small matrix per constraint, which is never formed:
`hessian_product` applies it. x and force are (dim, n), one line per basis row. A force is the dual variable, so the
basis forces of a contact are its force and torque in the contact frame. Source: MuJoCo documentation, "Computation".

All laws except the law of elliptic contacts consist of springs (`spring`), one for each row or edge of a pyramid:

  quadratic   f = -D x
  bounded     f = -D x where D |x| < frictionloss, else -sign(x) frictionloss
  one-sided   f = -D x where x < 0, else 0
  pyramid     one-sided at each edge, x = x_n +- mu_i x_i: basis forces f_n = sum of f+ + f-, f_i = mu_i (f+ - f-)

Cost, force and curvature here, and slope and curvature along a line (solver/line_search.py), follow from that.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from diffsim.math import safe
from diffsim.math.vector import total
from diffsim.types.constraints import Law, RowGroup
from diffsim.xla.barriers import stored_results
from diffsim.xla.bilinear import arrow_product

SPRINGS = frozenset({Law.QUADRATIC, Law.BOUNDED, Law.ONE_SIDED, Law.PYRAMID})


class Spring(NamedTuple):
    """Springs (k, n): the force of each, and its stiffness -d force / dx, 0 where it slides or is apart."""

    force: Array
    stiffness: Array


def spring(rows: RowGroup, x: Array, threshold: Array) -> Spring:
    """The springs of a group at x (k, n), one for each row or edge; one-sided springs push below `threshold`."""
    if rows.law == Law.QUADRATIC:
        return Spring(-rows.D * x, jnp.broadcast_to(rows.D, x.shape))
    if rows.law == Law.BOUNDED:
        # `<`, not `<=`: a row with bound 0 slides everywhere, also at x = 0, and has no stiffness
        linear = rows.D * jnp.abs(x) < rows.frictionloss[None]
        elsewhere = -jnp.sign(x) * rows.frictionloss[None]
    else:
        linear = x < threshold
        elsewhere = 0
    return Spring(jnp.where(linear, -rows.D * x, elsewhere), jnp.where(linear, rows.D, 0))


def on_springs(rows: RowGroup, values: Array) -> tuple[Array, ...]:
    """x of the springs of a group, from x of its basis rows (dim, n).

    For pyramids two entries (dim - 1, n): the edges x_n + mu_i x_i, and the edges x_n - mu_i x_i. Else one entry, x.
    """
    if rows.law != Law.PYRAMID:
        return (values,)
    normal = values[:1]
    tangential = rows.friction * values[1:]
    return normal + tangential, normal - tangential


def thresholds(rows: RowGroup) -> tuple[Array, ...]:
    """x below which one-sided springs push, in the order of `on_springs`: 0 unless an active set says otherwise."""
    parts = 2 if rows.law == Law.PYRAMID else 1
    if not rows.threshold.size:
        return (jnp.zeros((1, 1), rows.D.dtype),) * parts
    return tuple(rows.threshold[part::parts] for part in range(parts))


def _forces(rows: RowGroup, x: Array) -> list[Array]:
    """Forces of all springs, in the order of `on_springs`."""
    return [spring(rows, *part).force for part in zip(on_springs(rows, x), thresholds(rows), strict=True)]


def cost(rows: RowGroup, x: Array) -> Array:
    """(n,) cost of each constraint at x (dim, n)."""
    if rows.law == Law.CONE:
        zone = _zones(rows, x)
        quadratic = jnp.where(zone.bottom, 0.5 * total(list(rows.D * x * x)), 0)
        return jnp.where(zone.middle, 0.5 * zone.weight * zone.gap * zone.gap, quadratic)
    costs = []
    for y, threshold in zip(on_springs(rows, x), thresholds(rows), strict=True):
        force = spring(rows, y, threshold).force
        # the work against a force f that grows to its bound at |y| = |f| / D and stays there: f^2 / (2 D) on the way to
        # the bound, |f| (|y| - |f| / D) beyond; in one formula, -f (y + f / (2 D))
        costs += list(-force * (y + 0.5 * safe.divide(force, jnp.broadcast_to(rows.D, y.shape))))
    return total(costs)


def force(rows: RowGroup, x: Array) -> Array:
    """(dim, n) force of each basis row."""
    if rows.law != Law.CONE:
        return _basis(rows, *_forces(rows, x))
    # elliptic contacts: -d cost / dx by the chain rule through (N, U) = scale x and gap(N, U)
    zone = _zones(rows, x)
    middle = -(zone.weight * zone.gap)[None] * zone.slope * zone.scale
    return jnp.where(zone.middle[None], middle, jnp.where(zone.bottom[None], -rows.D * x, 0))


def efc_force(rows: RowGroup, x: Array) -> Array:
    """(force_count, n) force of each row as MuJoCo counts rows (efc_force): edges of a pyramid (+, -, +, ...), else
    `force`.
    """
    return alternate(*_forces(rows, x)) if rows.law == Law.PYRAMID else force(rows, x)


def efc_rows(rows: RowGroup, values: Array) -> Array:
    """(force_count, n, ...) from basis rows (dim, n, ...): rows as `efc_force` counts them, of J for example."""
    if rows.law != Law.PYRAMID:
        return values
    tangential = _wide(rows.friction, values) * values[1:]
    edges = jnp.stack([values[:1] + tangential, values[:1] - tangential], axis=1)
    return edges.reshape(-1, *values.shape[1:])


def on_normal(rows: RowGroup, values: Array) -> Array:
    """(force_count, n) with one value of each constraint (n,) on its normal row, or on all its edges; else zero."""
    alone = rows.law == Law.PYRAMID or rows.dim == 1
    share = jnp.ones((rows.force_count, 1), values.dtype) if alone else jnp.eye(rows.dim, 1, dtype=values.dtype)
    return share * values[None]


def hessian_product(rows: RowGroup, x: Array, y: Array) -> Array:
    """K y: the second derivative of the cost at x, applied to y (dim, n) or (dim, n, k)."""
    if rows.law == Law.CONE:
        return _cone_product(rows, x, y)
    stiffness = (stored_results(_stiffness) if y.ndim > 2 else _stiffness)(rows, x)
    if rows.law != Law.PYRAMID:
        return _wide(stiffness[0], y) * y
    normal, coupling, tangential = (_wide(part, y) for part in stiffness)
    return arrow_product(normal, coupling, tangential, y)


def _stiffness(rows: RowGroup, x: Array) -> tuple[Array, ...]:
    """K of springs: of rows (dim, n); of pyramids K_nn (1, n), K_ni and K_ii (dim - 1, n).

    K is the sum over edges of stiffness e e^T with e = (1, +-mu_i): K_nn = sum_i k+ + k-, K_ni = mu_i (k+ - k-), K_ii =
    mu_i^2 (k+ + k-), and no two tangents are coupled. A product with many columns reads it many times.
    """
    plus, *minus = (spring(rows, *part).stiffness for part in zip(on_springs(rows, x), thresholds(rows), strict=True))
    if rows.law != Law.PYRAMID:
        return (plus,)
    both = plus + minus[0]
    coupling = rows.friction * (plus - minus[0])
    return total(list(both))[None], coupling, rows.friction * rows.friction * both


def _basis(rows: RowGroup, plus: Array, minus: Array | None = None) -> Array:
    """(dim, n) basis forces from the forces of springs: of rows, or of the edges + and - of pyramids."""
    if minus is None:
        return plus
    return jnp.concatenate([total(list(plus + minus))[None], rows.friction * (plus - minus)])


def _wide(factor: Array, y: Array) -> Array:
    """A factor per row, for y with trailing axes."""
    return factor.reshape(factor.shape + (1,) * (y.ndim - 2))


class _Zones(NamedTuple):
    """Elliptic contacts in the coordinates where the cone is circular: N = mu x_n, U_i = friction_i x_i, T = |U|.

    The cost is 0 in the top zone, N >= mu T; quadratic in the bottom zone, mu N + T <= 0; and in the middle zone
    weight/2 gap^2 with gap = N - mu T.

    Attributes:
      scale: (dim, n) d(N, U) / dx.
      weight, gap: (n,).
      slope: (dim, n) d gap / d(N, U) = (1, -mu U / T).
      unit: (dim - 1, n) U / T.
      curvature: (n,) -gap mu / T, not negative in the middle zone: gap d^2 gap / dU^2 = curvature (1 - unit unit^T).
      bottom, middle: (n,) bool.
    """

    scale: Array
    weight: Array
    gap: Array
    slope: Array
    unit: Array
    curvature: Array
    bottom: Array
    middle: Array


def _zones(rows: RowGroup, x: Array) -> _Zones:
    # top: x lies in the dual of the friction cone, and no force is needed; bottom: the force -D x lies within the
    # friction cone, and the contact sticks; middle: the force lies on the cone, and the contact slips
    mu = rows.mu
    scale = jnp.concatenate([rows.mu[None], rows.friction])
    circular = scale * x
    N = circular[0]
    U = circular[1:]
    T = safe.sqrt(total(list(U * U)))
    gap = N - mu * T
    unit = safe.divide(U, jnp.broadcast_to(T[None], U.shape))
    top = gap >= 0
    bottom = ~top & (mu * N + T <= 0)
    return _Zones(
        scale=scale,
        weight=safe.divide(rows.D[0], mu * mu * (1 + mu * mu)),
        gap=gap,
        slope=jnp.concatenate([jnp.ones_like(mu)[None], -mu[None] * unit]),
        unit=unit,
        curvature=safe.divide(-gap * mu, T),
        bottom=bottom,
        middle=~top & ~bottom,
    )


def _cone_product(rows: RowGroup, x: Array, y: Array) -> Array:
    """K y of elliptic contacts, for y (dim, n) or (dim, n, k)."""
    zone = _zones(rows, x)
    weight = jnp.where(zone.middle, zone.weight, 0)
    slope = _wide(zone.slope, y)
    unit = _wide(zone.unit, y)
    curvature = _wide(zone.curvature[None], y)
    circular = _wide(zone.scale, y) * y
    tangential = circular[1:]
    # exact Hessian of gap^2 / 2 with respect to (N, U): slope slope^T + gap d^2 gap. The second term has only the block
    # curvature (1 - unit unit^T) of U, because d^2 T / dU^2 = (1 - unit unit^T) / T; Gauss-Newton would leave it out
    middle = slope * total(list(slope * circular))[None]
    across = curvature * (tangential - unit * total(list(unit * tangential))[None])
    middle = middle + jnp.concatenate([jnp.zeros_like(circular[:1]), across])
    bottom = jnp.where(zone.bottom[None], rows.D, 0)
    return _wide(weight[None] * zone.scale, y) * middle + _wide(bottom, y) * y


def alternate(plus: Array, minus: Array) -> Array:
    """(2 k, n) rows +, -, +, ... from (k, n) each."""
    return jnp.stack([plus, minus], axis=1).reshape(-1, plus.shape[-1])


def basis(rows: RowGroup, forces: Array) -> Array:
    """(dim, n) forces of the basis rows, from the forces that `efc_force` returns."""
    return _basis(rows, forces[0::2], forces[1::2]) if rows.law == Law.PYRAMID else forces


def active(rows: RowGroup) -> Array:
    """(n,) which constraints of a group act: D is positive, or in dry friction the bound."""
    return rows.frictionloss > 0 if rows.law == Law.BOUNDED else rows.D[0] > 0


def slips(rows: RowGroup, x: Array) -> Array:
    """(n,) whether an elliptic contact is in its middle zone, where the force lies on the friction cone."""
    return _zones(rows, x).middle


def at_bound(rows: RowGroup, forces: Array) -> Array:
    """(n,) whether the force of an elliptic contact lies on the friction cone, up to rounding."""
    tangential = safe.divide(forces[1:], rows.friction)
    rounding = 64 * float(jnp.finfo(forces.dtype).eps)
    return safe.sqrt(total(list(tangential * tangential))) >= forces[0] * (1 - rounding)
