"""A view that is asked for nothing shows the model, or what moves in a landscape much larger than it."""

import jax
import jax.numpy as jnp
import numpy as np

import diffsim
from diffsim import viz
from diffsim.types.data import Kinematics
from diffsim.viewer.scene import scene
from diffsim.viz.film import cameras
from diffsim.viz.view import sight

XML = """<mujoco><worldbody><geom type="plane" size="{side} {side} .1"/>
  <body pos="3 1 0"><joint type="slide" axis="1 0 0"/><geom size=".2"/>
    <body pos="0 0 .4"><geom size=".1"/></body></body>
</worldbody></mujoco>"""


def poses(side: float, places: list[float]) -> tuple[diffsim.Model, Kinematics]:
    """Poses of the body moved along x, one frame each."""
    model = diffsim.load(XML.format(side=side))
    state = diffsim.make_state(model)
    states = [state.replace(qpos=jnp.asarray([x]), time=jnp.asarray(0.1 * k)) for k, x in enumerate(places)]
    return model, viz.poses_of(model, jax.tree.map(lambda *leaves: jnp.stack(leaves), *states))


def test_what_moves_is_seen_in_a_landscape() -> None:
    model, shown = poses(50, [0.5])
    middle, extent = sight(model, jax.tree.map(lambda leaf: leaf[0], shown))
    np.testing.assert_allclose(middle, [3.5, 1, 0.15], atol=1e-6)
    np.testing.assert_allclose(extent, 0.7, atol=1e-6)
    # a scene that is not much larger is seen whole
    model, shown = poses(2, [0.5])
    middle, extent = sight(model, jax.tree.map(lambda leaf: leaf[0], shown))
    np.testing.assert_allclose([*middle, extent], [*np.asarray(model.stat.center), model.stat.extent])


def test_a_film_keeps_its_distance() -> None:
    model, shown = poses(50, [0.5, 2.5])
    one, two = cameras(model, shown, None, 10)
    assert one == two
    np.testing.assert_allclose([*one.lookat, one.distance], [3.5, 1, 0.15, 1.05], atol=1e-6)
    near = cameras(model, shown, viz.View(lookat=(0, 0, 1)), 10)
    assert [view.lookat for view in near] == 2 * [(0, 0, 1)]


def test_the_player_begins_there() -> None:
    model, shown = poses(50, [0.5])
    header, _ = scene(model, jax.tree.map(lambda leaf: leaf[:, None], shown), 10.0, viz.View())
    np.testing.assert_allclose([*header["center"], header["distance"]], [3.5, 1, 0.15, 1.05], atol=1e-6)
