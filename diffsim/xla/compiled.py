"""How functions become compiled programs: which are compiled, how they are traced, and with which options of XLA.

Outside of `jax.jit`, JAX compiles and runs each operation by itself: the first `set_const` of a humanoid would take
31 s of CPU time, and takes 9 s as one program (`compiled`). Tracing makes many small objects, which live until the
program is compiled. Python's garbage collector would visit them again and again, which would take a third of the time;
`uncollected` switches it off.
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
from diffsim.xla.stored import store_in
from diffsim.xla.traces import remembered


@contextmanager
def uncollected() -> Iterator[None]:
    """Switches the garbage collector off in a `with` block, or, as a decorator, while a function runs."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


# Options for CUDA. They turn the whole program into one CUDA graph, loops included; by default the host tests the
# conditions of loops. The pass that is switched off would let the host compute where a loop stores the results of an
# iteration, which would keep the loop out of the graph.
CUDA_GRAPHS = {
    "xla_gpu_enable_command_buffer": "FUSION,CUBLAS,CUBLASLT,CUSTOM_CALL,CUDNN,CONDITIONAL,WHILE,DYNAMIC_SLICE_FUSION",
    "xla_disable_hlo_passes": "dynamic-slice-annotator",
}
# options for a CPU before jaxlib 0.12: XLA's older generator of kernels compiles in two thirds of the time, and its
# kernels are as fast
OLDER_KERNELS = {"xla_cpu_use_fusion_emitters": False}
# the first version of jaxlib in which the older generator saves no time
NEWER_KERNELS = (0, 12)
# Options for a CPU since jaxlib 0.12: do not use YNNPACK, a library of kernels for neural networks, for products and
# reductions. It is slow for many small matrices: with it the gradient of 20 steps of a humanoid takes 1.8 times as
# long.
NO_LIBRARY = {"xla_cpu_experimental_ynn_fusion_type": ""}
ON_CPU: dict[str, Any] = OLDER_KERNELS if jaxlib.version.__version_info__ < NEWER_KERNELS else NO_LIBRARY


def compiler_options(*model: Any) -> dict[str, Any]:
    """The best options of XLA for simulations: `jax.jit(f, compiler_options=diffsim.compiler_options())`.

    On a GPU they turn a program into one CUDA graph. On a CPU they choose XLA's older generator of kernels, which
    compiles faster (jaxlib before 0.12), or avoid a library of kernels that is slow for small matrices (jaxlib 0.12 and
    later).

    Args:
      model: deprecated; leave it out. The options are the same for all models.

    Returns:
      Options by name, for JAX's default backend; empty if XLA's defaults are the best.
    """
    if model:
        message = "compiler_options() takes no model, because its options are the same for all models"
        warnings.warn(message, DeprecationWarning, stacklevel=2)
    if for_gpu():
        return dict(CUDA_GRAPHS)
    if not for_cpu():
        return {}
    return dict(ON_CPU)


# options for a CPU for programs that run only a few times: they compile in 60% of the time and run three times as long
QUICK = {"xla_backend_optimization_level": 0}


# programs that compile faster than this, in s, are not cached, because reading them would take as long
WORTH_KEEPING = 0.5
# the default size of the cache on disk, in bytes: some thousand programs
CACHE_LIMIT = 4 << 30
# the folder in the cache for traced programs and results
VALUES = "values"


def use_cache(folder: str | Path | None = None, limit: int = CACHE_LIMIT, traces: bool = False) -> Path | None:
    """Caches compiled programs on disk, so that later processes need not compile them again.

    Programs that compile in less than half a second are not cached. What `load` derives from a model at some cost, such
    as length ranges of muscles, is cached by the model's content.

    Args:
      folder: the folder of the cache; None for `JAX_COMPILATION_CACHE_DIR` if it is set, else `diffsim` in the user's
        cache folder.
      limit: the largest size of the folder in bytes; beyond it, the least recently used programs are deleted.
      traces: whether, on one CPU, what `diffsim.jit` traces is cached too. A trace is found by all that the function
        reads: its code, arrays, and functions of JAX, numpy and diffsim. A function that names objects of the user's
        own classes or modules is traced by each process. Leave it off in a program that replaces constants or methods
        of JAX, numpy or diffsim, because that is not seen. Warnings of tracing are heard once.

    Returns:
      The folder; None if the environment variable DIFFSIM_CACHE is 0, which turns the cache off.
    """
    if os.environ.get("DIFFSIM_CACHE") == "0":
        return None
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    configured = jax.config.jax_compilation_cache_dir  # type: ignore[attr-defined]
    path = Path(folder or configured or home / "diffsim")
    jax.config.update("jax_compilation_cache_dir", str(path))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", WORTH_KEEPING)
    store_in(path / VALUES, traces)
    _shrink(path, limit)
    return path


