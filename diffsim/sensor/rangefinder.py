"""Rangefinders: how far the nearest surface is along a site's z axis, or through every pixel of a camera.

Per ray the fields asked for follow one another: dist (-1 for nothing), dir, origin, point, normal, depth.
Source: MuJoCo XML reference, "sensor/rangefinder".
"""

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.base.enums import ObjType, RayDataField
from diffsim.geometry.rays.ray import RayHits, Rays, cast
from diffsim.math.vector import dot, scale
from diffsim.sensor.camera import pixel_rays
from diffsim.sensor.readings import Group, Readings
from diffsim.xla.pick import pick

Array = jax.Array

# numbers per ray by data field
WIDTH = {field: 1 if field in (RayDataField.DIST, RayDataField.DEPTH) else 3 for field in RayDataField}


def rangefinder(readings: Readings, group: Group) -> Array:
    """All fields of all rays, (n, dim)."""
    return _from_camera(readings, group) if group.objtype == ObjType.CAMERA else _from_sites(readings, group)


def _from_sites(readings: Readings, group: Group) -> Array:
    data = readings.data
    origin = pick(data.site_xpos, group.objid)
    direction = pick(data.site_xmat, group.objid)[:, :, 2]
    hits = _cast(readings, origin, direction, readings.topology.site_bodyid[group.objid])
    return _fields(group, hits, origin, direction, hits.distance)


def _from_camera(readings: Readings, group: Group) -> Array:
    data, images = readings.data, []
    for camera in group.objid.tolist():
        origin, direction = pixel_rays(readings, camera)
        body = readings.topology.cam_bodyid[camera]
        hits = _cast(readings, origin, direction, np.full(len(origin), body))
        # depth is measured along the optical axis, from the camera's own plane
        offset = origin + scale(direction, hits.distance) - data.cam_xpos[camera][None]
        depth = -dot(offset, data.cam_xmat[camera][None, :, 2])
        depth = jnp.where(hits.distance >= 0, depth, -1)
        images.append(_fields(group, hits, origin, direction, depth).reshape(-1))
    return jnp.stack(images)


def _cast(readings: Readings, origin: Array, direction: Array, exclude: np.ndarray) -> RayHits:
    data = readings.data
    return cast(readings.model, data.geom_xpos, data.geom_xmat, Rays(origin, direction, exclude))


def _fields(group: Group, hits: RayHits, origin: Array, direction: Array, depth: Array) -> Array:
    """The fields of `data`, in their fixed order, for k rays: (k, fields)."""
    hit = (hits.distance >= 0)[:, None]
    values = {
        RayDataField.DIST: hits.distance[:, None],
        RayDataField.DIR: jnp.where(hit, direction, 0),
        RayDataField.ORIGIN: origin,
        RayDataField.POINT: jnp.where(hit, origin + scale(direction, hits.distance), 0),
        RayDataField.NORMAL: hits.normal,
        RayDataField.DEPTH: depth[:, None],
    }
    wanted = [values[field] for field in RayDataField if group.parameters[0] & (1 << field)]
    return jnp.concatenate(wanted, axis=1)
