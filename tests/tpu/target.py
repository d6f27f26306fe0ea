"""Compiles for a TPU that is not there: libtpu plans fusions, layouts and memory without a chip.

Needs `libtpu` (`make tpu-plan`). One process at a time: libtpu keeps a lock in the temporary folder.
"""

import os
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from jax.experimental import topologies
from jax.sharding import NamedSharding, SingleDeviceSharding

from diffsim import parallel
from diffsim.bench.engines import STEPS_OF_WORLDS, WORLDS, Spread


class Chip(NamedTuple):
    """A kind of TPU: the topologies of a machine and of eight chips, its name among machines, and a chip's memory.

    `bandwidth` are bytes per us, `memory` is in MiB.
    """

    topology: str
    slice: str
    accelerator: str
    bandwidth: float
    memory: int


CHIPS = {
    # 819 GB/s and 16 GiB
    "v5e": Chip("v5e:2x2", "v5e:2x4", "v5litepod-4", 819e3, 16 << 10),
    # 1,640 GB/s and 32 GiB
    "v6e": Chip("v6e:2x2", "v6e:2x4", "v6e-4", 1640e3, 32 << 10),
}


class Compiled(NamedTuple):
    """A program for the chip: optimized HLO, bytes by XLA's own count, and bytes of temporary memory."""

    hlo: str
    accessed: float
    temporary: int


def compile_for_chip(chip: Chip, function: Callable[..., Any], *arguments: Any) -> Compiled:
    """Compiles a function of arrays, given as their shapes, for one chip."""
    where = SingleDeviceSharding(_devices(chip, chip.topology)[0])
    return _compiled(function, *(_placed(argument, where) for argument in arguments))


def compile_for_slice(chip: Chip, engine: Any, mode: str, states: Any, ctrl: Any) -> Compiled:
    """Compiles a rollout or a gradient whose worlds are distributed over eight chips: the program of one of them."""
    mesh = parallel.mesh(_devices(chip, chip.slice))
    function = getattr(Spread(engine, mesh), mode)
    return _compiled(
        function, _placed(states, NamedSharding(mesh, WORLDS)), _placed(ctrl, NamedSharding(mesh, STEPS_OF_WORLDS))
    )


def _devices(chip: Chip, topology: str) -> Any:
    # libtpu asks the network for the machine that it runs on, unless told
    os.environ["TPU_SKIP_MDS_QUERY"] = "1"
    os.environ["TPU_ACCELERATOR_TYPE"] = chip.accelerator
    os.environ.setdefault("TPU_WORKER_HOSTNAMES", "localhost")
    return topologies.get_topology_desc(platform="tpu", topology_name=topology).devices


def _placed(tree: Any, where: Any) -> Any:
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=where), tree)


def _compiled(function: Callable[..., Any], *placed: Any) -> Compiled:
    program: Any = jax.jit(function).trace(*placed).lower(lowering_platforms=("tpu",)).compile()
    cost: Any = program.cost_analysis() or {}
    return Compiled(program.as_text(), cost.get("bytes accessed", 0.0), program.memory_analysis().temp_size_in_bytes)
