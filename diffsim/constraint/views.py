"""Views: all constraint rows as MuJoCo lists them (efc_*), for people who look inside.

The simulator keeps rows by family, rows on single dofs without a Jacobian, and pyramids by their basis. Here every row
stands for itself, in MuJoCo's order: equalities, dry friction of dofs and of tendons, limits of joints and of tendons,
contacts. The shape is fixed: rows that are there come first, `nefc` of them, then those that are not. Source: mjData.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.constraint import laws
from diffsim.constraint.contact import Slots, bodies, contact_plan
from diffsim.constraint.equality import coupling
from diffsim.constraint.limit import limit_layout
from diffsim.constraint.weld import joined
from diffsim.enums import ConstraintState, ConstraintType, EqType, Jacobian
from diffsim.math.linalg import matmul
from diffsim.types import Model
from diffsim.types.constraints import Constraints, Law, Rows
from diffsim.types.data import Contacts, Solution
from diffsim.types.topology import Topology, per_topology

Array = jax.Array
# more rows than a constraint can have
STRIDE = 16
# number of dofs
SPARSE_FROM = 60


class EfcRows(NamedTuple):
    """Rows with mjData's names, all (nrow,) but efc_J (nrow, nv); the first `nefc` are there.

    `efc_id` is the equality, dof, tendon, joint, or the slot of `data.contact`. Beyond nefc type, id and state are -1
    and all else is zero. With noslip, whether an elliptic contact slips is told by its force.
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


class Label(NamedTuple):
    """What the constraints (n,) of a family are: type, id, and which comes first among rows with equal ids."""

    kind: ConstraintType
    id: np.ndarray
    second: int = 0


@per_topology
def _labels(topology: Topology) -> dict[str, Label]:
    """Labels of the families by name; those of contacts follow from the slots."""
    limit = limit_layout(topology)
    dofs, joint = np.arange(topology.nv), topology.dof_jntid
    tendon = np.flatnonzero(topology.present["tendon_frictionloss"])
    kind = ConstraintType
    return {
        "connect": Label(kind.EQUALITY, np.tile(joined(topology, EqType.CONNECT).id, 3)),
        "weld": Label(kind.EQUALITY, np.tile(joined(topology, EqType.WELD).id, 6)),
        "joint_equality": Label(kind.EQUALITY, coupling(topology, EqType.JOINT).id),
        "tendon_equality": Label(kind.EQUALITY, coupling(topology, EqType.TENDON).id),
        "dof_friction": Label(kind.FRICTION_DOF, dofs),
        "tendon_friction": Label(kind.FRICTION_TENDON, tendon),
        "limit_lower": Label(kind.LIMIT_JOINT, joint),
        "limit_upper": Label(kind.LIMIT_JOINT, joint, 1),
        "limit_ball": Label(kind.LIMIT_JOINT, limit.ball),
        "tendon_lower": Label(kind.LIMIT_TENDON, limit.tendon),
        "tendon_upper": Label(kind.LIMIT_TENDON, limit.tendon, 1),
    }


CONTACT = {
    Law.ONE_SIDED: ConstraintType.CONTACT_FRICTIONLESS,
    Law.PYRAMID: ConstraintType.CONTACT_PYRAMIDAL,
    Law.CONE: ConstraintType.CONTACT_ELLIPTIC,
}


def efc_rows(model: Model, contacts: Contacts, constraints: Constraints, solution: Solution) -> EfcRows:
    """The rows of one state, with their forces at the solution."""
    forces = zip(constraints.families, constraints.split(solution.row_force), strict=True)
    parts = [_family(model, contacts, constraints, rows, force, solution.qacc) for rows, force in forces]
    if not parts:
        return _nothing(constraints.J)
    there, rank, *columns = (jnp.concatenate(column) for column in zip(*parts, strict=True))
    order = jnp.argsort(jnp.where(there, rank, jnp.iinfo(jnp.int32).max))
    there = there[order]
    blank = [-1, -1, *[0] * 8, -1]
    sorted_columns = []
    for column, empty in zip(columns, blank, strict=True):
        shown = there.reshape(-1, *[1] * (column.ndim - 1))
        sorted_columns.append(jnp.where(shown, column[order], jnp.asarray(empty, column.dtype)))
    return EfcRows(jnp.sum(there, dtype=jnp.int32), *sorted_columns)


def _nothing(like: Array) -> EfcRows:
    none, ints = jnp.zeros((0,), like.dtype), jnp.zeros((0,), jnp.int32)
    labels = dict.fromkeys(("efc_type", "efc_id", "efc_state"), ints)
    fields = dict.fromkeys(EfcRows._fields, none) | labels | {"nefc": jnp.zeros((), jnp.int32), "efc_J": like[:0]}
    return EfcRows(**fields)


