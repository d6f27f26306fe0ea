"""Models whose inertia matrix has no inverse at qpos0 alone: MuJoCo simulates them from elsewhere, and so do we."""

import jax.numpy as jnp
import numpy as np
import oracle
import pytest
from uncompiled import uncompiled

import diffsim

LOCK = """<mujoco><worldbody><body><joint axis="1 0 0"/><joint axis="0 1 0"/><joint axis="1 0 0"/>
<geom type="box" size=".1 .2 .3"/></body></worldbody></mujoco>"""
ALWAYS = LOCK.replace("0 1 0", "1 0 0")


def test_a_gimbal_that_is_locked_at_qpos0_moves_from_elsewhere() -> None:
    with pytest.warns(UserWarning, match="singular at qpos0; inverse weights are taken at a nearby pose"):
        model = diffsim.load(LOCK)
    assert np.isfinite(model.dof_invweight0).all()
    mjmodel = oracle.mujoco.MjModel.from_xml_string(LOCK)
    mjdata = oracle.mujoco.MjData(mjmodel)
    mjdata.qpos[:], mjdata.qvel[:] = (0.3, 0.7, -0.2), (1, -2, 0.5)
    oracle.mujoco.mj_forward(mjmodel, mjdata)
    state = diffsim.make_state(model).replace(qpos=jnp.asarray(mjdata.qpos), qvel=jnp.asarray(mjdata.qvel))
    np.testing.assert_allclose(uncompiled(diffsim.forward)(model, state).qacc, mjdata.qacc, atol=1e-10)


def test_joints_in_line_everywhere_are_refused() -> None:
    with pytest.raises(diffsim.MjcfError, match=r"nothing resists degrees of freedom \[0, 1, 2\]"):
        diffsim.load(ALWAYS)
