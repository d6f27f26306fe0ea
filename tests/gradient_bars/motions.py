"""Motions found by iLQR: a quadruped gets up from its belly; a hopper hops two metres, by plans that begin anew.

python -m tests.gradient_bars.motions FOLDER    draws films of both: twelve pictures each
"""

import pathlib
import sys
import time
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np

import diffsim
from diffsim import envs, optimize, viz
from tests.gradient_bars.bar import Bar

# rad, joints of a leg: spread and folded, and standing
FOLDED, STANDING = jnp.asarray([0.7, 1.4, -2.6]), jnp.asarray([0.0, 0.8, -1.6])
SIDES = jnp.asarray([1.0, -1.0, 1.0, -1.0])
HEIGHT, GOAL = 0.31, 2.0
# of the hopper: joints when it stands (rad), speed (m/s), bounces (m, rad/s), steps of a plan and of the motion
POSE, SPEED, AMPLITUDE, RATE = jnp.asarray([-0.2, 0.4, -0.2]), 1.0, 0.07, 4 * np.pi
HORIZON, STEPS = 50, 220


def legs(one: jax.Array) -> jax.Array:
    """(12,) joints or controls, from those of the front left leg."""
    return jnp.concatenate([one * jnp.asarray([side, 1, 1]) for side in SIDES])


def quadruped() -> diffsim.Model:
    """At 8 ms a step."""
    model = diffsim.load(envs.MODELS / "quadruped.xml")
    return model.replace(opt=model.opt.replace(timestep=jnp.asarray(0.008)))


def lying(model: diffsim.Model) -> diffsim.State:
    """On its belly, legs folded outwards, settled."""
    state = diffsim.make_state(model)
    qpos = state.qpos.at[2].set(0.12).at[7:].set(legs(FOLDED))
    settle = jax.jit(lambda state: diffsim.rollout(model, state, jnp.tile(legs(FOLDED), (100, 1))).final)
    return settle(state.replace(qpos=qpos)).replace(time=state.time)


def get_up(model: diffsim.Model) -> optimize.Task:
    """Stand still, level, after a second."""

    def off(state: diffsim.State) -> jax.Array:
        _, x, y, _ = state.qpos[3:7]
        return jnp.concatenate([10 * jnp.stack([state.qpos[2] - HEIGHT, x, y]), state.qpos[7:] - legs(STANDING)])

    def running(state: diffsim.State, data: diffsim.Data, ctrl: jax.Array) -> jax.Array:
        return jnp.concatenate([0.05 * off(state), 0.1 * (ctrl - legs(STANDING)), 0.02 * state.qvel])

    def final(state: diffsim.State, data: diffsim.Data) -> jax.Array:
        return jnp.concatenate([3 * off(state), state.qvel])

    return optimize.make_task(model, running, final)


def hopper() -> diffsim.Model:
    """At 10 ms a step."""
    model = diffsim.load(envs.MODELS / "hopper.xml")
    return model.replace(opt=model.opt.replace(timestep=jnp.asarray(0.01)))


def hop(model: diffsim.Model) -> optimize.Task:
    """Go on, up and down as a hopper does, upright, near the pose of standing, the foot level."""

    def off(state: diffsim.State) -> jax.Array:
        (x, z, pitch, *joints), (vx, vz, turn, *_) = state.qpos, state.qvel
        phase, pose = RATE * state.time, jnp.stack(joints)
        height, rise = AMPLITUDE * jnp.sin(phase), AMPLITUDE * RATE * jnp.cos(phase)
        along = [2 * (x - SPEED * state.time), vx - SPEED]
        upright = [3 * (z - height), 0.3 * (vz - rise), 2 * pitch, 0.05 * turn, 0.5 * (pitch + jnp.sum(pose))]
        return jnp.concatenate([jnp.stack(along + upright), 0.8 * (pose - POSE)])

    def running(state: diffsim.State, data: diffsim.Data, ctrl: jax.Array) -> jax.Array:
        return jnp.concatenate([off(state), 0.05 * ctrl, 0.02 * state.qvel[3:]])

    return optimize.make_task(model, running, lambda state, data: 3 * off(state))


