"""Pictures and films as files: the ending of the name says which."""

import importlib
import importlib.util
import pathlib
import shutil
import subprocess
from collections.abc import Sequence

import numpy as np
from PIL import Image

from diffsim.base.errors import ArgumentError

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
        return _save_film(path, frames, fps)
    first, *rest = [Image.fromarray(frame) for frame in frames]
    if rest:
        first.save(path, save_all=True, append_images=rest, duration=round(1000 / fps), loop=0)
    else:
        first.save(path)


def _save_film(path: str | pathlib.Path, frames: list[np.ndarray], fps: float) -> None:
    """Films by ffmpeg, H.264."""
    # the codec wants even sizes
    height, width = (side // 2 * 2 for side in frames[0].shape[:2])
    raw = b"".join(np.ascontiguousarray(frame[:height, :width]).tobytes() for frame in frames)
    source = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", str(fps), "-i", "-"]
    coded = ["-an", "-vcodec", "libx264", "-pix_fmt", "yuv420p", "-crf", "18", "-movflags", "+faststart"]
    done = subprocess.run([ffmpeg(path), "-y", *source, *coded, str(path)], input=raw, capture_output=True)
    if done.returncode:
        raise ArgumentError(f"{path}: ffmpeg says: {done.stderr.decode(errors='replace')[-300:].strip()}")


def ffmpeg(path: str | pathlib.Path) -> str:
    """The program ffmpeg, of the package imageio-ffmpeg or of the system."""
    if importlib.util.find_spec("imageio_ffmpeg") is not None:
        return importlib.import_module("imageio_ffmpeg").get_ffmpeg_exe()
    found = shutil.which("ffmpeg")
    if found is None:
        raise ArgumentError(f"{path}: films need ffmpeg or the package imageio-ffmpeg (extra viz); a .gif does not")
    return found
