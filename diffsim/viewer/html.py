"""to_html: a trajectory as one file that any browser plays, without a network and without a server."""

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
    """Writes a trajectory as an HTML file, to turn, zoom and scrub.

        final, states = diffsim.rollout(model, state, ctrl)
        viewer.to_html(model, states, "walk.html")

    Args:
      model: the model.
      states: stacked states (T, ...), or of several worlds, (T, worlds, ...), which are shown side by side; or poses
        of `viz.poses_of`, one a frame.
      path: file to write.
      camera: from where to look at first.
      fps: frames per second that are stored; the player moves smoothly between them.
      title: of the page.

    Returns:
      Size of the file in bytes.

    Raises:
      ValueError: states without a time axis.
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
    """The text of `to_html`.

    Raises:
      ValueError: states without a time axis.
    """
    poses = poses_of(model, at_frames(states, fps)) if isinstance(states, State) else states
    # numpy from here on: JAX would compile a program for each slice of each shape
    poses = jax.tree.map(np.asarray, poses)
    if poses.xpos.ndim == 3:
        poses = jax.tree.map(lambda leaf: leaf[:, None], poses)
    if poses.xpos.ndim != 4:
        raise ValueError(f"give states (T, ...) or (T, worlds, ...); xpos has shape {poses.xpos.shape}")
    return _filled(*scene(model, poses, fps, camera or View()), title)


def live_page(session: Session, camera: View | None = None, title: str = "diffsim") -> str:
    """The page of a live view: the player of one frame, which live.js writes over, and controls."""
    header, numbers = session.scene(camera)
    return _filled(header | {"live": session.controls()}, numbers, title, "live")


def _filled(header: dict[str, Any], numbers: bytes, title: str, extra: str | None = None) -> str:
    """The player's page of a scene; `extra` is the name, without ending, of files with more HTML and more script."""
    read = lambda ending: (HERE / f"{extra}.{ending}").read_text() if extra else ""  # noqa: E731
    parts = {
        "TITLE": html.escape(title),
        # no text of a model can end the element that it stands in
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
    """A trajectory as a player for notebooks, which show it as the value of a cell. Arguments as for `to_html`."""

    def __init__(
        self,
        model: Model,
        states: State | Kinematics,
        camera: View | None = None,
        fps: float = 60.0,
        height: int = 480,
    ) -> None:
        self.text, self.height = page(model, states, camera, fps), height

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
    """A player of a trajectory: the last line of a notebook's cell shows it.

    Args:
      model, states, camera, fps: as for `to_html`.
      height: of the player, in pixels.

    Returns:
      The player; `save` writes it to a file.

    Raises:
      ValueError: states without a time axis.
    """
    return Player(model, states, camera, fps, height)
