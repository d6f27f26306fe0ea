"""Poses of bodies, joints, geoms, sites, cameras and lights from qpos, and their rates: the first stage.

Frames form a tree (`Chain`) with a node for each joint, and one for each body without joints. The frame of a node is
the frame of its parent, moved by the body's fixed frame (at the first node of a body) and by its joint. Rotations are
composed first, in ceil(log2(depth)) rounds; once all are known, each position is a sum of offsets over ancestors.
Frames fixed to bodies follow from the frames of the bodies, all in one operation. Quaternions are normalized on use;
`qpos` itself is not changed.

The derivative of poses with respect to qpos does not go through this composition: every frame moves with its body, and
bodies move with the velocities of the joints (`pose_rates`). Reverse mode is the transpose: forces and torques on
frames add up over subtrees and are projected on the axes of the joints.
Source: MuJoCo documentation, "Computation", "Kinematics"; XML reference, attribute `mode` of `camera`; Featherstone
2008, ch. 2 and 4.
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

from diffsim.base.enums import CamLightMode
from diffsim.kinematics.com import subtree_com
from diffsim.kinematics.joints import groups, joint_axes, joint_rotations, joint_shifts, position_rate
from diffsim.kinematics.tree import last_dof, sum_dofs
from diffsim.math import safe
from diffsim.math.rotation import quat_mul, quat_normalize, quat_to_mat, rotate
from diffsim.math.vector import cross, mul_mat, mul_vec, transpose, turn
from diffsim.types.data import Kinematics
from diffsim.types.model import Model
from diffsim.types.topology import Topology, per_topology
from diffsim.xla.barriers import computed_once, stored_results
from diffsim.xla.compiled import run_alone
from diffsim.xla.gather import on_rows, pick, pick_computed, place
from diffsim.xla.loops import varying
from diffsim.xla.numpy_rules import RULES
from diffsim.xla.tree_sums import Trees

# fields of Kinematics, by name
Poses = dict[str, Array]


IDENTITY = np.array([1, 0, 0, 0])


@dataclasses.dataclass(frozen=True)
class Chain:
    """Nodes in tree order; node 0 is the world.

    Attributes:
      parent: (n,) parent node, 0 for children of the world and the world itself.
      body, joint: (n,) the body, and the joint or -1.
      based: (n,) whether the node starts with its body's fixed frame (body_pos, body_quat).
      absolute: (n, 3) for free joints the entries of qpos that are the position in the world, else -1.
      last: (nbody,) the node that is the body's frame.
      of_joint: (njnt,) the node of each joint.
      trees: for sums and products along the chain.
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
    """The nodes of a model."""
    parent, owner, joint = [0], [0], [-1]
    last = np.zeros(topology.nbody, dtype=np.int32)
    for body in range(1, topology.nbody):
        above = int(last[topology.body_parentid[body]])
        start, count = int(topology.body_jntadr[body]), int(topology.body_jntnum[body])
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
    """World poses of everything that moves.

    Args:
      qpos: (nq,) generalized position.
      mocap_pos, mocap_quat: (nmocap, 3), (nmocap, 4) poses of mocap bodies.
    """
    frames = compose_poses(model, jax.lax.stop_gradient(qpos), mocap_pos, mocap_quat)
    if model.njnt:
        # their derivative with respect to qpos is `pose_rates`; derivatives with respect to the Model pass through
        fields = with_pose_rates_p.bind(
            *varying([qpos, *frames.values()]), topology=model.topology, names=tuple(frames)
        )
        frames = dict(zip(frames, fields, strict=True))
    return Kinematics(**frames, **cameras_and_lights(model, frames["xpos"], frames["xmat"], frames["xipos"]))


def compose_poses(model: Model, qpos: Array, mocap_pos: Array, mocap_quat: Array) -> Poses:
    """The fields of Kinematics except cameras and lights; arguments as for `compute_kinematics`."""
    links = chain(model.topology)
    base_pos, base_quat = _base_frames(model, links, mocap_pos, mocap_quat)
    # the rotation of a node in its parent: the fixed rotation, then the rotation of the joint
    turns = computed_once(quat_mul)(base_quat, _at_nodes(links, joint_rotations(model, qpos), [1, 0, 0, 0]))
    quat = links.trees.compose(turns, quat_mul, IDENTITY)
    mat = computed_once(quat_to_mat)(quat)

    # a position is its parent's, plus the anchor, which is fixed in the frame before the joint, plus the shift from the
    # anchor to the origin of the frame after the joint
    anchor = base_pos + rotate(base_quat, _at_nodes(links, model.jnt_pos, [0, 0, 0]))
    if np.any(links.absolute >= 0):
        # the anchor of a free joint is a position in the world, from qpos
        free = np.flatnonzero(links.absolute[:, 0] >= 0)
        anchor = jnp.where(links.absolute >= 0, place(len(anchor), free, pick(qpos, links.absolute[free])), anchor)
    axis = rotate(base_quat, _at_nodes(links, model.jnt_axis, [0, 0, 0]))
    before = pick(mat, links.parent)
    shift = mul_vec(mat, _at_nodes(links, joint_shifts(model, qpos), [0, 0, 0]))
    # offset 0, of the world, is zero
    pos = links.trees.above(computed_once(lambda: mul_vec(before, anchor) + shift)())

    xpos, xmat = pick(pos, links.last), pick(mat, links.last)
    # frames that are fixed to bodies: inertial frames, geoms, sites
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
    """Fixed frames of nodes in their parents, (n, 3) and (n, 4): the body's at its first node, else the identity.

    Frames of mocap bodies come from the inputs.
    """
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
    """Values (njnt, k) of joints at their nodes (n, k), and a constant at nodes without a joint."""
    constant = jnp.array([default], dtype=values.dtype)
    return pick(jnp.concatenate([values, constant]), links.joint)


