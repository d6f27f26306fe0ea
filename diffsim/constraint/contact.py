"""Contacts: the basis rows (normal, tangents, torsion, rolling) of every slot, for pyramidal and elliptic cones.

Slots are grouped by contact dimension (1, 3, 4, 6). J is the velocity of body 2 relative to body 1 in the contact
frame. The weight of the normal row follows from the inverse weights of the two bodies, and the weights of the friction
rows from it (rows.py). Source: MuJoCo documentation, "Computation", friction cones.

Before bodies touch, a contact has no force and no derivative, and an optimizer that has to make a contact learns
nothing. With contact_reach, and for derivatives only, a slot at distance 0 < dist < reach has one more row, along its
normal and without friction. It is the same contact, but its surface lies `reach` further out, and its impedance rises
far more slowly, over RISE reaches: with r = reach - dist, d = 2 dmax (r / (RISE reach))^2, 1% at touch. Stiffness K and
damping B are unchanged, so that bodies of mass m push each other by about m d (K d r - B v). This is weak compared with
the forces of the motion, as it must be, since the motion does not contain it. (With a dmax of 1%, K and B would be 10^4
and 10^2 times as large, and edges of pyramids are stiffer by 1 / mu^2: derivatives would then grow exponentially.) The
forward pass never contains these rows (solver/solve.py). Source: Paulus et al. 2025, "Hard contacts with soft
gradients" (contacts from distance).
"""

import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.base.enums import Cone
from diffsim.base.errors import UnsupportedError
from diffsim.constraint import flex_rows
from diffsim.constraint.rows import RawRows, Sources, contact_rows, slots_between
from diffsim.kinematics.jacobian import (
    MotionAxes,
    motion_axes,
    wrench_about,
    wrench_along,
    wrench_columns,
    wrench_pairs,
)
from diffsim.kinematics.tree import articulated_blocks, body_dof_mask, chain_mask, last_dof
from diffsim.math.linalg import BlockColumns, columns_of
from diffsim.math.stencil_rows import PairRows, Segment
from diffsim.math.vector import cross, dot, mul_vec
from diffsim.types import Model
from diffsim.types.data import Contacts
from diffsim.xla.barriers import stored
from diffsim.xla.gather import rows_at

# contact dimensions (condim): a normal row alone; with sliding, torsional and rolling friction
FRICTIONLESS = (1,)
WITH_FRICTION = (3, 4, 6)


def slot_body_ids(model: Model, contacts: Contacts) -> tuple[Array, Array]:
    """Body ids (ncon,) on both sides of each slot; the world where a slot is unused."""
    geom = np.append(0, model.topology.geom_bodyid)
    table = jnp.asarray(geom, contacts.geom.dtype)
    return rows_at(table, contacts.geom[:, 0] + 1), rows_at(table, contacts.geom[:, 1] + 1)


def slot_mask(model: Model, bodies: tuple[Array | np.ndarray, Array | np.ndarray]) -> BlockColumns:
    """(n, nv) for each slot: 1 for dofs that move body 2 but not body 1, -1 for the reverse, else 0."""
    topology = model.topology
    dtype = model.body_invweight0.dtype
    blocks = articulated_blocks(topology)
    if isinstance(bodies[0], np.ndarray):
        chain = body_dof_mask(topology).astype(np.int8)
        return columns_of(blocks, jnp.asarray(chain[bodies[1]] - chain[bodies[0]], dtype))
    ends = [rows_at(jnp.asarray(last_dof(topology)), body) for body in bodies]

    def of_size(index: np.ndarray) -> Array:
        first_moves, second_moves = (chain_mask(topology, end, index).astype(dtype) for end in ends)
        return second_moves - first_moves

    return BlockColumns(blocks, tuple(of_size(index) for index in blocks.index))


def frictionless(source: Sources) -> list[RawRows]:
    """Contacts that only push."""
    return _contact_rows(source, FRICTIONLESS) + flex_rows.contacts(source, FRICTIONLESS)


def pyramidal(source: Sources) -> list[RawRows]:
    """Contacts with friction under pyramidal cones."""
    if source.model.opt.cone == Cone.ELLIPTIC:
        return []
    return _contact_rows(source, WITH_FRICTION) + flex_rows.contacts(source, WITH_FRICTION)


def elliptic(source: Sources) -> list[RawRows]:
    """Contacts with friction under elliptic cones."""
    if source.model.opt.cone != Cone.ELLIPTIC:
        return []
    return _contact_rows(source, WITH_FRICTION) + flex_rows.contacts(source, WITH_FRICTION)


