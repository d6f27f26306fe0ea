"""Models stacked to one batch: in each world, results are those of its own model, and so of the oracle."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest
from oracle import mujoco
from uncompiled import uncompiled

import diffsim
from diffsim import viz
from diffsim.simulate.stack import on_batched


def points(count: int, seed: int) -> np.ndarray:
    """Points (count, 3) on an ellipsoid, m, all of them vertices of its hull."""
    directions = np.random.default_rng(seed).normal(size=(count, 3))
    return (0.05 * directions / np.linalg.norm(directions, axis=1)[:, None] * [1, 0.8, 0.6]).round(5)


# Tiny meshes are searched by comparing all vertices, and planes read their neighbours as MuJoCo does; a hull with 200
# vertices is searched by walking along its edges.
OBJECTS = {
    "cube": np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)]) * 0.04,
    "tiny": points(8, 1),
    "small": points(30, 2),
    "large": points(200, 3),
}


def scene(vertices: np.ndarray, geoms: str = "") -> str:
    """A mesh above a floor with other geoms."""
    listed = " ".join(map(str, vertices.ravel()))
    return f"""
<mujoco>
  <option timestep="0.002"/>
  <asset>
    <mesh name="object" vertex="{listed}"/>
    <mesh name="wall" vertex="{" ".join(map(str, points(12, 7).ravel()))}"/>
  </asset>
  <worldbody>
    <geom name="floor" type="plane" size="1 1 1"/>
    {geoms}
    <body name="object" pos="0 0 0.07">
      <freejoint/>
      <geom name="object" type="mesh" mesh="object"/>
    </body>
  </worldbody>
