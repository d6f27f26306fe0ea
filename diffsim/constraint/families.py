"""All constraint rows of a state: the table of families, `make_constraints`, and what the rows exert.

A row of FAMILIES says everything about a family: the flag that switches it off, its law, the function that makes its
rows, and MuJoCo's name for its constraints. Row forces and J have the order of the table: first families without rows
of J (friction and limits of single dofs), then dense rows, contacts, and rows of points. views.py lists rows in
MuJoCo's order.

An equality type is a function of its ids (equality.py), one row here, and one row of the compiler's table.

Once the acceleration is known, contact forces and wrenches on bodies follow from the row forces.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.base.enums import ConstraintType, DisableBit, EqType, Integrator
from diffsim.base.errors import UnsupportedError
from diffsim.constraint import contact, equality, flex_rows, laws, limit
from diffsim.constraint.active_set import INEQUALITIES, fix_activity, fix_zones, inactive_asleep
from diffsim.constraint.contact import rows_within_reach, slot_body_ids
from diffsim.constraint.equality import body_pairs
from diffsim.constraint.rows import RawRows, Sources, assemble, prepare, with_velocities
from diffsim.kinematics.tree import body_dof_mask, dof_blocks, dof_mask, free_points
from diffsim.math.linalg import BlockColumns, columns_of, stack_rows
from diffsim.math.spatial import spatial_vector
from diffsim.math.stencil_rows import Segment, SparseRows
from diffsim.math.vector import cross, matmul, mul_vec_t
from diffsim.types import Model
from diffsim.types.constraints import Constraints, Law, RowGroup
from diffsim.types.data import ComFrame, Contacts, Kinematics, Solution, Tendons
from diffsim.types.topology import Topology
from diffsim.xla.gather import pick, rows_at
from diffsim.xla.solves.cpu_cholesky import limbs_of


class Family(NamedTuple):
    """A family of constraints.

    Attributes:
      flag: switches it off.
      law: how its force depends on the acceleration.
      rows: makes its rows, one group for each dimension.
      kind: efc_type of its constraints.
      ids: (n,) efc_id of its constraints; None for contacts, whose ids are their slots.
      place: among rows with equal ids, a family with a lower place comes first.
    """

    flag: DisableBit
    law: Law
    rows: Callable[[Sources], Sequence[RawRows]]
    kind: ConstraintType
    ids: Callable[[Topology], np.ndarray] | None = None
    place: int = 0


def _equality(kind: EqType, raw_rows: Callable[[Sources, np.ndarray], RawRows], components: int = 1) -> Family:
    """A type of equality. Each equality has `components` rows, which MuJoCo counts as constraints of their own."""

    def of_kind(topology: Topology) -> np.ndarray:
        return np.flatnonzero(topology.eq_type == kind)

    def rows(source: Sources) -> list[RawRows]:
        ids = of_kind(source.model.topology)
        return [raw_rows(source, ids)] if len(ids) else []

    def ids(topology: Topology) -> np.ndarray:
        return np.tile(of_kind(topology), components)

    return Family(DisableBit.EQUALITY, Law.QUADRATIC, rows, ConstraintType.EQUALITY, ids)


Kind = ConstraintType
Bit = DisableBit
FAMILIES = {
    "dof_friction": Family(Bit.FRICTIONLOSS, Law.BOUNDED, limit.dof_friction, Kind.FRICTION_DOF, limit.all_dofs),
    "limit_lower": Family(Bit.LIMIT, Law.ONE_SIDED, limit.joint_lower, Kind.LIMIT_JOINT, limit.dof_joints),
    "limit_upper": Family(Bit.LIMIT, Law.ONE_SIDED, limit.joint_upper, Kind.LIMIT_JOINT, limit.dof_joints, 1),
    "connect": _equality(EqType.CONNECT, equality.connect, 3),
    "weld": _equality(EqType.WELD, equality.weld, 6),
    "joint_equality": _equality(EqType.JOINT, equality.joint_equality),
    "tendon_equality": _equality(EqType.TENDON, equality.tendon_equality),
    "tendon_friction": Family(
        Bit.FRICTIONLOSS, Law.BOUNDED, limit.tendon_friction, Kind.FRICTION_TENDON, limit.friction_tendons
    ),
    "limit_ball": Family(Bit.LIMIT, Law.ONE_SIDED, limit.ball, Kind.LIMIT_JOINT, limit.limited_balls),
    "tendon_lower": Family(Bit.LIMIT, Law.ONE_SIDED, limit.tendon_lower, Kind.LIMIT_TENDON, limit.limited_tendons),
    "tendon_upper": Family(Bit.LIMIT, Law.ONE_SIDED, limit.tendon_upper, Kind.LIMIT_TENDON, limit.limited_tendons, 1),
    "frictionless_contact": Family(Bit.CONTACT, Law.ONE_SIDED, contact.frictionless, Kind.CONTACT_FRICTIONLESS),
    "pyramidal_contact": Family(Bit.CONTACT, Law.PYRAMID, contact.pyramidal, Kind.CONTACT_PYRAMIDAL),
    "elliptic_contact": Family(Bit.CONTACT, Law.CONE, contact.elliptic, Kind.CONTACT_ELLIPTIC),
    "flex_edge": Family(Bit.EQUALITY, Law.QUADRATIC, flex_rows.edges, Kind.EQUALITY, flex_rows.edge_equalities),
    "flex_vertex": Family(Bit.EQUALITY, Law.QUADRATIC, flex_rows.vertices, Kind.EQUALITY, flex_rows.vertex_equalities),
    "flex_strain": Family(Bit.EQUALITY, Law.QUADRATIC, flex_rows.strains, Kind.EQUALITY, flex_rows.strain_equalities),
}

# the family of the rows of contacts within reach (opt.contact_reach); they come after all others
WITHIN_REACH = "contact_within_reach"


def make_constraints(source: Sources) -> Constraints:
    """The rows of all constraints: (qpos, qvel, poses, contacts) -> J, aref, D, bounds and friction coefficients."""
    model, active_set, reach = source.model, source.active_set, source.reach
    if model.opt.integrator == Integrator.DISCRETE and source.diagonals is None:
        reason = "single stages do not support the integrator discrete; call forward or step"
        raise UnsupportedError.of("<option integrator>", reason)
    # raw rows of each family that no flag switches off
    near = [
        (name, inactive_asleep(raw, source.asleep))
        for name, family in FAMILIES.items()
        if model.nv and not (model.opt.disabled(family.flag) or model.opt.disabled(DisableBit.CONSTRAINT))
        for raw in family.rows(source)
    ]
    # between two events of a step, which inequalities act is fixed
    if active_set is not None:
        fixed = [FAMILIES[name].law in INEQUALITIES for name, _ in near]
        near = [
            (name, fix_activity(raw, active_set, index) if fixed[index] else raw)
            for index, (name, raw) in enumerate(near)
        ]
    # for derivatives: soft rows of contacts that do not touch
    far = []
    if reach is not None:
        far = [(WITHIN_REACH, rows_within_reach(raw, reach)) for _, raw in near if raw.slot is not None]
    # J first, then what follows from it: velocities, impedance, and the groups with their places in J
    names, all_rows = [name for name, _ in near + far], [raw for _, raw in near + far]
    jacobian = _stack(source, [raw.jacobian for raw in all_rows if raw.jacobian is not None])
    all_rows, warm = with_velocities(source, jacobian, all_rows)
    groups: list[RowGroup] = []
    start = 0
    for name, raw, prepared in zip(names, all_rows, prepare(model, all_rows), strict=True):
        law = Law.ONE_SIDED if name == WITHIN_REACH else FAMILIES[name].law
        group = assemble(source, name, law, raw, prepared, start)
        if active_set is not None and name != WITHIN_REACH:
            group = fix_zones(group, active_set, len(groups))
        groups.append(group)
        start += group.height
    topology = model.topology
    slots = source.slots
    limbs = None
    # the metric of the integrator `discrete` couples dofs that M does not
    alike = source.diagonals is None
    if (
        alike
        and slots.body is not None
        and not slots.flexes
        and all(raw.slot is not None for raw in all_rows if not raw.sign)
    ):
        # which entries of M + J^T K J can differ from zero: the entries of M, and pairs of dofs that move one body of a
        # contact but not the other
        moves = np.logical_xor(*body_dof_mask(topology)[slots.body.T])
        limbs = limbs_of(dof_mask(topology) | dof_mask(topology).T | (moves.T @ moves))
    return Constraints(jacobian=jacobian, groups=tuple(groups), warm=warm, limbs=limbs)


def _stack(source: Sources, jacobians: Sequence[Array | BlockColumns | Segment]) -> BlockColumns | SparseRows:
    """J from the parts of all groups: dense parts first, then contacts and rows of points."""
    topology = source.model.topology
    blocks = dof_blocks(topology)
    dense = [part for part in jacobians if not isinstance(part, BlockColumns | Segment)]
    first = columns_of(blocks, jnp.concatenate([jnp.zeros((0, source.model.nv), source.state.qvel.dtype), *dense]))
    by_blocks = [part for part in jacobians if isinstance(part, BlockColumns | Segment)]
    others = [Segment(part) if isinstance(part, BlockColumns) else part for part in by_blocks]
    pairs = any(part.stencil is not None for part in others)
    if not free_points(topology).points.number and not pairs:
        return stack_rows(blocks, [first, *(part.columns for part in others if part.columns is not None)])
    return SparseRows(blocks, (*([Segment(first)] if first.height or not others else []), *others))


def basis_forces(constraints: Constraints, row_force: Array) -> tuple[Array, ...]:
    """(dim, n) forces of the basis rows of each group, from the forces of all rows (`Solution.row_force`)."""
    parts = zip(constraints.groups, constraints.split(row_force), strict=True)
    return tuple(laws.basis(rows, force) for rows, force in parts)


def contact_forces(model: Model, contacts: Contacts, constraints: Constraints, solution: Solution) -> Array:
    """(ncon, 6) force (N) and torque (N m) of each contact on body 2, in the contact frame (normal first)."""
    if not constraints.contacts:
        return jnp.zeros((contacts.dist.shape[0], 6), contacts.dist.dtype)
    forces = zip(constraints.groups, basis_forces(constraints, solution.row_force), strict=True)
    wide = {rows.slot: jnp.pad(force.T, ((0, 0), (0, 6 - rows.dim))) for rows, force in forces if rows.slot is not None}
    listed = [wide[slot] for slot in sorted(wide)]
    # contacts that are springs have no rows, and come last
    rest = jnp.zeros((contacts.dist.shape[0] - sum(map(len, listed)), 6), contacts.dist.dtype)
    return jnp.concatenate([*listed, rest])


class _Wrench(NamedTuple):
    """Force (n, 3) and torque (n, 3) at world points (n, 3) on bodies (n,), or their opposite (sign -1)."""

    sign: int
    body: Array
    point: Array
    force: Array
    torque: Array


def constraint_wrenches(
    model: Model,
    contacts: Contacts,
    constraints: Constraints,
    solution: Solution,
    kinematics: Kinematics,
    com: ComFrame,
) -> Array:
    """(nbody, 6) torque and force of contacts, connects and welds on each body, about its tree's centre of mass.

    As MuJoCo reports them: contacts of flexes are left out, and for welds see `weld_torques`.
    """
    local = contact_forces(model, contacts, constraints, solution)
    if model.topology.nflex:
        local = jnp.where(contacts.flex[:, 1:] >= 0, 0, local)
    force = mul_vec_t(contacts.frame, local[:, :3])
    torque = mul_vec_t(contacts.frame, local[:, 3:])
    first, second = slot_body_ids(model, contacts)
    wrenches = [_Wrench(-1, first, contacts.pos, force, torque), _Wrench(1, second, contacts.pos, force, torque)]
    for rows, basis in zip(constraints.groups, basis_forces(constraints, solution.row_force), strict=True):
        if rows.anchor.shape[0]:
            # an equality between points has 3 rows of force on both bodies, and a weld 3 more of torque
            ids = FAMILIES[rows.family].ids
            count = rows.anchor.shape[0]
            assert ids is not None
            welds = ids(model.topology)[:count]
            body = body_pairs(model.topology, welds).body
            by_row = basis.reshape(-1, count).T
            push = by_row[:, :3]
            twists = by_row.shape[1] == 6
            torque = equality.weld_torques(model, kinematics, welds, by_row[:, 3:]) if twists else jnp.zeros_like(push)
            for side, sign in ((0, 1), (1, -1)):
                wrenches.append(_Wrench(sign, jnp.asarray(body[:, side]), rows.anchor[:, side], push, torque))
    # sum on each body, about the centre of mass of its tree; nothing acts on the world
    centre = pick(com.subtree_com, model.topology.body_rootid)
    moving = jnp.arange(1, model.nbody, dtype=jnp.int32)[:, None]
    total = jnp.zeros((model.nbody - 1, 6), centre.dtype)
    for sign, body, point, force, torque in wrenches:
        if body.shape[0]:
            on_body = sign * (body[None] == moving).astype(centre.dtype)
            total += matmul(on_body, spatial_vector(torque + cross(point - rows_at(centre, body), force), force))
    return jnp.concatenate([jnp.zeros((1, 6), centre.dtype), total])


def family_force(constraints: Constraints, family: str, row_force: Array) -> Array:
    """(dim, n) basis forces of a family with one group (a key of FAMILIES); (1, 0) where it has no rows."""
    assert family in FAMILIES
    forces = zip(constraints.groups, basis_forces(constraints, row_force), strict=True)
    return next((force for rows, force in forces if rows.family == family), row_force[None, :0])


def tendon_tensions(model: Model, tendons: Tendons, constraints: Constraints, row_force: Array) -> Array:
    """(ntendon,) N, the forces of limits, dry friction and equalities along each tendon; positive ones lengthen it."""
    topology = model.topology
    total = jnp.zeros_like(tendons.ten_length)
    for family, sign in (("tendon_friction", 1), ("tendon_lower", 1), ("tendon_upper", -1)):
        force = family_force(constraints, family, row_force)[0]
        ids = FAMILIES[family].ids
        assert ids is not None
        if force.shape[0]:
            total = total.at[ids(topology)].add(sign * force)
    couplings = FAMILIES["tendon_equality"].ids
    force = family_force(constraints, "tendon_equality", row_force)[0]
    assert couplings is not None
    return total + equality.coupled_tensions(model, tendons, couplings(topology), force) if force.shape[0] else total
