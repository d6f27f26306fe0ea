"""Pictures: the right thing in the right place, shadows, hidden geoms, files."""

import jax
import numpy as np
import pytest
from oracle import load_pair
from PIL import Image

from diffsim.types.state import make_state
from diffsim.viz import View, render, save

XML = """<mujoco><worldbody>
  <geom type='plane' size='0 0 .1'/>
  <camera name='top' pos='0 0 4' xyaxes='1 0 0 0 1 0' fovy='45'/>
  <geom name='ball' type='sphere' size='.3' pos='1 .5 .3' rgba='.9 .1 .1 1'/>
  <geom name='shy' type='box' size='.3 .3 .3' pos='-1 -.5 .3' rgba='.1 .9 .1 1' group='3'/>
</worldbody></mujoco>"""
SMALL = {"size": (64, 48), "samples": 1}


def is_red(pixel: np.ndarray) -> bool:
    return pixel[0] > 1.5 * pixel[1] and pixel[0] > 1.5 * pixel[2]


def test_ball_is_where_the_camera_sees_it() -> None:
    model, _ = load_pair(XML)
    image = render(model, make_state(model), "top", **SMALL)
    assert image.shape == (48, 64, 3) and image.dtype == np.uint8
    # 24 pixels span tan(22.5 deg) of the depth
    focal = 24 / np.tan(np.radians(22.5))
    column, row = 32 + focal * 1 / 3.7, 24 - focal * 0.5 / 3.7
    assert is_red(image[int(row), int(column)])
    assert not is_red(image[-int(row), int(column)])


def test_shadow_is_darker_than_the_floor() -> None:
    model, _ = load_pair(XML)
    image = render(model, make_state(model), "top", **SMALL).astype(int)
    floor = image[:, :, 2][~np.apply_along_axis(is_red, 2, image)]
    # two tiles, each lit and in shadow
    assert floor.min() < 0.8 * np.percentile(floor, 20)


def test_shares_of_a_picture_are_the_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many cores draw it, of one state and of several; five do not divide its 48 squares."""
    model, _ = load_pair(XML)
    state = make_state(model)
    two = jax.tree.map(lambda leaf: np.stack([leaf, leaf]), state)
    alone, shared = [], []
    for cores, images in ((1, alone), (5, shared)):
        monkeypatch.setattr("os.cpu_count", lambda cores=cores: cores)
        images += [render(model, each, "top", **SMALL) for each in (state, two)]
    for one, other in zip(alone, shared, strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(shared[1][1], shared[0])


def test_hidden_groups_are_not_drawn() -> None:
    model, _ = load_pair(XML)
    greens = [
        int(np.sum(image[:, :, 1].astype(int) > 1.5 * image[:, :, 0]))
        for image in (render(model, make_state(model), "top", **SMALL, hidden_groups=hidden) for hidden in ((3,), ()))
    ]
    assert greens[0] == 0 and greens[1] > 20


def test_free_view_looks_at_its_point(tmp_path) -> None:
    model, _ = load_pair(XML)
    view = View(lookat=(1, 0.5, 0.3), distance=3, azimuth=40, elevation=-30)
    image = render(model, make_state(model), view, **SMALL)
    assert is_red(image[24, 32])
    save(tmp_path / "one.png", image)
    with Image.open(tmp_path / "one.png") as read:
        np.testing.assert_array_equal(np.asarray(read), image)
    save(tmp_path / "two.gif", [image, image[::-1]])
    with Image.open(tmp_path / "two.gif") as read:
        assert read.n_frames == 2


def test_unknown_camera_is_named() -> None:
    model, _ = load_pair(XML)
    with pytest.raises(KeyError, match="topp"):
        render(model, make_state(model), "topp", **SMALL)


def test_a_model_without_anything_to_see_is_sky() -> None:
    model, _ = load_pair("<mujoco><worldbody><geom size='1' rgba='1 1 1 0'/></worldbody></mujoco>")
    image = render(model, make_state(model), **SMALL).astype(int)
    assert image.shape == (48, 64, 3) and (image[:, :, 2] > image[:, :, 0]).all()