</mujoco>
"""


AROUND = """
<geom name="ball" type="sphere" size="{radius}" pos="0 0.08 0.05"/>
<geom name="block" type="box" size="0.05 0.05 0.05" pos="0.1 0 0.04"/>
<geom name="wall" type="mesh" mesh="wall" pos="-0.09 0 0.04"/>
"""
# the radius of the ball differs, too
TEXTS = [scene(OBJECTS[name], AROUND.format(radius=0.02 + 0.005 * i)) for i, name in enumerate(OBJECTS)]
# a cube, and a hull of 30 vertices
ON_FLOOR = [scene(OBJECTS[name]) for name in ("cube", "small")]


@pytest.fixture(scope="module")
def stacked() -> tuple[diffsim.Model, diffsim.Model]:
    return diffsim.stack(diffsim.load(text) for text in TEXTS)


def world(models: diffsim.Model, axes: diffsim.Model, index: int) -> diffsim.Model:
    """One of a batch of models."""
    return on_batched(lambda values: values[index], models, axes)


# at the block, the wall, the ball and the floor, m
PLACES = ((0.01, 0, 0.05), (-0.045, 0, 0.05), (0, 0.015, 0.05), (-0.02, -0.03, 0.035))


def test_each_world_steps_as_its_own_model_does_in_the_oracle() -> None:
    rng = np.random.default_rng(0)
    mjmodels = [mujoco.MjModel.from_xml_string(text) for text in TEXTS for _ in PLACES]
    states = [mujoco.MjData(mjmodel) for mjmodel in mjmodels]
    for data, place in zip(states, len(TEXTS) * PLACES, strict=True):
        data.qpos[:3] = place
        data.qpos[3:] = rng.normal(size=4)
        data.qpos[3:] /= np.linalg.norm(data.qpos[3:])
        data.qvel[:] = rng.normal(size=6)
    models, axes = diffsim.stack(diffsim.load(text) for text in TEXTS for _ in PLACES)
    step = uncompiled(jax.vmap(diffsim.step, in_axes=(axes, 0)))
    stepped = step(models, jax.tree.map(lambda *x: jnp.stack(x), *map(oracle.state_of, states)))
    touched = set()
    for index, (mjmodel, data) in enumerate(zip(mjmodels, states, strict=True)):
        mujoco.mj_step(mjmodel, data)
        touched |= {(index // len(PLACES), geom) for geom in data.contact.geom.min(axis=1).tolist()}
        np.testing.assert_allclose(stepped.qvel[index], data.qvel, atol=1e-10)
    # every object touches something, and everything is touched
    assert {index for index, _ in touched} == {0, 1, 2, 3} and {geom for _, geom in touched} == {0, 1, 2, 3}


def test_masses_and_bounds_are_those_of_each_model_and_meshes_are_stored_once(stacked: tuple) -> None:
    models, axes = stacked
    for index, text in enumerate(TEXTS):
        alone = diffsim.load(text)
        for name in (
            "body_mass",
            "body_inertia",
            "body_invweight0",
            "geom_rbound",
            "geom_aabb",
            "geom_pos",
            "geom_size",
        ):
            np.testing.assert_array_equal(getattr(world(models, axes, index), name), getattr(alone, name), name)
        mesh = models.mesh(int(models.variant_mesh[index, 0]))
        np.testing.assert_array_equal(mesh.vert, alone.mesh("object").vert)
    assert models.topology.names["mesh"] == ("object", "wall", "object:1", "object:2", "object:3")
    assert axes.mesh_vert is None and axes.qpos0 is None and axes.opt.gravity is None


def test_derivatives_are_those_of_each_model() -> None:
    alone = [diffsim.load(text) for text in ON_FLOOR]
    models, axes = diffsim.stack(alone)
    # an edge of the object is in the floor
    state = diffsim.make_state(alone[0])
    state = state.replace(
        qpos=jnp.array([0, 0.02, 0.03, 0.9, 0.1, 0.3, 0.2]), qvel=jnp.array([0.1, 0.3, -0.4, 1, 2, 3])
    )

    def speed(model: diffsim.Model) -> jax.Array:
        return jnp.sum(diffsim.step(model, state).qvel ** 2)

    batched = uncompiled(jax.grad(lambda models: jnp.sum(jax.vmap(speed, in_axes=(axes,))(models))))(models)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(batched))
    # the worlds share one table of vertices, where each mesh has rows of its own
    rows = np.split(np.asarray(batched.mesh_vert), models.topology.mesh_vertadr[1:])
    for index, model in enumerate(alone):
        expected = uncompiled(jax.grad(speed))(model)
        ours = world(batched, axes, index)
        mesh = int(models.variant_mesh[index, 0])
        for name, value in (
            ("mesh_vert", rows[mesh]),
            *((name, getattr(ours, name)) for name in ("body_mass", "geom_pos")),
        ):
            assert np.any(np.asarray(getattr(expected, name)))
            of_mesh = np.asarray(getattr(expected, name))[: len(value)]
            oracle.assert_close(name, value, of_mesh, 1e-9, 1e-9)


RAYS = np.random.default_rng(5).normal(size=(32, 3)) * [0.04, 0.04, 0.02] + [0, 0, 0.4]


def test_rays_hit_the_mesh_of_each_world(stacked: tuple) -> None:
    models, axes = stacked
    origin, down = jnp.asarray(RAYS), jnp.asarray(np.tile([0.02, -0.01, -1.0], (len(RAYS), 1)))

    def cast(model: diffsim.Model) -> diffsim.RayHits:
        data = diffsim.forward(model.without_contacts(), diffsim.make_state(model))
        return diffsim.multi_ray(model, data, origin, down)

    hits = uncompiled(jax.vmap(cast, in_axes=(axes,)))(models)
    for index, text in enumerate(TEXTS):
        mjmodel = mujoco.MjModel.from_xml_string(text)
        data = oracle.at_rest(mjmodel)
        geom, distance = np.zeros(1, np.int32), []
        seen = []
        for start in RAYS:
            distance.append(mujoco.mj_ray(mjmodel, data, start, np.asarray(down[0]), None, 1, -1, geom))
            seen.append(int(geom[0]))
        np.testing.assert_array_equal(hits.geom[index], seen)
        np.testing.assert_allclose(hits.distance[index], distance, atol=1e-9)
    # the middle rays hit the object
    assert np.mean(np.asarray(hits.geom) == models.id("geom", "object")) > 0.2


def test_pictures_show_the_mesh_of_each_world() -> None:
    alone = [diffsim.load(text) for text in ON_FLOOR]
    models, axes = diffsim.stack(alone)
    for index, model in enumerate(alone):
        pictures = [
            viz.render(shown, diffsim.make_state(shown), size=(32, 24), samples=1).astype(int)
            for shown in (world(models, axes, index), model)
        ]
        # a ray may meet the edge between two triangles
        assert np.mean(np.any(pictures[0] != pictures[1], axis=2)) < 0.01
    assert np.mean(pictures[0] != viz.render(alone[0], diffsim.make_state(alone[0]), size=(32, 24), samples=1)) > 0.05


def test_distances_are_of_the_mesh_of_each_world(stacked: tuple) -> None:
    models, axes = stacked

    def apart(model: diffsim.Model) -> jax.Array:
        data = diffsim.forward(model.without_contacts(), diffsim.make_state(model))
        return diffsim.geom_distance(model, data, "object", "block").distance

    found = uncompiled(jax.vmap(apart, in_axes=(axes,)))(models)
    for index, text in enumerate(TEXTS):
        mjmodel = mujoco.MjModel.from_xml_string(text)
        data = oracle.at_rest(mjmodel)
        ends = [mjmodel.geom(name).id for name in ("object", "block")]
        np.testing.assert_allclose(
            found[index], mujoco.mj_geomDistance(mjmodel, data, *ends, 10, np.zeros(6)), atol=1e-7
        )


def test_height_fields_differ_between_worlds() -> None:
    def terrain(heights: str) -> str:
        return f"""
