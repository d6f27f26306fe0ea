"""System identification with `jax.grad` of the Model: masses, damping and friction of an arm from a noisy recording.

The recording comes from a true arm that the fit never sees. The gradient of the prediction error with respect to the
Model is itself a Model. Its leaves `body_mass`, `body_inertia`, `dof_damping` and `dof_frictionloss` are the gradients
that Adam uses, on the logarithms of the unknowns. Prints the worst relative error and draws the fit.
"""

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax
from common import MODELS, arguments, result

import diffsim

NOISE = 1e-3
Unknowns = dict[str, jax.Array]


def apply(model: diffsim.Model, scale: Unknowns) -> diffsim.Model:
    """The model with scaled unknowns; inertia scales with mass, and derived constants are recomputed."""
    mass, damping, friction = (jnp.exp(scale[name]) for name in ("mass", "damping", "friction"))
    changed = model.replace(
        body_mass=model.body_mass.at[1:].multiply(mass),
        body_inertia=model.body_inertia.at[1:].multiply(mass[:, None]),
        dof_damping=model.dof_damping * damping,
        dof_frictionloss=model.dof_frictionloss * friction,
    )
    return diffsim.set_const(changed)


def main() -> None:
    """Makes a recording, identifies the arm, and draws the fit."""
    options = arguments(__doc__, iterations=250, windows=16, steps=80)
    model = diffsim.load(MODELS / "arm.xml")
    rng = np.random.default_rng(0)
    shape = (options.windows, options.steps, model.nu)

    # slow random torques, strong enough to move every joint in both directions
    torque = rng.normal(size=(options.windows, options.steps // 10 + 1, model.nu)) * np.array([6.0, 12.0, 6.0])
    ctrl = jnp.asarray(np.repeat(torque, 10, axis=1)[:, : shape[1]])
    start = jax.vmap(lambda q, v: diffsim.make_state(model).replace(qpos=q, qvel=v))(
        jnp.asarray(rng.uniform(-1, 1, (options.windows, model.nq))),
        jnp.asarray(rng.normal(size=(options.windows, model.nv))),
    )

    def predict(model: diffsim.Model) -> jax.Array:
        read = lambda state, data: jnp.concatenate([state.qpos, 0.1 * state.qvel])  # noqa: E731
        return jax.vmap(lambda s, c: diffsim.rollout(model, s, c, read)[1])(start, ctrl)

    truth = {name: jnp.asarray(rng.uniform(-0.4, 0.4, 3)) for name in ("mass", "damping", "friction")}
    recording = jax.jit(predict)(apply(model, truth))
    recording = recording + NOISE * jnp.asarray(rng.normal(size=recording.shape))

    def error(model: diffsim.Model) -> jax.Array:
        return jnp.mean((predict(model) - recording) ** 2) / NOISE**2

    @jax.jit
    def improve(scale: Unknowns, memory: optax.OptState) -> tuple[Unknowns, optax.OptState, jax.Array]:
        changed, pull = jax.vjp(lambda s: apply(model, s), scale)
        loss, slope = jax.value_and_grad(error)(changed)  # slope is a Model
        updates, memory = optimizer.update(pull(slope)[0], memory)
        return optax.apply_updates(scale, updates), memory, loss

    optimizer = optax.adam(optax.cosine_decay_schedule(0.05, options.iterations))
    scale = jax.tree.map(jnp.zeros_like, truth)
    memory, history = optimizer.init(scale), []
    for _ in range(options.iterations):
        scale, memory, loss = improve(scale, memory)
        history.append(float(loss))

    errors = {name: np.abs(np.expm1(np.asarray(scale[name] - truth[name]))) for name in truth}
    figure, panels = plt.subplots(1, 2, figsize=(10, 4.2), constrained_layout=True)
    panels[0].semilogy(history, color="#2a75b5", lw=2)
    panels[0].axhline(1, color="#f27326", ls="--", label="noise level")
    panels[0].set(xlabel="iteration", ylabel="mean squared error / noise^2", title="fit")
    panels[0].legend()
    for offset, (name, color) in enumerate(zip(truth, ("#2a75b5", "#f27326", "#40474f"), strict=True)):
        panels[1].bar(np.arange(3) + 0.27 * offset - 0.27, 100 * errors[name], 0.25, color=color, label=name)
    panels[1].set(xticks=range(3), xlabel="link or joint", ylabel="error (%)", title="error of the fitted values")
    panels[1].legend()
    figure.savefig(options.out / "identify_arm.png", dpi=110)
    result(
        worst_error=float(max(e.max() for e in errors.values())),
        **{f"{name}_error": float(e.max()) for name, e in errors.items()},
        noise_ratio=history[-1],
    )


if __name__ == "__main__":
    main()
