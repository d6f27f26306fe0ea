"""Derivatives through few iterations of the solver."""

import jax
import jax.numpy as jnp
import numpy as np

import diffsim
from diffsim.base.enums import Cone
from tests.gradient_bars.bar import Bar, differences

# a ball that slides, rolls and rests between a floor and a wall
BALL = """<mujoco><option timestep=".004"/><worldbody><geom type="plane" size="5 5 .1"/>
<geom type="plane" size="5 5 .1" pos=".105 0 0" euler="0 -80 0"/>
<body pos="0 0 .098"><joint type="slide" axis="1 0 0" frictionloss=".3"/><joint type="slide" axis="0 0 1"/>
<joint name="roll" axis="0 1 0" range="-1 1"/><geom type="sphere" size=".1" mass="1"/></body>
</worldbody><actuator><motor joint="roll"/></actuator></mujoco>"""


def unroll() -> list[Bar]:
    """Derivatives through few solver iterations, beside differences of the same map."""
    bars = []
    loaded = diffsim.load(BALL)
    for iterations, cone in ((1, Cone.PYRAMIDAL), (2, Cone.ELLIPTIC), (4, Cone.PYRAMIDAL), (8, Cone.ELLIPTIC)):
        model = loaded.replace(opt=loaded.opt.replace(iterations=iterations, cone=cone, solver_gradient="unroll"))
        for steps in (1, 10):

            def result(x: jax.Array, model: diffsim.Model = model, steps: int = steps) -> jax.Array:
                state = diffsim.make_state(model).replace(qvel=x[:3])
                final, _ = diffsim.rollout(model, state, jnp.broadcast_to(x[3:], (steps, 1)))
                return jnp.concatenate([final.qvel, final.qpos])

            value, jacobian, worst = jax.jit(result), jax.jit(jax.jacrev(result)), 0.0
            for seed in range(8):
                x = np.random.default_rng(seed).normal(size=4) * [1, 1, 3, 1]
                expected = differences(value, x)
                error = np.max(np.abs(np.asarray(jacobian(x)) - expected)) / np.max(np.abs(expected))
                worst = max(worst, float(error))
            bars.append(Bar(f"unroll, {iterations} iterations, {steps} steps: relative error", worst, 1e-6))
    return bars
