"""What the constraint rows exert once the acceleration is known: contact forces, and wrenches on bodies."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from diffsim.constraint import laws
from diffsim.constraint.contact import slot_body_ids
from diffsim.constraint.equality import body_pairs
from diffsim.constraint.families import FAMILIES
from diffsim.math.spatial import spatial_vector
from diffsim.math.vector import cross, matmul, mul_vec_t
from diffsim.types import Model
from diffsim.types.constraints import Constraints, RowGroup
from diffsim.types.data import ComFrame, Contacts, Solution
from diffsim.xla.gather import pick

Array = jax.Array


def basis_forces(constraints: Constraints, row_force: Array) -> tuple[Array, ...]:
    """(dim, n) forces of the basis rows of each group, from the forces of all rows (`solution.row_force`)."""
    parts = zip(constraints.groups, constraints.split(row_force), strict=True)
    return tuple(laws.basis(rows, force) for rows, force in parts)


def contact_forces(model: Model, contacts: Contacts, constraints: Constraints, solution: Solution) -> Array:
    """(ncon, 6) force (N) and torque (N m) of each contact on body 2, in the contact frame (normal first)."""
    if not constraints.contacts:
        return jnp.zeros((contacts.dist.shape[0], 6), contacts.dist.dtype)
    forces = zip(constraints.groups, basis_forces(constraints, solution.row_force), strict=True)
    wide = {rows.slot: jnp.pad(force.T, ((0, 0), (0, 6 - rows.dim))) for rows, force in forces if rows.slot is not None}
    listed = [wide[slot] for slot in sorted(wide)]
    # contacts that are springs have no rows, and come last
    rest = jnp.zeros((contacts.dist.shape[0] - sum(map(len, listed)), 6), contacts.dist.dtype)
    return jnp.concatenate([*listed, rest])


class _Wrench(NamedTuple):
    """Force (n, 3) and torque (n, 3) at world points (n, 3) on bodies (n,), or their opposite (sign -1)."""

    sign: int
    body: Array
    point: Array
    force: Array
    torque: Array


def constraint_wrenches(
    model: Model, contacts: Contacts, constraints: Constraints, solution: Solution, com: ComFrame
) -> Array:
    """(nbody, 6) torque and force of contacts, connects and welds on each body, about its tree's centre of mass.

    The torque of a weld is the multiplier of its rotation residual, as MuJoCo reports it, which leaves out contacts of
    flexes.
    """
    local = contact_forces(model, contacts, constraints, solution)
    if model.topology.nflex:
        local = jnp.where(contacts.flex[:, 1:] >= 0, 0, local)
    force, torque = mul_vec_t(contacts.frame, local[:, :3]), mul_vec_t(contacts.frame, local[:, 3:])
    first, second = slot_body_ids(model, contacts)
    wrenches = [_Wrench(-1, first, contacts.pos, force, torque), _Wrench(1, second, contacts.pos, force, torque)]
    for rows, basis in zip(constraints.groups, basis_forces(constraints, solution.row_force), strict=True):
        if rows.anchor.shape[0]:
            wrenches += _anchor_wrenches(model, rows, basis)
    return _collect(model, com, wrenches)


def _anchor_wrenches(model: Model, rows: RowGroup, force: Array) -> list[_Wrench]:
    """Those of equalities that hold points together, on either side: 3 rows of force, 3 more of torque if any."""
    ids, count = FAMILIES[rows.family].ids, rows.anchor.shape[0]
    assert ids is not None
    body = body_pairs(model.topology, ids(model.topology)[:count]).body
    rows_of_each = force.reshape(-1, count).T
    push = rows_of_each[:, :3]
    torque = rows_of_each[:, 3:] if rows_of_each.shape[1] == 6 else jnp.zeros_like(push)
    return [
        _Wrench(sign, jnp.asarray(body[:, side]), rows.anchor[:, side], push, torque)
        for side, sign in ((0, 1), (1, -1))
    ]


def _collect(model: Model, com: ComFrame, wrenches: list[_Wrench]) -> Array:
    """Sums wrenches on each body; none on the world."""
    centre = pick(com.subtree_com, model.topology.body_rootid)
    moving = jnp.arange(1, model.nbody, dtype=jnp.int32)[:, None]
    total = jnp.zeros((model.nbody - 1, 6), centre.dtype)
    for sign, body, point, force, torque in wrenches:
        if body.shape[0]:
            on_body = sign * (body[None] == moving).astype(centre.dtype)
            total += matmul(on_body, spatial_vector(torque + cross(point - centre[body], force), force))
    return jnp.concatenate([jnp.zeros((1, 6), centre.dtype), total])


def family_force(constraints: Constraints, family: str, row_force: Array) -> Array:
    """(dim, n) basis forces of a family with one group (a key of FAMILIES); (1, 0) where it has no rows."""
    assert family in FAMILIES
    forces = zip(constraints.groups, basis_forces(constraints, row_force), strict=True)
    return next((force for rows, force in forces if rows.family == family), row_force[None, :0])
