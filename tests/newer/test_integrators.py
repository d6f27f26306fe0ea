"""Changes of the integrators."""

import numpy as np
import pytest

import diffsim
from tests.newer.newer import assert_slopes, assert_steps, needs_newer, oracle

pytestmark = needs_newer

TUMBLING = """<mujoco><option integrator="{}" timestep="0.01" density="{}" viscosity="0.1"/><worldbody>
  <body><freejoint/><geom type="box" size="0.1 0.2 0.05" mass="{}"/>
    <body pos="0.3 0.1 0"><geom type="box" size="0.1 0.05 0.3" mass="1"/></body></body>
  <body pos="2 0 0"><freejoint/><geom type="ellipsoid" size="0.1 0.2 0.3" pos="0.05 0 0" fluidshape="ellipsoid"/></body>
  <body pos="4 0 0"><joint type="ball" damping="0.1"/><geom type="box" size="0.1 0.2 0.3" pos="0.05 0 0"/>
    <body pos="0.4 0 0"><joint axis="0 1 0"/><geom type="capsule" size="0.05 0.2"/></body></body></worldbody>
  <actuator><velocity name="a" kv="0.3" joint="hinge"/></actuator></mujoco>""".replace(
    '<joint axis="0 1 0"/>', '<joint name="hinge" axis="0 1 0"/>'
)


@pytest.mark.parametrize("density", [0, 2])
@pytest.mark.parametrize("version", ["3.17", "4.0"])
def test_free_bodies_turn_as_with_implicit(density: float, version: str) -> None:
    xml = TUMBLING.format("implicitfast", density, 1)
    states = oracle(version).sample(xml, count=4, speed=3)
    assert_steps(xml, states, 1e-12, version=version)
    assert_steps(xml, states, 1e-9, steps=20, version=version)
    if version == "4.0":
        assert_slopes(xml, states, 1e-6)


def energy(model: diffsim.Model, qvel: np.ndarray, steps: int) -> list[float]:
    """Kinetic energy, J, at the beginning and after some steps."""
    state = diffsim.make_state(model).replace(qvel=qvel)
    later = diffsim.rollout(model, state, np.zeros((steps, model.nu))).final.qvel
    mass = np.asarray(diffsim.support.full_m(model, diffsim.forward(model, state)))
    return [float(0.5 * v @ mass @ v) for v in (qvel, np.asarray(later))]


# mujoco#3553: the inertia of a free body sits in what is fixed to it
NESTED = """<mujoco><option integrator="implicitfast" timestep="0.01" gravity="0 0 0"/><worldbody>
  <body><freejoint/><inertial pos="0 0 0" mass="1e-3" diaginertia="1e-6 1e-6 1e-6"/>
    <body><inertial pos="0 0 0" mass="1" diaginertia="0.01 0.02 0.029"/></body></body></worldbody></mujoco>"""


def test_nested_inertia_gains_no_energy() -> None:
    spin = np.array([0, 0, 0, 10.0, 10, 10])
    before, after = energy(diffsim.load(NESTED), spin, 300)
    assert after > 2 * before
    before, after = energy(diffsim.load(NESTED, mujoco="4.0"), spin, 300)
    assert after < before
    states = oracle().sample(NESTED, count=1, spread=0, speed=0, force=0) | {"qvel": spin[None]}
    assert_steps(NESTED, states, 1e-9, steps=100)


@pytest.mark.parametrize("version", ["3.17", "4.0"])
def test_runge_kutta_turns_to_fourth_order(version: str) -> None:
    xml = TUMBLING.format("RK4", 0, 1)
    states = oracle(version).sample(xml, count=4, speed=4)
    assert_steps(xml, states, 1e-12, version=version)
    assert_steps(xml, states, 1e-9, steps=20, version=version)
    if version == "4.0":
        assert_slopes(xml, states, 1e-6)


SATURATED = """<mujoco><option integrator="{}" timestep="0.05"/><worldbody>
  <body><joint name="a" axis="0 1 0" actuatorfrcrange="-1 1"/><geom size="0.1" pos="0.3 0 0"/>
    <body pos="0.5 0 0"><joint name="b" axis="0 1 0"/><geom size="0.1" pos="0.3 0 0"/></body></body></worldbody>
  <tendon><fixed name="t" actuatorfrcrange="-1 1"><joint joint="a" coef="1"/>
    <joint joint="b" coef="0.5"/></fixed></tendon>
  <actuator><velocity joint="a" kv="3"/><motor joint="a"/><velocity tendon="t" kv="2"/><motor tendon="t"/>
    <position joint="b" kp="5" kv="1" forcerange="-2 2"/></actuator></mujoco>"""


@pytest.mark.parametrize("integrator", ["implicit", "implicitfast"])
def test_saturated_targets_are_not_damped(integrator: str) -> None:
    xml = SATURATED.format(integrator)
    # within the limits, and beyond some or all of them
    for speed in (0.05, 1, 5):
        states = oracle().sample(xml, count=4, speed=speed)
        states["ctrl"] *= 0.3
        assert_steps(xml, states, 1e-12)
    assert_slopes(xml, states, 1e-6)
