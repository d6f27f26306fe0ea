"""Ellipsoids and cylinders against meshes: distance beside a search over many directions, contact sets, derivatives."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest
from derivatives import slopes_in_worlds
from geometry.hulls import free_scene, random_states
from scipy.spatial import ConvexHull, QhullError
from scipy.spatial.transform import Rotation
from uncompiled import uncompiled
from wide import wide

from diffsim.collision import collide
from diffsim.compiler.convert import from_mujoco
from diffsim.types.data import Kinematics

SINGLE = "<mujoco><option><flag multiccd='disable'/></option>"


@functools.cache
def scene(*kinds: str, single: bool = False) -> tuple:
    """The model, MuJoCo's, and the contacts of many worlds; with one contact for each pair if `single`."""
    text = free_scene(*kinds)
    mjmodel = oracle.load_with_assets(text.replace("<mujoco>", SINGLE) if single else text, {})
    return from_mujoco(mjmodel), mjmodel, uncompiled(jax.vmap(collide, in_axes=(None, 0)))


def gaps(normals: np.ndarray, size: np.ndarray, is_cylinder: bool, corners: np.ndarray) -> np.ndarray:
    """The gap along unit vectors (n, 3) between a body at the origin and corners (v, 3) of a hull, in its frame."""
    nearest = (normals @ corners.T).min(axis=1)
    if is_cylinder:
        return nearest - size[0] * np.hypot(normals[:, 0], normals[:, 1]) - size[1] * np.abs(normals[:, 2])
    return nearest - np.linalg.norm(normals * size, axis=1)


def greatest_gap(rng: np.random.Generator, *body: Any) -> float:
    """By many directions, and ever closer ones around the best."""
    best, step = rng.normal(size=(6000, 3)), 0.05
    for _ in range(50):
        best = best / np.linalg.norm(best, axis=1)[:, None]
        values = gaps(best, *body)
        best = best[np.argsort(-values)[:20]]
        best = np.concatenate([best, (best[:, None] + step * rng.normal(size=(len(best), 30, 3))).reshape(-1, 3)])
        step *= 0.7
    return float(values.max())


@pytest.mark.parametrize("kinds", [("egg", "stone"), ("can", "block"), *wide([("can", "wedge")])], ids="-".join)
def test_no_direction_is_better(kinds: tuple[str, str]) -> None:
    """Distance and normal belong together, and no other direction has a greater gap; MuJoCo's search stops at 1e-6."""
    model, mjmodel, run = scene(*kinds, single=True)
    states = random_states(mjmodel, 24)
    # true distances of bodies that are apart too
    contacts = run(model.replace(geom_margin=model.geom_margin + 9), oracle.poses_of(mjmodel, states))
    rng, first, number = np.random.default_rng(0), mjmodel.mesh_vertadr[0], mjmodel.mesh_vertnum[0]
    for k, data in enumerate(states):
        turns = [mat.reshape(3, 3) for mat in data.geom_xmat]
        mesh = mjmodel.mesh_vert[first : first + number] @ turns[1].T + data.geom_xpos[1] - data.geom_xpos[0]
        body = mjmodel.geom_size[0], kinds[0] == "can", mesh @ turns[0]
        distance = float(contacts.dist[k, 0])
        assert gaps(contacts.frame[k, :1, 0] @ turns[0], *body)[0] == pytest.approx(distance, abs=1e-12)
        assert distance > greatest_gap(rng, *body) - 1e-8
        assert (distance < 0) == (data.ncon > 0)
        if data.ncon:
            assert distance == pytest.approx(data.contact.dist[0], abs=1e-3)
            # halfway between a point on the surface of the body and one on that of the mesh
            normal = contacts.frame[k, 0, 0] @ turns[0]
            middle = (contacts.pos[k, 0] - data.geom_xpos[0]) @ turns[0]
            assert height_over(middle - 0.5 * distance * normal, *body[:2]) == pytest.approx(0, abs=1e-9)
            nearest = np.min(body[2] @ normal)
            assert (middle + 0.5 * distance * normal) @ normal == pytest.approx(nearest, abs=1e-9)


