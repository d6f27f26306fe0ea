"""A billiard table: contacts that are felt from a distance.

Two balls fall on a table (experiment 03 of DiffMJX, after MuJoCo's issue 2237). The first is pushed for 10 ms with 4 N
towards the second and u N aside, and 3 s later the second shall rest at the origin: loss |p2|^2, u from -5 to 5. For
|u| > 2.2 the first ball misses. DiffMJX integrates adaptively. With its 10 ms as the timestep of plain MuJoCo the
motion explodes (contacts of 526 rad/s: the ball ends 200 m above the table), so that it takes smaller steps here.
"""

import jax
import jax.numpy as jnp
import optax

import diffsim
from tests.gradient_bars.bar import Bar

# s: a step, the push, the whole motion
H, PUSH, SECONDS = 2e-3, 0.01, 3.0
NAME = "billiard, contacts felt from a distance"

BILLIARD = f"""<mujoco><option timestep="{H}" integrator="RK4" impratio="1">
<flag refsafe="disable" eulerdamp="disable"/></option><default><geom solimp=".9 .95 .01 .5 2" solref=".01 .2"/>
<default class="ball"><joint damping="1e-4"/><geom type="sphere" size=".042" mass=".17"
contype="7" friction=".2 .01 .01"/></default></default><worldbody>
<geom type="plane" size="1.2 .6 .02" pos="0 0 -.015" contype="1" conaffinity="2"/>
<geom type="box" size="1.25 .05 .05" pos="0 .65 .025"/><geom type="box" size="1.25 .05 .05" pos="0 -.65 .025"/>
<geom type="box" size=".05 .6 .05" pos="1.2 0 .025"/><geom type="box" size=".05 .6 .05" pos="-1.2 0 .025"/>
<body pos="-.375 0 .1" childclass="ball"><joint type="free"/><geom/></body>
<body pos="-.2 0 .1" childclass="ball"><joint type="free"/><geom/></body></worldbody></mujoco>"""


def loss(u: jax.Array, model: diffsim.Model) -> jax.Array:
    """How far from the origin the second ball ends, m^2, if the first is pushed aside with u N."""
    still = diffsim.make_inputs(model)
    kick = still.replace(qfrc_applied=jnp.zeros(12).at[0].set(4.0).at[1].set(u))
    steps = [jnp.zeros((round(seconds / H), 0)) for seconds in (PUSH, SECONDS - PUSH)]
    pushed = diffsim.rollout(model, diffsim.make_state(model), steps[0], inputs=kick).final
    return jnp.sum(diffsim.rollout(model, pushed, steps[1], inputs=still).final.qpos[7:10] ** 2)


def solved(model: diffsim.Model, kick: float) -> float:
    """The least loss on the way of 30 iterations of Adam."""
    place, optimizer, update = jnp.asarray(kick), optax.adam(0.1), jax.jit(jax.value_and_grad(loss))
    memory, values = optimizer.init(place), []
    for _ in range(30):
        value, slope = update(place, model)
        values.append(float(value))
        step, memory = optimizer.update(slope, memory)
        place = optax.apply_updates(place, step)
    return min(*values, float(update(place, model)[0]))


def billiard() -> list[Bar]:
    """Which pushes bring a ball to rest at the origin: descent directions where the first ball misses too."""
    plain = diffsim.load(BILLIARD)
    felt, kicks = plain.replace(opt=plain.opt.replace(contact_reach=0.1)), jnp.linspace(-5, 5, 200)
    program = jax.jit(jax.vmap(jax.value_and_grad(loss), (0, None)))
    (values, _), (same, slopes) = (program(kicks, model) for model in (plain, felt))
    # the push of least loss is the goal: the only valley
    toward = jnp.sign(slopes) == jnp.sign(kicks - kicks[jnp.argmin(values)])
    return [
        Bar(f"{NAME}: change of the forward pass", float(jnp.max(jnp.abs(values - same))), 0.0),
        Bar(f"{NAME}: share of 200 pushes without a descent direction", 1 - float(jnp.mean(toward)), 0.05),
        Bar(f"{NAME}: loss after 30 steps of Adam over the least of 200", solved(felt, 3.0) / float(values.min()), 2.0),
    ]
