"""Many devices: the worlds of a batch are sharded over a mesh, and each device steps its worlds without communication.

    mesh = parallel.mesh()                                         # all devices, one axis "worlds"
    states = parallel.spread(states, mesh)                         # leaves (worlds, ...), sharded over devices
    step = jax.jit(parallel.vmap(diffsim.step, in_axes=(None, 0), mesh=mesh))
    states = step(model, states)

Without an accelerator there is one device, the CPU; after `parallel.use_cores()` each of its cores is a device.

`parallel.vmap` is `jax.vmap` inside a `jax.shard_map`. Plain `jit` would shard a batch too, but then the devices would
communicate after each iteration of the solver, to find out whether any world still iterates.
"""

import functools
import os
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from diffsim.base.errors import ArgumentError

# name of the mesh axis over which worlds are sharded
AXIS = "worlds"
Tree = TypeVar("Tree")


def mesh(devices: Sequence[Any] | None = None) -> Mesh:
    """A `jax.sharding.Mesh` of devices, with the single axis "worlds".

    Args:
      devices: some of `jax.devices()`; None for all, including the devices of other processes (`jax.distributed`).

    Returns:
      The mesh.
    """
    return Mesh(np.array(jax.devices() if devices is None else list(devices)), (AXIS,))


def use_cores(count: int | None = None) -> None:
    """Makes each core of the CPU a JAX device. With an accelerator, `mesh()` still uses the accelerator's devices.

    A single program gains little from a second core, because XLA splits each small operation between the cores. Two
    programs with half of the worlds each use both cores fully. Call this right after the imports: JAX determines its
    devices when it first computes something.

    Args:
      count: number of cores; None for all.

    Raises:
      ArgumentError: `count` is not positive, or JAX already uses another number of devices.
    """
    count = (os.cpu_count() or 1) if count is None else count
    if count < 1:
        raise ArgumentError(f"count is {count}; expected one core or more")
    try:
        jax.config.update("jax_num_cpu_devices", count)
    except RuntimeError as error:
        present = len(jax.local_devices(backend="cpu"))
        if present != count:
            message = f"JAX already uses {present} CPU devices and cannot change to {count}"
            raise ArgumentError(f"{message}: call parallel.use_cores() before anything that computes") from error


def vmap(function: Callable, in_axes: Any = 0, out_axes: Any = 0, mesh: Mesh | None = None) -> Callable:
    """The function over a batch, as by `jax.vmap`, with the batch sharded over devices.

    Args:
      function: a function of one world.
      in_axes, out_axes: as in `jax.vmap`; each is 0 or None. An argument with None, such as a model that all worlds
        share, is copied to every device. For a model that differs between worlds use `diffsim.model_axes`.
      mesh: a mesh with an axis "worlds"; None for all devices. Devices along other axes repeat the same work.

    Returns:
      A function of batches; compile it with `jax.jit`. The size of a batch must be a multiple of the number of devices.

    Raises:
      ArgumentError: the mesh has no axis "worlds", or an axis is not 0 or None; when the returned function is called,
        the size of a batch is not a multiple of the number of devices.
    """
    chosen = _default(mesh)
    batched = jax.vmap(function, in_axes, out_axes)

    def spec(axis: int | None) -> PartitionSpec:
        if axis not in (0, None):
            raise ArgumentError(f"an axis is {axis}; expected 0 or None, because worlds are along the first axis")
        return PartitionSpec() if axis is None else PartitionSpec(AXIS)

    specs = [jax.tree.map(spec, axes, is_leaf=_is_none) for axes in (in_axes, out_axes)]

    @functools.wraps(function)
    def spread_out(*arguments: Any) -> Any:
        axes_of_arguments = in_axes if isinstance(in_axes, tuple) else (in_axes,) * len(arguments)
        for axes, argument in zip(axes_of_arguments, arguments, strict=False):
            # without the parts that are copied to every device
            batch = jax.tree.map(lambda axis, part: None if axis is None else part, axes, argument, is_leaf=_is_none)
            _check_even(batch, chosen.shape[AXIS])
        sources = specs[0] if isinstance(in_axes, tuple) else (specs[0],) * len(arguments)
        inside = jax.shard_map(batched, mesh=chosen, in_specs=sources, out_specs=specs[1], check_vma=False)
        return inside(*arguments)

    return spread_out


def spread(tree: Tree, mesh: Mesh | None = None) -> Tree:
    """Shards a tree of arrays over the devices along the first axis, the worlds.

    With several processes, each process passes the worlds of its own devices, and the result is the whole batch.

    Args:
      tree: arrays whose first axis is the worlds.
      mesh: from `mesh()`; None for all devices.

    Returns:
      The tree on the devices.

    Raises:
      ArgumentError: the number of worlds is not a multiple of the number of devices.
    """
    chosen = _default(mesh)
    local = sum(device.process_index == jax.process_index() for device in chosen.devices.flat)
    _check_even(tree, local)
    sharded = NamedSharding(chosen, PartitionSpec(AXIS))
    replicated = NamedSharding(chosen, PartitionSpec())

    # Empty leaves, such as `history` without delays, are replicated and not sharded: compiled programs return them
    # replicated, so that a program takes its own results as arguments without being compiled again.
    def shard(leaf: Any) -> jax.Array:
        if jax.process_count() == 1:
            return jax.device_put(leaf, sharded if leaf.size else replicated)
        whole = jax.make_array_from_process_local_data(sharded, leaf)
        return whole if leaf.size else jax.device_put(np.zeros(whole.shape, whole.dtype), replicated)

    return jax.tree.map(shard, tree)


def everywhere(tree: Tree, mesh: Mesh | None = None) -> Tree:
    """Copies a tree of arrays, such as a model that all worlds share, to each device, so that `step` transfers nothing.

    Args:
      tree: arrays.
      mesh: from `mesh()`; None for all devices.

    Returns:
      The tree on the devices.
    """
    sharding = NamedSharding(_default(mesh), PartitionSpec())
    if jax.process_count() == 1:
        return jax.device_put(tree, sharding)
    return jax.tree.map(lambda leaf: jax.make_array_from_process_local_data(sharding, np.asarray(leaf)), tree)


def _default(chosen: Mesh | None) -> Mesh:
    """The mesh, or all devices for None; raises ArgumentError if it has no axis of worlds."""
    chosen = mesh() if chosen is None else chosen
    if AXIS not in chosen.axis_names:
        raise ArgumentError(f'the mesh has axes {chosen.axis_names}; expected one called "{AXIS}"')
    return chosen


def _is_none(value: Any) -> bool:
    """Makes None a leaf for `jax.tree.map`."""
    return value is None


def _check_even(tree: Any, devices: int) -> None:
    """Raises ArgumentError if the number of worlds in some array is not a multiple of the number of devices."""
    for leaf in jax.tree.leaves(tree):
        if leaf.shape[0] % devices:
            raise ArgumentError(f"the number of worlds is {leaf.shape[0]}, not a multiple of the {devices} devices")