<mujoco>
  <asset><hfield name="ground" nrow="3" ncol="3" size="0.5 0.5 0.3 0.1" elevation="{heights}"/></asset>
  <worldbody>
    <geom type="hfield" hfield="ground"/>
    <body pos="0.05 0.08 0.3"><freejoint/><geom type="sphere" size="0.1"/></body>
  </worldbody>
</mujoco>
"""

    texts = [terrain("0 0 0 0 1 0 0 0 0"), terrain("1 0 0 0 0.8 0.6 0 0.5 1")]
    models, axes = diffsim.stack([diffsim.load(text) for text in texts])
    assert axes.hfield_data == 0 and axes.geom_size is None
    states = jax.vmap(diffsim.make_state, in_axes=(axes,), axis_size=2)(models)
    stepped = uncompiled(jax.vmap(diffsim.step, in_axes=(axes, 0)))(models, states)
    for index, text in enumerate(texts):
        mjmodel = mujoco.MjModel.from_xml_string(text)
        data = mujoco.MjData(mjmodel)
        mujoco.mj_step(mjmodel, data)
        assert data.ncon
        np.testing.assert_allclose(stepped.qvel[index], data.qvel, atol=1e-10)


def in_parts(*names: str) -> str:
    """An object of several hulls between a floor and a ball, and another body after it."""
    assets = "".join(
        f'<mesh name="part{i}" vertex="{" ".join(map(str, (OBJECTS[name] + [0.06 * i, 0, 0]).ravel()))}"/>'
        for i, name in enumerate(names)
    )
    geoms = "".join(f'<geom name="part{i}" type="mesh" mesh="part{i}"/>' for i in range(len(names)))
    return f"""
<mujoco>
  <option timestep="0.002"/>
  <asset>{assets}</asset>
  <worldbody>
    <geom name="floor" type="plane" size="1 1 1"/>
    <body name="object" pos="0 0 0.035"><freejoint/>{geoms}</body>
    <body name="probe" pos="0.1 0.06 0.04"><freejoint/><geom name="probe" type="sphere" size="0.045"/></body>
  </worldbody>
  <sensor>
    <distance geom1="probe" geom2="floor" cutoff="1"/>
    <distance body1="object" body2="probe" cutoff="1"/>
  </sensor>
