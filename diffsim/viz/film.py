"""Films: frames of a trajectory in real time, seen by a camera that may follow a body; pictures and films as files."""

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

# s, width of the bell by which a camera that follows a body smooths its path
CALM = 0.25

Camera = View | str | int | None


class Options(TypedDict, total=False):
    """Options of `viz.render` for each frame."""

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
    """Films a trajectory.

        final, states = diffsim.rollout(model, state, ctrl)
        viz.video(model, states, "walk.mp4", viz.View(follow="torso", distance=2))

    Args:
      model: the model.
      states: stacked states (T, ...), shown in the time that they took; or poses, one a frame.
      path: file to write: .gif, or .mp4 (needs imageio-ffmpeg).
      camera: as for `viz.render`; a `View` with `follow` keeps a body in the picture.
      fps: frames per second.
      options: `size`, `samples` and `hidden_groups` of `viz.render`; by default 640 x 360 and one sample.

    Returns:
      Number of frames.

    Raises:
      ArgumentError: an mp4 without imageio-ffmpeg. ValueError: states without a time axis.
    """
    shown = list(frames(model, states, camera, fps, **options))
    save(path, shown, fps)
    return len(shown)


def frames(
    model: Model, states: State | Kinematics, camera: Camera = None, fps: float = 30.0, **options: Unpack[Options]
) -> Iterator[np.ndarray]:
    """The frames of `video`, one after another.

    Args:
      model, states, camera, fps, options: as for `video`.

    Returns:
      An iterator of uint8 images (height, width, 3).

    Raises:
      ValueError: states without a time axis, or of several worlds.
    """
    if isinstance(states, State):
        states = poses_of(model, at_frames(states, fps))
    if states.xpos.ndim != 3:
        raise ValueError(f"a film shows states (T, ...) of one world; xpos has shape {states.xpos.shape}")
    poses = jax.tree.map(np.asarray, states)
    plan = plan_of(model, options.get("hidden_groups", HIDDEN_GROUPS))
    shown = Frame(*options.get("size", (640, 360)), options.get("samples", 1))
    scene = scene_of(model, plan, poses)
    places = jax.tree.map(np.asarray, scene.places)
    for k, view in enumerate(cameras(model, poses, camera, fps)):
        now = scene._replace(places=jax.tree.map(lambda leaf, k=k: leaf[k], places))
        yield picture(now, plan, pose(model, _at(poses, k), view), shown)


def at_frames(states: State, fps: float) -> State:
    """The states (T, ...) or (T, worlds, ...) nearest to the times of frames."""
    if states.qpos.ndim < 2:
        raise ValueError(f"a film shows states (T, ...), one after another; qpos has shape {states.qpos.shape}")
    time = np.asarray(states.time).reshape(len(states.qpos), -1)[:, 0]
    count = max(1, math.floor((time[-1] - time[0]) * fps + 1e-3) + 1)
    wanted = time[0] + np.arange(count) / fps
    nearest = np.abs(time[None] - wanted[:, None]).argmin(axis=1)
    # in numpy: JAX would compile a program for each leaf
    return jax.tree.map(lambda leaf: np.asarray(leaf)[nearest], states)


def cameras(model: Model, poses: Kinematics, camera: Camera, fps: float) -> list[Camera]:
    """A camera for each of the poses (T, ...); one that follows a body moves smoothly."""
    if camera is not None and not isinstance(camera, View):
        return [camera] * len(poses.xpos)
    # one distance for the whole film
    camera = settled(model, _at(poses, 0), camera or View())
    if camera.follow is None:
        return [camera] * len(poses.xpos)
    path = np.asarray(poses.xpos)[:, model.body(camera.follow).id]
    path = smooth(path, CALM * fps) + np.asarray(camera.lookat or (0.0, 0.0, 0.0))
    return [dataclasses.replace(camera, follow=None, lookat=tuple(point)) for point in path.tolist()]


def smooth(path: np.ndarray, width: float) -> np.ndarray:
    """The path (T, 3) smoothed by a Gaussian bell, whose standard deviation is `width` points."""
    distance = np.arange(len(path))[:, None] - np.arange(len(path))
    weight = np.exp(-0.5 * (distance / max(width, 1e-6)) ** 2)
    return weight @ path / weight.sum(axis=1, keepdims=True)


def _at(poses: Kinematics, k: int) -> Kinematics:
    return jax.tree.map(lambda leaf: leaf[k], poses)


FILMS = (".mp4", ".mov")


def save(path: str | pathlib.Path, image: np.ndarray | Sequence[np.ndarray], fps: float = 30.0) -> None:
    """Writes one image (PNG, JPEG ... by the file's ending), or several as an animated GIF or a film (mp4).

    Args:
      path: the file; an existing one is replaced.
      image: uint8 (height, width, 3), or a sequence of such frames.
      fps: frames per second.

    Raises:
      ArgumentError: a film without ffmpeg, which the package imageio-ffmpeg brings, or one that it cannot write.
    """
    frames = [image] if isinstance(image, np.ndarray) and image.ndim == 3 else [np.asarray(frame) for frame in image]
    if pathlib.Path(path).suffix.lower() in FILMS:
        # H.264 wants even sizes
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
    """The program ffmpeg, of the package imageio-ffmpeg or of the system."""
    if importlib.util.find_spec("imageio_ffmpeg") is not None:
        return importlib.import_module("imageio_ffmpeg").get_ffmpeg_exe()
    program = shutil.which("ffmpeg")
    if program is None:
        raise ArgumentError(f"{path}: films need ffmpeg or the package imageio-ffmpeg (extra viz); a .gif does not")
    return program
