"""Options of XLA for programs of a model; JAX takes them of the outermost `jax.jit` alone."""

from typing import Any

import jaxlib.version

from diffsim.math.xla import CUDA_GRAPHS, for_cpu, for_gpu
from diffsim.types import Model

# the older way of making kernels for CPUs compiles in two thirds of the time; what it makes is faster by up to one
# fourth where the solver does few iterations (measured with 1), slower by a third where it goes on to its tolerance
OLDER_KERNELS = {"xla_cpu_use_fusion_emitters": False}
FEW_ITERATIONS = 4
# the first jaxlib that gains nothing of it
NEWER_KERNELS = (0, 12)


def compiler_options(model: Model) -> dict[str, Any]:
    """What programs of a model are best compiled with: `jax.jit(f, compiler_options=...)`.

    On a GPU a program becomes one CUDA graph; on a CPU one whose solver does at most 4 iterations compiles and runs
    faster, and for others there is nothing to choose.

    Args:
      model: its `opt.iterations` count.

    Returns:
      Options by name, for the default backend; maybe none.
    """
    if for_gpu():
        return dict(CUDA_GRAPHS)
    few = model.opt.iterations <= FEW_ITERATIONS
    return dict(OLDER_KERNELS) if few and for_cpu() and jaxlib.version.__version_info__ < NEWER_KERNELS else {}
