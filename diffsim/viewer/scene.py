"""scene: what a player needs of a trajectory: shapes, and poses of bodies and cameras for every frame."""

import math
from typing import Any

import jax
import numpy as np

from diffsim.math import mat_to_quat
from diffsim.types import Model
from diffsim.types.data import Kinematics
from diffsim.viewer.numbers import Numbers
from diffsim.viewer.pieces import Pieces, put, tendons
from diffsim.viewer.shapes import shapes
from diffsim.viz.scene import tile_size
from diffsim.viz.view import View, sight

# between worlds side by side, in extents of the model
SPACING = 0.8


def scene(
    model: Model, poses: Kinematics, fps: float, camera: View, pieces: Pieces | None = None
) -> tuple[dict[str, Any], bytes]:
    """The header, plain values for JSON, and the numbers to which it points: first what moves, then shapes.

    Args:
      model: the model.
      poses: frames (T, worlds, ...).
      fps: frames per second.
      camera: from where the player looks at first.
      pieces: the straight lines; None for those of tendons.
    """
    numbers, (frames, worlds, bodies, _) = Numbers(), poses.xpos.shape
    extent = float(model.stat.extent)
    middle, seen = sight(model, jax.tree.map(lambda leaf: leaf[0, 0], poses))
    follow = model.body(camera.follow).id if camera.follow else _first_moving(model)
    center = middle if camera.lookat is None else camera.lookat
    header = {
        "fps": fps,
        "frames": frames,
        "worlds": worlds,
        "bodies": bodies,
        **moving(model, poses, tendons(model, poses) if pieces is None else pieces, numbers),
        "center": np.asarray(center, float).tolist(),
        "distance": _distance(seen, extent, worlds) if camera.distance is None else camera.distance,
        "azimuth": camera.azimuth,
        "elevation": camera.elevation,
        "extent": extent,
        "tile": tile_size(extent),
        "spacing": SPACING * extent,
        "follow": follow,
        # a place that the user has chosen is kept
        "following": worlds == 1 and (camera.follow is not None or camera.lookat is None),
        **shapes(model, numbers),
    }
    return header, b"".join(numbers.parts)


def moving(model: Model, poses: Kinematics, pieces: Pieces, numbers: Numbers) -> dict[str, Any]:
    """The part of the header whose numbers change from frame to frame."""
    return {
        "positions": numbers.put(np.asarray(poses.xpos, np.float32)),
        "quaternions": numbers.put_quaternions(np.asarray(poses.xquat)),
        "cameras": [_camera(model, poses, index, numbers) for index in range(model.ncam)],
        "pieces": put(pieces, numbers),
    }


def _distance(seen: float, extent: float, worlds: int) -> float:
    """From where all worlds can be seen."""
    return 1.5 * seen + SPACING * extent * (math.ceil(math.sqrt(worlds)) - 1)


def _first_moving(model: Model) -> int:
    """The body that a camera follows: the first that moves, -1 for none."""
    moving = np.flatnonzero(model.topology.body_weldid > 0)
    return int(moving[0]) if len(moving) else -1


def _camera(model: Model, poses: Kinematics, index: int, numbers: Numbers) -> dict[str, Any]:
    """A camera of the model in the first world."""
    matrix = poses.cam_xmat[:, 0, index]
    return {
        "name": model.name("camera", index) or f"camera {index}",
        "fovy": float(model.cam_fovy[index]),
        "pos": numbers.put(np.asarray(poses.cam_xpos[:, 0, index], np.float32)),
        "quat": numbers.put_quaternions(np.asarray(mat_to_quat(matrix))),
    }
