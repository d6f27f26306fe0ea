"""The integrator `discrete`: springs, servos and constraints at the end of the step (simulate/metric.py)."""

import jax
import numpy as np
import pytest

import diffsim
from diffsim.base.enums import Integrator
from tests.newer.newer import assert_slopes, assert_steps, forward, given, load, needs_newer, oracle
from tests.uncompiled import uncompiled

pytestmark = needs_newer

OPTION = '<option integrator="discrete" timestep="0.01" {}/>'
# springs and dampers of all joints, nonlinear ones too, a tendon over two trees, and servos of all kinds
SERVOS = """<mujoco>{}<worldbody>
  <body><joint name="a" axis="0 1 0" stiffness="3 2 5" damping="0.5 0.2 0.1" springref="20" actuatorfrcrange="-30 30"/>
    <geom type="capsule" size="0.02" fromto="0 0 0 0.2 0 0"/>
    <body pos="0.2 0 0"><joint name="b" axis="0 1 0"/><geom type="capsule" size="0.02" fromto="0 0 0 0.2 0 0"/></body>
  </body>
  <body pos="0 1 0"><joint name="c" type="slide" axis="0 0 1" stiffness="2 -60"/><geom size="0.05"/></body>
  <body pos="0 2 0"><joint name="ball" type="ball" stiffness="2 1 1" damping="0.3"/>
    <geom type="box" size="0.05 0.1 0.2" pos="0.1 0 0"/></body>
  <body pos="0 3 0"><freejoint/><geom type="box" size="0.05 0.1 0.2"/></body>
  <body pos="0 4 0"><freejoint/><geom type="box" size="0.1 0.2 0.1" pos="0.1 0 0"/><site name="end"/></body>
  <site name="hook" pos="0 4 1"/></worldbody>
  <tendon><fixed name="t" stiffness="5" damping="0.7"><joint joint="b" coef="1"/><joint joint="c" coef="2"/></fixed>
    <spatial stiffness="300" damping="10" springlength="0 0.9"><site site="hook"/><site site="end"/></spatial></tendon>
  <actuator><position joint="b" kp="1000" kv="2" gear="3"/><motor joint="a" damping="0.1" gear="2"/>
    <velocity joint="c" kv="4"/><position tendon="t" kp="600" kv="1"/><damper joint="a" kv="3" ctrlrange="0 1"/>
    <general joint="a" gaintype="affine" gainprm="0 2 -1"/><general joint="a" biastype="affine" biasprm="0 5 1"/>
    <position joint="c" kp="50" timeconst="0.1"/><intvelocity joint="b" kp="7" actrange="-1 1"/>
    <position joint="c" kp="200" forcerange="-20 20"/><muscle joint="a" lengthrange="-2 2" force="20"/>
    <dcmotor joint="b" motorconst="0.2" resistance="2"/></actuator></mujoco>"""
# limits, friction, equalities and contacts; time constants below the timestep
HELD = """<mujoco>{}<worldbody><geom name="floor" type="plane" size="9 9 0.1"/>
  <body name="p"><joint name="a" axis="0 1 0" stiffness="3" damping="0.5" range="-10 10" frictionloss="0.2"
      solreflimit="0.004 1" solreffriction="0.003 1"/>
    <geom type="capsule" size="0.02" fromto="0 0 0 0.2 0 0" contype="0" conaffinity="0"/>
    <body name="q" pos="0.2 0 0"><joint name="b" axis="0 1 1" armature="0.1"/>
      <geom type="capsule" size="0.02" fromto="0 0 0 0.2 0 0" contype="0" conaffinity="0"/></body></body>
  <body name="r" pos="0.5 0 0.3"><freejoint/><geom type="box" size="0.05 0.1 0.2" contype="0" conaffinity="0"/></body>
  <body pos="0 1 0.04"><joint name="c" type="slide" axis="0 0 1" damping="3" stiffness="40"/>
    <joint type="slide" axis="1 0 0" damping="1"/><geom name="s" size="0.05" condim="6"/></body>
  <body pos="3 0 0.1"><freejoint/><geom type="box" size="0.05 0.1 0.12" solref="0.004 0.8"/></body></worldbody>
  <tendon><fixed name="t" stiffness="5" damping="0.7" limited="true" range="-0.1 0.1" frictionloss="0.3">
    <joint joint="b" coef="1"/><joint joint="c" coef="2"/></fixed></tendon>
  <equality><connect body1="q" body2="r" anchor="0.1 0 0"/><weld body1="p" body2="r" solref="0.003 0.5"/>
    <joint joint1="c" polycoef="0.02 0 0 0 0" solref="-1e6 -300"/></equality>
  <contact><pair geom1="floor" geom2="s" solref="0.004 1" solreffriction="0.001 1"/></contact>
  <actuator><position joint="b" kp="300"/></actuator></mujoco>"""
