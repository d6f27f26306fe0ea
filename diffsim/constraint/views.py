"""Constraint rows (efc_*), contacts (mjContact) and islands as MuJoCo lists them, for inspection.

The simulator groups rows by family. It stores rows on single dofs without a Jacobian, and pyramidal contacts by one row
for each dimension instead of one for each edge. Here all rows are listed one by one, in MuJoCo's order: equalities, dry
friction of dofs and of tendons, limits of joints and of tendons, contacts. The contact buffer has a slot for every
possible contact, ordered by dimension. Here contacts are in MuJoCo's order; each has its dimension and its first row,
or the reason why it has no rows. Shapes are fixed: the `nefc` rows or `ncon` contacts that exist come first, and the
rest is padding. Source: mjData; mj_instantiateContact.
"""

import functools
import operator
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.base.enums import ConstraintState, ConstraintType, DisableBit, Jacobian
from diffsim.collision.flex_slots import slots_of
from diffsim.constraint import laws
from diffsim.constraint.contact import slot_body_ids
from diffsim.constraint.equality import body_pairs
from diffsim.constraint.families import FAMILIES
from diffsim.constraint.islands import Partition, partition
from diffsim.kinematics.tree import last_dof
from diffsim.math.vector import matmul
from diffsim.types import Model
from diffsim.types.constraints import Constraints, Law, RowGroup
from diffsim.types.data import Contacts, Solution

# number of dofs from which on MuJoCo's jacobian="auto" is sparse
SPARSE_FROM = 60


class EfcRows(NamedTuple):
    """Rows with mjData's names, all (nrow,) except efc_J (nrow, nv); the first `nefc` exist.

    `efc_id` is the equality, dof, tendon or joint, or the slot of `data.contact`. In rows beyond `nefc`, the type, id,
    state and island are -1, and all other fields are zero. Whether an elliptic contact slips (efc_state) is decided by
    its force if noslip has run, and otherwise by its residual.
    """

    nefc: Array
    efc_type: Array
    efc_id: Array
    efc_J: Array
    efc_pos: Array
    efc_margin: Array
    efc_frictionloss: Array
    efc_D: Array
    efc_vel: Array
    efc_aref: Array
    efc_force: Array
    efc_state: Array
    efc_island: Array


class IslandList(NamedTuple):
    """Islands with mjData's names; fields of trees (ntree,), of dofs (nv,), of rows (nrow,), and of islands (ntree,).

    In the maps `map_itree2tree`, `map_idof2dof` and `map_iefc2efc`, the trees, dofs and rows of an island are
    contiguous and begin at the island's address. Trees and dofs without an island come last. Beyond `nisland` counts
    are 0 and addresses -1; beyond `nefc` the maps of rows are -1.
    """

    nisland: Array
    nidof: Array
    tree_island: Array
    island_ntree: Array
    island_itreeadr: Array
    map_itree2tree: Array
    dof_island: Array
    island_nv: Array
    island_idofadr: Array
    island_dofadr: Array
    map_dof2idof: Array
    map_idof2dof: Array
    efc_island: Array
    island_ne: Array
    island_nf: Array
    island_nefc: Array
    island_iefcadr: Array
    map_efc2iefc: Array
    map_iefc2efc: Array


