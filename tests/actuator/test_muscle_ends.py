"""Muscles at the ends of their activation: the derivative is that of the side to which they can go."""

import jax
import numpy as np
import pytest

import diffsim
from tests.uncompiled import uncompiled

XML = """<mujoco><worldbody><body><joint name="j" axis="0 1 0" range="-1 1"/><geom size=".1" pos=".3 0 0"/></body>
</worldbody><actuator><muscle joint="j" timeconst=".01 .04" {width}/></actuator></mujoco>"""


@pytest.mark.parametrize("width", ["", 'tausmooth=".2"'])
def test_derivatives_are_one_sided_differences(width: str) -> None:
    model = diffsim.load(XML.format(width=width))
    state, inputs = diffsim.make_state(model), diffsim.make_inputs(model)

    def rate(ctrl: jax.Array, act: jax.Array) -> jax.Array:
        return diffsim.forward(model, state.replace(act=act[None]), inputs.replace(ctrl=ctrl[None])).act_dot[0]

    run, slopes = uncompiled(rate), uncompiled(jax.grad(rate, argnums=(0, 1)))
    for end, inward in ((0.0, 1e-7), (1.0, -1e-7)):
        # away from the ends both sides agree
        for ctrl, act in ((end, end), (end, 0.5), (0.5, end)):
            here = run(ctrl, act)
            steps = [inward if value == end else 1e-7 for value in (ctrl, act)]
            by_ctrl = (run(ctrl + steps[0], act) - here) / steps[0]
            by_act = (run(ctrl, act + steps[1]) - here) / steps[1]
            np.testing.assert_allclose(slopes(ctrl, act), (by_ctrl, by_act), rtol=2e-5)
