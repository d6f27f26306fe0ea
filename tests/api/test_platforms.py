"""Steps and their gradients lower for accelerators that are not here, with no operation that one of them lacks."""

import re

import jax
import jax.numpy as jnp
import pytest

import diffsim

TEXT = """<mujoco><worldbody><geom type="plane" size="5 5 1"/>
<body pos="0 0 .3"><freejoint/><geom type="box" size=".1 .1 .1"/><geom size=".1" pos=".2 0 0"/>
  <body pos="0 .2 0"><joint name="j" range="-1 1" limited="true" damping=".1" frictionloss=".1"/>
    <geom type="capsule" size=".05 .1"/></body></body>
</worldbody><actuator><position joint="j" kp="10"/></actuator></mujoco>"""
# factorizations of the vendors' libraries; a TPU expands them, and calls nothing
LIBRARY = {"tpu": set(), "cuda": {"cusolver_potrf_ffi"}}


@pytest.mark.parametrize("platform", LIBRARY)
def test_steps_and_gradients_lower(platform: str) -> None:
    with jax.enable_x64(False):
        model = diffsim.load(TEXT)
        state = diffsim.make_state(model)

        def after(velocity: jax.Array) -> diffsim.State:
            return diffsim.step(model, state.replace(qvel=velocity))

        for function in (after, jax.grad(lambda velocity: jnp.sum(after(velocity).qpos ** 2))):
            traced = jax.jit(jax.vmap(function)).trace(jnp.zeros((8, model.nv)))
            text = traced.lower(lowering_platforms=(platform,)).as_text()
            assert set(re.findall(r"custom_call @(\w+)", text)) <= LIBRARY[platform]
