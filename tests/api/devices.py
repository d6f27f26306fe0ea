"""Run by test_parallel.py in a process of its own, which has eight virtual CPU devices; prints what it found."""

import re

import jax
import jax.numpy as jnp
import numpy as np

import diffsim
from diffsim import envs, parallel
from diffsim.bench.engines import Ours, Spread, Workload

MODEL = """
<mujoco>
  <option timestep="0.01"/>
  <worldbody>
    <geom type="plane" size="1 1 1"/>
    <body pos="0 0 0.2"><joint type="slide" axis="0 0 1"/><geom name="ball" type="sphere" size="0.1"/></body>
  </worldbody>
</mujoco>
"""
WORLDS, STEPS = 16, 15
COLLECTIVES = r"all-reduce|all-gather|all-to-all|collective-permute|reduce-scatter|collective-broadcast"


def main() -> None:
    """Steps balls that land at different times, shared out and not, and counts collectives."""
    model = diffsim.load(MODEL)
    drops = diffsim.Scale(0.8, 1.2)
    models, axes = diffsim.randomize(model, jax.random.key(0), {"geom_friction": drops}, WORLDS)
    state = diffsim.make_state(model)
    heights = 0.01 * jnp.arange(WORLDS) - 0.09
    states = jax.vmap(lambda z: state.replace(qpos=state.qpos.at[0].set(z)))(heights)

    def advance(model: diffsim.Model, state: diffsim.State) -> tuple[diffsim.State, jax.Array]:
        result = diffsim.rollout(model, state, jnp.zeros((STEPS, 0)), lambda state, data: data.solver_niter)
        return result.final, result.readouts

    shared = jax.jit(parallel.vmap(advance, in_axes=(axes, 0)))
    spread = parallel.spread(states)
    compiled = shared.lower(models, spread).compile()
    final, iterations = compiled(models, spread)
    # a compiled program takes its own results, those without numbers (history) too
    again, _ = compiled(models, final)
    print("moved_on", float(np.max(np.abs(np.asarray(again.qpos) - np.asarray(final.qpos)))))
    plain = jax.jit(jax.vmap(advance, in_axes=(axes, 0))).lower(models, spread).compile()
    alone, _ = plain(models, spread)
    print("devices", len(final.qpos.sharding.device_set))
    print("difference", float(np.max(np.abs(np.asarray(final.qpos) - np.asarray(alone.qpos)))))
    print("iterations", int(iterations.max()))
    print("collectives", len(re.findall(COLLECTIVES, compiled.as_text())))
    print("collectives_of_plain_jit", len(re.findall(COLLECTIVES, plain.as_text())))
    print("benchmark", float(_benchmark_moves_apart()))
    try:
        parallel.vmap(lambda x: x)(jnp.zeros(9))
    except diffsim.ArgumentError as error:
        print("refused", error)


def _benchmark_moves_apart() -> np.floating:
    """How far the rollout of a benchmark over all devices is from that on one."""
    engine = Ours(Workload(str(envs.MODELS / "cartpole.xml")))
    spread = Spread(engine, parallel.mesh())
    alone = engine.start(WORLDS), jnp.asarray(engine.workload.controls(STEPS, WORLDS, engine.model))
    shared = spread.start(WORLDS), spread.controls(STEPS, WORLDS)
    ends = jax.jit(engine.rollout)(*alone).qpos, jax.jit(spread.rollout)(*shared).qpos
    return np.max(np.abs(np.asarray(ends[0]) - np.asarray(ends[1])))


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main()
