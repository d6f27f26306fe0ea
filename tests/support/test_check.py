"""check with a model: contacts that MuJoCo 3.8.1 makes too deep are named, and contacts of the true depth are not."""

import jax
import numpy as np
import oracle
import pytest
from geometry.hulls import free_scene
from uncompiled import uncompiled
from wide import wide

import diffsim

# two thin boxes, one tilted by 0.16 mrad on the other: C MuJoCo 3.8.1 says 33 mm where they overlap by 0.1 mm
SIZE = "0.13123623087629174 0.03154711807430396 0.002852058407289705"
TILT = "7.04803490965255e-05 0.00014181274000512904 -9.55628898548635e-06"
THIN = f"""<mujoco><worldbody>
  <body><freejoint/><geom name="low" type="box" size="{SIZE}"/></body>
  <body pos="0 0 0.005607905488194421" euler="{TILT}"><freejoint/><geom name="high" type="box" size="{SIZE}"/></body>
  </worldbody></mujoco>"""


def test_a_contact_that_the_oracle_makes_too_deep_is_named() -> None:
    theirs = oracle.load_with_assets(THIN, {})
    data = oracle.posed(theirs, theirs.qpos0)
    assert data.contact.dist.min() == pytest.approx(-0.0335038, abs=1e-6)
    assert oracle.mujoco.mj_geomDistance(theirs, data, 0, 1, 1, None) == pytest.approx(-9.657e-5, abs=1e-7)
    model = diffsim.load(THIN)
    state = diffsim.make_state(model)
    # the second world has the boxes apart
    apart = state.replace(qpos=state.qpos.at[9].add(0.1))
    states = jax.tree.map(lambda *leaves: np.stack(leaves), apart, state)
    ours = uncompiled(jax.vmap(diffsim.forward, in_axes=(None, 0)))(model, states)
    assert diffsim.check(ours) == []
    (line,) = diffsim.check(ours, model)
    assert line.startswith("CONTACT_TOO_DEEP in world 1: a contact of geoms 'low' (id 0) and 'high' (id 1) is 0.0335 m")
    assert "their distance is -9.66e-05 m" in line
    # as MuJoCo 4.0 collides boxes
    later = diffsim.load(THIN, mujoco="4.0")
    data = uncompiled(diffsim.forward)(later, state)
    assert np.asarray(data.contact.dist).min() > -1e-3 and diffsim.check(data, later) == []


@pytest.mark.parametrize("names", [("rod", "crate"), *wide([("crate", "egg"), ("stone", "block")])])
def test_deep_contacts_of_the_true_depth_are_not_named(names: tuple[str, str]) -> None:
    text = free_scene(*names).replace("<worldbody>", "<worldbody><geom type='plane' size='1 1 1'/>")
    model = diffsim.load(text)
    rng = np.random.default_rng(0)
    state = diffsim.make_state(model)
    places = [np.concatenate([0.05 * rng.normal(size=3), rng.normal(size=4)]) for _ in range(8)]
    states = jax.vmap(lambda q: state.replace(qpos=q))(np.reshape(places, (4, 14)).astype(state.qpos.dtype))
    data = uncompiled(jax.vmap(diffsim.forward, in_axes=(None, 0)))(model, states)
    deep = -np.asarray(data.contact.dist).min()
    assert deep > 0.05 and not any("TOO_DEEP" in line for line in diffsim.check(data, model))


def test_a_model_goes_with_data_only() -> None:
    model = diffsim.load("<mujoco><worldbody><body><joint/><geom size='1'/></body></worldbody></mujoco>")
    with pytest.raises(TypeError, match="contacts are compared for Data, and this is a int"):
        diffsim.check(0, model)
