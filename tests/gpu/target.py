"""Compiles for an NVIDIA H200 that is not there: jax plans kernels, memory and CUDA graphs without a device.

Needs `jax[cuda13]`, which brings the compiler (`make gpu-plan`).
"""

import pathlib
import tempfile
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.experimental import topologies

from diffsim.xla.compiled import CUDA_GRAPHS

TARGET = pathlib.Path(__file__).with_name("h200.txtpb")


class Compiled(NamedTuple):
    """A program for the device: optimized HLO, what is launched in which order, and bytes of temporary memory."""

    hlo: str
    launches: str
    temporary: int


def compile_for_device(function: Callable[..., Any], *arguments: Any) -> Compiled:
    """Compiles a function of arrays, given as arrays or as their shapes."""
    device = topologies.get_topology_desc(platform="cuda", target_config=TARGET.read_text(), topology="1x1x1").devices
    mesh = jax.sharding.Mesh(np.array(device), ("x",))
    where = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    placed = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=where), arguments)
    with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
        lowered = jax.jit(function).trace(*placed).lower(lowering_platforms=("cuda",))
    with tempfile.TemporaryDirectory() as folder:
        options = {
            "xla_gpu_autotune_level": 0,
            **CUDA_GRAPHS,
            "xla_dump_to": folder,
            "xla_dump_hlo_as_text": True,
        }
        program = lowered.compile(compiler_options=options)
        dumped = next(pathlib.Path(folder).glob("*thunk_sequence_after_thunk_passes.txt"))
        launches = dumped.read_text()
    return Compiled(program.as_text(), launches, program.memory_analysis().temp_size_in_bytes)
