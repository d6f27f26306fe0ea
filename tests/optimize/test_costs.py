"""Residuals in a line: what they are at poses where one knows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import diffsim
from diffsim.optimize import costs
from tests.uncompiled import uncompiled

XML = """<mujoco><worldbody><geom name="floor" type="plane" size="1 1 .1"/>
<body name="box" pos="0 0 .5"><freejoint/><geom name="box" type="box" size=".1 .1 .1"/></body>
<body name="arm" pos="1 0 .5"><joint name="arm" range="-90 90"/><geom name="ball" size=".1"/></body>
</worldbody></mujoco>"""


def test_costs_are_zero_where_they_should_and_tell_by_how_much_else() -> None:
    model = diffsim.load(XML)
    box, arm = model.body("box"), model.body("arm")
    half = np.sqrt(0.5)
    turned = jnp.array([0, 0.2, 0.3, half, 0, 0, half, np.deg2rad(89)])
    state = diffsim.make_state(model).replace(qpos=turned)
    data = uncompiled(diffsim.forward)(model, state, diffsim.make_inputs(model))
    np.testing.assert_allclose(costs.pose(data, box, (0, 0.2, 0.3), (half, 0, 0, half)), 0, atol=1e-12)
    # 2 cm over 1 cm, a quarter of a turn about z over 0.1
    off = costs.pose(data, box, (0, 0.2, 0.28), (1, 0, 0, 0), metres=0.01, radians=0.1)
    np.testing.assert_allclose(off, [0, 0, 2, 0, 0, 5 * np.pi], atol=1e-9)
    assert costs.pose(data, box, quat=(1, 0, 0, 0)).shape == (3,)
    np.testing.assert_allclose(costs.relative_pose(data, box, box), 0, atol=1e-12)
    np.testing.assert_allclose(costs.relative_pose(data, arm, box)[:3], [-0.2, -1, 0.2], atol=1e-9)
    # the x axis of the box is the y axis of the world
    np.testing.assert_allclose(costs.look_at(data, box, (1, 0, 0), (0, 5, 0.3)), 0, atol=1e-12)
    np.testing.assert_allclose(costs.look_at(data, box, (1, 0, 0), (5, 0.2, 0.3)), [0, 0, -np.pi / 2], atol=1e-9)
    np.testing.assert_allclose(costs.touch(model, data, "box", "floor", metres=0.1), [2], atol=1e-9)
    np.testing.assert_allclose(costs.clear(model, data, "box", "floor", gap=0.3), [0.1], atol=1e-9)
    assert costs.clear(model, data, "box", "floor", gap=0.1) == 0
    # 89 degrees are 3.5 beyond 95% of the range
    np.testing.assert_allclose(costs.limits(model, state, np.deg2rad(1)), [3.5], atol=1e-9)
    joined = costs.join(costs.effort(jnp.ones(2), 2.0), costs.slow(state), costs.smooth(data))
    assert joined.shape == (2 + 2 * model.nv,) and joined[0] == 0.5


def test_looking_has_finite_derivatives_everywhere() -> None:
    model = diffsim.load(XML)
    box = model.body("box")

    def residual(point: jax.Array) -> jax.Array:
        data = diffsim.forward(model, diffsim.make_state(model), diffsim.make_inputs(model))
        return costs.look_at(data, box, (1, 0, 0), point)

    slope = jax.jacfwd(residual)
    for point in ((1.0, 0, 0.5), (-1.0, 0, 0.5), (0.0, 0, 0.5)):
        assert np.isfinite(slope(jnp.array(point))).all()
    # a point aside by dy is seen at the angle dy / distance
    assert float(slope(jnp.array([2.0, 0, 0.5]))[2, 1]) == pytest.approx(0.5)
