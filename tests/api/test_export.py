"""A step as a program that other processes and machines run (`jax.export`)."""

import jax
import numpy as np
from jax import export

import diffsim

LEG = """<mujoco><worldbody><geom type="plane" size="1 1 1"/><body pos="0 0 .09"><freejoint/><geom size=".1"/>
<body pos=".3 0 0"><joint axis="0 1 0"/><geom type="capsule" size=".05 .2"/></body></body></worldbody></mujoco>"""


def test_a_step_is_exported_for_several_platforms() -> None:
    """Of nothing but what JAX promises to run later: it refuses what it makes no promise for."""
    model = diffsim.load(LEG)
    state, inputs = diffsim.make_state(model), diffsim.make_inputs(model)
    step = jax.jit(diffsim.step)
    exported = export.export(step, platforms=("cpu", "tpu"))(model, state, inputs)
    assert exported.platforms == ("cpu", "tpu")
    ours, again = step(model, state, inputs), exported.call(model, state, inputs)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-14), ours, again)
