"""set_const: the derived constants of a model at its reference poses, computed by the physics of this package.

Masses of subtrees, inverse weights, lengths of tendons and actuators, camera and light offsets, relative poses of
equality constraints, damping from damping ratios, statistics. The function is pure and differentiable: after changing
masses or poses, `set_const(model.replace(body_mass=m))` makes the model consistent. `load` runs it in float64.

Source: MuJoCo mj_setConst, set0.
"""

import dataclasses
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.actuator.transmission import compute_transmission
from diffsim.base.checked import checked
from diffsim.base.enums import MINVAL, EqType, GeomType, ObjType
from diffsim.base.joints import dofs_angular
from diffsim.dynamics.inertia import compute_inertia, has_reflected
from diffsim.flex.material import material_fields
from diffsim.flex.points import edge_vertices
from diffsim.flex.rest_shape import rest_shape, shape_fields
from diffsim.geometry.rays.bvh import around, trees
from diffsim.kinematics.com import compute_com_frame
from diffsim.kinematics.poses import compute_kinematics
from diffsim.kinematics.tendon import compute_tendons
from diffsim.kinematics.tree import sum_subtree
from diffsim.math.rotation import quat_conj, quat_mul, quat_normalize, quat_to_mat, rotate, rotate_inv
from diffsim.math.safe import divide, norm, sqrt
from diffsim.simulate.inverse_weights import Fields, inverse_factor, inverse_weights, solve_lower, squared_lengths
from diffsim.types.data import ComFrame, Inertia, Kinematics, Tendons, Transmission
from diffsim.types.model import Model
from diffsim.types.state import make_inputs
from diffsim.xla.compiled import compiled

# m, radius that an infinite plane has in the statistics, until MuJoCo 3.10
LARGE_PLANE = 1.0
# m, the same since MuJoCo 3.10
SMALL_PLANE = 0.01
# m, lower bound of body sizes and of the extent
SMALLEST_SIZE = 1e-5


@checked
@compiled
def set_const(model: Model) -> Model:
    """The model with all derived constants computed again from its other fields.

    Args:
      model: any model; its `topology` does not change.

    Returns:
      A model whose derived fields (`body_subtreemass`, `body_invweight0`, `dof_M0`, `tendon_length0`, `actuator_acc0`,
      `cam_pos0`, `eq_data`, `flex_stiffness`, `mesh_leafvert`, `mesh_boxes`, `stat` ...) belong to its other fields. A
      positive `actuator_biasprm[:, 2]` of a position servo (a damping ratio) becomes damping, a `tendon_lengthspring`
      of -1 the length at `qpos_spring`.
    """
    computed = constants(model)
    stat = model.stat.replace(**computed.pop("stat"))
    return dataclasses.replace(model, stat=stat, **computed)


def constants(model: Model, meshes: bool = True) -> dict[str, Any]:
    """The derived fields alone, by name; fields of meshes only if `meshes` is True; `stat` is a dict of its own."""
    at_qpos0 = position(model, model.qpos0)
    kinematics, com, tendons, inertia, transmission = at_qpos0
    computed: dict[str, Any] = {"body_subtreemass": sum_subtree(model.topology, model.body_mass[:, None])[:, 0]}
    computed |= inverse_weights(model, *at_qpos0)
    computed |= {"tendon_length0": tendons.ten_length, "actuator_length0": transmission.actuator_length}
    computed |= _fixed_views(model, kinematics, com)
    # dof_M0 leaves out the armature of tendons
    plain = inertia
    if has_reflected(model.topology, "tendon_armature"):
        plain = compute_inertia(model, com, tendons.replace(ten_J=jnp.zeros_like(tendons.ten_J)))
    computed["dof_M0"] = plain.M.diagonal
    if meshes:
        computed |= around(trees(model.topology), model.mesh_vert)
    computed["eq_data"] = _relative_poses(model, kinematics)
    if model.opt.follows("dampratio"):
        reflected = _operational_inertia(inertia, transmission)
    else:
        reflected = _summed_inertia(computed["dof_M0"], transmission)
    computed["actuator_biasprm"] = _damping_from_ratio(model, reflected)
    if model.topology.nflex:
        rest = rest_shape(model, kinematics)
        computed |= shape_fields(model, rest)
        computed |= material_fields(model, rest, computed["flex_node0"])
    sizes = _body_sizes(model, kinematics)
    sizes = _with_flexes(model, kinematics, computed, sizes) if model.topology.nflex else sizes
    # 1 for translations, the body's size for rotations
    angular = dofs_angular(model.topology.jnt_type)
    computed["dof_length"] = jnp.where(angular, sizes[model.topology.dof_bodyid], 1.0)
    computed["tendon_lengthspring"] = _spring_lengths(model)
    computed["stat"] = {name: getattr(model.stat, name) for name in ("meaninertia", "meanmass", "meansize")}
    computed["stat"] |= _statistics(model, kinematics, inertia, sizes)
    return computed


