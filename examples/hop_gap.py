"""A leg with a spring hops over a gap of 40 cm and stays on its foot."""

import jax.numpy as jnp
from common import MODELS, arguments, planned

import diffsim
from diffsim import optimize, viz
from diffsim.optimize import costs


def main() -> None:
    """Plans and films."""
    options = arguments(__doc__, steps=120, seconds=60)
    model = diffsim.load(MODELS / "hop_gap.xml")

    def final(state: diffsim.State, data: diffsim.Data) -> jnp.ndarray:
        x, z, pitch = state.qpos[:3]
        return jnp.stack([(x - 0.95) / 0.05, jnp.minimum(z + 0.1, 0) / 0.02, pitch / 0.1, state.qvel[0] / 1.0])

    task = optimize.make_task(
        model,
        running=lambda state, data, ctrl: costs.join(costs.effort(ctrl, 10.0), state.qpos[2] / 5.0),
        final=final,
    )
    planned(task, diffsim.make_state(model), options, "hop_gap", viz.View((0.4, 0, 0.35), 2.0, 90, -10))


if __name__ == "__main__":
    main()
