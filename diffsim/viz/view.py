"""Where everything is in a picture, and from where it is taken: a free view round a point, or a camera of the model."""

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
        # the point in the middle of the picture
        lookat = np.asarray((0.0, 0.0, 0.0) if view.lookat is None else view.lookat, float)
        if view.follow is not None:
            lookat = np.asarray(model.body(view.follow).xpos(kinematics)) + lookat
        return Pose(lookat - view.distance * forward, matrix, view.fovy)
    index = model.id("camera", camera) if isinstance(camera, str) else camera
    return Pose(kinematics.cam_xpos[index], kinematics.cam_xmat[index], model.cam_fovy[index])


def directions(eye: Pose, pixels: Array, width: int, height: int) -> Array:
    """Unit directions (k, 3) through pixel coordinates (k, 2), from the top left corner of the image."""
    focal = 0.5 * height / jnp.tan(jnp.radians(eye.fovy) / 2)
    x, y = pixels[:, 0] - width / 2, height / 2 - pixels[:, 1]
    local = pack([x, y, -jnp.broadcast_to(focal, x.shape)])
    along = mul_vec(jnp.asarray(eye.matrix)[None], local)
    return along / jnp.sqrt(x * x + y * y + focal * focal)[:, None]


@checked
def poses_of(model: Model, states: State, inputs: Inputs | None = None) -> Kinematics:
    """Where bodies, geoms, sites and cameras are.

    Args:
      model: the model.
      states: one state, or stacked ones with leading axes, such as readouts of a rollout (T, ...).
      inputs: where mocap bodies are, with the same leading axes or none; None for where the model has them.

    Returns:
      Kinematics with the leading axes of `states`.
    """
    inputs = make_inputs(model) if inputs is None else inputs
    batch = states.qpos.shape[:-1]
    spread = [jnp.broadcast_to(leaf, (*batch, *leaf.shape[-2:])) for leaf in (inputs.mocap_pos, inputs.mocap_quat)]
    return _batched_kinematics(len(batch), model, states.qpos, *spread)


@functools.partial(jax.jit, static_argnums=0)
def _batched_kinematics(axes: int, model: Model, *positions: Array) -> Kinematics:
    """Poses of states with a number of leading axes."""
    function = compute_kinematics
    for _ in range(axes):
        function = jax.vmap(function, in_axes=(None, 0, 0, 0))
    return function(model, *positions)
