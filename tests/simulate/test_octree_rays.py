"""Rays on octrees beside MuJoCo's, the derivative of what they measure, and the picture of the mesh."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from collision.field_scenes import OCTREE, extension, field_geom
from oracle import load_oracle, posed, rays_of, record_of
from uncompiled import uncompiled

import diffsim
from diffsim import viz
from diffsim.types.data import Kinematics

SEEN = "contype='0' conaffinity='0'"
WEDGE = "<mesh name='wedge' vertex='0 0 0 .5 0 0 0 .4 0 0 0 .6 .3 .3 .3'/>"
XML = f"""<mujoco>{extension("torus", OCTREE).replace("<asset>", "<asset>" + WEDGE)}<worldbody>
  <geom type='sdf' mesh='wedge' {SEEN} euler='50 20 10' pos='.6 0 .3'/>{field_geom("torus", SEEN + " pos='-1 0 0'")}
  <geom size='.2' pos='1 0 0'/><body pos='0 0 .5'>{field_geom(OCTREE, SEEN)}<freejoint/></body></worldbody></mujoco>"""


@pytest.fixture(scope="module")
def world() -> tuple[diffsim.Model, Any, np.ndarray, np.ndarray, tuple]:
    """Our model, poses, rays (k, 3), and what MuJoCo's rays meet: distance, geom, normal."""
    mjmodel, rng = load_oracle(XML), np.random.default_rng(0)
    mjdata = posed(mjmodel, np.array([0, 0.1, 0.5, 0.9, 0.3, 0.2, -0.1]))
    origin = 2 * rng.normal(size=(150, 3))
    aim = mjdata.geom_xpos[rng.integers(0, 4, len(origin))] + 0.25 * rng.normal(size=origin.shape)
    # MuJoCo's distances on fields are in metres, others in units of the ray's length
    direction = (aim - origin) / np.linalg.norm(aim - origin, axis=1, keepdims=True)
    met = rays_of(mjmodel, mjdata, origin, direction, (None, True, -1))
    poses = jax.tree.map(jnp.asarray, record_of(Kinematics, mjmodel, mjdata))
    return diffsim.load(XML), poses, origin, direction, met


def test_rays_meet_what_those_of_the_oracle_meet(world: tuple) -> None:
    """The normal too, which MuJoCo takes by coordinates of the leaf."""
    model, poses, origin, direction, (distance, geom, normal) = world
    hits = uncompiled(diffsim.multi_ray)(model, poses, origin, direction)
    same = hits.geom == geom
    assert same.mean() > 0.98 and np.sum(geom == 0) > 10 and np.sum(geom == 3) > 20
    close = np.abs(hits.distance - distance)[same] < 1e-6
    assert close.mean() > 0.98
    turned = np.abs(hits.normal - normal)[same][close].max(axis=1)
    assert np.mean(turned < 1e-5) > 0.97


def test_distances_are_differentiable_by_poses_and_coefficients(world: tuple) -> None:
    """Although normals are turned, slopes are those of the distance."""
    model, poses, origin, direction, _ = world
    bumps = jnp.asarray(np.random.default_rng(1).normal(size=model.oct_coeff.shape))

    def distance(height: jax.Array, size: jax.Array) -> jax.Array:
        lifted = dataclasses.replace(poses, geom_xpos=poses.geom_xpos.at[3, 2].add(height))
        rough = model.replace(oct_coeff=model.oct_coeff + size * bumps)
        return diffsim.multi_ray(rough, lifted, origin[:60], direction[:60]).distance

    value, slopes = (uncompiled(f) for f in (distance, jax.jacfwd(distance, (0, 1))))
    found = np.stack(slopes(0.0, 0.0), axis=1)
    h = 1e-6
    ends = [[value(*(sign * h * np.eye(2)[k])) for sign in (1, -1)] for k in range(2)]
    middle = value(0.0, 0.0)
    expected = np.stack([(after - before) / (2 * h) for after, before in ends], axis=1)
    bent = np.stack([np.abs(after + before - 2 * middle) / h for after, before in ends], axis=1)
    smooth = bent.max(axis=1) < 1e-2
    assert smooth.sum() > 40 and np.abs(found[smooth]).max(axis=0).min() > 0.1
    np.testing.assert_allclose(found[smooth], expected[smooth], rtol=1e-3, atol=1e-2)


def test_pictures_show_the_mesh() -> None:
    """Pixel by pixel what a geom of type mesh shows."""
    camera = "<camera name='c' pos='0 -2 .4' xyaxes='1 0 0 0 0 1'/>"
    ring = f"<mujoco>{extension(OCTREE)}<worldbody>{camera}{field_geom(OCTREE)}</worldbody></mujoco>"
    pictures = []
    for text in (ring, ring.replace("type='sdf'", "type='mesh'")):
        model = diffsim.load(text)
        pictures.append(np.asarray(viz.render(model, diffsim.make_state(model), camera="c", size=(32, 24))))
    assert pictures[0].std() > 5
    np.testing.assert_array_equal(*pictures)
