"""512 worlds, gradients or all of Data: run by test_many_worlds.py in a process of its own, because it could hang.

python tests/gradients/many_worlds.py euler          one of CASES below
"""

import sys

import jax
import jax.numpy as jnp

import diffsim
from diffsim.cli import find_model
from diffsim.enums import Integrator, Solver

CASES = {integrator.name.lower(): {"integrator": integrator} for integrator in Integrator} | {
    "cg": {"solver": Solver.CG},
    "pgs": {"solver": Solver.PGS, "iterations": 5},
    "noslip": {"noslip_iterations": 3},
    # the solve for qacc_smooth beside that of the integrator
    "data": {},
}
WORLDS, RUNS = 512, 20


def main(case: str) -> None:
    model = diffsim.load(find_model("mujoco/mjx/test_data/humanoid/humanoid.xml"))
    # its joints are damped, so that a step of Euler has a matrix of its own
    options = {"disableflags": 0, "iterations": 4, "ls_iterations": 8, **CASES[case]}
    model = model.replace(opt=model.opt.replace(**options))
    start = diffsim.make_state(model)
    qvel = 0.1 * jax.random.normal(jax.random.key(0), (WORLDS, model.nv))
    states = jax.vmap(lambda v: start.replace(qvel=v))(qvel)

    def loss(ctrl: jax.Array) -> jax.Array:
        final = jax.vmap(lambda state, u: diffsim.rollout(model, state, u)[0])(states, ctrl)
        return jnp.sum(final.qpos**2)

    def everything(ctrl: jax.Array) -> jax.Array:
        read = lambda state, data: data.qacc_smooth  # noqa: E731
        return jax.vmap(lambda state, u: diffsim.rollout(model, state, u, readout=read))(states, ctrl)[1]

    program = jax.jit(everything if case == "data" else jax.grad(loss))
    ctrl = jnp.ones((WORLDS, 2, model.nu))
    for _ in range(RUNS):
        found = jax.block_until_ready(program(ctrl))
    print("finite" if bool(jnp.all(jnp.isfinite(found))) else "not finite")


if __name__ == "__main__":
    main(sys.argv[1])
