"""The offline player: what the file holds, that a browser draws it, and that no text of a model can break it."""

import base64
import gzip
import json
import pathlib
import re
import subprocess
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracle import load_pair
from PIL import Image

import diffsim
from diffsim import viewer, viz
from diffsim.base.enums import GeomType
from diffsim.viewer.scene import KINDS
from tests.viewer.browser import CHROMIUM, FLAGS

XML = """<mujoco>
  <asset>
    <mesh name='wedge' vertex='0 0 0  1 0 0  0 1 0  0 0 1'/>
    <hfield name='hills' nrow='3' ncol='4' size='2 1 .5 .1' elevation='0 0 0 0  0 1 1 0  0 0 0 0'/>
  </asset>
  <worldbody>
    <geom type='plane' size='0 0 .1'/><geom type='hfield' hfield='hills' pos='0 3 0'/>
    <camera name='top &lt;/script>' pos='0 0 5'/><site name='anchor' pos='0 0 2'/>
    <body name='red' pos='0 0 .5'><freejoint/>
      <geom type='box' size='.3 .2 .1' rgba='.9 .05 .05 1'/><geom type='mesh' mesh='wedge' group='3'/>
      <site name='spot' pos='0 0 .2'/></body>
  </worldbody>
  <tendon><spatial width='.02' rgba='.1 .1 .9 1'><site site='anchor'/><site site='spot'/></spatial></tendon>
</mujoco>"""


@pytest.fixture(scope="module")
def moving() -> tuple[diffsim.Model, diffsim.State]:
    """A box that rises and turns for a second."""
    model, _ = load_pair(XML)
    state, time = diffsim.make_state(model), jnp.linspace(0, 1, 11)

    def at(t: jax.Array) -> diffsim.State:
        turned = jnp.stack([jnp.cos(t), 0 * t, 0 * t, jnp.sin(t)])
        return state.replace(time=t, qpos=jnp.concatenate([jnp.stack([2 * t, 0 * t, 0.5 + 0.2 * t]), turned]))

    return model, jax.vmap(at)(time)


def opened(path: pathlib.Path) -> tuple[dict[str, Any], bytes]:
    """The header and the numbers of a page."""
    text = path.read_text()
    part = lambda name: re.findall(f'id="{name}">(.*?)</script>', text, re.DOTALL)[0]  # noqa: E731
    return json.loads(part("scene")), gzip.decompress(base64.b64decode(part("numbers")))


def array(place: dict[str, Any], numbers: bytes) -> np.ndarray:
    return np.frombuffer(numbers, place["kind"], place["count"], place["start"])


def test_the_file_holds_shapes_and_poses(moving: tuple, tmp_path: pathlib.Path) -> None:
    model, states = moving
    assert viewer.to_html(model, states, tmp_path / "a.html", fps=10) == (tmp_path / "a.html").stat().st_size
    scene, numbers = opened(tmp_path / "a.html")
    poses = viz.poses_of(model, states)
    assert (scene["frames"], scene["worlds"], scene["bodies"]) == (11, 1, 2)
    positions = array(scene["positions"], numbers).reshape(11, 1, 2, 3)
    np.testing.assert_allclose(positions[:, 0], poses.xpos, atol=1e-6)
    quats = array(scene["quaternions"], numbers).reshape(11, 1, 2, 4) / 32767
    np.testing.assert_allclose(quats[:, 0], poses.xquat, atol=2e-5)
    assert [shape["kind"] for shape in scene["shapes"]] == ["plane", "mesh", "box", "mesh", "sphere", "sphere"]
    assert [shape["hidden"] for shape in scene["shapes"]] == [False, False, False, True, False, False]
    wedge = scene["meshes"][scene["shapes"][3]["mesh"]]
    np.testing.assert_allclose(array(wedge["vertex"], numbers).reshape(-1, 3), model.mesh_vert, atol=1e-6)
    assert array(wedge["face"], numbers).max() == 3
    hills = array(scene["meshes"][scene["shapes"][1]["mesh"]]["vertex"], numbers).reshape(-1, 3)
    np.testing.assert_allclose(hills.max(axis=0), [2, 1, 0.5], atol=1e-6)
    assert scene["cameras"][0]["name"] == "top </script>"
    lines = array(scene["pieces"]["lines"], numbers).reshape(11, 1, 1, 7)
    np.testing.assert_allclose(lines[:, 0, 0, :3], 11 * [[0, 0, 2]], atol=1e-6)
    np.testing.assert_allclose(lines[:, 0, 0, 3:6], poses.site_xpos[:, 1], atol=1e-6)
    assert scene["pieces"]["rgba"] == [[0.1, 0.1, 0.9, 1]]
    # nothing is loaded from anywhere
    assert not re.search(r"(src|href|url)\s*[=(]", (tmp_path / "a.html").read_text())


def test_worlds_stand_side_by_side(moving: tuple, tmp_path: pathlib.Path) -> None:
    model, states = moving
    both = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf], axis=1), states)
    viewer.to_html(model, both, tmp_path / "two.html", fps=10)
    assert opened(tmp_path / "two.html")[0]["worlds"] == 2
    with pytest.raises(ValueError, match="one after another"):
        viewer.to_html(model, jax.tree.map(lambda leaf: leaf[0], states), tmp_path / "no.html")
    assert "<iframe srcdoc=" in viewer.play(model, states)._repr_html_()


def test_every_type_of_geom_is_drawn_or_named() -> None:
    # the rest are no types of geoms of a model
    assert all(kind > 100 for kind in set(GeomType) - set(KINDS))


def red_pixels(path: pathlib.Path, time: float) -> np.ndarray:
    """Where a page shows red at a time, above its controls (330, 640)."""
    shot = path.with_suffix(".png")
    look = [f"--screenshot={shot}", "--window-size=640,400", "--virtual-time-budget=4000"]
    subprocess.run(
        [str(CHROMIUM), *FLAGS, *look, path.as_uri() + f"#t={time}"], check=True, capture_output=True, timeout=120
    )
    image = np.asarray(Image.open(shot).convert("RGB")).astype(int)[:330]
    return (image[:, :, 0] > 2 * image[:, :, 1]) & (image[:, :, 0] > 90)


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
def test_a_browser_draws_the_box_where_it_is(moving: tuple, tmp_path: pathlib.Path) -> None:
    model, states = moving
    viewer.to_html(model, states, tmp_path / "a.html", viz.View((1.0, 0, 0.6), 5, 90, 0), fps=10)
    columns = []
    for time in (0.0, 1.0):
        red = red_pixels(tmp_path / "a.html", time)
        assert red.sum() > 300
        columns.append(np.nonzero(red)[1].mean())
    # it moves by 2 m to the right, at a distance of 5 m
    focal = 0.5 * 400 / np.tan(np.radians(22.5))
    assert columns[1] - columns[0] == pytest.approx(focal * 2 / 5, rel=0.1)


FALLING = """<mujoco><worldbody>
<body><freejoint/><geom type='box' size='.3 .2 .1' rgba='.9 .05 .05 1'/></body></worldbody></mujoco>"""


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
def test_what_falls_out_of_sight_is_followed(tmp_path: pathlib.Path) -> None:
    model = diffsim.load(FALLING)
    state, time = diffsim.make_state(model), jnp.linspace(0, 1, 11)
    states = jax.vmap(lambda t: state.replace(time=t, qpos=state.qpos.at[2].add(-50 * t)))(time)
    viewer.to_html(model, states, tmp_path / "a.html", fps=10)
    assert min(red_pixels(tmp_path / "a.html", time).sum() for time in (0.0, 1.0)) > 300
