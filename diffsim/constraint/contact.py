"""Contacts: the basis rows (normal, tangents, torsion, rolling) of every slot, for pyramidal and elliptic cones.

Slots are grouped by contact dimension (1, 3, 4, 6). J is the velocity of body 2 relative to body 1 in the contact
frame. The weight of the normal row follows from the inverse weights of the two bodies; those of the friction rows
from opt.impratio: elliptic R_1 = R_0 / impratio, R_j friction_j^2 = R_1 friction_1^2; pyramidal edges share
R = 2 mu^2 R_0 with mu = friction_1 / sqrt(impratio). Source: MuJoCo documentation, "Computation", friction cones.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.collision.layout import contact_layout
from diffsim.constraint.impedance import (
    MAXIMP,
    MINIMP,
    MINVAL,
    Reference,
    at_least,
    damping,
    reference,
    regularization,
    usable_solref,
)
from diffsim.constraint.rows import Sources, refsafe
from diffsim.enums import Cone
from diffsim.math import safe
from diffsim.math.block_matrix import BlockColumns, columns_of
from diffsim.physics.jacobian import Axes, about, along, axes, columns
from diffsim.physics.tree import body_dof_mask, chain_mask, dof_blocks, last_dof
from diffsim.types import Model
from diffsim.types.constraints import Law, Rows
from diffsim.types.data import Contacts
from diffsim.types.topology import Topology, per_topology

Array = jax.Array

DIMENSIONS = (1, 3, 4, 6)


class Slots(NamedTuple):
    """Slots [start, stop) of the buffer have dimension `dim`."""

    dim: int
    start: int
    stop: int


class ContactPlan(NamedTuple):
    """Slots by dimension, and the static bodies of all slots where every slot belongs to one pair."""

    groups: tuple[Slots, ...]
    body: np.ndarray | None


@per_topology
def contact_plan(topology: Topology, disableflags: int) -> ContactPlan:
    """Index work of this file."""
    layout = contact_layout(topology, disableflags)
    edges = [int(np.searchsorted(layout.dim, dim)) for dim in DIMENSIONS] + [len(layout.dim)]
    groups = [Slots(dim, edges[i], edges[i + 1]) for i, dim in enumerate(DIMENSIONS)]
    static = bool(np.all(layout.body >= 0))
    return ContactPlan(tuple(group for group in groups if group.stop > group.start), layout.body if static else None)


class Bodies(NamedTuple):
    """Per slot: the 0/+-1 mask (n, nv) of the dofs that move body 2 but not body 1 (or the reverse), and inverse
    weights.
    """

    mask: BlockColumns
    translation: Array
    rotation: Array


def bodies(model: Model, plan: ContactPlan, contacts: Contacts) -> Bodies:
    """What the rows need of the two bodies of every slot; a slot without geoms has an empty mask."""
    topology, weight = model.topology, model.body_invweight0
    blocks = dof_blocks(topology)
    if plan.body is not None:
        first, second = plan.body.T
        chain = body_dof_mask(topology).astype(np.int8)
        mask = columns_of(blocks, jnp.asarray(chain[second] - chain[first], weight.dtype))
        both = weight[first] + weight[second]
        return Bodies(mask, both[:, 0], both[:, 1])
    first, second = slot_bodies(model, contacts)
    last = jnp.asarray(last_dof(topology))

    def of_size(index: np.ndarray) -> Array:
        moves, held = (chain_mask(topology, last[body], index).astype(weight.dtype) for body in (second, first))
        return moves - held

    mask = BlockColumns(blocks, tuple(of_size(index) for index in blocks.index))
    both = weight[first] + weight[second]
    return Bodies(mask, both[:, 0], both[:, 1])


def basis_jacobian(motion: Axes, contacts: Contacts, mask: BlockColumns, slots: Slots) -> BlockColumns:
    """(dim * n, nv) rows of a group: translations along the frame, then rotations about it."""
    part = slice(slots.start, slots.stop)
    pos, frame = contacts.pos[part], contacts.frame[part]
    wrenches = [along(motion, pos, frame[:, i]) for i in range(min(slots.dim, 3))]
    wrenches += [about(frame[:, i]) for i in range(slots.dim - 3)]
    rows = columns(mask.blocks, motion, jnp.concatenate(wrenches))

    def masked(block: Array, own: Array) -> Array:
        count, _, size = own.shape
        return (block.reshape(count, slots.dim, -1, size) * own[:, None, part]).reshape(count, -1, size)

    return BlockColumns(mask.blocks, tuple(masked(*pair) for pair in zip(rows.parts, mask.parts, strict=True)))


class Weights(NamedTuple):
    """(dim or 1, n) weights and (n,) coefficient of the regularized cone."""

    D: Array
    mu: Array


def _frictionless(model: Model, diagonal: Bodies, ref: Reference, friction: Array) -> Weights:
    return Weights(1 / regularization(ref.impedance, diagonal.translation)[None], friction[0, :0])


def _pyramid(model: Model, diagonal: Bodies, ref: Reference, friction: Array) -> Weights:
    first = friction[0]
    normal = regularization(ref.impedance, diagonal.translation * (1 + first * first))
    mu = first / jnp.sqrt(at_least(model.opt.impratio, MINVAL))
    return Weights(safe.divide(jnp.ones_like(mu), 2 * mu * mu * normal)[None], mu)


def _cone(model: Model, diagonal: Bodies, ref: Reference, friction: Array) -> Weights:
    impratio = at_least(model.opt.impratio, MINVAL)
    normal = 1 / regularization(ref.impedance, diagonal.translation)
    first = friction[0]
    sides = [impratio * normal * jnp.square(safe.divide(side, first)) for side in friction]
    return Weights(jnp.stack([normal, *sides]), first / jnp.sqrt(impratio))


WEIGHTS = {Law.ONE_SIDED: _frictionless, Law.PYRAMID: _pyramid, Law.CONE: _cone}


def law_of(model: Model, dim: int) -> Law:
    """The law of contacts of a dimension under the model's cone."""
    if dim == 1:
        return Law.ONE_SIDED
    return Law.CONE if model.opt.cone == Cone.ELLIPTIC else Law.PYRAMID


