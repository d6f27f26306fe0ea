"""Run by test_parallel.py with two virtual CPU devices: `jax.shard_map` with its defaults, compared to `vmap`."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, PartitionSpec

import diffsim

SCENE = """
<mujoco>
  <option {}/>
  <worldbody>
    <geom type="plane" size="1 1 .1"/>
    <body pos="0 0 .04"><joint name="j" type="slide" axis="0 0 1" range="-1 1"/><joint type="ball"/>
      <geom type="ellipsoid" size=".1 .07 .05"/></body>
  </worldbody>
  <actuator><position joint="j" kp="3"/></actuator>
</mujoco>
"""
OPTIONS = ('cone="elliptic"', 'solver="CG"')
WORLDS = 4


def main() -> None:
    """Prints how far next velocities, and derivatives with respect to states and to a shared gain, are apart."""
    mesh = jax.make_mesh((2,), ("worlds",), axis_types=(AxisType.Auto,))
    each, shared = PartitionSpec("worlds"), PartitionSpec()
    for option in OPTIONS:
        model = diffsim.load(SCENE.format(option))
        start = diffsim.make_state(model)
        qvel = 0.1 * jax.random.normal(jax.random.key(0), (WORLDS, model.nv))
        inputs = diffsim.make_inputs(model).replace(ctrl=jnp.full(model.nu, 0.3))

        def moved(gain: jax.Array, qvel: jax.Array, model=model, start=start, inputs=inputs) -> jax.Array:  # type: ignore[no-untyped-def]
            driven = model.replace(actuator_gainprm=model.actuator_gainprm.at[0, 0].set(gain))
            return jax.vmap(lambda v: diffsim.step(driven, start.replace(qvel=v), inputs).qvel)(qvel)

        def slopes(gain: jax.Array, qvel: jax.Array, moved: Callable = moved) -> Any:
            def score(*x: jax.Array) -> tuple[jax.Array, jax.Array]:
                later = moved(*x)
                return jnp.sum(jnp.sin(later)), later

            return jax.grad(score, argnums=(0, 1), has_aux=True)(gain, qvel)

        spread = jax.shard_map(slopes, mesh=mesh, in_specs=(shared, each), out_specs=((shared, each), each))
        pairs = zip(*(jax.tree.leaves(jax.jit(f)(jnp.asarray(3.0), qvel)) for f in (spread, slopes)), strict=True)
        apart = max(float(np.max(np.abs(np.asarray(one) - np.asarray(other)))) for one, other in pairs)
        print(option, apart)


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main()
