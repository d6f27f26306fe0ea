"""Rays against meshes and height fields: the oracle's answers, derivatives, batches, closed surfaces."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracle import assert_close, load_pair, rays_of
from ray_scenes import GEOMS, Scene, scene
from scipy.linalg import expm
from uncompiled import uncompiled

import diffsim
from diffsim.compiler.host.interpret import interpret
from diffsim.geometry.rays.ray import RayHits, Rays, cast
from diffsim.simulate.constants import constants
from diffsim.types import Model

COUNT = 400
FACETED = ("mesh", "hfield")


def hits_of(model: Model, xpos: jax.Array, xmat: jax.Array, origin: jax.Array, direction: jax.Array) -> RayHits:
    return cast(model, xpos, xmat, Rays(origin, direction, np.full(len(origin), -1)))


trace = uncompiled(hits_of)


def traced(each: Scene, model: Model | None = None) -> RayHits:
    return trace(model or each.model, each.mjdata.geom_xpos, each.xmat, each.origin, each.direction)


@pytest.mark.parametrize("kinds", [FACETED, tuple(GEOMS)])
def test_distance_geom_and_normal(kinds: tuple[str, ...]) -> None:
    for seed in range(2):
        each = scene(kinds, COUNT, seed)
        distance, geom, normal = rays_of(each.mjmodel, each.mjdata, each.origin, each.direction)
        ours = traced(each)
        assert len(set(geom)) > 4
        np.testing.assert_array_equal(ours.geom, geom)
        assert_close("distance", ours.distance, distance, 1e-9, 1e-9)
        assert_close("normal", ours.normal, normal, 1e-9)


@uncompiled
def push(model: Model, leaves: dict, changes: dict, values: tuple, tangents: tuple) -> tuple:
    def outcome(leaves: dict, values: tuple) -> tuple:
        hits = hits_of(model.replace(**leaves), *values)
        return hits.distance, hits.normal

    return jax.jvp(outcome, (leaves, values), (changes, tangents))


def test_derivatives() -> None:
    """By vertices, heights, sizes, poses and rays, against differences."""
    each, rng = scene(FACETED, COUNT, 2), np.random.default_rng(0)
    leaves = {name: getattr(each.model, name) for name in ("mesh_vert", "hfield_data", "hfield_size")}
    values = (each.mjdata.geom_xpos, each.xmat, each.origin, each.direction)
    # rotation matrices change in their tangent space
    spin = np.cross(np.eye(3)[None], 0.3 * rng.normal(size=(len(each.xmat), 1, 3)))
    changes = jax.tree.map(lambda leaf: jnp.asarray(0.1 * rng.normal(size=leaf.shape)), leaves)
    tangents = [0.3 * rng.normal(size=value.shape) for value in values]
    tangents[1] = each.xmat @ spin

    def at(step: float) -> RayHits:
        moved = [value + step * tangent for value, tangent in zip(values, tangents, strict=True)]
        moved[1] = each.xmat @ np.stack([expm(step * part) for part in spin])
        changed = {name: leaf + step * changes[name] for name, leaf in leaves.items()}
        return trace(each.model.replace(**changed), *moved)

    step = 1e-6
    ours = push(each.model, leaves, changes, values, tuple(tangents))[1]
    ahead, behind, nearby, other = at(step), at(-step), at(100 * step), at(-100 * step)
    # rays near an edge are left out: there the two sides differ
    smooth = (nearby.geom == other.geom) & (ahead.geom >= 0)
    smooth &= np.linalg.norm(nearby.normal - other.normal, axis=1) < 0.01
    slope = np.abs(np.sum(ahead.normal * each.direction, axis=1)) / np.linalg.norm(each.direction, axis=1)
    smooth &= slope > 0.1
    assert smooth.sum() > COUNT / 2 and set(np.asarray(ahead.geom)[smooth]) == set(range(5))
    for mine, after, before in ((ours[0], ahead.distance, behind.distance), (ours[1], ahead.normal, behind.normal)):
        numeric = (after - before) / (2 * step)
        error = np.abs(mine - numeric).reshape(COUNT, -1).max(axis=1)
        size = 1 + np.abs(numeric).reshape(COUNT, -1).max(axis=1)
        assert np.max((error / size)[smooth]) < 1e-6


def test_reverse_mode_agrees_with_forward_mode_and_is_finite() -> None:
    each = scene(FACETED, COUNT, 2)
    leaves = {name: getattr(each.model, name) for name in ("mesh_vert", "hfield_data", "hfield_size")}
    values = (each.mjdata.geom_xpos, each.xmat, each.origin, each.direction)

    def total(leaves: dict, values: tuple) -> jax.Array:
        hits = hits_of(each.model.replace(**leaves), *values)
        return jnp.sum(hits.distance) + jnp.sum(hits.normal)

    gradients = uncompiled(jax.grad(total, argnums=(0, 1)))(leaves, values)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(gradients))
    rng = np.random.default_rng(1)
    changes = jax.tree.map(lambda leaf: rng.normal(size=leaf.shape), (leaves, values))
    forward = push(each.model, leaves, changes[0], values, changes[1])[1]
    products = jax.tree.map(lambda gradient, change: np.sum(np.asarray(gradient) * change), gradients, changes)
    assert_close("total", sum(jax.tree.leaves(products)), np.sum(forward[0]) + np.sum(forward[1]), 1e-7, 1e-7)


def test_a_batch_is_its_worlds() -> None:
    """Worlds that share their meshes are searched in one go, others one after another; heights can differ too."""
    each, rng = scene(FACETED, COUNT, 3), np.random.default_rng(0)
    xpos = each.mjdata.geom_xpos[None] + 0.1 * rng.normal(size=(2, 5, 3))
    names, args = ("mesh_vert", "mesh_boxes", "hfield_data"), (each.xmat, each.origin, each.direction)
    own = {name: jnp.stack([scale * getattr(each.model, name) for scale in (0.9, 1.1)]) for name in names}
    in_axes = (diffsim.model_axes(each.model, *names), 0, None, None, None)
    shared = uncompiled(jax.vmap(hits_of, in_axes=(None, 0, None, None, None)))(each.model, xpos, *args)
    single = uncompiled(jax.vmap(hits_of, in_axes=in_axes))(each.model.replace(**own), xpos, *args)
    for world in range(2):
        model = each.model.replace(**{name: values[world] for name, values in own.items()})
        for batch, used in ((shared, each.model), (single, model)):
            for ours, expected in zip(batch, trace(used, xpos[world], *args), strict=True):
                assert_close("batch", ours[world], expected, 1e-12, 1e-12)


def test_no_ray_escapes_a_closed_mesh_in_float32() -> None:
    """Rays to the vertices and edges from inside, where rounding might open a gap between triangles."""
    each = scene(FACETED, COUNT, 0)
    model = jax.tree.map(lambda leaf: leaf.astype(np.float32), each.model)
    topology, rng = model.topology, np.random.default_rng(0)
    face, vertex = topology.mesh_face[: topology.mesh_facenum[0]], np.asarray(model.mesh_vert)
    ends = vertex[face[:, :2]]
    share = rng.uniform(size=(len(face), 1)) * (np.arange(len(face)) % 3 > 0)[:, None]
    aims = ends[:, 0] + (ends[:, 1] - ends[:, 0]) * share.astype(np.float32)
    nowhere = np.full((5, 3), 50, np.float32) * np.arange(5, dtype=np.float32)[:, None]
    upright = np.broadcast_to(np.eye(3, dtype=np.float32), (5, 3, 3))
    for start in ((0, 0, 0), (0.1, 0.05, -0.2)):
        origin = np.broadcast_to(np.array(start, np.float32), aims.shape)
        hits = trace(model, nowhere, upright, origin, aims - origin)
        assert np.all(np.asarray(hits.geom) == 0)
        assert_close("distance", hits.distance, np.ones(len(aims)), 1e-4)


def test_trees_follow_the_vertices() -> None:
    """`set_const` makes them again."""
    model = scene(FACETED, COUNT, 4).model
    gone = {"mesh_boxes": 0 * model.mesh_boxes, "mesh_leafvert": 0 * model.mesh_leafvert}
    found = interpret(constants, model.replace(mesh_vert=0.5 * model.mesh_vert, **gone))
    assert_close("mesh_leafvert", found["mesh_leafvert"], 0.5 * np.asarray(model.mesh_leafvert), 1e-15)
    boxes, there = found["mesh_boxes"], np.abs(model.mesh_boxes) < 1e29
    assert_close("mesh_boxes", boxes[there], 0.5 * np.asarray(model.mesh_boxes)[there], 1e-15)
    np.testing.assert_array_equal(boxes[~there], np.asarray(model.mesh_boxes)[~there])


def test_fields_of_one_row_are_their_base() -> None:
    text = """<mujoco><asset><hfield name='line' nrow='1' ncol='4' size='1 1 1 .5'/></asset>
      <worldbody><geom type='hfield' hfield='line'/></worldbody></mujoco>"""
    origin = np.array([(0.3, 0.2, 3), (3, 0.2, -0.1), (3, 0, 0.1)])
    direction = np.array([(0, 0, -1.0), (-1, 0, 0), (-1, 0, 0)])
    hits = trace(load_pair(text)[0], np.zeros((1, 3)), np.eye(3)[None], origin, direction)
    assert_close("distance", hits.distance, np.array([3.0, 2, -1]), 1e-12)
