"""Trajectories of 100 steps beside the oracle, until contact chaos separates them.

How fast two runs may part is measured: the oracle runs once more from a position moved by 1e-12. Our run may leave
the oracle's by 1e-6, or by a hundred times what that perturbation has grown to.
"""

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest

import diffsim

# legs, a fluid, quaternions
MODELS = [
    "dm_control/suite/hopper.xml",
    "dm_control/suite/swimmer.xml",
    "gymnasium/envs/mujoco/assets/ant.xml",
]
STEPS = 100


def oracle_run(mjmodel: oracle.mujoco.MjModel, ctrl: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Positions (STEPS, nq) of the oracle under controls (STEPS, nu)."""
    data = oracle.mujoco.MjData(mjmodel)
    data.qpos[:] = start
    path = []
    for row in ctrl:
        data.ctrl[:] = row
        oracle.mujoco.mj_step(mjmodel, data)
        path.append(data.qpos.copy())
    return np.array(path)


@pytest.mark.parametrize("path", MODELS)
def test_trajectory_stays_with_the_oracle(path: str) -> None:
    model, mjmodel = oracle.converged(path)
    ctrl = np.random.default_rng(0).uniform(-1, 1, (STEPS, mjmodel.nu))
    # begin where contacts are near
    start = oracle.visited_states(mjmodel, 2)[-1].qpos.copy()
    theirs = oracle_run(mjmodel, ctrl, start)
    moved = oracle_run(mjmodel, ctrl, start + 1e-12)
    state = diffsim.make_state(model).replace(qpos=jnp.asarray(start))
    read = lambda state, data: state.qpos  # noqa: E731
    final, before = jax.jit(lambda s, c: diffsim.rollout(model, s, c, read))(state, jnp.asarray(ctrl))
    ours = np.concatenate([np.asarray(before[1:]), np.asarray(final.qpos)[None]])
    error = np.max(np.abs(ours - theirs), axis=1)
    chaos = np.maximum.accumulate(np.max(np.abs(moved - theirs), axis=1))
    allowed = np.maximum(1e-6, 100 * chaos)
    late = np.flatnonzero(error > allowed)
    assert not late.size, f"step {late[0]}: error {error[late[0]]:.2e}, perturbed oracle {chaos[late[0]]:.2e}"
