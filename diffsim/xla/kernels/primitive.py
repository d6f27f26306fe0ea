"""How a primitive of ours runs outside of a program."""

from collections.abc import Callable
from typing import Any

import jax
from jax.extend.core import Primitive

# the option of jax.disable_jit
WITHOUT = "jax_disable_jit"


def run_alone(primitive: Primitive, plain: Callable[..., Any], static: tuple[str, ...] = ()) -> None:
    """A primitive that is called by hand is a program of its own; with `jax.disable_jit` it is its definition.

    The program calls the primitive, and without programs that would never end.

    Args:
      plain: the definition.
      static: names of parameters that are no arrays.
    """
    compiled = jax.jit(primitive.bind, static_argnames=static)

    def run(*arguments: Any, **parameters: Any) -> Any:
        return (plain if getattr(jax.config, WITHOUT) else compiled)(*arguments, **parameters)

    primitive.def_impl(run)
