"""All constraint rows of a state: the table of families, in MuJoCo's order, and `make_constraints`.

A family of one-row constraints is a function that drafts its rows; impedance, reference and weight are common to all
(rows.py). Contacts have several rows each and their own builder (contact.py).
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from diffsim.constraint import equality, friction, limit, weld
from diffsim.constraint.contact import DIMENSIONS, contact_rows, law_of
from diffsim.constraint.rows import Draft, Sources, finish, no_rows
from diffsim.enums import DisableBit
from diffsim.math.block_matrix import columns_of, stack_rows
from diffsim.physics.tree import dof_blocks
from diffsim.types import Inputs, Model, State
from diffsim.types.constraints import Constraints, Law, Rows
from diffsim.types.data import ComFrame, Contacts, Kinematics, Tendons, Velocities

Array = jax.Array


class Family(NamedTuple):
    """A family of one-row constraints: what switches it off, its law, and the function that drafts it."""

    flag: DisableBit
    law: Law
    draft: Callable[[Sources], Draft | None]


FAMILIES = {
    "dof_friction": Family(DisableBit.FRICTIONLOSS, Law.BOUNDED, friction.dof_friction),
    "limit_lower": Family(DisableBit.LIMIT, Law.ONE_SIDED, limit.joint_lower),
    "limit_upper": Family(DisableBit.LIMIT, Law.ONE_SIDED, limit.joint_upper),
    "connect": Family(DisableBit.EQUALITY, Law.QUADRATIC, weld.connect),
    "weld": Family(DisableBit.EQUALITY, Law.QUADRATIC, weld.weld),
    "joint_equality": Family(DisableBit.EQUALITY, Law.QUADRATIC, equality.joint_equality),
    "tendon_equality": Family(DisableBit.EQUALITY, Law.QUADRATIC, equality.tendon_equality),
    "tendon_friction": Family(DisableBit.FRICTIONLOSS, Law.BOUNDED, friction.tendon_friction),
    "limit_ball": Family(DisableBit.LIMIT, Law.ONE_SIDED, limit.ball),
    "tendon_lower": Family(DisableBit.LIMIT, Law.ONE_SIDED, limit.tendon_lower),
    "tendon_upper": Family(DisableBit.LIMIT, Law.ONE_SIDED, limit.tendon_upper),
}


def make_constraints(
    model: Model,
    state: State,
    inputs: Inputs,
    kinematics: Kinematics,
    com: ComFrame,
    tendons: Tendons,
    velocities: Velocities,
    contacts: Contacts,
) -> Constraints:
    """The rows of all constraints: (qpos, qvel, poses, contacts) -> J, aref, D, bounds and friction coefficients."""
    source = Sources(model, state, inputs, kinematics, com, tendons, velocities, contacts)
    dtype = state.qvel.dtype
    families: dict[str, Rows] = {name: no_rows(family.law, 1, dtype) for name, family in FAMILIES.items()}
    families |= {f"contact{dim}": no_rows(law_of(model, dim), dim, dtype) for dim in DIMENSIONS}
    dense, start = [jnp.zeros((0, model.nv), dtype)], 0
    for name, family in FAMILIES.items():
        draft = None if _off(model, family.flag) else family.draft(source)
        if draft is None:
            continue
        families[name] = finish(source, draft, start)
        if draft.jacobian is not None:
            dense.append(draft.jacobian)
            start += draft.jacobian.shape[0]
    blocks = dof_blocks(model.topology)
    parts = [columns_of(blocks, jnp.concatenate(dense))]
    if not _off(model, DisableBit.CONTACT):
        more, found = contact_rows(source, start)
        parts += more
        families |= found
    return Constraints(jacobian=stack_rows(blocks, parts), eq_anchor=weld.anchors(source), **families)


def _off(model: Model, flag: DisableBit) -> bool:
    """Whether a family has no rows: by its flag, by that of all, or because nothing moves."""
    return model.nv == 0 or model.opt.disabled(flag) or model.opt.disabled(DisableBit.CONSTRAINT)
