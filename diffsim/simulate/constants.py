"""set_const: what the model needs to know of itself at its reference poses, by our own physics.

Masses of subtrees, inverse weights (the diagonal of J M^-1 J^T that scales soft constraints), lengths of tendons and
actuators, camera and light offsets, relative poses of equality constraints, damping from damping ratios, statistics.
Pure and differentiable: after changing masses or poses, `set_const(model.replace(body_mass=m))` makes the model whole
again. Runs once per load, in float64. Source: MuJoCo mj_setConst; "Computation", constraint model (diagApprox).
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.actuator.transmission import compute_transmission
from diffsim.enums import EqType, GeomType, ObjType
from diffsim.joints import dofs_angular, dofs_block
from diffsim.math.linalg import cholesky
from diffsim.math.rotation import quat_conj, quat_mul, quat_normalize, quat_to_mat, rotate, rotate_inv
from diffsim.math.safe import divide, norm, sqrt
from diffsim.math.vector import cross
from diffsim.physics.com import compute_com_frame
from diffsim.physics.inertia import compute_inertia
from diffsim.physics.kinematics import compute_kinematics
from diffsim.physics.tendon import compute_tendons
from diffsim.physics.tree import body_dof_mask, body_mask
from diffsim.types.data import ComFrame, Inertia, Kinematics, Tendons, Transmission
from diffsim.types.model import Model
from diffsim.types.state import make_inputs
from diffsim.types.topology import Topology, per_topology

Array = jax.Array
Fields = dict[str, Array]

MINIMUM = 1e-15
SMALLEST_SIZE = 1e-5


def set_const(model: Model) -> Model:
    """The model with all derived constants computed again from its other fields.

    Args:
      model: any model; its `topology` does not change.

    Returns:
      A model whose derived fields (`body_subtreemass`, `body_invweight0`, `dof_M0`, `tendon_length0`, `actuator_acc0`,
      `cam_pos0`, `eq_data`, `stat` ...) belong to its other fields. A positive `actuator_biasprm[:, 2]` of a position
      servo (a damping ratio) becomes damping, a `tendon_lengthspring` of -1 the length at `qpos_spring`.
    """
    found = constants(model)
    stat = model.stat.replace(**found.pop("stat"))
    return dataclasses.replace(model, stat=stat, **found)


def constants(model: Model) -> dict[str, Any]:
    """The derived fields alone, by name; `stat` is a dict of its own."""
    kinematics, com, tendons, inertia, transmission = position(model, model.qpos0)
    factor = cholesky(inertia.qM)
    found: dict[str, Any] = {"body_subtreemass": _subtree_sums(model.topology, model.body_mass)}
    found |= _inverse_weights(model, kinematics, com, factor)
    found |= _lengths(model, tendons, transmission, factor)
    found |= _fixed_views(model, kinematics, com)
    found["dof_M0"] = _own_inertia(model, com, tendons)
    found["eq_data"] = _relative_poses(model, kinematics)
    found["actuator_biasprm"] = _damping_from_ratio(model, transmission, found["dof_M0"])
    sizes = _body_sizes(model, kinematics)
    found["dof_length"] = _dof_lengths(model, sizes)
    found["tendon_lengthspring"] = _spring_lengths(model)
    found["stat"] = {name: getattr(model.stat, name) for name in ("meaninertia", "meanmass", "meansize")}
    found["stat"] |= _statistics(model, kinematics, inertia, sizes)
    return found


def position(model: Model, qpos: Array) -> tuple[Kinematics, ComFrame, Tendons, Inertia, Transmission]:
    """The position stage at a configuration."""
    inputs = make_inputs(model)
    kinematics = compute_kinematics(model, qpos, inputs.mocap_pos, inputs.mocap_quat)
    com = compute_com_frame(model, kinematics)
    tendons = compute_tendons(model, qpos, kinematics, com)
    inertia = compute_inertia(model, com, tendons)
    return kinematics, com, tendons, inertia, compute_transmission(model, qpos, kinematics, com, tendons)


def _subtree_sums(topology: Topology, values: Array) -> Array:
    """Sum of a body quantity over each body's subtree."""
    return jnp.sum(jnp.where(body_mask(topology), values[:, None], 0.0), axis=0)


