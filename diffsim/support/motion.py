"""Jacobians of points, bodies, geoms and sites; motion of objects; momenta; products with M; inverse dynamics.

Vectors are in world axes unless stated otherwise; spatial vectors are (rotation, translation). Bodies, geoms and sites
are given by name, view or index; an index may be a traced value. `data` comes from `diffsim.forward`. Functions have
MuJoCo's names without `mj_`. Source: MuJoCo documentation, "API reference", support functions.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.base.checked import checked
from diffsim.base.enums import ObjType
from diffsim.constraint import laws
from diffsim.dynamics.bias import body_motion, newton_euler
from diffsim.kinematics.jacobian import Ids, forces_on_dofs, point_jacobian, rows_at
from diffsim.kinematics.joints import groups, integrate_position, position_difference
from diffsim.kinematics.tendon import TendonPoints, tendon_points
from diffsim.kinematics.tree import body_dof_mask, body_mask
from diffsim.math import safe
from diffsim.math.linalg import cholesky, solve_spd
from diffsim.math.spatial import cross_motion, inertia_mul, spatial_vector, transport_motion
from diffsim.math.vector import cross, matmul, mul_vec_t, scale
from diffsim.sensor.frame import FRAMES, reads_zero
from diffsim.simulate.arguments import check_shape
from diffsim.simulate.constants import set_const
from diffsim.solver.objective import constraint_force, residuals_at
from diffsim.types import Data, Model, State
from diffsim.types.data import Kinematics
from diffsim.types.kinds import OBJECT_KIND
from diffsim.types.topology import Topology, per_topology

# a name, a view or an index, which may be a traced value
Which = Any
# Jacobians of the velocity and of the angular velocity, (3, nv) each, in this order (mj_jac's jacp and jacr)
Jacobian = tuple[Array, Array]


@checked
def jac(model: Model, data: Data, point: Array, body: Which) -> Jacobian:
    """Jacobians (3, nv) of the velocity of a world point (3,) that moves with a body, and of its angular velocity."""
    check_shape("point", point, 3)
    body = model.topology.index("body", body)
    return point_jacobian(model, data, point, body)


@checked
def jac_body(model: Model, data: Data, body: Which) -> Jacobian:
    """Jacobians (3, nv) of a body's frame."""
    body = model.topology.index("body", body)
    return jac(model, data, data.xpos[body], body)


@checked
def jac_body_com(model: Model, data: Data, body: Which) -> Jacobian:
    """Jacobians (3, nv) of a body's centre of mass."""
    body = model.topology.index("body", body)
    return jac(model, data, data.xipos[body], body)


@checked
def jac_geom(model: Model, data: Data, geom: Which) -> Jacobian:
    """Jacobians (3, nv) of a geom's centre."""
    geom = model.topology.index("geom", geom)
    return jac(model, data, data.geom_xpos[geom], rows_at(model.topology.geom_bodyid, geom))


@checked
def jac_site(model: Model, data: Data, site: Which) -> Jacobian:
    """Jacobians (3, nv) of a site."""
    site = model.topology.index("site", site)
    return jac(model, data, data.site_xpos[site], rows_at(model.topology.site_bodyid, site))


@checked
def jac_subtree_com(model: Model, data: Data, body: Which) -> Array:
    """Jacobian (3, nv) of the centre of mass of a body and its descendants; zero if they have no mass."""
    body = model.topology.index("body", body)
    return safe.divide(_subtree_momentum(model, data, body)[:, 3:].T, model.body_subtreemass[body])


@checked
def angular_momentum_matrix(model: Model, data: Data, body: Which) -> Array:
    """(3, nv) matrix that maps qvel to the angular momentum of a subtree about its own centre of mass, kg m^2/s."""
    body = model.topology.index("body", body)
    topology = model.topology
    momentum = _subtree_momentum(model, data, body)
    offset = data.subtree_com[body] - data.subtree_com[rows_at(topology.body_rootid, body)]
    return (momentum[:, :3] - cross(jnp.broadcast_to(offset, (model.nv, 3)), momentum[:, 3:])).T