def solved(task: optimize.Task, state: diffsim.State, ctrl: jax.Array, iterations: int) -> tuple[optimize.Plan, float]:
    """The plan, and the seconds of a run after compilation."""
    settings = optimize.Ilqr(iterations=iterations)
    solve = jax.jit(lambda state: optimize.ilqr(task, state, ctrl, settings)).lower(state).compile()
    begin = time.perf_counter()
    plan = jax.block_until_ready(solve(state))
    return plan, time.perf_counter() - begin


def stand_up() -> tuple[diffsim.Model, optimize.Plan, float]:
    """Of the quadruped."""
    model = quadruped()
    return model, *solved(get_up(model), lying(model), jnp.tile(legs(FOLDED), (125, 1)), 60)


def hops() -> tuple[diffsim.Model, optimize.Trajectory, float]:
    """Of the hopper, by plans over half a second that begin anew at every step."""
    model = hopper()
    settings = optimize.Ilqr(iterations=3)
    guess = jnp.zeros((HORIZON, model.nu))
    task, state = hop(model), diffsim.make_state(model, "stand")
    walk = jax.jit(lambda state: optimize.mpc(task, state, guess, STEPS, settings=settings)).lower(state).compile()
    begin = time.perf_counter()
    path = jax.block_until_ready(walk(state))
    return model, path, time.perf_counter() - begin


def flights(model: diffsim.Model, states: diffsim.State) -> int:
    """How often the foot leaves the floor, by a centimetre for three steps at least."""
    foot = model.id("geom", "foot")
    lowest = jax.jit(jax.vmap(lambda state: _lowest(diffsim.forward(model, state), foot, model)))(states)
    up = np.convolve(np.asarray(lowest) > 0.01, np.ones(3), "valid") == 3
    return int(np.count_nonzero(np.diff(up.astype(int)) == 1))


def _lowest(data: diffsim.Data, foot: int, model: diffsim.Model) -> jax.Array:
    """m, of a capsule."""
    radius, half = model.geom_size[foot, 0], model.geom_size[foot, 1]
    return data.geom_xpos[foot, 2] - half * jnp.abs(data.geom_xmat[foot].reshape(3, 3)[2, 2]) - radius


def motions() -> Iterator[Bar]:
    """How the motions end, and how long the searches took."""
    model, plan, seconds = stand_up()
    held = diffsim.rollout(model, jax.tree.map(lambda leaf: leaf[-1], plan.states), jnp.tile(legs(STANDING), (125, 1)))
    start, end, later = plan.states.qpos[0], plan.states.qpos[-1], held.final.qpos
    name = f"quadruped gets up from {float(start[2]):.3f} m ({int(plan.iterations)} iterations, {seconds:.0f} s)"
    yield Bar(f"{name}: |height - {HEIGHT}| m at the end", abs(float(end[2]) - HEIGHT), 0.03)
    yield Bar(f"{name}: the same a second later", abs(float(later[2]) - HEIGHT), 0.03)
    yield Bar("quadruped: tilt of the torso a second later, rad", float(2 * jnp.linalg.norm(later[4:6])), 0.1)
    model, path, seconds = hops()
    qpos, steps = np.asarray(path.states.qpos), flights(model, path.states)
    name = f"hopper goes {qpos[-1, 0]:.2f} m in {steps} flights and {0.01 * STEPS:g} s (found in {seconds:.0f} s)"
    yield Bar(f"{name}: m short of {GOAL}", GOAL - float(qpos[-1, 0]), 0.0)
    yield Bar("hopper: largest |pitch|, rad", float(np.max(np.abs(qpos[:, 2]))), 0.3)
    yield Bar("hopper: m that the torso sinks at most", -float(np.min(qpos[:, 1])), 0.15)
    yield Bar("hopper: flights short of two", 2 - steps, 0)


def film(model: diffsim.Model, states: diffsim.State, path: pathlib.Path) -> None:
    """Twelve moments, four in a row."""
    view = viz.View(follow="torso", distance=2.2 if model.nu > 3 else 4.0, azimuth=90, elevation=-10)
    chosen = np.linspace(0, len(states.time) - 1, 12).astype(int)
    pictures = [viz.render(model, jax.tree.map(lambda leaf, i=i: leaf[i], states), view, (240, 180)) for i in chosen]
    viz.save(path, np.concatenate([np.concatenate(pictures[i : i + 4], axis=1) for i in (0, 4, 8)]))


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    for motion in (stand_up, hops):
        shown, found, _ = motion()
        film(shown, found.states, pathlib.Path(sys.argv[1]) / f"{motion.__name__}.png")
