"""Contacts of octrees beside MuJoCo's, their derivatives by poses and coefficients, and the field itself."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest
from derivatives import contact_rows
from geometry.field_scenes import OCTREE, SHAPES, extension, field_geom
from geometry.hulls import BOX
from uncompiled import uncompiled
from wide import only_wide

import diffsim
from diffsim.collision import collide
from diffsim.geometry.sdf.data import OctreeData, record_of
from diffsim.geometry.sdf.octree import Octree, levels, octree_function
from diffsim.types.data import Kinematics

STARTS = 6
CRATE = f"<mesh name='crate' vertex='{' '.join(map(str, (BOX * [0.2, 0.3, 0.25]).ravel()))}'/>"
WEDGE = "<mesh name='wedge' vertex='0 0 0 .5 0 0 0 .4 0 0 0 .6 .3 .3 .3'/>"
# two octrees, so that one does not begin at the first cell, and all that they meet
AMONG = f"""<mujoco>{extension("torus", OCTREE).replace("<asset>", "<asset>" + WEDGE + CRATE)}
  <option sdf_iterations='8' sdf_initpoints='{STARTS}'/><worldbody>
  <geom name='plane' type='plane' size='1 1 1' pos='0 0 -.4' euler='10 20 0'/>
  {"".join(f"<geom name='{name}' {shape} euler='20 30 40'/>" for name, shape in SHAPES.items() if name != "box")}
  <geom name='crate' type='mesh' mesh='crate' euler='20 30 40'/>
  <geom name='wedge' type='sdf' mesh='wedge' euler='50 20 10'/>
  {field_geom("torus", "name='torus' euler='40 50 60'")}
  <body><freejoint/>{field_geom(OCTREE, "name='ring'")}</body></worldbody></mujoco>"""
KINDS = ("plane", "sphere", "capsule", "ellipsoid", "cylinder", "crate", "wedge", "torus")


@functools.cache
def among() -> tuple[diffsim.Model, list[Any], Any]:
    """Our model of a ring that moves among other shapes, the oracle's data in some poses, and the poses."""
    mjmodel, rng = oracle.load_oracle(AMONG), np.random.default_rng(0)
    places = [np.concatenate([0.35 * rng.normal(size=3), rng.normal(size=4)]) for _ in range(12)]
    data = [oracle.posed(mjmodel, qpos) for qpos in places]
    return diffsim.load(AMONG, max_contacts=200), data, oracle.poses_of(mjmodel, data)


def columns(batch: Any) -> np.ndarray:
    """Distance, position and normal (..., 7) of our contacts."""
    return np.concatenate([batch.dist[..., None], batch.pos, batch.frame[..., 0, :]], axis=-1)


def test_contacts_are_those_of_the_oracle() -> None:
    """As sets for each geom; a plane takes one of several neighbours on a hull, of which the first is the deepest."""
    model, data, poses = among()
    batch = uncompiled(jax.vmap(functools.partial(collide, model)))(poses)
    ours, ring = columns(batch), model.id("geom", "ring")
    agree: dict[str, list[bool]] = {name: [] for name in KINDS}
    for k, each in enumerate(data):
        theirs = np.concatenate([each.contact.dist[:, None], each.contact.pos, each.contact.frame[:, :3]], axis=1)
        for name in KINDS:
            ends = sorted((model.id("geom", name), ring))
            mine = ours[k, (batch.dist[k] < 0) & (batch.geom[k, :, 0] >= 0) & one_of(batch.geom[k], ends)]
            its = theirs[one_of(each.contact.geom, ends)]
            mine, its = (rows[:1] if name == "plane" else rows for rows in (mine, its))
            if len(mine) == len(its):
                apart = np.abs(its[:, None] - mine[None]).max(axis=2, initial=0)
                agree[name] += (apart.min(axis=1, initial=1) < 1e-6).tolist()
            else:
                agree[name] += [False]
    assert {name: len(each) > 5 for name, each in agree.items()} == dict.fromkeys(KINDS, True)
    assert {name: float(np.mean(each)) for name, each in agree.items() if np.mean(each) < 0.95} == {}


