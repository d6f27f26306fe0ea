"""How fast a cloth is beside one thread of MuJoCo: `make measure WHAT=flex_speed`, a few lines.

A cloth of 30 x 30 vertices that keep their edges lies on a ball, as MuJoCo left it after some steps; 16 worlds of it
are stepped, each from a state a little apart, to MuJoCo's tolerance, for which its CG needs more than 50 iterations.
Milliseconds of CPU time a step and world, of parts of it, of the gradient of 20 steps beside its forward run, and
seconds of compilation. WORLDS=32 is the benchmark `cloth` of MuJoCo Warp. BITS=64,32.
"""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import jax
import jax.numpy as jnp
import numpy as np
import oracle

import diffsim
from tests.measure.flex_rest import BALL, TAIL

WORLDS, SETTLE, STEPS = int(os.environ.get("WORLDS", "16")), 250, 20


def timed(function: Callable[..., Any], *args: Any, repeat: int = 3) -> tuple[float, float]:
    """CPU seconds of the first call beyond those of a later one, and the least of later ones."""
    begin = time.process_time()
    jax.block_until_ready(function(*args))
    first, least = time.process_time() - begin, np.inf
    for _ in range(repeat):
        begin = time.process_time()
        jax.block_until_ready(function(*args))
        least = min(least, time.process_time() - begin)
    return first - least, least


def main() -> None:
    """Prints what was measured."""
    text = BALL + TAIL
    mjmodel = oracle.mujoco.MjModel.from_xml_string(text)
    data = oracle.mujoco.MjData(mjmodel)
    for _ in range(SETTLE):
        oracle.mujoco.mj_step(mjmodel, data)
    begin, niter = time.process_time(), []
    start = oracle.state_of(data)
    for _ in range(STEPS):
        oracle.mujoco.mj_step(mjmodel, data)
        niter.append(int(data.solver_niter[0]))
    theirs = [1e3 * (time.process_time() - begin) / STEPS]
    print(
        f"MuJoCo, Newton: {theirs[0]:.2f} ms a step, {data.ncon} contacts, {np.mean(niter):.1f} iterations", flush=True
    )
    mjmodel.opt.solver = oracle.mujoco.mjtSolver.mjSOL_CG
    for limit in (mjmodel.opt.iterations, 1000):
        mjmodel.opt.iterations, niter = limit, []
        data.qpos[:], data.qvel[:], data.qacc_warmstart[:] = start.qpos, start.qvel, start.qacc_warmstart
        begin = time.process_time()
        for _ in range(STEPS):
            oracle.mujoco.mj_step(mjmodel, data)
            niter.append(int(data.solver_niter[0]))
        took = 1e3 * (time.process_time() - begin) / STEPS
        print(
            f"MuJoCo, CG, at most {limit} iterations: {took:.2f} ms a step, {np.mean(niter):.1f} iterations", flush=True
        )
    theirs.append(took)
    for bits in os.environ.get("BITS", "64,32").split(","):
        jax.config.update("jax_enable_x64", bits == "64")
        measure(bits, diffsim.load(text), start, theirs)


def measure(bits: str, model: diffsim.Model, start: diffsim.State, theirs: list[float]) -> None:
    """Our times in one precision, beside MuJoCo's milliseconds by Newton and by CG."""
    rng, each = np.random.default_rng(0), 1e3 / WORLDS
    noise = 1e-5 * rng.standard_normal((WORLDS, model.nq))
    dtype = model.qpos0.dtype
    states = jax.tree.map(lambda x: jnp.broadcast_to(jnp.asarray(x, dtype), (WORLDS, *np.shape(x))), start)
    states = states.replace(qpos=states.qpos + noise.astype(dtype))
    forward = jax.vmap(lambda x: diffsim.forward(model, x))
    ctrl = jnp.zeros((STEPS, 0), dtype)

    def final(states: diffsim.State) -> diffsim.State:
        return jax.vmap(lambda x: diffsim.rollout(model, x, ctrl).final)(states)

    compiled, steps = timed(diffsim.jit(final), states)
    one = steps * each / STEPS
    print(
        f"{bits} bits, {WORLDS} worlds: step {one:.2f} ms, {one / theirs[0]:.2f} x Newton's, {one / theirs[1]:.2f} x "
        f"CG's; compilation {compiled:.1f} s",
        flush=True,
    )
    contacts = timed(diffsim.jit(lambda s: forward(s).contact.dist), states)[1] * each
    rows = timed(diffsim.jit(lambda s: jax.tree.leaves(forward(s).efc)), states)[1] * each
    count = np.asarray(diffsim.jit(lambda s: forward(s).solver_niter)(states))
    print(
        f"  contacts {contacts:.2f}, with rows {rows:.2f}, the rest, which is the solver's, {one - rows:.2f}; "
        f"iterations of the first step {count.mean():.1f}",
        flush=True,
    )
    if os.environ.get("GRADIENT", "1") != "1":
        return
    compiled, back = timed(
        diffsim.jit(jax.grad(lambda qpos: jnp.sum(final(states.replace(qpos=qpos)).qpos))), states.qpos, repeat=1
    )
    print(f"  gradient of {STEPS} steps {back / steps:.1f} x its forward; compilation {compiled:.1f} s", flush=True)


if __name__ == "__main__":
    main()