class Position(NamedTuple):
    """The results of the stages that depend on positions only."""

    kinematics: Kinematics
    com: ComFrame
    tendons: Tendons
    inertia: Inertia
    transmission: Transmission


def position(model: Model, qpos: Array) -> Position:
    """The stages that depend on positions only, at qpos (nq,)."""
    inputs = make_inputs(model)
    kinematics = compute_kinematics(model, qpos, inputs.mocap_pos, inputs.mocap_quat)
    com = compute_com_frame(model, kinematics)
    tendons = compute_tendons(model, qpos, kinematics, com)
    inertia = compute_inertia(model, com, tendons)
    transmission = compute_transmission(model, qpos, kinematics, com, tendons)
    return Position(kinematics, com, tendons, inertia, transmission)


# ------------------------------------------------------------------------------------------- tendons and actuators


def _summed_inertia(inertia: Array, transmission: Transmission) -> Array:
    """(nu,) kg or kg m^2, the sum of dof_M0 / moment^2 over the dofs that an actuator moves."""
    square = transmission.actuator_moment**2
    reflected = jnp.where(square > MINVAL, divide(jnp.broadcast_to(inertia[None, :], square.shape), square), 0.0)
    return jnp.sum(reflected, axis=1)


def _operational_inertia(inertia: Inertia, transmission: Transmission) -> Array:
    """(nu,) kg or kg m^2, 1 / (J M^-1 J^T) with the moment J of an actuator."""
    if not inertia.M.blocks.size:
        return jnp.zeros(len(transmission.actuator_moment), transmission.actuator_moment.dtype)
    inverse = squared_lengths(solve_lower(inverse_factor(inertia.M), transmission.actuator_moment))
    return divide(jnp.ones_like(inverse), inverse)


def _damping_from_ratio(model: Model, reflected: Array) -> Array:
    """actuator_biasprm (nu, 10), in which damping ratios of position servos have become damping, with a minus sign.

    damping = 2 ratio sqrt(kp m), where m (nu,) is the inertia that the actuator moves.
    """
    kp = model.actuator_gainprm[:, 0]
    bias = model.actuator_biasprm
    damping = 2 * bias[:, 2] * sqrt(kp * reflected)
    has_ratio = (kp == -bias[:, 1]) & (bias[:, 2] > 0)
    return bias.at[:, 2].set(jnp.where(has_ratio, -damping, bias[:, 2]))


def _spring_lengths(model: Model) -> Array:
    """tendon_lengthspring (ntendon, 2), m; where it is (-1, -1), the length at qpos_spring."""
    if not model.topology.ntendon:
        return model.tendon_lengthspring
    inputs = make_inputs(model)
    qpos = model.qpos_spring
    kinematics = compute_kinematics(model, qpos, inputs.mocap_pos, inputs.mocap_quat)
    length = compute_tendons(model, qpos, kinematics, compute_com_frame(model, kinematics)).ten_length
    lower, upper = model.tendon_lengthspring[:, 0], model.tendon_lengthspring[:, 1]
    unset = (lower == -1) & (upper == -1)
    return jnp.where(unset[:, None], length[:, None], model.tendon_lengthspring)


