"""Cameras as instruments: from the world to pixels, and from pixels to rays; and rangefinders.

A camera looks along its -z axis, x to the right, y up; pixel rows run downwards from the top edge. A rangefinder reads
the distance to the nearest surface along a site's z axis, or through every pixel of a camera. For each ray it lists the
fields that the element selects, in this order: dist (-1 for nothing), dir, origin, point, normal, depth.
Source: MuJoCo XML reference, "body/camera", "sensor/camprojection" and "sensor/rangefinder"; pinhole model.
"""

import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.base.enums import ObjType, Projection, RayDataField
from diffsim.geometry.rays.ray import RayHits, Rays, cast
from diffsim.math import safe
from diffsim.math.vector import dot, mul_vec, mul_vec_t, pack, scale
from diffsim.sensor.readings import Group, Ints, Readings
from diffsim.types import Model
from diffsim.xla.gather import pick

# m, smallest depth by which the projection divides
LEAST_DEPTH = 1e-15


def intrinsics(model: Model, camera: Ints) -> tuple[Array, Array]:
    """Focal lengths (x, y) and the principal point, in pixels, (n, 2) each.

    They follow from the size of the sensor. Without a size, the focal lengths follow from the field of view, and the
    principal point is in the middle.
    """
    resolution = jnp.asarray(model.topology.cam_resolution[camera], model.cam_fovy.dtype)
    size, intrinsic = pick(model.cam_sensorsize, camera), pick(model.cam_intrinsic, camera)
    has_size = ((size[:, 0] != 0) & (size[:, 1] != 0))[:, None]
    focal, axis = (safe.divide(lengths, size) * resolution for lengths in (intrinsic[:, :2], intrinsic[:, 2:]))
    half_angle = pick(model.cam_fovy, camera) * (np.pi / 360)
    by_view = 0.5 / jnp.tan(half_angle) * resolution[:, 1]
    return jnp.where(has_size, focal, by_view[:, None]), jnp.where(has_size, axis, resolution / 2)


def camera_projection(readings: Readings, group: Group) -> Array:
    """Pixel coordinates of a site in a camera's image, (n, 2); not limited to the image."""
    data, model, camera = readings.data, readings.model, group.refid
    offset = pick(data.site_xpos, group.objid) - pick(data.cam_xpos, camera)
    local = mul_vec_t(pick(data.cam_xmat, camera), offset)
    # negative in front of the camera; in its plane the image is at infinity, and kept finite
    z = local[:, 2]
    tiny = jnp.abs(z) < LEAST_DEPTH
    z = jnp.where(tiny, jnp.where(z < 0, -LEAST_DEPTH, LEAST_DEPTH), z)
    focal, _ = intrinsics(model, camera)
    middle = jnp.asarray(readings.topology.cam_resolution[camera] / 2, local.dtype)
    # u = focal x / -z + middle, v = focal y / z + middle: rows of pixels run downwards
    image = pack([-local[:, 0], local[:, 1]]) * focal
    return (image + scale(middle, local[:, 2])) / z[:, None]


def pixel_rays(readings: Readings, camera: int) -> tuple[Array, Array]:
    """One ray through the middle of every pixel, row by row: origins and unit directions, (h w, 3)."""
    model, data = readings.model, readings.data
    one = np.array([camera])
    width, height = (int(pixels) for pixels in readings.topology.cam_resolution[camera])
    column, row = np.meshgrid(np.arange(width) + 0.5, np.arange(height) + 0.5)
    pixels = jnp.asarray(np.stack([column.ravel(), row.ravel()], -1), data.cam_xpos.dtype)
    place, matrix = data.cam_xpos[camera][None], data.cam_xmat[camera][None]
    if readings.topology.cam_projection[camera] == Projection.ORTHOGRAPHIC:
        # the field of view is the height of the image in metres, for both axes
        middle = jnp.asarray([[width / 2, height / 2]], pixels.dtype)
        plane = (pixels - middle) / middle * (model.cam_fovy[camera] / 2)
        local = pack([plane[:, 0], -plane[:, 1], jnp.zeros_like(plane[:, 0])])
        return place + mul_vec(matrix, local), jnp.broadcast_to(-matrix[:, :, 2], local.shape)
    focal, axis = intrinsics(model, one)
    plane = (pixels - axis) / focal
    local = pack([plane[:, 0], -plane[:, 1], -jnp.ones_like(plane[:, 0])])
    return jnp.broadcast_to(place, local.shape), safe.normalize(mul_vec(matrix, local))


# numbers per ray by data field
WIDTH = {field: 1 if field in (RayDataField.DIST, RayDataField.DEPTH) else 3 for field in RayDataField}


def rangefinder(readings: Readings, group: Group) -> Array:
    """All fields of all rays, (n, dim): along the z axes of sites, or through the pixels of cameras, row by row."""
    data = readings.data
    images = []
    if group.objtype != ObjType.CAMERA:
        origin = pick(data.site_xpos, group.objid)
        direction = pick(data.site_xmat, group.objid)[:, :, 2]
        hits = _cast(readings, origin, direction, readings.topology.site_bodyid[group.objid])
        return _fields(group, hits, origin, direction, hits.distance)
    for camera in group.objid.tolist():
        origin, direction = pixel_rays(readings, camera)
        body = readings.topology.cam_bodyid[camera]
        hits = _cast(readings, origin, direction, np.full(len(origin), body))
        # along the optical axis, from the plane of the camera
        offset = origin + scale(direction, hits.distance) - data.cam_xpos[camera][None]
        depth = -dot(offset, data.cam_xmat[camera][None, :, 2])
        depth = jnp.where(hits.distance >= 0, depth, -1)
        images.append(_fields(group, hits, origin, direction, depth).reshape(-1))
    return jnp.stack(images)


def _cast(readings: Readings, origin: Array, direction: Array, exclude: np.ndarray) -> RayHits:
    """The hits of rays (k,); each ray passes through the geoms of its body `exclude` (k,)."""
    data = readings.data
    return cast(readings.model, data.geom_xpos, data.geom_xmat, Rays(origin, direction, exclude))


def _fields(group: Group, hits: RayHits, origin: Array, direction: Array, depth: Array) -> Array:
    """(k, dim) the fields that the attribute `data` selects, in the order of RayDataField, for k rays."""
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
