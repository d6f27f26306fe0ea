"""How programs are made: compiled when called by hand, traced without the garbage collector, with options of XLA.

Outside of `jax.jit` JAX compiles and runs each operation by itself: the first `set_const` of a humanoid took 31 s of
CPU that way, and takes 9 s as one program (`compiled`). A trace makes very many small objects, which live until the
program is compiled; the collector goes through them again and again, a third of the time (`uncollected`).
"""

import functools
import gc
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import jax
import jax.core
import jaxlib.version
import numpy as np
from jax.extend.core import Primitive

from diffsim.xla.barriers import for_cpu, for_gpu


@contextmanager
def uncollected() -> Iterator[None]:
    """Switches the garbage collector off: within a `with` block, or as a decorator while the function runs."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


# of `jax.jit` and `compile` on CUDA: the whole program becomes one CUDA graph, with the loops whose conditions the host
# tests by default. Kernels must then write what a loop stores of each of its steps: the pass that is switched off
# prepares copies to places that the host works out, which would keep the loop out of the graph
CUDA_GRAPHS = {
    "xla_gpu_enable_command_buffer": "FUSION,CUBLAS,CUBLASLT,CUSTOM_CALL,CUDNN,CONDITIONAL,WHILE,DYNAMIC_SLICE_FUSION",
    "xla_disable_hlo_passes": "dynamic-slice-annotator",
}
# the older way of making kernels for CPUs compiles in two thirds of the time, and what it makes runs as long or less
OLDER_KERNELS = {"xla_cpu_use_fusion_emitters": False}
# the first jaxlib that gains nothing of it
NEWER_KERNELS = (0, 12)
# since then products and reductions go to a library of kernels for neural networks (YNNPACK), which is slow
# for ours, small and many: the gradient of 20 steps of a humanoid takes 1.8 times as long
NO_LIBRARY = {"xla_cpu_experimental_ynn_fusion_type": ""}
ON_CPU: dict[str, Any] = OLDER_KERNELS if jaxlib.version.__version_info__ < NEWER_KERNELS else NO_LIBRARY


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
    return dict(ON_CPU)


# compiles in three fifths of the time, and runs three times as long: for programs that run a few times
QUICK = {"xla_backend_optimization_level": 0}


def use_cache(folder: str | Path | None = None) -> Path:
    """Keeps compiled programs on disk, so that the next process reads what this one has compiled.

    What is not kept is tracing, one or two seconds for a step (`diffsim.export` keeps that too). Programs that compile
    in less than half a second are not kept.

    Args:
      folder: where; None for what JAX was told (`JAX_COMPILATION_CACHE_DIR`), else `diffsim` in the user's cache.

    Returns:
      The folder.
    """
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    configured = jax.config.jax_compilation_cache_dir  # type: ignore[attr-defined]
    path = Path(folder or configured or home / "diffsim")
    jax.config.update("jax_compilation_cache_dir", str(path))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
    return path


def run_alone(primitive: Primitive, definition: Callable[..., Any], static: tuple[str, ...] = ()) -> None:
    """Says what a primitive does outside of any program: it is compiled, as a program that calls the primitive.

    With `jax.disable_jit` there are no programs, and the definition is called instead.

    Args:
      definition: what the primitive computes.
      static: names of parameters that are no arrays.
    """
    compiled = jax.jit(primitive.bind, static_argnames=static)

    def run(*arguments: Any, **parameters: Any) -> Any:
        return (definition if getattr(jax.config, "jax_disable_jit") else compiled)(*arguments, **parameters)  # noqa: B009

    primitive.def_impl(run)


NUMBERS = jax.Array | np.ndarray | np.number | np.bool_ | float | int

P = ParamSpec("P")
T = TypeVar("T")


def jit(function: Callable[P, T], quick: bool = False, **settings: Any) -> Callable[P, T]:
    """`jax.jit` with what suits programs of a model: `diffsim.jit(jax.grad(loss))`.

    As the outermost program it is compiled with `compiler_options()`, which `jax.jit` allows nowhere else; within
    another program, and while `jax.grad` or `jax.vmap` call it, it is `jax.jit(function)`.

    Args:
      function: of pytrees of arrays.
      quick: compiled on a CPU in three fifths of the time, for a program that then runs three times as long.
      settings: further arguments of `jax.jit`, as `static_argnames` and `donate_argnums`.

    Returns:
      The function, compiled once for each structure and shapes of its arguments.
    """
    traced = uncollected()(function)
    inside = jax.jit(traced, **settings)

    @functools.cache
    def outermost() -> Callable[P, T]:
        # not before it is called: asking for the backend starts it
        options = compiler_options() | (QUICK if quick and for_cpu() else {})
        return jax.jit(traced, compiler_options=options, **settings)

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        # by kind, of which there are few: a model has hundreds of leaves
        if any(issubclass(kind, jax.core.Tracer) for kind in set(map(type, jax.tree.leaves((args, kwargs))))):
            return inside(*args, **kwargs)
        try:
            return outermost()(*args, **kwargs)
        except ValueError:
            # numbers alone, within a program: what is made there is a tracer
            if within_program():
                return inside(*args, **kwargs)
            raise

    return call


def compiled(function: Callable[P, T]) -> Callable[P, T]:
    """The function of pytrees of arrays, compiled once for each structure and shapes when it is called with numbers.

    It is also compiled under `jax.vmap` and `jax.grad` outside of a program, which would compile and run each operation
    by itself, hundreds for a step.
    """
    traced = uncollected()(function)
    program = jit(traced)

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        arrays = all(isinstance(leaf, NUMBERS) for leaf in jax.tree.leaves((args, kwargs)))
        outermost = by_hand(args, kwargs) or (arrays and not within_program())
        return (program if outermost else traced)(*args, **kwargs)

    return call


def within_program() -> bool:
    """Whether a program is being traced: a new constant is a placeholder then."""
    return isinstance(jax.lax.full((), 0), jax.core.Tracer)


def by_hand(*arguments: Any) -> bool:
    """Whether all are numbers: no placeholder of a transformation, and nothing that `jax.jit` would refuse."""
    leaves = jax.tree.leaves(arguments)
    return all(isinstance(leaf, NUMBERS) and not isinstance(leaf, jax.core.Tracer) for leaf in leaves)