def _shrink(folder: Path, limit: int) -> None:
    """Deletes the least recently used programs, so that the others take at most `limit` bytes."""
    programs = []
    for program in [*folder.glob("*-cache"), *(folder / VALUES).glob("*")]:
        # another process may have deleted it since
        with suppress(FileNotFoundError):
            facts = program.stat()
            programs.append((max(facts.st_atime, facts.st_mtime), facts.st_size, program))
    total = 0
    for _, size, program in sorted(programs, reverse=True):
        total += size
        if total > limit:
            program.unlink(missing_ok=True)


def define_eager(primitive: Primitive, definition: Callable[..., Any], static: tuple[str, ...] = ()) -> None:
    """Defines how a primitive runs outside of `jax.jit`: by a compiled program that consists of the primitive alone.

    Under `jax.disable_jit`, where nothing is compiled, `definition` is called instead.

    Args:
      primitive: the primitive.
      definition: a function that computes the same.
      static: names of the primitive's parameters that are not arrays.
    """
    compiled = jax.jit(primitive.bind, static_argnames=static)

    def run(*arguments: Any, **parameters: Any) -> Any:
        return (definition if getattr(jax.config, "jax_disable_jit") else compiled)(*arguments, **parameters)  # noqa: B009

    primitive.def_impl(run)


# types of the leaves that compiled programs take
NUMBERS = jax.Array | np.ndarray | np.number | np.bool_ | float | int

P = ParamSpec("P")
T = TypeVar("T")


def jit(function: Callable[P, T], quick: bool = False, **settings: Any) -> Callable[P, T]:
    """The compiled function, as by `jax.jit`, with the options that suit simulations: `diffsim.jit(jax.grad(loss))`.

    It compiles with `compiler_options()` when it is called from Python. Inside of another jitted function, and under
    `jax.grad` or `jax.vmap`, it is the same as `jax.jit(function)`, because JAX accepts such options only for the
    outermost program.

    Args:
      function: a function of pytrees of arrays.
      quick: whether a CPU compiles the function in 60% of the time, to a program that runs three times as long.
      settings: further arguments of `jax.jit`, such as `static_argnames` and `donate_argnums`.

    Returns:
      The function, which is compiled once for each structure and set of shapes of its arguments.
    """
    traced = uncollected()(function)
    inside = jax.jit(traced, **settings)

    @functools.cache
    def outermost() -> Callable[P, T]:
        # only at the first call, because asking for the backend starts it
        options = compiler_options() | (QUICK if quick and for_cpu() else {})
        # settings such as static arguments belong to this function, not to the program that is stored
        outer = traced if settings else uncollected()(remembered(function))
        return jax.jit(outer, compiler_options=options, **settings)

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        # check the types and not each leaf: a model has hundreds of leaves, but they have few types
        if any(issubclass(kind, jax.core.Tracer) for kind in set(map(type, jax.tree.leaves((args, kwargs))))):
            return inside(*args, **kwargs)
        try:
            return outermost()(*args, **kwargs)
        except ValueError:
            # the arguments are plain numbers, but a program is being traced, in which all results are tracers
            if within_program():
                return inside(*args, **kwargs)
            raise

    return call


def compiled(function: Callable[P, T]) -> Callable[P, T]:
    """A decorator: the function is compiled when it is called outside of `jax.jit`.

    This includes calls under `jax.vmap` and `jax.grad` outside of `jax.jit`, for which JAX would otherwise compile and
    run each operation by itself, hundreds of them for a step.
    """
    traced = uncollected()(function)
    program = jit(function)

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        arrays = all(isinstance(leaf, NUMBERS) for leaf in jax.tree.leaves((args, kwargs)))
        outermost = by_hand(args, kwargs) or (arrays and not within_program())
        return (program if outermost else traced)(*args, **kwargs)

    return call


def within_program() -> bool:
    """Whether a program is being traced. If so, a new constant is a tracer."""
    return isinstance(jax.lax.full((), 0), jax.core.Tracer)


def by_hand(*arguments: Any) -> bool:
    """Whether all leaves are arrays or numbers with known values: not tracers, and nothing that `jax.jit` refuses."""
    leaves = jax.tree.leaves(arguments)
    return all(isinstance(leaf, NUMBERS) and not isinstance(leaf, jax.core.Tracer) for leaf in leaves)


def zeros(shape: int | tuple[int, ...], dtype: Any) -> jax.Array:
    """Zeros. Outside of a program they come from numpy, because JAX would compile an operation for each shape."""
    return jax.numpy.zeros(shape, dtype) if within_program() else jax.device_put(np.zeros(shape, dtype))


def rows(values: jax.Array, index: int | np.ndarray) -> jax.Array:
    """A copy of some rows of an array; by numpy where JAX would compile an operation."""
    return jax.device_put(np.array(values)[index]) if _at_hand(values) else values[index]


def copied(values: jax.Array) -> jax.Array:
    """A copy of an array; by numpy where JAX would compile an operation."""
    return jax.device_put(np.array(values)) if _at_hand(values) else jax.numpy.array(values, copy=True)


def _at_hand(values: jax.Array) -> bool:
    """Whether numpy may read an array, and put what it computes on the default device."""
    return by_hand(values) and not within_program() and not getattr(values, "committed", False)