@computed_once
def _attached(xpos: Array, xmat: Array, body: np.ndarray, pos: Array, quat: Array) -> tuple[Array, Array]:
    """World positions (n, 3) and matrices (n, 3, 3) of frames at pos (n, 3) and quat (n, 4) in bodies (n,)."""
    above = pick(xmat, body)
    return pick(xpos, body) + mul_vec(above, pos), mul_mat(above, quat_to_mat(quat_normalize(quat)))


def geom_frames(model: Model, kinematics: Kinematics, geoms: np.ndarray) -> tuple[Array, Array]:
    """Positions (n, 3), m, and matrices (n, 3, 3) in the world of some geoms (n,).

    Where a program needs these geoms alone, the poses of all others are not computed.
    """

    def of_bodies() -> tuple[Array, Array]:
        local = pick(model.geom_pos, geoms), pick(model.geom_quat, geoms)
        return _attached(kinematics.xpos, kinematics.xmat, model.topology.geom_bodyid[geoms], *local)

    return pick_computed((kinematics.geom_xpos, kinematics.geom_xmat), geoms, of_bodies)


@dataclasses.dataclass(frozen=True)
class Modes:
    """How n cameras or lights follow bodies (mjtCamLight).

    Attributes:
      track: (n,) whether it keeps its orientation and its offset from the body in the world.
      target: (n,) whether it looks at a body.
      by_com: (n,) whether the centre of mass of the subtree counts instead of the body.
      targets: (n,) the body that it looks at; 0 for none.
    """

    track: np.ndarray
    target: np.ndarray
    by_com: np.ndarray
    targets: np.ndarray

    @property
    def fixed(self) -> bool:
        """Whether every object is simply fixed to its body."""
        return not (np.any(self.track) or np.any(self.target))


def _modes(mode: np.ndarray, target_body: np.ndarray) -> Modes:
    aims = np.isin(mode, (CamLightMode.TARGETBODY, CamLightMode.TARGETBODYCOM)) & (target_body >= 0)
    return Modes(
        track=np.isin(mode, (CamLightMode.TRACK, CamLightMode.TRACKCOM)),
        target=aims,
        by_com=np.isin(mode, (CamLightMode.TRACKCOM, CamLightMode.TARGETBODYCOM)),
        targets=np.maximum(target_body, 0),
    )


def cameras_and_lights(model: Model, xpos: Array, xmat: Array, xipos: Array) -> dict[str, Array]:
    """World poses of cameras and lights: cam_xpos, light_xpos (n, 3) m, cam_xmat (n, 3, 3), unit light_xdir (n, 3)."""
    topology = model.topology
    cameras = _modes(topology.cam_mode, topology.cam_targetbodyid)
    lights = _modes(topology.light_mode, topology.light_targetbodyid)
    centre = subtree_com(model, xipos) if np.any(cameras.by_com) or np.any(lights.by_com) else xpos

    body = topology.cam_bodyid
    cam_pos = xpos[body] + mul_vec(xmat[body], model.cam_pos)
    cam_mat = mul_mat(xmat[body], quat_to_mat(quat_normalize(model.cam_quat)))
    # what tracks keeps a constant offset, in the world, from its body or the centre of mass of the subtree
    if not cameras.fixed:
        initial = model.cam_mat0.reshape(-1, 3, 3)
        tracked = jnp.where(cameras.by_com[:, None], centre[body] + model.cam_poscom0, xpos[body] + model.cam_pos0)
        cam_pos = jnp.where(cameras.track[:, None], tracked, cam_pos)
        cam_mat = jnp.where(cameras.track[:, None, None], initial, cam_mat)
        aimed = _look_at(cam_pos, _targets(cameras, xpos, centre))
        cam_mat = jnp.where(cameras.target[:, None, None], aimed, cam_mat)

    body = topology.light_bodyid
    light_pos = xpos[body] + mul_vec(xmat[body], model.light_pos)
    light_dir = mul_vec(xmat[body], model.light_dir)
    if not lights.fixed:
        tracked = jnp.where(lights.by_com[:, None], centre[body] + model.light_poscom0, xpos[body] + model.light_pos0)
        light_pos = jnp.where(lights.track[:, None], tracked, light_pos)
        light_dir = jnp.where(lights.track[:, None], model.light_dir0, light_dir)
        light_dir = jnp.where(lights.target[:, None], _targets(lights, xpos, centre) - light_pos, light_dir)
    return {
        "cam_xpos": cam_pos,
        "cam_xmat": cam_mat,
        "light_xpos": light_pos,
        "light_xdir": safe.normalize(light_dir),
    }