# ------------------------------------------------------------------------------------------------ inverse weights


def _inverse_weights(model: Model, kinematics: Kinematics, com: ComFrame, factor: Array) -> Fields:
    """body_invweight0 (translation, rotation at the center of mass) and dof_invweight0, means over axes.

    With M = L L^T, the diagonal of J M^-1 J^T is the squared length of the columns of L^-1 J^T.
    """
    topology = model.topology
    if not topology.nv:
        return {"body_invweight0": jnp.zeros_like(model.body_invweight0), "dof_invweight0": model.dof_invweight0}
    inverse = jax.scipy.linalg.solve_triangular(factor, jnp.eye(topology.nv, dtype=factor.dtype), lower=True)
    diagonal = jnp.sum(inverse**2, axis=0)
    point, turn = _body_jacobians(model, kinematics, com)
    mean_point, mean_turn = (_mean_weight(inverse, jacobian) for jacobian in (point, turn))
    by_mass = 1 / jnp.maximum(model.body_mass, MINIMUM)
    slides = topology.body_simple == 2
    moving = topology.body_weldid > 0
    weight = jnp.stack(
        [jnp.where(slides, by_mass, mean_point), jnp.where(slides, 0.0, mean_turn)],
        axis=1,
    )
    return {
        "body_invweight0": jnp.where(moving[:, None], weight, 0.0),
        "dof_invweight0": _joint_means(
            topology, jnp.where(slides[topology.dof_bodyid], by_mass[topology.dof_bodyid], diagonal)
        ),
    }


def _body_jacobians(model: Model, kinematics: Kinematics, com: ComFrame) -> tuple[Array, Array]:
    """Jacobians (nbody, nv, 3) of each body's center of mass and of its rotation, world axes."""
    topology = model.topology
    center = com.subtree_com[topology.body_rootid]
    offset = (kinematics.xipos - center)[:, None, :]
    turn, slide = com.cdof[None, :, :3], com.cdof[None, :, 3:]
    shape = (topology.nbody, topology.nv, 3)
    turn, slide, offset = (jnp.broadcast_to(value, shape) for value in (turn, slide, offset))
    moved = body_dof_mask(topology)[:, :, None]
    return jnp.where(moved, slide + cross(turn, offset), 0.0), jnp.where(moved, turn, 0.0)


def _mean_weight(inverse: Array, jacobian: Array) -> Array:
    """Mean over the axes of the diagonal of J M^-1 J^T, for each body."""
    flat = jnp.moveaxis(jacobian, 1, 0).reshape(inverse.shape[0], -1)
    squares = jnp.sum(jnp.matmul(inverse, flat, precision=jax.lax.Precision.HIGHEST) ** 2, axis=0)
    x, y, z = jnp.moveaxis(squares.reshape(-1, 3), 1, 0)
    return (x + y + z) / 3


@per_topology
def _joint_groups(topology: Topology) -> np.ndarray:
    """(nv, nv) weights that average over the dofs of a joint which belong together."""
    block = dofs_block(topology.jnt_type)
    same = block[:, None] == block[None, :]
    return same / np.maximum(same.sum(axis=1, keepdims=True), 1)


def _joint_means(topology: Topology, values: Array) -> Array:
    """Mean over the translations of a free joint, over its rotations, over the axes of a ball."""
    weights = jnp.asarray(_joint_groups(topology), values.dtype)
    return jnp.sum(weights * values[None, :], axis=1)


# ------------------------------------------------------------------------------------------- tendons and actuators


