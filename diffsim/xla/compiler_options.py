"""Options of XLA for programs of a model; JAX takes them of the outermost `jax.jit` alone."""

from typing import Any

import jaxlib.version

from diffsim.xla.barriers import CUDA_GRAPHS, for_cpu, for_gpu

# the older way of making kernels for CPUs compiles in two thirds of the time, and what it makes runs as long or less
OLDER_KERNELS = {"xla_cpu_use_fusion_emitters": False}
# the first jaxlib that gains nothing of it
NEWER_KERNELS = (0, 12)
# since then products and reductions go to a library of kernels for neural networks (YNNPACK), which is slow
# for ours, small and many: the gradient of 20 steps of a humanoid takes 1.8 times as long
NO_LIBRARY = {"xla_cpu_experimental_ynn_fusion_type": ""}


def compiler_options(model: Any = None) -> dict[str, Any]:
    """What programs of a model are best compiled with: `jax.jit(f, compiler_options=...)`.

    On a GPU a program becomes one CUDA graph. On a CPU kernels are made in a way that compiles faster (jaxlib before
    0.12), and not taken from a library that is slow for small matrices (0.12 and later).

    Args:
      model: any model; the options are the same for all so far.

    Returns:
      Options by name, for the default backend; maybe none.
    """
    if for_gpu():
        return dict(CUDA_GRAPHS)
    if not for_cpu():
        return {}
    return dict(OLDER_KERNELS if jaxlib.version.__version_info__ < NEWER_KERNELS else NO_LIBRARY)
