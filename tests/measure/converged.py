"""What iLQR calls converged, over 100 random tasks, beside a search of the same motion: one line of counts.

    make measure WHAT=converged

Two planar families, fifty tasks each: a pusher (two velocity motors) and a ball, of random places, goals of the ball,
friction and damping; and an arm of two links that strikes a puck. iLQR begins from random controls, small or zero, with
derivatives of contacts from a distance (`contact_reach`) for the arm. A search over 8 pieces of control then
tries to find a motion that costs half as much or less. "Converged" must not be said where it does, unless it is a
minimum that only leaping leaves: of each such task it is told from which cost iLQR came there, and what sixteen others
find that begin within some share of the bounds from where it ended.
"""

import functools

import jax
import jax.numpy as jnp

import diffsim
from diffsim import optimize
from diffsim.optimize.trajectory.sampling import improve, propose, same_worlds

PUSHER = """<mujoco><option timestep=".05" gravity="0 0 0" integrator="implicitfast"/>
<default><joint type="slide" damping="5"/><geom size=".1" mass="1" condim="1"/></default>
<worldbody><body><joint name="x" axis="1 0 0"/><joint name="y" axis="0 1 0"/><geom name="pusher"/></body>
<body><joint axis="1 0 0"/><joint axis="0 1 0"/><geom name="ball"/></body></worldbody>
<actuator><velocity joint="x" kv="50" ctrlrange="-1 1"/><velocity joint="y" kv="50" ctrlrange="-1 1"/></actuator>
</mujoco>"""
ARM = """<mujoco><option timestep=".05" gravity="0 0 0" integrator="implicitfast"/><default><geom condim="1"/></default>
<worldbody><body pos="-.4 0 0"><joint name="a" damping="1"/><geom type="capsule" size=".03" fromto="0 0 0 .3 0 0"/>
<body pos=".3 0 0"><joint name="b" damping="1"/><geom type="capsule" size=".03" fromto="0 0 0 .3 0 0"/></body></body>
<body><joint type="slide" axis="1 0 0" damping="5"/><joint type="slide" axis="0 1 0" damping="5"/>
<geom size=".06" mass=".3"/></body></worldbody>
<actuator><velocity joint="a" kv="10" ctrlrange="-2 2"/><velocity joint="b" kv="10" ctrlrange="-2 2"/></actuator>
</mujoco>"""
SETTINGS = optimize.Ilqr(iterations=60, quick_compile=True)
STEPS, TASKS, PIECES, ROUNDS, SEARCH = 40, 50, 8, 16, optimize.Sampling(samples=128, elites=12)


def drawn(model: diffsim.Model, spread: float, key: jax.Array) -> tuple[optimize.Task, diffsim.State, jax.Array]:
    """A random task, where it begins, and the controls that iLQR begins from."""
    keys = jax.random.split(key, 5)
    start, goal = jax.random.uniform(keys[0], (2, 2), minval=-1, maxval=1)
    factor = jax.random.uniform(keys[1], (), minval=0.5, maxval=2)
    state = diffsim.make_state(model)
    # the ball is not inside of what moves it
    place = spread * (start + 0.8 * jnp.where(jnp.linalg.norm(start) < 0.5, jnp.sign(start), 0))
    state = state.replace(qpos=state.qpos.at[2:].set(place))

    def running(state: diffsim.State, data: diffsim.Data, ctrl: jax.Array) -> jax.Array:
        return jnp.concatenate([0.1 * (state.qpos[2:] - spread * goal), 0.02 * ctrl])

    task = optimize.make_task(
        model.replace(dof_damping=factor * model.dof_damping),
        running,
        lambda state, data: 3 * (state.qpos[2:] - spread * goal),
    )
    size = jnp.where(jax.random.bernoulli(keys[2]), 0.3, 0.0)
    return task, state, size * task.upper * jax.random.normal(keys[3], (STEPS, 2))


def both(model: diffsim.Model, spread: float, key: jax.Array) -> tuple[optimize.Plan, jax.Array, jax.Array]:
    """A plan by iLQR, the cost that it began from, and the cost that a search finds, of one random task."""
    task, state, guess = drawn(model, spread, key)
    plan = optimize.ilqr(task, state, guess, SETTINGS)
    shape, last = (jnp.asarray(PIECES), jnp.asarray(STEPS)), jax.random.split(key, 5)[4]

    def better(i: jax.Array, proposal: tuple) -> tuple:
        worlds = same_worlds(state, SEARCH.samples)
        return improve(task, worlds, proposal, jax.random.fold_in(last, i), shape, jnp.zeros_like(guess), SEARCH)

    first = propose(task, jnp.zeros((PIECES, 2)), SEARCH.first)
    begin = optimize.evaluate(task, state, guess).cost
    return plan, begin, jax.lax.fori_loop(0, ROUNDS, better, first).cost


def nearby(model: diffsim.Model, spread: float, key: jax.Array, ctrl: jax.Array) -> list[str]:
    """What iLQR ends with from controls that are some share of the bounds from others, sixteen times each: a line."""
    task, state, _ = drawn(model, spread, key)
    lines, cost = [], float(optimize.evaluate(task, state, ctrl).cost)
    for share in (0.01, 0.1, 0.3):
        noise = share * task.upper * jax.random.normal(key, (16, *ctrl.shape))
        ends = [float(optimize.ilqr(task, state, ctrl + change, SETTINGS).cost) / cost for change in noise]
        lower = f"{sum(end < 0.9 for end in ends)} of 16 end lower by a tenth or more"
        lines.append(f"{share:.0%} of the bounds off: {lower}, costs {min(ends):.3f} to {max(ends):.3f} times its own")
    return lines


def main() -> None:
    """Runs all, prints the counts."""
    totals = jnp.zeros(4, int)
    for name, text, spread, reach in (("pusher", PUSHER, 0.4, 0.0), ("arm", ARM, 0.25, 0.3)):
        model = diffsim.load(text)
        model = model.replace(opt=model.opt.replace(contact_reach=reach))
        keys = jax.random.split(jax.random.key(0), TASKS)
        plan, begin, found = jax.jit(jax.vmap(functools.partial(both, model, spread)))(keys)
        beaten = found < 0.5 * plan.cost
        wrong = beaten & plan.converged
        counts = jnp.stack([jnp.sum(x) for x in (plan.converged, beaten, wrong, jnp.ones_like(beaten))])
        totals += counts
        said = f"{counts[0]} called converged, {counts[1]} beaten by a search twofold, {counts[2]} of both kinds"
        print(f"{name:<8} contact_reach {reach}: {counts[3]} tasks, {said}", flush=True)
        for i in jnp.flatnonzero(wrong):
            came = f"from {float(begin[i]):.4g} to {float(plan.cost[i]):.4g}, search {float(found[i]):.4g}"
            print(f"    task {i}: {came}; promised {float(plan.promised[i]):.2g}", flush=True)
            for line in nearby(model, spread, keys[i], plan.ctrl[i]):
                print(f"        {line}", flush=True)
    print(f"converged: {totals[3]} tasks, {totals[0]} called converged, {totals[1]} beaten, {totals[2]} of both kinds")


if __name__ == "__main__":
    main()
