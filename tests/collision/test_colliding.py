"""Contacts of the frames of those geoms that collide are those of all frames, and so are their derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from uncompiled import uncompiled

import diffsim
from diffsim.collision import collide, colliding_frames, near_pairs, pair_rows
from diffsim.collision.layout import layout_of
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
    """Contacts and their derivative are those of all pairs, in worlds where few of 66 are near and where most are."""
    bodies = "".join(f"<body><freejoint/><geom type='box' size='.1 .{k % 3 + 1} .15'/></body>" for k in range(12))
    model, rng = diffsim.load(f"<mujoco><worldbody>{bodies}</worldbody></mujoco>"), np.random.default_rng(0)
    turns = rng.normal(size=(2, 12, 4))
    places = rng.normal(size=(2, 12, 3)) * np.array([0.5, 0.1])[:, None, None]
    poses = np.concatenate([places, turns / np.linalg.norm(turns, axis=-1, keepdims=True)], axis=-1).reshape(2, -1)

    def depth(qpos: jax.Array) -> tuple[jax.Array, jax.Array]:
        frames = compute_kinematics(model, qpos, jnp.zeros((0, 3)), jnp.zeros((0, 4)))
        contact = collide(model, frames)
        dist = jnp.minimum(contact.dist, 0)
        return jnp.sum(dist * (1 + contact.pos[:, 0])), (dist, contact.ncon_dropped)

    results = []
    # by a list of near pairs and in rounds, in rounds alone, and all pairs
    never = 1 << 20
    for listed, fewest in ((1, pair_rows.FEWEST), (never, pair_rows.FEWEST), (never, never)):
        monkeypatch.setattr(near_pairs, "LISTED", listed)
        monkeypatch.setattr(pair_rows, "FEWEST", fewest)
        both = uncompiled(jax.vmap(jax.value_and_grad(depth, has_aux=True)))
        results.append([both(worlds) for worlds in (poses[:1], poses)])
    for others in results[1:]:
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11), results[0], others)
    dist, dropped = results[0][1][0][1]
    touching = np.sum(dist < 0, axis=1)
    assert touching[0] > 4 and dropped[0] == 0
    assert touching[1] == dist.shape[1] and dropped[1] > 0


@pytest.mark.parametrize(
    ("shape", "dims", "max_pairs"),
    [("size='.1'", [1] + [3] * 11 + [1], 32), ("type='box' size='.1 .1 .1'", [3] * 12 + [4] * 4 + [1, 1], None)],
)
def test_rows_fill_the_slots_of_their_own_dimension(shape: str, dims: list[int], max_pairs: int | None) -> None:
    """Geoms of dimension 1 touch only each other, in fewer rows than there are slots; the others compete for slots."""
    alone = "contype='4' conaffinity='4'"
    geoms = [f"{shape} condim='{dim}' {alone if dim == 1 else ''}" for dim in dims]
    bodies = "".join(f"<body><freejoint/><geom {geom}/></body>" for geom in geoms)
    model = diffsim.load(f"<mujoco><worldbody>{bodies}</worldbody></mujoco>", max_pairs=max_pairs)
    layout, rng = layout_of(model), np.random.default_rng(1)
    qpos = np.tile([0.0, 0, 0, 1, 0, 0, 0], (len(dims), 1))
    qpos[:, :3] = 0.2 * rng.normal(size=(len(dims), 3))
    qpos[np.array(dims) == 1, :3] = [[5, 0, 0], [5.1, 0.02, 0.01]]

    def contacts(qpos: jax.Array) -> tuple[jax.Array, ...]:
        found = collide(model, compute_kinematics(model, qpos, jnp.zeros((0, 3)), jnp.zeros((0, 4))))
        return found.dist, found.geom

    dist, geom = uncompiled(contacts)(jnp.asarray(qpos.ravel()))
    assert len(dist) == layout.ncon
    touching = np.flatnonzero(dist < 0)
    expected = np.max(np.asarray(dims)[np.asarray(geom)[touching]], axis=1)
    np.testing.assert_array_equal(layout.dim[touching], expected)
    assert len(set(expected.tolist())) > 1
