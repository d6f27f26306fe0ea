"""costs: residuals for tasks, each in one line.

    box = model.body("box")
    task = optimize.make_task(
        model,
        running=lambda state, data, ctrl: costs.join(costs.effort(ctrl, 1.0), costs.limits(model, state, 0.1)),
        final=lambda state, data: costs.pose(data, box, (0.3, 0, 0.1), (1, 0, 0, 0), metres=0.01, radians=0.1),
    )

Each function returns a vector r of residuals. Its cost is 1/2 |r|^2, so that methods need only first derivatives
(Gauss-Newton). Residuals are divided by a scale: a deviation as large as the scale costs 1/2. In the example, the
scales are a centimetre and 0.1 radians. Differences of orientations are rotation vectors, which do not depend on a
choice of axes, and jump only at half a turn.
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

# `limits` has a cost in this fraction of a joint's range at each end
RIM = 0.025


def join(*residuals: Array) -> Array:
    """Joins several residuals to one vector."""
    return jnp.concatenate([jnp.ravel(residual) for residual in residuals])


def pose(
    data: Data,
    body: View,
    pos: ArrayLike | None = None,
    quat: ArrayLike | None = None,
    metres: float = 1.0,
    radians: float = 1.0,
) -> Array:
    """The difference between the pose of a body and a goal, (6,); or (3,) if position or orientation is None.

    Args:
      data: the Data that the task passes.
      body: `model.body(name)`.
      pos: (3,) goal for the position of its frame, m.
      quat: (4,) goal for its orientation; the difference is the rotation vector in the frame of the goal.
      metres: scale of the position.
      radians: scale of the orientation.

    Returns:
      Position first, then orientation.
    """
    parts = []
    if pos is not None:
        parts.append((body.xpos(data) - jnp.asarray(pos, data.xpos.dtype)) / metres)
    if quat is not None:
        parts.append(quat_sub(body.xquat(data), jnp.asarray(quat, data.xquat.dtype)) / radians)
    return join(*parts)


def relative_pose(data: Data, body: View, frame: View, metres: float = 1.0, radians: float = 1.0) -> Array:
    """The pose of `body` in the frame of another body, `frame`, (6,): position, then rotation vector."""
    away = rotate_inv(frame.xquat(data), body.xpos(data) - frame.xpos(data))
    return join(away / metres, quat_sub(body.xquat(data), frame.xquat(data)) / radians)


def look_at(data: Data, body: View, axis: ArrayLike, point: ArrayLike, radians: float = 1.0) -> Array:
    """The rotation vector (3,) between an axis of a body and the direction to a point; its length is 0 to pi.

    Args:
      data: the Data that the task passes.
      body: `model.body(name)`.
      axis: (3,) unit vector in the frame of the body.
      point: (3,) in the world, m.
      radians: scale.
    """
    along = rotate(body.xquat(data), jnp.asarray(axis, data.xpos.dtype))
    aim = safe.normalize(jnp.asarray(point, data.xpos.dtype) - body.xpos(data))
    normal = cross(along, aim)
    sine = safe.norm(normal)
    cosine = dot(along, aim)
    # angle / sine tends to 1 if the axis points at the point; if it points in the opposite direction, the rotation axis
    # is undefined
    ratio = safe.divide(safe.arctan2(sine, cosine), sine, 1.0)
    return normal * ratio / radians


def touch(model: Model, data: Data, geom: Which, other: Which, metres: float = 1.0) -> Array:
    """The distance between two geoms, (1,); zero if they touch."""
    return jnp.ravel(safe.maximum(geom_distance(model, data, geom, other).distance, 0.0) / metres)


def clear(model: Model, data: Data, geom: Which, other: Which, gap: float, metres: float = 1.0) -> Array:
    """By how much the distance of two geoms is less than a gap (m), (1,); zero if they are further apart."""
    return jnp.ravel(safe.maximum(gap - geom_distance(model, data, geom, other).distance, 0.0) / metres)


def effort(ctrl: Array, scale: ArrayLike = 1.0) -> Array:
    """Controls (nu,) divided by a scale, a number or (nu,)."""
    return ctrl / jnp.asarray(scale, ctrl.dtype)


def smooth(data: Data, scale: ArrayLike = 1.0) -> Array:
    """Accelerations (nv,) divided by a scale, a number or (nv,). They make jerky motions cost more."""
    return data.qacc / jnp.asarray(scale, data.qacc.dtype)


def slow(state: State, scale: ArrayLike = 1.0) -> Array:
    """Velocities (nv,) divided by a scale, a number or (nv,)."""
    return state.qvel / jnp.asarray(scale, state.qvel.dtype)


def limits(model: Model, state: State, scale: ArrayLike = 1.0) -> Array:
    """How far limited slides and hinges (n,) are outside of the middle 95% of their ranges, in units of `scale`."""
    topology = model.topology
    chosen = is_scalar(topology.jnt_type) & (topology.jnt_limited != 0)
    place = state.qpos[topology.jnt_qposadr[chosen]]
    low, high = model.jnt_range[chosen].T
    rim = RIM * (high - low)
    return (safe.maximum(low + rim - place, 0.0) + safe.maximum(place - high + rim, 0.0)) / scale
