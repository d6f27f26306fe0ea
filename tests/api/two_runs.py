"""Run by test_determinism.py with two virtual CPU devices: which results of equal programs are equal bit for bit."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import diffsim
from diffsim import parallel

MODEL = """
<mujoco>
  <worldbody>
    <geom type="plane" size="1 1 1"/>
    <body pos="0 0 0.099"><joint type="slide" axis="0 0 1"/><joint name="push" type="slide" axis="1 0 0"/>
      <joint type="ball"/><geom type="ellipsoid" size="0.1 0.12 0.1" mass="1"/></body>
  </worldbody>
  <actuator><motor joint="push" gear="20"/></actuator>
</mujoco>
"""
WORLDS, STEPS = 8, 10


def same(one: Any, other: Any) -> bool:
    """Whether all leaves have the same bits."""
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(np.asarray(x).tobytes() == np.asarray(y).tobytes() for x, y in pairs)


def main() -> None:
    """Prints for each case whether bits are equal."""
    model = diffsim.load(MODEL)
    state = diffsim.make_state(model)
    rng = np.random.default_rng(0)
    ctrl = jnp.asarray(rng.uniform(-1, 1, (WORLDS, STEPS, model.nu)), jnp.float32)
    order = rng.permutation(WORLDS)

    def worlds(ctrl: jax.Array) -> Any:
        def loss(ctrl: jax.Array) -> tuple[jax.Array, Any]:
            final, forces = diffsim.rollout(model, state, ctrl, lambda state, data: data.qfrc_constraint)
            return final.qpos[1], (final, forces)

        (_, results), slope = jax.value_and_grad(loss, has_aux=True)(ctrl)
        return results, slope

    run = jax.jit(jax.vmap(worlds))
    first = run(ctrl)
    forces = np.asarray(first[0][1])
    # contacts act, and worlds differ
    print("contacts", bool(np.abs(forces).max() > 1), "differ", not same(first[0][0].qpos[0], first[0][0].qpos[1]))
    print("again", same(first, run(ctrl)))
    print("permuted", same(jax.tree.map(lambda x: x[order], first), run(ctrl[order])))
    jax.clear_caches()
    print("compiled_again", same(first, jax.jit(jax.vmap(worlds))(ctrl)))
    mesh = parallel.mesh()
    spread = jax.jit(parallel.vmap(worlds, mesh=mesh))
    both = parallel.spread(ctrl, mesh)
    on_two = spread(both)
    print("devices", len(on_two[1].sharding.device_set))
    print("again_on_two_devices", same(on_two, spread(both)))
    turned = parallel.spread(ctrl[order], mesh)
    print("permuted_on_two_devices", same(jax.tree.map(lambda x: np.asarray(x)[order], on_two), spread(turned)))
    # another batch on each device is another program
    apart = np.abs(np.asarray(first[0][0].qpos) - np.asarray(on_two[0][0].qpos))
    print("apart_from_one_device", float(apart.max()))


if __name__ == "__main__":
    main()
