"""Where a picture is taken from: a free view round a point, or a camera of the model."""

import dataclasses
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.math.vector import mul_vec, pack
from diffsim.types import Model
from diffsim.types.data import Kinematics

Array = jax.Array

# what moves is small beside the model below this
SMALL = 0.2


@dataclasses.dataclass(frozen=True)
class View:
    """A free camera, as in MuJoCo's viewer: it looks at a point from a distance; angles in degrees.

    azimuth 90 looks along +y; a negative elevation looks down. None for `lookat` or `distance` takes the middle or 1.5
    times the extent of what is to be seen (`sight`). With `follow`, the name of a body, it looks at this body, `lookat`
    metres beside it.
    """

    lookat: tuple[float, float, float] | None = None
    distance: float | None = None
    azimuth: float = 120.0
    elevation: float = -20.0
    fovy: float = 45.0
    follow: str | None = None


class Pose(NamedTuple):
    """A camera in the world: position (3,), rotation matrix (3, 3) with columns right, up, back; fovy in degrees."""

    position: np.ndarray | Array
    matrix: np.ndarray | Array
    fovy: float | np.ndarray | Array


def sight(model: Model, kinematics: Kinematics) -> tuple[np.ndarray, float]:
    """Middle (3,) and extent, m, of what a free view shows: the model, or what moves if that is much smaller."""
    moving = model.topology.body_weldid[model.topology.geom_bodyid] > 0
    center, extent = np.asarray(model.stat.center, float), float(model.stat.extent)
    if moving.any():
        places, radii = np.asarray(kinematics.geom_xpos)[moving], np.asarray(model.geom_rbound)[moving, None]
        low, high = np.min(places - radii, axis=0), np.max(places + radii, axis=0)
        if np.max(high - low) < SMALL * extent:
            return (low + high) / 2, float(np.max(high - low))
    return center, extent


def settled(model: Model, kinematics: Kinematics, view: View) -> View:
    """A view whose distance is a number, and its point too if it follows no body."""
    middle, extent = sight(model, kinematics)
    lookat = tuple(middle.tolist()) if view.lookat is None and view.follow is None else view.lookat
    return dataclasses.replace(view, lookat=lookat, distance=1.5 * extent if view.distance is None else view.distance)


def pose(model: Model, kinematics: Kinematics, camera: View | str | int | None) -> Pose:
    """The pose of a view, or of a camera given by name or index."""
    if camera is None or isinstance(camera, View):
        return _free(model, kinematics, camera or View())
    index = model.id("camera", camera) if isinstance(camera, str) else camera
    place, matrix = np.asarray(kinematics.cam_xpos[index]), np.asarray(kinematics.cam_xmat[index])
    return Pose(place, matrix, float(model.cam_fovy[index]))


def _free(model: Model, kinematics: Kinematics, view: View) -> Pose:
    view = settled(model, kinematics, view)
    azimuth, elevation = math.radians(view.azimuth), math.radians(view.elevation)
    flat = math.cos(elevation)
    forward = np.array([flat * math.cos(azimuth), flat * math.sin(azimuth), math.sin(elevation)])
    right = np.array([math.sin(azimuth), -math.cos(azimuth), 0.0])
    matrix = np.stack([right, np.cross(right, forward), -forward], axis=1)
    return Pose(_lookat(model, kinematics, view) - view.distance * forward, matrix, view.fovy)


def _lookat(model: Model, kinematics: Kinematics, view: View) -> np.ndarray:
    """(3,) the point in the middle of the picture, m."""
    beside = np.asarray((0.0, 0.0, 0.0) if view.lookat is None else view.lookat, float)
    return beside if view.follow is None else np.asarray(model.body(view.follow).xpos(kinematics)) + beside


def directions(eye: Pose, pixels: Array, width: int, height: int) -> Array:
    """Unit directions (k, 3) through pixel coordinates (k, 2), from the top left corner of the image."""
    focal = 0.5 * height / jnp.tan(jnp.radians(eye.fovy) / 2)
    x, y = pixels[:, 0] - width / 2, height / 2 - pixels[:, 1]
    local = pack([x, y, -jnp.broadcast_to(focal, x.shape)])
    along = mul_vec(jnp.asarray(eye.matrix)[None], local)
    return along / jnp.sqrt(x * x + y * y + focal * focal)[:, None]
