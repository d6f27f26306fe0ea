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
from diffsim.math.linalg import matmul
from diffsim.physics.axes import Axes, about, along, axes, rows_of
from diffsim.physics.tree import body_dof_mask
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
    """Per slot: the 0/+-1 mask of the dofs that move body 2 but not body 1 (or the reverse), and inverse weights."""

    mask: Array
    translation: Array
    rotation: Array


def bodies(model: Model, plan: ContactPlan, contacts: Contacts) -> Bodies:
    """What the rows need of the two bodies of every slot; a slot without geoms has an empty mask."""
    topology = model.topology
    chain, weight = body_dof_mask(topology).astype(np.int8), model.body_invweight0
    if plan.body is not None:
        mask = jnp.asarray(chain[plan.body[:, 1]] - chain[plan.body[:, 0]], weight.dtype)
        both = weight[plan.body[:, 0]] + weight[plan.body[:, 1]]
        return Bodies(mask, both[:, 0], both[:, 1])
    # row 0 of these tables stands for geom -1
    pad = np.zeros((1, topology.nv), np.int8)
    moved = jnp.asarray(np.vstack([pad, chain[topology.geom_bodyid]]), weight.dtype)
    of_geom = jnp.concatenate([jnp.zeros_like(weight[:1]), weight[topology.geom_bodyid]])
    first, second = contacts.geom[:, 0] + 1, contacts.geom[:, 1] + 1
    both = of_geom[first] + of_geom[second]
    return Bodies(moved[second] - moved[first], both[:, 0], both[:, 1])


def basis_jacobian(motion: Axes, contacts: Contacts, mask: Array, slots: Slots) -> Array:
    """(dim, n, nv) rows of a group: translations along the frame, then rotations about it."""
    part = slice(slots.start, slots.stop)
    pos, frame = contacts.pos[part], contacts.frame[part]
    wrenches = [along(motion, pos, frame[:, i]) for i in range(min(slots.dim, 3))]
    wrenches += [about(frame[:, i]) for i in range(slots.dim - 3)]
    rows = rows_of(motion, jnp.concatenate(wrenches))
    return rows.reshape(slots.dim, slots.stop - slots.start, -1) * mask[part][None]


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


def group_rows(source: Sources, slots: Slots, jacobian: Array, both: Bodies, start: int) -> Rows:
    """The rows of one dimension; their part of J begins at `start`."""
    model, dim, law = source.model, slots.dim, law_of(source.model, slots.dim)
    part = slice(slots.start, slots.stop)
    contacts = jax.tree.map(lambda leaf: leaf[part] if leaf.ndim else leaf, source.contacts)
    diagonal = Bodies(*(leaf[part] for leaf in both))
    active = contacts.dist < contacts.includemargin
    violation = jnp.where(active, contacts.dist - contacts.includemargin, 0)
    ref = reference(contacts.solref, contacts.solimp, violation, model.opt.timestep, refsafe(model))
    friction = contacts.friction[:, : max(dim - 1, 1)].T
    weight, mu = WEIGHTS[law](model, diagonal, ref, friction)
    count, nv = slots.stop - slots.start, model.nv
    vel = matmul(jacobian.reshape(dim * count, nv), source.state.qvel).reshape(dim, count)
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


def contact_rows(source: Sources, start: int) -> tuple[Array, dict[str, Rows]]:
    """All contact rows: their part of J, which begins at row `start`, and the families by name."""
    model = source.model
    plan = contact_plan(model.topology, model.opt.disableflags)
    blocks, families = [jnp.zeros((0, model.nv), source.state.qvel.dtype)], {}
    if plan.groups:
        motion, both = axes(model.topology, source.com), bodies(model, plan, source.contacts)
        for slots in plan.groups:
            jacobian = basis_jacobian(motion, source.contacts, both.mask, slots)
            families[f"contact{slots.dim}"] = group_rows(source, slots, jacobian, both, start)
            blocks.append(jacobian.reshape(-1, model.nv))
            start += blocks[-1].shape[0]
    return jnp.concatenate(blocks), families


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
