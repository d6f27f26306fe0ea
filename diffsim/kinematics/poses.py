"""The first stage: poses of bodies, joints, geoms, sites, cameras and lights at qpos, and their derivatives.

Frames form a tree (`Chain`), with one node for each joint and for each body without joints. The frame of a node follows
from its parent's by the body's fixed offset (for the first node of a body) and the motion of the node's joint.
Rotations are composed first, in ceil(log2(depth)) rounds. Once they are known, each position is a sum of offsets over
ancestors. Frames that are fixed to bodies (inertial frames, geoms, sites) follow from the frames of the bodies in one
operation. Quaternions are normalized before use; `qpos` itself is not changed.

The derivative of poses with respect to qpos is not the derivative of this composition. It is the velocity of the
frames (`pose_rates`): every frame moves with its body, and bodies move with the velocities of the joints. Reverse mode
is the transpose: forces and torques on frames are summed over subtrees and projected on the axes of the joints.
Source: MuJoCo documentation, "Computation", "Kinematics"; Featherstone 2008, ch. 2 and 4.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from diffsim.kinematics.cameras import cameras_and_lights
from diffsim.kinematics.joints import groups, joint_axes, joint_rotations, joint_shifts, position_rate
from diffsim.kinematics.tree import last_dof, sum_dofs
from diffsim.math.rotation import quat_mul, quat_normalize, quat_to_mat, rotate
from diffsim.math.vector import cross, mul_mat, mul_vec, turn
from diffsim.types.data import Kinematics
from diffsim.types.model import Model
from diffsim.types.topology import Topology, per_topology
from diffsim.xla.barriers import computed_once, stored_results
from diffsim.xla.compiled import define_eager
from diffsim.xla.gather import on_rows, pick, pick_computed, place
from diffsim.xla.loops import varying
from diffsim.xla.numpy_rules import RULES
from diffsim.xla.tree_sums import Trees

# fields of Kinematics, by name
Poses = dict[str, Array]

# the unit quaternion
IDENTITY = np.array([1, 0, 0, 0])


@dataclasses.dataclass(frozen=True)
class Chain:
    """The tree of frames; node 0 is the world, and parents come before children.

    Attributes:
      parent: (n,) parent node; 0 for children of the world and for the world itself.
      body: (n,) the body of each node.
      joint: (n,) the joint of each node, -1 for a body without joints.
      based: (n,) whether the node starts with its body's fixed offset (body_pos, body_quat).
      absolute: (n, 3) for a free joint, the indices in qpos of its position in the world, else -1.
      last: (nbody,) the last node of each body, whose frame is the body's.
      of_joint: (njnt,) the node of each joint.
      trees: computes sums and products along the tree.
    """

    parent: np.ndarray
    body: np.ndarray
    joint: np.ndarray
    based: np.ndarray
    absolute: np.ndarray
    last: np.ndarray
    of_joint: np.ndarray
    trees: Trees


@per_topology
def chain(topology: Topology) -> Chain:
    """The tree of frames of a model."""
    # node 0 is the world
    parent = [0]
    owner = [0]
    joint = [-1]
    last = np.zeros(topology.nbody, dtype=np.int32)
    for body in range(1, topology.nbody):
        above = int(last[topology.body_parentid[body]])
        start = int(topology.body_jntadr[body])
        count = int(topology.body_jntnum[body])
        # one node for each joint, or a single node without a joint
        for number in range(start, start + count) if count else (-1,):
            parent.append(above)
            owner.append(body)
            joint.append(number)
            above = len(parent) - 1
        last[body] = above
    parents, bodies, joints = (np.array(column, dtype=np.int32) for column in (parent, owner, joint))
    absolute = np.full((len(parents), 3), -1)
    of_joint = np.zeros(topology.njnt, dtype=np.int32)
    of_joint[joints[joints >= 0]] = np.flatnonzero(joints >= 0)
    for group in groups(topology):
        if group.kind.free:
            absolute[of_joint[group.joints]] = group.qpos[:, :3]
    # the first node of each body
    first = np.append(True, bodies[1:] != bodies[:-1])
    return Chain(
        parent=parents,
        body=bodies,
        joint=joints,
        based=first & (absolute[:, 0] < 0) & (bodies > 0),
        absolute=absolute,
        last=last,
        of_joint=of_joint,
        trees=Trees(np.append(-1, parents[1:]), rooted=True),
    )


def compute_kinematics(model: Model, qpos: Array, mocap_pos: Array, mocap_quat: Array) -> Kinematics:
    """The poses in the world of bodies, joints, geoms, sites, cameras and lights.

    Args:
      model: the model.
      qpos: (nq,) generalized position.
      mocap_pos, mocap_quat: (nmocap, 3), (nmocap, 4) poses of mocap bodies.
    """
    frames = compose_poses(model, jax.lax.stop_gradient(qpos), mocap_pos, mocap_quat)
    if model.njnt:
        # the derivative with respect to qpos is `pose_rates`; derivatives with respect to the Model go through
        # `compose_poses`
        fields = with_pose_rates_p.bind(
            *varying([qpos, *frames.values()]), topology=model.topology, names=tuple(frames)
        )
        frames = dict(zip(frames, fields, strict=True))
    return Kinematics(**frames, **cameras_and_lights(model, frames["xpos"], frames["xmat"], frames["xipos"]))


def compose_poses(model: Model, qpos: Array, mocap_pos: Array, mocap_quat: Array) -> Poses:
    """The fields of Kinematics by name, without cameras and lights; arguments as for `compute_kinematics`."""
    links = chain(model.topology)
    base_pos, base_quat = _base_frames(model, links, mocap_pos, mocap_quat)
    # the rotation of a node in its parent is the body's fixed rotation times the rotation of the joint
    turns = computed_once(quat_mul)(base_quat, _at_nodes(links, joint_rotations(model, qpos), [1, 0, 0, 0]))
    quat = links.trees.compose(turns, quat_mul, IDENTITY)
    mat = computed_once(quat_to_mat)(quat)

    # the position of a node is the position of its parent, plus the joint's anchor, which is fixed in the frame before
    # the joint, plus the shift from the anchor to the origin of the frame after the joint
    anchor = base_pos + rotate(base_quat, _at_nodes(links, model.jnt_pos, [0, 0, 0]))
    if np.any(links.absolute >= 0):
        # the anchor of a free joint is a position in the world, from qpos
        free = np.flatnonzero(links.absolute[:, 0] >= 0)
        anchor = jnp.where(links.absolute >= 0, place(len(anchor), free, pick(qpos, links.absolute[free])), anchor)
    axis = rotate(base_quat, _at_nodes(links, model.jnt_axis, [0, 0, 0]))
    before = pick(mat, links.parent)
    shift = mul_vec(mat, _at_nodes(links, joint_shifts(model, qpos), [0, 0, 0]))
    # position = sum over ancestors of R_before anchor + shift; the term of the world is zero
    pos = links.trees.above(computed_once(lambda: mul_vec(before, anchor) + shift)())

    xpos = pick(pos, links.last)
    xmat = pick(mat, links.last)
    # frames that are fixed to bodies: inertial frames, geoms and sites
    local = {
        "xi": (np.arange(model.nbody), model.body_ipos, model.body_iquat),
        "geom_x": (model.topology.geom_bodyid, model.geom_pos, model.geom_quat),
        "site_x": (model.topology.site_bodyid, model.site_pos, model.site_quat),
    }
    fixed = on_rows(lambda *rows: _attached(xpos, xmat, *rows), list(local.values()))
    return {
        "xpos": xpos,
        "xquat": pick(quat, links.last),
        "xmat": xmat,
        "xanchor": pick(pos - shift, links.of_joint),
        "xaxis": pick(mul_vec(before, axis), links.of_joint),
        **{f"{name}pos": pos for name, (pos, _) in zip(local, fixed, strict=True)},
        **{f"{name}mat": mat for name, (_, mat) in zip(local, fixed, strict=True)},
    }


def _base_frames(model: Model, links: Chain, mocap_pos: Array, mocap_quat: Array) -> tuple[Array, Array]:
    """Fixed offsets (n, 3) and rotations (n, 4) of nodes in their parents.

    The first node of a body has the body's offset and rotation, other nodes have none. Mocap bodies get theirs from the
    inputs.
    """
    pos = model.body_pos
    quat = quat_normalize(model.body_quat)
    mocap = np.flatnonzero(model.topology.body_mocapid >= 0)
    if mocap.size:
        slots = model.topology.body_mocapid[mocap]
        pos = pos.at[mocap].set(mocap_pos[slots])
        quat = quat.at[mocap].set(quat_normalize(mocap_quat[slots]))
    based = links.based[:, None]
    identity = jnp.array([[1, 0, 0, 0]], dtype=quat.dtype)
    return jnp.where(based, pick(pos, links.body), 0), jnp.where(based, pick(quat, links.body), identity)


def _at_nodes(links: Chain, values: Array, default: list[int]) -> Array:
    """(n, k) the values (njnt, k) of joints, in the order of nodes; nodes without a joint get `default`."""
    constant = jnp.array([default], dtype=values.dtype)
    return pick(jnp.concatenate([values, constant]), links.joint)


@computed_once
def _attached(xpos: Array, xmat: Array, body: np.ndarray, pos: Array, quat: Array) -> tuple[Array, Array]:
    """World positions (n, 3) and matrices (n, 3, 3) of frames with poses pos (n, 3), quat (n, 4) in bodies (n,)."""
    above = pick(xmat, body)
    return pick(xpos, body) + mul_vec(above, pos), mul_mat(above, quat_to_mat(quat_normalize(quat)))


def geom_frames(model: Model, kinematics: Kinematics, geoms: np.ndarray) -> tuple[Array, Array]:
    """Positions (n, 3), m, and matrices (n, 3, 3) of some geoms (n,) in the world.

    A program that needs no other geoms does not compute their poses.
    """

    def of_bodies() -> tuple[Array, Array]:
        local = pick(model.geom_pos, geoms), pick(model.geom_quat, geoms)
        return _attached(kinematics.xpos, kinematics.xmat, model.topology.geom_bodyid[geoms], *local)

    return pick_computed((kinematics.geom_xpos, kinematics.geom_xmat), geoms, of_bodies)


@stored_results
def pose_rates(topology: Topology, qpos: Array, change: Array, poses: Poses) -> Poses:
    """d poses / dt, by name, for d qpos / dt = `change` (nq,), at qpos (nq,) and the poses there."""
    count = topology.nbody
    origin = pick(poses["xpos"], topology.body_rootid)
    offset = pick(origin, topology.jnt_bodyid) - poses["xanchor"]
    axes = joint_axes(topology, poses["xaxis"], poses["xmat"], offset)
    last = np.concatenate([last_dof(topology), _last_before(topology)])
    velocities = sum_dofs(topology, last, (axes, position_rate(topology, qpos, change)))

    # `velocities` are spatial velocities (omega, v) of the bodies, and of the frames to which the anchors and axes of
    # joints are fixed. The rate of a point at `arm` is v + omega x arm, the rate of a rotation matrix R is omega x R,
    # and the rate of a quaternion q is (0, omega / 2) q.
    of_bodies = velocities[:count]
    of_joints = velocities[count:]
    half_omega = jnp.concatenate([jnp.zeros_like(of_bodies[:, :1]), 0.5 * of_bodies[:, :3]], axis=1)
    rates = {
        "xquat": quat_mul(half_omega, poses["xquat"]),
        "xanchor": of_joints[:, 3:] - cross(of_joints[:, :3], offset),
        "xaxis": cross(of_joints[:, :3], poses["xaxis"]),
    }
    # for each family of frames, named by the prefix of its fields, the bodies to which they are fixed
    frames = {
        "x": np.arange(count),
        "xi": np.arange(count),
        "geom_x": topology.geom_bodyid,
        "site_x": topology.site_bodyid,
    }
    for name, body in frames.items():
        velocity = pick(of_bodies, body)
        arm = poses[f"{name}pos"] - pick(origin, body)
        rates[f"{name}pos"] = velocity[:, 3:] + cross(velocity[:, :3], arm)
        rates[f"{name}mat"] = turn(velocity[:, :3], poses[f"{name}mat"])
    return rates


@per_topology
def _last_before(topology: Topology) -> np.ndarray:
    """(njnt,) the last dof that moves the anchor and the axis of each joint; -1 if none does.

    The anchor of a free joint moves with the joint's own translations.
    """
    first = topology.jnt_dofadr
    last = topology.dof_parentid[first]
    for group in groups(topology):
        if group.kind.free:
            last[group.joints] = first[group.joints] + 2
    return last


def _identity(qpos: Array, *poses: Array, topology: Topology, names: tuple[str, ...]) -> list[Array]:
    """The poses, unchanged: the value of the primitive `with_pose_rates`."""
    return list(poses)


def _derivative(
    primals: Sequence[Array], tangents: Sequence[Any], *, topology: Topology, names: tuple[str, ...]
) -> tuple[list[Array], list[Any]]:
    """The jvp of `with_pose_rates`: `pose_rates` for the tangent of qpos, plus the tangents of the poses.

    Arrays may have leading batch axes, over which `pose_rates` is mapped.
    """
    qpos = primals[0]
    change, *pose_tangents = tangents
    poses = with_pose_rates_p.bind(*primals, topology=topology, names=names)
    if isinstance(change, ad.Zero):
        return poses, pose_tangents

    def rates(qpos: Array, change: Array, *poses: Array) -> list[Array]:
        tangent = pose_rates(topology, qpos, change, dict(zip(names, poses, strict=True)))
        return [tangent[name] for name in names]

    # one vmap for each batch axis
    batched = functools.reduce(lambda function, _: jax.vmap(function), range(qpos.ndim - 1), rates)
    return poses, list(map(ad.add_tangents, pose_tangents, batched(qpos, change, *poses)))


def _batch(
    arguments: Sequence[Array], dims: Sequence[int | None], *, topology: Topology, names: tuple[str, ...]
) -> tuple[list[Array], list[int]]:
    """The batch rule of `with_pose_rates`: every result gets a batch axis.

    A result that is equal in all worlds gets one too, because its derivative may differ between worlds.
    """
    size = next(x.shape[dim] for x, dim in zip(arguments, dims, strict=True) if dim is not None)
    moved = [
        jnp.broadcast_to(x, (size, *x.shape)) if dim is None else jnp.moveaxis(x, dim, 0)
        for x, dim in zip(arguments, dims, strict=True)
    ]
    return with_pose_rates_p.bind(*moved, topology=topology, names=names), [0] * len(names)


# The primitive `with_pose_rates` returns poses that were computed at qpos (nq,), and gives them `pose_rates` as their
# derivative with respect to qpos. `jax.custom_jvp` cannot do this, because it requires the same batch axes of value and
# tangent: the orientation of a sliding body is the same in all worlds, and its tangent is not.
with_pose_rates_p = Primitive("with_pose_rates")
RULES["with_pose_rates"] = lambda qpos, *poses, **params: poses
with_pose_rates_p.multiple_results = True
define_eager(with_pose_rates_p, _identity, ("topology", "names"))
with_pose_rates_p.def_abstract_eval(lambda qpos, *poses, topology, names: list(poses))
ad.primitive_jvps[with_pose_rates_p] = _derivative
batching.primitive_batchers[with_pose_rates_p] = _batch
mlir.register_lowering(with_pose_rates_p, mlir.lower_fun(_identity, multiple_results=True))
