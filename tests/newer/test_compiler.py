"""Changes of the compiler."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import diffsim
from tests.newer.newer import assert_steps, needs_newer, oracle
from tests.uncompiled import uncompiled

pytestmark = needs_newer

SERVOS = """<mujoco><worldbody>
  <body><joint name="a" axis="0 1 0" armature="0.01"/><geom size="0.1" pos="0.3 0 0"/>
    <body pos="0.5 0 0"><joint name="b" axis="0 1 0"/><geom size="0.1" pos="0.3 0 0"/><site name="tip" pos="0.6 0 0.1"/>
  </body></body><body pos="0 3 0"><freejoint/><geom type="box" size="0.1 0.2 0.3"/></body></worldbody>
  <tendon><fixed name="t" armature="0.02" actuatorfrcrange="-1 1"><joint joint="a" coef="1"/><joint joint="b" coef="1"/>
  </fixed></tendon>
  <actuator><position tendon="t" kp="5" dampratio="1"/><position joint="a" kp="2" dampratio="0.7"/>
    <position joint="b" kp="2" kv="0.3"/><position site="tip" gear="1 0 0.2 0 0 0" kp="3" dampratio="2"/></actuator>
</mujoco>"""


@pytest.mark.parametrize("version", ["3.17", "4.0"])
def test_damping_ratios_and_limits_of_tendons(version: str) -> None:
    theirs, ours = oracle(version).compiled(SERVOS), diffsim.load(SERVOS, mujoco=version)
    np.testing.assert_allclose(ours.actuator_biasprm, theirs["actuator_biasprm"], rtol=1e-9)
    assert ours.topology.tendon_actfrclimited.tolist() == theirs["tendon_actfrclimited"].tolist() == [1]
    assert not diffsim.load(SERVOS).topology.tendon_actfrclimited.any()
    assert_steps(SERVOS, oracle(version).sample(SERVOS, count=2), 1e-10, version=version)


def test_damping_ratios_follow_the_masses() -> None:
    model = diffsim.load(SERVOS, mujoco="4.0")
    # damping is done with in a compiled model: back to ratios
    model = model.replace(actuator_biasprm=model.actuator_biasprm.at[jnp.array([0, 1, 3]), 2].set(1.0))

    def damping(scale: jax.Array) -> jax.Array:
        return diffsim.set_const(model.replace(body_mass=model.body_mass * scale)).actuator_biasprm[:, 2]

    def heavier(scale: float) -> np.ndarray:
        return np.asarray(uncompiled(damping)(scale))

    slope = uncompiled(jax.jacfwd(damping))(1.0)
    np.testing.assert_allclose(slope, (heavier(1 + 1e-5) - heavier(1 - 1e-5)) / 2e-5, atol=1e-7)
    np.testing.assert_allclose(uncompiled(jax.jacrev(damping))(1.0), slope, atol=1e-12)


# mujoco#3071
REPLICATED = """<mujoco><worldbody><replicate count="3" offset="1 0 0" sep="_"><body><joint name="j" axis="0 1 0"/>
  <geom size="0.1" pos="0.3 0 0"/></body></replicate></worldbody>
  <keyframe><key name="home" qpos="{}"/></keyframe></mujoco>"""


def test_keyframes_of_replicates_are_of_the_whole_model() -> None:
    with pytest.raises(diffsim.MjcfError, match="3 numbers"):
        diffsim.load(REPLICATED.format("0.1 0.2 0.3"))
    assert diffsim.load(REPLICATED.format("0.1")).nkey == 4
    for numbers in ("0.1 0.2 0.3", "0.1"):
        xml = REPLICATED.format(numbers)
        ours, theirs = diffsim.load(xml, mujoco="4.0"), oracle().compiled(xml)
        np.testing.assert_array_equal(ours.key_qpos, theirs["key_qpos"])


def test_default_tolerance_of_sleep() -> None:
    xml = "<mujoco><option>{}</option></mujoco>"
    for said in ("<flag sleep='enable'/>", ""):
        tolerance = oracle().compiled(xml.format(said))["opt.sleep_tolerance"]
        assert diffsim.load(xml.format(said), mujoco="4.0").opt.sleep_tolerance == tolerance == 1e-3
    assert (
        diffsim.load(
            xml.format("").replace("<option>", "<option sleep_tolerance='0.1'>"), mujoco="4.0"
        ).opt.sleep_tolerance
        == 0.1
    )
    assert diffsim.load(xml.format("")).opt.sleep_tolerance == 1e-4
