"""Sensors of frames, and instruments mounted at a site: where objects are, how they move, what an IMU measures.

Objects are bodies, geoms, sites and cameras; `body` means the inertial frame, `xbody` the body's own frame. Results are
in world axes. With a reference object they are in its axes, and velocities are relative to an observer who turns with
it. Accelerations are always relative to the inertial world, gravity included, as an accelerometer measures them.
Inertial, magnetic, force and torque instruments read in their site's axes. Source: MuJoCo XML reference,
"sensor/framepos"; Featherstone 2008, ch. 2 for the change of reference point.
"""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.base.enums import ObjType
from diffsim.math.rotation import quat_conj, quat_mul
from diffsim.math.spatial import spatial_vector, transport_motion
from diffsim.math.vector import cross, mul_vec_t
from diffsim.sensor.readings import Group, Ints, Readings
from diffsim.types import Model, Topology
from diffsim.xla.gather import pick


@dataclass(frozen=True)
class Frame:
    """Names of the fields of an object's pose, its body (None if it is a body) and its quaternion in that body."""

    position: str
    orientation: str
    body: str | None
    quaternion: str | None


FRAMES = {
    ObjType.BODY: Frame("xipos", "ximat", None, "body_iquat"),
    ObjType.XBODY: Frame("xpos", "xmat", None, None),
    ObjType.GEOM: Frame("geom_xpos", "geom_xmat", "geom_bodyid", "geom_quat"),
    ObjType.SITE: Frame("site_xpos", "site_xmat", "site_bodyid", "site_quat"),
    ObjType.CAMERA: Frame("cam_xpos", "cam_xmat", "cam_bodyid", "cam_quat"),
}


def body_of(topology: Topology, objtype: ObjType, objid: Ints) -> Ints:
    """The bodies that carry the objects, (n,)."""
    owner = FRAMES[objtype].body
    return objid if owner is None else getattr(topology, owner)[objid]


def position(readings: Readings, objtype: ObjType, objid: Ints) -> Array:
    """World positions (n, 3), m."""
    return pick(getattr(readings.data, FRAMES[objtype].position), objid)


def orientation(readings: Readings, objtype: ObjType, objid: Ints) -> Array:
    """Rotation matrices (n, 3, 3), local to world."""
    return pick(getattr(readings.data, FRAMES[objtype].orientation), objid)


def quaternion(readings: Readings, objtype: ObjType, objid: Ints) -> Array:
    """World orientations (n, 4): the orientation of the body times the orientation in the body."""
    body = pick(readings.data.xquat, body_of(readings.topology, objtype, objid))
    local = FRAMES[objtype].quaternion
    return body if local is None else quat_mul(body, pick(getattr(readings.model, local), objid))


def velocity(readings: Readings, objtype: ObjType, objid: Ints) -> Array:
    """Velocities (n, 6) of the objects' origins: angular (rad/s), linear (m/s); zero on static bodies."""
    still = ~readings.topology.body_moves[body_of(readings.topology, objtype, objid)]
    return _at_object(readings, readings.data.cvel, objtype, objid, still)


def acceleration(readings: Readings, objtype: ObjType, objid: Ints) -> Array:
    """Accelerations (n, 6) of the objects' origins; gravity counts as an upward acceleration; see `reads_zero`.

    A spatial acceleration holds the origin fixed in space; the acceleration of the moving point is larger by omega x v.
    """
    zero = reads_zero(readings.model)[body_of(readings.topology, objtype, objid)]
    spatial = _at_object(readings, readings.data.cacc, objtype, objid, zero)
    speed = velocity(readings, objtype, objid)
    turning = cross(speed[:, :3], speed[:, 3:])
    return spatial_vector(spatial[:, :3], spatial[:, 3:] + turning)


def lever(readings: Readings, objtype: ObjType, objid: Ints) -> Array:
    """From the centre of mass of the kinematic tree, where spatial vectors are centred, to the object, m, (n, 3)."""
    root = readings.topology.body_rootid[body_of(readings.topology, objtype, objid)]
    return position(readings, objtype, objid) - pick(readings.data.subtree_com, root)


def reads_zero(model: Model) -> np.ndarray:
    """(nbody,) whether accelerations of a body read zero: before MuJoCo 4.0, if it cannot move."""
    return ~(model.topology.body_moves | model.opt.follows("static_acceleration"))


def _at_object(readings: Readings, motion: Array, objtype: ObjType, objid: Ints, zero: np.ndarray) -> Array:
    """Body motions (nbody, 6) about the tree's centre of mass, taken to the objects' origins; 0 where `zero` (n,)."""
    topology = readings.topology
    body = body_of(topology, objtype, objid)
    moved = transport_motion(pick(motion, body), lever(readings, objtype, objid))
    return jnp.where(np.broadcast_to(zero[:, None], moved.shape), 0, moved) if zero.any() else moved