# the deepest direction is square to the axis and to an edge: no side, and far from all other starts
BETWEEN = [([0.049, 0.028, 0.032], [-0.374, 0.814, 0.4, 0.196]), ([0.027, -0.011, 0.089], [0.049, 0.816, -0.43, 0.384])]


def test_the_side_of_a_cylinder_meets_an_edge() -> None:
    model, mjmodel, run = scene("can", "stone", single=True)
    upright = [0, 0, 0, 1, 0, 0, 0]
    states = [oracle.posed(mjmodel, np.array([*upright, *place, *turn])) for place, turn in BETWEEN]
    contacts = run(model, oracle.poses_of(mjmodel, states))
    corners = mjmodel.mesh_vert[: mjmodel.mesh_vertnum[0]]
    for k, data in enumerate(states):
        mesh = corners @ data.geom_xmat[1].reshape(3, 3).T + data.geom_xpos[1]
        best = greatest_gap(np.random.default_rng(0), mjmodel.geom_size[0], True, mesh)
        assert float(contacts.dist[k, 0]) == pytest.approx(best, abs=1e-8)
        assert abs(contacts.frame[k, 0, 0, 2]) < 1e-9


@pytest.mark.parametrize("turn", [[np.sqrt(0.5), 0, 0, np.sqrt(0.5)], [0, np.sqrt(0.5), np.sqrt(0.5), 0]])
def test_ellipsoids_with_parallel_axes(turn: list[float]) -> None:
    """By symmetry many directions are saddles of the gap; the deepest is none of them."""
    model, mjmodel, run = scene("egg", "egg")
    data = oracle.posed(mjmodel, np.array([0, 0, 0, 1, 0, 0, 0, 0, 0, 0.155, *turn]))
    contacts = run(model, oracle.poses_of(mjmodel, [data]))
    axes = [mat.reshape(3, 3) * mjmodel.geom_size[k] for k, mat in enumerate(data.geom_xmat)]
    rng = np.random.default_rng(0)
    best, step = rng.normal(size=(2000, 3)), 0.1
    for _ in range(40):
        best = best / np.linalg.norm(best, axis=1)[:, None]
        values = best @ data.geom_xpos[1] - sum(np.linalg.norm(best @ axis, axis=1) for axis in axes)
        best = best[np.argsort(-values)[:10]]
        best = np.concatenate([best, (best[:, None] + step * rng.normal(size=(10, 30, 3))).reshape(-1, 3)])
        step *= 0.7
    assert float(contacts.dist[0, 0]) == pytest.approx(values.max(), abs=1e-8)


def height_over(point: np.ndarray, size: np.ndarray, is_cylinder: bool) -> float:
    """How far a point is outside of a body at the origin; of an ellipsoid in units of its sizes."""
    if is_cylinder:
        return max(np.hypot(*point[:2]) - size[0], abs(point[2]) - size[1])
    return float(np.linalg.norm(point / size)) - 1


def quat(rotation: Rotation) -> np.ndarray:
    return rotation.as_quat()[[3, 0, 1, 2]]


@pytest.mark.parametrize(("kind", "lies"), [("can", False), ("can", True), ("rod", True)])
def test_a_body_on_a_flat_side(kind: str, lies: bool) -> None:
    """Its contacts span at least as much as MuJoCo's, less a hundredth; a capsule has its ends and their middle."""
    model, mjmodel, run = scene(kind, "block")
    rng, states = np.random.default_rng(0), []
    for _ in range(6):
        whole, turn = Rotation.from_quat(rng.normal(size=4)), Rotation.from_euler("z", rng.uniform(0, 6))
        tipped = turn * Rotation.from_euler("y", np.pi / 2 * lies)
        place = np.array([*rng.uniform(-0.06, 0.06, size=2), 0.2 + mjmodel.geom_size[0, int(not lies)] - 0.002])
        poses = [
            whole.apply(place),
            (whole * tipped).as_quat()[[3, 0, 1, 2]],
            np.zeros(3),
            whole.as_quat()[[3, 0, 1, 2]],
        ]
        states.append(oracle.posed(mjmodel, np.concatenate(poses)))
    contacts = run(model, oracle.poses_of(mjmodel, states))
    for k, data in enumerate(states):
        used = np.asarray(contacts.dist[k]) < 0
        assert used.sum() == 3 if kind == "rod" else used.sum() >= 2 + (not lies)
        np.testing.assert_allclose(contacts.dist[k][used], -0.002, atol=1e-8)
        np.testing.assert_allclose(
            contacts.frame[k][used][:, 0], data.contact.frame[:1, :3].repeat(used.sum(), 0), atol=3e-3
        )
        assert spread(np.asarray(contacts.pos[k])[used], lies) > 0.99 * spread(data.contact.pos, lies)


