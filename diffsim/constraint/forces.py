"""What the constraint rows exert once the acceleration is known: contact forces, and wrenches on bodies."""

import jax
import jax.numpy as jnp

from diffsim.constraint import contact, laws
from diffsim.constraint.weld import joined
from diffsim.enums import EqType
from diffsim.math.linalg import matmul
from diffsim.math.pick import pick
from diffsim.math.spatial import join
from diffsim.math.vector import cross, mul_vec_t
from diffsim.types import Model
from diffsim.types.constraints import Constraints, Rows
from diffsim.types.data import ComFrame, Contacts, Solution

Array = jax.Array


def family_force(constraints: Constraints, rows: Rows, row_force: Array) -> Array:
    """(dim, n) forces of one family, from the forces of all rows (`solution.row_force`)."""
    parts = zip(constraints.families, constraints.split(row_force), strict=True)
    found = next(part for family, part in parts if family is rows)
    return laws.basis(rows, found)


def contact_forces(model: Model, contacts: Contacts, constraints: Constraints, solution: Solution) -> Array:
    """(ncon, 6) force (N) and torque (N m) of each contact on body 2, in the contact frame (normal first)."""
    if not constraints.contacts:
        return jnp.zeros((contacts.dist.shape[0], 6), contacts.dist.dtype)
    forces = {
        f"contact{rows.dim}": family_force(constraints, rows, solution.row_force) for rows in constraints.contacts
    }
    return contact.contact_forces(model, contacts, forces)


def constraint_wrenches(
    model: Model, contacts: Contacts, constraints: Constraints, solution: Solution, com: ComFrame
) -> Array:
    """(nbody, 6) torque and force of contacts, connects and welds on each body, about its tree's centre of mass.

    The torque of a weld is the multiplier of its rotation residual, as the oracle reports it.
    """
    local = contact_forces(model, contacts, constraints, solution)
    force, torque = mul_vec_t(contacts.frame, local[:, :3]), mul_vec_t(contacts.frame, local[:, 3:])
    first, second = contact.slot_bodies(model, contacts)
    point = [contacts.pos, contacts.pos]
    parts = [(-1, first, point[0], force, torque), (1, second, point[1], force, torque)]
    parts += _joint_parts(model, constraints, solution)
    return _collect(model, com, parts)


Part = tuple[int, Array, Array, Array, Array]


def _joint_parts(model: Model, constraints: Constraints, solution: Solution) -> list[Part]:
    """(sign, body, point, force, torque) of connects and welds, on either side."""
    parts, begin = [], 0
    for kind, rows, height in ((EqType.CONNECT, constraints.connect, 3), (EqType.WELD, constraints.weld, 6)):
        if not rows.count:
            continue
        plan, count = joined(model.topology, kind), rows.count // height
        force = family_force(constraints, rows, solution.row_force).reshape(height, count).T
        torque = force[:, 3:] if height == 6 else jnp.zeros_like(force)
        anchor = constraints.eq_anchor[begin : begin + count]
        for side, sign in ((0, 1), (1, -1)):
            parts.append((sign, jnp.asarray(plan.body[:, side]), anchor[:, side], force[:, :3], torque))
        begin += count
    return parts


def _collect(model: Model, com: ComFrame, parts: list[Part]) -> Array:
    """Sums wrenches on each body; none on the world."""
    nbody = model.nbody
    centre = pick(com.subtree_com, model.topology.body_rootid)
    total = jnp.zeros((nbody, 6), centre.dtype)
    for sign, body, point, force, torque in parts:
        arm = point - centre[body]
        on_body = sign * (body[None] == jnp.arange(1, nbody, dtype=body.dtype)[:, None]).astype(centre.dtype)
        total = total.at[1:].add(matmul(on_body, join(torque + cross(arm, force), force)))
    return total