MODELS = {
    "servos": (SERVOS.format(OPTION.format("")), 1e-10),
    "pyramids": (HELD.format(OPTION.format("")), 1e-9),
    "cones": (HELD.format(OPTION.format('cone="elliptic" impratio="3"')), 1e-9),
    "unsafe": (HELD.format(OPTION.format("").replace("/>", '><flag refsafe="disable"/></option>')), 1e-9),
}


@pytest.mark.parametrize("name", MODELS)
def test_discrete_steps_are_the_oracles(name: str) -> None:
    xml, atol = MODELS[name]
    states = oracle().sample(xml, count=3, spread=0.05)
    states["ctrl"] *= 3
    assert_steps(xml, states, atol)
    if name in ("servos", "pyramids"):
        assert_slopes(xml, states, 1e-4)
    # inverse dynamics finds the applied force
    model = load(xml)
    state, inputs = given(model, states)
    data = forward(model, state, inputs)
    back = uncompiled(jax.vmap(diffsim.inverse, in_axes=(None, 0, 0, 0)))(model, state, data.qacc, inputs)
    applied = data.qfrc_smooth - data.qfrc_passive + data.qfrc_bias
    np.testing.assert_allclose(back.qfrc_inverse, applied, atol=1e-5)


def test_a_stiff_servo_is_stable() -> None:
    xml = """<mujoco><option integrator="{}" timestep="0.01"/><worldbody><body><joint axis="0 1 0" name="j"/>
      <geom type="capsule" size="0.02" fromto="0 0 0 0.2 0 0"/></body></worldbody>
      <actuator><position joint="j" kp="1e5"/></actuator></mujoco>"""
    ends = {}
    for integrator in ("implicitfast", "discrete"):
        model = diffsim.load(xml.format(integrator), mujoco="4.0")

        def end(target: jax.Array, model: diffsim.Model = model) -> jax.Array:
            controls = target * np.ones((50, 1))
            return diffsim.rollout(model, diffsim.make_state(model), controls).final.qpos[0]

        ends[integrator] = [float(value) for value in jax.jit(jax.value_and_grad(end))(0.3)]
    value, slope = ends["discrete"]
    assert abs(value - 0.3) < 1e-3 and abs(slope - 1) < 1e-3
    assert not abs(ends["implicitfast"][0] - 0.3) < 0.1


@pytest.mark.parametrize(
    "xml, message",
    [
        ('solver="PGS"', "solver PGS"),
        ('noslip_iterations="3"', "noslip_iterations"),
        ('density="1"', "density"),
    ],
)
def test_what_discrete_does_not_support_is_refused(xml: str, message: str) -> None:
    model = load(SERVOS.format(OPTION.format(xml)))
    with pytest.raises(diffsim.UnsupportedError, match=message):
        diffsim.forward(model, diffsim.make_state(model))


def test_discrete_needs_a_version_and_a_compilation() -> None:
    with pytest.raises(diffsim.UnsupportedError, match=r"'discrete' is new in MuJoCo 3.13.*mujoco=\"3.13\""):
        diffsim.load(SERVOS.format(OPTION.format("")))
    model = load(SERVOS.format(OPTION.format("")).replace("discrete", "implicitfast"))
    changed = model.replace(opt=model.opt.replace(integrator=Integrator.DISCRETE))
    with pytest.raises(diffsim.UnsupportedError, match="before the model is compiled"):
        diffsim.forward(changed, diffsim.make_state(changed))
