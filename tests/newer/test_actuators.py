"""Changes of actuators."""

import numpy as np
import pytest

import diffsim
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


# motors with each input, with the states for current, slew rate, integral, temperature and friction
MOTORS = """<mujoco><option integrator="{}" timestep="0.005"/><worldbody>
  <body><joint name="a" axis="0 1 0" armature="0.1"/><geom type="box" size="0.1 0.2 0.3"/></body>
  <body pos="2 0 0"><joint name="b" axis="0 1 0" armature="0.1"/><geom type="box" size="0.1 0.2 0.3"/></body>
  </worldbody><default><dcmotor motorconst="2" resistance="3"/></default><actuator>
  <dcmotor joint="a" saturation="9"/><dcmotor joint="a" input="voltage" inductance="0.01" cogging="0.3 4 0.1"/>
  <dcmotor joint="a" input="pos" controller="50 10 4 9 0.1 30"/>
  <dcmotor joint="b" input="pos" controller="50 0 4" inductance="0.02" thermal="2 3 0 0.004 20 25"/>
  <dcmotor joint="b" input="vel" controller="5 0 4 3" gear="2"/><dcmotor joint="b" input="ff" controller="1 0 0.4"/>
  <dcmotor joint="a" input="ff" lugre="20 3 1 2 0.1"/></actuator></mujoco>"""


@pytest.mark.parametrize(
    "integrator, version", [("Euler", "4.0"), ("implicitfast", "3.17"), ("implicitfast", "4.0"), ("discrete", "4.0")]
)
def test_motors_ask_for_torques(integrator: str, version: str) -> None:
    xml = MOTORS.format(integrator)
    states = oracle(version).sample(xml, count=4)
    states["ctrl"] *= 3
    assert_steps(xml, states, 1e-10, steps=3, version=version)
    if integrator == "implicitfast":
        assert_slopes(xml, states, 1e-6, version=version)


@pytest.mark.parametrize(
    "said, version, message",
    [
        ("pos", "3.8.1", r"'pos' is new in MuJoCo 3.12"),
        ("pos", "3.11", r"'pos' is new in MuJoCo 3.12"),
        ("position", "4.0", r"MuJoCo 3.12 removed 'position'"),
        ("pos vel", "4.0", r"one control"),
    ],
)
def test_inputs_belong_to_their_versions(said: str, version: str, message: str) -> None:
    xml = MOTORS.format("Euler").replace('input="vel"', f'input="{said}"').replace('input="ff"', "")
    xml = xml if said == "pos" else xml.replace('input="pos"', "")
    with pytest.raises(diffsim.MjcfError, match=message):
        diffsim.load(xml, mujoco=version)
