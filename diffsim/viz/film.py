"""Films of trajectories in real time, with a camera that may follow a body; writes pictures and films to files."""

import dataclasses
import importlib
import importlib.util
import math
import pathlib
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from typing import TypedDict, Unpack

import jax
import numpy as np
from PIL import Image

from diffsim.base.checked import checked
from diffsim.base.errors import ArgumentError
from diffsim.types import Model, State
from diffsim.types.data import Kinematics
from diffsim.viz.material import HIDDEN_GROUPS
from diffsim.viz.render import Frame, picture
from diffsim.viz.scene import plan_of, scene_of
from diffsim.viz.view import View, pose, poses_of, settled

# Standard deviation of the Gaussian that smooths the path of a camera that follows a body, s. It is about a footstep,
# so that the camera does not bob with the gait, and short enough to keep the body in the picture.
SMOOTHING = 0.25

Camera = View | str | int | None


class Options(TypedDict, total=False):
    """Options that are passed to `viz.render` for each frame."""

    size: tuple[int, int]
    samples: int
    hidden_groups: tuple[int, ...]


@checked
def video(
    model: Model,
    states: State | Kinematics,
    path: str | pathlib.Path,
    camera: Camera = None,
    fps: float = 30.0,
    **options: Unpack[Options],
) -> int:
    """Renders a trajectory and writes it as a film.

        final, states = diffsim.rollout(model, state, ctrl)
        viz.video(model, states, "walk.mp4", viz.View(follow="torso", distance=2))

    Args:
      model: the model.
      states: stacked states (T, ...), played in real time by their `time`; or poses, one per frame.
      path: file to write: .gif, or .mp4 (needs imageio-ffmpeg).
      camera: as in `viz.render`; a `View` with `follow` keeps a body in the picture.
      fps: frames per second.
      options: `size`, `samples` and `hidden_groups` of `viz.render`; by default 640 x 360 and one sample.

    Returns:
      The number of frames.

    Raises:
      ArgumentError: the file is an mp4 and there is no ffmpeg.
      ValueError: the states have no time axis.
    """
    shown = list(frames(model, states, camera, fps, **options))
    save(path, shown, fps)
    return len(shown)


def frames(
    model: Model, states: State | Kinematics, camera: Camera = None, fps: float = 30.0, **options: Unpack[Options]
) -> Iterator[np.ndarray]:
    """Renders the frames of `video` one after another.

    Args:
      model, states, camera, fps, options: as in `video`.

    Returns:
      An iterator of uint8 images (height, width, 3).

    Raises:
      ValueError: the states have no time axis, or an axis of worlds.
    """
    if isinstance(states, State):
        states = poses_of(model, at_frames(states, fps))
    if states.xpos.ndim != 3:
        raise ValueError(f"a film shows states (T, ...) of one world; xpos has shape {states.xpos.shape}")
    poses = jax.tree.map(np.asarray, states)
    plan = plan_of(model, options.get("hidden_groups", HIDDEN_GROUPS))
    shown = Frame(*options.get("size", (640, 360)), options.get("samples", 1))
    scene = scene_of(model, plan, poses)
    moving = jax.tree.map(np.asarray, (scene.places, scene.lamps))
    for k, view in enumerate(cameras(model, poses, camera, fps)):
        places, lamps = jax.tree.map(lambda leaf, k=k: leaf[k], moving)
        now = scene._replace(places=places, lamps=lamps)
        yield picture(now, plan, pose(model, _at(poses, k), view), shown)


def at_frames(states: State, fps: float) -> State:
    """Selects, for each frame, the state (T, ...) or (T, worlds, ...) that is nearest in time."""
    if states.qpos.ndim < 2:
        raise ValueError(f"a film shows states (T, ...), one after another; qpos has shape {states.qpos.shape}")
    time = np.asarray(states.time).reshape(len(states.qpos), -1)[:, 0]
    # times are sums of timesteps: a tolerance of 1e-3 frames keeps rounding from losing the last frame
    count = max(1, math.floor((time[-1] - time[0]) * fps + 1e-3) + 1)
    wanted = time[0] + np.arange(count) / fps
    nearest = np.abs(time[None] - wanted[:, None]).argmin(axis=1)
    # indexed by numpy, because JAX would compile a program for each leaf
    return jax.tree.map(lambda leaf: np.asarray(leaf)[nearest], states)