def _family(
    model: Model, contacts: Contacts, constraints: Constraints, rows: Rows, force: Array, qacc: Array
) -> tuple[Array, ...]:
    """Whether each row is there, its rank, and the columns of `EfcRows`; rows component-major."""
    height, count, nv = rows.forces, rows.count, model.nv
    kind, ids, rank = _place(model, contacts, constraints, rows)
    jacobian = basis_jacobian(constraints, rows)
    normal = rows.law == Law.PYRAMID or rows.dim == 1
    first = jnp.ones((height, 1), rows.D.dtype) if normal else jnp.eye(height, 1, dtype=rows.D.dtype)
    edges = laws.dual_rows(rows, jacobian)
    loss = rows.frictionloss if rows.law == Law.BOUNDED else jnp.zeros_like(rows.pos)
    there = laws.active(rows) & _moves(model, contacts, constraints, rows, jacobian)
    x = matmul(jacobian, qacc) - rows.aref
    columns = (
        jnp.full((height, count), int(kind), jnp.int32),
        jnp.broadcast_to(ids[None], (height, count)),
        edges.reshape(height, count, nv),
        first * rows.pos[None],
        first * rows.margin[None],
        jnp.broadcast_to(loss[None], (height, count)),
        jnp.broadcast_to(rows.D, (height, count)),
        laws.dual_rows(rows, rows.vel),
        laws.dual_rows(rows, rows.aref),
        force,
        jnp.broadcast_to(_state(model, rows, x, force), (height, count)),
    )
    rank = rank[None] + jnp.arange(height, dtype=jnp.int32)[:, None]
    shown = jnp.broadcast_to(there[None], (height, count))
    return tuple(column.reshape(height * count, *column.shape[2:]) for column in (shown, rank, *columns))


def _place(
    model: Model, contacts: Contacts, constraints: Constraints, rows: Rows
) -> tuple[ConstraintType, Array, Array]:
    """Type, id (n,) and rank (n,) of the constraints of a family."""
    # types come one after another, except that contacts of all types are mixed
    room = STRIDE * (1 + max(model.nv, model.njnt, model.topology.neq, model.topology.ntendon))
    if rows in constraints.contacts:
        slots = _slots(model, rows)
        rank = room * int(ConstraintType.CONTACT_FRICTIONLESS) + STRIDE * contacts.sort_key[slots.start : slots.stop]
        return CONTACT[rows.law], jnp.arange(slots.start, slots.stop, dtype=jnp.int32), rank
    label = _label(model, constraints, rows)
    rank = room * int(label.kind) + STRIDE * label.id + label.second
    # components of connect and weld are separate constraints of their families
    repeat = np.cumsum(label.id[:, None] == label.id[None], axis=1).diagonal() - 1 if rows.law == Law.QUADRATIC else 0
    return label.kind, jnp.asarray(label.id, jnp.int32), jnp.asarray(rank + repeat, jnp.int32)


def _label(model: Model, constraints: Constraints, rows: Rows) -> Label:
    return _labels(model.topology)[next(name for name, value in vars(constraints).items() if value is rows)]


def _slots(model: Model, rows: Rows) -> Slots:
    """Where the contacts of a family are."""
    groups = contact_plan(model.topology, model.opt.disableflags).groups
    return next(group for group in groups if group.dim == rows.dim)


def _moves(model: Model, contacts: Contacts, constraints: Constraints, rows: Rows, jacobian: Array) -> Array:
    """(n,) whether anything moves a constraint: of a contact its bodies, of others what its rows say."""
    if rows in constraints.contacts:
        slots, plan = _slots(model, rows), contact_plan(model.topology, model.opt.disableflags)
        apart = jnp.any(bodies(model, plan, contacts).mask.dense[slots.start : slots.stop] != 0, axis=1)
        return apart | (not is_sparse(model))
    label = _label(model, constraints, rows).id
    row = jnp.any(jacobian != 0, axis=(0, 2))
    return jnp.any(row[None] & (label[:, None] == label[None]), axis=1)


def is_sparse(model: Model) -> bool:
    """Whether MuJoCo stores J in sparse form, and then leaves out contacts that nothing moves (mj_isSparse)."""
    kind = model.opt.jacobian
    return kind == Jacobian.SPARSE or (kind == Jacobian.AUTO and model.nv >= SPARSE_FROM)


def basis_jacobian(constraints: Constraints, rows: Rows) -> Array:
    """(dim, n, nv) basis rows."""
    if rows.sign:
        return rows.sign * jnp.eye(rows.count, dtype=constraints.jacobian.dtype)[None]
    block = constraints.J[rows.start : rows.start + rows.height]
    return block.reshape(rows.dim, rows.count, -1)


def _state(model: Model, rows: Rows, x: Array, force: Array) -> Array:
    """(forces, n) or (1, n) zones, from residuals and forces."""
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