def _targets(modes: Modes, xpos: Array, centre: Array) -> Array:
    """The points (n, 3) that objects look at."""
    return jnp.where(modes.by_com[:, None], centre[modes.targets], xpos[modes.targets])


def _look_at(pos: Array, target: Array) -> Array:
    """Orientation (n, 3, 3), local to world, of cameras that look along -z at targets, with a horizontal x axis."""
    z = safe.normalize(pos - target)
    up = jnp.broadcast_to(jnp.array([0, 0, 1], dtype=pos.dtype)[None], z.shape)
    x = safe.normalize(cross(up, z))
    y = safe.normalize(cross(z, x))
    return transpose(jnp.stack([x, y, z], axis=-2))


@stored_results
def pose_rates(topology: Topology, qpos: Array, change: Array, poses: Poses) -> Poses:
    """d poses / dt for d qpos / dt = `change` (nq,), at qpos (nq,)."""
    count = topology.nbody
    origin = pick(poses["xpos"], topology.body_rootid)
    offset = pick(origin, topology.jnt_bodyid) - poses["xanchor"]
    axes = joint_axes(topology, poses["xaxis"], poses["xmat"], offset)
    last = np.concatenate([last_dof(topology), _last_before(topology)])
    velocities = sum_dofs(topology, last, (axes, position_rate(topology, qpos, change)))

    # spatial velocities of the bodies, and of the frames to which the anchors and axes of joints are fixed. A point at
    # `arm` moves with v + omega x arm, a rotation with omega x R, a quaternion with (0, omega / 2) q
    of_bodies, of_joints = velocities[:count], velocities[count:]
    half_omega = jnp.concatenate([jnp.zeros_like(of_bodies[:, :1]), 0.5 * of_bodies[:, :3]], axis=1)
    rates = {
        "xquat": quat_mul(half_omega, poses["xquat"]),
        "xanchor": of_joints[:, 3:] - cross(of_joints[:, :3], offset),
        "xaxis": cross(of_joints[:, :3], poses["xaxis"]),
    }
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
    """(njnt,) the last dof that moves the anchor of each joint and its axis, -1 if none does.

    The anchor of a free joint moves with its own translations.
    """
    first = topology.jnt_dofadr
    last = topology.dof_parentid[first]
    for group in groups(topology):
        if group.kind.free:
            last[group.joints] = first[group.joints] + 2
    return last


def _identity(qpos: Array, *poses: Array, topology: Topology, names: tuple[str, ...]) -> list[Array]:
    """The value: the poses as they are."""
    return list(poses)


def _derivative(
    primals: Sequence[Array], tangents: Sequence[Any], *, topology: Topology, names: tuple[str, ...]
) -> tuple[list[Array], list[Any]]:
    """The jvp; all arrays have the leading axes of batches."""
    qpos, (change, *pose_tangents) = primals[0], tangents
    poses = with_pose_rates_p.bind(*primals, topology=topology, names=names)
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
    return with_pose_rates_p.bind(*moved, topology=topology, names=names), [0] * len(names)


# Poses, computed at qpos (nq,), with `pose_rates` as their derivative with respect to qpos. A primitive and not
# `jax.custom_jvp`, which wants value and tangent with the same batch axes: the orientation of a sliding body is the
# same in all worlds, and its tangent is not.
with_pose_rates_p = Primitive("with_pose_rates")
RULES["with_pose_rates"] = lambda qpos, *poses, **params: poses
with_pose_rates_p.multiple_results = True
run_alone(with_pose_rates_p, _identity, ("topology", "names"))
with_pose_rates_p.def_abstract_eval(lambda qpos, *poses, topology, names: list(poses))
ad.primitive_jvps[with_pose_rates_p] = _derivative
batching.primitive_batchers[with_pose_rates_p] = _batch
mlir.register_lowering(with_pose_rates_p, mlir.lower_fun(_identity, multiple_results=True))
