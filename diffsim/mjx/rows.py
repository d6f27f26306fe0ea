"""The constraint rows `efc_*` in MJX's layout: every row has a fixed place, and inactive rows are zero.

Equalities come first, then dry friction, limits, and contacts slot by slot; the rows of a constraint are consecutive.
(`diffsim.support.efc` lists only the active rows, as MuJoCo does.)
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.base.enums import ConstraintType
from diffsim.constraint import laws
from diffsim.constraint.families import FAMILIES
from diffsim.types.constraints import Constraints, Law, RowGroup
from diffsim.types.topology import Topology

# (constraints, group, its forces) -> values of a column, (force_count or 1, n, ...)
Column = Callable[[Constraints, RowGroup, Array], Array]


def groups_in_order(efc: Constraints) -> list[RowGroup]:
    """The groups sorted by type, and groups of contacts by slot."""
    return sorted(efc.groups, key=lambda rows: (min(_type(rows), ConstraintType.CONTACT_FRICTIONLESS), rows.slot or 0))


def count(efc: Constraints, *types: ConstraintType) -> int:
    """The number of rows of these types."""
    return sum(rows.force_count * rows.count for rows in efc.groups if _type(rows) in types)


def row_types(efc: Constraints) -> np.ndarray:
    """efc_type (nefc,), group by group."""
    types = [np.full(rows.force_count * rows.count, int(_type(rows))) for rows in groups_in_order(efc)]
    return np.concatenate([np.zeros(0, int), *types]).astype(np.int32)


def row_keys(topology: Topology, efc: Constraints) -> np.ndarray:
    """Sort keys (nefc, 3) of the rows: type, id (the slot of a contact) and part.

    The rows are listed group by group, and constraint by constraint within a group.
    """
    keys = [np.zeros((0, 3), int)]
    for rows in groups_in_order(efc):
        family = FAMILIES[rows.family]
        if rows.slot is not None or family.ids is None:
            ids = (rows.slot or 0) + np.arange(rows.count)
            part = np.zeros(rows.count, int)
        else:
            ids = family.ids(topology)
            # Components of connect and weld are separate constraints with the same id: number them. The diagonal of the
            # running count says how often an id has occurred so far.
            part = family.place + np.cumsum(ids[:, None] == ids[None], axis=1).diagonal() - 1
        kind = np.full(rows.count, min(_type(rows), ConstraintType.CONTACT_FRICTIONLESS))
        keys.append(np.repeat(np.stack([kind, ids, part], axis=1), rows.force_count, axis=0))
    return np.concatenate(keys)


def row_order(topology: Topology, efc: Constraints) -> np.ndarray:
    """The permutation (nefc,) that sorts the rows of `row_keys` into MJX's order."""
    return np.lexsort(row_keys(topology, efc).T[::-1])


def row_force_from(data: Any, efc_force: Array) -> Array:
    """Converts forces (..., nefc) from the order of `column` to the order of `row_force`."""
    # `column` lists the groups in their order, each group constraint by constraint, and then sorts by key. This is the
    # inverse permutation.
    efc = data.efc
    start = 0
    places = {}
    for rows in efc.groups:
        size = rows.force_count * rows.count
        places[id(rows)] = start + np.arange(size).reshape(rows.force_count, rows.count).T.reshape(-1)
        start += size
    listed = np.concatenate([np.zeros(0, int), *(places[id(rows)] for rows in groups_in_order(efc))])
    return efc_force[..., np.argsort(listed[row_order(data.topology, efc)])]


def with_columns(efc: Constraints, pos: Array, aref: Array, D: Array) -> Constraints:
    """Replaces residuals, reference accelerations and weights of active constraints, in the order of `row_force`."""
    groups = []
    for rows, distance, target, weight in zip(efc.groups, *map(efc.split, (pos, aref, D)), strict=True):
        if rows.law == Law.PYRAMID:
            # Edges of a pyramid come in pairs normal +- friction * tangent. Half the sum of a pair is the normal, and
            # half the difference divided by the friction is the tangent. All edges have the same weight.
            plus = target[::2]
            minus = target[1::2]
            has_friction = rows.friction > 0
            tangent = jnp.where(has_friction, (plus - minus) / (2 * jnp.where(has_friction, rows.friction, 1)), 0)
            target = jnp.concatenate([(plus[:1] + minus[:1]) / 2, tangent])
            weight = weight[:1]
        active = laws.active(rows)
        fields = {"pos": distance[0], "aref": target, "D": weight}
        changed = {name: jnp.where(active, value, getattr(rows, name)) for name, value in fields.items()}
        groups.append(rows.replace(**changed))
    return efc.replace(groups=tuple(groups))


def first_rows(efc: Constraints, ncon: int) -> np.ndarray:
    """The first row (ncon,) of each contact slot; -1 for a slot without rows."""
    first = np.full(ncon, -1)
    start = 0
    for rows in groups_in_order(efc):
        if rows.slot is not None:
            first[rows.slot : rows.slot + rows.count] = start + rows.force_count * np.arange(rows.count)
        start += rows.force_count * rows.count
    return first


def column(data: Any, name: str) -> Array:
    """Computes a column of `COLUMNS`, for one world or a batch: (..., nefc) or (..., nefc, nv)."""
    if data.time.ndim:
        return jax.vmap(lambda world: column(world, name))(data)
    forces = dict(zip(map(id, data.efc.groups), data.efc.split(data.row_force), strict=True))
    parts = [jnp.zeros((0, data.efc.jacobian.blocks.size) if name == "efc_J" else (0,), data.qpos.dtype)]
    for rows in groups_in_order(data.efc):
        values = COLUMNS[name](data.efc, rows, forces[id(rows)])
        values = jnp.broadcast_to(values, (rows.force_count, *values.shape[1:]))
        active = laws.active(rows).reshape(1, rows.count, *[1] * (values.ndim - 2))
        # from (row, constraint) to constraint by constraint
        parts.append(jnp.swapaxes(jnp.where(active, values, 0), 0, 1).reshape(-1, *values.shape[2:]))
    return jnp.concatenate(parts)[row_order(data.topology, data.efc)]


def _type(rows: RowGroup) -> ConstraintType:
    """The type of a group's constraints."""
    return FAMILIES[rows.family].kind


# the computed attributes of `mjx.Data`, by their names in mjData
COLUMNS: dict[str, Column] = {
    "efc_J": lambda efc, rows, force: laws.efc_rows(rows, efc.basis_jacobian(rows)),
    "efc_pos": lambda efc, rows, force: laws.on_normal(rows, rows.pos),
    "efc_margin": lambda efc, rows, force: laws.on_normal(rows, rows.margin),
    "efc_frictionloss": lambda efc, rows, force: (rows.frictionloss if rows.law == Law.BOUNDED else 0 * rows.pos)[None],
    "efc_D": lambda efc, rows, force: rows.D,
    "efc_aref": lambda efc, rows, force: laws.efc_rows(rows, rows.aref),
    "efc_force": lambda efc, rows, force: force,
}
