"""diffsim in three minutes: a batch of robots with contacts, a gradient through contacts, and a picture.

Simulates a batch of quadrupeds with random controls and prints the throughput. Differentiates a rollout with contacts
and compares the gradient with a finite difference. Draws the final poses.
"""

import time

import jax
import jax.numpy as jnp
import numpy as np
from common import arguments, result
from PIL import Image
from tqdm import tqdm

import diffsim
from diffsim import envs, viz

GRADIENT_STEPS = 25


def simulate(worlds: int, chunks: int, steps: int) -> tuple[diffsim.Model, diffsim.State, float]:
    """Returns the model, the final states, and steps per second, with random controls and contacts on."""
    model = diffsim.load(envs.MODELS / "quadruped.xml")
    state, inputs = diffsim.make_state(model, "stand"), diffsim.make_inputs(model, "stand")
    states = jax.tree.map(lambda x: jnp.broadcast_to(x, (worlds, *x.shape)), state)

    @jax.jit
    def advance(states: diffsim.State, key: jax.Array) -> diffsim.State:
        noise = 0.5 * jax.random.normal(key, (worlds, model.nu))
        ctrl = jnp.broadcast_to((inputs.ctrl + noise)[:, None], (worlds, steps, model.nu))
        return jax.vmap(lambda s, c: diffsim.rollout(model, s, c, lambda state, data: None)[0])(states, ctrl)

    keys = jax.random.split(jax.random.key(0), chunks + 1)
    print("compiling the batched step ...", flush=True)
    states = jax.block_until_ready(advance(states, keys[-1]))
    start = time.perf_counter()
    for key in tqdm(keys[:-1], desc=f"{worlds} worlds", unit=f" x {steps} steps"):
        states = jax.block_until_ready(advance(states, key))
    return model, states, worlds * steps * chunks / (time.perf_counter() - start)


def gradient_error() -> tuple[float, float, float]:
    """(derivative, central difference, relative error) of the distance walked with feet on the ground, in float64."""
    with jax.enable_x64(True):
        model = diffsim.load(envs.MODELS / "quadruped.xml")
        model = model.replace(opt=model.opt.replace(tolerance=1e-12))
        state, inputs = diffsim.make_state(model, "stand"), diffsim.make_inputs(model, "stand")
        phase = jnp.linspace(0, jnp.pi, GRADIENT_STEPS)[:, None]
        swing = jnp.zeros(model.nu).at[1::3].set(jnp.array([0.4, -0.4, -0.4, 0.4]))

        def travel(amplitude: jax.Array) -> jax.Array:
            ctrl = inputs.ctrl + amplitude * jnp.sin(phase) * swing
            return diffsim.rollout(model, state, ctrl, lambda state, data: None)[0].qpos[0]

        at, h = jnp.asarray(1.0), 1e-5
        value_and_slope = jax.jit(jax.value_and_grad(travel))
        slope = float(value_and_slope(at)[1])
        difference = (float(value_and_slope(at + h)[0]) - float(value_and_slope(at - h)[0])) / (2 * h)
        return slope, difference, abs(slope - difference) / abs(difference)


def picture(model: diffsim.Model, states: diffsim.State, columns: int = 3) -> np.ndarray:
    """Pictures of the first worlds side by side."""
    first = jax.tree.map(lambda leaf: leaf[: columns * 2], states)
    tiles = viz.render(model, first, camera="side", size=(480, 320))
    rows = [np.concatenate(tiles[k * columns : (k + 1) * columns], axis=1) for k in range(2)]
    return np.concatenate(rows, axis=0)


def main() -> None:
    """Simulates, differentiates and draws."""
    options = arguments(__doc__, worlds=1024, chunks=10, steps=20)
    model, states, speed = simulate(options.worlds, options.chunks, options.steps)
    print("differentiating a rollout with contacts ...", flush=True)
    slope, difference, error = gradient_error()
    path = options.out / "demo.png"
    Image.fromarray(picture(model, states)).save(path)
    result(
        worlds=options.worlds,
        steps_per_second=speed,
        gradient=slope,
        finite_difference=difference,
        gradient_relative_error=error,
        picture=path,
    )


if __name__ == "__main__":
    main()
