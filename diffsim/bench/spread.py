"""An engine whose worlds are shared out over devices: each device runs the engine's own programs on its part."""

from collections.abc import Callable
from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from diffsim import parallel
from diffsim.bench.engines import Batched

WORLDS = PartitionSpec(parallel.AXIS)
# controls of a rollout are (steps, worlds, nu)
STEPS_OF_WORLDS = PartitionSpec(None, parallel.AXIS)


class Spread:
    """Step, rollout and gradient of an engine over the devices of a mesh, with states and controls to begin with."""

    def __init__(self, engine: Batched, mesh: Mesh) -> None:
        self.engine, self.mesh = engine, mesh
        self.step = self._over(engine.step, WORLDS, WORLDS)
        self.rollout = self._over(engine.rollout, STEPS_OF_WORLDS, WORLDS)
        self.gradient = self._over(engine.gradient, STEPS_OF_WORLDS, STEPS_OF_WORLDS)

    def start(self, batch: int) -> Any:
        """A batch of starting states, a part on each device."""
        return parallel.spread(self.engine.start(batch), self.mesh)

    def controls(self, steps: int, batch: int) -> jax.Array:
        """Random controls (steps, batch, nu), those of a world where it is."""
        drawn = self.engine.workload.controls(steps, batch, self.engine.nu)
        return jax.device_put(drawn, NamedSharding(self.mesh, STEPS_OF_WORLDS))

    def _over(self, function: Callable[[Any, Any], Any], ctrl: PartitionSpec, result: PartitionSpec) -> Callable:
        specs = {"in_specs": (WORLDS, ctrl), "out_specs": result}
        return jax.shard_map(function, mesh=self.mesh, **specs, check_vma=False)
