"""Where a picture is taken from: a free view round a point, or a camera of the model."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.math.vector import mul_vec, pack
from diffsim.types import Model
from diffsim.types.data import Kinematics

Array = jax.Array


@dataclass(frozen=True)
class View:
    """A free camera, as in MuJoCo's viewer: it looks at a point from a distance; angles in degrees.

    azimuth 90 looks along +y; a negative elevation looks down. None for `lookat` or `distance` takes the model's
    centre or 1.5 times its extent. With `follow`, the name of a body, it looks at this body, `lookat` metres beside it.
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


def pose(model: Model, kinematics: Kinematics, camera: View | str | int | None) -> Pose:
    """The pose of a view, or of a camera given by name or index."""
    if camera is None or isinstance(camera, View):
        return _free(model, kinematics, camera or View())
    index = model.id("camera", camera) if isinstance(camera, str) else camera
    place, matrix = np.asarray(kinematics.cam_xpos[index]), np.asarray(kinematics.cam_xmat[index])
    return Pose(place, matrix, float(model.cam_fovy[index]))


def _free(model: Model, kinematics: Kinematics, view: View) -> Pose:
    lookat = _lookat(model, kinematics, view)
    distance = 1.5 * float(model.stat.extent) if view.distance is None else view.distance
    azimuth, elevation = math.radians(view.azimuth), math.radians(view.elevation)
    flat = math.cos(elevation)
    forward = np.array([flat * math.cos(azimuth), flat * math.sin(azimuth), math.sin(elevation)])
    right = np.array([math.sin(azimuth), -math.cos(azimuth), 0.0])
    matrix = np.stack([right, np.cross(right, forward), -forward], axis=1)
    return Pose(lookat - distance * forward, matrix, view.fovy)


def _lookat(model: Model, kinematics: Kinematics, view: View) -> np.ndarray:
    """(3,) the point in the middle of the picture, m."""
    if view.follow is None:
        return np.asarray(model.stat.center if view.lookat is None else view.lookat, float)
    return np.asarray(model.body(view.follow).xpos(kinematics)) + np.asarray(view.lookat or (0.0, 0.0, 0.0))


def directions(eye: Pose, pixels: Array, width: int, height: int) -> Array:
    """Unit directions (k, 3) through pixel coordinates (k, 2), from the top left corner of the image."""
    focal = 0.5 * height / jnp.tan(jnp.radians(eye.fovy) / 2)
    x, y = pixels[:, 0] - width / 2, height / 2 - pixels[:, 1]
    local = pack([x, y, -jnp.broadcast_to(focal, x.shape)])
    along = mul_vec(jnp.asarray(eye.matrix)[None], local)
    return along / jnp.sqrt(x * x + y * y + focal * focal)[:, None]
