"""Contacts of the frames of those geoms that collide are those of all frames, and so are their derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from uncompiled import uncompiled

import diffsim
from diffsim.collision import collide, colliding_frames, near_pairs, pair_rows
from diffsim.geometry.buckets import GeomFrames
from diffsim.kinematics.poses import compute_kinematics

# geoms that collide with nothing before, between and after those that do; of three kept pairs of boxes two are examined
SCENE = """<mujoco><custom><numeric name="max_geom_pairs" data="2"/></custom><worldbody>
<geom size="1" contype="0" conaffinity="0"/><geom type="plane" size="3 3 .1" quat="1 .02 .01 0"/>
<body pos="0 0 .1"><freejoint/><geom type="box" size=".1 .2 .1"/><geom size=".3" contype="0" conaffinity="0"/></body>
<body pos=".1 0 .3"><freejoint/><geom type="box" size=".1 .2 .1" quat="1 .2 .3 0"/></body>
<body pos=".1 .1 .5"><freejoint/><geom pos="0 0 .4" size=".3" contype="0" conaffinity="0"/>
<geom type="box" size=".1 .2 .1"/></body></worldbody></mujoco>"""


def test_contacts_and_derivatives_are_those_of_all_frames() -> None:
    model = diffsim.load(SCENE)
    qpos = model.qpos0 + 0.02 * jnp.cos(jnp.arange(model.nq))

    def contacts(qpos: jax.Array, fewer: bool) -> tuple[jax.Array, ...]:
        poses = compute_kinematics(model, qpos, jnp.zeros((0, 3)), jnp.zeros((0, 4)))
        frames = colliding_frames(model, poses) if fewer else poses
        assert isinstance(frames, GeomFrames) == fewer
        found = collide(model, frames)
        return found.dist, found.pos, found.frame

    for function in map(uncompiled, (contacts, jax.jacrev(contacts))):
        few, every = (function(qpos, fewer=fewer) for fewer in (True, False))
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11), few, every)
    assert np.any(uncompiled(contacts)(qpos, fewer=True)[0] < 0)


def test_of_many_boxes_those_that_are_near_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Contacts and their derivative are those of all pairs, in worlds where few of 190 are near and where most are."""
    bodies = "".join(f"<body><freejoint/><geom type='box' size='.1 .{k % 3 + 1} .15'/></body>" for k in range(20))
    model, rng = diffsim.load(f"<mujoco><worldbody>{bodies}</worldbody></mujoco>"), np.random.default_rng(0)
    turns = rng.normal(size=(2, 20, 4))
    places = rng.normal(size=(2, 20, 3)) * np.array([0.5, 0.1])[:, None, None]
    poses = np.concatenate([places, turns / np.linalg.norm(turns, axis=-1, keepdims=True)], axis=-1).reshape(2, -1)

    def depth(qpos: jax.Array) -> tuple[jax.Array, jax.Array]:
        frames = compute_kinematics(model, qpos, jnp.zeros((0, 3)), jnp.zeros((0, 4)))
        contact = collide(model, frames)
        dist = jnp.minimum(contact.dist, 0)
        return jnp.sum(dist * (1 + contact.pos[:, 0])), dist

    results = []
    # by a list of near pairs and in rounds, in rounds alone, and all pairs
    never = 1 << 20
    for listed, fewest in ((near_pairs.LISTED, pair_rows.FEWEST), (never, pair_rows.FEWEST), (never, never)):
        monkeypatch.setattr(near_pairs, "LISTED", listed)
        monkeypatch.setattr(pair_rows, "FEWEST", fewest)
        both = uncompiled(jax.vmap(jax.value_and_grad(depth, has_aux=True)))
        results.append([both(worlds) for worlds in (poses[:1], poses)])
    for others in results[1:]:
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11), results[0], others)
    touching = [np.sum(world < 0) for world in results[0][1][0][1]]
    assert touching[0] > 4 and touching[1] == len(results[0][1][0][1][1])
