"""diffsim in two minutes: a robot learns to walk by the gradient through its contacts, in a batch of worlds.

The controls of a quadruped are waves: each joint has an offset, a sine and a cosine. A first guess steps on the spot.
In each of 8 worlds, which differ in mass and friction, the gradient of the distance walked with respect to the waves
goes back through 375 steps and their contacts. 20 steps of Adam along the mean of these gradients make the robot walk.
The gait is then tried in 512 other worlds. The picture shows one of them before and after.

Prints the relative error of the gradient compared with a finite difference, the steps per second of the 512 worlds,
and how far the robots get.
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax
from common import arguments, result
from matplotlib.figure import Figure
from tqdm import trange

import diffsim
from diffsim import Scale, Uniform, envs, viz

# 1/s, strides per second
STRIDES = 2.5
# s, during which the waves grow from zero
BEGIN = 0.2
# step of Adam at the beginning, rad
RATE = 0.03
# rad, of the finite difference: the truncation error is about its square
STEP = 1e-5
# steps of the finite difference
SHORT = 25
# m, between two exposures of the picture: longer than the robot
APART = 0.65
# what differs between worlds
FIELDS = {
    "body_mass": Scale(0.7, 1.4, only="torso"),
    "geom_friction": Uniform((0.5, 0.005, 1e-4), (1.1, 0.005, 1e-4), only="floor"),
}
# legs: front left, front right, rear left, rear right; diagonal legs swing together, as in a trot
SWING = np.array([1, -1, -1, 1])[:, None]
# the abduction of the right legs is mirrored
SIDE = np.array([[1, 1, 1], [-1, 1, 1], [1, 1, 1], [-1, 1, 1]])
# the front legs have one gait and the rear legs another
PAIR = np.array([0, 0, 1, 1])


def waves(model: diffsim.Model, gait: jax.Array, steps: int) -> jax.Array:
    """Controls (steps, 12) of a gait (3, 2, 3): offset, sine, cosine; front, rear; abduction, hip, knee, rad."""
    time = jnp.arange(steps)[:, None, None] * model.opt.timestep
    offset, sine, cosine = gait[:, PAIR]
    angle = 2 * jnp.pi * STRIDES * time
    change = SIDE * (offset + SWING * (sine * jnp.sin(angle) + cosine * jnp.cos(angle)))
    stand = diffsim.make_inputs(model, "stand").ctrl
    return stand + (jnp.minimum(time / BEGIN, 1) * change).reshape(steps, -1)


class Walk(NamedTuple):
    """A motion: qpos (steps, 19) and qvel (steps, 18)."""

    qpos: jax.Array
    qvel: jax.Array


def walk(model: diffsim.Model, gait: jax.Array, steps: int) -> Walk:
    """The motion of a robot that stands and then moves with a gait."""
    ctrl = waves(model, gait, steps)
    return diffsim.rollout(model, diffsim.make_state(model, "stand"), ctrl, lambda s, _: Walk(s.qpos, s.qvel))[1]


def upright(walk: Walk) -> jax.Array:
    """(..., steps) cosine of the angle between the torso's axis and the vertical."""
    return 1 - 2 * (walk.qpos[..., 4] ** 2 + walk.qpos[..., 5] ** 2)


def score(model: diffsim.Model, gait: jax.Array, steps: int, until: int | jax.Array) -> tuple[jax.Array, jax.Array]:
    """The distance walked in `until` steps, m, less penalties for tilting, shaking and drifting; and the distance."""
    path, weight = walk(model, gait, steps), (jnp.arange(steps) < until) / until
    shaking = jnp.sum(path.qvel[:, 3:6] ** 2, axis=1)
    penalty = weight @ (10 * (1 - upright(path)) + 0.05 * shaking + 2 * path.qpos[:, 1] ** 2)
    distance = path.qpos[until - 1, 0]
    return distance - penalty, distance


def learn(gait: np.ndarray, worlds: int, updates: int, steps: int) -> tuple[np.ndarray, np.ndarray, float]:
    """The improved gait, the distances (updates + 1, worlds) walked meanwhile, and the error of the first gradient."""
    with jax.enable_x64(True):
        model = diffsim.load("quadruped")
        # the finite difference needs exact steps
        model = model.replace(opt=model.opt.replace(tolerance=1e-12))
        models, axes = diffsim.randomize(model, jax.random.key(0), FIELDS, worlds)

        @diffsim.jit
        def climb(gait: jax.Array, until: int) -> tuple[jax.Array, ...]:
            both = jax.value_and_grad(lambda gait, model: score(model, gait, steps, until), has_aux=True)
            (value, distance), slope = jax.vmap(both, in_axes=(None, axes))(gait, models)
            # no world counts for more than 1: where a robot falls, the gradient is large
            length = jnp.sqrt(jnp.sum(slope**2, axis=(1, 2, 3), keepdims=True))
            return value.mean(), distance, slope.mean(axis=0), (slope / jnp.maximum(length, 1)).mean(axis=0)

        print("compiling the gradient of a walk ...", flush=True)
        error = difference(climb, jnp.asarray(gait))
        adam = optax.adam(optax.cosine_decay_schedule(RATE, updates), b1=0.8)
        now: Any = jnp.asarray(gait)
        memory, distances = adam.init(now), []
        for _ in (progress := trange(updates, desc=f"gradients of {worlds} worlds")):
            _, distance, _, slope = climb(now, steps)
            distances.append(np.asarray(distance))
            progress.set_postfix(walked=f"{distances[-1].mean():.2f} m")
            change, memory = adam.update(-slope, memory)
            now = optax.apply_updates(now, change)
        distances.append(np.asarray(climb(now, steps)[1]))
        return np.asarray(now), np.stack(distances), error


