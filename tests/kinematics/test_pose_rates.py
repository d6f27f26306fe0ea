"""Poses by qpos alone: their rigid derivative beside that of the composition, both modes, and once more."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from uncompiled import uncompiled

import diffsim
from diffsim.kinematics.poses import compose_poses, compute_kinematics
from diffsim.types import Model

# every type of joint, first and later in a body, off its axis, below others, and in a second tree
JOINTS = """<mujoco><worldbody>
  <body pos="0 0 1">
    <freejoint/>
    <geom size=".1" pos=".1 .2 .3"/>
    <site pos=".3 .1 .2" quat="1 .2 .3 .4"/>
    <body pos=".3 .1 0" quat="1 .2 .1 .3">
      <joint type="slide" axis="1 1 0" pos=".1 .1 .1"/>
      <joint axis="0 1 1" pos=".1 .2 .1"/>
      <joint type="ball" pos=".2 0 .1"/>
      <geom size=".1 .1 .1" pos=".3 .2 .1" quat="1 .5 .2 0" type="box"/>
      <camera mode="targetbody" target="last"/>
      <light mode="trackcom"/>
      <body name="last" pos=".1 .4 .2">
        <joint axis="1 0 0"/>
        <joint axis="0 1 0" pos=".2 .1 .1"/>
        <joint type="slide" axis="0 .6 .8"/>
        <geom type="capsule" size=".1 .2" pos=".1 .1 .1"/>
      </body>
    </body>
  </body>
  <body pos="0 2 1">
    <joint type="ball" pos=".3 .1 .2"/>
    <joint type="slide" axis="0 0 1"/>
    <geom size=".1"/>
  </body>
</worldbody></mujoco>"""

MOCAP = (jnp.zeros((0, 3)), jnp.zeros((0, 4)))


def _poses(model: Model, qpos: jax.Array) -> dict[str, Any]:
    return vars(compute_kinematics(model, qpos, *MOCAP))


@pytest.fixture(scope="module", name="start")
def _start() -> tuple[Model, jax.Array]:
    model = diffsim.load(JOINTS)
    # quaternions far from unit length
    return model, jnp.asarray(np.random.default_rng(0).normal(size=model.nq))


def _assert_close(found: Any, expected: Any, tolerance: float) -> None:
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance), found, expected)


def test_both_modes_are_those_of_the_composition(start: tuple[Model, jax.Array]) -> None:
    model, qpos = start
    composed = uncompiled(jax.jacfwd(lambda q: compose_poses(model, q, *MOCAP)))(qpos)
    assert all(float(jnp.max(jnp.abs(x))) > 0.1 for x in composed.values())
    for mode in (jax.jacfwd, jax.jacrev):
        found = uncompiled(mode(lambda q: _poses(model, q)))(qpos)
        _assert_close({name: found[name] for name in composed}, composed, 1e-12)


def test_second_derivatives(start: tuple[Model, jax.Array]) -> None:
    model, qpos = start

    def slope(q: jax.Array) -> jax.Array:
        return jax.grad(lambda q: sum(jnp.sum(jnp.sin(3 * x)) for x in jax.tree.leaves(_poses(model, q))))(q)

    h, change = 1e-5, jnp.cos(jnp.arange(model.nq))
    slopes = uncompiled(jax.vmap(slope))(jnp.stack([qpos + h * change, qpos - h * change]))
    differences = (slopes[0] - slopes[1]) / (2 * h)
    _assert_close(uncompiled(lambda q: jax.jvp(slope, (q,), (change,))[1])(qpos), differences, 1e-6)


def test_a_quaternion_of_zeros_has_no_rate(start: tuple[Model, jax.Array]) -> None:
    model, qpos = start
    slopes = uncompiled(jax.jacrev(lambda q: _poses(model, q)))(qpos.at[3:7].set(0))
    assert all(bool(jnp.all(jnp.isfinite(x))) for x in jax.tree.leaves(slopes))
    assert not np.any(slopes["xmat"][..., 3:7])
