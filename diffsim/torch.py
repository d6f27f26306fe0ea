"""PyTorch: functions of JAX as functions of tensors, with `loss.backward()` through them.

    step = diffsim.torch.wrap(jax.vmap(diffsim.step, in_axes=(None, 0, 0)))
    states = step(model, states, inputs)          # records that hold tensors
    states.qpos[:, 0].sum().backward()

Tensors and arrays share memory: nothing is copied on the way in or out. Needs PyTorch (extra `torch`).
`diffsim.envs.vector` has environments with tensors.
"""

import dataclasses
import functools
import importlib
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from diffsim.base.errors import ArgumentError, UnsupportedError
from diffsim.xla.barriers import for_cpu
from diffsim.xla.compiled import jit

try:
    # imported by name, because type checkers think that `import torch` means this file
    torch: Any = importlib.import_module("torch")
except ImportError as problem:
    raise ImportError("diffsim.torch needs PyTorch: pip install 'diffsim-jax[torch]'") from problem


def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of JAX as a function of tensors, differentiable once by PyTorch.

    The function is compiled for each structure and each set of shapes of its arguments, and its derivative when an
    argument first requires a gradient. The derivative is `jax.vjp`: what it needs is computed in the forward call, and
    `backward` does not compute the function again. Worlds are batched by `jax.vmap` of the function. Inside
    `torch.no_grad`, and if no argument requires a gradient, only the function is computed.

    Args:
      function: a function of pytrees of arrays, such as `diffsim.step`, or a function that closes over a model. It may
        be jitted. Arguments that are not arrays must be closed over.

    Returns:
      The same function with pytrees of tensors as results. Its arguments may mix tensors with arrays and numbers, which
      are constants for PyTorch. Integer and bool results have no gradient, and random keys remain arrays of JAX.

    Raises:
      ArgumentError: when the wrapped function is called with a tensor on another kind of device than JAX uses.
      UnsupportedError: when PyTorch needs a second derivative. Wrap `jax.grad` of the function instead.
    """

    @functools.cache
    def programs_of(structure: Any, places: tuple[int, ...]) -> _Programs:
        """The programs for one structure of arguments; `places` are the leaves with gradients."""
        return _Programs(function, structure, places)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        leaves, structure = jax.tree.flatten((args, kwargs))
        tensors = [place for place, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
        places = tuple(place for place in tensors if leaves[place].requires_grad and torch.is_grad_enabled())
        chosen = [leaves[place] for place in places]
        for place in tensors:
            leaves[place] = None if place in places else argument(leaves[place])
        programs = programs_of(structure, places)
        if not places:
            return to_torch(programs.result(leaves))
        outputs, *results = _Call.apply(programs, leaves, *chosen)
        return outputs.put_together(results)

    return call


def to_torch(tree: Any) -> Any:
    """The arrays of a pytree as tensors that share their memory.

    Arrays of JAX do not change: do not write into these tensors, `clone` them first.

    Args:
      tree: a pytree, such as a State. Random keys and what is not an array of JAX remain as they are.

    Returns:
      The same tree with tensors.
    """
    return jax.tree.map(_tensor, tree)


def to_jax(tree: Any) -> Any:
    """The tensors of a pytree as arrays that share their memory, without their gradients.

    Do not write into the tensors as long as the arrays are in use. A tensor with gaps between its numbers is copied.
    64-bit numbers are copied to 32 bits unless JAX has `jax_enable_x64`.

    Args:
      tree: a pytree, such as a State with tensors. What is not a tensor remains as it is.

    Returns:
      The same tree with arrays.
    """
    return jax.tree.map(_array, tree)


def argument(tensor: Any) -> Any:
    """A tensor as an argument of a compiled program, without its gradient.

    On a CPU it is a numpy array, which a program takes without a copy; to make an array of JAX takes 50 times as long.

    Args:
      tensor: on the device of JAX. What is not a tensor remains as it is.

    Returns:
      An array that shares its memory.

    Raises:
      ArgumentError: a tensor on another kind of device.
    """
    if not isinstance(tensor, torch.Tensor):
        return tensor
    if tensor.device.type != ("cpu" if for_cpu() else "cuda"):
        hint = "move it, or choose the device of JAX by the environment variable JAX_PLATFORMS"
        raise ArgumentError(f"a tensor is on {tensor.device}, and JAX computes on {jax.default_backend()}; {hint}")
    if not for_cpu() or tensor.dtype is torch.bfloat16:
        return _array(tensor)
    return tensor.detach().numpy()


class _Programs:
    """The compiled programs of a function for one structure of arguments, differentiable with respect to some leaves.

    Attributes:
      result: leaves -> the function's result.
      forward: (leaves, chosen) -> the result as _Outputs, and its derivative, a pytree of what `backward` needs. The
        leaves are None where the chosen ones belong.
      backward: (derivative, cotangents of the floats) -> gradients with respect to the chosen leaves.
    """

    def __init__(self, function: Callable[..., Any], structure: Any, places: tuple[int, ...]) -> None:
        def result(leaves: Sequence[Any]) -> Any:
            args, kwargs = jax.tree.unflatten(structure, leaves)
            return function(*args, **kwargs)

        def forward(leaves: Sequence[Any], chosen: Sequence[Any]) -> tuple[_Outputs, Any]:
            def split(chosen: Sequence[Any]) -> tuple[list[Any], _Outputs]:
                """The floats of the result, which are differentiated, and the rest of it."""
                filled = list(leaves)
                for place, leaf in zip(places, chosen, strict=True):
                    filled[place] = leaf
                outputs = _Outputs.of(result(filled))
                return outputs.floats, dataclasses.replace(outputs, floats=[])

            floats, derivative, outputs = jax.vjp(split, list(chosen), has_aux=True)
            return dataclasses.replace(outputs, floats=floats), derivative

        self.result = jit(result)
        self.forward = jit(forward)
        self.backward = jit(lambda derivative, cotangents: derivative(cotangents)[0])


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=["floats", "others"], meta_fields=["structure", "is_float"]
)
@dataclasses.dataclass(frozen=True)
class _Outputs:
    """The parts of a result: its leaves that are floats, the other leaves, its structure, which leaves are floats."""

    floats: list[Any]
    others: list[Any]
    structure: Any
    is_float: tuple[bool, ...]

    @classmethod
    def of(cls, result: Any) -> "_Outputs":
        """Splits a result into its parts."""
        leaves, structure = jax.tree.flatten(jax.tree.map(jnp.asarray, result))
        is_float = tuple(bool(jnp.issubdtype(leaf.dtype, jnp.inexact)) for leaf in leaves)
        return cls(
            floats=[leaf for leaf, each in zip(leaves, is_float, strict=True) if each],
            others=[leaf for leaf, each in zip(leaves, is_float, strict=True) if not each],
            structure=structure,
            is_float=is_float,
        )

    def put_together(self, leaves: Sequence[Any]) -> Any:
        """The result with other leaves, floats first."""
        floats = iter(leaves[: len(self.floats)])
        others = iter(leaves[len(self.floats) :])
        return jax.tree.unflatten(self.structure, [next(floats if each else others) for each in self.is_float])


class _Call(torch.autograd.Function):
    """A call of a function, as a node of PyTorch's graph."""

    @staticmethod
    def forward(ctx: Any, programs: _Programs, leaves: list[Any], *chosen: Any) -> tuple[Any, ...]:
        """The _Outputs, and their leaves as tensors, floats first."""
        outputs, derivative = programs.forward(leaves, [argument(leaf) for leaf in chosen])
        # `save_for_backward` would check that nobody writes into `chosen` later. That may happen here: the derivative
        # has its own arrays.
        ctx.programs = programs
        ctx.derivative = derivative
        ctx.chosen = chosen
        ctx.number = len(outputs.floats)
        others = to_torch(outputs.others)
        ctx.mark_non_differentiable(*[leaf for leaf in others if isinstance(leaf, torch.Tensor)])
        return (outputs, *to_torch(outputs.floats), *others)

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> tuple[Any, ...]:
        """Gradients with respect to the chosen leaves."""
        # the _Outputs come first, and what is not a float comes last
        floats = cotangents[1 : 1 + ctx.number]
        if torch.is_grad_enabled():
            # with create_graph=True, record what the gradients depend on, so that a second derivative raises an error
            gradients = _Gradient.apply(ctx.programs, ctx.derivative, floats, *ctx.chosen, *floats)
        else:
            gradients = _gradients(ctx.programs, ctx.derivative, floats)
        return (None, None, *gradients)


