"""Where the objects that carry sensors are, and how they move: bodies, geoms, sites and cameras.

`body` means the inertial frame, `xbody` the body's own frame. All results are in world axes.
Source: MuJoCo XML reference, "sensor/framepos"; Featherstone 2008, ch. 2 for the change of reference point.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.base.enums import ObjType
from diffsim.math.rotation import quat_mul
from diffsim.math.spatial import spatial_vector, transport_motion
from diffsim.math.vector import cross
from diffsim.sensor.readings import Ints, Readings
from diffsim.types import Topology
from diffsim.xla.pick import pick

Array = jax.Array


@dataclass(frozen=True)
class Frame:
    """Names of the fields that hold an object's pose, its body (None: it is one) and its quaternion in that body."""

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
    """World orientations (n, 4): that of the body times that in the body."""
    body = pick(readings.data.xquat, body_of(readings.topology, objtype, objid))
    local = FRAMES[objtype].quaternion
    return body if local is None else quat_mul(body, pick(getattr(readings.model, local), objid))


def velocity(readings: Readings, objtype: ObjType, objid: Ints) -> Array:
    """Velocities (n, 6) of the objects' origins: angular (rad/s), linear (m/s); zero on static bodies."""
    return _at_object(readings, readings.data.cvel, objtype, objid)


def acceleration(readings: Readings, objtype: ObjType, objid: Ints) -> Array:
    """Accelerations (n, 6) of the objects' origins, gravity counted as an upward one; zero on static bodies.

    A spatial acceleration holds the origin fixed in space; the point's own is larger by omega x v.
    """
    spatial = _at_object(readings, readings.data.cacc, objtype, objid)
    speed = velocity(readings, objtype, objid)
    turning = cross(speed[:, :3], speed[:, 3:])
    return spatial_vector(spatial[:, :3], spatial[:, 3:] + turning)


def lever(readings: Readings, objtype: ObjType, objid: Ints) -> Array:
    """From the centre of mass of the kinematic tree, where spatial vectors are centred, to the object, m, (n, 3)."""
    root = readings.topology.body_rootid[body_of(readings.topology, objtype, objid)]
    return position(readings, objtype, objid) - pick(readings.data.subtree_com, root)


def _at_object(readings: Readings, motion: Array, objtype: ObjType, objid: Ints) -> Array:
    """Body motions (nbody, 6) about the tree's centre of mass, taken to the objects' origins."""
    topology = readings.topology
    body = body_of(topology, objtype, objid)
    moved = transport_motion(pick(motion, body), lever(readings, objtype, objid))
    static = np.broadcast_to((topology.body_weldid[body] == 0)[:, None], moved.shape)
    return jnp.where(static, 0, moved) if static.any() else moved