def island_list(model: Model, contacts: Contacts, constraints: Constraints, solution: Solution) -> IslandList:
    """The islands of one state; none if the flag `island` is off."""
    topology = model.topology
    rows = efc_rows(model, contacts, constraints, solution)
    tree = _tree_island(model, tree_partition(model, contacts, constraints))
    dof = tree[topology.dof_treeid]
    efc = rows.efc_island
    nisland = jnp.max(tree, initial=-1) + 1

    def by_island(island: Array) -> tuple[Array, Array, Array, Array]:
        """For members sorted by island: each island's count and start, the sorted ids, and each id's position."""
        order = jnp.argsort(jnp.where(island < 0, topology.ntree, island), stable=True).astype(jnp.int32)
        number = _count(island, topology.ntree)
        begin = jnp.where(jnp.arange(topology.ntree) < nisland, jnp.cumsum(number) - number, -1)
        return number, begin, order, jnp.argsort(order).astype(jnp.int32)

    island_ntree, island_itreeadr, map_itree2tree, _ = by_island(tree)
    island_nv, island_idofadr, map_idof2dof, map_dof2idof = by_island(dof)
    island_nefc, island_iefcadr, map_iefc2efc, map_efc2iefc = by_island(efc)
    exists = jnp.arange(len(efc)) < rows.nefc
    friction = (rows.efc_type == ConstraintType.FRICTION_DOF) | (rows.efc_type == ConstraintType.FRICTION_TENDON)
    return IslandList(
        nisland=nisland,
        nidof=jnp.sum(dof >= 0, dtype=jnp.int32),
        tree_island=tree,
        island_ntree=island_ntree,
        island_itreeadr=island_itreeadr,
        map_itree2tree=map_itree2tree,
        dof_island=dof,
        island_nv=island_nv,
        island_idofadr=island_idofadr,
        island_dofadr=jnp.where(island_idofadr < 0, -1, map_idof2dof[jnp.maximum(island_idofadr, 0)]),
        map_dof2idof=map_dof2idof,
        map_idof2dof=map_idof2dof,
        efc_island=efc,
        island_ne=_count(jnp.where(rows.efc_type == ConstraintType.EQUALITY, efc, -1), topology.ntree),
        island_nf=_count(jnp.where(friction, efc, -1), topology.ntree),
        island_nefc=island_nefc,
        island_iefcadr=island_iefcadr,
        map_efc2iefc=jnp.where(exists, map_efc2iefc, -1),
        map_iefc2efc=jnp.where(exists, map_iefc2efc, -1),
    )


def tree_partition(model: Model, contacts: Contacts, constraints: Constraints) -> Partition:
    """The islands of trees, as in MuJoCo: a contact, connect or weld joins the trees of its two bodies.

    It does so even if its rows of J are zero.
    """
    topology = model.topology
    of_body = np.append(topology.body_treeid, -1)[:, None] == np.arange(topology.ntree)
    members = []
    for rows in constraints.groups:
        bodies: tuple[Array | np.ndarray, ...] = ()
        if rows.family in ("connect", "weld"):
            ids = FAMILIES[rows.family].ids
            bodies = () if ids is None else tuple(body_pairs(topology, ids(topology)).body.T)
        elif rows.slot is not None:
            bodies = tuple(body[rows.slot : rows.slot + rows.count] for body in slot_body_ids(model, contacts))
        none = jnp.zeros((rows.count, topology.ntree), bool)
        members.append(functools.reduce(operator.or_, (jnp.asarray(of_body)[body] for body in bodies), none))
    return partition(model, constraints, tuple(members))


def _tree_island(model: Model, parts: Partition) -> Array:
    """(ntree,) the island of each tree, -1 for none; -1 for all trees if the flag `island` is off."""
    return jnp.full_like(parts.first, -1) if model.opt.disabled(DisableBit.ISLAND) else parts.tree_island


def _count(island: Array, most: int) -> Array:
    """(most,) how often each island occurs among labels (n,), of which -1 is none."""
    return jnp.zeros((most,), jnp.int32).at[jnp.where(island < 0, most, island)].add(1, mode="drop")