@checked
def jac_dot(model: Model, data: Data, point: Array, body: Which) -> Jacobian:
    """Time derivatives (3, nv) of the Jacobians `jac` of a point (3,) that moves with the body."""
    check_shape("point", point, 3)
    body = model.topology.index("body", body)
    topology = model.topology
    offset = point - data.subtree_com[rows_at(topology.body_rootid, body)]
    velocity = transport_motion(data.cvel[body], offset)[3:]
    # d/dt (linear + angular x offset) for each dof. The axes of ball and free joints rotate with the body that they
    # move; MuJoCo's cdof_dot does not include this
    turning = cross_motion(data.cvel[topology.dof_bodyid], data.cdof)
    axis_rate = jnp.where(_turns_with_body(topology)[:, None], turning, data.cdof_dot)
    shape = (model.nv, 3)
    turned = cross(axis_rate[:, :3], jnp.broadcast_to(offset, shape))
    translation = axis_rate[:, 3:] + turned + cross(data.cdof[:, :3], jnp.broadcast_to(velocity, shape))
    moves = rows_at(body_dof_mask(topology), body)
    return jnp.where(moves, translation.T, 0), jnp.where(moves, axis_rate[:, :3].T, 0)


@checked
def jac_point_axis(model: Model, data: Data, point: Array, axis: Array, body: Which) -> Jacobian:
    """Jacobians (3, nv) of a world point (3,) and of a world axis (3,) that move with a body (mj_jacPointAxis)."""
    check_shape("axis", axis, 3)
    of_point, rotation = jac(model, data, point, body)
    return of_point, cross(rotation.T, jnp.broadcast_to(axis, rotation.T.shape)).T


@checked
def apply_ft(model: Model, data: Data, force: Array, torque: Array, point: Array, body: Which) -> Array:
    """(nv,) generalized force of a world force and torque (3,) that act on a body at a world point (3,)."""
    for name, value in (("force", force), ("torque", torque), ("point", point)):
        check_shape(name, value, 3)
    body = model.topology.index("body", body)
    return forces_on_dofs(model, data, point[None], np.array([body]), force[None], torque[None])


@checked
def object_velocity(model: Model, data: Data, kind: ObjType, index: Which, local: bool = False) -> Array:
    """The angular and linear velocity of a body (its inertial frame), xbody, geom, site or camera.

    Args:
      model, data: the model, and the Data of a state.
      kind: the type of object, a key of `diffsim.sensor.frame.FRAMES`.
      index: name, view or index of the object.
      local: whether the result is in the object's axes instead of world axes.

    Returns:
      (6,) rad/s and m/s.
    """
    return _object_motion(model, data, data.cvel, kind, index, local, ~model.topology.body_moves)


@checked
def object_acceleration(model: Model, data: Data, kind: ObjType, index: Which, local: bool = False) -> Array:
    """The angular and linear acceleration of an object; as in MuJoCo, an object at rest accelerates upward with g.

    Args:
      model, data, kind, index, local: as for `object_velocity`.

    Returns:
      (6,) rad/s^2 and m/s^2.
    """
    acceleration = _object_motion(model, data, data.cacc, kind, index, local, reads_zero(model))
    velocity = object_velocity(model, data, kind, index, local)
    return acceleration + spatial_vector(jnp.zeros_like(velocity[:3]), cross(velocity[:3], velocity[3:]))


@checked
def tendon_paths(model: Model, data: Data | Kinematics) -> TendonPoints:
    """The points of all tendon paths: ten_wrapadr, ten_wrapnum, wrap_obj, wrap_xpos."""
    return tendon_points(model, data)


@checked
def differentiate_pos(model: Model, dt: Array | float, qpos1: Array, qpos2: Array) -> Array:
    """(nv,) the constant velocity that moves qpos1 to qpos2 (nq,) in the time dt."""
    check_shape("qpos1", qpos1, model.nq)
    check_shape("qpos2", qpos2, model.nq)
    return position_difference(model, qpos2, qpos1) / dt


@checked
def integrate_pos(model: Model, qpos: Array, qvel: Array, dt: Array | float) -> Array:
    """(nq,) the position after moving with the constant velocity qvel (nv,) for the time dt."""
    check_shape("qpos", qpos, model.nq)
    check_shape("qvel", qvel, model.nv)
    return integrate_position(model, qpos, qvel, jnp.asarray(dt, qpos.dtype))


@per_topology
def _turns_with_body(topology: Topology) -> np.ndarray:
    """(nv,) bool: the rotations of ball and free joints, whose axes are fixed to the body that they move."""
    turns = np.zeros(topology.nv, dtype=bool)
    for group in groups(topology):
        # joints with a quaternion
        if group.kind.nq > group.kind.nv:
            turns[group.dofs[:, np.array(group.kind.angular)]] = True
    return turns


