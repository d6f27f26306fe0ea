"""Steps that are split at impacts: elastic balls, and the cube of DiffMJX."""

import time
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name

import diffsim
from diffsim.xla.reverse_mode import SEARCH_RESULT, entwined, recomputed
from tests.gradient_bars.bar import Bar, timed
from tests.gradient_bars.soft_cube import softened
from tests.oracle import mujoco, stepped

BALLS = """<mujoco><option timestep="{h}" gravity="0 0 0" integrator="RK4"/><default><geom type="sphere" size=".1"
mass="1" solref="-1e4 0" solimp=".99 .99 .001"/></default><worldbody>
<body><joint type="slide" axis="1 0 0"/><geom/></body><body pos="1 0 0"><joint type="slide" axis="1 0 0"/><geom/></body>
</worldbody></mujoco>"""


def balls() -> Iterator[Bar]:
    """Two elastic balls, 16 phases of the touch within a step: how the end depends on the start, and the time."""
    exchanged = np.asarray([[0.0, 1.0], [1.0, 0.0]])
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
            yield Bar(f"{name}: error of dx/dx0", worst[0], limit if events else np.inf)
            yield Bar(f"{name}: error of dv/dv0", worst[1], limit if events else np.inf)
        yield Bar(f"balls, h = {1e3 * h:g} ms: time over plain RK4, 16 worlds", seconds[1] / seconds[0], 2.5)
        alone = seconds[1, "one"] / seconds[0, "one"]
        yield Bar(f"balls, h = {1e3 * h:g} ms: time over plain RK4, one world", alone, 2.5)


# DiffMJX's cube (experiments 02 and 04)
TOSS = """<mujoco><option gravity="0 0 -2" timestep="{h}" integrator="RK4" iterations="50"><flag refsafe="disable"
eulerdamp="disable"/></option><default><geom solimp="0 .95 .001 .5 2" solref=".005 1"/></default><worldbody>
<geom type="plane" size="20 20 .125"/><body pos="0 0 .1"><freejoint/><geom type="box" size=".05 .05 .05" density="100"
euler="60 0 0"/></body></worldbody></mujoco>"""
# contacts of this scene are stiff (a time constant of 5 ms), and their impedance rises from 0 within a millimetre: m on
# the way through that in one step; s of a step in the air and of one while something touches; the most steps
WIDTH, RISE, AIR, TOUCHING, STEPS = 1e-3, 7e-5, 2e-3, 2e-4, 12_000
# s, to rounding
SECOND = 1 - 1e-12


def thrown(model: diffsim.Model, up: jax.Array) -> diffsim.State:
    """The cube, thrown down at a speed (m/s, negative)."""
    state = diffsim.make_state(model)
    return state.replace(qpos=state.qpos.at[2].set(0.2), qvel=state.qvel.at[1].set(-0.1).at[2].set(up))


def landed(model: diffsim.Model, up: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Where the cube is after a second, m, and whether the steps sufficed for it."""

    @recomputed
    def go_on(state: diffsim.State, _: None) -> tuple[diffsim.State, None]:
        # reverse mode does not look for it again
        h = checkpoint_name(length(model, jax.lax.stop_gradient(state)), SEARCH_RESULT)
        own = model.replace(opt=model.opt.replace(timestep=h))
        return jax.lax.cond(state.time < SECOND, lambda: diffsim.step(own, state), lambda: state), None

    start = entwined(thrown(model, up), up)
    final = jax.lax.scan(go_on, start, None, STEPS)[0]
    return final.qpos[1], final.time >= SECOND


def length(model: diffsim.Model, state: diffsim.State) -> jax.Array:
    """Of the next step, s: to where a corner comes to the first millimetre of the floor, and by little through that."""
    dist = diffsim.forward(model, state).contact.dist
    # no corner is faster up or down (sliding does not matter)
    speed = jnp.abs(state.qvel[2]) + 0.09 * jnp.linalg.norm(state.qvel[3:])
    way = jnp.min(jnp.maximum(jnp.maximum(dist, -WIDTH - dist), RISE))
    most = jnp.where(jnp.min(dist) < 0, TOUCHING, AIR)
    return jnp.minimum(jnp.minimum(way / speed, most), 1 - state.time)


def converged(up: float, reach: float = 1e-3) -> float:
    """The slope of C MuJoCo's motion, by central differences at steps of 10 us."""
    mjmodel = mujoco.MjModel.from_xml_string(TOSS.format(h=1e-5).replace('pos="0 0 .1"', 'pos="0 0 .2"'))
    ends = [
        stepped(mjmodel, np.asarray([0, -0.1, up + change, 0, 0, 0]), 100_000).qpos[1] for change in (-reach, reach)
    ]
    return (ends[1] - ends[0]) / (2 * reach)


def differences(model: diffsim.Model, up: float, reach: float = 1e-3) -> float:
    """The same of our own motion, without split steps, at steps of 10 us: what DiffMJX's contacts do."""
    fine = model.replace(opt=model.opt.replace(timestep=jnp.asarray(1e-5), events=0))

    @jax.jit
    def end(model: diffsim.Model, up: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, 100_000, lambda _, state: diffsim.step(model, state), thrown(model, up)).qpos[1]

    ends = jax.vmap(end, (None, 0))(fine, jnp.asarray([up - reach, up + reach]))
    return float(ends[1] - ends[0]) / (2 * reach)


def toss() -> Iterator[Bar]:
    """Where a cube is after a second, by the speed with which it is thrown down: a cube, and DiffMJX's contacts of one.

    DiffMJX reports 0.17267 for its own, the limit of derivatives of ever smaller steps. These do not see that the force
    jumps at touch (impedance begins at 1e-4, not 0), and are off the slope of the motion by 0.55% however small steps
    are: its own differences over +-0.01 m/s give 0.1715, finer ones 0.1717.
    """
    yield from _tossed("cube", diffsim.load(TOSS.format(h=AIR)), converged(-2.0))
    with softened():
        # another name: another program
        loaded = diffsim.load(TOSS.format(h=AIR).replace("<freejoint/>", '<freejoint name="softened"/>'))
        yield from _tossed("DiffMJX's contacts (it has 0.17267)", loaded, differences(loaded, -2.0))


def _tossed(name: str, loaded: diffsim.Model, exact: float) -> Iterator[Bar]:
    """Error, time and compilation of the derivative in reverse mode."""
    model = loaded.replace(opt=loaded.opt.replace(events=4))
    start = time.perf_counter()
    loss, options = jax.value_and_grad(lambda up: landed(model, up), has_aux=True), diffsim.compiler_options()
    differentiated = jax.jit(loss, compiler_options=options)
    program = differentiated.lower(jnp.asarray(-2.0)).compile()
    compiled = time.perf_counter() - start
    ((end, there), slope), seconds = timed(program, jnp.asarray(-2.0))
    assert there, "more steps are needed"
    label = f"toss, {name}, ends at {float(end):.6f} m: slope {float(slope):.5f}, beside {exact:.5f}"
    yield Bar(f"{label}, relative error", abs(float(slope) / exact - 1), 1e-3)
    yield Bar(f"toss, {name}: s, forward and backward", seconds, 2.0)
    yield Bar(f"toss, {name}: s to compile", compiled, 20.0)
