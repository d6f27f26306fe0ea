"""Equalities: connect, weld, and couplings of joints or tendons. Each type has a function of the ids (n,) of its kind.

Connect: two bodies share a point. Weld: they keep a relative pose. Residuals are anchor1 - anchor2 (3 rows) and, for a
weld, torquescale * vec(q2^-1 q1 relpose) (3 more). The impedance depends on the norm of the whole residual. Rows are
component-major: x of all equalities, y of all, ... Their aref includes -Jdot v, the term quadratic in velocities.

Coupling: y1 - y1_0 = polynomial(y2 - y2_0), one row each. The polynomial is quartic (eq_data[0:5]). Without a second
object y1 is held at its reference plus eq_data[0].
Source: MuJoCo XML reference, "equality/connect", "equality/weld", "equality/joint".
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.base.enums import ObjType
from diffsim.constraint.rows import RawRows, Sources, equality_rows
from diffsim.kinematics.jacobian import MotionAxes, motion_axes, moving_dofs, wrench_about, wrench_along, wrench_rows
from diffsim.kinematics.tree import sum_chain
from diffsim.math import safe
from diffsim.math.rotation import quat_conj, quat_mul
from diffsim.math.vector import cross, mul_vec, scale
from diffsim.types.data import Kinematics, Tendons
from diffsim.types.model import Model
from diffsim.types.topology import Topology
from diffsim.xla.gather import pick


class BodyPairs(NamedTuple):
    """Equalities (n,) that each hold two bodies together, given by bodies or by sites.

    Attributes:
      id: (n,) which equalities.
      body: (n, 2).
      site: (n, 2), 0 where the equality names bodies.
      uses_site: (n,) whether it names sites.
    """

    id: np.ndarray
    body: np.ndarray
    site: np.ndarray
    uses_site: np.ndarray


def body_pairs(topology: Topology, ids: np.ndarray) -> BodyPairs:
    """The bodies that some equalities hold together."""
    objects = np.stack([topology.eq_obj1id[ids], topology.eq_obj2id[ids]], axis=1)
    uses_site = topology.eq_objtype[ids] == ObjType.SITE
    site = np.where(uses_site[:, None], objects, 0)
    of_site = topology.site_bodyid if topology.nsite else np.zeros(1, np.int32)
    return BodyPairs(ids, np.where(uses_site[:, None], of_site[site], objects), site, uses_site)


class Ends(NamedTuple):
    """World anchors (n, 2, 3), in m, on the two bodies of each equality."""

    pairs: BodyPairs
    anchor: Array


def _ends(source: Sources, ids: np.ndarray, local: Array) -> Ends:
    """Anchors of bodies from `local` (n, 2, 3), positions in the frames of the bodies; or the positions of sites."""
    pairs = body_pairs(source.model.topology, ids)
    poses = source.kinematics
    anchor = poses.xpos[pairs.body] + mul_vec(poses.xmat[pairs.body], local)
    if pairs.uses_site.any():
        anchor = jnp.where(jnp.asarray(pairs.uses_site)[:, None, None], poses.site_xpos[pairs.site], anchor)
    return Ends(pairs, anchor)


def _difference(source: Sources, axes: MotionAxes, pairs: BodyPairs, wrench1: Array, wrench2: Array) -> Array:
    """(3 n, nv) rows of body 1 minus rows of body 2, from unit wrenches (3, n, 6) on the bodies."""
    topology = source.model.topology
    dtype = wrench1.dtype
    rows = [wrench_rows(axes, wrench.reshape(-1, 6)).reshape(3, -1, source.model.nv) for wrench in (wrench1, wrench2)]
    masks = [moving_dofs(topology, pairs.body[:, i], dtype)[None] for i in range(2)]
    return (rows[0] * masks[0] - rows[1] * masks[1]).reshape(-1, source.model.nv)


def _translation(source: Sources, axes: MotionAxes, ends: Ends) -> Array:
    """(3 n, nv) Jacobian of anchor1 - anchor2, component-major."""
    count = len(ends.pairs.id)
    unit = jnp.eye(3, dtype=ends.anchor.dtype)[:, None, :]
    direction = jnp.broadcast_to(unit, (3, count, 3))
    point1, point2 = (jnp.broadcast_to(ends.anchor[None, :, i], direction.shape) for i in range(2))
    wrench1, wrench2 = wrench_along(axes, point1, direction), wrench_along(axes, point2, direction)
    return _difference(source, axes, ends.pairs, wrench1, wrench2)


class BiasMotion(NamedTuple):
    """Angular velocity, angular and linear (of the anchor) acceleration at qacc = 0; each (n, 2, 3)."""

    omega: Array
    angular: Array
    linear: Array


def _bias_motion(source: Sources, ends: Ends) -> BiasMotion:
    """Accelerations of the anchors that come from velocity alone: Jdot v of each body."""
    # cacc at qacc = 0 and without gravity: the velocity products of recursive Newton-Euler
    topology = source.model.topology
    velocities = source.velocities
    body = ends.pairs.body
    cacc = sum_chain(topology, (velocities.cdof_dot, source.state.qvel))[body]
    cvel = velocities.cvel[body]
    arm = ends.anchor - pick(source.com.subtree_com, topology.body_rootid[body])
    omega, angular = cvel[..., :3], cacc[..., :3]
    # carried from the centre of mass of the tree to the anchor; spatial to classical acceleration adds omega x v
    point_velocity = cvel[..., 3:] + cross(omega, arm)
    linear = cacc[..., 3:] + cross(angular, arm) + cross(omega, point_velocity)
    return BiasMotion(omega, angular, linear)


def _point_rows(
    source: Sources, ends: Ends, *, residual: Array, jacobian: Array, weight: Array, jacobian_dot_v: Array
) -> RawRows:
    """Rows of equalities between points, component-major.

    Args:
      source, ends: where the bodies are.
      residual: (n, dim), m or rad.
      jacobian: (dim * n, nv).
      weight: (dim * n,) inverse weights, the approximate diagonal of J M^-1 J^T.
      jacobian_dot_v: (n, dim), m/s^2 or rad/s^2.
    """
    dim = residual.shape[1]
    raw = equality_rows(source, np.tile(ends.pairs.id, dim), residual.T.reshape(-1), weight, jacobian)
    return raw._replace(
        size=jnp.tile(safe.norm(residual), dim),
        jacobian_dot_v=jacobian_dot_v.T.reshape(-1),
        anchor=ends.anchor,
    )


def connect(source: Sources, ids: np.ndarray) -> RawRows:
    """Two bodies share a point (a ball joint outside the tree)."""
    ends = _ends(source, ids, source.model.eq_data[ids, :6].reshape(-1, 2, 3))
    weight = source.model.body_invweight0[ends.pairs.body, 0]
    axes = motion_axes(source.model.topology, source.com)
    bias = _bias_motion(source, ends)
    return _point_rows(
        source,
        ends,
        residual=ends.anchor[:, 0] - ends.anchor[:, 1],
        jacobian=_translation(source, axes, ends),
        weight=jnp.tile(weight[:, 0] + weight[:, 1], 3),
        jacobian_dot_v=bias.linear[:, 0] - bias.linear[:, 1],
    )


class Frames(NamedTuple):
    """The orientations of the two frames that a weld makes equal, (n, 4): q1 relpose, and q2."""

    first: Array
    second: Array


def _frames(model: Model, kinematics: Kinematics, pairs: BodyPairs) -> Frames:
    """Frames of two bodies, the first turned by `relpose` of eq_data; or frames of two sites."""
    quat = kinematics.xquat[pairs.body]
    first = quat_mul(quat[:, 0], model.eq_data[pairs.id, 6:10])
    second = quat[:, 1]
    if not pairs.uses_site.any():
        return Frames(first, second)
    of_site = quat_mul(quat, model.site_quat[pairs.site])
    choice = jnp.asarray(pairs.uses_site)[:, None]
    return Frames(jnp.where(choice, of_site[:, 0], first), jnp.where(choice, of_site[:, 1], second))


def _pure(v: Array) -> Array:
    """The quaternion (0, v)."""
    return jnp.concatenate([jnp.zeros_like(v[..., :1]), v], axis=-1)


def _sandwich(left: Array, v: Array, right: Array) -> Array:
    """(..., 3) vector part of the product of quaternions left (0, v) right."""
    return quat_mul(quat_mul(left, _pure(v)), right)[..., 1:]


def weld(source: Sources, ids: np.ndarray) -> RawRows:
    """Two bodies keep their relative pose."""
    # eq_data of a weld holds the anchor of body 2 first
    ends = _ends(source, ids, source.model.eq_data[ids, :6].reshape(-1, 2, 3)[:, ::-1])
    model, pairs = source.model, ends.pairs
    axes = motion_axes(model.topology, source.com)
    bias = _bias_motion(source, ends)
    frames = _frames(model, source.kinematics, pairs)
    torquescale = model.eq_data[pairs.id, 10]
    inverse = quat_conj(frames.second)
    rotation = scale(quat_mul(inverse, frames.first)[:, 1:], torquescale)
    jacobian = jnp.concatenate(
        [_translation(source, axes, ends), _rotation_jacobian(source, axes, pairs, frames, torquescale)]
    )
    invweight = model.body_invweight0[pairs.body]
    # (2, n): inverse weights of translation and of rotation
    weight = (invweight[:, 0] + invweight[:, 1]).T
    rotation_dot_v = scale(_rotation_dot_v(bias, frames), torquescale)
    return _point_rows(
        source,
        ends,
        residual=jnp.concatenate([ends.anchor[:, 0] - ends.anchor[:, 1], rotation], axis=1),
        jacobian=jacobian,
        weight=jnp.repeat(weight, 3, axis=0).reshape(-1),
        jacobian_dot_v=jnp.concatenate([bias.linear[:, 0] - bias.linear[:, 1], rotation_dot_v], axis=1),
    )


def _rotation_jacobian(
    source: Sources, axes: MotionAxes, pairs: BodyPairs, frames: Frames, torquescale: Array
) -> Array:
    """(3 n, nv) Jacobian of the rotation residual, component-major."""
    wrench = wrench_about(_rotation_axes(frames, torquescale))
    return _difference(source, axes, pairs, wrench, wrench)


def _rotation_axes(frames: Frames, torquescale: Array) -> Array:
    """(3, n, 3) the derivatives of the rotation residuals of n welds, component by component, by omega1 - omega2.

    The residual changes by 1/2 torquescale vec(q2^-1 (0, omega1 - omega2) q1 relpose), which is linear in omega.
    """
    inverse = quat_conj(frames.second)
    unit = np.eye(3)
    axis = [jnp.broadcast_to(jnp.asarray(unit[k], inverse.dtype), (len(inverse), 3)) for k in range(3)]
    columns = [0.5 * _sandwich(inverse, axis[k], frames.first) for k in range(3)]
    # (3 components of the residual, n, 3 axes of omega)
    return jnp.swapaxes(jnp.stack(columns, axis=-1), 0, 1) * torquescale[None, :, None]


def weld_torques(model: Model, kinematics: Kinematics, ids: np.ndarray, multipliers: Array) -> Array:
    """Torque (n, 3), N m, of some welds on their first bodies, and with the opposite sign on their second bodies.

    `multipliers` (n, 3) are the forces of their rotation rows. MuJoCo reports these torques since 3.14; earlier
    versions report the multipliers.
    """
    if not model.opt.follows("weld_torques"):
        return multipliers
    axes = _rotation_axes(_frames(model, kinematics, body_pairs(model.topology, ids)), model.eq_data[ids, 10])
    return sum((scale(axes[k], multipliers[:, k]) for k in range(3)), jnp.zeros_like(multipliers))


def _rotation_dot_v(bias: BiasMotion, frames: Frames) -> Array:
    """(n, 3) Jdot v of the rotation residual for torquescale 1: the product rule on 1/2 vec(q2^-1 (0, omega) q1)."""
    inverse = quat_conj(frames.second)
    relative = bias.omega[:, 0] - bias.omega[:, 1]
    first_rate = 0.5 * quat_mul(_pure(bias.omega[:, 0]), frames.first)
    second_rate = quat_conj(0.5 * quat_mul(_pure(bias.omega[:, 1]), frames.second))
    terms = (
        _sandwich(second_rate, relative, frames.first)
        + _sandwich(inverse, bias.angular[:, 0] - bias.angular[:, 1], frames.first)
        + _sandwich(inverse, relative, first_rate)
    )
    return 0.5 * terms


class Coupling(NamedTuple):
    """Equalities (n,) of one type, by id, and the joints or tendons that they couple.

    Without a second object `second` repeats the first.
    """

    id: np.ndarray
    first: np.ndarray
    second: np.ndarray
    has_second: np.ndarray


def coupling(topology: Topology, ids: np.ndarray) -> Coupling:
    """The pairs of joints or tendons that some equalities couple."""
    first, second = topology.eq_obj1id[ids], topology.eq_obj2id[ids]
    return Coupling(ids, first, np.where(second < 0, first, second), second >= 0)


def _couple(source: Sources, pairs: Coupling, value: Array, jacobian: Array, weight: Array) -> RawRows:
    """Rows y1 - polynomial(y2).

    Args:
      source: the model and its options.
      pairs: what is coupled.
      value: (k,) y of all joints or tendons, relative to their references, m or rad.
      jacobian: (k, nv) its gradient.
      weight: (k,) inverse weights.
    """
    polynomial, slope = _polynomials(source.model, pairs, value)
    weights = weight[pairs.first] + jnp.where(jnp.asarray(pairs.has_second), weight[pairs.second], 0)
    rows = jacobian[pairs.first] - scale(jacobian[pairs.second], slope)
    return equality_rows(source, pairs.id, value[pairs.first] - polynomial, weights, rows)


def _polynomials(model: Model, pairs: Coupling, value: Array) -> tuple[Array, Array]:
    """polynomial(y2) and its slope, (n,) each, for values y (k,) of all joints or tendons; see `_couple`."""
    data = model.eq_data[pairs.id]
    other = jnp.where(jnp.asarray(pairs.has_second), value[pairs.second], 0)
    c0, c1, c2, c3, c4 = (data[:, i] for i in range(5))
    polynomial = c0 + other * (c1 + other * (c2 + other * (c3 + other * c4)))
    slope = c1 + other * (2 * c2 + other * (3 * c3 + other * (4 * c4)))
    return polynomial, jnp.where(jnp.asarray(pairs.has_second), slope, 0)


def joint_equality(source: Sources, ids: np.ndarray) -> RawRows:
    """Couplings of hinge and slide joints."""
    model = source.model
    topology = source.model.topology
    value = pick(source.state.qpos - model.qpos0, topology.jnt_qposadr)
    identity = jnp.asarray(np.eye(topology.nv)[topology.jnt_dofadr], value.dtype)
    return _couple(source, coupling(topology, ids), value, identity, model.dof_invweight0[topology.jnt_dofadr])


def tendon_equality(source: Sources, ids: np.ndarray) -> RawRows:
    """Couplings of tendon lengths."""
    model, tendons = source.model, source.tendons
    value = tendons.ten_length - model.tendon_length0
    return _couple(source, coupling(model.topology, ids), value, tendons.ten_J, model.tendon_invweight0)


def coupled_tensions(model: Model, tendons: Tendons, ids: np.ndarray, force: Array) -> Array:
    """(ntendon,) N, the pull of some couplings on their tendons, given the forces (n,) of their rows."""
    pairs = coupling(model.topology, ids)
    _, slope = _polynomials(model, pairs, tendons.ten_length - model.tendon_length0)
    return jnp.zeros_like(tendons.ten_length).at[pairs.first].add(force).at[pairs.second].add(-slope * force)
