"""Trajectory optimization through a bounce: a ball is thrown at the floor so that it bounces into a target.

The unknown is the velocity at release. The gradient of the squared distance from the target goes through the whole
flight, including the contact, and optax minimizes it. Prints the distance in meters and draws the flights.
"""

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import optax
from common import MODELS, arguments, result, timed

import diffsim


def main() -> None:
    """Optimizes the throw and draws the flights."""
    options = arguments(__doc__, iterations=150, steps=450)
    model = diffsim.load(MODELS / "throw.xml")
    start = diffsim.make_state(model)
    target = model.site_pos[model.id("site", "target")]
    silence = jnp.zeros((options.steps, model.nu))

    def fly(velocity: jax.Array) -> tuple[diffsim.State, jax.Array]:
        state = start.replace(qvel=start.qvel.at[:3].set(velocity))
        return diffsim.rollout(model, state, silence, lambda state, data: state.qpos[:3])

    def miss(velocity: jax.Array) -> jax.Array:
        final, _ = fly(velocity)
        return jnp.sum((final.qpos[:3] - target) ** 2)

    optimizer = optax.adam(optax.cosine_decay_schedule(0.15, options.iterations))
    loss_and_gradient = jax.jit(jax.value_and_grad(miss))

    velocity = jnp.array([1.0, 0.0, -2.0])
    memory = optimizer.init(velocity)
    tries = [velocity]
    for _ in range(options.iterations):
        _, slope = loss_and_gradient(velocity)
        updates, memory = optimizer.update(slope, memory)
        velocity = optax.apply_updates(velocity, updates)
        tries.append(velocity)

    flights = jax.jit(jax.vmap(fly))
    shown = jnp.stack([tries[i] for i in (0, options.iterations // 8, options.iterations // 3, -1)])
    (_, paths), _ = timed(flights, shown)
    figure, panel = plt.subplots(figsize=(9, 4.6), constrained_layout=True)
    for path, shade in zip(paths, (0.25, 0.45, 0.65, 1.0), strict=True):
        panel.plot(path[:, 0], path[:, 2], color="#f27326", alpha=shade, lw=2)
    panel.plot(target[0], target[2], "o", ms=14, mfc="none", mec="#2a75b5", mew=3, label="target")
    panel.axhline(0, color="#40474f", lw=3)
    panel.set(xlabel="x (m)", ylabel="z (m)", title="first throw, two in between, and the last")
    panel.legend()
    figure.savefig(options.out / "throw_to_target.png", dpi=110)

    bounced = float(paths[-1, :, 2].min()) < 0.07
    result(miss=float(jnp.sqrt(miss(velocity))), bounced=bounced, iterations=options.iterations)


if __name__ == "__main__":
    main()
