"""Rays on distance fields beside MuJoCo's, and the derivative of what they measure."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from geometry.field_scenes import extension, field_geom
from oracle import load_oracle, posed, rays_of, record_of
from uncompiled import uncompiled

import diffsim
from diffsim.types.data import Kinematics

SEEN = "contype='0' conaffinity='0'"
XML = f"""<mujoco>{extension("gear", "nut")}<worldbody>{field_geom("gear", SEEN + " euler='10 20 30'")}
  <geom size='.2' pos='1 0 0'/><body pos='0 0 .5'>{field_geom("nut", SEEN)}<freejoint/></body></worldbody></mujoco>"""


def seen_by_rays(xml: str, qpos: np.ndarray | None = None) -> tuple:
    """Our model, poses, rays (k, 3) at its geoms, and what MuJoCo's rays meet: distance, geom, normal."""
    mjmodel, rng = load_oracle(xml), np.random.default_rng(0)
    mjdata = posed(mjmodel, mjmodel.qpos0 if qpos is None else qpos)
    origin = 2 * rng.normal(size=(150, 3))
    aim = mjdata.geom_xpos[rng.integers(0, mjmodel.ngeom, len(origin))] + 0.25 * rng.normal(size=origin.shape)
    # MuJoCo's distances on fields are in metres, others in units of the ray's length
    direction = (aim - origin) / np.linalg.norm(aim - origin, axis=1, keepdims=True)
    met = rays_of(mjmodel, mjdata, origin, direction, (None, True, -1))
    poses = jax.tree.map(jnp.asarray, record_of(Kinematics, mjmodel, mjdata))
    return diffsim.load(xml), poses, origin, direction, met


def meet_the_same(world: tuple, least: dict[int, int]) -> tuple:
    """Our hits, those with MuJoCo's geom, and which of these are as far; `least` rays meet each of some geoms."""
    model, poses, origin, direction, (distance, geom, normal) = world
    hits = uncompiled(diffsim.multi_ray)(model, poses, origin, direction)
    same = hits.geom == geom
    # a march that grazes an edge may end within or after 40 steps by rounding
    assert same.mean() > 0.98 and all(np.sum(geom == index) > count for index, count in least.items())
    close = np.abs(hits.distance - distance)[same] < 1e-6
    assert close.mean() > 0.98
    turned = np.abs(hits.normal - normal)[same][close].max(axis=1)
    assert np.mean(turned < 1e-5) > 0.97
    return hits, same, close


def have_slopes_of_differences(distance: Callable[[jax.Array, jax.Array], jax.Array], h: float) -> None:
    """Derivatives of distances (k,) by two numbers, at zero, are central differences, but where features change."""
    value, slopes = (uncompiled(f) for f in (distance, jax.jacfwd(distance, (0, 1))))
    found = np.stack(slopes(0.0, 0.0), axis=1)
    ends = [[value(*(sign * h * np.eye(2)[k])) for sign in (1, -1)] for k in range(2)]
    middle = value(0.0, 0.0)
    expected = np.stack([(after - before) / (2 * h) for after, before in ends], axis=1)
    bent = np.stack([np.abs(after + before - 2 * middle) / h for after, before in ends], axis=1)
    smooth = bent.max(axis=1) < 1e-2
    assert smooth.sum() > 40 and np.abs(found[smooth]).max(axis=0).min() > 0.1
    np.testing.assert_allclose(found[smooth], expected[smooth], rtol=1e-3, atol=1e-2)


@pytest.fixture(scope="module")
def world() -> tuple:
    return seen_by_rays(XML)


def test_rays_meet_what_those_of_the_oracle_meet(world: tuple) -> None:
    hits, same, close = meet_the_same(world, {0: 20, 2: 20})
    model, poses, origin, direction, (_, geom, _) = world
    longer = uncompiled(diffsim.multi_ray)(model, poses, origin, 2 * direction)
    np.testing.assert_allclose(
        2 * longer.distance[same][close], hits.distance[same][close] * np.where(geom[same][close] < 0, 2, 1), atol=1e-6
    )


def test_distances_are_differentiable_by_poses_and_parameters(world: tuple) -> None:
    model, poses, origin, direction, _ = world

    def distance(height: jax.Array, radius: jax.Array) -> jax.Array:
        lifted = dataclasses.replace(poses, geom_xpos=poses.geom_xpos.at[2, 2].add(height))
        wider = model.replace(geom_sdfparam=model.geom_sdfparam.at[2, 0].add(radius))
        return diffsim.multi_ray(wider, lifted, origin[:60], direction[:60]).distance

    have_slopes_of_differences(distance, 1e-5)
