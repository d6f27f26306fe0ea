"""Feeds the constraint room with the oracle's own inputs, and lines our rows up with the oracle's."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from oracle import inputs_of, record_of, sparse, state_of

from diffsim.base.enums import ConstraintType, EqType
from diffsim.collision import contact_layout, slots_of
from diffsim.constraint import Sources, make_constraints
from diffsim.types import Inputs, Model, State
from diffsim.types.constraints import Constraints, Law, RowGroup
from diffsim.types.data import ComFrame, Contacts, Kinematics, Tendons, Velocities
from tests.uncompiled import uncompiled

make = uncompiled(make_constraints)


def contacts_of(model: Model, data: Any) -> tuple[Contacts, dict[int, int]]:
    """The oracle's contacts in the slots of our buffer, and the slot of each."""
    layout = contact_layout(model.topology, model.opt.disableflags)
    ncon = layout.ncon
    fields = {
        "dist": np.full(ncon, 1e10),
        "pos": np.zeros((ncon, 3)),
        "frame": np.tile(np.eye(3), (ncon, 1, 1)),
        "includemargin": np.zeros(ncon),
        "friction": np.full((ncon, 5), 1.0),
        "solref": np.tile([0.02, 1.0], (ncon, 1)),
        "solreffriction": np.zeros((ncon, 2)),
        "solimp": np.tile([0.9, 0.95, 0.001, 0.5, 2.0], (ncon, 1)),
        **{name: np.full((ncon, 2), -1, np.int32) for name in ("geom", "flex", "elem", "vert")},
    }
    # behind all of the oracle's
    rank = 10000 + np.arange(ncon, dtype=np.int32)
    slots: dict[int, int] = {}
    for index in range(data.ncon):
        contact = data.contact[index]
        fits = (layout.dim == contact.dim) & np.all((layout.geom == contact.geom) | (layout.geom == -1), axis=1)
        slot = next(s for s in np.flatnonzero(fits) if s not in slots.values())
        slots[index] = int(slot)
        rank[slot] = index
        for name, column in fields.items():
            column[slot] = np.reshape(getattr(contact, name), column[slot].shape)
    none = np.zeros((), np.int32)
    return Contacts(**fields, margin=fields["includemargin"], sort_key=rank, ncon_dropped=none), slots


class Fed(NamedTuple):
    """Our rows, and what they were made from."""

    constraints: Constraints
    contacts: Contacts
    slots: dict[int, int]


def rows_of(model: Model, mjmodel: Any, data: Any) -> Fed:
    """Our constraints from the oracle's state, poses and contacts."""
    contacts, slots = contacts_of(model, data)
    records = [record_of(cls, mjmodel, data) for cls in (Kinematics, ComFrame, Tendons, Velocities)]
    return Fed(make(sources_of(model, state_of(data), inputs_of(data), records, contacts)), contacts, slots)


def sources_of(model: Model, state: State, inputs: Inputs, records: Sequence[Any], contacts: Contacts) -> Sources:
    """What rows are made from; `records` are poses, axes, tendons and velocities."""
    kinematics, com, tendons, velocities = records
    return Sources(
        model=model,
        state=state,
        inputs=inputs,
        kinematics=kinematics,
        com=com,
        tendons=tendons,
        velocities=velocities,
        contacts=contacts,
        slots=slots_of(model),
    )


class Row(NamedTuple):
    """One row in the oracle's sense (edges for pyramids)."""

    J: np.ndarray
    pos: float
    margin: float
    aref: float
    D: float
    frictionloss: float


def _one(constraints: Constraints, rows: RowGroup, index: int, component: int = 0) -> Row:
    nv = constraints.J.shape[1]
    if rows.sign:
        jacobian = rows.sign * np.eye(nv)[index]
    else:
        jacobian = np.asarray(constraints.J[rows.start + component * rows.count + index])
    loss = float(rows.frictionloss[index]) if rows.law == Law.BOUNDED else 0.0
    pos, margin = (float(rows.pos[index]), float(rows.margin[index])) if component == 0 else (0.0, 0.0)
    weight = rows.D[min(component, rows.D.shape[0] - 1), index]
    return Row(jacobian, pos, margin, float(rows.aref[component, index]), float(weight), loss)


def lined_up(model: Model, fed: Fed, data: Any) -> list[Row]:
    """Our rows in the oracle's order; fails if one of the oracle's is missing."""
    constraints, topology = fed.constraints, model.topology
    seen: dict[tuple[int, int], int] = {}
    result = []
    dense = oracle_jacobian(topology.nv, data)
    for i in range(data.nefc):
        kind, name = ConstraintType(int(data.efc_type[i])), int(data.efc_id[i])
        part = seen.get((kind, name), 0)
        seen[kind, name] = part + 1
        result.append(_find(constraints, topology, fed, kind, name, part, dense[i], data))
    return result


def _find(constraints, topology, fed, kind, name, part, jacobian, data) -> Row:
    def one(family: str, index: int) -> Row:
        return _one(constraints, constraints.find(family), index)

    if kind == ConstraintType.FRICTION_DOF:
        return one("dof_friction", name)
    if kind == ConstraintType.FRICTION_TENDON:
        return one("tendon_friction", _rank(topology.present["tendon_frictionloss"], name))
    if kind == ConstraintType.LIMIT_JOINT:
        ball = (topology.jnt_limited != 0) & (topology.jnt_type == 1)
        if ball[name]:
            return one("limit_ball", _rank(ball, name))
        dof = topology.jnt_dofadr[name]
        return one("limit_lower" if jacobian[dof] > 0 else "limit_upper", dof)
    if kind == ConstraintType.LIMIT_TENDON:
        index = _rank(topology.tendon_limited, name)
        lower = one("tendon_lower", index)
        return lower if np.vdot(lower.J, jacobian) > 0 else one("tendon_upper", index)
    if kind == ConstraintType.EQUALITY:
        return _equality(constraints, topology, name, part)
    return _contact(constraints, fed, name, part, data)


def _equality(constraints, topology, name, part) -> Row:
    kind = EqType(int(topology.eq_type[name]))
    rows = constraints.find({0: "connect", 1: "weld", 2: "joint_equality", 3: "tendon_equality"}[kind])
    ids = topology.eq_type == kind
    return _one(constraints, rows, part * int(ids.sum()) + _rank(ids, name))


def _contact(constraints, fed, name, part, data) -> Row:
    dim = int(data.contact[name].dim)
    rows = next(rows for rows in constraints.contacts if rows.dim == dim)
    index = fed.slots[name] - rows.slot
    if rows.law != Law.PYRAMID:
        return _one(constraints, rows, index, part)
    mu = float(rows.friction[part // 2, index]) * (1 if part % 2 == 0 else -1)
    normal, side = _one(constraints, rows, index), _one(constraints, rows, index, part // 2 + 1)
    return normal._replace(J=normal.J + mu * side.J, aref=normal.aref + mu * side.aref)


def _rank(mask: np.ndarray, name: int) -> int:
    return int(np.count_nonzero(mask[:name]))


def oracle_jacobian(nv: int, data: Any) -> np.ndarray:
    """efc_J as a dense matrix."""
    if data.efc_J.size == data.nefc * nv:
        return data.efc_J.reshape(data.nefc, nv)
    return sparse(data.efc_J.ravel(), data.efc_J_rownnz, data.efc_J_rowadr, data.efc_J_colind, nv)
