"""Connect and weld: two bodies share a point, or a pose.

Residuals: anchor1 - anchor2 (3 rows) and, for a weld, torquescale * vec(q2^-1 q1 relpose) (3 more). The impedance is
measured with the norm of the whole residual. The rows are component-major: x of all, y of all, ... Their aref contains
the velocity-product term Jdot v. Source: MuJoCo XML reference, "equality/connect", "equality/weld".
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.constraint.rows import Draft, Sources
from diffsim.enums import DisableBit, EqType, ObjType
from diffsim.math import safe
from diffsim.math.pick import pick
from diffsim.math.rotation import quat_conj, quat_mul
from diffsim.math.vector import cross, mul_vec, scale
from diffsim.physics.jacobian import Axes, about, along, axes, body_mask, rows_of
from diffsim.physics.tree import sum_chain
from diffsim.types.constraints import Law
from diffsim.types.topology import Topology, per_topology

Array = jax.Array


class Joined(NamedTuple):
    """Equalities of one kind: ids, bodies (n, 2), sites (n, 2) (0 where bodies are meant), and which use sites."""

    id: np.ndarray
    body: np.ndarray
    site: np.ndarray
    uses_site: np.ndarray


@per_topology
def joined(topology: Topology, kind: EqType) -> Joined:
    """The equalities of a kind, and the bodies they join."""
    ids = np.flatnonzero(topology.eq_type == kind)
    objects = np.stack([topology.eq_obj1id[ids], topology.eq_obj2id[ids]], axis=1)
    uses_site = topology.eq_objtype[ids] == ObjType.SITE
    site = np.where(uses_site[:, None], objects, 0)
    of_site = topology.site_bodyid if topology.nsite else np.zeros(1, np.int32)
    return Joined(ids, np.where(uses_site[:, None], of_site[site], objects), site, uses_site)


class Ends(NamedTuple):
    """World anchors (n, 2, 3) of the two bodies."""

    plan: Joined
    anchor: Array


def _ends(source: Sources, kind: EqType) -> Ends:
    """Anchors from the bodies' frames, or the sites' positions."""
    model, plan, poses = source.model, joined(source.model.topology, kind), source.kinematics
    data = model.eq_data[plan.id]
    # a weld stores the anchor of body 2 first
    local = data[:, :6].reshape(-1, 2, 3)
    local = local[:, ::-1] if kind == EqType.WELD else local
    anchor = poses.xpos[plan.body] + mul_vec(poses.xmat[plan.body], local)
    if plan.uses_site.any():
        anchor = jnp.where(jnp.asarray(plan.uses_site)[:, None, None], poses.site_xpos[plan.site], anchor)
    return Ends(plan, anchor)


def anchors(source: Sources) -> Array:
    """(nanchor, 2, 3) world anchors of all connect, then all weld equalities; empty where equalities are off."""
    off = source.model.opt.disabled(DisableBit.EQUALITY) or source.model.opt.disabled(DisableBit.CONSTRAINT)
    none = jnp.zeros((0, 2, 3), source.state.qvel.dtype)
    if off:
        return none
    found = [kind for kind in (EqType.CONNECT, EqType.WELD) if len(joined(source.model.topology, kind).id)]
    return jnp.concatenate([none, *[_ends(source, kind).anchor for kind in found]])


def _difference(source: Sources, motion: Axes, plan: Joined, wrench1: Array, wrench2: Array) -> Array:
    """(3 n, nv) rows of body 1 minus rows of body 2, from wrenches (3, n, 6)."""
    topology, dtype = source.model.topology, wrench1.dtype
    rows = [rows_of(motion, wrench.reshape(-1, 6)).reshape(3, -1, source.model.nv) for wrench in (wrench1, wrench2)]
    masks = [body_mask(topology, plan.body[:, i], dtype)[None] for i in range(2)]
    return (rows[0] * masks[0] - rows[1] * masks[1]).reshape(-1, source.model.nv)


def _translation(source: Sources, motion: Axes, ends: Ends) -> Array:
    """Jacobian of anchor1 - anchor2, component-major."""
    count = len(ends.plan.id)
    unit = jnp.eye(3, dtype=ends.anchor.dtype)[:, None, :]
    direction = jnp.broadcast_to(unit, (3, count, 3))
    point = [jnp.broadcast_to(ends.anchor[None, :, i], direction.shape) for i in range(2)]
    return _difference(
        source, motion, ends.plan, along(motion, point[0], direction), along(motion, point[1], direction)
    )


class BiasMotion(NamedTuple):
    """Angular velocity, angular and linear (of the anchor) acceleration at qacc = 0; each (n, 2, 3)."""

    omega: Array
    angular: Array
    linear: Array


def _bias_motion(source: Sources, ends: Ends) -> BiasMotion:
    """Accelerations of the anchors that come from velocity alone: Jdot v of each body."""
    topology, rates = source.model.topology, source.velocities
    body = ends.plan.body
    spatial = sum_chain(topology, scale(rates.cdof_dot, source.state.qvel))[body]
    cvel = rates.cvel[body]
    arm = ends.anchor - pick(source.com.subtree_com, topology.body_rootid[body])
    omega, angular = cvel[..., :3], spatial[..., :3]
    point_velocity = cvel[..., 3:] + cross(omega, arm)
    linear = spatial[..., 3:] + cross(angular, arm) + cross(omega, point_velocity)
    return BiasMotion(omega, angular, linear)


def _draft(
    source: Sources, plan: Joined, residual: Array, jacobian: Array, diagonal: Array, jacobian_dot_v: Array
) -> Draft:
    """Component-major rows (dim * n) from a residual (n, dim)."""
    model, dim = source.model, residual.shape[1]
    pos = residual.T.reshape(-1)
    return Draft(
        law=Law.QUADRATIC,
        pos=pos,
        margin=jnp.zeros_like(pos),
        active=jnp.tile(source.inputs.eq_active[plan.id], dim),
        diagonal=diagonal,
        solref=jnp.tile(model.eq_solref[plan.id], (dim, 1)),
        solimp=jnp.tile(model.eq_solimp[plan.id], (dim, 1)),
        jacobian=jacobian,
        size=jnp.tile(safe.norm(residual), dim),
        jacobian_dot_v=jacobian_dot_v.T.reshape(-1),
    )


def connect(source: Sources) -> Draft | None:
    """Two bodies share a point (a ball joint outside the tree)."""
    ends = _ends(source, EqType.CONNECT) if len(joined(source.model.topology, EqType.CONNECT).id) else None
    if ends is None:
        return None
    weight = source.model.body_invweight0[ends.plan.body, 0]
    motion = axes(source.model.topology, source.com)
    bias = _bias_motion(source, ends)
    return _draft(
        source,
        ends.plan,
        ends.anchor[:, 0] - ends.anchor[:, 1],
        _translation(source, motion, ends),
        jnp.tile(weight[:, 0] + weight[:, 1], 3),
        bias.linear[:, 0] - bias.linear[:, 1],
    )


class Turn(NamedTuple):
    """q1 relpose, and q2: the two frames that a weld makes equal, (n, 4)."""

    first: Array
    second: Array


def _turn(source: Sources, plan: Joined) -> Turn:
    model, quat = source.model, source.kinematics.xquat[plan.body]
    first, second = quat_mul(quat[:, 0], model.eq_data[plan.id, 6:10]), quat[:, 1]
    if not plan.uses_site.any():
        return Turn(first, second)
    of_site = quat_mul(quat, model.site_quat[plan.site])
    choice = jnp.asarray(plan.uses_site)[:, None]
    return Turn(jnp.where(choice, of_site[:, 0], first), jnp.where(choice, of_site[:, 1], second))


def _pure(v: Array) -> Array:
    """The quaternion (0, v)."""
    return jnp.concatenate([jnp.zeros_like(v[..., :1]), v], axis=-1)


def _sandwich(left: Array, v: Array, right: Array) -> Array:
    """Vector part of left (0, v) right."""
    return quat_mul(quat_mul(left, _pure(v)), right)[..., 1:]


def weld(source: Sources) -> Draft | None:
    """Two bodies keep their relative pose."""
    ends = _ends(source, EqType.WELD) if len(joined(source.model.topology, EqType.WELD).id) else None
    if ends is None:
        return None
    model, plan = source.model, ends.plan
    motion, bias, turn = axes(model.topology, source.com), _bias_motion(source, ends), _turn(source, plan)
    torquescale, inverse = model.eq_data[plan.id, 10], quat_conj(turn.second)
    rotation = scale(quat_mul(inverse, turn.first)[:, 1:], torquescale)
    jacobian = jnp.concatenate(
        [_translation(source, motion, ends), _rotation_jacobian(source, motion, plan, turn, torquescale)]
    )
    weight = model.body_invweight0[plan.body]
    weight = (weight[:, 0] + weight[:, 1]).T
    swing = scale(_rotation_dot_v(bias, turn), torquescale)
    return _draft(
        source,
        plan,
        jnp.concatenate([ends.anchor[:, 0] - ends.anchor[:, 1], rotation], axis=1),
        jacobian,
        jnp.repeat(weight, 3, axis=0).reshape(-1),
        jnp.concatenate([bias.linear[:, 0] - bias.linear[:, 1], swing], axis=1),
    )


def _rotation_jacobian(source: Sources, motion: Axes, plan: Joined, turn: Turn, torquescale: Array) -> Array:
    """1/2 torquescale vec(q2^-1 (0, omega1 - omega2) q1 relpose), component-major."""
    inverse = quat_conj(turn.second)
    unit = np.eye(3)
    columns = [
        0.5 * _sandwich(inverse, jnp.broadcast_to(jnp.asarray(unit[k], inverse.dtype), (len(plan.id), 3)), turn.first)
        for k in range(3)
    ]
    # (3 residual components, n, 3 axes)
    direction = jnp.swapaxes(jnp.stack(columns, axis=-1), 0, 1) * torquescale[None, :, None]
    wrench = about(direction)
    return _difference(source, motion, plan, wrench, wrench)


def _rotation_dot_v(bias: BiasMotion, turn: Turn) -> Array:
    """Time derivative of the rotation Jacobian, times velocity, for torquescale 1: the product rule on q2^-1 w q1."""
    inverse, relative = quat_conj(turn.second), bias.omega[:, 0] - bias.omega[:, 1]
    first_rate = 0.5 * quat_mul(_pure(bias.omega[:, 0]), turn.first)
    second_rate = quat_conj(0.5 * quat_mul(_pure(bias.omega[:, 1]), turn.second))
    terms = (
        _sandwich(second_rate, relative, turn.first)
        + _sandwich(inverse, bias.angular[:, 0] - bias.angular[:, 1], turn.first)
        + _sandwich(inverse, relative, first_rate)
    )
    return 0.5 * terms