def one_of(geom: np.ndarray, ends: list[int]) -> np.ndarray:
    """Which contacts (n,) are those of two geoms."""
    return (np.sort(geom, axis=1) == ends).all(axis=1)


def test_derivatives_agree_with_central_differences() -> None:
    """By poses and coefficients: in which leaf a point is stays as it is."""
    model, _, poses = among()
    one = jax.tree.map(lambda x: jnp.asarray(x[:6]), poses)
    rng, h = np.random.default_rng(1), 1e-7
    shift, bumps = rng.normal(size=(len(KINDS) + 1, 3)), 0.1 * rng.normal(size=model.oct_coeff.shape)
    step = jnp.asarray(shift), jnp.asarray(bumps)

    def rows(size: jax.Array, pose: Kinematics) -> jax.Array:
        changed = model.replace(oct_coeff=model.oct_coeff + size * step[1])
        found = collide(changed, pose.replace(geom_xpos=pose.geom_xpos + size * step[0]))
        return contact_rows(found)

    run = uncompiled(jax.vmap(lambda size, pose: jax.jvp(lambda s: rows(s, pose), (size,), (jnp.ones(()),)), (None, 0)))
    (value, slope), (after, _), (before, _) = (run(np.float64(size), one) for size in (0, h, -h))
    forth, back = (after - value) / h, (value - before) / h
    smooth = (value[..., 0] < 0) & (np.abs(forth - back).max(axis=2) < 1e-3)
    assert smooth.sum() > 30 and np.abs(slope[smooth]).max() > 0.5
    np.testing.assert_allclose(slope[smooth], 0.5 * (forth + back)[smooth], atol=1e-6)


def test_reverse_mode_reaches_the_coefficients() -> None:
    """The gradient of the depths of all contacts is what forward mode says of it."""
    model, _, poses = among()
    pose = jax.tree.map(lambda x: jnp.asarray(x[1]), poses)
    tangent = jnp.asarray(np.random.default_rng(2).normal(size=model.oct_coeff.shape))

    def depth(coeff: jax.Array) -> jax.Array:
        return jnp.sum(jnp.minimum(collide(model.replace(oct_coeff=coeff), pose).dist, 0))

    gradient = uncompiled(jax.grad(depth))(model.oct_coeff)
    _, slope = uncompiled(lambda coeff: jax.jvp(depth, (coeff,), (tangent,)))(model.oct_coeff)
    assert 8 <= np.count_nonzero(gradient) < 2000
    np.testing.assert_allclose(np.sum(gradient * np.asarray(tangent)), slope, rtol=1e-9)


def octree(model: diffsim.Model, dtype: Any = float) -> Octree:
    """The octree of the ring."""
    address = int(model.mesh_octadr[model.geom("ring").dataid])
    child = np.asarray(model.oct_child[:, 0], np.int32)
    return Octree(
        jnp.asarray(model.oct_aabb[address], dtype),
        jnp.int32(address),
        jnp.asarray(child),
        jnp.asarray(model.oct_coeff, dtype),
    )


def around(model: diffsim.Model, tree: int) -> np.ndarray:
    """Points in and around the box of an octree; on its border, at its middle and corners."""
    box = np.asarray(model.oct_aabb[int(model.mesh_octadr[model.geom("ring").dataid])])
    rng = np.random.default_rng(tree)
    points = box[:3] + 1.5 * box[3:] * rng.uniform(-1, 1, size=(300, 3))
    special = [[0, 0, 0], [1, 0, 0], [1, 1, 1], [-1, 0.5, 0], [2, 0, 0], [0.5, 0.5, 0.25]]
    return np.concatenate([points, box[:3] + box[3:] * np.array(special)])