def _subtree_momentum(model: Model, data: Data, body: Ids) -> Array:
    """(nv, 6) momentum of a body's subtree, per unit velocity of each dof, about its tree's centre of mass."""
    topology = model.topology
    # a dof above the body moves the whole subtree; a dof inside the subtree moves only its own descendants
    moves_body = rows_at(body_dof_mask(topology), body)
    inside = rows_at(body_mask(topology).T, body)[topology.dof_bodyid]
    inertia = jnp.where(jnp.asarray(moves_body)[:, None], data.crb[body][None], data.crb[topology.dof_bodyid])
    return scale(inertia_mul(inertia, data.cdof), jnp.asarray(moves_body | inside, data.cdof.dtype))


def _object_motion(
    model: Model, data: Data, motion: Array, kind: ObjType, which: Which, local: bool, zero: np.ndarray
) -> Array:
    """(6,) the motion of an object, given the motions (nbody, 6) of bodies about the centres of mass of their trees.

    `zero` (nbody,) is True for bodies whose objects do not move.
    """
    topology = model.topology
    frame = FRAMES[kind]
    index = topology.index(OBJECT_KIND[kind], which)
    body = index if frame.body is None else rows_at(getattr(topology, frame.body), index)
    offset = getattr(data, frame.position)[index] - data.subtree_com[rows_at(topology.body_rootid, body)]
    moved = transport_motion(motion[body], offset)
    if local:
        axes = getattr(data, frame.orientation)[index]
        moved = spatial_vector(mul_vec_t(axes, moved[:3]), mul_vec_t(axes, moved[3:]))
    return jnp.where(jnp.asarray(rows_at(zero, body)), 0, moved)


@checked
def full_m(model: Model, data: Data) -> Array:
    """The inertia matrix (nv, nv)."""
    return data.qM


@checked
def mul_m(model: Model, data: Data, vector: Array) -> Array:
    """M vector, (nv,) or (nv, k)."""
    return matmul(data.qM, vector)


@checked
def solve_m(model: Model, data: Data, vector: Array) -> Array:
    """M^-1 vector, (nv,) or (nv, k)."""
    return solve_spd(data.qM, vector)


@checked
def mul_m2(model: Model, data: Data, vector: Array) -> Array:
    """sqrt(D) L vector, (nv,) or (nv, k), with M = L^T D L, so that |result|^2 = vector^T M vector."""
    return matmul(_upper_root(data).T, vector)


@checked
def solve_m2(model: Model, data: Data, vector: Array) -> Array:
    """sqrt(D)^-1 L^-T vector, (nv,) or (nv, k), with M = L^T D L, so that |result|^2 = vector^T M^-1 vector."""
    return jax.scipy.linalg.solve_triangular(_upper_root(data), vector, lower=False)


def _upper_root(data: Data) -> Array:
    """L^T sqrt(D) (nv, nv), upper triangular, with M = L^T D L: the Cholesky factor of the dofs in reverse order."""
    return cholesky(data.qM[::-1, ::-1])[::-1, ::-1]


@checked
def rne(model: Model, state: State, data: Data, qacc: Array | None = None) -> Array:
    """(nv,) N or N m: the bias force c(qpos, qvel), plus M qacc if `qacc` is given (recursive Newton-Euler).

    As in MuJoCo, the armature of joints, tendons and actuators is not included.
    """
    if qacc is not None:
        check_shape("qacc", qacc, model.nv)
    return newton_euler(model.topology, body_motion(model, state.qvel, data, data), qacc)


@checked
def constraint_cost(model: Model, data: Data, qacc: Array) -> Array:
    """Cost () of the constraints at an acceleration (nv,): the sum of s(J qacc - aref), as in mj_constraintUpdate.

    The constrained acceleration minimizes this plus 1/2 (qacc - qacc_smooth)^T M (qacc - qacc_smooth).
    """
    check_shape("qacc", qacc, model.nv)
    rows = zip(data.efc.groups, residuals_at(data.efc, qacc), strict=True)
    return sum((jnp.sum(laws.cost(group, x)) for group, x in rows), jnp.zeros((), qacc.dtype))


@checked
def constraint_gradient(model: Model, data: Data, qacc: Array) -> Array:
    """(nv,) gradient of `constraint_cost`: minus the constraint force at this acceleration."""
    check_shape("qacc", qacc, model.nv)
    return -constraint_force(data.efc, qacc)


@checked
def total_mass(model: Model) -> Array:
    """The total mass of all bodies, kg."""
    return jnp.sum(model.body_mass)


@checked
def set_total_mass(model: Model, mass: Array | float) -> Model:
    """The model with all masses and inertias scaled so that the total mass is `mass`, kg, and constants recomputed."""
    factor = mass / total_mass(model)
    return set_const(model.replace(body_mass=model.body_mass * factor, body_inertia=model.body_inertia * factor))