def _lengths(model: Model, tendons: Tendons, transmission: Transmission, factor: Array) -> Fields:
    """Lengths at qpos0, J M^-1 J^T of tendons, |M^-1 moment| of actuators."""
    weight, acceleration = jnp.zeros_like(tendons.ten_length), jnp.zeros_like(transmission.actuator_length)
    if model.topology.nv:
        half = jax.scipy.linalg.solve_triangular(factor, tendons.ten_J.T, lower=True)
        weight = jnp.sum(half**2, axis=0)
        solved = jax.scipy.linalg.cho_solve((factor, True), transmission.actuator_moment.T)
        acceleration = norm(solved.T)
    return {
        "tendon_length0": tendons.ten_length,
        "tendon_invweight0": weight,
        "actuator_length0": transmission.actuator_length,
        "actuator_acc0": acceleration,
    }


def _own_inertia(model: Model, com: ComFrame, tendons: Tendons) -> Array:
    """dof_M0: the inertia that a dof alone moves, armature of joints and actuators included, of tendons not."""
    slack = tendons.replace(ten_J=jnp.zeros_like(tendons.ten_J))
    return compute_inertia(model, com, slack).M.diagonal


def _damping_from_ratio(model: Model, transmission: Transmission, own: Array) -> Array:
    """Position servos: damping = 2 ratio sqrt(kp m), m the inertia seen through the transmission."""
    gain, bias = model.actuator_gainprm[:, 0], model.actuator_biasprm
    square = transmission.actuator_moment**2
    seen = jnp.where(square > MINIMUM, divide(jnp.broadcast_to(own[None, :], square.shape), square), 0.0)
    damping = 2 * bias[:, 2] * sqrt(gain * jnp.sum(seen, axis=1))
    ratio = (gain == -bias[:, 1]) & (bias[:, 2] > 0)
    return bias.at[:, 2].set(jnp.where(ratio, -damping, bias[:, 2]))


def _spring_lengths(model: Model) -> Array:
    """tendon_lengthspring, where it is not given the length at qpos_spring."""
    if not model.topology.ntendon:
        return model.tendon_lengthspring
    length = position(model, model.qpos_spring)[2].ten_length
    lower, upper = model.tendon_lengthspring[:, 0], model.tendon_lengthspring[:, 1]
    unset = (lower == -1) & (upper == -1)
    return jnp.where(unset[:, None], length[:, None], model.tendon_lengthspring)


# --------------------------------------------------------------------------------------- cameras, lights, equalities


def _fixed_views(model: Model, kinematics: Kinematics, com: ComFrame) -> Fields:
    """Where cameras and lights are at qpos0 relative to their body and to the center of mass that they follow."""
    topology = model.topology
    camera, light = topology.cam_bodyid, topology.light_bodyid
    camera_pos = rotate(kinematics.xquat[camera], model.cam_pos)
    light_pos = rotate(kinematics.xquat[light], model.light_pos)
    camera_com = com.subtree_com[np.where(topology.cam_targetbodyid >= 0, topology.cam_targetbodyid, camera)]
    light_com = com.subtree_com[np.where(topology.light_targetbodyid >= 0, topology.light_targetbodyid, light)]
    turned = quat_to_mat(quat_mul(kinematics.xquat[camera], quat_normalize(model.cam_quat)))
    return {
        "cam_pos0": camera_pos,
        "cam_poscom0": kinematics.xpos[camera] + camera_pos - camera_com,
        "cam_mat0": turned.reshape(topology.ncam, 9),
        "light_pos0": light_pos,
        "light_poscom0": kinematics.xpos[light] + light_pos - light_com,
        "light_dir0": rotate(kinematics.xquat[light], model.light_dir),
    }


