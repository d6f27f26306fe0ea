"""pixels: the picture of `render` as a pure function, its depths and names, and its derivatives beside differences."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import diffsim
from diffsim import viz
from diffsim.base.enums import ObjType

XML = """<mujoco><asset><mesh name="m" builtin="sphere" params="1" scale=".3 .3 .3"/>
<texture name="t" type="2d" builtin="checker" width="32" height="32" rgb1="1 0 0" rgb2="0 1 0"/>
<material name="mat" texture="t" specular=".7"/></asset><worldbody><geom type="plane" size="0 0 .1"/>
<camera name="top" pos="0 -2 3" xyaxes="1 0 0 0 .8 .6" fovy="45"/>
<body pos="0 0 .4"><freejoint/><geom type="box" size=".3 .2 .1" rgba=".9 .2 .1 1"/><site name="a" pos="0 0 .1"/>
<geom type="mesh" mesh="m" pos=".6 0 .2" rgba=".2 .3 .9 1"/></body>
<body pos=".1 .7 .3"><joint axis="0 1 0"/><geom type="capsule" size=".2 .2" material="mat"/>
<site name="b" pos="0 0 .3"/></body></worldbody>
<tendon><spatial width=".03"><site site="a"/><site site="b"/></spatial></tendon></mujoco>"""
SIZE = (32, 24)
STEP = 1e-4
# by which parts of a step the seven worlds are moved
PARTS = np.array([0, 1, -1, 0.5, -0.5, 0, 0])


def solid(picture: viz.Pixels) -> tuple[jax.Array, jax.Array]:
    """Depths, 0 for nothing, and colours."""
    return jnp.where(jnp.isfinite(picture.depth), picture.depth, 0), picture.rgb


class Seen(NamedTuple):
    """Depths, colours and names of seven worlds, and the derivatives of both along a direction."""

    model: diffsim.Model
    away: np.ndarray
    values: tuple[np.ndarray, np.ndarray]
    tangents: tuple[np.ndarray, np.ndarray]
    names: np.ndarray


@pytest.fixture(scope="module")
def seen() -> Seen:
    """The last world but one has darker colours, and in the last one the box cannot be seen."""
    model = diffsim.load(XML)
    state = diffsim.make_state(model)
    away = jnp.asarray(np.random.default_rng(0).normal(size=state.qpos.shape))
    colours = jnp.stack([*[model.geom_rgba] * 5, model.geom_rgba * 0.5, model.geom_rgba.at[1, 3].set(0.0)])

    def look(rgba: jax.Array, qpos: jax.Array) -> tuple:
        picture = viz.pixels(model.replace(geom_rgba=rgba), state.replace(qpos=qpos), "top", SIZE)
        return solid(picture), picture.segmentation

    @jax.jit
    @jax.vmap
    def moving(rgba: jax.Array, part: jax.Array) -> tuple:
        return jax.jvp(lambda q: look(rgba, q), (state.qpos + part * STEP * away,), (away,), has_aux=True)

    values, tangents, names = jax.tree.map(np.asarray, moving(colours, jnp.asarray(PARTS)))
    return Seen(model, np.asarray(away), values, tangents, names)


def test_it_is_the_picture_that_is_rendered(seen: Seen) -> None:
    model, state = seen.model, diffsim.make_state(seen.model)
    rendered = viz.render(model, state, "top", SIZE, samples=1).astype(int)
    # float64 beside float32: a few pixels on edges fall to the other side
    assert (np.abs(np.round(255 * seen.values[1][0]) - rendered) > 1).mean() < 0.01
    kinds = set(map(tuple, seen.names[0].reshape(-1, 2).tolist()))
    assert {(geom, int(ObjType.GEOM)) for geom in range(model.ngeom)} | {(0, int(ObjType.TENDON))} == kinds
    # a plane's depth along the axis of the camera, which looks from (0, -2, 3) along (0, .6, -.8), through a pixel
    row, column = 22, 3
    focal = SIZE[1] / 2 / np.tan(np.radians(45 / 2))
    rise = -0.8 + (SIZE[1] / 2 - row - 0.5) / focal * 0.6
    assert seen.names[0][row, column, 0] == 0
    np.testing.assert_allclose(seen.values[0][0][row, column], 3 / -rise, rtol=1e-9)


def test_depths_and_colours_have_derivatives(seen: Seen) -> None:
    same = (seen.names[:5, ..., 0] == seen.names[:1, ..., 0]).all(axis=0)
    wide, narrow = ([(v[k] - v[k + 1]) / (2 * h) for v in seen.values] for k, h in ((1, STEP), (3, STEP / 2)))
    depth, colour = ((4 * n - w) / 3 for n, w in zip(narrow, wide, strict=True))
    assert same.mean() > 0.9
    np.testing.assert_allclose(seen.tangents[0][0][same], depth[same], atol=1e-6)
    # colours change over edges of shadows, texels and facets too, where differences see jumps
    wrong = np.abs(colour - seen.tangents[1][0]).max(axis=-1) > 1e-5
    assert wrong[same].mean() < 0.05 and np.abs(colour[same]).max() > 0.1


def test_reverse_mode_agrees_and_is_finite(seen: Seen) -> None:
    rng = np.random.default_rng(1)
    weights = [jnp.asarray(rng.normal(size=part.shape[1:])) for part in seen.values]
    state = diffsim.make_state(seen.model)

    @jax.jit
    def slopes(qpos: jax.Array, model: diffsim.Model) -> tuple:
        def total(qpos: jax.Array, model: diffsim.Model) -> jax.Array:
            parts = solid(viz.pixels(model, state.replace(qpos=qpos), "top", SIZE))
            return sum((jnp.sum(part * weight) for part, weight in zip(parts, weights, strict=True)), jnp.zeros(()))

        return jax.grad(total, (0, 1))(qpos, model)

    by_qpos, by_model = slopes(state.qpos, seen.model)
    along = sum(np.vdot(part[0], weight) for part, weight in zip(seen.tangents, weights, strict=True))
    np.testing.assert_allclose(np.vdot(by_qpos, seen.away), along, rtol=1e-9)
    assert all(np.isfinite(np.asarray(leaf)).all() for leaf in jax.tree.leaves(by_model))
    assert np.abs(by_model.geom_rgba).max() > 0 and np.abs(by_model.mesh_vert).max() > 0


def test_worlds_have_colours_of_their_own(seen: Seen) -> None:
    box = (seen.names[..., 0] == 1) & (seen.names[..., 1] == int(ObjType.GEOM))
    assert box[5].any() and (seen.values[1][5][box[5]] < seen.values[1][0][box[0]]).mean() > 0.9
    # an alpha of 0 takes the box away
    assert not box[6].any()


def test_a_view_needs_numbers(seen: Seen) -> None:
    with pytest.raises(ValueError, match="takes numbers for lookat and distance"):
        viz.pixels(seen.model, diffsim.make_state(seen.model), viz.View(), SIZE)
    # with numbers it asks for nothing that is not known when a program is traced
    numbers = viz.View(lookat=(0.0, 0.0, 0.0), distance=2.0)
    state = diffsim.make_state(seen.model)
    shapes = jax.eval_shape(lambda model, state: viz.pixels(model, state, numbers, SIZE), seen.model, state)
    assert shapes.rgb.shape == (SIZE[1], SIZE[0], 3)
