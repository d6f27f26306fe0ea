"""What reverse mode stores of a program, and what it computes again.

- Results of searches have the name `SEARCH_RESULT`. They are stored, so that reverse mode does not search again.
- `recomputed` stores nothing else of the body of a scan.
- `recorded` splits a function into what it computes and its derivatives later, for callers that need both.
- `entwined` makes the carry of a scan depend on what its steps read, so that JAX traces its body once.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, ParamSpec, TypeVar

import jax
import jax.core
import jax.numpy as jnp
from jax.extend.core import Literal

P = ParamSpec("P")
T = TypeVar("T")

# the name (`jax.ad_checkpoint.checkpoint_name`) of results of searches, such as the solver's
SEARCH_RESULT = "diffsim_search_result"


def recomputed(function: Callable[P, T]) -> Callable[P, T]:
    """The body of a scan, which reverse mode computes again; only results of searches are stored."""
    policy = jax.checkpoint_policies.save_only_these_names(SEARCH_RESULT)
    # XLA cannot merge the second computation with the first in a scan, where `prevent_cse` would only keep constants in
    # the loop
    return jax.checkpoint(function, policy=policy, prevent_cse=False)


class Recorded(NamedTuple):
    """A function in two parts: its results, and later their derivatives, for which nothing is searched again.

    Attributes:
      call: (moving, *others) -> ((results, other results), what `again` needs of this call, a pytree of arrays).
      again: (needed, inputs of that call, moving) -> the same results, with derivatives with respect to `moving`, whose
        value is that of the call.
    """

    call: Callable[..., tuple[tuple[Any, Any], Any]]
    again: Callable[[Any, tuple, Any], Any]


def recorded(function: Callable[..., tuple[Any, Any]], *inputs: Any) -> Recorded:
    """The two parts of `function(moving, *others) -> (results, other results)`, traced once for inputs like these.

    The function is linearized with respect to `moving` under a checkpoint that stores results of searches only. What
    its linear part then reads are inputs, constants and these results: `call` returns them, and `again` evaluates the
    linear part with them. `moving` and the results are pytrees of floating arrays.
    """
    policy = jax.checkpoint_policies.save_only_these_names(SEARCH_RESULT)

    def linearized(moving: Any, *others: Any) -> tuple[Any, Any]:
        alone = jax.checkpoint(lambda moving: function(moving, *others), policy=policy, prevent_cse=False)
        results, change, rest = jax.linearize(alone, moving, has_aux=True)
        return (results, rest), change

    closed, shape = jax.make_jaxpr(linearized, return_shape=True)(*inputs)
    returned, change = (jax.tree.structure(part) for part in shape)
    # what the linear part reads: inputs, constants, and what was found
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
    """The initial carry of a scan, `start`, as a function of the arrays `causes` on which its steps make it depend.

    Values do not change. Batching and differentiating a scan trace its body again until they know which parts of the
    carry vary. If these vary from the start, the body is traced once (0.5 s of 3.7 for the gradient of a humanoid's
    rollout).
    """
    for cause in (leaf for leaf in jax.tree.leaves(causes) if leaf.size and jnp.issubdtype(leaf.dtype, jnp.floating)):
        one = jnp.ravel(cause)[0]
        start = jax.tree.map(lambda x, one=one: jnp.where(False, one.astype(x.dtype), x), start)
    return start
