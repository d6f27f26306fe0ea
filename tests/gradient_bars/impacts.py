"""Steps that are split at impacts: elastic balls, and the cube of DiffMJX."""

import time

import jax
import jax.numpy as jnp
import numpy as np

import diffsim
from tests.gradient_bars.bar import Bar, timed
from tests.gradient_bars.slopes import FINE, truth

BALLS = """<mujoco><option timestep="{h}" gravity="0 0 0" integrator="RK4"/><default><geom type="sphere" size=".1"
mass="1" solref="-1e4 0" solimp=".99 .99 .001"/></default><worldbody>
<body><joint type="slide" axis="1 0 0"/><geom/></body><body pos="1 0 0"><joint type="slide" axis="1 0 0"/><geom/></body>
</worldbody></mujoco>"""


def balls() -> list[Bar]:
    """Two elastic balls, 16 phases of the touch within a step: how the end depends on the start, and the time."""
    bars, exchanged = [], np.asarray([[0.0, 1.0], [1.0, 0.0]])
    for h, limit in ((4e-3, 0.02), (1e-3, 2e-3)):
        loaded, seconds = diffsim.load(BALLS.format(h=h)), {}
        starts = jnp.asarray([[-phase / 16 * h, 0.0, 1.0, 0.0] for phase in range(16)])
        for events in (0, 1):
            model = loaded.replace(opt=loaded.opt.replace(events=events))

            def end(x: jax.Array, model: diffsim.Model = model, h: float = h) -> jax.Array:
                state = diffsim.make_state(model).replace(qpos=x[:2], qvel=x[2:])
                final, _ = diffsim.rollout(model, state, jnp.zeros((round(1.5 / h), 0)))
                return jnp.concatenate([final.qpos, final.qvel])

            _, seconds[events] = timed(jax.jit(jax.vmap(end)), starts)
            _, seconds[events, "one"] = timed(jax.jit(end), starts[0])
            jacobians = np.asarray(jax.jit(jax.vmap(jax.jacfwd(end)))(starts))
            worst = [float(np.abs(jacobians[:, part, part] - exchanged).max()) for part in (slice(0, 2), slice(2, 4))]
            name = f"balls, h = {1e3 * h:g} ms, {events} events"
            bars += [
                Bar(f"{name}: error of dx/dx0", worst[0], limit if events else np.inf),
                Bar(f"{name}: error of dv/dv0", worst[1], limit if events else np.inf),
            ]
        bars.append(Bar(f"balls, h = {1e3 * h:g} ms: time over plain RK4, 16 worlds", seconds[1] / seconds[0], 2.5))
        alone = seconds[1, "one"] / seconds[0, "one"]
        bars.append(Bar(f"balls, h = {1e3 * h:g} ms: time over plain RK4, one world", alone, 2.5))
    return bars


# DiffMJX's cube (experiments 02 and 04), and its billiard (03)
TOSS = """<mujoco><option gravity="0 0 -2" timestep="{h}" integrator="RK4" iterations="50"><flag refsafe="disable"
eulerdamp="disable"/></option><default><geom solimp="0 .95 .001 .5 2" solref=".005 1"/></default><worldbody>
<geom type="plane" size="20 20 .125"/><body pos="0 0 .1"><freejoint/><geom type="box" size=".05 .05 .05" density="100"
euler="60 0 0"/></body></worldbody></mujoco>"""


def toss() -> list[Bar]:
    """Where a cube is after a second, by the speed with which it is thrown down.

    0.17267 is DiffMJX's, of a motion that ends at -0.3018 m: its fork of MJX softens the choice of corners. C MuJoCo's
    ends at -0.2609 m, and its slope is another.
    """
    exact = truth(TOSS.format(h=FINE).replace('pos="0 0 .1"', 'pos="0 0 .2"'), (0, -0.1, -2, 0, 0, 0), 1.0, 1)
    bars = []
    for h in (4e-3, 1e-3):
        loaded = diffsim.load(TOSS.format(h=h))
        model = loaded.replace(opt=loaded.opt.replace(events=2))

        def end(u: jax.Array, model: diffsim.Model = model, h: float = h) -> jax.Array:
            state = diffsim.make_state(model)
            state = state.replace(qpos=state.qpos.at[2].set(0.2), qvel=state.qvel.at[1].set(-0.1).at[2].set(u))
            return diffsim.rollout(model, state, jnp.zeros((round(1 / h), 0))).final.qpos[1]

        start = time.perf_counter()
        program = jax.jit(jax.grad(end)).lower(jnp.asarray(-2.0)).compile()
        compiled = time.perf_counter() - start
        slope, seconds = timed(program, jnp.asarray(-2.0))
        name = f"cube toss, h = {1e3 * h:g} ms: slope {float(slope):.4g}, relative error"
        bars += [
            Bar(f"{name} beside DiffMJX's 0.17267", abs(float(slope) / 0.17267 - 1), 1e-3),
            Bar(f"{name} beside C MuJoCo's {exact:.4g}", abs(float(slope) / exact - 1), 1e-3),
            Bar(f"cube toss, h = {1e3 * h:g} ms: s, forward and backward", seconds, 2.0),
            Bar(f"cube toss, h = {1e3 * h:g} ms: s to compile", compiled, 20.0),
        ]
    return bars
