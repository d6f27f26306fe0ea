"""Transmissions: the length of an actuator, and the moments with which its force acts on the joints.

    actuator_velocity = moment qvel,     qfrc_actuator = moment^T actuator_force

Each type of transmission (mjtTrn) is a row of the table `TRANSMISSIONS`: a function of the actuators of this type and
of the results on which their lengths may depend: poses, tendons, contacts. The moment is d length / d qpos in tangent
coordinates. Wrenches on free joints and sites have moments, but no length: it is 0. Lengths are in m (rad for hinges
and balls) times the gear.
Source: MuJoCo documentation, "Computation", "Transmission".
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.base.enums import TrnType
from diffsim.kinematics.jacobian import point_jacobian
from diffsim.kinematics.joints import JointGroup, groups
from diffsim.kinematics.tree import body_dof_mask
from diffsim.math import safe
from diffsim.math.rotation import quat_mul, quat_sub
from diffsim.math.vector import cross, dot, matmul, mul_vec, mul_vec_t, scale
from diffsim.types.data import ComFrame, Contacts, Kinematics, Tendons, Transmission
from diffsim.types.model import Model
from diffsim.types.topology import Topology, per_topology
from diffsim.xla.gather import pick, place


class Pose(NamedTuple):
    """The position of the system, and the results on which a transmission may depend."""

    qpos: Array
    kinematics: Kinematics
    com: ComFrame
    tendons: Tendons
    contacts: Contacts | None


# length (n,), moment (n, nv)
Arms = tuple[Array, Array]
# (model, actuators (n,), pose) -> length, moment
Kind = Callable[[Model, np.ndarray, Pose], Arms]


def compute_transmission(
    model: Model,
    qpos: Array,
    kinematics: Kinematics,
    com: ComFrame,
    tendons: Tendons,
    contacts: Contacts | None = None,
) -> Transmission:
    """Transmission: actuator_length (nu,) and actuator_moment (nu, nv), gears included.

    Args:
      model: the model.
      qpos: (nq,).
      kinematics, com, tendons: the results of these stages at qpos.
      contacts: the contacts, for adhesion; None for no adhesion.
    """
    if not model.nu:
        return Transmission(
            actuator_length=jnp.zeros((0,), qpos.dtype), actuator_moment=jnp.zeros((0, model.nv), qpos.dtype)
        )
    pose = Pose(qpos, kinematics, com, tendons, contacts)
    parts, ids = [], []
    for kind, function in TRANSMISSIONS.items():
        actuators = np.flatnonzero(model.topology.actuator_trntype == kind)
        if actuators.size:
            parts.append(function(model, actuators, pose))
            ids.append(actuators)
    length, moment = _in_order(model.nu, ids, parts)
    return Transmission(actuator_length=length, actuator_moment=moment)


def _in_order(count: int, ids: list[np.ndarray], parts: list[Arms]) -> Arms:
    """Lengths (count,) and moments (count, nv) with the rows of several `parts` at the positions `ids`."""
    order = np.concatenate(ids)
    lengths, moments = zip(*parts, strict=True)
    return place(count, order, jnp.concatenate(lengths)), place(count, order, jnp.concatenate(moments))


@per_topology
def _driven(topology: Topology, kind: TrnType) -> tuple[tuple[JointGroup, np.ndarray, np.ndarray], ...]:
    """The actuators with transmission `kind` by the type of their joint.

    Returns:
      For each joint type: the group of its joints, the driven joints as rows of this group, and their actuators.
    """
    drives = topology.actuator_trntype == kind
    target = topology.actuator_trnid[:, 0]
    driven = []
    for group in groups(topology):
        actuators = np.flatnonzero(drives & np.isin(target, group.joints))
        if actuators.size:
            driven.append((group, np.searchsorted(group.joints, target[actuators]), actuators))
    return tuple(driven)


def _on_joint(kind: TrnType, model: Model, actuators: np.ndarray, pose: Pose) -> Arms:
    """A force along a scalar joint, or a wrench on a ball or free joint, in the frame of the child or of the parent."""
    in_parent = kind == TrnType.JOINTINPARENT
    parts, ids = [], []
    for group, rows, driving in _driven(model.topology, kind):
        drive = jax.vmap(lambda q, gear, group=group: group.motion.drive(q, gear, in_parent))
        length, arm = drive(pick(pose.qpos, group.qpos[rows]), pick(model.actuator_gear, driving))
        table = jnp.zeros((len(driving), model.nv), arm.dtype)
        parts.append((length, table.at[np.arange(len(driving))[:, None], group.dofs[rows]].set(arm)))
        ids.append(np.searchsorted(actuators, driving))
    return _in_order(len(actuators), ids, parts)


def _tendon(model: Model, actuators: np.ndarray, pose: Pose) -> Arms:
    """A force along a tendon: its length (m) and moment arms (m), times the gear."""
    tendon = model.topology.actuator_trnid[actuators, 0]
    gear = model.actuator_gear[actuators, 0]
    return pose.tendons.ten_length[tendon] * gear, scale(pose.tendons.ten_J[tendon], gear)


def _project(jacobian: Array, direction: Array) -> Array:
    """(n, nv) Jacobians (n, 3, nv), projected on directions (n, 3)."""
    return mul_vec_t(jacobian, direction)


def _site(model: Model, actuators: np.ndarray, pose: Pose) -> Arms:
    """A wrench in the frame of a site, or, with a reference site, along the displacement of one site from the other."""
    topology = model.topology
    has_reference = topology.actuator_trnid[actuators, 1] >= 0
    parts, ids = [], []
    for rows, function in ((~has_reference, _site_wrench), (has_reference, _site_in_reference)):
        chosen = np.flatnonzero(rows)
        if chosen.size:
            parts.append(function(model, actuators[chosen], pose))
            ids.append(chosen)
    return _in_order(len(actuators), ids, parts)


def _site_jacobian(model: Model, pose: Pose, site: np.ndarray) -> tuple[Array, Array]:
    """Jacobians of the translation and rotation (n, 3, nv) of sites (n,), world axes."""
    return point_jacobian(model, pose.com, pose.kinematics.site_xpos[site], model.topology.site_bodyid[site])


def _site_wrench(model: Model, actuators: np.ndarray, pose: Pose) -> Arms:
    """A force (N) and a torque (N m) in the frame of a site."""
    site = model.topology.actuator_trnid[actuators, 0]
    gear = model.actuator_gear[actuators]
    mat = pose.kinematics.site_xmat[site]
    # a wrench has no length
    return jnp.zeros_like(gear[:, 0]), _by_gear(_site_jacobian(model, pose, site), mat, gear)


def _site_in_reference(model: Model, actuators: np.ndarray, pose: Pose) -> Arms:
    """Displacement (m) and rotation vector (rad) of a site in the frame of a reference site, times the gear."""
    topology = model.topology
    poses = pose.kinematics
    site, reference = topology.actuator_trnid[actuators].T
    gear = model.actuator_gear[actuators]
    mat = poses.site_xmat[reference]
    displacement = mul_vec_t(mat, poses.site_xpos[site] - poses.site_xpos[reference])
    rotation_vector = quat_sub(_site_quat(model, poses, site), _site_quat(model, poses, reference))
    length = dot(displacement, gear[:, :3]) + dot(rotation_vector, gear[:, 3:])

    # a dof that moves both sites does not move one relative to the other
    moves = body_dof_mask(topology)
    shared = moves[topology.site_bodyid[site]] & moves[topology.site_bodyid[reference]]
    here, there = _site_jacobian(model, pose, site), _site_jacobian(model, pose, reference)
    apart = (jnp.where(shared[:, None], 0, a - b) for a, b in zip(here, there, strict=True))
    return length, _by_gear(tuple(apart), mat, gear)


def _by_gear(jacobian: Sequence[Array], mat: Array, gear: Array) -> Array:
    """(n, nv) moments of wrenches: force and torque `gear` (n, 6) in frames `mat` (n, 3, 3).

    `jacobian` is translation and rotation (n, 3, nv) of the points on which they act.
    """
    translation, rotation = jacobian
    return _project(translation, mul_vec(mat, gear[:, :3])) + _project(rotation, mul_vec(mat, gear[:, 3:]))


def _site_quat(model: Model, poses: Kinematics, site: np.ndarray) -> Array:
    """(n, 4) the "orientations" of sites as MuJoCo 3.8.1 computes them: site times body instead of body times site.

    Lengths depend on this order, so diffsim keeps it.
    """
    return quat_mul(pick(model.site_quat, site), pick(poses.xquat, model.topology.site_bodyid[site]))


def _slider_crank(model: Model, actuators: np.ndarray, pose: Pose) -> Arms:
    """A slider on the axis a, connected to a crank by a rod of length r: length = a.v - sqrt((a.v)^2 + r^2 - v.v).

    v is the vector from slider to crank.
    """
    crank, slider = model.topology.actuator_trnid[actuators].T
    rod = model.actuator_cranklength[actuators]
    gear = model.actuator_gear[actuators, 0]
    poses = pose.kinematics
    axis = poses.site_xmat[slider][:, :, 2]
    arm = poses.site_xpos[crank] - poses.site_xpos[slider]

    # where the rod is too short to reach the axis, the root counts as zero
    along = dot(arm, axis)
    root = safe.sqrt(along * along + rod * rod - dot(arm, arm))
    reach = root > 0
    inverse = safe.divide(jnp.ones_like(root), root)
    # derivatives of the length with respect to v and to a
    factor = jnp.where(reach, 1 - along * inverse, 1)
    by_arm = scale(axis, factor) + scale(arm, jnp.where(reach, inverse, 0))
    by_axis = scale(arm, factor)

    base, turning = _site_jacobian(model, pose, slider)
    tip, _ = _site_jacobian(model, pose, crank)
    # the axis turns with the slider's body: d axis = rotation x axis, so by_axis . d axis = rotation . (axis x by_axis)
    moment = _project(tip - base, by_arm) + _project(turning, cross(axis, by_axis))
    return (along - root) * gear, scale(moment, gear)


def _body(model: Model, actuators: np.ndarray, pose: Pose) -> Arms:
    """Adhesion: the moment is minus the mean normal Jacobian of all contacts of a body.

    Contacts in the gap, which exert no constraint force, count too.
    """
    topology = model.topology
    contacts = pose.contacts
    # adhesion has no length
    length = jnp.zeros((len(actuators),), pose.qpos.dtype)
    if contacts is None or not contacts.dist.size:
        return length, jnp.zeros((len(actuators), model.nv), pose.qpos.dtype)
    near = (contacts.dist < contacts.margin) & jnp.all(contacts.geom >= 0, axis=1)
    body = jnp.asarray(topology.geom_bodyid)[jnp.maximum(contacts.geom, 0)]
    target = topology.actuator_trnid[actuators, 0][:, None, None]
    touches = jnp.any(body[None] == target, axis=2) & near[None]
    first, second = (point_jacobian(model, pose.com, contacts.pos, body[:, side])[0] for side in (0, 1))
    normal = _project(second - first, contacts.frame[:, 0])
    weight = touches.astype(pose.qpos.dtype)
    count = jnp.maximum(jnp.sum(weight, axis=1, keepdims=True), 1)
    return length, -matmul(weight / count, jnp.where(near[:, None], normal, 0))


TRANSMISSIONS: dict[TrnType, Kind] = {
    TrnType.JOINT: partial(_on_joint, TrnType.JOINT),
    TrnType.JOINTINPARENT: partial(_on_joint, TrnType.JOINTINPARENT),
    TrnType.SLIDERCRANK: _slider_crank,
    TrnType.TENDON: _tendon,
    TrnType.SITE: _site,
    TrnType.BODY: _body,
}
UNSUPPORTED: dict[TrnType, str] = {
    TrnType.UNDEFINED: "an actuator needs a transmission",
}
