"""Changes of actuators."""

import numpy as np
import pytest

from tests.newer.newer import assert_slopes, assert_steps, given, load, needs_newer, oracle, step

pytestmark = needs_newer

# servos on a ball joint and between two sites, with setpoints more than a turn away; and what is no such servo
TURNING = """<mujoco><option integrator="implicitfast"/><worldbody><site name="fixed"/>
  <body><joint name="ball" type="ball" damping="1"/><geom type="box" size="0.1 0.2 0.3"/></body>
  <body pos="1 0 0"><joint name="h" axis="0 1 0"/><geom type="box" size="0.2 0.1 0.3"/><site name="s"/>
  </body></worldbody><actuator>
  <position joint="ball" gear="1 0 0" kp="30" kv="1"/><position joint="ball" gear="0 0.5 0.2" kp="20"/>
  <intvelocity jointinparent="ball" gear="0 0 2" kp="10" actrange="-20 20"/>
  <position site="s" refsite="fixed" gear="0 0 0 0 1 0" kp="20"/>
  <position site="s" refsite="fixed" gear="0 0 0.1 0 1 0" kp="1"/>
  <general joint="ball" gear="0 1 0" gainprm="2" biastype="affine" biasprm="0 -1"/>
  <position joint="ball" gear="0 1 0" kp="2" timeconst="0.1"/>
  <general joint="ball" gear="1 1 0" gainprm="2" biastype="affine" biasprm="0 -2" dyntype="filter" dynprm="0.2"
    actearly="true"/><position joint="h" kp="3"/><motor joint="ball"/>
</actuator></mujoco>"""


@pytest.mark.parametrize("version", ["3.17", "4.0"])
def test_servos_take_the_shortest_way(version: str) -> None:
    states = oracle(version).sample(TURNING, count=6, spread=0.8)
    states["ctrl"] *= 12
    states["act"] = states["act"] * 16 - 8
    assert_steps(TURNING, states, 1e-10, version=version)
    if version == "4.0":
        assert_slopes(TURNING, states, 1e-6)
    before, now = (load(TURNING, named) for named in ("3.8.1", version))
    speeds = [np.asarray(step(model, *given(model, states)).qvel) for model in (before, now)]
    assert np.abs(speeds[0] - speeds[1]).max() > 0.1
