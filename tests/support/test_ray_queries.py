"""ray and multi_ray as MuJoCo means them: groups, static geoms, an excluded body, cutoff, nothing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracle import assert_close, load_pair, rays_of, record_of, sample

import diffsim
from diffsim import RayFilter
from diffsim.kinematics.poses import compute_kinematics
from diffsim.types.data import Kinematics
from tests.uncompiled import uncompiled

XML = """<mujoco><asset><material name='clear' rgba='1 1 1 0'/></asset><worldbody>
  <geom type='plane' size='4 4 .1' pos='0 0 -1'/>
  <geom type='box' size='.3 .3 .3' pos='1 1 0' group='2'/>
  <geom type='sphere' size='.5' rgba='1 1 1 0'/>
  <geom type='sphere' size='.3' pos='0 0 1' group='9'/>
  <geom type='ellipsoid' size='.2 .4 .6' pos='1 -1 1' group='-3'/>
  <body pos='-1 0 0'><freejoint/><geom type='capsule' size='.3 .4' group='1'/></body>
  <body pos='0 1 0'><freejoint/><geom type='ellipsoid' size='.2 .4 .6'/></body>
  <body pos='0 -1 0'><freejoint/><geom type='cylinder' size='.5 .5' material='clear'/></body>
</worldbody></mujoco>"""
COUNT = 300
many = uncompiled(diffsim.multi_ray)
FILTERS = [
    RayFilter(),
    RayFilter(geomgroup=(0, 1, 1, 0, 0, 0)),
    RayFilter(geomgroup=(1, 0, 0, 0, 0, 1)),
    RayFilter(flg_static=False),
    RayFilter(bodyexclude=1),
    RayFilter(geomgroup=(1, 1, 0, 0, 0, 1), flg_static=False, bodyexclude=2),
]


@pytest.fixture(scope="module")
def world() -> tuple:
    """Both models, both data, rays (k, 3)."""
    model, mjmodel = load_pair(XML)
    mjdata = sample(mjmodel, 0)
    rng = np.random.default_rng(0)
    origin = 2 * rng.normal(size=(COUNT, 3))
    aim = mjdata.geom_xpos[rng.integers(0, mjmodel.ngeom, COUNT)] + 0.1 * rng.normal(size=(COUNT, 3))
    return (
        model,
        mjmodel,
        jax.tree.map(jnp.asarray, record_of(Kinematics, mjmodel, mjdata)),
        mjdata,
        origin,
        aim - origin,
    )


@pytest.mark.parametrize("meets", FILTERS)
def test_filters(world: tuple, meets: RayFilter) -> None:
    model, mjmodel, data, mjdata, origin, direction = world
    group = None if meets.geomgroup is None else np.array(meets.geomgroup, np.uint8)
    choice = (group, meets.flg_static, meets.bodyexclude)
    distance, geom, normal = rays_of(mjmodel, mjdata, origin, direction, choice)
    hits = many(model, data, origin, direction, meets)
    np.testing.assert_array_equal(hits.geom, geom)
    assert_close("distance", hits.distance, distance, 1e-9, 1e-9)
    assert_close("normal", hits.normal, normal, 1e-9)


def test_cutoff(world: tuple) -> None:
    """A geom counts if its bounding sphere is nearer than the cutoff."""
    model, _, data, mjdata, _, direction = world
    point = np.array([0.2, 0.1, 2.0])
    everything = many(model, data, point, direction, RayFilter())
    for cutoff in (1.5, 2.5, 10.0):
        near = np.linalg.norm(mjdata.geom_xpos - point, axis=1) <= cutoff + np.asarray(model.geom_rbound)
        hits = many(model, data, point, direction, RayFilter(cutoff=cutoff))
        kept = near[everything.geom] & (np.asarray(everything.geom) >= 0)
        np.testing.assert_array_equal(np.asarray(hits.geom)[kept], np.asarray(everything.geom)[kept])
        assert np.all(near[np.asarray(hits.geom)[np.asarray(hits.geom) >= 0]])


def test_nothing_has_no_derivative(world: tuple) -> None:
    model, _, data, *_ = world
    point = jnp.array([3.0, 3.0, 3.0])
    outcome = uncompiled(jax.value_and_grad(lambda v: diffsim.ray(model, data, point, v).distance))
    for along in ((0.0, 0.0, 1.0), (0.0, 0.0, 0.0)):
        value, slope = outcome(jnp.array(along))
        assert value == -1 and np.all(np.asarray(slope) == 0)


def test_it_descends_to_the_state(world: tuple) -> None:
    """A range as a function of the state: the derivative of a lidar by the pose of what it sees."""
    model, *_ = world
    state = diffsim.make_state(model)

    def distance(height: jax.Array) -> jax.Array:
        poses = compute_kinematics(model, state.qpos.at[2].add(height), jnp.zeros((0, 3)), jnp.zeros((0, 4)))
        return diffsim.ray(model, poses, jnp.array([-1.0, 0.0, 5.0]), jnp.array([0.0, 0.0, -2.0])).distance

    value, slope = uncompiled(jax.value_and_grad(distance))(0.0)
    assert value == pytest.approx(2.15) and slope == pytest.approx(-0.5)