class _Gradient(torch.autograd.Function):
    """The gradients of a call, as a node of PyTorch's graph without a derivative."""

    @staticmethod
    def forward(ctx: Any, programs: _Programs, derivative: Any, cotangents: Sequence[Any], *_: Any) -> tuple[Any, ...]:
        """The gradients; the further arguments are the tensors on which they depend."""
        return _gradients(programs, derivative, cotangents)

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        """Raises UnsupportedError."""
        reason = "PyTorch needs a second derivative, and only the first is available"
        raise UnsupportedError.of("diffsim.torch.wrap", reason, "wrap a function that computes jax.grad")


def _gradients(programs: _Programs, derivative: Any, cotangents: Sequence[Any]) -> tuple[Any, ...]:
    """Gradients with respect to the chosen leaves of a call."""
    return tuple(to_torch(programs.backward(derivative, [argument(each) for each in cotangents])))


def _array(leaf: Any) -> Any:
    """A tensor as an array of JAX."""
    if not isinstance(leaf, torch.Tensor):
        return leaf
    return jax.dlpack.from_dlpack(leaf.detach().contiguous())


def _tensor(leaf: Any) -> Any:
    """An array of JAX as a tensor."""
    if not isinstance(leaf, jax.Array) or jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return leaf
    # on a CPU a DLPack capsule is read in half the time; on a GPU torch needs the array, to synchronize streams
    return torch.from_dlpack(leaf.__dlpack__() if for_cpu() else leaf)
