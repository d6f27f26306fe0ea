"""The friction part of the constraint rows: what noslip takes out of the row forces, and puts back.

Dry friction and the tangential, torsional and rolling rows of contacts, contact by contact. Pyramids give one row for
each pair of opposing edges; elliptic contacts give rows of y = force / friction, in which the cone is circular.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.constraint import friction, laws
from diffsim.math import safe
from diffsim.types.constraints import Constraints, Law, RowGroup
from diffsim.types.topology import Topology
from diffsim.xla.gather import pick

Array = jax.Array
WITH_FRICTION = (Law.BOUNDED, Law.PYRAMID, Law.CONE)


class FrictionRows(NamedTuple):
    """Friction rows: J (m, nv) and aref (m,) in the coordinates of y; bound of each row, the radius for balls."""

    jacobian: Array
    aref: Array
    limit: Array


class WithForce(NamedTuple):
    """Friction rows of one group, and their forces y (m,)."""

    rows: FrictionRows
    y: Array


def has_friction(rows: RowGroup) -> bool:
    """Whether there are friction rows in a group."""
    return rows.law in WITH_FRICTION


def members(topology: Topology, rows: RowGroup) -> np.ndarray:
    """Which rows of a group of dry friction can have some: the dofs that do, or all tendons of the group."""
    return friction.dofs(topology) if rows.sign else np.arange(rows.count)


def friction_count(topology: Topology, rows: RowGroup) -> int:
    """Number of friction rows of a group."""
    if not has_friction(rows):
        return 0
    return len(members(topology, rows)) if rows.law == Law.BOUNDED else rows.count * (rows.dim - 1)


def friction_rows(topology: Topology, constraints: Constraints, rows: RowGroup, forces: Array) -> WithForce:
    """The friction rows of a group that has some, from its row forces (force_count, n)."""
    block = constraints.basis_jacobian(rows)
    if rows.law == Law.BOUNDED:
        own = members(topology, rows)
        jacobian, aref, limit, y = (pick(v, own) for v in (block[0], rows.aref[0], rows.frictionloss, forces[0]))
        return WithForce(FrictionRows(jacobian, aref, limit), y)
    jacobian, aref, coefficient = jnp.swapaxes(block[1:], 0, 1), rows.aref[1:].T, rows.friction.T
    if rows.law == Law.PYRAMID:
        limit = coefficient * (forces[0::2] + forces[1::2]).T
        y = coefficient * (forces[0::2] - forces[1::2]).T
    else:
        jacobian, aref = jacobian * coefficient[:, :, None], aref * coefficient
        limit = jnp.broadcast_to(forces[0][:, None], coefficient.shape)
        y = safe.divide(forces[1:].T, coefficient)
    own = FrictionRows(jacobian.reshape(-1, jacobian.shape[-1]), aref.reshape(-1), limit.reshape(-1))
    return WithForce(own, y.reshape(-1))


def without_friction(rows: RowGroup, forces: Array) -> Array:
    """Row forces (force_count, n) with the friction taken out."""
    if rows.law == Law.BOUNDED:
        return jnp.zeros_like(forces)
    if rows.law == Law.PYRAMID:
        middle = 0.5 * (forces[0::2] + forces[1::2])
        return laws.alternate(middle, middle)
    if rows.law == Law.CONE:
        return jnp.concatenate([forces[:1], jnp.zeros_like(forces[1:])])
    return forces


def with_friction(topology: Topology, rows: RowGroup, forces: Array, y: Array) -> Array:
    """Row forces with the friction y (m,) in place of their own; dofs without dry friction keep theirs."""
    if rows.law == Law.BOUNDED:
        return forces.at[0, members(topology, rows)].set(y) if rows.sign else y[None]
    side = y.reshape(rows.count, rows.dim - 1).T
    if rows.law == Law.CONE:
        return jnp.concatenate([forces[:1], rows.friction * side])
    half, middle = 0.5 * safe.divide(side, rows.friction), 0.5 * (forces[0::2] + forces[1::2])
    return laws.alternate(middle + half, middle - half)
