"""MuJoCo's lists of contacts and constraint rows, as long as there are any, to and from buffers of fixed size."""

import sys
from typing import Any, cast

import jax.numpy as jnp
import numpy as np

from diffsim.collision.layout import layout_of
from diffsim.mjx.rows import COLUMNS, column, first_rows
from diffsim.mjx.types import Contact, Data, Model


def contacts_from(contacts: Any, model: Model, blank: Contact) -> Contact:
    """The buffer with the contacts of an `mujoco.MjData`, each in a slot of its dimension and, if that has any, pair.

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
    return blank.replace(**fields, sort_key=jnp.asarray(key, blank.sort_key.dtype))


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
