"""Barriers: XLA computes what comes before one once, not again in every use; and what reverse mode stores."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, ParamSpec, TypeVar

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jax.experimental.xla_metadata import set_xla_metadata
from jax.extend.core import Literal

P = ParamSpec("P")
T = TypeVar("T")

# options of `jax.jit` and of `compile` on CUDA: a whole program becomes one CUDA graph, loops too, whose conditions the
# host tests by default. What a loop stores of each of its steps must then be written by kernels: the disabled pass
# prepares copies to places that the host works out, which would keep a loop out of the graph
CUDA_GRAPHS = {
    "xla_gpu_enable_command_buffer": "FUSION,CUBLAS,CUBLASLT,CUSTOM_CALL,CUDNN,CONDITIONAL,WHILE,DYNAMIC_SLICE_FUSION",
    "xla_disable_hlo_passes": "dynamic-slice-annotator",
}


def for_gpu() -> bool:
    """Whether the program being traced is for a GPU, judged by the default backend.

    Only compiling tells for certain, so that this may decide about speed alone, never about values. On a GPU each
    operation in each pass of a loop is a launch, so that short loops are better written out; on a CPU that gains
    nothing and takes longer to compile.
    """
    return jax.default_backend() == "gpu"


def for_cpu() -> bool:
    """Whether the program being traced is for a CPU; as `for_gpu`."""
    return jax.default_backend() == "cpu"


def barrier(values: T) -> T:
    """The same arrays, computed once: XLA would otherwise fuse cheap operations into each consumer, and compute them
    again for each of its elements.

    XLA for CPU removes optimization barriers before it fuses. A call that may not be inlined stays, so that there the
    barrier is a call of the identity.
    """
    if not for_cpu():
        return jax.lax.optimization_barrier(values)
    with set_xla_metadata(inlineable="false"):
        return _barrier_call(values)


_barrier_call = jax.jit(jax.lax.optimization_barrier)


def stored(values: T) -> T:
    """The same arrays, with a barrier on a CPU only, where a kernel then reads them instead of computing them again.

    On a GPU larger fused kernels are faster, and a barrier would be one more pass over memory.
    """
    return barrier(values) if for_cpu() else values


@jax.custom_jvp
def stored_for_derivatives(values: jax.Array) -> jax.Array:
    """The same array, `stored` where it is differentiated, because derivatives read it many times."""
    return values


@stored_for_derivatives.defjvp
def _stored_jvp(primals: tuple[jax.Array], tangents: tuple[jax.Array]) -> tuple[jax.Array, jax.Array]:
    return stored(*primals), tangents[0]


def short_scan(step: Callable[..., Any], start: Any, parts: Any) -> tuple[Any, Any]:
    """`jax.lax.scan` over a few parts, written out on a GPU."""
    return jax.lax.scan(step, start, parts, unroll=for_gpu())


def one_by_one(function: Callable[[Any], Any], parts: Any) -> Any:
    """The results of a function for each of a few parts, along their leading axes.

    On a CPU by a scan: under `vmap` XLA would compile what the parts share into each of them. On a GPU by `vmap`: in a
    scan each part would have kernels of its own.
    """
    return (
        jax.vmap(function)(parts) if for_gpu() else jax.lax.scan(lambda _, part: (None, function(part)), None, parts)[1]
    )


# the name (`jax.ad_checkpoint.checkpoint_name`) of results of searches, such as the solver's, which `jax.checkpoint`
# stores, so that reverse mode does not search again
SEARCH_RESULT = "diffsim_search_result"


def recomputed(function: Callable[P, T]) -> Callable[P, T]:
    """The body of a scan, which reverse mode computes again instead of storing it; results of searches are stored."""
    policy = jax.checkpoint_policies.save_only_these_names(SEARCH_RESULT)
    # what `prevent_cse` guards against cannot happen in a scan, where it would only keep constants in the loop
    return jax.checkpoint(function, policy=policy, prevent_cse=False)


class Recorded(NamedTuple):
    """A function in two parts: what it computes, and its derivatives later, for which nothing is searched again.

    Attributes:
      call: (moving, *others) -> (results, other results), and what `again` needs of them, a pytree of arrays.
      again: (needed, inputs of that call, moving) -> those results, with derivatives by `moving`, which is what it was.
    """

    call: Callable[..., tuple[tuple[Any, Any], Any]]
    again: Callable[[Any, tuple, Any], Any]


def recorded(function: Callable[..., tuple[Any, Any]], *inputs: Any) -> Recorded:
    """The parts of `function(moving, *others) -> (results, other results)`, traced once for inputs like these.

    `moving` and the results are pytrees of floating arrays. Kept are results of searches and what is returned.
    """
    policy = jax.checkpoint_policies.save_only_these_names(SEARCH_RESULT)

    def linearized(moving: Any, *others: Any) -> tuple[Any, Any]:
        alone = jax.checkpoint(lambda moving: function(moving, *others), policy=policy, prevent_cse=False)
        results, change, rest = jax.linearize(alone, moving, has_aux=True)
        return (results, rest), change

    closed, shape = jax.make_jaxpr(linearized, return_shape=True)(*inputs)
    returned, change = (jax.tree.structure(part) for part in shape)
    # what derivatives read: inputs, constants, and what was found
    count, given = returned.num_leaves, [*closed.jaxpr.constvars, *closed.jaxpr.invars]
    read = closed.jaxpr.outvars[count:]
    found = [place for place, var in enumerate(read) if not isinstance(var, Literal) and var not in given]

    @functools.partial(jax.jit, inline=True)
    def call(*inputs: Any) -> tuple[Any, Any]:
        values = jax.core.eval_jaxpr(closed.jaxpr, closed.consts, *jax.tree.leaves(inputs))
        results = jax.tree.unflatten(returned, values[:count])
        return results, (results[0], [values[count + place] for place in found])

    def again(needed: Any, inputs: tuple, moving: Any) -> Any:
        values = [*closed.consts, *jax.tree.leaves(inputs), *needed[1]]
        known = dict(zip([*given, *(read[place] for place in found)], values, strict=True))
        leaves = [var.val if isinstance(var, Literal) else known[var] for var in read]
        moved = jax.tree.map(lambda now: now - jax.lax.stop_gradient(now), moving)
        return jax.tree.map(_with_slope, needed[0], jax.tree.unflatten(change, leaves)(moved))

    return Recorded(call, again)


@jax.custom_jvp
def _with_slope(value: jax.Array, change: jax.Array) -> jax.Array:
    """The value, with the derivatives of the change."""
    return value


_with_slope.defjvp(lambda primals, tangents: (primals[0], tangents[1]))


def entwined(start: Any, causes: Any) -> Any:
    """The initial carry of a scan, `start`, as a function of the arrays `causes` that its steps make it depend on.

    Values do not change. Batching and differentiating a scan trace its body again until they know which parts of the
    carry vary; if these vary from the start, it is traced once (0.5 s of 3.7 for the gradient of a humanoid's rollout).
    """
    for cause in (leaf for leaf in jax.tree.leaves(causes) if leaf.size and jnp.issubdtype(leaf.dtype, jnp.floating)):
        one = jnp.ravel(cause)[0]
        start = jax.tree.map(lambda x, one=one: jnp.where(False, one.astype(x.dtype), x), start)
    return start


def decided(condition: jax.Array) -> jax.Array:
    """The same booleans, computed once, for decisions that several operations must agree on.

    Computed again in each of these, with other rounding, they could differ. On a GPU, where a barrier may be removed
    before fusion, it is a reduction over two values, which XLA does not repeat.
    """
    return barrier(condition) if for_cpu() else jnp.argmax(jnp.stack([~condition, condition]), axis=0) > 0


@jax.custom_batching.custom_vmap
def anywhere(flag: jax.Array) -> jax.Array:
    """Whether a flag () is set; under `vmap`, whether it is set in any world: one boolean for all of them.

    `lax.cond` of it runs one branch, so that a batch does not pay for what none of its worlds needs; of a boolean for
    each world it would compute both branches.
    """
    return flag


@anywhere.def_vmap
def _anywhere_in_a_batch(size: int, batched: list[bool], flag: jax.Array) -> tuple[jax.Array, bool]:
    return anywhere(jnp.any(flag)), False


def computed_once(function: Callable[P, T]) -> Callable[P, T]:
    """A function of arrays with a barrier after its results, for results that several later operations read."""

    @functools.wraps(function)
    def once(*args: P.args, **kwargs: P.kwargs) -> T:
        return barrier(function(*args, **kwargs))

    return once


def launched_once(function: Callable[P, T]) -> Callable[P, T]:
    """A function of arrays with a barrier after its results on a GPU, where XLA would launch a kernel for each part
    that is read of them. On a CPU a barrier gains nothing here and slows reverse mode.
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


def with_transpose(matrix: jax.Array, again: Callable[[], jax.Array]) -> tuple[jax.Array, jax.Array]:
    """A matrix and its transpose; on a GPU `again` computes this, because a transpose is one more kernel there.

    On a CPU reverse mode needs the entries of one matrix then, not of two; and the matrix is stored, for XLA would
    compute it again for its transpose, column by column (0.9 us for 27 rows instead of 0.4).
    """
    matrix = stored(matrix)
    return matrix, again() if for_gpu() else matrix.T


def on_rows(function: Callable[..., tuple], tables: list[tuple]) -> list[tuple]:
    """The results of a function of rows, for each of a few tables: tuples of columns (n, ...) in numpy or JAX.

    On a CPU table by table, so that XLA leaves out tables that are not read; elsewhere for all rows at once.
    """
    if for_cpu():
        return [function(*table) for table in tables]
    columns = list(zip(*tables, strict=True))
    libraries = [jnp if any(isinstance(part, jax.Array) for part in column) else np for column in columns]
    results = function(*(lib.concatenate(column) for lib, column in zip(libraries, columns, strict=True)))
    ends = np.cumsum([len(table[0]) for table in tables])[:-1]
    return list(zip(*(jnp.split(column, ends) for column in results), strict=True))
