"""Derivative of poses by qpos: every frame moves with its body, and bodies move with the velocities of the joints.

So there is no need to differentiate the composition of poses along the tree. In reverse mode, forces and torques on
frames add up over subtrees, and each joint feels what acts along its axes. Source: Featherstone 2008, ch. 2 and 4.
"""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from diffsim.kinematics.joints import groups, joint_axes, position_rate
from diffsim.kinematics.tree import last_dof, sum_dofs
from diffsim.math.rotation import quat_mul
from diffsim.math.vector import cross, turn
from diffsim.types.topology import Topology, per_topology
from diffsim.xla.barriers import elementwise_stage
from diffsim.xla.compiled import run_alone
from diffsim.xla.gather import pick

Array = jax.Array
# fields of Kinematics, by name
Poses = dict[str, Array]


def carried(topology: Topology, qpos: Array, poses: Poses) -> Poses:
    """The same poses, computed at qpos (nq,), with the derivative of rigid motion by qpos.

    Derivatives by other things that the poses depend on, such as a Model, stay. This is a primitive, for
    `jax.custom_jvp` forbids that a derivative has an axis of worlds where the value has none, as the orientation of
    what slides.
    """
    if not topology.njnt:
        return poses
    return dict(zip(poses, carried_p.bind(qpos, *poses.values(), topology=topology, names=tuple(poses)), strict=True))


@elementwise_stage
def pose_rates(topology: Topology, qpos: Array, change: Array, poses: Poses) -> Poses:
    """How poses change as qpos (nq,) changes by `change` (nq,), all in unit time."""
    count = topology.nbody
    origin = pick(poses["xpos"], topology.body_rootid)
    offset = pick(origin, topology.jnt_bodyid) - poses["xanchor"]
    axes = joint_axes(topology, poses["xaxis"], poses["xmat"], offset)
    last = np.concatenate([last_dof(topology), _last_before(topology)])
    motion = sum_dofs(topology, last, (axes, position_rate(topology, qpos, change)))

    bodies, carriers = motion[:count], motion[count:]
    half_turn = jnp.concatenate([jnp.zeros_like(bodies[:, :1]), 0.5 * bodies[:, :3]], axis=1)
    rates = {
        "xquat": quat_mul(half_turn, poses["xquat"]),
        "xanchor": carriers[:, 3:] - cross(carriers[:, :3], offset),
        "xaxis": cross(carriers[:, :3], poses["xaxis"]),
    }
    frames = {
        "x": np.arange(count),
        "xi": np.arange(count),
        "geom_x": topology.geom_bodyid,
        "site_x": topology.site_bodyid,
    }
    for name, body in frames.items():
        motion = pick(bodies, body)
        arm = poses[f"{name}pos"] - pick(origin, body)
        rates[f"{name}pos"] = motion[:, 3:] + cross(motion[:, :3], arm)
        rates[f"{name}mat"] = turn(motion[:, :3], poses[f"{name}mat"])
    return rates


@per_topology
def _last_before(topology: Topology) -> np.ndarray:
    """(njnt,) the last dof that moves the anchor of each joint and its axis, -1 if none does.

    The anchor of a free joint moves with its own translations.
    """
    first = topology.jnt_dofadr
    last = topology.dof_parentid[first]
    for group in groups(topology):
        if group.kind.free:
            last[group.joints] = first[group.joints] + 2
    return last


def _plain(qpos: Array, *poses: Array, topology: Topology, names: tuple[str, ...]) -> list[Array]:
    """The definition."""
    return list(poses)


def _shapes(qpos: ShapedArray, *poses: ShapedArray, topology: Topology, names: tuple[str, ...]) -> list[ShapedArray]:
    return list(poses)


def _derivative(
    primals: Sequence[Array], tangents: Sequence[Any], *, topology: Topology, names: tuple[str, ...]
) -> tuple[list[Array], list[Any]]:
    """Leading axes are those of batches."""
    qpos, (change, *pose_tangents) = primals[0], tangents
    poses = carried_p.bind(*primals, topology=topology, names=names)
    if isinstance(change, ad.Zero):
        return poses, pose_tangents

    def rates(qpos: Array, change: Array, *poses: Array) -> list[Array]:
        tangent = pose_rates(topology, qpos, change, dict(zip(names, poses, strict=True)))
        return [tangent[name] for name in names]

    batched = functools.reduce(lambda function, _: jax.vmap(function), range(qpos.ndim - 1), rates)
    return poses, list(map(ad.add_tangents, pose_tangents, batched(qpos, change, *poses)))


def _batch(
    arguments: Sequence[Array], dims: Sequence[int | None], *, topology: Topology, names: tuple[str, ...]
) -> tuple[list[Array], list[int]]:
    """Every result gets an axis of worlds, also one that is equal in all of them: its derivative may differ."""
    size = next(x.shape[dim] for x, dim in zip(arguments, dims, strict=True) if dim is not None)
    moved = [
        jnp.broadcast_to(x, (size, *x.shape)) if dim is None else jnp.moveaxis(x, dim, 0)
        for x, dim in zip(arguments, dims, strict=True)
    ]
    return carried_p.bind(*moved, topology=topology, names=names), [0] * len(names)


carried_p = Primitive("carried_poses")
carried_p.multiple_results = True
run_alone(carried_p, _plain, ("topology", "names"))
carried_p.def_abstract_eval(_shapes)
ad.primitive_jvps[carried_p] = _derivative
batching.primitive_batchers[carried_p] = _batch
mlir.register_lowering(carried_p, mlir.lower_fun(_plain, multiple_results=True))
