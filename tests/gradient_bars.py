"""`make gradients`: what issue 15 promises of gradients and the tools on top, measured; one line a bar.

python tests/gradient_bars.py [--only TEXT]

Float64, default XLA flags. 1 if a bar is missed.
"""

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

import diffsim
from diffsim import optimize
from diffsim.enums import Cone
from tests.optimize.problems import swing_up

# a ball that slides, rolls and rests between a floor and a wall
BALL = """<mujoco><option timestep=".004"/><worldbody><geom type="plane" size="5 5 .1"/>
<geom type="plane" size="5 5 .1" pos=".105 0 0" euler="0 -80 0"/>
<body pos="0 0 .098"><joint type="slide" axis="1 0 0" frictionloss=".3"/><joint type="slide" axis="0 0 1"/>
<joint name="roll" axis="0 1 0" range="-1 1"/><geom type="sphere" size=".1" mass="1"/></body>
</worldbody><actuator><motor joint="roll"/></actuator></mujoco>"""


class Bar(NamedTuple):
    """A measured number, and what it may be at most."""

    name: str
    value: float
    limit: float


def differences(function: Callable[[np.ndarray], Any], x: np.ndarray) -> np.ndarray:
    """Central differences of a vector function, extrapolated; one column per entry of x."""

    def central(eps: float) -> np.ndarray:
        columns = [(np.asarray(function(x + eps * e)) - function(x - eps * e)) / (2 * eps) for e in np.eye(x.size)]
        return np.stack(columns, axis=1)

    return (4 * central(1e-5) - central(2e-5)) / 3


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


def timed(function: Callable[..., Any], *arguments: Any) -> tuple[Any, float]:
    """The result, and the seconds of the best of three runs after compilation."""
    result = jax.block_until_ready(function(*arguments))
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        jax.block_until_ready(function(*arguments))
        seconds.append(time.perf_counter() - start)
    return result, min(seconds)


def cartpole() -> list[Bar]:
    """Swing-up by iLQR from hanging, alone and 256 at once."""
    task, settings = swing_up(), optimize.Ilqr(iterations=200)
    rng = np.random.default_rng(0)
    hanging = diffsim.make_state(task.model).replace(qpos=jnp.asarray([0.0, np.pi]))
    states = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (256, *leaf.shape)), hanging)
    states = states.replace(qpos=states.qpos + 0.1 * rng.normal(size=(256, 2)))
    guess = jnp.asarray(0.01 * rng.normal(size=(100, 1)))
    solve = jax.jit(lambda state: optimize.ilqr(task, state, guess, settings))
    plan, alone = timed(solve, hanging)
    plans, batch = timed(jax.jit(jax.vmap(solve)), states)

    def miss(plan: optimize.Plan) -> np.ndarray:
        return np.abs(1 - np.cos(np.asarray(plan.states.qpos)[..., -1, 1]))

    return [
        Bar(f"cartpole swing-up by iLQR, {int(plan.iterations)} iterations: s", alone, 2.0),
        Bar("cartpole swing-up: 1 - cos of the last angle", float(miss(plan)), 0.01),
        Bar("256 swing-ups in one batch, time over that of one", batch / alone, 30.0),
        Bar("256 swing-ups: share that fails", float(np.mean(miss(plans) > 0.01)), 0.05),
    ]


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
    """Where a cube comes to lie, by the speed with which it is thrown down; 0.17267 by adaptive integration."""
    bars = []
    for h in (4e-3, 1e-3):
        loaded = diffsim.load(TOSS.format(h=h))
        model = loaded.replace(opt=loaded.opt.replace(events=1))

        def end(u: jax.Array, model: diffsim.Model = model, h: float = h) -> jax.Array:
            state = diffsim.make_state(model)
            state = state.replace(qpos=state.qpos.at[2].set(0.2), qvel=state.qvel.at[1].set(-0.1).at[2].set(u))
            return diffsim.rollout(model, state, jnp.zeros((round(1 / h), 0))).final.qpos[1]

        start = time.perf_counter()
        program = jax.jit(jax.grad(end)).lower(jnp.asarray(-2.0)).compile()
        compiled = time.perf_counter() - start
        slope, seconds = timed(program, jnp.asarray(-2.0))
        bars += [
            Bar(f"cube toss, h = {1e3 * h:g} ms: relative error of the slope", abs(float(slope) / 0.17267 - 1), 1e-3),
            Bar(f"cube toss, h = {1e3 * h:g} ms: s, forward and backward", seconds, 2.0),
            Bar(f"cube toss, h = {1e3 * h:g} ms: s to compile", compiled, 20.0),
        ]
    return bars


