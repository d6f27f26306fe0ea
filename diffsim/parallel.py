"""Many devices: worlds are shared out over a mesh, and each device steps its own without waiting for others.

    mesh = parallel.mesh()                                         # all devices, one axis "worlds"
    states = parallel.spread(states, mesh)                         # (worlds, ...) leaves, a part on each device
    step = jax.jit(parallel.vmap(diffsim.step, in_axes=(None, 0), mesh=mesh))
    states = step(model, states)

Without an accelerator there is one device, the CPU; after `parallel.use_cores()` each of its cores is one.

`vmap` is `jax.vmap` inside a `jax.shard_map`. Under plain `jit` the compiler would share a batch out too, but then
each solver iteration asks all devices whether any world still iterates; here no collective is in the program.
"""

import functools
import os
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from diffsim.base.errors import ArgumentError

AXIS = "worlds"
Tree = TypeVar("Tree")


def mesh(devices: Sequence[Any] | None = None) -> Mesh:
    """A mesh of one axis, "worlds".

    Args:
      devices: which of `jax.devices()`; None for all, those of other processes (`jax.distributed`) too.

    Returns:
      The mesh.
    """
    return Mesh(np.array(jax.devices() if devices is None else list(devices)), (AXIS,))


def use_cores(count: int | None = None) -> None:
    """Makes a device of each core of the CPU; with an accelerator `mesh()` is of the accelerator's devices as before.

    One program on one device spends much of its second core on handing out the pieces of each operation; two programs,
    each with half of the worlds, use both. Call it right after the imports: JAX counts its devices once, when the first
    of them is asked for.

    Args:
      count: how many; None for all cores.

    Raises:
      ArgumentError: JAX has counted its devices already, and not as many, or `count` is not positive.
    """
    count = (os.cpu_count() or 1) if count is None else count
    if count < 1:
        raise ArgumentError(f"one core or more can be used, not {count}")
    try:
        jax.config.update("jax_num_cpu_devices", count)
    except RuntimeError as error:
        present = len(jax.local_devices(backend="cpu"))
        if present != count:
            message = f"JAX has counted its devices already, {present} of the CPU where {count} are asked for"
            raise ArgumentError(f"{message}: call parallel.use_cores() before anything that computes") from error


def vmap(function: Callable, in_axes: Any = 0, out_axes: Any = 0, mesh: Mesh | None = None) -> Callable:
    """`jax.vmap` whose batch is shared out over devices.

    Args:
      function: of one world.
      in_axes, out_axes: as in `jax.vmap`; axes are 0 or None. What has no axis is on every device, such as a model
        that all worlds share; `diffsim.model_axes` gives those of a model that differs between worlds.
      mesh: with an axis "worlds"; None for all devices. Other axes of the mesh do the same work.

    Returns:
      A function of batches whose length is a multiple of the number of devices; compile it with `jax.jit`.

    Raises:
      ArgumentError: a mesh without the axis, or axes other than 0 and None; when called, a batch that cannot be shared
        out evenly.
    """
    chosen = _default(mesh)
    batched = jax.vmap(function, in_axes, out_axes)

    def spec(axis: int | None) -> PartitionSpec:
        if axis not in (0, None):
            raise ArgumentError(f"worlds are the leading axis of what differs: axes are 0 or None, {axis} was given")
        return PartitionSpec() if axis is None else PartitionSpec(AXIS)

    specs = [jax.tree.map(spec, axes, is_leaf=_is_none) for axes in (in_axes, out_axes)]

    @functools.wraps(function)
    def spread_out(*arguments: Any) -> Any:
        axes_of_arguments = in_axes if isinstance(in_axes, tuple) else (in_axes,) * len(arguments)
        for axes, argument in zip(axes_of_arguments, arguments, strict=False):
            among = jax.tree.map(lambda axis, part: None if axis is None else part, axes, argument, is_leaf=_is_none)
            _check_even(among, chosen.shape[AXIS])
        sources = specs[0] if isinstance(in_axes, tuple) else (specs[0],) * len(arguments)
        inside = jax.shard_map(batched, mesh=chosen, in_specs=sources, out_specs=specs[1], check_vma=False)
        return inside(*arguments)

    return spread_out


def spread(tree: Tree, mesh: Mesh | None = None) -> Tree:
    """A tree whose leaves have a leading axis of worlds, a part of it on each device.

    In a job of several processes each gives the worlds of its own devices, and the result is the whole batch. Leaves
    without numbers (the `history` of a model without delays) are on every device, as those that programs return: a
    program compiled for what is given here takes its own results.

    Args:
      tree: arrays with a leading axis of worlds.
      mesh: as `mesh()` makes it; None for all devices.

    Returns:
      The tree on the devices.

    Raises:
      ArgumentError: worlds that cannot be shared out evenly.
    """
    chosen = _default(mesh)
    local = sum(device.process_index == jax.process_index() for device in chosen.devices.flat)
    _check_even(tree, local)
    shared, whole = (NamedSharding(chosen, PartitionSpec(*axes)) for axes in ((AXIS,), ()))

    def share(leaf: Any) -> jax.Array:
        if jax.process_count() == 1:
            return jax.device_put(leaf, shared if leaf.size else whole)
        whole_leaf = jax.make_array_from_process_local_data(shared, leaf)
        return whole_leaf if leaf.size else jax.device_put(np.zeros(whole_leaf.shape, whole_leaf.dtype), whole)

    return jax.tree.map(share, tree)


def everywhere(tree: Tree, mesh: Mesh | None = None) -> Tree:
    """A tree with a copy on each device, such as a model that all worlds share: `step` then moves nothing.

    Args:
      tree: arrays.
      mesh: as `mesh()` makes it; None for all devices.

    Returns:
      The tree on the devices.
    """
    sharding = NamedSharding(_default(mesh), PartitionSpec())
    if jax.process_count() == 1:
        return jax.device_put(tree, sharding)
    return jax.tree.map(lambda leaf: jax.make_array_from_process_local_data(sharding, np.asarray(leaf)), tree)


def _default(chosen: Mesh | None) -> Mesh:
    chosen = mesh() if chosen is None else chosen
    if AXIS not in chosen.axis_names:
        raise ArgumentError(f'the mesh has axes {chosen.axis_names}, one must be called "{AXIS}"')
    return chosen


def _is_none(value: Any) -> bool:
    return value is None


def _check_even(tree: Any, devices: int) -> None:
    for leaf in jax.tree.leaves(tree):
        if leaf.shape[0] % devices:
            raise ArgumentError(f"{leaf.shape[0]} worlds cannot be shared out evenly over {devices} devices")
