"""Batched linear algebra side by side at 512 worlds: run by test_side_by_side.py in a process of its own.

jaxlib 0.10.0 to 0.11.0 share batches of LAPACK calls out on the thread pool that waits for them, so that two calls
that do not depend on each other can wait forever; `pyproject.toml` excludes these. Most of the cases were
seen to freeze there; the derivatives are of the same kind.

    python tests/simulate/side_by_side.py threads         one case, ten times in a row
    python tests/simulate/side_by_side.py all             all of them, each in a process of its own
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

if "devices" in sys.argv:
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"

import jax
import jax.numpy as jnp

import diffsim
from diffsim.cli import find_model

WORLDS, RUNS, SECONDS = 512, 10, 900
State = diffsim.State


def humanoid() -> diffsim.Model:
    """Its joints are damped, so that a step of Euler solves with a matrix of its own beside the constraint solver's."""
    model = diffsim.load(find_model("mujoco/mjx/test_data/humanoid/humanoid.xml"))
    return model.replace(opt=model.opt.replace(disableflags=0, iterations=4, ls_iterations=8))


MODEL = humanoid()


def worlds() -> State:
    """States at rest with random velocities, rad/s and m/s."""
    start = diffsim.make_state(MODEL)
    qvel = 0.1 * jax.random.normal(jax.random.key(0), (WORLDS, MODEL.nv))
    return jax.vmap(lambda v: start.replace(qvel=v))(qvel)


def velocity(qvel: jax.Array) -> jax.Array:
    """(nv,) to (nv,): one step from the default pose."""
    return diffsim.step(MODEL, diffsim.make_state(MODEL).replace(qvel=qvel)).qvel


def two_steps() -> Callable[[State], Any]:
    """Two steps that do not depend on each other, in one program."""
    faster = MODEL.replace(opt=MODEL.opt.replace(timestep=0.5 * MODEL.opt.timestep))
    return jax.jit(jax.vmap(lambda s: (diffsim.step(MODEL, s).qvel, diffsim.step(faster, s).qvel)))


def threads() -> Callable[[State], Any]:
    """Two Python threads that step at the same time."""
    step = jax.jit(jax.vmap(lambda s: diffsim.step(MODEL, s)))

    def run(states: State) -> list[Any]:
        with ThreadPoolExecutor(2) as pool:
            return [done.result() for done in [pool.submit(step, states) for _ in range(2)]]

    return run


def devices() -> Callable[[State], Any]:
    """A batch on two CPU devices."""
    mesh = jax.sharding.Mesh(jax.devices(), ("worlds",))
    split = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("worlds"))
    step = jax.jit(jax.vmap(lambda s: diffsim.step(MODEL, s)), in_shardings=split, out_shardings=split)
    return lambda states: step(jax.device_put(states, split))


def derivative(transform: Callable) -> Callable[[], Callable[[State], Any]]:
    """A derivative of a step, in all worlds."""
    return lambda: jax.jit(lambda states: jax.vmap(transform)(states.qvel))


def beside(function: Callable[[jax.Array], Any]) -> Callable[[], Callable[[State], Any]]:
    """A factorization of the user's own beside a step."""

    def both(state: State) -> Any:
        matrix = jnp.eye(MODEL.nv) + jnp.outer(state.qvel, state.qvel)
        return diffsim.step(MODEL, state).qvel, function(matrix)

    return lambda: jax.jit(jax.vmap(both))


CASES: dict[str, Callable[[], Callable[[State], Any]]] = {
    "two_steps": two_steps,
    "threads": threads,
    "devices": devices,
    "jacfwd": derivative(jax.jacfwd(velocity)),
    "jacrev": derivative(jax.jacrev(velocity)),
    # by the velocities of the root alone: of all dofs it would be 27 x 27 solves a world
    "hessian": derivative(lambda v: jax.hessian(lambda a: jnp.sum(velocity(v.at[:3].set(a)) ** 2))(v[:3])),
    "solve": beside(lambda m: jnp.linalg.solve(m, m[0])),
    "cholesky": beside(jnp.linalg.cholesky),
    "eigh": beside(jnp.linalg.eigh),
    "qr": beside(jnp.linalg.qr),
    "svd": beside(jnp.linalg.svd),
}


def run_case(case: str) -> str:
    """Runs a case `RUNS` times; says whether all that came out is finite, and seconds of compilation and runs."""
    states, program = worlds(), CASES[case]()
    begin = time.perf_counter()
    jax.block_until_ready(program(states))
    compiled = time.perf_counter()
    for _ in range(RUNS):
        found = jax.block_until_ready(program(states))
    finite = all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves(found) if leaf.dtype == jnp.float32)
    return f"{'finite' if finite else 'not finite'}, {compiled - begin:.0f} s, {time.perf_counter() - compiled:.0f} s"


def main(case: str) -> None:
    """One case in this process, or each in a process of its own."""
    if case != "all":
        print(run_case(case))
        return
    for name in CASES:
        done = subprocess.run([sys.executable, __file__, name], capture_output=True, text=True, timeout=SECONDS)
        print(f"{name}: {done.stdout.strip() or done.stderr[-300:]}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
