"""geom_distance beside mj_geomDistance: near, far apart and penetrating; derivatives far apart; what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest
from derivatives import richardson
from geometry.hulls import free_scene
from uncompiled import uncompiled

import diffsim
from diffsim.compiler.convert import from_mujoco
from diffsim.types.data import Kinematics

NAMES = ("ball", "rod", "egg", "can", "crate", "stone", "block")
PAIRS = [("stone", "egg"), ("can", "stone"), ("crate", "stone"), ("block", "stone"), ("rod", "can")]
PAIRS += [("crate", "crate2"), ("floor", "stone")]
FLOOR = "<worldbody><geom name='floor' type='plane' size='1 1 1' pos='0 0 -1'/>"


def scene() -> oracle.mujoco.MjModel:
    """Free bodies over a floor, geoms named as in NAMES, and another crate."""
    text = free_scene(*NAMES, "crate").replace("<worldbody>", FLOOR)
    head, *geoms = text.split("<freejoint/><geom ")
    named = (f"<freejoint/><geom name='{name}' {rest}" for name, rest in zip((*NAMES, "crate2"), geoms, strict=True))
    return oracle.load_with_assets(head + "".join(named), {})


@pytest.fixture(scope="module")
def worlds() -> tuple:
    mjmodel = scene()
    rng, states = np.random.default_rng(0), []
    for spread in (0.1, 0.3, 1, 3, 10):
        poses = [np.concatenate([spread * rng.normal(size=3), rng.normal(size=4)]) for _ in range(mjmodel.nbody - 1)]
        states.append(oracle.posed(mjmodel, np.concatenate(poses)))
    return mjmodel, states, oracle.poses_of(mjmodel, states)


def test_distances_are_those_of_mujoco(worlds: tuple) -> None:
    mjmodel, states, batch = worlds
    model = from_mujoco(mjmodel)
    found = uncompiled(jax.vmap(lambda poses: [diffsim.geom_distance(model, poses, *pair) for pair in PAIRS]))(batch)
    apart = 0
    for pair, ours in zip(PAIRS, found, strict=True):
        ids = [mjmodel.geom(name).id for name in pair]
        for k, data in enumerate(states):
            ends = np.zeros(6)
            expected = oracle.mujoco.mj_geomDistance(mjmodel, data, *ids, 100, ends)
            assert ours.distance[k] == pytest.approx(expected, abs=1e-6 if expected > 0 else 1e-4)
            assert ours.point2[k] - ours.point1[k] == pytest.approx(ours.distance[k] * ours.normal[k], abs=1e-12)
            if expected > 0:
                apart += 1
                assert [*ours.point1[k], *ours.point2[k]] == pytest.approx(ends, abs=2e-3)
    assert apart > 18


def test_derivatives_far_apart(worlds: tuple) -> None:
    mjmodel, _, batch = worlds
    model = from_mujoco(mjmodel)
    pairs = [("can", "stone"), ("block", "stone")]
    poses = jax.tree.map(lambda x: x[-1], batch)
    change = jnp.asarray(np.random.default_rng(1).normal(size=poses.geom_xpos.shape))

    def distances(step: jax.Array) -> jax.Array:
        moved = poses.replace(geom_xpos=poses.geom_xpos + step * change)
        found = [diffsim.geom_distance(model, moved, *pair) for pair in pairs]
        return jnp.stack([jnp.append(each.normal, each.distance) for each in found])

    numeric = richardson(uncompiled(distances), 1.0, 1e-4)
    slope = uncompiled(lambda step: jax.jvp(distances, (step,), (jnp.ones_like(step),))[1])(0.0)
    assert np.abs(numeric).max() > 0.1
    np.testing.assert_allclose(slope, numeric, atol=1e-8)


def test_what_has_no_distance_is_refused() -> None:
    text = """<mujoco><asset><hfield name="h" nrow="2" ncol="2" size="1 1 1 1"/></asset><worldbody>
      <geom name="a" type="plane" size="1 1 1"/><geom name="b" type="plane" size="1 1 1"/>
      <geom name="hills" type="hfield" hfield="h"/><body><freejoint/><geom name="ball" size="1"/></body>
      </worldbody></mujoco>"""
    model, mjmodel = oracle.load_pair(text)
    poses = oracle.record_of(Kinematics, mjmodel, oracle.posed(mjmodel, mjmodel.qpos0))
    with pytest.raises(diffsim.UnsupportedError, match=r"'a'.*'b'.*no distance"):
        diffsim.geom_distance(model, poses, "a", "b")
    with pytest.raises(diffsim.UnsupportedError, match="height fields"):
        diffsim.geom_distance(model, poses, "ball", "hills")