def group_rows(source: Sources, slots: Slots, jacobian: BlockColumns, both: Bodies, start: int) -> Rows:
    """The rows of one dimension; their part of J begins at `start`."""
    model, dim, law = source.model, slots.dim, law_of(source.model, slots.dim)
    part = slice(slots.start, slots.stop)
    contacts = jax.tree.map(lambda leaf: leaf[part] if leaf.ndim else leaf, source.contacts)
    diagonal = both._replace(translation=both.translation[part], rotation=both.rotation[part])
    active = contacts.dist < contacts.includemargin
    violation = jnp.where(active, contacts.dist - contacts.includemargin, 0)
    ref = reference(contacts.solref, contacts.solimp, violation, model.opt.timestep, refsafe(model))
    friction = contacts.friction[:, : max(dim - 1, 1)].T
    weight, mu = WEIGHTS[law](model, diagonal, ref, friction)
    vel = jacobian.mul_vec(source.state.qvel).reshape(dim, -1)
    side = side_damping(source, contacts, ref) if law == Law.CONE else ref.damping
    spring = ref.stiffness * ref.impedance * violation
    aref = [-ref.damping * vel[0] - spring, *[-side * vel[i] for i in range(1, dim)]]
    return Rows(
        law=law,
        dim=dim,
        sign=0,
        start=start,
        pos=contacts.dist,
        margin=contacts.includemargin,
        vel=vel,
        aref=jnp.where(active[None], jnp.stack(aref), 0),
        D=jnp.where(active[None], weight, 0),
        frictionloss=jnp.zeros((0,), vel.dtype),
        friction=friction[: dim - 1],
        mu=mu,
    )


def side_damping(source: Sources, contacts: Contacts, ref: Reference) -> Array:
    """B of elliptic friction rows: from solreffriction where it is set, else that of the normal row."""
    own = usable_solref(contacts.solreffriction, (0.0, 0.0), source.model.opt.timestep, refsafe(source.model))
    is_set = (own[:, 0] != 0) | (own[:, 1] != 0)
    dmax = safe.clip(contacts.solimp[:, 1], MINIMP, MAXIMP)
    return jnp.where(is_set, damping(own, dmax), ref.damping)


def contact_rows(source: Sources, start: int) -> tuple[list[BlockColumns], dict[str, Rows]]:
    """All contact rows: their parts of J, which begin at row `start`, and the families by name."""
    model = source.model
    plan = contact_plan(model.topology, model.opt.disableflags)
    parts, families = [], {}
    if plan.groups:
        motion, both = axes(model.topology, source.com), bodies(model, plan, source.contacts)
        for slots in plan.groups:
            jacobian = basis_jacobian(motion, source.contacts, both.mask, slots)
            families[f"contact{slots.dim}"] = group_rows(source, slots, jacobian, both, start)
            parts.append(jacobian)
            start += jacobian.height
    return parts, families


def contact_forces(model: Model, contacts: Contacts, forces: dict[str, Array]) -> Array:
    """(ncon, 6) force, torque in the contact frame from the basis forces (dim, n) of each contact family."""
    plan = contact_plan(model.topology, model.opt.disableflags)
    parts = [jnp.zeros((0, 6), contacts.dist.dtype)]
    for slots in plan.groups:
        basis = forces[f"contact{slots.dim}"].T
        parts.append(jnp.pad(basis, ((0, 0), (0, 6 - slots.dim))))
    return jnp.concatenate(parts)


def slot_bodies(model: Model, contacts: Contacts) -> tuple[Array, Array]:
    """Body ids (ncon,) on both sides of each slot; the world where a slot is unused."""
    geom = np.append(0, model.topology.geom_bodyid)
    table = jnp.asarray(geom, contacts.geom.dtype)
    return table[contacts.geom[:, 0] + 1], table[contacts.geom[:, 1] + 1]