# --------------------------------------------------------------------------------------- cameras, lights, equalities


def _fixed_views(model: Model, kinematics: Kinematics, com: ComFrame) -> Fields:
    """Positions of cameras and lights at qpos0 from their bodies and from the centres of mass that they follow, m, and
    their orientations; world axes.
    """
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
    """eq_data with the relative poses at qpos0 that connect and weld need; layout: mjcf/elements/constraints.py."""
    topology, data = model.topology, model.eq_data
    on_bodies = topology.eq_objtype == ObjType.BODY
    connect = (topology.eq_type == EqType.CONNECT) & on_bodies
    weld = (topology.eq_type == EqType.WELD) & on_bodies
    between_sites = (topology.eq_type == EqType.CONNECT) & ~on_bodies
    first = np.where(connect | weld, topology.eq_obj1id, 0)
    second = np.where(connect | weld, topology.eq_obj2id, 0)
    # the anchor is given in the frame of body 1 for a connect, and of body 2 for a weld
    anchored, other = np.where(weld, second, first), np.where(weld, first, second)
    anchor = kinematics.xpos[anchored] + rotate(kinematics.xquat[anchored], data[:, :3])
    anchor_in_other = rotate_inv(kinematics.xquat[other], anchor - kinematics.xpos[other])
    has_pose = jnp.any(data[:, 6:10] != 0, axis=1)
    relative = quat_mul(quat_conj(kinematics.xquat[first]), kinematics.xquat[second])
    quat = jnp.where(has_pose[:, None], quat_normalize(data[:, 6:10]), relative)
    completed = connect[:, None] | (weld[:, None] & ~has_pose[:, None])
    data = data.at[:, 3:6].set(jnp.where(completed, anchor_in_other, data[:, 3:6]))
    data = data.at[:, 6:10].set(jnp.where(weld[:, None], quat, data[:, 6:10]))
    return jnp.where(between_sites[:, None], 0.0, data)


# -------------------------------------------------------------------------------------------------------- statistics


def _body_sizes(model: Model, kinematics: Kinematics) -> Array:
    """(nbody,) m, from each body's centre of mass to its farthest geom, joint, or joint of a child."""
    topology = model.topology
    size = jnp.zeros_like(model.body_mass)
    for body in (topology.jnt_bodyid, topology.body_parentid[topology.jnt_bodyid]):
        size = size.at[body].max(norm(kinematics.xipos[body] - kinematics.xanchor))
    owner = topology.geom_bodyid
    reach = model.geom_rbound + norm(kinematics.xipos[owner] - kinematics.geom_xpos)
    size = size.at[owner].max(jnp.where(model.geom_rbound > 0, reach, 0.0))
    return jnp.maximum(size, SMALLEST_SIZE).at[0].set(0.0)


def _with_flexes(model: Model, kinematics: Kinematics, fields: Fields, size: Array) -> Array:
    """Body sizes with the edges of flexes that end on a body, and the distances between nodes of one flex."""
    topology = model.topology
    bodies = topology.flex_vertbodyid[edge_vertices(topology).T]
    on_bodies = np.flatnonzero((bodies >= 0).all(axis=1))
    for end in range(2):
        size = size.at[bodies[on_bodies, end]].max(fields["flexedge_length0"][on_bodies])
    for first, number in zip(topology.flex_nodeadr, topology.flex_nodenum, strict=True):
        nodes = topology.flex_nodebodyid[first : first + number]
        if number:
            pos = kinematics.xpos[nodes]
            distance = norm(pos[:, None] - pos[None])
            size = size.at[nodes].max(jnp.max(distance, axis=1))
    return size.at[0].set(0.0)


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

    If everything lies in one plane normal to x, the extent does not change, as in MuJoCo.
    """
    width = jnp.maximum(model.geom_size[:, 0], model.geom_size[:, 1])
    infinite = SMALL_PLANE if model.opt.follows("infinite_planes") else LARGE_PLANE
    plane = jnp.where(width > 0, 0.1 * width, infinite)
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
