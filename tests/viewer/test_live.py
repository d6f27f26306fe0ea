"""The live view: it runs with the clock, does what it is told, pulls bodies, and a browser shows what moves."""

import functools
import json
import pathlib
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

import diffsim
from diffsim import viewer, viz
from diffsim.viewer.session import Session
from tests.viewer.browser import CHROMIUM, FLAGS, browse

XML = """<mujoco>
  <option timestep='.005'/>
  <worldbody>
    <geom type='plane' size='0 0 .1'/><camera name='side' pos='0 -3 1' xyaxes='1 0 0 0 .3 1'/>
    <body name='red' pos='0 0 .2'><joint type='slide' axis='1 0 0' name='x'/><joint type='slide' axis='0 0 1' name='z'/>
      <geom type='box' size='.3 .2 .2' rgba='.9 .05 .05 1' mass='2'/></body>
  </worldbody>
  <actuator><motor name='push' joint='x' ctrlrange='-4 4' gear='10'/><motor name='lift' joint='z'/></actuator>
  <keyframe><key name='high' qpos='0 1'/></keyframe>
</mujoco>"""
# from above, onto the middle of the box's top
DOWN = [{"point": [0.1, 0.0, 2.0], "direction": [0.0, 0.0, -1.0]}]


@functools.cache
def model() -> diffsim.Model:
    return diffsim.load(XML)


def session() -> Session:
    return Session(model(), diffsim.make_state(model()), diffsim.make_inputs(model()))


def place(seen: Session) -> np.ndarray:
    """Where the box is."""
    return np.frombuffer(seen.frame()[1], np.float32, 6)[3:]


