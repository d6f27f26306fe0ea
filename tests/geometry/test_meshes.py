"""Shapes with data: contacts of planes and meshes against the oracle, their derivatives, and what the data may cost."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest
from derivatives import contact_rows, slopes_in_worlds
from geometry.hulls import cloud
from programs import equations
from uncompiled import uncompiled

import diffsim
from diffsim.collision import collide
from diffsim.compiler.convert import from_mujoco
from diffsim.math.rotation import quat_exp, quat_to_mat
from diffsim.math.vector import mul_mat
from diffsim.types.data import Contacts, Kinematics
from diffsim.types.model import Model

PLANE = "<geom type='plane' size='1 1 1' euler='10 20 30' margin='.02'/>"


def cone(count: int) -> np.ndarray:
    """A tip with as many neighbours as the base has vertices."""
    angle = 2 * np.pi * np.arange(count) / count
    base = np.stack([0.2 * np.cos(angle), 0.2 * np.sin(angle), 0 * angle], axis=1)
    return np.concatenate([base, [[0, 0, 0.3]]])


BOX = 0.1 * np.array([[x, y, z] for x in (-1, 1) for y in (-2, 2) for z in (-1.5, 1.5)])
MESHES = {
    "tetrahedron": cloud(4),
    "box": BOX,
    "ten": cloud(10),
    "pebble": cloud(40),
    "fine": cloud(150),
    "cone": cone(20),
}


def scene(*vertices: np.ndarray) -> str:
    """A tilted plane and one free body for each mesh."""
    numbers = [" ".join(f"{x:.8g}" for x in vertex.ravel()) for vertex in vertices]
    assets = "".join(f"<mesh name='m{i}' vertex='{text}'/>" for i, text in enumerate(numbers))
    bodies = "".join(
        f"<body><freejoint/><geom type='mesh' mesh='m{i}' margin='.01' contype='0'/></body>"
        for i in range(len(vertices))
    )
    return f"<mujoco><asset>{assets}</asset><worldbody>{PLANE}{bodies}</worldbody></mujoco>"


def states_of(mjmodel: Any, count: int, spread: float = 0.12) -> list:
    """Random poses near the plane."""
    rng = np.random.default_rng(1)
    poses = [np.concatenate([spread * rng.normal(size=3), rng.normal(size=4)]) for _ in range(count * mjmodel.njnt)]
    return [oracle.posed(mjmodel, qpos) for qpos in np.reshape(poses, (count, -1))]


many = uncompiled(jax.vmap(collide, in_axes=(None, 0)))


def assert_oracle_contacts(model: Model, mjmodel: Any, states: list) -> None:
    """The same contacts in the same order."""
    batch = many(model, oracle.poses_of(mjmodel, states))
    for k, data in enumerate(states):
        ours: Contacts = jax.tree.map(lambda x, k=k: np.asarray(x[k]), batch)
        oracle.assert_same_contacts(ours, data, 1e-9)
        active = np.flatnonzero((ours.geom[:, 0] >= 0) & (ours.dist < ours.includemargin))
        active = active[np.argsort(ours.sort_key[active])]
        assert len(active) == data.ncon
        np.testing.assert_allclose(ours.pos[active], data.contact.pos.reshape(-1, 3), atol=1e-9)
        np.testing.assert_allclose(ours.dist[active], data.contact.dist, atol=1e-9)
        np.testing.assert_allclose(ours.frame[active].reshape(-1, 9), data.contact.frame, atol=1e-9)


@pytest.mark.parametrize("name", MESHES)
def test_contacts_are_the_oracle_s(name: str) -> None:
    mjmodel = oracle.load_with_assets(scene(MESHES[name]), {})
    states = states_of(mjmodel, 100)
    assert {data.ncon for data in states} >= {1, 2, 3}
    assert_oracle_contacts(from_mujoco(mjmodel), mjmodel, states)


def test_a_mesh_without_a_hull_offers_all_its_vertices() -> None:
    mjmodel = oracle.load_with_assets(scene(MESHES["pebble"]), {})
    mjmodel.mesh_graphadr[:] = -1
    states = states_of(mjmodel, 100)
    assert max(data.ncon for data in states) == 3
    assert_oracle_contacts(from_mujoco(mjmodel), mjmodel, states)


def test_several_meshes_in_buckets_and_a_plane_that_chooses() -> None:
    mjmodel = oracle.load_with_assets(scene(*MESHES.values(), *MESHES.values()), {})
    states = states_of(mjmodel, 20)
    assert_oracle_contacts(from_mujoco(mjmodel), mjmodel, states)
    culled = from_mujoco(mjmodel, max_pairs=2)
    few = many(culled, oracle.poses_of(mjmodel, states))
    everything = many(from_mujoco(mjmodel), oracle.poses_of(mjmodel, states))
    # what is kept is what it was: the data of a pair that the state chooses is that pair's
    few, everything = (
        [np.asarray(x) for x in (contacts.geom, contacts.dist, contacts.pos)] for contacts in (few, everything)
    )
    assert few[0].shape[1] < everything[0].shape[1]
    for k in range(len(states)):
        for geom, dist, pos in zip(*(column[k] for column in few), strict=True):
            same = np.all(everything[0][k] == geom, axis=1)
            error = np.abs(everything[2][k] - pos).max(axis=1) + np.abs(everything[1][k] - dist)
            assert geom[0] < 0 or np.min(np.where(same, error, np.inf)) < 1e-12


@functools.cache
def pebble() -> tuple:
    mjmodel = oracle.load_with_assets(scene(MESHES["pebble"]), {})
    return from_mujoco(mjmodel), mjmodel


def test_derivatives_with_respect_to_poses_and_vertices() -> None:
    model, mjmodel = pebble()
    states = [data for data in states_of(mjmodel, 40) if data.ncon > 1]
    batch = oracle.poses_of(mjmodel, states)
    rng = np.random.default_rng(0)
    change = (jnp.asarray(rng.normal(size=model.mesh_vert.shape)), jnp.asarray(rng.normal(size=(2, 6))))

    def outputs(parameters: tuple, poses: Kinematics) -> jax.Array:
        vertex, twist = parameters
        xmat = mul_mat(quat_to_mat(quat_exp(twist[:, 3:])), poses.geom_xmat)
        moved = poses.replace(geom_xpos=poses.geom_xpos + twist[:, :3], geom_xmat=xmat)
        contacts = collide(model.replace(mesh_vert=model.mesh_vert + vertex), moved)
        return contact_rows(contacts, contacts.margin)

    slopes = slopes_in_worlds(outputs, change, batch)
    # a vertex that comes to lie lowest within the step bends them
    smooth = slopes.bends.max(axis=(1, 2)) < 1e-6
    assert smooth.sum() > len(states) / 2
    np.testing.assert_allclose(slopes.tangent[smooth], slopes.numeric[smooth], atol=1e-6)
    assert np.all(np.any(np.asarray(slopes.gradient[0]) != 0, axis=(1, 2)))


def test_a_mesh_flat_on_the_plane_has_finite_derivatives() -> None:
    text = scene(MESHES["box"], MESHES["cone"]).replace("euler='10 20 30' ", "")
    model, mjmodel = oracle.load_pair(text)
    poses = jax.tree.map(jnp.asarray, oracle.record_of(Kinematics, mjmodel, oracle.posed(mjmodel, mjmodel.qpos0)))
    total = lambda vertex, poses: sum(jnp.sum(x) for x in outputs(model.replace(mesh_vert=vertex), poses))  # noqa: E731
    outputs = lambda model, poses: (lambda c: (c.dist, c.pos, c.frame))(collide(model, poses))  # noqa: E731
    gradient = jax.tree.leaves(uncompiled(jax.grad(total, argnums=(0, 1), allow_int=True))(model.mesh_vert, poses))
    assert all(np.all(np.isfinite(leaf)) for leaf in gradient if leaf.dtype == float)


SENSORS = """<sensor><distance geom1='floor' geom2='stone' cutoff='2'/>
<distance geom1='stone' geom2='floor' cutoff='2'/><fromto geom1='floor' geom2='stone' cutoff='2'/>
<normal geom1='stone' geom2='floor' cutoff='2'/></sensor></mujoco>"""


@functools.cache
def pebble_with_sensors() -> str:
    text = scene(MESHES["pebble"]).replace("</mujoco>", SENSORS)
    for name, kind in (("floor", "plane"), ("stone", "mesh")):
        text = text.replace(f"<geom type='{kind}'", f"<geom name='{name}' type='{kind}'")
    return text


@uncompiled
def stepped(model: Model, state: Any) -> tuple:
    inputs = diffsim.make_inputs(model)
    data = diffsim.forward(model, state, inputs)
    return data.sensordata, diffsim.integrate(model, state, inputs, data)


@pytest.mark.parametrize("speed", [0, 50])
def test_steps_and_distance_sensors(speed: float) -> None:
    model, mjmodel = oracle.load_pair(pebble_with_sensors())
    qvel = np.array([0, 0, speed, 0, 0, 0.0])
    state = diffsim.make_state(model).replace(qvel=qvel)
    contacts = []
    for count in range(1, 15):
        sensordata, state = stepped(model, state)
        data = oracle.stepped(mjmodel, qvel, count)
        contacts.append(data.ncon)
        np.testing.assert_allclose(state.qpos, data.qpos, atol=1e-6)
        np.testing.assert_allclose(sensordata, data.sensordata, atol=1e-6)
    assert contacts[0] == 3 and (speed == 0) == (contacts[-1] > 0)


def test_a_mesh_that_we_compiled_touches_at_the_same_lowest_vertex() -> None:
    """Qhull's order of neighbours is not known to our compiler, so the second and third contact may be others."""
    model, mjmodel = diffsim.load(pebble_with_sensors()), oracle.load_oracle(pebble_with_sensors())
    states = states_of(mjmodel, 50)
    batch = many(model, oracle.poses_of(mjmodel, states))
    for k, data in enumerate(states):
        assert (np.min(batch.dist[k]) < batch.includemargin[k, 0]) == (data.ncon > 0)
        if data.ncon:
            np.testing.assert_allclose(batch.pos[k, 0], data.contact.pos[0], atol=1e-9)
            np.testing.assert_allclose(batch.dist[k, 0], data.contact.dist[0], atol=1e-9)
            assert batch.dist[k, 0] == np.min(batch.dist[k])


