"""Poses of bodies, joints, geoms, sites, cameras and lights from qpos: the first stage of the pipeline.

Each body's pose in its parent is the fixed frame followed by its joints, in order; poses then compose along the tree
(tree.py). Everything that is fixed to a body is mapped in one operation. Quaternions are normalized on use, `qpos`
itself is not changed. Source: MuJoCo documentation, "Computation", "Kinematics".
"""

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.math.rotation import quat_mul, quat_normalize, quat_to_mat, rotate
from diffsim.physics.camera import cameras_and_lights
from diffsim.physics.joint import JointPose, groups, joint_poses
from diffsim.physics.tree import chain_poses
from diffsim.types.data import Kinematics
from diffsim.types.model import Model
from diffsim.types.topology import Topology, per_topology

Array = jax.Array


def kinematics(model: Model, qpos: Array, mocap_pos: Array, mocap_quat: Array) -> Kinematics:
    """World poses of everything that moves.

    Args:
      qpos: (nq,) generalized position.
      mocap_pos, mocap_quat: (nmocap, 3), (nmocap, 4) poses of mocap bodies.
    """
    topology = model.topology
    pos, quat = _base_poses(model, mocap_pos, mocap_quat, qpos)
    joints = joint_poses(topology, qpos, model.qpos0, model.jnt_pos, model.jnt_axis)
    pos, quat, anchor, axis = _compose_joints(model, pos, quat, joints)
    xpos, xquat = chain_poses(topology, pos, quat)
    xanchor, xaxis = _joint_frames(topology, xpos, xquat, anchor, axis)
    fixed = _fixed_frames(model, xpos, xquat)
    return Kinematics(
        xpos=xpos,
        xquat=xquat,
        xmat=quat_to_mat(xquat),
        xanchor=xanchor,
        xaxis=xaxis,
        **fixed,
        **cameras_and_lights(model, xpos, xquat, fixed["xipos"]),
    )


def _base_poses(model: Model, mocap_pos: Array, mocap_quat: Array, qpos: Array) -> tuple[Array, Array]:
    """Body frames in their parents, joints at zero; identities for free bodies, the inputs for mocap bodies."""
    absolute, mocap = _replaced_frames(model.topology)
    identity = jnp.array([1, 0, 0, 0], dtype=qpos.dtype)[None]
    pos = jnp.where(absolute[:, None], 0, model.body_pos)
    quat = jnp.where(absolute[:, None], identity, quat_normalize(model.body_quat))
    if mocap.size:
        slots = model.topology.body_mocapid[mocap]
        pos = pos.at[mocap].set(mocap_pos[slots])
        quat = quat.at[mocap].set(quat_normalize(mocap_quat[slots]))
    return pos, quat


@per_topology
def _replaced_frames(topology: Topology) -> tuple[np.ndarray, np.ndarray]:
    """Whether each body's frame is replaced by the identity (nbody,), and the mocap bodies."""
    absolute = np.arange(topology.nbody) == 0
    for group in groups(topology):
        absolute[group.bodies] |= group.kind.absolute
    return absolute, np.flatnonzero(topology.body_mocapid >= 0)


@per_topology
def _joint_rounds(topology: Topology) -> tuple[tuple[np.ndarray, np.ndarray, np.ndarray], ...]:
    """For each k: the k-th joints of bodies, these bodies, and each body's row among them (or -1)."""
    rounds = []
    for k in range(int(topology.body_jntnum.max(initial=0))):
        bodies = np.flatnonzero(topology.body_jntnum > k)
        row = np.full(topology.nbody, -1)
        row[bodies] = np.arange(len(bodies))
        rounds.append((topology.body_jntadr[bodies] + k, bodies, row))
    return tuple(rounds)


def _compose_joints(model: Model, pos: Array, quat: Array, joints: JointPose) -> tuple[Array, Array, Array, Array]:
    """Body poses after their joints, and joint anchors and axes, all in the parent's frame."""
    rounds = _joint_rounds(model.topology)
    anchors, axes = [], []
    for ids, bodies, row in rounds:
        before_pos, before = pos[bodies], quat[bodies]
        anchors.append(before_pos + rotate(before, joints.anchor[ids]))
        axes.append(rotate(before, model.jnt_axis[ids]))
        after_pos = before_pos + rotate(before, joints.pos[ids])
        after = quat_mul(before, joints.quat[ids])
        # a gather by static rows is cheaper than a scatter
        moved = (row >= 0)[:, None]
        pos = jnp.where(moved, after_pos[row], pos)
        quat = jnp.where(moved, after[row], quat)
    if not rounds:
        return pos, quat, model.jnt_pos, model.jnt_axis
    order = np.argsort(np.concatenate([ids for ids, _, _ in rounds]))
    return pos, quat, jnp.concatenate(anchors)[order], jnp.concatenate(axes)[order]


def _joint_frames(topology: Topology, xpos: Array, xquat: Array, anchor: Array, axis: Array) -> tuple[Array, Array]:
    """Joint anchors and axes in the world, from those in the parent's frame."""
    parent = topology.body_parentid[topology.jnt_bodyid]
    above = xquat[parent]
    return xpos[parent] + rotate(above, anchor), rotate(above, axis)


def _fixed_frames(model: Model, xpos: Array, xquat: Array) -> dict[str, Array]:
    """Frames that are fixed to bodies: inertial frames, geoms, sites."""
    topology = model.topology
    bodies = np.concatenate([np.arange(topology.nbody), topology.geom_bodyid, topology.site_bodyid])
    local_pos = jnp.concatenate([model.body_ipos, model.geom_pos, model.site_pos])
    local_quat = quat_normalize(jnp.concatenate([model.body_iquat, model.geom_quat, model.site_quat]))
    quat = xquat[bodies]
    pos = xpos[bodies] + rotate(quat, local_pos)
    mat = quat_to_mat(quat_mul(quat, local_quat))
    inertial, geoms = topology.nbody, topology.nbody + topology.ngeom
    return {
        "xipos": pos[:inertial],
        "ximat": mat[:inertial],
        "geom_xpos": pos[inertial:geoms],
        "geom_xmat": mat[inertial:geoms],
        "site_xpos": pos[geoms:],
        "site_xmat": mat[geoms:],
    }
