"""Run by test_parallel.py as `processes.py PORT RANK`, once for each of two processes that share worlds."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
from devices import MODEL, WORLDS

import diffsim
from diffsim import parallel

STEPS = 15


def main() -> None:
    """Steps the worlds of this process, and all of them alone, and compares."""
    port, rank = sys.argv[1:]
    jax.distributed.initialize(f"127.0.0.1:{port}", num_processes=2, process_id=int(rank))
    mesh = parallel.mesh()
    model = diffsim.load(MODEL)
    state = diffsim.make_state(model)
    heights = 0.01 * np.arange(WORLDS) - 0.09
    states = jax.tree.map(lambda leaf: np.broadcast_to(leaf, (WORLDS, *leaf.shape)), state)
    states = states.replace(qpos=heights[:, None])
    own = slice(int(rank) * WORLDS // 2, (int(rank) + 1) * WORLDS // 2)

    def advance(model: diffsim.Model, state: diffsim.State) -> diffsim.State:
        return diffsim.rollout(model, state, jnp.zeros((STEPS, 0)), lambda state, data: None).final

    shared = jax.jit(parallel.vmap(advance, in_axes=(None, 0), mesh=mesh))
    spread = parallel.spread(jax.tree.map(lambda leaf: leaf[own], states), mesh)
    final = shared(parallel.everywhere(model, mesh), spread)
    mine = np.concatenate([np.asarray(shard.data) for shard in final.qpos.addressable_shards])
    alone = jax.jit(jax.vmap(advance, in_axes=(None, 0)))(model, states)
    print("processes", jax.process_count())
    print("worlds", *final.qpos.shape[:1], "here", len(mine))
    print("difference", float(np.max(np.abs(mine - np.asarray(alone.qpos)[own]))))
    print("moved", float(np.max(np.abs(mine - heights[own, None]))))


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main()
