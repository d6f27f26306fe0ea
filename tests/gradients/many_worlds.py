"""Gradients of 512 worlds: run by test_many_worlds.py in a process of its own, because it could hang.

python tests/gradients/many_worlds.py euler          one of CASES below
"""

import sys

import jax
import jax.numpy as jnp

import diffsim
from diffsim.cli import find_model
from diffsim.enums import Integrator, Solver
from diffsim.types import State

CASES = {integrator.name.lower(): {"integrator": integrator} for integrator in Integrator} | {
    "cg": {"solver": Solver.CG},
    "pgs": {"solver": Solver.PGS, "iterations": 5},
    "noslip": {"noslip_iterations": 3},
    # the solve for qacc_smooth beside that of the integrator
    "readout": {"integrator": Integrator.IMPLICIT},
    "split": {"integrator": Integrator.RK4},
}
WORLDS, RUNS = 512, 10


def main(case: str) -> None:
    model = diffsim.load(find_model("mujoco/mjx/test_data/humanoid/humanoid.xml"))
    # its joints are damped, so that a step of Euler has a matrix of its own
    options = {"disableflags": 0, "iterations": 4, "ls_iterations": 8, **CASES[case]}
    model = model.replace(opt=model.opt.replace(**options))
    start = diffsim.make_state(model)
    qvel = 0.1 * jax.random.normal(jax.random.key(0), (WORLDS, model.nv))
    states = jax.vmap(lambda v: start.replace(qvel=v))(qvel)

    def final(state: State, ctrl: jax.Array) -> jax.Array:
        return diffsim.rollout(model, state, ctrl)[0].qpos

    def readout(state: State, ctrl: jax.Array) -> tuple[jax.Array, ...]:
        read = lambda state, data: (state.qvel, data.qacc, data.qacc_smooth)  # noqa: E731
        return diffsim.rollout(model, state, ctrl, readout=read)[1]

    def split(state: State, ctrl: jax.Array) -> tuple[jax.Array, ...]:
        inputs = diffsim.make_inputs(model).replace(ctrl=ctrl[0])
        data = diffsim.forward(model, state, inputs)
        return diffsim.integrate(model, state, inputs, data).qvel, data.qacc, data.qacc_smooth

    def loss(ctrl: jax.Array) -> jax.Array:
        found = jax.vmap({"readout": readout, "split": split}.get(case, final))(states, ctrl)
        return sum(jnp.sum(part**2) for part in jax.tree.leaves(found))

    program = jax.jit(jax.grad(loss))
    ctrl = jnp.ones((WORLDS, 2, model.nu))
    for _ in range(RUNS):
        found = jax.block_until_ready(program(ctrl))
    print("finite" if bool(jnp.all(jnp.isfinite(found))) else "not finite")


if __name__ == "__main__":
    main(sys.argv[1])