def _relative_poses(model: Model, kinematics: Kinematics) -> Array:
    """eq_data with what connect and weld constraints take from qpos0; see mjcf/elements/equality.py for the layout."""
    topology, data = model.topology, model.eq_data
    on_bodies = topology.eq_objtype == ObjType.BODY
    connect = (topology.eq_type == EqType.CONNECT) & on_bodies
    weld = (topology.eq_type == EqType.WELD) & on_bodies
    between_sites = (topology.eq_type == EqType.CONNECT) & ~on_bodies
    first = np.where(connect | weld, topology.eq_obj1id, 0)
    second = np.where(connect | weld, topology.eq_obj2id, 0)
    here, there = np.where(weld, second, first), np.where(weld, first, second)
    anchor = kinematics.xpos[here] + rotate(kinematics.xquat[here], data[:, :3])
    opposite = rotate_inv(kinematics.xquat[there], anchor - kinematics.xpos[there])
    given = jnp.any(data[:, 6:10] != 0, axis=1)
    relative = quat_mul(quat_conj(kinematics.xquat[first]), kinematics.xquat[second])
    quat = jnp.where(given[:, None], quat_normalize(data[:, 6:10]), relative)
    completed = connect[:, None] | (weld[:, None] & ~given[:, None])
    data = data.at[:, 3:6].set(jnp.where(completed, opposite, data[:, 3:6]))
    data = data.at[:, 6:10].set(jnp.where(weld[:, None], quat, data[:, 6:10]))
    return jnp.where(between_sites[:, None], 0.0, data)


# -------------------------------------------------------------------------------------------------------- statistics


def _body_sizes(model: Model, kinematics: Kinematics) -> Array:
    """A length for each body: the farthest joint (its own or a child's) or geom from its center of mass."""
    topology = model.topology
    size = jnp.zeros_like(model.body_mass)
    for body in (topology.jnt_bodyid, topology.body_parentid[topology.jnt_bodyid]):
        size = size.at[body].max(norm(kinematics.xipos[body] - kinematics.xanchor))
    owner = topology.geom_bodyid
    reach = model.geom_rbound + norm(kinematics.xipos[owner] - kinematics.geom_xpos)
    size = size.at[owner].max(jnp.where(model.geom_rbound > 0, reach, 0.0))
    return jnp.maximum(size, SMALLEST_SIZE).at[0].set(0.0)


def _dof_lengths(model: Model, sizes: Array) -> Array:
    """1 for translations, the body's size for rotations."""
    return jnp.where(dofs_angular(model.topology.jnt_type), sizes[model.topology.dof_bodyid], 1.0)


def _statistics(model: Model, kinematics: Kinematics, inertia: Inertia, sizes: Array) -> Fields:
    """stat: bounding box of everything at qpos0, mean size, mass and inertia."""
    bodies = max(model.topology.nbody - 1, 1)
    center, extent = _bounding_box(model, kinematics)
    # without bodies there is nothing to average over: MuJoCo's defaults
    mean_size = jnp.sum(sizes) / bodies if model.topology.nbody > 1 else model.stat.meansize
    stat = {"center": center, "extent": jnp.maximum(extent, 2 * mean_size), "meansize": mean_size}
    stat["meanmass"] = jnp.sum(model.body_mass[1:]) / bodies
    if model.topology.nv:
        stat["meaninertia"] = jnp.sum(inertia.M.diagonal) / model.topology.nv
    if model.topology.nbody == 1:
        del stat["meansize"], stat["meanmass"]
    return stat


def _bounding_box(model: Model, kinematics: Kinematics) -> tuple[Array, Array]:
    """Center and longest side of the box around everything; a plane counts with a tenth of its size.

    Where all is in one plane across x, MuJoCo keeps the extent that was there.
    """
    width = jnp.maximum(model.geom_size[:, 0], model.geom_size[:, 1])
    plane = jnp.where(width > 0, 0.1 * width, 1.0)
    flat = model.topology.geom_type == GeomType.PLANE
    radius = jnp.where(model.geom_rbound > 0, model.geom_rbound, jnp.where(flat, plane, 0.0))
    points = [kinematics.xpos[1:], kinematics.xipos[1:], kinematics.xanchor, kinematics.site_xpos]
    lower = jnp.concatenate([*points, kinematics.geom_xpos - radius[:, None]])
    upper = jnp.concatenate([*points, kinematics.geom_xpos + radius[:, None]])
    if not len(lower):
        return jnp.zeros_like(model.stat.center), model.stat.extent
    lower, upper = jnp.min(lower, axis=0), jnp.max(upper, axis=0)
    extent = jnp.maximum(jnp.max(upper - lower), SMALLEST_SIZE)
    return (lower + upper) / 2, jnp.where(upper[0] > lower[0], extent, model.stat.extent)