</mujoco>
"""


def test_objects_may_have_different_numbers_of_parts() -> None:
    texts = [in_parts("small", "tiny"), in_parts("small"), in_parts("small", "cube", "tiny")]
    models, axes = diffsim.stack([diffsim.load(text) for text in texts])
    assert models.ngeom == 5 and models.topology.variant_geomid == (2, 3)
    np.testing.assert_array_equal(np.asarray(models.variant_mesh) < 0, [[False, True], [True, True], [False, False]])
    states = jax.vmap(diffsim.make_state, in_axes=(axes,))(models)

    def both(model: diffsim.Model, state: diffsim.State) -> tuple[diffsim.State, jax.Array, diffsim.RayHits]:
        after, data = diffsim.step_data(model, state)
        origin = jnp.array([[0, 0, 1.0], [0.06, 0, 1], [0.12, 0, 1]])
        return after, data.sensordata, diffsim.multi_ray(model, data, origin, jnp.tile(jnp.array([0, 0, -1.0]), (3, 1)))

    stepped, readings, hits = uncompiled(jax.vmap(both, in_axes=(axes, 0)))(models, states)
    for index, text in enumerate(texts):
        mjmodel = mujoco.MjModel.from_xml_string(text)
        data = mujoco.MjData(mjmodel)
        mujoco.mj_forward(mjmodel, data)
        assert data.ncon
        for ray in range(3):
            distance = mujoco.mj_ray(mjmodel, data, [0.06 * ray, 0, 1], [0, 0, -1], None, 1, -1, np.zeros(1, np.int32))
            np.testing.assert_allclose(hits.distance[index, ray], distance, atol=1e-9)
        mujoco.mj_step(mjmodel, data)
        np.testing.assert_allclose(stepped.qvel[index], data.qvel, atol=1e-10)
        np.testing.assert_allclose(readings[index], data.sensordata, atol=1e-8)
        np.testing.assert_allclose(world(models, axes, index).body_mass, mjmodel.body_mass, rtol=1e-6)
    # a program with geoms that do not exist keeps their derivatives finite
    slope = uncompiled(jax.grad(lambda m: jnp.sum(jax.vmap(diffsim.step, in_axes=(axes, 0))(m, states).qvel)))(models)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(slope))


def test_random_models_take_turns(stacked: tuple) -> None:
    fields = {"body_mass": diffsim.Scale(0.5, 2.0, only="object"), "geom_friction": diffsim.Uniform(0.3, 1.2)}
    alone = [diffsim.load(text) for text in ON_FLOOR]
    models, axes = diffsim.randomize(alone, jax.random.key(0), fields, 5)
    np.testing.assert_array_equal(models.variant_mesh[:, 0], [0, 2, 0, 2, 0])
    for index in range(5):
        ours, theirs = world(models, axes, index), mujoco.MjModel.from_xml_string(ON_FLOOR[index % 2])
        factor = float(ours.body_mass[1]) / theirs.body_mass[1]
        assert 0.5 <= factor <= 2 and abs(factor - 1) > 1e-3
        theirs.body_mass *= factor
        theirs.body_inertia *= factor
        mujoco.mj_setConst(theirs, mujoco.MjData(theirs))
        oracle.assert_close("inertia", ours.body_inertia, theirs.body_inertia, 1e-10)
        oracle.assert_close("invweight", ours.body_invweight0, theirs.body_invweight0, 1e-8)
    assert len(np.unique(np.asarray(models.geom_friction[:, 0, 0]))) == 5
    # without fields, the worlds are the models
    plain, _ = diffsim.randomize(alone, jax.random.key(0), {}, 4)
    np.testing.assert_array_equal(plain.body_mass[:, 1], [alone[i % 2].body_mass[1] for i in range(4)])


def test_a_stack_can_be_saved(stacked: tuple, tmp_path: Any) -> None:
    models, _ = stacked
    models.save(tmp_path / "models.npz")
    again = diffsim.load(tmp_path / "models.npz")
    assert again.topology == models.topology
    jax.tree.map(np.testing.assert_array_equal, again, models)


def test_equal_models_have_no_axis_of_worlds() -> None:
    models, axes = diffsim.stack([diffsim.load(ON_FLOOR[0])] * 2)
    assert not jax.tree.leaves(axes) and models.topology.nvariant == 0
    assert models.topology.variant_meshid == ()


def _changed(text: str, old: str, new: str) -> list[diffsim.Model]:
    """A model, and the same with another text in place of a part of it."""
    assert old in text
    return [diffsim.load(text), diffsim.load(text.replace(old, new))]


FIELD = '<mujoco><asset><hfield name="h" nrow="{0}" ncol="3" size="1 1 1 1"/></asset><worldbody><geom type="hfield" \
hfield="h"/></worldbody></mujoco>'
REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "nothing": (list, "at least one model"),
    "a path": (lambda: ["robot.xml"], r"models\[0\] is a str"),
    "another geom": (
        lambda: _changed(ON_FLOOR[0], '<body name="object"', '<geom type="box" size="1 1 1"/><body name="object"'),
        r"models\[1\] differs from models\[0\] in ngeom \(3, not 2\).*leave out the last meshes",
    ),
    "another body": (
        lambda: _changed(ON_FLOOR[0], "<worldbody>", '<worldbody><body name="new"/>'),
        r"models\[1\] differs from models\[0\] in nbody \(3, not 2\)",
    ),
    "another type": (
        lambda: _changed(TEXTS[0], 'type="box"', 'type="ellipsoid"'),
        "geom_type.*may differ in meshes",
    ),
    "another solver": (
        lambda: [
            model.replace(opt=model.opt.replace(iterations=n)) for n in (5, 6) for model in [diffsim.load(ON_FLOOR[0])]
        ],
        r"in opt\.iterations",
    ),
    "another field size": (lambda: [diffsim.load(FIELD.format(n)) for n in (3, 4)], "nhfielddata"),
    "a batch": (lambda: [diffsim.stack([diffsim.load(text) for text in ON_FLOOR])[0]], "a batch of models already"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_models_that_differ_otherwise_are_refused(case: str) -> None:
    make, message = REFUSED[case]
    with pytest.raises(diffsim.ArgumentError, match=message):
        diffsim.stack(make())


def test_a_posterior_is_of_one_model() -> None:
    class Posterior:
        worlds = None

    with pytest.raises(diffsim.ArgumentError, match="a posterior is of one model"):
        diffsim.randomize([diffsim.load(ON_FLOOR[0])], jax.random.key(0), Posterior(), 2)  # type: ignore[arg-type]


BESIDE = {
    "geom 'ring' is a distance field": scene(
        OBJECTS["cube"], '<body pos="1 0 1"><geom name="ring" type="sdf" mesh="wall"/></body>'
    ),
    "sensor 'pad' is tactile": scene(OBJECTS["cube"], "").replace(
        "</mujoco>", '<sensor><tactile name="pad" geom="object" mesh="wall"/></sensor></mujoco>'
    ),
}


@pytest.mark.parametrize("reason", BESIDE)
def test_what_reads_one_mesh_is_refused_beside_several(reason: str) -> None:
    cube = " ".join(map(str, OBJECTS["cube"].ravel()))
    tiny = " ".join(map(str, OBJECTS["tiny"].ravel()))
    models = [diffsim.load(BESIDE[reason]), diffsim.load(BESIDE[reason].replace(cube, tiny))]
    with pytest.raises(diffsim.UnsupportedError, match=f"geom 'object' has several meshes, and {reason}"):
        diffsim.stack(models)


def test_a_site_may_be_in_the_frame_of_its_body() -> None:
    """The compiler notes frames that coincide, and no number of a world depends on it."""
    text = scene(OBJECTS["cube"]).replace("<freejoint/>", '<freejoint/><site name="tip" pos="{} 0 0"/>')
    models, axes = diffsim.stack([diffsim.load(text.format(x)) for x in (0, 0.1)])
    assert world(models, axes, 0).site_pos[0, 0] == 0 and world(models, axes, 1).site_pos[0, 0] == 0.1
    with pytest.raises(diffsim.ArgumentError, match="models is one Model, expected several"):
        diffsim.stack(world(models, axes, 0))
