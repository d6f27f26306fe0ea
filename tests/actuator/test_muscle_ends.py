"""Muscles where control and activation are equal, as in everyone's first guess, 0: derivatives of a steady control."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import diffsim
from tests.uncompiled import uncompiled

XML = """<mujoco><worldbody><body><joint name="j" axis="0 1 0" range="-1 1"/><geom size=".1" pos=".3 0 0"/></body>
</worldbody><actuator><muscle joint="j" timeconst=".01 .04" {width}/></actuator></mujoco>"""
WIDTHS = ["", 'tausmooth=".2"']
# control and activation, and the steps of both into which the slope is one-sided
ENDS = [((0.0, 0.0), (1, 0.3)), ((1.0, 1.0), (-1, -0.3)), ((0.5, 0.5), (-1, 0))]
APART = [((0.0, 0.5), (1, 1)), ((0.5, 0.0), (1, 1)), ((1.0, 0.5), (-1, 1)), ((0.5, 1.0), (1, -1))]
STEP = 1e-7


@pytest.mark.parametrize("width", WIDTHS)
def test_derivatives_of_the_rate_are_one_sided_differences(width: str) -> None:
    model = diffsim.load(XML.format(width=width))
    state, inputs = diffsim.make_state(model), diffsim.make_inputs(model)

    def rate(both: jax.Array) -> jax.Array:
        ctrl, act = both
        return diffsim.forward(model, state.replace(act=act[None]), inputs.replace(ctrl=ctrl[None])).act_dot[0]

    run, slopes, along = uncompiled(rate), uncompiled(jax.grad(rate)), uncompiled(pushed(rate))
    for place, direction in ENDS + APART:
        here, step = jnp.array(place), jnp.array(direction, float)
        apart = (run(here + STEP * step) - run(here)) / STEP
        np.testing.assert_allclose(along(here, step), apart, rtol=2e-5)
        np.testing.assert_allclose(slopes(here) @ step, apart, rtol=2e-5)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(("level", "inward"), [(0.0, 1), (1.0, -1)])
def test_derivatives_of_a_constant_control_are_one_sided_differences(width: str, level: float, inward: int) -> None:
    """Of activation and position 30 steps later, from rest at either end; these were 5 to 12 times too large."""
    model = diffsim.load(XML.format(width=width))
    run, reverse, forward = PROGRAMS
    here, one = jnp.asarray(level), jnp.ones(())
    apart = (run(model, here, here + inward * STEP) - run(model, here, here)) / (inward * STEP)
    np.testing.assert_allclose(reverse(model, here, here), apart, rtol=2e-5)
    np.testing.assert_allclose(forward(model, here, here, one), apart, rtol=2e-5)


def end(model: diffsim.Model, level: jax.Array, ctrl: jax.Array) -> jax.Array:
    """Activation and position after 30 steps of a constant control, from rest at an activation."""
    state = diffsim.make_state(model).replace(act=level[None])
    final, _ = diffsim.rollout(model, state, jnp.full((30, 1), ctrl))
    return jnp.array([final.act[0], 1e3 * final.qpos[0]])


def end_pushed(model: diffsim.Model, level: jax.Array, ctrl: jax.Array, direction: jax.Array) -> jax.Array:
    """The directional derivative of `end` by its control, in forward mode."""
    return jax.jvp(lambda ctrl: end(model, level, ctrl), (ctrl,), (direction,))[1]


# models are arguments: each is compiled once for all of them
PROGRAMS = jax.jit(end), jax.jit(jax.jacrev(end, argnums=2)), jax.jit(end_pushed)


def pushed(function: Callable) -> Callable:
    """The directional derivative of a function, in forward mode."""
    return lambda x, direction: jax.jvp(function, (x,), (direction,))[1]


LIMITS = """<mujoco><option gravity="0 0 0"/><worldbody>
<body><joint name="j" axis="0 1 0"/><geom size=".1" pos=".3 0 0"/></body>
<body pos="0 1 0"><joint name="k" axis="0 1 0" actuatorfrcrange="-2 2"/><geom size=".1" pos=".3 0 0"/></body>
</worldbody>
<tendon><fixed name="t" actuatorfrclimited="true" actuatorfrcrange="-2 2"><joint joint="j" coef="1"/></fixed>
</tendon>
<actuator>{}</actuator></mujoco>"""


@pytest.mark.parametrize(
    "actuator",
    [
        '<motor joint="j" ctrlrange="-2 2"/>',
        '<motor joint="j" forcerange="-2 2"/>',
        '<motor joint="k"/>',
        '<motor tendon="t"/>',
        '<general joint="j" dyntype="filter" dynprm=".004" actrange="-2 2" actearly="true"/>',
    ],
)
@pytest.mark.parametrize("end", [-2.0, 2.0])
def test_a_control_at_a_limit_has_the_slope_to_the_inside(actuator: str, end: float) -> None:
    model = diffsim.load(LIMITS.format(actuator))
    state = diffsim.make_state(model)
    state = state.replace(act=jnp.full_like(state.act, end))

    def force(ctrl: jax.Array) -> jax.Array:
        data = diffsim.forward(model, state, diffsim.make_inputs(model).replace(ctrl=ctrl[None]))
        return jnp.sum(data.qfrc_actuator)

    here, inward = jnp.asarray(end), -np.sign(end) * STEP
    run = uncompiled(force)
    apart = (run(here + inward) - run(here)) / inward
    assert abs(apart) > 0.3
    np.testing.assert_allclose(uncompiled(jax.grad(force))(here), apart, rtol=2e-5)
    np.testing.assert_allclose(uncompiled(pushed(force))(here, jnp.ones(())), apart, rtol=2e-5)