def until(true: Callable[[], bool], seconds: float = 30) -> Iterator[None]:
    """Turns of a loop until something is true, which must be soon."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        yield


def test_time_passes_with_the_clock_and_stops() -> None:
    seen = session()
    for _ in range(6):
        seen.tick(0.02)
    assert seen.frame()[0]["time"] == pytest.approx(0.12, abs=0.006)
    seen.tell("run", False)
    seen.tick(0.02)
    seen.tell("step", 3)
    assert seen.frame()[0]["time"] == pytest.approx(0.135, abs=0.006)
    seen.tell("reset")
    assert seen.frame()[0]["time"] == 0


def test_it_does_what_it_is_told() -> None:
    seen = session()
    assert seen.controls() == {"keys": ["high"], "ctrl": [["push", -4.0, 4.0], ["lift", -1.0, 1.0]]}
    seen.tell("key", 0)
    assert place(seen)[2] == pytest.approx(1.2)
    seen.tell("ctrl", [0, 2.5])
    assert seen.frame()[0]["ctrl"] == [2.5, 0]
    seen.tell("step", 20)
    # 12.5 m/s^2 for a tenth of a second, in the air
    assert place(seen)[0] == pytest.approx(0.5 * 12.5 * 0.1**2, rel=0.1)
    for command, value in (("fly", None), ("ctrl", [2, 0.0]), ("key", 1)):
        with pytest.raises(LookupError):
            seen.tell(command, value)


def test_applied_forces_of_the_user_act() -> None:
    inputs = diffsim.make_inputs(model())
    inputs = inputs.replace(xfrc_applied=inputs.xfrc_applied.at[1, 2].set(2 * 9.81 + 4.0))
    seen = Session(model(), diffsim.make_state(model(), "high"), inputs)
    seen.tell("step", 20)
    assert place(seen)[2] == pytest.approx(1.2 + 0.5 * 2 * 0.1**2, abs=2e-3)


def test_a_spring_pulls_what_is_grabbed() -> None:
    seen = session()
    seen.tell("grab", [{"point": [5.0, 0.0, 2.0], "direction": [0.0, 0.0, -1.0]}])
    seen.tell("drag", DOWN)
    for _ in range(5):
        seen.tell("step", 2)
    assert place(seen)[0] == 0
    # in the air
    seen.tell("key", 0)
    seen.tell("grab", DOWN)
    seen.tell("drag", [{"point": [0.6, 0.0, 2.0], "direction": [0.0, 0.0, -1.0]}])
    for _ in range(200):
        seen.tell("step", 2)
    # the grabbed point, .1 off the middle, is under the new ray
    assert place(seen)[0] == pytest.approx(0.5, abs=0.01)
    seen.tell("release")
    seen.tell("reset")
    seen.tell("step", 10)
    assert place(seen)[0] == 0


def test_frames_are_the_beginning_of_the_scene_and_show_forces() -> None:
    seen = session()
    header, numbers = seen.scene()
    news, frame = seen.frame()
    assert numbers[: len(frame)] == frame and frame
    for name in ("forces", "frames"):
        assert not news[name]
        seen.tell(name, True)
    seen.tell("step", 200)
    place, frame = header["pieces"]["lines"], seen.frame()[1]
    lines = np.frombuffer(frame, np.float32, place["count"], place["start"]).reshape(-1, 7)
    assert len(lines) == len(header["pieces"]["rgba"])
    forces, axes = lines[:-4], lines[-4:-1]
    acting = forces[forces[:, 6] > 0]
    # the box stands on its corners, which carry its weight
    assert len(acting) == 4
    lengths = acting[:, 5] - acting[:, 2]
    assert lengths.sum() == pytest.approx(0.3 * float(model().stat.extent), rel=1e-3)
    np.testing.assert_allclose((axes[:, 3:6] - axes[:, :3]) / (0.05 * float(model().stat.extent)), np.eye(3), atol=1e-6)
    assert lines[-1, 6] < 0


def ask(url: str, message: Any = None, **headers: str) -> tuple[int, dict[str, Any]]:
    """The status and the news of an answer."""
    data = None if message is None else json.dumps(message).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=30) as answer:
            return answer.status, json.loads(answer.headers["X-News"])
    except urllib.error.HTTPError as error:
        with error:
            return error.code, {}


def test_a_loop_of_the_user_is_shown_and_strangers_tell_nothing() -> None:
    with viewer.launch_passive(model(), browser=False) as live:
        moved = diffsim.make_state(model()).replace(qpos=jnp.asarray([0.7, 0.0]))
        live.sync(moved)
        assert place(live.session)[0] == pytest.approx(0.7)
        assert ask(live.url + "frame")[1]["running"] is False
        ours = {"X-Diffsim": "1"}
        assert ask(live.url + "tell", ["key", 0], **ours)[0] == 200
        assert place(live.session)[2] == pytest.approx(1.2)
        assert ask(live.url + "tell", ["reset", 0])[0] == 400
        assert ask(live.url + "tell", ["fly", 0], **ours)[0] == 400
        assert ask(live.url + "tell", 7, **ours)[0] == 400
        assert ask(live.url + "other")[0] == 404
        assert place(live.session)[2] == pytest.approx(1.2)
    with pytest.raises(urllib.error.URLError):
        ask(live.url)


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
def test_a_browser_shows_what_moves(tmp_path: pathlib.Path) -> None:
    columns = []
    with viewer.launch_passive(model(), camera=viz.View((0.0, 0, 0.3), 5, 90, -10), browser=False) as live:
        for x in (-0.6, 0.6):
            live.sync(diffsim.make_state(model()).replace(qpos=jnp.asarray([x, 0.0])))
            shot = tmp_path / f"{x}.png"
            look = [f"--screenshot={shot}", "--window-size=640,400", "--virtual-time-budget=3000", live.url]
            subprocess.run([str(CHROMIUM), *FLAGS, *look], check=True, capture_output=True, timeout=120)
            image = np.asarray(Image.open(shot).convert("RGB")).astype(int)
            red = (image[:, :, 0] > 2 * image[:, :, 1]) & (image[:, :, 0] > 2 * image[:, :, 2]) & (image[:, :, 0] > 90)
            assert red.sum() > 300
            columns.append(np.nonzero(red)[1].mean())
    assert abs(columns[1] - columns[0]) > 40


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
def test_a_mouse_pulls_a_body() -> None:
    ahead = viz.View((0.0, 0.0, 1.2), 5, 90, 0)
    with viewer.launch_passive(model(), camera=ahead, browser=False) as live, browse(live.url) as page:
        live.session.tell("key", 0)
        page.wait("document.body.dataset.frames > 2")
        height, x, y = page.evaluate(
            "(() => { const r = document.querySelector('canvas').getBoundingClientRect();"
            "return [r.height, r.left + r.width / 2, r.top + r.height / 2]; })()"
        )
        page.mouse("Pressed", x, y)
        page.mouse("Moved", x + 60, y)
        # the eye is 5 m away, the side of the box that is held 4.8 m
        expected = 60 * 4.8 * 2 * np.tan(np.radians(22.5)) / height
        for _ in until(lambda: abs(place(live.session)[0] - expected) < 0.02):
            live.session.tell("step", 2)
        page.mouse("Released", x + 60, y)
        for _ in until(lambda: int(live.session._grip.body[0]) == 0):
            time.sleep(0.05)
