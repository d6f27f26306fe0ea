"""Reverse mode: which values it stores in the forward pass, and which it computes again.

- The results of searches (by the solver, and for convex collisions) are stored under the name `SEARCH_RESULT`, so that
  reverse mode does not search again.
- `recomputed` makes reverse mode store nothing else of the body of a scan.
- `recorded` splits a function into a first part that returns its results, and a second part for their derivatives.
- `entwined` makes the carry of a scan vary from the start, so that JAX traces the body only once.
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

# the name for `jax.ad_checkpoint.checkpoint_name` of the results of searches
SEARCH_RESULT = "diffsim_search_result"


def recomputed(function: Callable[P, T]) -> Callable[P, T]:
    """A decorator for the body of a scan: reverse mode computes it again, and stores only the results of searches."""
    policy = jax.checkpoint_policies.save_only_these_names(SEARCH_RESULT)
    # In a scan, XLA cannot merge the second computation with the first, so `prevent_cse` is not needed; it would keep
    # constants inside the loop.
    return jax.checkpoint(function, policy=policy, prevent_cse=False)


class Recorded(NamedTuple):
    """A function in two parts: one returns its results, and the other their derivatives, without searching again.

    Attributes:
      call: (moving, *others) -> ((results, other results), needed). `needed` is a pytree of arrays for `again`.
      again: (needed, inputs, moving) -> the same results, with derivatives with respect to `moving`. `inputs` are the
        arguments of `call`, and `moving` has the same value as there.
    """

    call: Callable[..., tuple[tuple[Any, Any], Any]]
    again: Callable[[Any, tuple, Any], Any]


def recorded(function: Callable[..., tuple[Any, Any]], *inputs: Any) -> Recorded:
    """The two parts of `function(moving, *others) -> (results, other results)`, traced once for inputs of these shapes.

    The function is linearized with respect to `moving`, under a checkpoint that stores only the results of searches.
    Therefore the linear part reads only inputs, constants and these results. `call` returns the results of searches,
    and `again` evaluates the linear part with them. `moving` and `results` are pytrees of floating-point arrays.
    """
    policy = jax.checkpoint_policies.save_only_these_names(SEARCH_RESULT)

    def linearized(moving: Any, *others: Any) -> tuple[Any, Any]:
        alone = jax.checkpoint(lambda moving: function(moving, *others), policy=policy, prevent_cse=False)
        results, change, rest = jax.linearize(alone, moving, has_aux=True)
        return (results, rest), change

    closed, shape = jax.make_jaxpr(linearized, return_shape=True)(*inputs)
    returned, change = (jax.tree.structure(part) for part in shape)
    # `read` are the values that the linear part reads, and `found` the places of the results of searches among them
    count = returned.num_leaves
    given = [*closed.jaxpr.constvars, *closed.jaxpr.invars]
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
        # zeros with the derivatives of `moving`
        moved = jax.tree.map(lambda now: now - jax.lax.stop_gradient(now), moving)
        return jax.tree.map(_with_slope, needed[0], jax.tree.unflatten(change, leaves)(moved))

    return Recorded(call=call, again=again)


@jax.custom_jvp
def _with_slope(value: jax.Array, change: jax.Array) -> jax.Array:
    """`value`, with the derivatives of `change`, which is zero."""
    return value


_with_slope.defjvp(lambda primals, tangents: (primals[0], tangents[1]))


def entwined(start: Any, causes: Any) -> Any:
    """The initial carry `start` of a scan, made a function of the arrays `causes`, on which later carries depend.

    Its values do not change. JAX's rules for batching and differentiating a scan trace the body again and again, until
    they know which parts of the carry vary. If these vary from the start, the body is traced once. That saves 0.5 s of
    3.7 s for the gradient of a humanoid's rollout.
    """
    for cause in (leaf for leaf in jax.tree.leaves(causes) if leaf.size and jnp.issubdtype(leaf.dtype, jnp.floating)):
        one = jnp.ravel(cause)[0]
        start = jax.tree.map(lambda x, one=one: jnp.where(False, one.astype(x.dtype), x), start)
    return start
