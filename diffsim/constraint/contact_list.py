"""Contacts as MuJoCo lists them (mjContact), for people who look inside.

The buffer has a slot for every contact that can be, ordered by dimension. Here those that are there come first, in
MuJoCo's order, with what it says of each: its dimension, why it has no rows, and where its rows begin in the list of
rows (views.py). Source: mjContact; mj_instantiateContact.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from diffsim.base.enums import ConstraintType
from diffsim.collision.flex_contacts import slot_dims
from diffsim.constraint.views import efc_rows
from diffsim.types import Model
from diffsim.types.constraints import Constraints
from diffsim.types.data import Contacts, Solution

Array = jax.Array

# why a contact has no rows: it has some, it is in a gap, nothing moves it
INCLUDED, IN_GAP, WITHOUT_DOFS = 0, 1, 3


class ContactList(NamedTuple):
    """Contacts with mjContact's names, n rows each of which the first `ncon` are there; the rest is zero, ids are -1.

    `exclude` is 0 for contacts with rows, 1 for those in a gap, 3 for those that no degree of freedom moves;
    `efc_address` is the first row in `efc` or -1, `slot` the place in `data.contact`.
    """

    ncon: Array
    dist: Array
    pos: Array
    frame: Array
    includemargin: Array
    friction: Array
    solref: Array
    solreffriction: Array
    solimp: Array
    dim: Array
    geom: Array
    exclude: Array
    efc_address: Array
    slot: Array


COPIED = ("dist", "pos", "frame", "includemargin", "friction", "solref", "solreffriction", "solimp", "geom")
IDS = ("geom", "efc_address", "slot")


def contact_list(model: Model, contacts: Contacts, constraints: Constraints, solution: Solution) -> ContactList:
    """The contacts of one state."""
    count = len(contacts.dist)
    there = contacts.dist <= contacts.margin
    order = jnp.argsort(jnp.where(there, contacts.sort_key, jnp.iinfo(jnp.int32).max))
    rows = efc_rows(model, contacts, constraints, solution)
    touching = jnp.where(rows.efc_type >= ConstraintType.CONTACT_FRICTIONLESS, rows.efc_id, -1)
    own = touching[None] == jnp.arange(count)[:, None]
    included = jnp.any(own, axis=1)
    address = jnp.where(included, jnp.argmax(own, axis=1), -1) if own.size else jnp.full((count,), -1)
    reason = jnp.where(contacts.dist < contacts.includemargin, WITHOUT_DOFS, IN_GAP)
    columns = {name: getattr(contacts, name) for name in COPIED} | {
        "dim": jnp.asarray(slot_dims(model)),
        "exclude": jnp.where(included, INCLUDED, reason).astype(jnp.int32),
        "efc_address": address.astype(jnp.int32),
        "slot": jnp.arange(count, dtype=jnp.int32),
    }
    listed = {name: _first(column, there, order, -1 if name in IDS else 0) for name, column in columns.items()}
    return ContactList(ncon=jnp.sum(there, dtype=jnp.int32), **listed)


def _first(column: Array, there: Array, order: Array, blank: int) -> Array:
    """A column in order, with `blank` where nothing is there."""
    shown = there.reshape(-1, *[1] * (column.ndim - 1))
    return jnp.where(shown, column, jnp.asarray(blank, column.dtype))[order]