def difference(climb: Callable[[jax.Array, int], tuple[jax.Array, ...]], gait: jax.Array) -> float:
    """The relative error of the slope along the gradient, compared with a central difference.

    Over 25 steps: in longer walks feet touch down a step earlier or later, and the difference sees the jump.
    """
    slope = climb(gait, SHORT)[2]
    length = jnp.sqrt(jnp.sum(slope**2))
    change = STEP * slope / length
    difference = (climb(gait + change, SHORT)[0] - climb(gait - change, SHORT)[0]) / (2 * STEP)
    return float(abs(difference - length) / length)


def attempt(gaits: list[np.ndarray], worlds: int, steps: int) -> tuple[list[Walk], float]:
    """Walks with each gait in worlds that the gradient did not see, in float32; and steps per second of the last."""
    model = diffsim.load("quadruped")
    models, axes = diffsim.randomize(model, jax.random.key(1), FIELDS, worlds)
    run = diffsim.jit(jax.vmap(lambda model, gait: walk(model, gait, steps), in_axes=(axes, None)))
    print(f"compiling {worlds} worlds ...", flush=True)
    walks, seconds = [], 1.0
    for gait in gaits:
        begin = time.perf_counter()
        walks.append(jax.tree.map(np.asarray, run(models, gait.astype(np.float32))))
        seconds = time.perf_counter() - begin
    return walks, worlds * steps / seconds


def exposed(walk: Walk) -> np.ndarray:
    """The first world in one picture, at its end and every `APART` before."""
    along = walk.qpos[0, :, 0]
    places = np.linspace(along[-1], along[0], 1 + round(abs(along[-1] - along[0]) / APART))
    moments = walk.qpos[0][[np.argmin(np.abs(along - place)) for place in places]]
    # a model with one robot for each exposure
    spec = diffsim.mjcf.read(envs.MODELS / "quadruped.xml")
    for k in range(1, len(moments)):
        spec.attach(diffsim.mjcf.read(envs.MODELS / "quadruped.xml"), body="torso", prefix=f"{k} ")
    model = diffsim.compile(spec)
    state = diffsim.make_state(model).replace(qpos=moments.ravel())
    view = viz.View(lookat=(1.05, 0, 0.22), distance=2.4, azimuth=85, elevation=-10, fovy=20)
    return viz.render(model, state, view, size=(1200, 300))


def draw(before: Walk, after: Walk, distances: np.ndarray, seconds: float) -> Figure:
    """One robot before and after, and what all robots walked from step to step."""
    figure, panels = plt.subplots(3, 1, figsize=(10, 7.2), height_ratios=(1, 1, 0.9), constrained_layout=True)
    for panel, path, name in ((panels[0], before, "before"), (panels[1], after, "after")):
        panel.imshow(exposed(path))
        panel.set_title(f"{name}: {path.qpos[0, -1, 0]:.2f} m in {seconds:.1f} s", loc="left")
        panel.axis("off")
    panels[2].plot(distances, color="#2a75b5", alpha=0.35, lw=1)
    panels[2].plot(distances.mean(axis=1), color="#f27326", lw=2)
    panels[2].set(
        xlabel="steps along the gradient",
        ylabel="distance (m)",
        xlim=(0, len(distances) - 1),
        xticks=range(0, len(distances), 4),
    )
    return figure


def main() -> None:
    """Learns a gait, tries it, and draws it."""
    options = arguments(__doc__, worlds=512, learners=8, updates=20, steps=375)
    start = np.zeros((3, 2, 3))
    # all hips swing by 0.1 rad, all knees a quarter of a period later
    start[1, :, 1] = start[2, :, 2] = 0.1
    gait, distances, error = learn(start, options.learners, options.updates, options.steps)
    (before, after), speed = attempt([start, gait], options.worlds, options.steps)
    path = options.out / "demo.png"
    draw(before, after, distances, 0.004 * options.steps).savefig(path, dpi=110)
    result(
        gradient_relative_error=error,
        worlds=options.worlds,
        steps_per_second=speed,
        walked_before=float(before.qpos[:, -1, 0].mean()),
        walked_after=float(after.qpos[:, -1, 0].mean()),
        upright=float(np.mean(np.min(upright(after), axis=1) > 0.5)),
        picture=path,
    )


if __name__ == "__main__":
    main()
