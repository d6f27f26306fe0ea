"""Contacts and their parameters against the oracle, fed with the oracle's geom poses."""

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest
from geometry.scenes import CLOSED_FORM, CONVEX, PLANE, name_of, random_qpos, random_shape, scene
from uncompiled import uncompiled

from diffsim.collision import collide
from diffsim.geometry.smooth.minkowski import gap, minkowski_sums
from diffsim.geometry.smooth.separate import separate
from diffsim.types.data import Contacts

PARAMETERS = ("includemargin", "friction", "solref", "solreffriction", "solimp")
# all models: `make measure WHAT=parity`
MODELS = [
    "dm_control/suite/manipulator.xml",
    "gymnasium/envs/mujoco/assets/ant.xml",
    "mujoco/mjx/test_data/humanoid/humanoid.xml",
    "mujoco/mjx/test_data/constraints.xml",
]

many = uncompiled(jax.vmap(collide, in_axes=(None, 0)))


def contacts_of(model, mjmodel, states) -> list[Contacts]:
    """Our contacts of some states of the oracle, evaluated in one batch."""
    batch = many(model, oracle.poses_of(mjmodel, states))
    return [jax.tree.map(lambda x, k=k: np.asarray(x[k]), batch) for k in range(len(states))]


def assert_same_parameters(contacts: Contacts, data) -> None:
    """Every contact of the oracle has a slot with its pair, point, frame and parameters."""
    for contact in (contact for contact in data.contact if contact.exclude == 0):
        same = np.flatnonzero(np.all(contacts.geom == contact.geom, axis=1))
        slot = same[np.argmin(np.max(np.abs(contacts.pos[same] - contact.pos), axis=1))]
        oracle.assert_close("frame", contacts.frame[slot], contact.frame.reshape(3, 3), 1e-9)
        for name in PARAMETERS:
            oracle.assert_close(name, getattr(contacts, name)[slot], np.asarray(getattr(contact, name)), 1e-12)


@pytest.mark.parametrize("types", CLOSED_FORM, ids=name_of)
def test_random_poses(types: tuple) -> None:
    model, mjmodel = oracle.load_pair(scene(types))
    rng = np.random.default_rng(0)
    number = 1 if types[0] == PLANE else 2
    states = [oracle.posed(mjmodel, random_qpos(number, rng)) for _ in range(200)]
    assert sum(data.ncon > 0 for data in states) > 30
    for ours, data in zip(contacts_of(model, mjmodel, states), states, strict=True):
        oracle.assert_same_contacts(ours, data, 1e-9)
        assert_same_parameters(ours, data)
        assert ours.ncon_dropped == 0


@pytest.mark.parametrize("path", MODELS)
def test_real_models(path: str) -> None:
    model, mjmodel = oracle.load_pair(path)
    states = [oracle.sample(mjmodel, seed) for seed in range(2)] + oracle.visited_states(mjmodel, 3)
    for ours, data in zip(contacts_of(model, mjmodel, states), states, strict=True):
        oracle.assert_same_contacts(ours, data, 1e-9)
        assert_same_parameters(ours, data)
        assert ours.ncon_dropped == 0


@pytest.mark.parametrize("types", CONVEX, ids=name_of)
def test_signed_distance_is_the_greatest_gap(types: tuple) -> None:
    """No direction separates better than the one found, apart and penetrating."""
    rng = np.random.default_rng(1)
    pairs = [
        (random_shape(types[0], rng, spread), random_shape(types[1], rng, spread)) for spread in (0.05, 0.15, 0.4) * 20
    ]
    first, second = (jax.tree.map(lambda *x: jnp.stack(x), *shapes) for shapes in zip(*pairs, strict=True))
    directions = rng.normal(size=(5000, 3))
    directions = jnp.asarray(directions / np.linalg.norm(directions, axis=1, keepdims=True))

    def compare(shape1, shape2):
        pair = minkowski_sums(types, shape1, shape2)
        return separate(pair), jnp.max(jax.vmap(gap, (None, 0))(pair, directions))

    (dist, _, normal), best = uncompiled(jax.vmap(compare))(first, second)
    np.testing.assert_allclose(np.linalg.norm(normal, axis=1), 1, atol=1e-12)
    assert np.all(best <= dist + 1e-10)
    assert np.all(dist < best + 0.02)


@pytest.mark.parametrize("types", CONVEX[1:], ids=name_of)
def test_convex_pairs(types: tuple) -> None:
    """The oracle's search stops at 1e-6 in distance, so points and normals agree to the square root of that."""
    model, mjmodel = oracle.load_pair(scene(types))
    rng = np.random.default_rng(0)
    states = [oracle.posed(mjmodel, random_qpos(2, rng)) for _ in range(100)]
    for ours, data in zip(contacts_of(model, mjmodel, states), states, strict=True):
        active = (ours.geom[:, 0] >= 0) & (ours.dist < ours.includemargin)
        theirs = [contact for contact in data.contact if contact.exclude == 0]
        if len(theirs) == 0:
            assert not np.any(active & (ours.dist < ours.includemargin - 1e-5))
            continue
        assert abs(np.min(ours.dist) - min(contact.dist for contact in theirs)) < 2e-5
        assert np.max(np.abs(ours.frame[0, 0] - theirs[0].frame[:3])) < 0.05
