"""Options of XLA for programs of a model; JAX takes them of the outermost `jax.jit` alone."""

from typing import Any

import jaxlib.version

from diffsim.math.xla import CUDA_GRAPHS, KEEP_BARRIERS, for_cpu, for_gpu
from diffsim.types import Model

# the older way of making kernels for CPUs compiles in two thirds of the time; what it makes is faster by up to one
# fourth where the solver does few iterations (measured with 1), slower by a third where it goes on to its tolerance
OLDER_KERNELS = {"xla_cpu_use_fusion_emitters": False}
FEW_ITERATIONS = 4
# the first jaxlib that gains nothing of it
NEWER_KERNELS = (0, 12)


def compiler_options(model: Model) -> dict[str, Any]:
    """What programs of a model are best compiled with: `jax.jit(f, compiler_options=...)`.

    On a GPU a program becomes one CUDA graph. On a CPU what several operations read is computed once, and a program
    whose solver does at most 4 iterations compiles faster.

    Args:
      model: its `opt.iterations` count.

    Returns:
      Options by name, for the default backend; maybe none.
    """
    if for_gpu():
        return dict(CUDA_GRAPHS)
    if not for_cpu():
        return {}
    few = model.opt.iterations <= FEW_ITERATIONS
    older = few and jaxlib.version.__version_info__ < NEWER_KERNELS
    return {**KEEP_BARRIERS, **(OLDER_KERNELS if older else {})}
