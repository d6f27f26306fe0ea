"""How functions become programs: which are compiled, how they are traced, and with which options of XLA.

Outside of `jax.jit` JAX compiles and runs each operation alone: the first `set_const` of a humanoid took 31 s of CPU
that way, and takes 9 s as one program (`compiled`). A trace makes many small objects, which live until the program is
compiled. The garbage collector would visit them again and again, for a third of the time (`uncollected`).
"""

import functools
import gc
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
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
    """Switches the garbage collector off, within a `with` block, or as a decorator while the function runs."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


# options on CUDA: the whole program becomes one CUDA graph, with its loops, whose conditions the host tests by default.
# Kernels must then write what a loop stores in each step. The pass that is switched off would have the host work out
# where it is stored, which keeps a loop out of the graph
CUDA_GRAPHS = {
    "xla_gpu_enable_command_buffer": "FUSION,CUBLAS,CUBLASLT,CUSTOM_CALL,CUDNN,CONDITIONAL,WHILE,DYNAMIC_SLICE_FUSION",
    "xla_disable_hlo_passes": "dynamic-slice-annotator",
}
# options on a CPU before jaxlib 0.12: the older way of making kernels compiles in two thirds of the time, and its
# kernels are not slower
OLDER_KERNELS = {"xla_cpu_use_fusion_emitters": False}
# the first jaxlib that gains nothing from the older way
NEWER_KERNELS = (0, 12)
# options on a CPU since jaxlib 0.12: products and reductions would go to a library of kernels for neural networks
# (YNNPACK), which is slow for many small matrices: the gradient of 20 steps of a humanoid takes 1.8 times as long
NO_LIBRARY = {"xla_cpu_experimental_ynn_fusion_type": ""}
ON_CPU: dict[str, Any] = OLDER_KERNELS if jaxlib.version.__version_info__ < NEWER_KERNELS else NO_LIBRARY


def compiler_options(*model: Any) -> dict[str, Any]:
    """The best options of XLA for programs of any model: `jax.jit(f, compiler_options=diffsim.compiler_options())`.

    On a GPU a program becomes one CUDA graph. On a CPU kernels are made in a way that compiles faster (jaxlib before
    0.12), and not taken from a library that is slow for small matrices (jaxlib 0.12 and later).

    Args:
      model: deprecated; leave it out. The options do not depend on a model.

    Returns:
      Options by name, for the default backend; empty where the defaults of XLA are the best.
    """
    if model:
        message = "compiler_options() takes no model: its options are the same for all"
        warnings.warn(message, DeprecationWarning, stacklevel=2)
    if for_gpu():
        return dict(CUDA_GRAPHS)
    if not for_cpu():
        return {}
    return dict(ON_CPU)


# options on a CPU for programs that run a few times: they compile in three fifths of the time and run three times as
# long
QUICK = {"xla_backend_optimization_level": 0}


# s; programs that compile faster than this are not kept: reading them would take as long
WORTH_KEEPING = 0.5
# bytes that the cache may take on disk: some thousand programs
CACHE_LIMIT = 4 << 30


def use_cache(folder: str | Path | None = None, limit: int = CACHE_LIMIT) -> Path | None:
    """Keeps compiled programs on disk, so that the next process reads what this one has compiled.

    The next process still traces, for one or two seconds for a step (`diffsim.export` saves that too). Programs that
    compile in less than half a second are not kept.

    Args:
      folder: where; None for the folder of `JAX_COMPILATION_CACHE_DIR`, if it is set, else `diffsim` in the user's
        cache.
      limit: bytes; where the folder holds more, the programs that were not used for the longest time are deleted now.

    Returns:
      The folder; None where the environment variable DIFFSIM_CACHE is 0, which keeps nothing.
    """
    if os.environ.get("DIFFSIM_CACHE") == "0":
        return None
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    configured = jax.config.jax_compilation_cache_dir  # type: ignore[attr-defined]
    path = Path(folder or configured or home / "diffsim")
    jax.config.update("jax_compilation_cache_dir", str(path))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", WORTH_KEEPING)
    _shrink(path, limit)
    return path


def _shrink(folder: Path, limit: int) -> None:
    """Deletes the compiled programs that were not used for the longest time; the others take at most the limit."""
    programs = []
    for program in folder.glob("*-cache"):
        # another process may have deleted it since
        with suppress(FileNotFoundError):
            facts = program.stat()
            programs.append((max(facts.st_atime, facts.st_mtime), facts.st_size, program))
    total = 0
    for _, size, program in sorted(programs, reverse=True):
        total += size
        if total > limit:
            program.unlink(missing_ok=True)


def run_alone(primitive: Primitive, definition: Callable[..., Any], static: tuple[str, ...] = ()) -> None:
    """Lets a primitive run outside of any program: a program that calls the primitive is compiled for it.

    With `jax.disable_jit` there are no programs, and the definition is called instead.

    Args:
      primitive: the primitive.
      definition: what the primitive computes.
      static: names of parameters that are not arrays.
    """
    compiled = jax.jit(primitive.bind, static_argnames=static)

    def run(*arguments: Any, **parameters: Any) -> Any:
        return (definition if getattr(jax.config, "jax_disable_jit") else compiled)(*arguments, **parameters)  # noqa: B009

    primitive.def_impl(run)


NUMBERS = jax.Array | np.ndarray | np.number | np.bool_ | float | int

P = ParamSpec("P")
T = TypeVar("T")


def jit(function: Callable[P, T], quick: bool = False, **settings: Any) -> Callable[P, T]:
    """`jax.jit` with the options that suit diffsim's programs: `diffsim.jit(jax.grad(loss))`.

    Called outside of other programs, it compiles with `compiler_options()`. Within another program, and under
    `jax.grad` or `jax.vmap`, it is `jax.jit(function)`: JAX takes such options for the outermost program only.

    Args:
      function: a function of pytrees of arrays.
      quick: whether a CPU compiles it in three fifths of the time, into a program that runs three times as long.
      settings: further arguments of `jax.jit`, such as `static_argnames` and `donate_argnums`.

    Returns:
      The function, compiled once for each structure and each set of shapes of its arguments.
    """
    traced = uncollected()(function)
    inside = jax.jit(traced, **settings)

    @functools.cache
    def outermost() -> Callable[P, T]:
        # not before the first call: asking for the backend starts it
        options = compiler_options() | (QUICK if quick and for_cpu() else {})
        return jax.jit(traced, compiler_options=options, **settings)

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        # by type, of which there are few: a model has hundreds of leaves
        if any(issubclass(kind, jax.core.Tracer) for kind in set(map(type, jax.tree.leaves((args, kwargs))))):
            return inside(*args, **kwargs)
        try:
            return outermost()(*args, **kwargs)
        except ValueError:
            # only numbers as arguments, but within a program, where all results are tracers
            if within_program():
                return inside(*args, **kwargs)
            raise

    return call


def compiled(function: Callable[P, T]) -> Callable[P, T]:
    """The function of pytrees of arrays, compiled where it is called with numbers outside of a program.

    It is also compiled under `jax.vmap` and `jax.grad` outside of a program, which would otherwise compile and run each
    operation alone, hundreds for a step.
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
    """Whether a program is being traced: a new constant is a tracer then."""
    return isinstance(jax.lax.full((), 0), jax.core.Tracer)


def by_hand(*arguments: Any) -> bool:
    """Whether all leaves are numbers: no tracer of a transformation, and nothing that `jax.jit` would refuse."""
    leaves = jax.tree.leaves(arguments)
    return all(isinstance(leaf, NUMBERS) and not isinstance(leaf, jax.core.Tracer) for leaf in leaves)
