"""What XLA is told about when to compute: once instead of in every use, and not again in reverse mode."""

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.xla_metadata import set_xla_metadata

P = ParamSpec("P")
T = TypeVar("T")

# options of `jax.jit` and of `compile` on CUDA: a whole program becomes one graph, loops too, which by default are left
# to the host to test. What a loop stores of each of its steps is then written by kernels: copies whose place the host
# works out (that is what the pass prepares) would keep a loop out of the graph
CUDA_GRAPHS = {
    "xla_gpu_enable_command_buffer": "FUSION,CUBLAS,CUBLASLT,CUSTOM_CALL,CUDNN,CONDITIONAL,WHILE,DYNAMIC_SLICE_FUSION",
    "xla_disable_hlo_passes": "dynamic-slice-annotator",
}


def for_gpu() -> bool:
    """Whether what is traced is meant for a GPU, by the default backend.

    Which backend a program is for is known for certain only when it is compiled; this decides about speed alone. On a
    GPU, where each operation of each trip of a loop is a launch, short loops are better written out; a CPU takes as
    long for a loop, and longer to compile what is written out.
    """
    return jax.default_backend() == "gpu"


def for_cpu() -> bool:
    """Whether what is traced is meant for a CPU, by the default backend; as `for_gpu`."""
    return jax.default_backend() == "cpu"


def barrier(values: T) -> T:
    """The same arrays, computed once: XLA would otherwise fuse cheap operations into each consumer, and compute them
    again for each of its elements.

    XLA for CPU removes barriers before it fuses, if no option tells it not to. What stays is a call that may not be
    inlined, here of a function that is nothing else: its result is where its argument is.
    """
    if not for_cpu():
        return jax.lax.optimization_barrier(values)
    with set_xla_metadata(inlineable="false"):
        return _barrier_call(values)


_barrier_call = jax.jit(jax.lax.optimization_barrier)


def stored(values: T) -> T:
    """The same arrays, with a barrier behind them on a CPU, where a kernel reads what is stored in place of computing
    it again; on a GPU, whose kernels are better made of as much as possible, it would be one more pass over memory.
    """
    return barrier(values) if for_cpu() else values


def short_scan(step: Callable[..., Any], start: Any, parts: Any) -> tuple[Any, Any]:
    """`jax.lax.scan` over a few parts, written out on a GPU."""
    return jax.lax.scan(step, start, parts, unroll=for_gpu())


def one_by_one(function: Callable[[Any], Any], parts: Any) -> Any:
    """The results of a function for each of a few parts, along their leading axes.

    In a scan, for side by side XLA would compile what they share into each of them. On a GPU side by side: written out
    one after another each part would have kernels of its own.
    """
    return (
        jax.vmap(function)(parts) if for_gpu() else jax.lax.scan(lambda _, part: (None, function(part)), None, parts)[1]
    )


# the name (`jax.ad_checkpoint.checkpoint_name`) of what a search found: `jax.checkpoint` keeps it and does not search
# again in reverse mode
SEARCH_RESULT = "diffsim_search_result"


def recomputed(function: Callable[P, T]) -> Callable[P, T]:
    """The body of a scan, which reverse mode computes again instead of storing it; what searches found is stored."""
    keep_found = jax.checkpoint_policies.save_only_these_names(SEARCH_RESULT)
    # barriers against merging are for code outside of a scan; here they would keep what is constant in the loop
    return jax.checkpoint(function, policy=keep_found, prevent_cse=False)


def entwined(start: Any, causes: Any) -> Any:
    """The same arrays, floats or integers, as functions of the causes, which is what a step makes of them.

    Batching and differentiating a scan trace its body until they know what varies: known at the start, they trace it
    once (0.5 s of 3.7 for the gradient of a humanoid's rollout).
    """
    for cause in (leaf for leaf in jax.tree.leaves(causes) if leaf.size and jnp.issubdtype(leaf.dtype, jnp.floating)):
        one = jnp.ravel(cause)[0]
        start = jax.tree.map(lambda x, one=one: jnp.where(False, one.astype(x.dtype), x), start)
    return start


def decided(condition: jax.Array) -> jax.Array:
    """The same truths, computed once.

    For decisions that several operations must agree on: computed in each of them, with other rounding, they could
    differ. Where XLA removes barriers before it fuses, a reduction of two values is not repeated.
    """
    return barrier(condition) if for_cpu() else jnp.argmax(jnp.stack([~condition, condition]), axis=0) > 0


@jax.custom_batching.custom_vmap
def anywhere(flag: jax.Array) -> jax.Array:
    """Whether a flag () is set, under `vmap` in any of the worlds: one truth for all of them.

    `lax.cond` of it stays a choice, so that a batch does not pay for what none of its worlds needs; of a truth for each
    world it would compute both sides.
    """
    return flag


@anywhere.def_vmap
def _anywhere_in_a_batch(size: int, batched: list[bool], flag: jax.Array) -> tuple[jax.Array, bool]:
    return anywhere(jnp.any(flag)), False


def computed_once(function: Callable[P, T]) -> Callable[P, T]:
    """A function of arrays with a barrier behind its results; for what several later operations read."""

    @functools.wraps(function)
    def once(*args: P.args, **kwargs: P.kwargs) -> T:
        return barrier(function(*args, **kwargs))

    return once


def launched_once(function: Callable[P, T]) -> Callable[P, T]:
    """A function of arrays with a barrier behind its results on a GPU, where XLA would launch a kernel for each part
    that is taken of them; on a CPU, where it gains nothing, it would hinder reverse mode.
    """

    @functools.wraps(function)
    def once(*args: P.args, **kwargs: P.kwargs) -> T:
        result = function(*args, **kwargs)
        return barrier(result) if for_gpu() else result

    return once


def stage(function: Callable[P, T]) -> Callable[P, T]:
    """A stage of the pipeline: a function of arrays whose results many later operations read, computed once for all."""
    return computed_once(function)


def elementwise_stage(function: Callable[P, T]) -> Callable[P, T]:
    """A stage of elementwise operations: a GPU fuses them into the kernels that read them, a CPU stores the results."""

    @functools.wraps(function)
    def once(*args: P.args, **kwargs: P.kwargs) -> T:
        return jax.tree.map(stored, function(*args, **kwargs))

    return once


def transposed(matrix: jax.Array, again: Callable[[], jax.Array]) -> jax.Array:
    """The transpose of a matrix; on a GPU `again` computes it, because a transpose is one more kernel there.

    On a CPU reverse mode needs the entries of one matrix then, not of two.
    """
    return again() if for_gpu() else matrix.T


def on_rows(function: Callable[..., tuple], tables: list[tuple]) -> list[tuple]:
    """The results of a function of rows for each of a few tables, tuples of columns (n, ...) in numpy or JAX.

    On a CPU each by itself, so that what nobody reads is not computed; elsewhere for all rows at once.
    """
    if for_cpu():
        return [function(*table) for table in tables]
    columns = list(zip(*tables, strict=True))
    libraries = [jnp if any(isinstance(part, jax.Array) for part in column) else np for column in columns]
    results = function(*(lib.concatenate(column) for lib, column in zip(libraries, columns, strict=True)))
    ends = np.cumsum([len(table[0]) for table in tables])[:-1]
    return list(zip(*(jnp.split(column, ends) for column in results), strict=True))
