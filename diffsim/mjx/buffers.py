"""MuJoCo's contacts and constraint rows in the buffers of Data, and back."""

import sys
from typing import Any, cast

import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.base.enums import ConstraintType
from diffsim.collision.layout import layout_of
from diffsim.mjx.rows import COLUMNS, column, first_rows, row_force_from, row_keys, row_order, with_columns
from diffsim.mjx.types import Contact, Data, Model


def contacts_from(contacts: Any, model: Model, blank: Contact) -> tuple[Contact, np.ndarray]:
    """Puts the contacts of an `mujoco.MjData` into slots of the buffer.

    A contact takes a slot of its dimension that belongs to its pair of geoms, or else a free slot for any pair.

    Returns:
      The buffer, and the slots (ncon,) of the contacts.

    Raises:
      ValueError: there are more contacts of a dimension than slots.
    """
    layout = layout_of(model)
    free: dict[tuple[int, ...], list[int]] = {}
    for slot, (dim, geoms) in enumerate(zip(layout.dim, layout.geom, strict=True)):
        free.setdefault((int(dim), *sorted(map(int, geoms))), []).append(slot)
    slots = []
    for index, (dim, geoms) in enumerate(zip(contacts.dim, contacts.geom, strict=True)):
        slots_left = free.get((int(dim), *sorted(map(int, geoms)))) or free.get((int(dim), -1, -1))
        if not slots_left:
            raise ValueError(f"no slot is left for contact {index} of dimension {dim}; raise max_contacts of put_model")
        slots.append(slots_left.pop(0))
    changed: dict[str, Any] = {"margin": contacts.includemargin}
    changed |= {f.name: getattr(contacts, f.name) for f in blank.fields() if hasattr(contacts, f.name)}
    fields = {}
    for name, values in changed.items():
        if getattr(blank, name) is None:
            continue
        old = np.array(getattr(blank, name))
        old[slots] = np.reshape(values, (len(slots), *old.shape[1:]))
        fields[name] = jnp.asarray(old)
    # sort keys that give MuJoCo's order of contacts; empty slots come last
    key = np.arange(len(blank.dims), dtype=np.int32) + len(slots)
    key[slots] = np.arange(len(slots))
    return blank.replace(**fields, sort_key=jnp.asarray(key, blank.sort_key.dtype)), np.array(slots, int)


def with_rows(data: Data, d: Any, slots: np.ndarray) -> Data:
    """Copies residuals, weights, reference accelerations and forces from an `mujoco.MjData` with contacts in `slots`.

    If other rows are active than in MuJoCo, Data stays unchanged. This happens after `mj_step`, when MuJoCo's rows
    belong to the previous state, but positions and velocities to the next one.
    """
    # Rows are matched by type and id, where the id of a contact is its slot. All types of contacts count as one,
    # because the type depends on the cone and the dimension.
    frictionless = int(ConstraintType.CONTACT_FRICTIONLESS)
    ids = np.where(d.efc_type < frictionless, d.efc_id, np.append(slots, -1)[np.minimum(d.efc_id, len(slots))])
    listed = np.stack([np.minimum(d.efc_type, frictionless), ids], axis=1)
    order = np.lexsort(listed.T[::-1])
    active = np.asarray(column(data, "efc_D")) != 0
    ours = row_keys(data.topology, data.efc)[row_order(data.topology, data.efc)][active, :2]
    if not np.array_equal(ours, listed[order]):
        return data

    def spread(name: str) -> Array:
        """The values of MuJoCo's rows in the active rows of Data; others keep theirs."""
        values = np.array(column(data, name))
        values[active] = getattr(d, name)[order]
        return row_force_from(data, jnp.asarray(values, data.row_force.dtype))

    rows = with_columns(data.efc, *map(spread, ("efc_pos", "efc_aref", "efc_D")))
    return data.replace(row_force=spread("efc_force"), efc=rows)


def write_constraints(result: Any, m: Any, d: Data) -> None:
    """Writes the existing contacts and the active constraint rows, in the order of Data."""
    mujoco = sys.modules["mujoco"]
    contact = cast(Contact, d.contact)
    kinds = d.efc_type
    columns = {name: np.asarray(column(d, name)) for name in COLUMNS}
    active = columns["efc_D"] != 0
    existing = np.flatnonzero((contact.geom[:, 0] >= 0) & (contact.dist < contact.margin))
    sparse = bool(mujoco.mj_isSparse(m))
    counts = {"ncon": len(existing), "nefc": int(active.sum())}
    entries = int(np.sum(columns["efc_J"] != 0)) if sparse else counts["nefc"] * m.nv
    mujoco._functions._realloc_con_efc(result, **counts, nJ=entries)

    def number_of(*types: ConstraintType) -> int:
        """How many active rows have one of these types."""
        return int(np.sum(active & np.isin(kinds, types)))

    result.ne = number_of(ConstraintType.EQUALITY)
    result.nf = number_of(ConstraintType.FRICTION_DOF, ConstraintType.FRICTION_TENDON)
    result.nl = number_of(ConstraintType.LIMIT_JOINT, ConstraintType.LIMIT_TENDON)
    jacobian = columns.pop("efc_J")[active].astype(float)
    if sparse:
        mujoco.mju_dense2sparse(result.efc_J, jacobian, result.efc_J_rownnz, result.efc_J_rowadr, result.efc_J_colind)
    else:
        result.efc_J[:] = jacobian.reshape(result.efc_J.shape)
    result.efc_type[:] = kinds[active]
    for name, values in columns.items():
        getattr(result, name)[:] = values[active]
    for name in ("dist", "pos", "frame", "includemargin", "friction", "solref", "solreffriction", "solimp", "dim"):
        to = getattr(result.contact, name)
        to[:] = getattr(contact, name)[existing].reshape(to.shape)
    result.contact.geom[:] = contact.geom[existing]
    first = first_rows(d.efc, d.ncon)[existing]
    # the number of active rows up to the first row of a contact gives its address in MuJoCo's list
    has_rows = (first >= 0) & active[first]
    result.contact.efc_address[:] = np.where(has_rows, np.cumsum(active)[first] - 1, -1)
