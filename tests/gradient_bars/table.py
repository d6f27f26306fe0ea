"""A billiard table: contacts that are felt from a distance."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

import diffsim
from tests.gradient_bars.bar import Bar

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
