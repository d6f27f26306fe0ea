"""Cameras: a free view of a point, or a camera of the model; poses of everything that is drawn."""

import dataclasses
import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.base.checked import checked
from diffsim.kinematics.poses import compute_kinematics
from diffsim.math.vector import mul_vec, pack
from diffsim.types import Inputs, Model, State
from diffsim.types.data import Kinematics
from diffsim.types.state import make_inputs

# A free view shows only what moves if its extent is below this fraction of the whole model's extent: otherwise a robot
# on a large terrain would be a few pixels.
SMALL = 0.2


@dataclasses.dataclass(frozen=True)
class View:
    """A free camera, as in MuJoCo's viewer, that looks at a point from a distance.

    Attributes:
      lookat: (3,) m, point in the middle of the picture; with `follow`, offset from the body. None for the middle of
        the model, or of what moves if that is much smaller.
      distance: m, from the camera to the point; None for 1.5 times the extent of the model, or of what moves.
      azimuth: degrees; 90 looks along +y.
      elevation: degrees; negative looks down.
      fovy: degrees, vertical field of view.
      follow: name of a body to look at; None for a fixed point.
    """

    lookat: tuple[float, float, float] | None = None
    distance: float | None = None
    azimuth: float = 120.0
    elevation: float = -20.0
    fovy: float = 45.0
    follow: str | None = None


class Pose(NamedTuple):
    """A camera in the world: position (3,) m, rotation matrix (3, 3) with columns right, up, back; fovy in degrees."""

    position: np.ndarray | Array
    matrix: np.ndarray | Array
    fovy: float | np.ndarray | Array


def sight(model: Model, kinematics: Kinematics) -> tuple[np.ndarray, float]:
    """Middle (3,) and extent, m, of what a free view shows: the model, or only what moves if that is much smaller."""
    moving = model.topology.body_weldid[model.topology.geom_bodyid] > 0
    center = np.asarray(model.stat.center, float)
    extent = float(model.stat.extent)
    if moving.any():
        places = np.asarray(kinematics.geom_xpos)[moving]
        radii = np.asarray(model.geom_rbound)[moving, None]
        low = np.min(places - radii, axis=0)
        high = np.max(places + radii, axis=0)
        if np.max(high - low) < SMALL * extent:
            return (low + high) / 2, float(np.max(high - low))
    return center, extent


def settled(model: Model, kinematics: Kinematics, view: View) -> View:
    """Fills in the default distance of a view, and its default point unless it follows a body."""
    if view.distance is not None and (view.lookat is not None or view.follow is not None):
        return view
    middle, extent = sight(model, kinematics)
    lookat = tuple(middle.tolist()) if view.lookat is None and view.follow is None else view.lookat
    return dataclasses.replace(view, lookat=lookat, distance=1.5 * extent if view.distance is None else view.distance)


def pose(model: Model, kinematics: Kinematics, camera: View | str | int | None) -> Pose:
    """The pose of a view, or of a camera given by name or index."""
    if camera is None or isinstance(camera, View):
        view = settled(model, kinematics, camera or View())
        azimuth, elevation = math.radians(view.azimuth), math.radians(view.elevation)
        flat = math.cos(elevation)
        forward = np.array([flat * math.cos(azimuth), flat * math.sin(azimuth), math.sin(elevation)])
        right = np.array([math.sin(azimuth), -math.cos(azimuth), 0.0])
        matrix = np.stack([right, np.cross(right, forward), -forward], axis=1)
        # the middle of the picture
        lookat = np.asarray((0.0, 0.0, 0.0) if view.lookat is None else view.lookat, float)
        if view.follow is not None:
            lookat = np.asarray(model.body(view.follow).xpos(kinematics)) + lookat
        return Pose(lookat - view.distance * forward, matrix, view.fovy)
    index = model.id("camera", camera) if isinstance(camera, str) else camera
    return Pose(kinematics.cam_xpos[index], kinematics.cam_xmat[index], model.cam_fovy[index])


def directions(eye: Pose, pixels: Array, width: int, height: int) -> Array:
    """Unit directions (k, 3) through pixel coordinates (k, 2), which count from the top left corner of the image.

    Pinhole camera: the focal length in pixels is (height / 2) / tan(fovy / 2), and the camera looks along its -z.
    """
    focal = 0.5 * height / jnp.tan(jnp.radians(eye.fovy) / 2)
    x = pixels[:, 0] - width / 2
    y = height / 2 - pixels[:, 1]
    local = pack([x, y, -jnp.broadcast_to(focal, x.shape)])
    along = mul_vec(jnp.asarray(eye.matrix)[None], local)
    return along / jnp.sqrt(x * x + y * y + focal * focal)[:, None]


@checked
def poses_of(model: Model, states: State, inputs: Inputs | None = None) -> Kinematics:
    """Poses of bodies, geoms, sites and cameras in given states.

    Args:
      model: the model.
      states: one state, or stacked states with leading axes, such as the states (T, ...) of a rollout.
      inputs: poses of mocap bodies, with the same leading axes or none; None for their poses in the model.

    Returns:
      Kinematics with the leading axes of `states`.
    """
    inputs = make_inputs(model) if inputs is None else inputs
    batch = states.qpos.shape[:-1]
    spread = [jnp.broadcast_to(leaf, (*batch, *leaf.shape[-2:])) for leaf in (inputs.mocap_pos, inputs.mocap_quat)]
    return _batched_kinematics(len(batch), model, states.qpos, *spread)


@functools.partial(jax.jit, static_argnums=0)
def _batched_kinematics(axes: int, model: Model, *positions: Array) -> Kinematics:
    """Poses of states that have `axes` leading axes."""
    function = compute_kinematics
    for _ in range(axes):
        function = jax.vmap(function, in_axes=(None, 0, 0, 0))
    return function(model, *positions)