def efc_rows(model: Model, contacts: Contacts, constraints: Constraints, solution: Solution) -> EfcRows:
    """The rows of one state, with their forces at the solution."""
    parts_of_trees = tree_partition(model, contacts, constraints)
    tree_island = _tree_island(model, parts_of_trees)
    forces = zip(constraints.groups, constraints.split(solution.row_force), parts_of_trees.trees, strict=True)
    parts = []
    for rows, force, trees in forces:
        island = tree_island[jnp.argmax(trees, axis=1)]
        columns = _columns(model, contacts, constraints, rows, force, solution.qacc)
        parts.append((*columns, jnp.broadcast_to(island[None], (rows.force_count, rows.count)).reshape(-1)))
    if not parts:
        none = jnp.zeros((0,), constraints.J.dtype)
        ints = jnp.zeros((0,), jnp.int32)
        labels = dict.fromkeys(("efc_type", "efc_id", "efc_state", "efc_island"), ints)
        sizes = {"nefc": jnp.zeros((), jnp.int32), "efc_J": constraints.J[:0]}
        return EfcRows(**(dict.fromkeys(EfcRows._fields, none) | labels | sizes))
    exists, key, *columns = (jnp.concatenate(column) for column in zip(*parts, strict=True))
    order = jnp.argsort(jnp.where(exists, key, jnp.iinfo(jnp.int32).max))
    exists = exists[order]
    # values of rows that do not exist, in the order of the fields: type, id, state and island are -1, others zero
    blank = [-1, -1, *[0] * 8, -1, -1]
    sorted_columns = []
    for column, empty in zip(columns, blank, strict=True):
        shown = exists.reshape(-1, *[1] * (column.ndim - 1))
        sorted_columns.append(jnp.where(shown, column[order], jnp.asarray(empty, column.dtype)))
    return EfcRows(jnp.sum(exists, dtype=jnp.int32), *sorted_columns)


def _columns(
    model: Model, contacts: Contacts, constraints: Constraints, rows: RowGroup, force: Array, qacc: Array
) -> tuple[Array, ...]:
    """Whether each row of a group exists, its sort key, and the columns of `EfcRows`.

    First come the first rows of all constraints of the group, then their second rows, and so on.
    """
    height, count, nv = rows.force_count, rows.count, model.nv
    ids = FAMILIES[rows.family].ids
    # efc_id of the constraints of the group
    ids = np.arange(rows.count) + (rows.slot or 0) if ids is None else ids(model.topology)
    jacobian = constraints.basis_jacobian(rows)
    edges = laws.efc_rows(rows, jacobian)
    loss = rows.frictionloss if rows.law == Law.BOUNDED else jnp.zeros_like(rows.pos)
    exists = laws.active(rows) & _moves(model, contacts, rows, ids, jacobian)
    x = matmul(jacobian, qacc) - rows.aref
    columns = (
        jnp.full((height, count), int(FAMILIES[rows.family].kind), jnp.int32),
        jnp.broadcast_to(jnp.asarray(ids, jnp.int32)[None], (height, count)),
        edges.reshape(height, count, nv),
        # zero in the rows of friction
        laws.on_normal(rows, rows.pos),
        laws.on_normal(rows, rows.margin),
        jnp.broadcast_to(loss[None], (height, count)),
        jnp.broadcast_to(rows.D, (height, count)),
        laws.efc_rows(rows, rows.vel),
        laws.efc_rows(rows, rows.aref),
        force,
        jnp.broadcast_to(_state(model, rows, x, force), (height, count)),
    )
    key = _sort_key(model, contacts, rows, ids)[None] + jnp.arange(height, dtype=jnp.int32)[:, None]
    shown = jnp.broadcast_to(exists[None], (height, count))
    return tuple(column.reshape(height * count, *column.shape[2:]) for column in (shown, key, *columns))


def _sort_key(model: Model, contacts: Contacts, rows: RowGroup, ids: np.ndarray) -> Array:
    """(n,) int32 sort keys of constraints; two keys differ by more than the number of rows of a constraint."""
    stride = max(16, model.topology.nflexedge, 2 * model.topology.nflexvert)
    # sorted by type first; contacts of all types count as one type
    room = stride * (1 + max(model.nv, model.njnt, model.topology.neq, model.topology.ntendon))
    if rows.slot is not None:
        sort_key = contacts.sort_key[rows.slot : rows.slot + rows.count]
        return room * int(ConstraintType.CONTACT_FRICTIONLESS) + 16 * sort_key
    family = FAMILIES[rows.family]
    # a connect or weld is one constraint for each of its components here, all with the same id: number them
    repeat = np.cumsum(ids[:, None] == ids[None], axis=1).diagonal() - 1 if rows.law == Law.QUADRATIC else 0
    return jnp.asarray(room * int(family.kind) + stride * ids + family.place + repeat, jnp.int32)


