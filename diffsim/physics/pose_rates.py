"""Derivative of poses by qpos: every frame moves with its body, and bodies move with the velocities of the joints.

So there is no need to differentiate the composition of poses along the tree. In reverse mode, forces and torques on
frames add up over subtrees, and each joint feels what acts along its axes. Source: Featherstone 2008, ch. 2 and 4.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero

from diffsim.math.pick import pick
from diffsim.math.rotation import quat_mul
from diffsim.math.vector import cross, turn
from diffsim.math.xla import launched_once
from diffsim.physics.joint import groups, joint_axes, position_rate
from diffsim.physics.tree import last_dof, sum_dofs
from diffsim.types.model import Model
from diffsim.types.topology import Topology, per_topology

Array = jax.Array
# fields of Kinematics, by name
Poses = dict[str, Array]
# (model, qpos, mocap_pos, mocap_quat) -> poses
Pose = Callable[[Model, Array, Array, Array], Poses]


def rigidly(pose: Pose) -> Pose:
    """The same poses, with the derivative of rigid motion where nothing but qpos varies."""
    posed = jax.custom_jvp(pose)

    def rule(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Poses, Poses]:
        leaves, tree = jax.tree.flatten(primals)
        changes = jax.tree.leaves(tangents)
        varied = [i for i, change in enumerate(changes) if not isinstance(change, SymbolicZero)]
        model, qpos, *_ = primals
        if len(varied) == 1 and changes[varied[0]] is tangents[1]:
            found = posed(*primals)
            return found, pose_rates(model, qpos, tangents[1], found)

        def of_varied(values: list[Array]) -> Poses:
            given = dict(zip(varied, values, strict=True))
            return pose(*jax.tree.unflatten(tree, [given.get(i, leaf) for i, leaf in enumerate(leaves)]))

        return jax.jvp(of_varied, ([leaves[i] for i in varied],), ([changes[i] for i in varied],))

    posed.defjvp(rule, symbolic_zeros=True)
    return posed


def pose_rates(model: Model, qpos: Array, change: Array, poses: Poses) -> Poses:
    """How poses change as qpos (nq,) changes by `change` (nq,), all in unit time."""
    topology, count = model.topology, model.nbody
    origin = pick(poses["xpos"], topology.body_rootid)
    offset = pick(origin, topology.jnt_bodyid) - poses["xanchor"]
    axes = joint_axes(topology, poses["xaxis"], poses["xmat"], offset)
    last = np.concatenate([last_dof(topology), _last_before(topology)])
    motion = launched_once(sum_dofs)(topology, last, (axes, position_rate(model, qpos, change)))

    bodies, carriers = motion[:count], motion[count:]
    rates = {
        "xquat": _quat_rate(bodies[:, :3], poses["xquat"]),
        "xanchor": carriers[:, 3:] - cross(carriers[:, :3], offset),
        "xaxis": cross(carriers[:, :3], poses["xaxis"]),
    }
    own = np.arange(count)
    frames = {"x": own, "xi": own, "geom_x": topology.geom_bodyid, "site_x": topology.site_bodyid}
    for name, body in frames.items():
        carried = pick(bodies, body)
        arm = poses[f"{name}pos"] - pick(origin, body)
        rates[f"{name}pos"] = carried[:, 3:] + cross(carried[:, :3], arm)
        rates[f"{name}mat"] = turn(carried[:, :3], poses[f"{name}mat"])
    return rates


def _quat_rate(w: Array, quat: Array) -> Array:
    """Half of (0, w) times quat (n, 4), as it turns with w (n, 3)."""
    return quat_mul(jnp.concatenate([jnp.zeros_like(w[:, :1]), 0.5 * w], axis=1), quat)


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
