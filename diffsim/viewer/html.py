"""to_html and play: a trajectory as one HTML file that any browser plays offline, without a server."""

import base64
import gzip
import html
import json
import pathlib
from typing import Any

import jax
import numpy as np

from diffsim.base.checked import checked
from diffsim.types import Model, State
from diffsim.types.data import Kinematics
from diffsim.viewer.scene import scene
from diffsim.viewer.session import Session
from diffsim.viz.film import at_frames
from diffsim.viz.view import View, poses_of

HERE = pathlib.Path(__file__).parent


@checked
def to_html(
    model: Model,
    states: State | Kinematics,
    path: str | pathlib.Path,
    camera: View | None = None,
    fps: float = 60.0,
    title: str = "diffsim",
) -> int:
    """Writes a trajectory as an HTML file with a player: turn, zoom, and move through time.

        final, states = diffsim.rollout(model, state, ctrl)
        viewer.to_html(model, states, "walk.html")

    Args:
      model: the model.
      states: stacked states (T, ...); or (T, worlds, ...), shown side by side; or poses from `viz.poses_of`, one per
        frame.
      path: file to write.
      camera: the initial camera.
      fps: stored frames per second; the player interpolates between them.
      title: title of the page.

    Returns:
      Size of the file in bytes.

    Raises:
      ValueError: the states have no time axis.
    """
    text = page(model, states, camera, fps, title)
    pathlib.Path(path).write_text(text, encoding="utf-8")
    return len(text.encode())


def page(
    model: Model,
    states: State | Kinematics,
    camera: View | None = None,
    fps: float = 60.0,
    title: str = "diffsim",
) -> str:
    """The HTML text that `to_html` writes.

    Raises:
      ValueError: the states have no time axis.
    """
    poses = poses_of(model, at_frames(states, fps)) if isinstance(states, State) else states
    # numpy from here on, because JAX would compile a program for each slice of each shape
    poses = jax.tree.map(np.asarray, poses)
    if poses.xpos.ndim == 3:
        poses = jax.tree.map(lambda leaf: leaf[:, None], poses)
    if poses.xpos.ndim != 4:
        raise ValueError(f"states must be (T, ...) or (T, worlds, ...), but xpos has shape {poses.xpos.shape}")
    return _filled(*scene(model, poses, fps, camera or View()), title)


def live_page(session: Session, camera: View | None = None, title: str = "diffsim") -> str:
    """The page of a live view: the player with controls, and with one frame, which live.js overwrites."""
    header, numbers = session.scene(camera)
    return _filled(header | {"live": session.controls()}, numbers, title, "live")


def _filled(header: dict[str, Any], numbers: bytes, title: str, extra: str | None = None) -> str:
    """Fills in the page of the player; `extra` names files (without extension) with more HTML and more JavaScript."""
    read = lambda suffix: (HERE / f"{extra}.{suffix}").read_text() if extra else ""  # noqa: E731
    parts = {
        "TITLE": html.escape(title),
        # escape "<", so that a name in the model cannot close the script element (</script>)
        "SCENE": json.dumps(header, separators=(",", ":")).replace("<", "\\u003c"),
        "NUMBERS": base64.b64encode(gzip.compress(numbers, 9, mtime=0)).decode(),
        "EXTRA": read("html"),
        "SCRIPT": (HERE / "player.js").read_text() + read("js"),
    }
    text = (HERE / "player.html").read_text()
    for name, value in parts.items():
        text = text.replace(f"@{name}@", value)
    return text


class Player:
    """A player of a trajectory that a notebook shows as the value of a cell. Arguments as in `to_html`."""

    def __init__(
        self,
        model: Model,
        states: State | Kinematics,
        camera: View | None = None,
        fps: float = 60.0,
        height: int = 480,
    ) -> None:
        self.text = page(model, states, camera, fps)
        self.height = height

    def _repr_html_(self) -> str:
        inside = html.escape(self.text, quote=True)
        return f'<iframe srcdoc="{inside}" width="100%" height="{self.height}" style="border:0"></iframe>'

    def save(self, path: str | pathlib.Path) -> None:
        """Writes the HTML file."""
        pathlib.Path(path).write_text(self.text, encoding="utf-8")


@checked
def play(
    model: Model, states: State | Kinematics, camera: View | None = None, fps: float = 60.0, height: int = 480
) -> Player:
    """Makes a player of a trajectory, which a notebook shows if it is the last line of a cell.

    Args:
      model, states, camera, fps: as in `to_html`.
      height: height of the player in pixels.

    Returns:
      The player; its method `save` writes it to a file.

    Raises:
      ValueError: the states have no time axis.
    """
    return Player(model, states, camera, fps, height)
