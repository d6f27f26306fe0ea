"""costs: residuals that tasks are made of, a line each.

    box = model.body("box")
    task = optimize.make_task(
        model,
        running=lambda state, data, ctrl: costs.join(costs.effort(ctrl, 1.0), costs.limits(model, state, 0.1)),
        final=lambda state, data: costs.pose(data, box, (0.3, 0, 0.1), (1, 0, 0, 0), metres=0.01, radians=0.1),
    )

Each gives a vector r that costs 1/2 |r|^2, so that first derivatives are all that a method needs (Gauss-Newton). It is
divided by a scale, the deviation that costs 1/2: a centimetre and 0.1 radians above. Orientations differ by rotation
vectors, the tangent space of rotations, which depends on no choice of axes and jumps at half a turn alone.
"""

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from diffsim.base.joints import is_scalar
from diffsim.math import safe
from diffsim.math.rotation import quat_sub, rotate, rotate_inv
from diffsim.math.vector import cross, dot
from diffsim.support.rays import geom_distance
from diffsim.types import Data, Model, State
from diffsim.types.views import View

Which = str | int | View


def join(*residuals: Array) -> Array:
    """Several residuals as one vector."""
    return jnp.concatenate([jnp.ravel(residual) for residual in residuals])


def pose(
    data: Data,
    body: View,
    pos: ArrayLike | None = None,
    quat: ArrayLike | None = None,
    metres: float = 1.0,
    radians: float = 1.0,
) -> Array:
    """How far a body is from a pose, (6,), or (3,) if one of its parts is None.

    Args:
      data: from the task; body: `model.body(name)`.
      pos: (3,) where its frame shall be, m.
      quat: (4,) how it shall be turned; the difference is the rotation vector in the frame of the goal.
      metres, radians: scales.
    """
    parts = []
    if pos is not None:
        parts.append((body.xpos(data) - jnp.asarray(pos, data.xpos.dtype)) / metres)
    if quat is not None:
        parts.append(quat_sub(body.xquat(data), jnp.asarray(quat, data.xquat.dtype)) / radians)
    return join(*parts)


def relative_pose(data: Data, body: View, frame: View, metres: float = 1.0, radians: float = 1.0) -> Array:
    """How far a body is from another one, (6,): position and rotation vector in the frame of that."""
    away = rotate_inv(frame.xquat(data), body.xpos(data) - frame.xpos(data))
    return join(away / metres, quat_sub(body.xquat(data), frame.xquat(data)) / radians)


def look_at(data: Data, body: View, axis: ArrayLike, point: ArrayLike, radians: float = 1.0) -> Array:
    """How far an axis of a body points away from a point, (3,): a vector as long as the angle, 0 to pi.

    Args:
      axis: (3,) in the frame of the body, a unit vector.
      point: (3,) in the world, m.
    """
    along = rotate(body.xquat(data), jnp.asarray(axis, data.xpos.dtype))
    aim = safe.normalize(jnp.asarray(point, data.xpos.dtype) - body.xpos(data))
    normal = cross(along, aim)
    sine, cosine = safe.norm(normal), dot(along, aim)
    # straight away from the point every axis of turning is as good; angle / sine is 1 where it is aimed at
    ratio = safe.divide(safe.arctan2(sine, cosine), sine, 1.0)
    return normal * ratio / radians


def touch(model: Model, data: Data, geom: Which, other: Which, metres: float = 1.0) -> Array:
    """How far two geoms are apart, (1,), zero where they touch."""
    return jnp.ravel(safe.maximum(geom_distance(model, data, geom, other).distance, 0.0) / metres)


def clear(model: Model, data: Data, geom: Which, other: Which, gap: float, metres: float = 1.0) -> Array:
    """By how much two geoms are nearer than a gap (m), (1,), zero beyond it."""
    return jnp.ravel(safe.maximum(gap - geom_distance(model, data, geom, other).distance, 0.0) / metres)


def effort(ctrl: Array, scale: ArrayLike = 1.0) -> Array:
    """Controls (nu,) over a scale, one or (nu,)."""
    return ctrl / jnp.asarray(scale, ctrl.dtype)


def smooth(data: Data, scale: ArrayLike = 1.0) -> Array:
    """Accelerations (nv,) over a scale, one or (nv,): jerky motions cost."""
    return data.qacc / jnp.asarray(scale, data.qacc.dtype)


def slow(state: State, scale: ArrayLike = 1.0) -> Array:
    """Velocities (nv,) over a scale, one or (nv,)."""
    return state.qvel / jnp.asarray(scale, state.qvel.dtype)


def limits(model: Model, state: State, scale: ArrayLike = 1.0) -> Array:
    """By how much each slide and hinge with limits (n,) is outside of 95% of its range, m or rad, over a scale."""
    topology = model.topology
    chosen = is_scalar(topology.jnt_type) & (topology.jnt_limited != 0)
    place = state.qpos[topology.jnt_qposadr[chosen]]
    low, high = model.jnt_range[chosen].T
    rim = 0.025 * (high - low)
    return (safe.maximum(low + rim - place, 0.0) + safe.maximum(place - high + rim, 0.0)) / scale