def _contact_rows(source: Sources, dimensions: tuple[int, ...]) -> list[RawRows]:
    """One group of rows for each of these contact dimensions that some slot has."""
    model = source.model
    groups = [run for run in source.slots.geoms if run.dim in dimensions]
    if not groups:
        return []
    axes = motion_axes(model.topology, source.com)
    weight = model.body_invweight0[:, 0]
    known = source.slots.body
    bodies = slot_body_ids(model, source.contacts) if known is None else tuple(known.T)
    drift = _surface_drift(source) if model.topology.has("geom_surfacevel") else None
    rows = []
    for slots in groups:
        part = slice(slots.start, slots.stop)
        buffer = slots_between(source.contacts, slots.start, slots.stop)
        first, second = (body[part] for body in bodies)
        jacobian = _basis_jacobian(model, axes, buffer, (first, second), slots.dim)
        raw = contact_rows(buffer, slots.dim, slots.start, jacobian, rows_at(weight, first) + rows_at(weight, second))
        rows.append(raw if drift is None else raw._replace(drift=drift[: slots.dim, part]))
    return rows


def _surface_drift(source: Sources) -> Array:
    """(6, ncon) surface velocity of geom 2 relative to geom 1, along the rows of each contact, m/s and rad/s.

    The surface of a conveyor belt moves although its geom does not. Its velocity field, in the frame of the geom, is a
    constant plus a rotation about the origin. A contact sees its tangential part, and its spin about the normal
    (MuJoCo 3.11, geom/surfacevel).
    """
    model, contacts, poses = source.model, source.contacts, source.kinematics
    drift = jnp.zeros_like(contacts.pos)
    for end, sign in ((0, -1), (1, 1)):
        geom = jnp.maximum(contacts.geom[:, end], 0)
        turn, belt = poses.geom_xmat[geom], model.geom_surfacevel[geom]
        linear = mul_vec(turn, belt[:, :3])
        spin = mul_vec(turn, belt[:, 3:])
        point = linear + cross(spin, contacts.pos - poses.geom_xpos[geom])
        # rows 1 and 2 slide along the tangents, row 3 spins about the normal
        along_rows = jnp.stack([dot(contacts.frame[:, k], v) for k, v in ((1, point), (2, point), (0, spin))], axis=1)
        drift = drift + sign * jnp.where(contacts.geom[:, end, None] >= 0, along_rows, 0)
    none = jnp.zeros_like(contacts.dist)
    return jnp.stack([none, *drift.T, none, none])


def _basis_jacobian(
    model: Model, axes: MotionAxes, contacts: Contacts, bodies: tuple[Array | np.ndarray, Array | np.ndarray], dim: int
) -> BlockColumns | Segment:
    """(dim * n, nv) rows of the contacts of a group: translations along the axes of the frame, then rotations.

    A row is the power of a unit wrench at the contact: it acts on body 2, and its opposite on body 1.
    """
    pos = contacts.pos
    frame = contacts.frame
    blocks = articulated_blocks(model.topology)
    wrenches = [wrench_along(axes, pos, frame[:, i]) for i in range(min(dim, 3))]
    wrenches += [wrench_about(frame[:, i]) for i in range(dim - 3)]
    if len(blocks.table) > 1:
        rows = Segment(None, wrench_pairs(model.topology, blocks, axes, jnp.stack(wrenches), bodies))
    else:
        columns = wrench_columns(blocks, axes, jnp.concatenate(wrenches))
        mask = slot_mask(model, bodies)
        # in the shape of the product: it is masked before it is stored
        wide = [jnp.broadcast_to(x[:, None], (len(x), dim, *x.shape[1:])) for x in mask.parts]
        parts = [part * x.reshape(part.shape) for part, x in zip(columns.parts, wide, strict=True)]
        rows = BlockColumns(blocks, tuple(parts))
    return stored(rows)


# contacts within reach are weak: their impedance would rise to dmax over this many reaches. A contact that just touches
# is one reach deep, where the impedance is (1 / RISE)^2 / MIDPOINT of dmax, 1%
RISE = 14.0
# midpoint and power of that rise (the last two of solimp): a parabola, so that weight and slope begin at zero
MIDPOINT = 0.5
POWER = 2.0


def rows_within_reach(contacts: RawRows, reach: float) -> RawRows:
    """The normal rows of contacts that do not act and are nearer than `reach` (m), as weak contacts without friction.

    Raises:
      UnsupportedError: contacts of flexes.
    """
    jacobian = contacts.jacobian
    count = contacts.pos.size
    if isinstance(jacobian, BlockColumns):
        normals = BlockColumns(jacobian.blocks, tuple(part[:, :count] for part in jacobian.parts))
    elif isinstance(jacobian, Segment) and isinstance(jacobian.stencil, PairRows):
        normals = Segment(None, jacobian.stencil.leading(1))
    else:
        reason = "contact_reach does not support contacts of flexes; set it to 0"
        raise UnsupportedError.of("<option contact_reach>", reason)
    # pushed as if the surface began `reach` outside of the margin, where the impedance is still near zero
    surface = contacts.margin + reach
    dmax = contacts.solimp[:, 1]
    width, midpoint, power = (jnp.full_like(dmax, value) for value in (RISE * reach, MIDPOINT, POWER))
    return RawRows(
        pos=contacts.pos,
        margin=surface,
        active=~contacts.active & (contacts.pos < surface),
        diagonal=contacts.diagonal,
        solref=contacts.solref,
        solimp=jnp.stack([jnp.zeros_like(dmax), dmax, width, midpoint, power], axis=1),
        # normals come first
        jacobian=normals,
    )
