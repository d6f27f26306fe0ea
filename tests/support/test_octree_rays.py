"""Rays on octrees beside MuJoCo's, the derivative of what they measure, and the picture of the mesh."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from geometry.field_scenes import OCTREE, extension, field_geom

import diffsim
from diffsim import viz
from tests.support.test_field_rays import have_slopes_of_differences, meet_the_same, seen_by_rays

SEEN = "contype='0' conaffinity='0'"
WEDGE = "<mesh name='wedge' vertex='0 0 0 .5 0 0 0 .4 0 0 0 .6 .3 .3 .3'/>"
XML = f"""<mujoco>{extension("torus", OCTREE).replace("<asset>", "<asset>" + WEDGE)}<worldbody>
  <geom type='sdf' mesh='wedge' {SEEN} euler='50 20 10' pos='.6 0 .3'/>{field_geom("torus", SEEN + " pos='-1 0 0'")}
  <geom size='.2' pos='1 0 0'/><body pos='0 0 .5'>{field_geom(OCTREE, SEEN)}<freejoint/></body></worldbody></mujoco>"""


@pytest.fixture(scope="module")
def world() -> tuple:
    return seen_by_rays(XML, np.array([0, 0.1, 0.5, 0.9, 0.3, 0.2, -0.1]))


def test_rays_meet_what_those_of_the_oracle_meet(world: tuple) -> None:
    """The normal too, which MuJoCo takes by coordinates of the leaf."""
    meet_the_same(world, {0: 10, 3: 20})


def test_distances_are_differentiable_by_poses_and_coefficients(world: tuple) -> None:
    """Although normals are turned, slopes are those of the distance."""
    model, poses, origin, direction, _ = world
    bumps = jnp.asarray(np.random.default_rng(1).normal(size=model.oct_coeff.shape))

    def distance(height: jax.Array, size: jax.Array) -> jax.Array:
        lifted = dataclasses.replace(poses, geom_xpos=poses.geom_xpos.at[3, 2].add(height))
        rough = model.replace(oct_coeff=model.oct_coeff + size * bumps)
        return diffsim.multi_ray(rough, lifted, origin[:60], direction[:60]).distance

    have_slopes_of_differences(distance, 1e-6)


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
