"""Barriers: XLA computes an array before a barrier once, and not again in each operation that reads it.

XLA fuses cheap operations into each operation that reads their results, where they are computed again for each element.
That saves memory traffic if a single operation reads a result, and repeats the work if many do. Which barrier to use:

| barrier | on | for |
|---|---|---|
| `barrier` | CPU and GPU | arrays that several later operations read, in the middle of a function |
| `stored` | CPU | arrays that a CPU would compute again in a loop, and that a GPU should fuse |
| `stored_on_gpu` | GPU | results of which a GPU would otherwise compute each part in its own kernel |
| `decided` | CPU and GPU | booleans that several operations must agree on, to the last bit |
| `computed_once` | CPU and GPU | all results of a function: the end of a stage |
| `stored_results` | CPU | results of an elementwise function, which a GPU fuses into the kernels that read them |

`for_cpu`, `for_gpu` and `for_tpu` choose between formulas with equal values, each the fastest on one of the platforms.
"""

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import jax
import jax.numpy as jnp
from jax.experimental.xla_metadata import set_xla_metadata

P = ParamSpec("P")
T = TypeVar("T")


def for_gpu() -> bool:
    """Whether the program that is being traced is for a GPU, judged by JAX's default backend.

    The platform is certain only when the program is compiled. Therefore use this function only to choose between
    formulas with equal values. For example, a short loop is better unrolled on a GPU, which launches a kernel for each
    operation of each iteration; on a CPU, unrolling gains nothing and takes longer to compile.
    """
    return jax.default_backend() == "gpu"


def for_cpu() -> bool:
    """Whether the program that is being traced is for a CPU, judged by JAX's default backend; use it as `for_gpu`."""
    return jax.default_backend() == "cpu"


def for_tpu() -> bool:
    """Whether the program that is being traced is for a TPU, judged by JAX's default backend; use it as `for_gpu`."""
    return jax.default_backend() == "tpu"


def barrier(values: T) -> T:
    """The same arrays, computed once. Use it in the middle of a function, where several later operations read them.

    XLA for CPU removes optimization barriers before it fuses operations, but it keeps calls that may not be inlined.
    Therefore the barrier is a call of the identity function on a CPU.
    """
    if not for_cpu():
        return jax.lax.optimization_barrier(values)
    with set_xla_metadata(inlineable="false"):
        return _barrier_call(values)


_barrier_call = jax.jit(jax.lax.optimization_barrier)


def stored(values: T) -> T:
    """The same arrays, with a barrier on a CPU only. Use it where a CPU would compute them again in a loop.

    On a GPU larger fused kernels are faster, and a barrier would be one more pass over memory.
    """
    return barrier(values) if for_cpu() else values


def stored_on_gpu(values: T) -> T:
    """The same arrays, with a barrier on a GPU only. Use it for results that are read in parts.

    Without it, a GPU computes each part in its own kernel. On a CPU the barrier gains nothing and slows down reverse
    mode.
    """
    return barrier(values) if for_gpu() else values


def decided(condition: jax.Array) -> jax.Array:
    """The same booleans, computed once. Use it where several operations must make the same decision.

    If each operation computed them again, rounding could make them differ. On a CPU a barrier is enough. XLA for GPU
    may remove a barrier before it fuses operations, but it computes a reduction only once; therefore the booleans are
    the result of a reduction over two values there.
    """
    return barrier(condition) if for_cpu() else jnp.argmax(jnp.stack([~condition, condition]), axis=0) > 0


def computed_once(function: Callable[P, T]) -> Callable[P, T]:
    """A decorator: puts a barrier after the results of a function. Use it for a stage that many operations read."""

    @functools.wraps(function)
    def once(*args: P.args, **kwargs: P.kwargs) -> T:
        return barrier(function(*args, **kwargs))

    return once


def stored_results(function: Callable[P, T]) -> Callable[P, T]:
    """A decorator: each result of the function is `stored`. Use it for a stage of elementwise operations.

    A GPU still fuses them into the kernels that read their results.
    """

    @functools.wraps(function)
    def once(*args: P.args, **kwargs: P.kwargs) -> T:
        return jax.tree.map(stored, function(*args, **kwargs))

    return once
