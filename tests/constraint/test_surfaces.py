"""Surfaces that move by themselves (`surfacevel`): contacts are those of bodies that move against them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from uncompiled import uncompiled

import diffsim

XML = """<mujoco><option cone="{}" iterations="100" tolerance="1e-14"/><worldbody>
<geom type="plane" size="3 3 .1" pos=".1 .2 0" euler="0 0 30" surfacevel="{}"/>
<body pos="0 0 .099"><freejoint/>
<geom type="{}" size=".1 .1 .1" mass="1" condim="{}" friction=".8 .05 .001" surfacevel="{}"/></body>
</worldbody></mujoco>"""
NONE = "0 0 0 0 0 0"
forward = uncompiled(diffsim.forward)


def accelerations(
    cone: str, shape: str, dim: int, belt: str, own: str, linear: np.ndarray, angular: np.ndarray
) -> np.ndarray:
    model = diffsim.load(XML.format(cone, belt, shape, dim, own))
    state = diffsim.make_state(model).replace(qvel=jnp.concatenate([jnp.asarray(linear), jnp.asarray(angular)]))
    return np.asarray(forward(model, state).qacc)


@pytest.mark.parametrize(("cone", "shape", "dim"), [("pyramidal", "box", 4), ("elliptic", "sphere", 6)])
def test_a_belt_is_a_body_that_moves_the_other_way(cone: str, shape: str, dim: int) -> None:
    still = np.zeros(3)
    # .5, .2 in the frame of the belt, which is turned by 30 degrees
    c, s = np.cos(np.pi / 6), np.sin(np.pi / 6)
    belt = np.array([0.5 * c - 0.2 * s, 0.5 * s + 0.2 * c, 0])
    moved = accelerations(cone, shape, dim, ".5 .2 0 0 0 0", NONE, still, still)
    np.testing.assert_allclose(moved, accelerations(cone, shape, dim, NONE, NONE, -belt, still), atol=1e-9)
    assert np.abs(moved[:2]).max() > 1
    # both surfaces alike: nothing happens between them
    both = accelerations(cone, shape, dim, ".5 .2 0 0 0 0", f"{belt[0]} {belt[1]} 0 0 0 0", still, still)
    np.testing.assert_allclose(both[[0, 1, 3, 4, 5]], 0, atol=1e-9)


def test_a_turntable_is_a_ball_that_turns_the_other_way() -> None:
    # about (.1, .2): the ball stands at the origin
    spin = np.array([0, 0, -1.5])
    moved = accelerations("elliptic", "sphere", 6, "0 0 0 0 0 1.5", NONE, np.zeros(3), np.zeros(3))
    expected = accelerations("elliptic", "sphere", 6, NONE, NONE, np.cross(spin, [-0.1, -0.2, 0]), spin)
    np.testing.assert_allclose(moved, expected, atol=1e-9)
    assert abs(moved[5]) > 0.1


def test_surfaces_have_derivatives() -> None:
    model = diffsim.load(XML.format("elliptic", ".05 .02 0 0 0 .1", "sphere", 6, NONE))
    state, weights = diffsim.make_state(model), jnp.arange(1.0, 7)

    def loss(values: jax.Array) -> jax.Array:
        return diffsim.forward(model.replace(geom_surfacevel=values), state).qacc @ weights

    value, slope = uncompiled(loss), uncompiled(jax.grad(loss))(model.geom_surfacevel)
    away = jnp.asarray(np.random.default_rng(0).normal(size=slope.shape))
    ends = [value(model.geom_surfacevel + h * away) for h in (1e-5, -1e-5)]
    np.testing.assert_allclose(np.vdot(slope, away), (ends[0] - ends[1]) / 2e-5, rtol=1e-6)