BILLIARD = """<mujoco><option timestep=".01" impratio="1"><flag refsafe="disable" eulerdamp="disable"/></option>
<default><geom solimp=".9 .95 .01 .5 2" solref=".01 .2"/><default class="ball"><joint damping="1e-4"/>
<geom type="sphere" size=".042" mass=".17" contype="7" friction=".2 .01 .01"/></default></default><worldbody>
<geom type="plane" size="1.2 .6 .02" pos="0 0 -.015" contype="1" conaffinity="2"/>
<geom type="box" size="1.25 .05 .05" pos="0 .65 .025"/><geom type="box" size="1.25 .05 .05" pos="0 -.65 .025"/>
<geom type="box" size=".05 .6 .05" pos="1.2 0 .025"/><geom type="box" size=".05 .6 .05" pos="-1.2 0 .025"/>
<body pos="-.375 0 .1" childclass="ball"><joint type="free"/><geom/></body>
<body pos="-.2 0 .1" childclass="ball"><joint type="free"/><geom/></body></worldbody></mujoco>"""


def billiard() -> list[Bar]:
    """Which first impulses bring a ball to rest at the origin: descent directions where the first ball misses too."""
    loaded = diffsim.load(BILLIARD)

    def loss(u: jax.Array, model: diffsim.Model) -> jax.Array:
        state = diffsim.make_state(model)
        kick = diffsim.make_inputs(model).replace(qfrc_applied=jnp.zeros(12).at[0].set(4.0).at[1].set(u))
        final = diffsim.rollout(model, diffsim.step(model, state, kick), jnp.zeros((299, 0))).final
        return jnp.sum(final.qpos[7:10] ** 2)

    felt = loaded.replace(opt=loaded.opt.replace(contact_reach=0.1))
    kicks = jnp.linspace(-5, 5, 200)
    plain, soft = (jax.jit(jax.vmap(jax.value_and_grad(loss), (0, None))) for _ in range(2))
    values, _ = plain(kicks, loaded)
    same, slopes = soft(kicks, felt)
    # the impulse of least loss is the goal
    goal = float(kicks[jnp.argmin(values)])
    toward = np.sign(np.asarray(slopes)) == np.sign(np.asarray(kicks) - goal)
    kick, memory, adam = jnp.asarray(3.0), None, optax.adam(0.1)
    memory, update, best = adam.init(kick), jax.jit(jax.value_and_grad(loss)), np.inf
    for _ in range(30):
        value, slope = update(kick, felt)
        best = min(best, float(value))
        step, memory = adam.update(slope, memory)
        kick = optax.apply_updates(kick, step)
    changed = float(np.max(np.abs(np.asarray(values) - np.asarray(same))))
    return [
        Bar("billiard: change of the forward pass by contacts felt from a distance", changed, 0.0),
        Bar("billiard: share of 200 impulses without a descent direction", 1 - float(np.mean(toward)), 0.05),
        Bar("billiard: loss after 30 steps of Adam over the least of 200", best / float(jnp.min(values)), 2.0),
    ]


def main() -> int:
    """Prints each bar; 1 if one is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="groups whose name contains this")
    jax.config.update("jax_enable_x64", True)
    only, missed = parser.parse_args().only, 0
    for group in (unroll, cartpole, balls, toss, billiard):
        for bar in group() if only in group.__name__ else []:
            good = bar.value <= bar.limit
            missed += not good
            print(f"{'ok  ' if good else 'MISS'} {bar.name} {bar.value:.3g} (at most {bar.limit:g})", flush=True)
    return min(missed, 1)


if __name__ == "__main__":
    sys.exit(main())