def _moves(model: Model, contacts: Contacts, rows: RowGroup, ids: np.ndarray, jacobian: Array) -> Array:
    """(n,) whether any dof moves each constraint, by MuJoCo's rule.

    Contacts of geoms: the bodies have different last dofs, or J is dense. Others: some entry of their rows is not zero.
    """
    slots = slots_of(model)
    if rows.slot in {run.start for run in slots.geoms}:
        part = slice(rows.slot, rows.slot + rows.count)
        last = jnp.asarray(last_dof(model.topology))
        first, second = (last[body[part]] for body in slot_body_ids(model, contacts))
        return (first != second) | (not is_sparse(model))
    row = jnp.any(jacobian != 0, axis=(0, 2))
    return jnp.any(row[None] & (ids[:, None] == ids[None]), axis=1)


def is_sparse(model: Model) -> bool:
    """Whether MuJoCo stores J in sparse form, and then leaves out contacts that nothing moves (mj_isSparse)."""
    kind = model.opt.jacobian
    return kind == Jacobian.SPARSE or (kind == Jacobian.AUTO and model.nv >= SPARSE_FROM)


def _state(model: Model, rows: RowGroup, x: Array, force: Array) -> Array:
    """(force_count, n) or (1, n) ConstraintState: in which zone of its law a row is, by residuals and forces."""
    state = ConstraintState
    loaded = jnp.where(force > 0, int(state.QUADRATIC), int(state.SATISFIED))
    if rows.law == Law.QUADRATIC:
        return jnp.full_like(loaded, int(state.QUADRATIC))
    if rows.law == Law.BOUNDED:
        below = jnp.where(force <= -rows.frictionloss[None], int(state.LINEARPOS), int(state.QUADRATIC))
        return jnp.where(force >= rows.frictionloss[None], int(state.LINEARNEG), below)
    if rows.law == Law.CONE:
        slips = laws.at_bound(rows, force) if model.opt.noslip_iterations else laws.slips(rows, x)
        return jnp.where(slips & (force[0] > 0), int(state.CONE), loaded[0])[None]
    return loaded


# values of mjContact's `exclude`, the reason why a contact has no rows; this one is for contacts that have rows
INCLUDED = 0
# the distance of the contact is between margin - gap and margin
IN_GAP = 1
# no degree of freedom moves the contact
WITHOUT_DOFS = 3


class ContactList(NamedTuple):
    """Contacts with mjContact's names: n rows, of which the first `ncon` exist; beyond, ids are -1, all else is zero.

    `exclude` is 0 for contacts with rows, 1 for contacts in a gap, 3 for contacts that no degree of freedom moves.
    `efc_address` is the first row in `efc`, or -1. `slot` is the row in `data.contact`.
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
    """The contacts of one state, in MuJoCo's order."""
    count = len(contacts.dist)
    exists = contacts.dist <= contacts.margin
    order = jnp.argsort(jnp.where(exists, contacts.sort_key, jnp.iinfo(jnp.int32).max))
    rows = efc_rows(model, contacts, constraints, solution)
    touching = jnp.where(rows.efc_type >= ConstraintType.CONTACT_FRICTIONLESS, rows.efc_id, -1)
    matches = touching[None] == jnp.arange(count)[:, None]
    included = jnp.any(matches, axis=1)
    address = jnp.where(included, jnp.argmax(matches, axis=1), -1) if matches.size else jnp.full((count,), -1)
    reason = jnp.where(contacts.dist < contacts.includemargin, WITHOUT_DOFS, IN_GAP)
    columns = {name: getattr(contacts, name) for name in COPIED} | {
        "dim": jnp.asarray(slots_of(model).dim),
        "exclude": jnp.where(included, INCLUDED, reason).astype(jnp.int32),
        "efc_address": address.astype(jnp.int32),
        "slot": jnp.arange(count, dtype=jnp.int32),
    }
    listed = {}
    for name, column in columns.items():
        shown = exists.reshape(-1, *[1] * (column.ndim - 1))
        listed[name] = jnp.where(shown, column, jnp.asarray(-1 if name in IDS else 0, column.dtype))[order]
    return ContactList(ncon=jnp.sum(exists, dtype=jnp.int32), **listed)
