"""Contacts: forces on named geoms and bodies, whether two geoms touch, lists of contacts and of constraint rows.

Geoms and bodies are given by name, view or index. Forces are in N, world axes. Source: MuJoCo mj_contactForce.
"""

from typing import Any

import jax.numpy as jnp
from jax import Array

from diffsim.base.checked import checked
from diffsim.constraint import contact_forces
from diffsim.constraint.contact import slot_body_ids
from diffsim.constraint.views import ContactList, EfcRows, IslandList, contact_list, efc_rows, island_list
from diffsim.math.vector import mul_vec_t, scale
from diffsim.types import Data, Model

# name, view or index; an index may be traced
Which = Any


@checked
def contact_force(model: Model, data: Data) -> Array:
    """(ncon, 6) N and N m: force and torque of each contact on its second geom, in the contact frame (normal first)."""
    return contact_forces(model, data.contact, data.efc, data)


@checked
def geom_force(model: Model, data: Data, geom: Which, other: Which | None = None) -> Array:
    """The total contact force on a geom: `geom_force(model, data, "left_foot", "floor")`.

    Args:
      model, data: from `diffsim.forward`.
      geom: by name, view or index.
      other: count only contacts with this geom; None for all.

    Returns:
      (3,) N, world axes.

    Raises:
      KeyError: no geom has this name; the message lists near matches.
    """
    first, second = data.contact.geom[:, 0], data.contact.geom[:, 1]
    return _net_force(model, data, *_matches(model, "geom", (first, second), geom, other))


@checked
def body_force(model: Model, data: Data, body: Which, other: Which | None = None) -> Array:
    """The total contact force on the geoms of a body.

    Args:
      model, data: from `diffsim.forward`.
      body: by name, view or index.
      other: count only contacts with this body; None for all.

    Returns:
      (3,) N, world axes.

    Raises:
      KeyError: no body has this name; the message lists near matches.
    """
    bodies = slot_body_ids(model, data.contact)
    return _net_force(model, data, *_matches(model, "body", bodies, body, other))


@checked
def in_contact(model: Model, data: Data, geom: Which, other: Which | None = None) -> Array:
    """Whether a geom touches another geom, or any geom: the distance in some contact is negative.

    Args:
      model, data: from `diffsim.forward`.
      geom, other: by name, view or index; None for any other geom.

    Returns:
      () bool.

    Raises:
      KeyError: no geom has this name; the message lists near matches.
    """
    pair = data.contact.geom[:, 0], data.contact.geom[:, 1]
    as_first, as_second = _matches(model, "geom", pair, geom, other)
    return jnp.any((as_first | as_second) & (data.contact.dist < 0))


@checked
def efc(model: Model, data: Data) -> EfcRows:
    """All constraint rows in MuJoCo's order: nefc, efc_type, efc_id, efc_J, efc_pos, ..."""
    return efc_rows(model, data.contact, data.efc, data)


@checked
def islands(model: Model, data: Data) -> IslandList:
    """Constraint islands under mjData's names: nisland, tree_island, dof_island, efc_island, island_nv, maps."""
    return island_list(model, data.contact, data.efc, data)


@checked
def contacts(model: Model, data: Data) -> ContactList:
    """All contacts in MuJoCo's order: ncon, dist, pos, frame, dim, geom, exclude, efc_address, ..."""
    return contact_list(model, data.contact, data.efc, data)


def _matches(model: Model, kind: str, pair: tuple[Array, Array], which: Which, other: Which) -> tuple[Array, Array]:
    """(ncon,) bool each: whether an object is the first of a contact, and whether it is the second.

    Args:
      model: the model.
      kind: "geom" or "body".
      pair: (ncon,) ids of the first object of each contact, and of the second.
      which: the object.
      other: count only contacts with this one; None for all.
    """
    first, second = pair
    index = model.topology.index(kind, which)
    as_first, as_second = first == index, second == index
    if other is None:
        return as_first, as_second
    other_index = model.topology.index(kind, other)
    return as_first & (second == other_index), as_second & (first == other_index)


def _net_force(model: Model, data: Data, as_first: Array, as_second: Array) -> Array:
    """(3,) N, world axes: the sum of contact forces on an object.

    `contact_force` acts on the second object of a contact, and its opposite on the first.
    """
    local = contact_force(model, data)[:, :3]
    sign = as_second.astype(local.dtype) - as_first.astype(local.dtype)
    return jnp.sum(scale(mul_vec_t(data.contact.frame, local), sign), axis=0)
