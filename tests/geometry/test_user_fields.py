"""Distance fields that are functions of the user's: contacts, rays, derivatives by their numbers, and refusals."""

import functools
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from derivatives import contact_rows
from uncompiled import uncompiled

import diffsim
from diffsim.collision import collide
from diffsim.kinematics.poses import compute_kinematics
from diffsim.types.data import Kinematics

# corners of a box that is not around the origin, with three different sides
CORNERS = " ".join(f"{x} {y} {z}" for x in (0.1, 1.1) for y in (-0.3, 0.5) for z in (0.0, 0.6))
XML = f"""<mujoco><option sdf_initpoints="6" sdf_iterations="2"/><extension><plugin plugin="my.ball"/></extension>
  <asset><mesh name="around" vertex="{CORNERS}"/></asset><worldbody>
  <body><freejoint/><geom name="ball" type="sdf" mesh="around" pos="-.6 -.1 -.3">
    <plugin plugin="my.ball"><config key="x" value=".6"/><config key="y" value=".1"/><config key="z" value=".3"/>
      <config key="radius" value=".25"/></plugin></geom></body>
  <body pos=".1 .2 .3"><geom name="stone" size=".2"/></body></worldbody></mujoco>"""


def ball(point: jax.Array, parameters: jax.Array) -> jax.Array:
    """A ball about parameters[:3]."""
    away = point - parameters[:3]
    return jnp.sqrt(away @ away) - parameters[3]


@functools.cache
def bare() -> diffsim.Model:
    return diffsim.load(XML)


@functools.cache
def world() -> tuple[diffsim.Model, Kinematics]:
    """The model with its function, and poses: the ball is about the origin, turned about its center."""
    model = bare().replace(hooks=diffsim.Hooks(sdf={"my.ball": ball}))
    state = diffsim.make_state(model)
    state = state.replace(qpos=jnp.asarray([0, 0, 0, 0.96, 0.28, 0, 0.0]))
    nowhere = jnp.zeros((0, 3)), jnp.zeros((0, 4))
    poses = uncompiled(compute_kinematics)(model, state.qpos, *nowhere)
    return model, jax.tree.map(jnp.asarray, poses)


def shift(model: diffsim.Model, poses: Kinematics, by: jax.Array) -> tuple[diffsim.Model, Kinematics]:
    """Other numbers of the ball (by[:4]), and another place of the stone."""
    numbers = model.geom_sdfparam.at[0].add(by[:4])
    return model.replace(geom_sdfparam=numbers), poses.replace(geom_xpos=poses.geom_xpos.at[1].add(by[4:]))


def test_contacts_are_those_of_the_function() -> None:
    """Of two balls: where a search ended, the greater distance counts, and the normal is between both slopes."""
    model, poses = world()

    def rows(by: jax.Array) -> jax.Array:
        return contact_rows(collide(*shift(model, poses, by)))

    both = uncompiled(lambda by: (rows(by), jax.jacfwd(rows)(by)))
    value, slope = both(np.zeros(7))
    touching = value[:, 0] < 0
    assert touching.sum() > 2
    dist, pos, normal = value[touching, 0], value[touching, 1:4], value[touching, 4:]
    point = pos + 0.5 * dist[:, None] * normal
    # the ball's center is the origin, and does not move as the body turns
    away = [point, point - np.array([0.1, 0.2, 0.3])]
    lengths = np.array([np.linalg.norm(each, axis=1) for each in away])
    np.testing.assert_allclose(dist, np.max(lengths - [[0.25], [0.2]], axis=0), atol=1e-9)
    between = away[1] / lengths[1][:, None] - away[0] / lengths[0][:, None]
    np.testing.assert_allclose(normal, between / np.linalg.norm(between, axis=1)[:, None], atol=1e-9)
    h = 1e-6
    for k in (0, 3, 5):
        forth, back = (sign * (both(sign * h * np.eye(7)[k])[0] - value) / h for sign in (1, -1))
        # where a line search turns another way one-sided differences disagree
        smooth = touching & (np.abs(forth - back).max(axis=1) < 1e-3)
        assert smooth.sum() > 1
        np.testing.assert_allclose(slope[smooth, :, k], (0.5 * (forth + back))[smooth], atol=1e-6)
    assert np.abs(slope[touching][..., 3]).max() > 0.3


def test_rays_meet_the_function() -> None:
    """From (2, 0.1, 0) along -x to a ball of radius 0.25."""
    model, poses = world()

    def distance(by: jax.Array) -> jax.Array:
        hit = diffsim.ray(*shift(model, poses, by), jnp.asarray([2, 0.1, 0.0]), jnp.asarray([-1.0, 0, 0]))
        return hit.distance

    value, slope = uncompiled(lambda by: (distance(by), jax.jacfwd(distance)(by)))(np.zeros(7))
    reach = np.sqrt(0.25**2 - 0.1**2)
    np.testing.assert_allclose(value, 2 - reach, atol=1e-6)
    np.testing.assert_allclose(slope[3], -0.25 / reach, atol=1e-5)


def test_the_mesh_says_the_mass_and_numbers_stand_in_their_order() -> None:
    model = bare()
    np.testing.assert_allclose(model.geom_sdfparam, [[0.6, 0.1, 0.3, 0.25], [0, 0, 0, 0]], atol=1e-7)
    np.testing.assert_allclose(model.body_mass[1], 1000 * 1 * 0.8 * 0.6, rtol=1e-6)


def test_what_is_missing_is_said(tmp_path: pathlib.Path) -> None:
    model, poses = world()
    message = r"'my.ball' is unknown: define it by model\.replace.hooks=Hooks"
    with pytest.raises(diffsim.UnsupportedError, match=message):
        collide(bare(), poses)
    vectors = diffsim.Hooks(sdf={"my.ball": lambda point, parameters: point})
    with pytest.raises(ValueError, match=r"shape \(3,\), expected one number"):
        collide(model.replace(hooks=vectors), poses)
    with pytest.raises(ValueError, match="hooks/sdf is a function"):
        model.save(tmp_path / "model.npz")
    inside = XML.replace("/></asset>", "><plugin plugin='my.ball'/></mesh></asset>")
    with pytest.raises(diffsim.MjcfError, match="is a function of the user, so the compiler cannot make its surface"):
        diffsim.load(inside)
    bare().save(tmp_path / "model.npz")
    assert diffsim.load(tmp_path / "model.npz").topology == bare().topology