def cameras(model: Model, poses: Kinematics, camera: Camera, fps: float) -> list[Camera]:
    """Returns one camera for each of the poses (T, ...); a camera that follows a body moves smoothly."""
    if camera is not None and not isinstance(camera, View):
        return [camera] * len(poses.xpos)
    # the first frame sets the distance for the whole film, so that the picture does not zoom
    camera = settled(model, _at(poses, 0), camera or View())
    if camera.follow is None:
        return [camera] * len(poses.xpos)
    path = np.asarray(poses.xpos)[:, model.body(camera.follow).id]
    path = smooth(path, SMOOTHING * fps) + np.asarray(camera.lookat or (0.0, 0.0, 0.0))
    return [dataclasses.replace(camera, follow=None, lookat=tuple(point)) for point in path.tolist()]


def smooth(path: np.ndarray, width: float) -> np.ndarray:
    """Smooths a path (T, 3) with a Gaussian whose standard deviation is `width` points.

    Each point becomes the weighted mean of all points, with weights exp(-(i - j)^2 / (2 width^2)).
    """
    distance = np.arange(len(path))[:, None] - np.arange(len(path))
    weight = np.exp(-0.5 * (distance / max(width, 1e-6)) ** 2)
    return weight @ path / weight.sum(axis=1, keepdims=True)


def _at(poses: Kinematics, k: int) -> Kinematics:
    """The poses of frame k."""
    return jax.tree.map(lambda leaf: leaf[k], poses)


# extensions of files that ffmpeg writes
FILMS = (".mp4", ".mov")


def save(path: str | pathlib.Path, image: np.ndarray | Sequence[np.ndarray], fps: float = 30.0) -> None:
    """Writes one image (PNG, JPEG, ... by the file's ending), or several as an animated GIF or a film (mp4).

    Args:
      path: file to write; an existing file is replaced.
      image: uint8 (height, width, 3), or a sequence of such frames.
      fps: frames per second.

    Raises:
      ArgumentError: the file is a film and there is no ffmpeg (the package imageio-ffmpeg brings it), or ffmpeg fails.
    """
    frames = [image] if isinstance(image, np.ndarray) and image.ndim == 3 else [np.asarray(frame) for frame in image]
    if pathlib.Path(path).suffix.lower() in FILMS:
        # H.264 with 4:2:0 chroma needs an even width and height: drop the last row or column of odd sizes
        height, width = (side // 2 * 2 for side in frames[0].shape[:2])
        raw = b"".join(np.ascontiguousarray(frame[:height, :width]).tobytes() for frame in frames)
        source = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", str(fps), "-i", "-"]
        coded = ["-an", "-vcodec", "libx264", "-pix_fmt", "yuv420p", "-crf", "18", "-movflags", "+faststart"]
        done = subprocess.run([ffmpeg(path), "-y", *source, *coded, str(path)], input=raw, capture_output=True)
        if done.returncode:
            raise ArgumentError(f"{path}: ffmpeg says: {done.stderr.decode(errors='replace')[-300:].strip()}")
        return
    first, *rest = [Image.fromarray(frame) for frame in frames]
    if rest:
        first.save(path, save_all=True, append_images=rest, duration=round(1000 / fps), loop=0)
    else:
        first.save(path)


def ffmpeg(path: str | pathlib.Path) -> str:
    """Finds the program ffmpeg, in the package imageio-ffmpeg or on the PATH."""
    if importlib.util.find_spec("imageio_ffmpeg") is not None:
        return importlib.import_module("imageio_ffmpeg").get_ffmpeg_exe()
    program = shutil.which("ffmpeg")
    if program is None:
        raise ArgumentError(f"{path}: films need ffmpeg: install it or diffsim[viz] (imageio-ffmpeg), or write a .gif")
    return program