def frame_position(readings: Readings, group: Group) -> Array:
    """Position, m, (n, 3)."""
    absolute = position(readings, group.objtype, group.objid)
    if not group.relative:
        return absolute
    return _in_reference(readings, group, absolute - position(readings, group.reftype, group.refid))


def frame_quaternion(readings: Readings, group: Group) -> Array:
    """Orientation (w, x, y, z), (n, 4)."""
    here = quaternion(readings, group.objtype, group.objid)
    if not group.relative:
        return here
    return quat_mul(quat_conj(quaternion(readings, group.reftype, group.refid)), here)


def frame_x_axis(readings: Readings, group: Group) -> Array:
    """Unit x axis, (n, 3)."""
    return _axis(readings, group, 0)


def frame_y_axis(readings: Readings, group: Group) -> Array:
    """Unit y axis, (n, 3)."""
    return _axis(readings, group, 1)


def frame_z_axis(readings: Readings, group: Group) -> Array:
    """Unit z axis, (n, 3)."""
    return _axis(readings, group, 2)


def frame_linear_velocity(readings: Readings, group: Group) -> Array:
    """Velocity of the origin, m/s, (n, 3): v - v_ref - omega_ref x (p - p_ref), in the reference axes."""
    moving = velocity(readings, group.objtype, group.objid)[:, 3:]
    if not group.relative:
        return moving
    frame = velocity(readings, group.reftype, group.refid)
    arm = position(readings, group.objtype, group.objid) - position(readings, group.reftype, group.refid)
    return _in_reference(readings, group, moving - frame[:, 3:] - cross(frame[:, :3], arm))


def frame_angular_velocity(readings: Readings, group: Group) -> Array:
    """Angular velocity, rad/s, (n, 3)."""
    turning = velocity(readings, group.objtype, group.objid)[:, :3]
    if not group.relative:
        return turning
    return _in_reference(readings, group, turning - velocity(readings, group.reftype, group.refid)[:, :3])


def frame_linear_acceleration(readings: Readings, group: Group) -> Array:
    """Acceleration of the origin in world axes, m/s^2, (n, 3)."""
    return acceleration(readings, group.objtype, group.objid)[:, 3:]


def frame_angular_acceleration(readings: Readings, group: Group) -> Array:
    """Angular acceleration in world axes, rad/s^2, (n, 3)."""
    return acceleration(readings, group.objtype, group.objid)[:, :3]


def _axis(readings: Readings, group: Group, column: int) -> Array:
    axis = orientation(readings, group.objtype, group.objid)[:, :, column]
    return _in_reference(readings, group, axis) if group.relative else axis


def _in_reference(readings: Readings, group: Group, vector: Array) -> Array:
    """World vectors (n, 3) in the axes of the reference objects."""
    return mul_vec_t(orientation(readings, group.reftype, group.refid), vector)


def accelerometer(readings: Readings, group: Group) -> Array:
    """Proper acceleration, m/s^2, (n, 3): at rest it shows gravity, upward."""
    return _in_site(readings, group, acceleration(readings, ObjType.SITE, group.objid)[:, 3:])


def velocimeter(readings: Readings, group: Group) -> Array:
    """Linear velocity, m/s, (n, 3)."""
    return _in_site(readings, group, velocity(readings, ObjType.SITE, group.objid)[:, 3:])


def gyro(readings: Readings, group: Group) -> Array:
    """Angular velocity, rad/s, (n, 3)."""
    return _in_site(readings, group, velocity(readings, ObjType.SITE, group.objid)[:, :3])


def magnetometer(readings: Readings, group: Group) -> Array:
    """Magnetic flux, in the unit of `option/magnetic`, (n, 3)."""
    field = jnp.broadcast_to(readings.model.opt.magnetic, (group.size, 3))
    return _in_site(readings, group, field)


def force(readings: Readings, group: Group) -> Array:
    """Force between the site's body and its parent, N, (n, 3): what the child exerts on the parent."""
    return _in_site(readings, group, _interaction(readings, group)[:, 3:])


def torque(readings: Readings, group: Group) -> Array:
    """Torque between the site's body and its parent, about the site, N m, (n, 3)."""
    wrench = _interaction(readings, group)
    arm = lever(readings, ObjType.SITE, group.objid)
    return _in_site(readings, group, wrench[:, :3] - cross(arm, wrench[:, 3:]))


def _interaction(readings: Readings, group: Group) -> Array:
    """Interaction (torque, force) of the sites' bodies with their parents, at the tree's centre of mass, (n, 6)."""
    return pick(readings.data.cfrc_int, readings.topology.site_bodyid[group.objid])


def _in_site(readings: Readings, group: Group, vector: Array) -> Array:
    return mul_vec_t(orientation(readings, ObjType.SITE, group.objid), vector)