def test_the_field_is_that_of_its_leaves() -> None:
    """Beside the leaves one by one; the direction is by their coordinates, outside of the root the derivative."""
    model = among()[0]
    tree, points, function = octree(model), around(model, 0), octree_function(levels(model.topology))
    first, count = int(tree.address), int(model.mesh_octnum[model.geom("ring").dataid])
    leaf = first + np.flatnonzero(model.oct_child[first : first + count, 0] < 0)
    box, corner = np.asarray(model.oct_aabb)[leaf], np.asarray(model.oct_coeff)[leaf]
    distance, direction, gradient = (
        uncompiled(functools.partial(each, tree))(points)
        for each in (function.distance, function.field.gradient, function.gradient)
    )
    root = np.asarray(tree.root)
    outside = np.abs(points - root[:3]) > root[3:]
    inner = np.clip(points, root[:3] - root[3:] + 1e-6, root[:3] + root[3:] - 1e-6)
    inner = np.where(outside, inner, points)
    held = np.array([np.flatnonzero((np.abs(p - box[:, :3]) <= box[:, 3:] + 1e-12).all(axis=1))[0] for p in inner])
    within = (inner - box[held, :3]) / (2 * box[held, 3:]) + 0.5
    bits = np.array([[k & 1, k >> 1 & 1, k >> 2] for k in range(8)])
    factor = np.where(bits[None] == 1, within[:, None], 1 - within[:, None])
    beyond = np.linalg.norm(np.where(outside, np.abs(points - root[:3]) - root[3:], 0), axis=1)
    np.testing.assert_allclose(distance, (factor.prod(axis=2) * corner[held]).sum(axis=1) + beyond, atol=1e-12)
    inside = ~outside.any(axis=1)
    assert 80 < inside.sum() < 200
    np.testing.assert_allclose(direction[inside][:60], (gradient * 2 * box[held, 3:])[inside][:60], atol=1e-12)
    np.testing.assert_allclose(direction[~inside], gradient[~inside], atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_values_and_derivatives_are_finite_everywhere(dtype: Any) -> None:
    model = among()[0]
    tree, function = octree(model, dtype), octree_function(levels(model.topology))
    record = record_of(function, OctreeData)
    assert record is record_of(octree_function(levels(model.topology)), OctreeData)

    def both(root: jax.Array, point: jax.Array) -> tuple:
        own = tree._replace(root=root)
        return (
            function.distance(own, point),
            jax.grad(lambda r, p: function.distance(own._replace(root=r), p), (0, 1))(root, point),
            jax.jacfwd(lambda p: function.field.gradient(own, p))(point),
        )

    values = uncompiled(jax.vmap(both, (None, 0)))(tree.root, around(model, 1).astype(dtype))
    assert all(np.isfinite(each).all() and each.dtype == dtype for each in jax.tree.leaves(values))


@only_wide
def test_a_ring_comes_to_rest_on_a_rod() -> None:
    """Compiled, in float32, in worlds of a batch with coefficients of their own."""
    text = f"""<mujoco>{extension(OCTREE)}<option sdf_iterations='8' sdf_initpoints='12'/><worldbody>
      <geom type='capsule' size='.05 1' euler='0 90 0'/><body pos='0 0 -.1' euler='0 90 0'><freejoint/>
      {field_geom(OCTREE, "condim='3'")}</body></worldbody></mujoco>"""
    with jax.enable_x64(False):
        model = diffsim.load(text)
        state = diffsim.make_state(model)
        thicker = model.replace(oct_coeff=jnp.stack([model.oct_coeff, model.oct_coeff - 0.01]))
        axes = diffsim.model_axes(thicker, "oct_coeff")
        step = jax.jit(jax.vmap(diffsim.step, in_axes=(axes, 0)))
        states = jax.tree.map(lambda x: jnp.stack([x, x]), state)
        for _ in range(200):
            states = step(thicker, states)
    height = np.asarray(states.qpos[:, 2])
    assert np.isfinite(height).all() and (height > -0.4).all() and abs(height[0] - height[1]) > 1e-3
