"""Poses of bodies, joints, geoms, sites, cameras and lights from qpos: the first stage of the pipeline.

Each joint is a node of a chain of frames (frames.py): rotations compose first, positions follow as sums. What is fixed
to a body is mapped by the body's matrix, all in one operation. Quaternions are normalized on use, `qpos` itself is not
changed. Source: MuJoCo documentation, "Computation", "Kinematics".
"""

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.kinematics.camera import cameras_and_lights
from diffsim.kinematics.frames import Chain, chain, compose_rotations, sum_offsets
from diffsim.kinematics.joints import joint_rotations, joint_shifts
from diffsim.kinematics.pose_rates import Poses, carried
from diffsim.math.rotation import quat_mul, quat_normalize, quat_to_mat, rotate
from diffsim.math.vector import mul_mat, mul_vec
from diffsim.types.data import Kinematics
from diffsim.types.model import Model
from diffsim.xla.barriers import computed_once, for_cpu
from diffsim.xla.pick import pick, place

Array = jax.Array


def compute_kinematics(model: Model, qpos: Array, mocap_pos: Array, mocap_quat: Array) -> Kinematics:
    """World poses of everything that moves.

    Args:
      qpos: (nq,) generalized position.
      mocap_pos, mocap_quat: (nmocap, 3), (nmocap, 4) poses of mocap bodies.
    """
    frames = compose_poses(model, jax.lax.stop_gradient(qpos), mocap_pos, mocap_quat)
    frames = carried(model.topology, qpos, frames)
    return Kinematics(**frames, **cameras_and_lights(model, frames["xpos"], frames["xmat"], frames["xipos"]))


def compose_poses(model: Model, qpos: Array, mocap_pos: Array, mocap_quat: Array) -> Poses:
    """What moves with bodies: the fields of Kinematics but those of cameras and lights."""
    links = chain(model.topology)
    base_pos, base_quat = _base_frames(model, links, mocap_pos, mocap_quat)
    quat = compose_rotations(links, _turns(model, links, qpos, base_quat))
    mat = computed_once(quat_to_mat)(quat)

    # an anchor is fixed in the frame before the joint, the frame after the joint is seen from the anchor
    anchor = base_pos + rotate(base_quat, _at_nodes(links, model.jnt_pos, [0, 0, 0]))
    anchor = _absolute_anchors(links, anchor, qpos)
    axis = rotate(base_quat, _at_nodes(links, model.jnt_axis, [0, 0, 0]))
    before = pick(mat, links.parent)
    shift = mul_vec(mat, _at_nodes(links, joint_shifts(model, qpos), [0, 0, 0]))
    pos = sum_offsets(links, _offsets(before, anchor, shift))

    xpos, xmat = _body_frames(links, pos, mat)
    return {
        "xpos": xpos,
        "xquat": pick(quat, links.last),
        "xmat": xmat,
        "xanchor": pick(pos - shift, links.of_joint),
        "xaxis": pick(mul_vec(before, axis), links.of_joint),
        **_fixed_frames(model, xpos, xmat),
    }


@computed_once
def _turns(model: Model, links: Chain, qpos: Array, base_quat: Array) -> Array:
    """(n, 4) rotations of the nodes in their parents: the fixed one (n, 4), then the joint's."""
    return quat_mul(base_quat, _at_nodes(links, joint_rotations(model, qpos), [1, 0, 0, 0]))


@computed_once
def _offsets(before: Array, anchor: Array, shift: Array) -> Array:
    """(n, 3) world-oriented offsets of nodes from their parents."""
    return mul_vec(before, anchor) + shift


def _body_frames(links: Chain, pos: Array, mat: Array) -> tuple[Array, Array]:
    """Position and rotation matrix of each body: of its last node."""
    return pick(pos, links.last), pick(mat, links.last)


def _base_frames(model: Model, links: Chain, mocap_pos: Array, mocap_quat: Array) -> tuple[Array, Array]:
    """Fixed frames of nodes in their parents: the body's for its first node, else the identity; mocap from inputs."""
    pos, quat = model.body_pos, quat_normalize(model.body_quat)
    mocap = np.flatnonzero(model.topology.body_mocapid >= 0)
    if mocap.size:
        slots = model.topology.body_mocapid[mocap]
        pos = pos.at[mocap].set(mocap_pos[slots])
        quat = quat.at[mocap].set(quat_normalize(mocap_quat[slots]))
    based = links.based[:, None]
    identity = jnp.array([[1, 0, 0, 0]], dtype=quat.dtype)
    return jnp.where(based, pick(pos, links.body), 0), jnp.where(based, pick(quat, links.body), identity)


def _at_nodes(links: Chain, values: Array, default: list[int]) -> Array:
    """Values of joints at their nodes, and a constant at nodes without a joint."""
    constant = jnp.array([default], dtype=values.dtype)
    return pick(jnp.concatenate([values, constant]), links.joint)


def _absolute_anchors(links: Chain, anchor: Array, qpos: Array) -> Array:
    """Anchors with those of free joints read from qpos."""
    if not np.any(links.absolute >= 0):
        return anchor
    free = np.flatnonzero(links.absolute[:, 0] >= 0)
    return jnp.where(links.absolute >= 0, place(len(anchor), free, pick(qpos, links.absolute[free])), anchor)


def _fixed_frames(model: Model, xpos: Array, xmat: Array) -> dict[str, Array]:
    """Frames that are fixed to bodies: inertial frames, geoms, sites.

    On a CPU each of the three by itself, so that what nobody reads is not computed; elsewhere one after another, which
    are two kernels on a GPU.
    """
    topology = model.topology
    own = {
        "xi": (np.arange(topology.nbody), model.body_ipos, model.body_iquat),
        "geom_x": (topology.geom_bodyid, model.geom_pos, model.geom_quat),
        "site_x": (topology.site_bodyid, model.site_pos, model.site_quat),
    }
    if for_cpu():
        frames = [_attached(xpos, xmat, *each) for each in own.values()]
    else:
        bodies, *local = zip(*own.values(), strict=True)
        joined = _attached(xpos, xmat, np.concatenate(bodies), *(jnp.concatenate(column) for column in local))
        ends = np.cumsum([len(each) for each in bodies])[:-1]
        frames = zip(*(jnp.split(column, ends) for column in joined), strict=True)
    return {
        f"{name}{part}": x
        for name, pair in zip(own, frames, strict=True)
        for part, x in zip(("pos", "mat"), pair, strict=True)
    }


@computed_once
def _attached(xpos: Array, xmat: Array, body: np.ndarray, pos: Array, quat: Array) -> tuple[Array, Array]:
    """World positions (n, 3) and matrices (n, 3, 3) of frames at pos (n, 3) and quat (n, 4) in bodies (n,)."""
    above = pick(xmat, body)
    return pick(xpos, body) + mul_vec(above, pos), mul_mat(above, quat_to_mat(quat_normalize(quat)))


def geom_frames(model: Model, kinematics: Kinematics, geoms: np.ndarray) -> tuple[Array, Array]:
    """Positions (n, 3), m, and matrices (n, 3, 3) in the world of some geoms (n,), for what reads only these.

    On a CPU they are computed by themselves: in a rollout nobody may read those of the others.
    """
    if not for_cpu() or len(geoms) == model.ngeom:
        return pick(kinematics.geom_xpos, geoms), pick(kinematics.geom_xmat, geoms)
    body = model.topology.geom_bodyid[geoms]
    return _attached(kinematics.xpos, kinematics.xmat, body, pick(model.geom_pos, geoms), pick(model.geom_quat, geoms))
