"""MuJoCo's lists of contacts and constraint rows, as long as there are any, to and from buffers of fixed size."""

import sys
from typing import Any, cast

import jax.numpy as jnp
import numpy as np

from diffsim.base.enums import ConstraintType
from diffsim.collision.layout import layout_of
from diffsim.mjx.rows import COLUMNS, column, first_rows, row_force_from, row_keys, row_order
from diffsim.mjx.types import Contact, Data, Model


def contacts_from(contacts: Any, model: Model, blank: Contact) -> tuple[Contact, np.ndarray]:
    """The buffer with the contacts of an `mujoco.MjData`, each in a slot of its dimension and, if that has any, pair;
    and the slots that they are in.

    Raises:
      ValueError: there are more contacts of a dimension than slots.
    """
    layout = layout_of(model)
    free: dict[tuple[int, ...], list[int]] = {}
    for slot, (dim, geoms) in enumerate(zip(layout.dim, layout.geom, strict=True)):
        free.setdefault((int(dim), *sorted(map(int, geoms))), []).append(slot)
    slots = []
    for index, (dim, geoms) in enumerate(zip(contacts.dim, contacts.geom, strict=True)):
        own = free.get((int(dim), *sorted(map(int, geoms)))) or free.get((int(dim), -1, -1))
        if not own:
            raise ValueError(f"no slot is left for contact {index}, of dimension {dim}; see max_contacts of put_model")
        slots.append(own.pop(0))
    changed: dict[str, Any] = {"margin": contacts.includemargin}
    changed |= {f.name: getattr(contacts, f.name) for f in blank.fields() if hasattr(contacts, f.name)}
    fields = {}
    for name, values in changed.items():
        old = np.array(getattr(blank, name))
        if len(old) != len(blank.dims):
            continue
        old[slots] = np.reshape(values, (len(slots), *old.shape[1:]))
        fields[name] = jnp.asarray(old)
    # MuJoCo lists contacts in the order of their keys
    key = np.arange(len(blank.dims), dtype=np.int32) + len(slots)
    key[slots] = np.arange(len(slots))
    return blank.replace(**fields, sort_key=jnp.asarray(key, blank.sort_key.dtype)), np.array(slots, int)


def with_forces(data: Data, d: Any, slots: np.ndarray) -> Data:
    """Data with the row forces of an `mujoco.MjData`, whose contacts are in some slots; as it is, where others act."""
    frictionless = int(ConstraintType.CONTACT_FRICTIONLESS)
    ids = np.where(d.efc_type < frictionless, d.efc_id, np.append(slots, -1)[np.minimum(d.efc_id, len(slots))])
    listed = np.stack([np.minimum(d.efc_type, frictionless), ids], axis=1)
    order = np.lexsort(listed.T[::-1])
    acts = np.any(np.asarray(column(data, "efc_J")) != 0, axis=1)
    own = row_keys(data.topology, data.efc)[row_order(data.topology, data.efc)][acts, :2]
    if not np.array_equal(own, listed[order]):
        return data
    force = np.zeros(len(acts), data.row_force.dtype)
    force[acts] = d.efc_force[order]
    return data.replace(row_force=row_force_from(data, jnp.asarray(force)))


def write_constraints(result: Any, m: Any, d: Data) -> None:
    """Writes the contacts that are there and the rows that act, each in the order in which Data has them."""
    mujoco, contact, kinds = sys.modules["mujoco"], cast(Contact, d.contact), d.efc_type
    columns = {name: np.asarray(column(d, name)) for name in COLUMNS}
    acts = np.any(columns["efc_J"] != 0, axis=1)
    there = np.flatnonzero((contact.geom[:, 0] >= 0) & (contact.dist < contact.margin))
    sparse = bool(mujoco.mj_isSparse(m))
    counts = {"ncon": len(there), "nefc": int(acts.sum())}
    entries = int(np.sum(columns["efc_J"] != 0)) if sparse else counts["nefc"] * m.nv
    mujoco._functions._realloc_con_efc(result, **counts, nJ=entries)
    result.ne, result.nf, result.nl = (int(np.sum(acts & np.isin(kinds, types))) for types in ((0,), (1, 2), (3, 4)))
    jacobian = columns.pop("efc_J")[acts].astype(float)
    if sparse:
        mujoco.mju_dense2sparse(result.efc_J, jacobian, result.efc_J_rownnz, result.efc_J_rowadr, result.efc_J_colind)
    else:
        result.efc_J[:] = jacobian.reshape(result.efc_J.shape)
    result.efc_type[:] = kinds[acts]
    for name, values in columns.items():
        getattr(result, name)[:] = values[acts]
    for name in ("dist", "pos", "frame", "includemargin", "friction", "solref", "solreffriction", "solimp", "dim"):
        to = getattr(result.contact, name)
        to[:] = getattr(contact, name)[there].reshape(to.shape)
    result.contact.geom[:] = contact.geom[there]
    first = first_rows(d.efc, d.ncon)[there]
    acting = (first >= 0) & acts[first]
    result.contact.efc_address[:] = np.where(acting, np.cumsum(acts)[first] - 1, -1)