def traced(sizes: range) -> Any:
    mjmodel = oracle.load_with_assets(scene(*(cloud(size, seed=3) for size in sizes)), {})
    poses = oracle.record_of(Kinematics, mjmodel, oracle.posed(mjmodel, mjmodel.qpos0))
    return jax.make_jaxpr(jax.jit(collide))(from_mujoco(mjmodel), poses).jaxpr


def test_the_program_does_not_grow_with_the_number_of_assets() -> None:
    few, many = traced(range(20, 23)), traced(range(18, 30))
    assert len(list(equations(few))) == len(list(equations(many)))


def test_editing_a_mesh_does_not_compile_again() -> None:
    model, mjmodel = pebble()
    poses = jax.tree.map(jnp.asarray, oracle.record_of(Kinematics, mjmodel, states_of(mjmodel, 1)[0]))
    compiled = jax.jit(collide)
    before = compiled(model, poses)
    after = compiled(model.replace(mesh_vert=1.2 * model.mesh_vert), poses)
    assert compiled._cache_size() == 1
    assert np.all(before.dist != after.dist)


def test_assets_are_not_copied_per_world() -> None:
    """What a batch gathers for each world is a few vertices of each pair, never all of an asset."""
    model, mjmodel = pebble()
    worlds, vertices = 7, 40
    batch = oracle.poses_of(mjmodel, states_of(mjmodel, worlds))
    jaxpr = jax.make_jaxpr(jax.vmap(collide, in_axes=(None, 0)))(model, batch).jaxpr
    shapes = [each.outvars[0].aval.shape for each in equations(jaxpr) if each.primitive.name == "gather"]
    assert shapes
    assert not [shape for shape in shapes if worlds in shape and max(shape) >= vertices]
