"""Identifies Young's modulus and damping of a soft cube from a noisy recording of its fall, through contact.

A cube of 64 vertices, moved by 8 nodes, falls on an edge and wobbles. The recording has noisy positions of some
vertices, as cameras would see them. `set_const` computes the stiffness from Young's modulus, with its derivative.
Levenberg-Marquardt steps on the logarithms of both unknowns find them, from a guess that is twice too stiff. Prints the
worst relative error and makes a film of the fall.
"""

import jax
import jax.numpy as jnp
import numpy as np
from common import MODELS, arguments, result

import diffsim
from diffsim import viz

NOISE = 5e-4
START = jnp.log(jnp.array([2.0, 0.6]))


def main() -> None:
    """Makes a recording, identifies the cube, and makes a film."""
    options = arguments(__doc__, steps=100, iterations=8)
    model = diffsim.load(MODELS / "soft_cube.xml")
    state = diffsim.make_state(model)
    ctrl = jnp.zeros((options.steps, model.nu))

    def fall(scale: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Positions of the nodes (steps, nq) and of every seventh vertex during a fall with scaled unknowns."""
        young, damping = model.flex_young * scale[0], model.flex_damping * scale[1]
        changed = diffsim.set_const(model.replace(flex_young=young, flex_damping=damping))
        read = lambda state, data: (state.qpos, data.flexvert_xpos[::7])  # noqa: E731
        return diffsim.rollout(changed, state, ctrl, read)[1]

    places, seen = diffsim.jit(fall)(jnp.ones(2))
    recording = seen + NOISE * np.random.default_rng(0).normal(size=seen.shape)

    def residual(unknown: jax.Array) -> jax.Array:
        return ((fall(jnp.exp(unknown))[1] - recording) / NOISE).reshape(-1)

    def with_slopes(unknown: jax.Array) -> tuple[jax.Array, jax.Array]:
        return residual(unknown), jax.jacfwd(residual)(unknown)

    look, unknown, damp = diffsim.jit(with_slopes), START, 1e-3
    errors, slopes = look(unknown)
    for _ in range(options.iterations):
        gram = slopes.T @ slopes
        trial = unknown - jnp.linalg.solve(gram + damp * jnp.diag(jnp.diag(gram)), slopes.T @ errors)
        tried, tried_slopes = look(trial)
        # Levenberg-Marquardt: a step that makes the error larger is tried again with more damping
        better = bool(tried @ tried < errors @ errors)
        damp = damp / 10 if better else damp * 10
        if better:
            unknown, errors, slopes = trial, tried, tried_slopes
        print("young", 6e3 * float(jnp.exp(unknown[0])), "root mean square error", float(jnp.sqrt(jnp.mean(errors**2))))
    deviation = jnp.sqrt(jnp.diag(jnp.linalg.inv(slopes.T @ slopes)))
    result(worst_error=float(jnp.max(jnp.abs(jnp.exp(unknown) - 1))))
    result(young=6e3 * float(jnp.exp(unknown[0])), deviation=6e3 * float(deviation[0]), vertices=model.nflexvert)

    states = jax.tree.map(lambda x: jnp.broadcast_to(x, (options.steps, *x.shape)), state)
    time = model.opt.timestep * jnp.arange(options.steps)
    states = states.replace(qpos=places, time=time.astype(state.time.dtype))
    camera = viz.View(lookat=(0.1, 0.1, 0.2), distance=1.4, azimuth=130, elevation=-15)
    viz.video(model, states, options.out / "soft_cube.gif", camera, fps=25, size=(320, 240))


if __name__ == "__main__":
    main()
