"""Films: frames in real time, a camera that follows, files by their ending."""

import pathlib
import subprocess

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracle import load_pair
from PIL import Image

import diffsim
from diffsim import viz
from diffsim.viz.film import at_frames, cameras, ffmpeg, smooth

XML = """<mujoco><worldbody>
  <geom type='plane' size='0 0 .1'/>
  <body name='ball' pos='0 0 .3'><joint name='x' type='slide' axis='1 0 0'/>
    <geom type='sphere' size='.3' rgba='.9 .1 .1 1'/></body>
</worldbody></mujoco>"""


def run(seconds: float, speed: float) -> tuple[diffsim.Model, diffsim.State]:
    """A ball that rolls along x, in steps of 10 ms; made, not simulated."""
    model, _ = load_pair(XML)
    time = jnp.arange(0, seconds, 0.01)
    state = diffsim.make_state(model)
    return model, jax.vmap(lambda t: state.replace(time=t, qpos=jnp.reshape(speed * t, (1,))))(time)


def test_frames_are_those_of_their_times() -> None:
    _, states = run(1.005, 2.0)
    shown = at_frames(states, 20)
    np.testing.assert_allclose(shown.time, np.arange(21) / 20, atol=1e-12)
    np.testing.assert_allclose(shown.qpos[:, 0], 2 * shown.time)
    with pytest.raises(ValueError, match="one after another"):
        at_frames(jax.tree.map(lambda leaf: leaf[0], states), 20)


def test_a_camera_follows_calmly() -> None:
    model, states = run(2.0, 1.5)
    poses = viz.poses_of(model, at_frames(states, 10))
    views = cameras(model, poses, viz.View(follow="ball", lookat=(0, 0, 0.1), distance=3), 10)
    path = np.array([view.lookat for view in views])
    # straight in the middle; at the ends it lags by a bit
    np.testing.assert_allclose(path[8:12], np.asarray(poses.xpos)[8:12, 1] + [0, 0, 0.1], atol=1e-3)
    rough = np.random.default_rng(0).normal(size=(50, 3))
    assert np.std(np.diff(smooth(rough, 3.0), axis=0)) < 0.1 * np.std(np.diff(rough, axis=0))


def test_the_ball_stays_in_the_picture(tmp_path: pathlib.Path) -> None:
    model, states = run(0.41, 20.0)
    view = viz.View(follow="ball", distance=4)
    count = viz.video(model, states, tmp_path / "ball.gif", view, fps=10, size=(48, 32))
    with Image.open(tmp_path / "ball.gif") as film:
        assert film.n_frames == count == 5
        film.seek(2)
        pixel = np.asarray(film.convert("RGB"))[16, 24].astype(int)
    assert pixel[0] > 1.5 * pixel[1]
    with pytest.raises(ValueError, match="one world"):
        next(viz.frames(model, jax.tree.map(lambda leaf: leaf[:, None], states)))


def test_mp4(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frames = [np.full((33, 48, 3), shade, np.uint8) for shade in (0, 200)]
    viz.save(tmp_path / "two.mp4", frames, fps=10)
    decode = [ffmpeg(""), "-i", tmp_path / "two.mp4", "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    raw = subprocess.run(decode, capture_output=True, check=True).stdout
    np.testing.assert_allclose(np.frombuffer(raw, np.uint8).reshape(2, 32 * 48 * 3).mean(axis=1), [0, 200], atol=4)
    with pytest.raises(diffsim.ArgumentError, match="ffmpeg says"):
        viz.save(tmp_path / "nowhere" / "two.mp4", frames)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(diffsim.ArgumentError, match="imageio-ffmpeg"):
        viz.save(tmp_path / "no.mp4", frames)
