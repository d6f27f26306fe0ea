"""Many devices: the worlds are sharded over a mesh, and each device steps its own worlds without waiting for others.

    mesh = parallel.mesh()                                         # all devices, one axis "worlds"
    states = parallel.spread(states, mesh)                         # leaves (worlds, ...), sharded over devices
    step = jax.jit(parallel.vmap(diffsim.step, in_axes=(None, 0), mesh=mesh))
    states = step(model, states)

Without an accelerator there is one device, the CPU; after `parallel.use_cores()` each of its cores is a device.

`vmap` is `jax.vmap` inside a `jax.shard_map`. Plain `jit` would shard a batch too, but then each solver iteration asks
all devices whether any world still iterates. With `shard_map` the program has no collectives.
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
    """A mesh with one axis, "worlds".

    Args:
      devices: some of `jax.devices()`; None for all, including other processes (`jax.distributed`).

    Returns:
      The mesh.
    """
    return Mesh(np.array(jax.devices() if devices is None else list(devices)), (AXIS,))


def use_cores(count: int | None = None) -> None:
    """Makes each core of the CPU a JAX device. With an accelerator, `mesh()` still uses the accelerator's devices.

    One program gains little from a second core, because XLA splits each small operation between the cores. Two
    programs, each with half of the worlds, use both cores fully. Call this right after the imports: JAX counts its
    devices once, at their first use.

    Args:
      count: number of cores; None for all.

    Raises:
      ArgumentError: JAX has already counted its devices and has another number, or `count` is not positive.
    """
    count = (os.cpu_count() or 1) if count is None else count
    if count < 1:
        raise ArgumentError(f"count is {count}; expected one core or more")
    try:
        jax.config.update("jax_num_cpu_devices", count)
    except RuntimeError as error:
        present = len(jax.local_devices(backend="cpu"))
        if present != count:
            message = f"JAX has already counted {present} CPU devices, so it cannot make {count}"
            raise ArgumentError(f"{message}: call parallel.use_cores() before anything that computes") from error


def vmap(function: Callable, in_axes: Any = 0, out_axes: Any = 0, mesh: Mesh | None = None) -> Callable:
    """`jax.vmap` with the batch sharded over devices.

    Args:
      function: a function of one world.
      in_axes, out_axes: as in `jax.vmap`; each is 0 or None. An argument with None, such as a model that all worlds
        share, is copied to every device. `diffsim.model_axes` returns the axes of a model that differs between worlds.
      mesh: a mesh with an axis "worlds"; None for all devices. The work is repeated along other axes of the mesh.

    Returns:
      A function of batches whose size is a multiple of the number of devices; compile it with `jax.jit`.

    Raises:
      ArgumentError: the mesh has no axis "worlds", or an axis is not 0 or None; when called, the batch cannot be
        divided evenly among the devices.
    """
    chosen = _default(mesh)
    batched = jax.vmap(function, in_axes, out_axes)

    def spec(axis: int | None) -> PartitionSpec:
        if axis not in (0, None):
            raise ArgumentError(f"axis is {axis}; expected 0 or None, because worlds are the leading axis")
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
    """Shards a tree of arrays over the devices, along their leading axis of worlds.

    With several processes each passes the worlds of its own devices, and the result is the whole batch. Empty leaves
    (the `history` of a model without delays) are replicated: programs return them replicated, so a program compiled for
    this tree also takes its own results without compiling again.

    Args:
      tree: arrays with a leading axis of worlds.
      mesh: from `mesh()`; None for all devices.

    Returns:
      The tree on the devices.

    Raises:
      ArgumentError: the worlds cannot be divided evenly among the devices.
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
    """Copies a tree to each device, such as a model that all worlds share, so that `step` transfers nothing.

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
    chosen = mesh() if chosen is None else chosen
    if AXIS not in chosen.axis_names:
        raise ArgumentError(f'the mesh has axes {chosen.axis_names}; expected one called "{AXIS}"')
    return chosen


def _is_none(value: Any) -> bool:
    return value is None


def _check_even(tree: Any, devices: int) -> None:
    for leaf in jax.tree.leaves(tree):
        if leaf.shape[0] % devices:
            raise ArgumentError(f"{leaf.shape[0]} worlds cannot be divided evenly among {devices} devices")
