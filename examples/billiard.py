"""A ball should hit another ball: what an optimizer sees of misses, without and with contacts felt from a distance.

The first ball is pushed forward and sideways; the second should rest at the origin 3 s later. Where the first ball
misses, the loss is flat and its derivative zero. `contact_reach` lets derivatives feel contacts that nearly happen. The
example draws the loss and both derivatives as functions of the sideways push, and prints how many pushes have a descent
direction.
"""

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from common import arguments, result

import diffsim

# s, timestep
H = 2e-3
# steps, duration of the push: 10 ms
PUSH = 5
XML = f"""<mujoco><option timestep="{H}" integrator="RK4"><flag refsafe="disable"/></option>
<default><geom solimp=".9 .95 .01 .5 2" solref=".01 .2" friction=".2 .01 .01"/></default><worldbody>
<geom type="plane" size="2 2 .1"/>
<body pos="-.375 0 .042"><freejoint/><geom size=".042" mass=".17"/></body>
<body pos="-.2 0 .042"><freejoint/><geom size=".042" mass=".17"/></body></worldbody></mujoco>"""


def loss(aside: jax.Array, model: diffsim.Model, steps: int) -> jax.Array:
    """Squared distance of the second ball from the origin, m^2, after a push of 4 N forward and `aside` N sideways."""
    still = diffsim.make_inputs(model)
    push = still.replace(qfrc_applied=jnp.zeros(model.nv).at[0].set(4.0).at[1].set(aside))
    pushed = diffsim.rollout(model, diffsim.make_state(model), jnp.zeros((PUSH, 0)), inputs=push).final
    return jnp.sum(diffsim.rollout(model, pushed, jnp.zeros((steps - PUSH, 0)), inputs=still).final.qpos[7:9] ** 2)


def main() -> None:
    """Computes the losses and derivatives, and draws them."""
    options = arguments(__doc__, points=81, steps=1500)
    jax.config.update("jax_enable_x64", True)
    plain, asides = diffsim.load(XML), jnp.linspace(-5, 5, options.points)
    felt = plain.replace(opt=plain.opt.replace(contact_reach=0.1))

    def both(aside: jax.Array, model: diffsim.Model) -> tuple[jax.Array, jax.Array]:
        return jax.value_and_grad(loss)(aside, model, options.steps)

    (values, slopes), (same, further) = (jax.jit(jax.vmap(both, (0, None)))(asides, model) for model in (plain, felt))
    assert np.array_equal(values, same)

    figure, panels = plt.subplots(1, 2, figsize=(11, 4.2), constrained_layout=True)
    panels[0].plot(asides, values, color="black")
    panels[1].plot(asides, slopes, color="#f27326", label="derivative")
    panels[1].plot(asides, further, color="#2a75b5", label="with contacts felt from 10 cm")
    panels[0].set(xlabel="sideways push (N)", ylabel="loss (m²)")
    panels[1].set(xlabel="sideways push (N)", ylabel="derivative (m²/N)")
    panels[1].legend(fontsize=8)
    figure.savefig(options.out / "billiard.png", dpi=110)

    toward = [float(np.mean(np.sign(each) == np.sign(asides))) for each in (slopes, further)]
    result(descent_share_plain=toward[0], descent_share_felt=toward[1])


if __name__ == "__main__":
    main()