def spread(points: np.ndarray, is_line: bool) -> float:
    """The area that points of a plane span, or the length."""
    middle = points - points.mean(axis=0)
    axes = np.linalg.svd(middle, full_matrices=False)[2]
    if is_line:
        return float(np.ptp(middle @ axes[0]))
    try:
        return float(ConvexHull(middle @ axes[:2].T).volume)
    except QhullError:
        return 0.0


def test_derivatives_with_respect_to_poses_sizes_and_vertices() -> None:
    model, mjmodel, _ = scene("can", "stone", single=True)
    batch = oracle.poses_of(mjmodel, random_states(mjmodel, 8, seed=2))
    rng = np.random.default_rng(0)
    leaves = (model.mesh_vert, model.geom_size, np.zeros((2, 3)), np.zeros((2, 3, 3)))
    change = tuple(0.3 * jnp.asarray(rng.normal(size=np.shape(leaf))) for leaf in leaves)

    def outputs(parameters: tuple, poses: Kinematics) -> jax.Array:
        vertex, size, shift, turn = parameters
        moved = poses.replace(geom_xpos=poses.geom_xpos + shift, geom_xmat=poses.geom_xmat + turn)
        edited = model.replace(mesh_vert=model.mesh_vert + vertex, geom_size=model.geom_size + size)
        contacts = collide(edited, moved)
        return jnp.concatenate([contacts.dist, contacts.pos[0], contacts.frame[0, 0]])

    slopes = slopes_in_worlds(outputs, change, batch)
    # another feature within the steps bends them
    smooth = slopes.bends.max(axis=1) < 1e-6
    assert smooth.sum() > 4
    np.testing.assert_allclose(slopes.tangent[smooth], slopes.numeric[smooth], atol=2e-6, rtol=2e-6)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_singular_places_are_finite(dtype: Any) -> None:
    """In one place, upright on top of each other, and far apart."""
    for kind in ("can", *wide(["egg"])) if dtype == jnp.float32 else ("egg", *wide(["can"])):
        model, mjmodel, _ = scene(kind, "block", single=True)
        states = []
        for height in (0, 0.36, 0.4, 5):
            qpos = np.zeros(14)
            qpos[[3, 10]], qpos[9] = 1, height
            states.append(oracle.posed(mjmodel, qpos))
        cast = lambda x: jnp.asarray(x, dtype) if jnp.issubdtype(jnp.asarray(x).dtype, jnp.floating) else x  # noqa: E731
        small, batch = jax.tree.map(cast, (model, oracle.poses_of(mjmodel, states)))

        def total(pos: jax.Array, mat: jax.Array, poses: Kinematics, small: Any = small) -> jax.Array:
            contacts = collide(small, poses.replace(geom_xpos=pos, geom_xmat=mat))
            return jnp.sum(contacts.dist) + jnp.sum(contacts.pos) + jnp.sum(contacts.frame)

        both = uncompiled(jax.vmap(jax.jit(jax.value_and_grad(total, argnums=(0, 1)))))
        for leaf in jax.tree.leaves(both(batch.geom_xpos, batch.geom_xmat, batch)):
            assert leaf.dtype == dtype and np.all(np.isfinite(leaf))
