"""Rays against the oracle's on all primitive shapes; their derivatives; degenerate rays."""

import jax
import jax.numpy as jnp
import numpy as np
from oracle import assert_close, load_pair, rays_of, sample
from scipy.linalg import expm

from diffsim.geometry.rays.ray import Rays, cast

XML = """<mujoco><worldbody>
  <geom type='plane' size='2 3 .1' pos='0 0 -1.5' euler='5 3 0'/>
  <body pos='1 0 0'><freejoint/><geom type='sphere' size='.4'/></body>
  <body pos='-1 0 0'><freejoint/><geom type='capsule' size='.2 .4'/></body>
  <body pos='0 1 0'><freejoint/><geom type='ellipsoid' size='.2 .4 .6'/></body>
  <body pos='0 -1 0'><freejoint/><geom type='cylinder' size='.3 .4'/></body>
  <body pos='0 0 1'><freejoint/><geom type='box' size='.2 .4 .3'/></body>
</worldbody></mujoco>"""
COUNT = 400


@jax.jit
def trace(model, xpos, xmat, origin, direction):
    hits = cast(model, xpos, xmat, Rays(origin, direction, np.full(len(origin), -1)))
    return hits.distance, hits.geom, hits.normal


@jax.jit
def push(model, size, origin, direction, changes, xpos, xmat):
    def distance(size, xpos, xmat, origin, direction):
        return trace(model.replace(geom_size=size), xpos, xmat, origin, direction)[::2]

    return jax.jvp(distance, (size, xpos, xmat, origin, direction), changes)


def scene(seed: int) -> tuple:
    """Poses of the oracle, and rays from everywhere, also from inside, that mostly aim at a geom."""
    model, mjmodel = load_pair(XML)
    mjdata = sample(mjmodel, seed)
    rng = np.random.default_rng(seed)
    origin = rng.normal(size=(COUNT, 3)) * 1.5
    aim = mjdata.geom_xpos[rng.integers(0, 6, COUNT)] + 0.15 * rng.normal(size=(COUNT, 3))
    return model, mjmodel, mjdata, origin, aim - origin, mjdata.geom_xmat.reshape(-1, 3, 3)


def test_distance_geom_and_normal() -> None:
    for seed in range(2):
        model, mjmodel, mjdata, origin, direction, xmat = scene(seed)
        distance, geom, normal = rays_of(mjmodel, mjdata, origin, direction)
        ours = trace(model, mjdata.geom_xpos, xmat, origin, direction)
        assert len(set(geom)) == 7
        np.testing.assert_array_equal(ours[1], geom)
        assert_close("distance", ours[0], distance, 1e-9, 1e-9)
        assert_close("normal", ours[2], normal, 1e-9)


def test_derivatives() -> None:
    model, _, mjdata, origin, direction, xmat = scene(2)
    rng = np.random.default_rng(0)
    values = (model.geom_size, mjdata.geom_xpos, xmat, origin, direction)
    # rotation matrices change in their tangent space
    spin = np.cross(np.eye(3)[None], 0.3 * rng.normal(size=(len(xmat), 1, 3)))
    changes = [jnp.asarray(rng.normal(size=np.shape(value)) * (np.asarray(value) != 0)) for value in values]
    changes[2] = jnp.asarray(xmat @ spin)

    def at(step: float) -> tuple:
        size, xpos, _, start, along = (v + step * np.asarray(c) for v, c in zip(values, changes, strict=True))
        turn = xmat @ np.stack([expm(step * each) for each in spin])
        distance, geom, normal = trace(model.replace(geom_size=size), xpos, turn, start, along)
        return np.asarray(distance), np.asarray(geom), np.asarray(normal)

    step = 1e-6
    _, tangents = push(model, values[0], origin, direction, tuple(changes), mjdata.geom_xpos, xmat)
    # rays near an edge or a tangent are left out: there the two sides differ
    ahead, behind, nearby, other = at(step), at(-step), at(300 * step), at(-300 * step)
    facing = np.abs(np.sum(ahead[2] * direction, axis=1)) > 0.1 * np.linalg.norm(direction, axis=1)
    smooth = (nearby[1] == other[1]) & (ahead[1] >= 0) & facing
    smooth &= np.linalg.norm(nearby[2] - other[2], axis=1) < 0.05
    assert smooth.sum() > COUNT / 2
    for ours, after, before in ((tangents[0], ahead[0], behind[0]), (tangents[1], ahead[2], behind[2])):
        numeric = (after - before) / (2 * step)
        error = np.abs(np.asarray(ours) - numeric).reshape(COUNT, -1).max(axis=1)
        assert np.max(error[smooth] / (1 + np.abs(numeric).reshape(COUNT, -1).max(axis=1)[smooth])) < 1e-6


def test_degenerate_rays_are_finite() -> None:
    model, mjmodel = load_pair(XML)
    mjdata = sample(mjmodel, 0, spread=0.0)
    xmat = mjdata.geom_xmat.reshape(-1, 3, 3)
    # along the axes, through centres, grazing the sphere, along the plane, along edges
    rays = [
        ((1, 0, -3), (0, 0, 1)),
        ((-1, 0, 3), (0, 0, -1)),
        ((0, 1, 0), (1, 0, 0)),
        ((0, -1.3, -3), (0, 0, 1)),
        ((0.2, 0, 3), (0, 0, -1)),
        ((1.4, -3, 0), (0, 1, 0)),
        ((5, 5, -1.5), (-1, 0, 0)),
        ((1, 0, 0), (0, 0, 1)),
    ]
    origin, direction = (np.resize(np.array(each, float), (COUNT, 3)) for each in zip(*rays, strict=True))
    values = (model.geom_size, mjdata.geom_xpos, xmat, origin, direction)
    changes = tuple(jnp.ones(value.shape) for value in values)
    result = push(model, values[0], origin, direction, changes, mjdata.geom_xpos, xmat)
    assert all(np.all(np.isfinite(each)) for each in jax.tree.leaves(result))
