"""Contacts of meshes with distance fields beside MuJoCo's, their derivatives, and what is kept of many."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest
from derivatives import contact_rows
from geometry.field_scenes import extension, field_geom
from geometry.hulls import BOX, cloud
from uncompiled import uncompiled

import diffsim
from diffsim.collision import collide
from diffsim.geometry.sdf.data import farthest_points, repeated
from diffsim.geometry.sdf.pairs import ROWS, TRIANGLES
from diffsim.types.data import Kinematics

# triangles times starts: MuJoCo stops at the 50th point that it finds
CRATE, STARTS = BOX * [0.2, 0.3, 0.25], 4


def scene(name: str, vertices: np.ndarray) -> str:
    """A field that moves, and a mesh that does not."""
    mesh = f"<mesh name='stone' vertex='{' '.join(map(str, vertices.ravel()))}'/>"
    return f"""<mujoco>{extension(name).replace("<asset>", "<asset>" + mesh)}
      <option sdf_iterations='10' sdf_initpoints='{STARTS}'/><worldbody>
      <geom type='mesh' mesh='stone' euler='20 30 40'/>
      <body><freejoint/>{field_geom(name)}</body></worldbody></mujoco>"""


@functools.cache
def world(name: str, count: int) -> tuple[diffsim.Model, list[Any], Any]:
    """Our model, the oracle's data in some poses, and the poses."""
    text = scene(name, CRATE)
    mjmodel, rng = oracle.load_oracle(text), np.random.default_rng(0)
    states = [np.concatenate([0.4 * rng.normal(size=3), rng.normal(size=4)]) for _ in range(count)]
    data = [oracle.posed(mjmodel, qpos) for qpos in states]
    return diffsim.load(text), data, oracle.poses_of(mjmodel, data)


@pytest.mark.parametrize(("name", "run"), [("gear", uncompiled), ("gear", jax.jit), ("torus", uncompiled)])
def test_contacts_are_those_of_the_oracle(name: str, run: Callable) -> None:
    """As a set: the oracle's order is that of its tree of triangles. Compiled too: gradients are not to get lost."""
    model, data, poses = world(name, 30)
    batch = run(jax.vmap(functools.partial(collide, model)))(poses)
    columns = np.concatenate([batch.dist[..., None], batch.pos, batch.frame[:, :, 0]], axis=2)
    compared = 0
    for k, each in enumerate(data):
        contact = each.contact
        theirs = np.concatenate([contact.dist[:, None], contact.pos, contact.frame[:, :3]], axis=1)
        ours = columns[k, batch.dist[k] < 0]
        assert len(ours) == len(theirs)
        apart = np.abs(theirs[:, None] - ours[None]).max(axis=2, initial=0)
        compared += len(theirs)
        assert (np.sum(apart < 1e-6, axis=0) == 1).all() and (np.sum(apart < 1e-6, axis=1) == 1).all()
    assert compared > 60


def test_derivatives_agree_with_central_differences() -> None:
    """By poses, vertices and parameters: shares of corners stay as they are."""
    model, _, poses = world("torus", 30)
    one = jax.tree.map(lambda x: jnp.asarray(x[:6]), poses)
    rng, h = np.random.default_rng(1), 1e-6
    step = [jnp.asarray(rng.normal(size=shape)) for shape in ((2, 3), (len(CRATE), 3), (2,))]

    def rows(size: jax.Array, pose: Kinematics) -> jax.Array:
        vertices = model.mesh_vert.at[: len(CRATE)].add(size * step[1])
        radii = model.geom_sdfparam.at[1, :2].add(0.2 * size * step[2])
        found = collide(
            model.replace(mesh_vert=vertices, geom_sdfparam=radii),
            pose.replace(geom_xpos=pose.geom_xpos + size * step[0]),
        )
        return contact_rows(found)

    run = uncompiled(jax.vmap(lambda size, pose: jax.jvp(lambda s: rows(s, pose), (size,), (jnp.ones(()),)), (None, 0)))
    (value, slope), (after, _), (before, _) = (run(np.float64(size), one) for size in (0, h, -h))
    forth, back = (after - value) / h, (value - before) / h
    smooth = (value[..., 0] < 0) & (np.abs(forth - back).max(axis=2) < 1e-3)
    assert smooth.sum() > 10 and np.abs(slope[smooth]).max() > 0.5
    np.testing.assert_allclose(slope[smooth], 0.5 * (forth + back)[smooth], atol=1e-6, rtol=1e-6)


def test_of_many_triangles_those_far_apart_are_looked_at() -> None:
    text = scene("torus", 3 * cloud(60, 0))
    mjmodel = oracle.load_oracle(text)
    data = oracle.posed(mjmodel, np.array([0.3, 0, 0, 1, 0, 0, 0.0]))
    model = diffsim.load(text)
    found = uncompiled(functools.partial(collide, model))(oracle.record_of(Kinematics, mjmodel, data))
    assert model.topology.mesh_facenum[0] > TRIANGLES
    touching = found.dist < 0
    assert 20 < touching.sum() <= ROWS
    # nobody is deeper than ours
    assert found.dist.min() <= data.contact.dist.min() + 1e-9


def test_points_are_spread() -> None:
    line = np.stack([np.arange(10.0), np.zeros(10), np.zeros(10)], axis=1)
    index, there = uncompiled(lambda p, v, w: farthest_points(p, v, w, 5))(line, (line[:, 0] - 4) ** 2, line[:, 0] > 2)
    np.testing.assert_array_equal(index[:3], [4, 9, 6])
    assert there.all()
    index, there = uncompiled(lambda p, v, w: farthest_points(p, v, w, 5))(line, line[:, 0], line[:, 0] > 7)
    assert set(index[there]) == {8, 9} and there.sum() == 2
    twice = np.concatenate([line[:2], line[:2]])
    np.testing.assert_array_equal(uncompiled(repeated)(twice, np.array([True, False, True, True])), [0, 0, 1, 0])
