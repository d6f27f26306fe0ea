"""Run by test_default_flags.py in a process of its own, with the XLA flags that users have: steps beside MuJoCo's."""

import functools

import jax
import mujoco
import numpy as np

import diffsim

# a contact, a limit, friction in a joint, a servo and a sensor
MODEL = """
<mujoco>
  <option timestep="0.01" tolerance="1e-15" ls_tolerance="1e-12"/>
  <worldbody>
    <geom type="plane" size="1 1 1"/>
    <body pos="0 0 0.09"><joint type="slide" axis="0 0 1"/><geom size="0.1"/></body>
    <body pos="1 0 1"><joint name="hinge" axis="0 1 0" range="-10 10" ref="20" frictionloss="0.1"/>
      <geom type="capsule" size="0.05 0.2" pos="0.3 0 0"/><site name="tip" pos="0.5 0 0"/></body>
  </worldbody>
  <actuator><position joint="hinge" kp="3"/></actuator>
  <sensor><framepos objtype="site" objname="tip"/></sensor>
</mujoco>
"""
STEPS = 4


def main() -> None:
    """Prints the largest difference of a state or sensor, and how many rows the constraints had."""
    model, mjmodel = diffsim.load(MODEL), mujoco.MjModel.from_xml_string(MODEL)
    data, state = mujoco.MjData(mjmodel), diffsim.make_state(model)
    inputs = diffsim.make_inputs(model).replace(ctrl=np.array([0.5]))
    data.ctrl[:] = 0.5
    step, difference, rows = jax.jit(functools.partial(diffsim.step_data, model)), 0.0, 0
    for _ in range(STEPS):
        state, seen = step(state, inputs)
        mujoco.mj_step(mjmodel, data)
        rows = max(rows, data.nefc)
        pairs = (state.qpos, data.qpos), (state.qvel, data.qvel), (seen.sensordata, data.sensordata)
        difference = max(difference, *(float(np.abs(ours - theirs).max()) for ours, theirs in pairs))
    print("difference", difference)
    print("rows", rows)


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main()
