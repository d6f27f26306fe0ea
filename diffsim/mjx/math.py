"""Rotations and spatial vectors with the names and signatures of `mujoco.mjx._src.math`.

All functions take vectors and quaternions (w, x, y, z) and broadcast over leading axes. Their derivatives are finite
everywhere, as in `diffsim.math`.
"""

import jax.numpy as jnp
from jax import Array

from diffsim.math import rotation, safe, spatial
from diffsim.math.rotation import quat_conj
from diffsim.math.rotation import quat_mul as quat_mul
from diffsim.math.rotation import quat_sub as quat_sub
from diffsim.math.rotation import quat_to_mat as quat_to_mat
from diffsim.math.spatial import cross_force, cross_motion, inertia_mul
from diffsim.math.vector import cross, dot, mul_vec_t, scale

# functions that have another name in diffsim
quat_inv = quat_conj
inert_mul = inertia_mul
motion_cross = cross_motion
motion_cross_force = cross_force


def norm(x: Array, axis: int | tuple[int, ...] | None = None) -> Array:
    """The Euclidean norm of a vector, or along an axis; its derivative at zero is zero."""
    return safe.sqrt(jnp.sum(x * x, axis=axis))


def normalize_with_norm(x: Array, axis: int | None = None) -> tuple[Array, Array]:
    """Normalizes a vector; returns it with its original length. A zero vector stays zero."""
    length = norm(x, axis)
    return safe.divide(x, length if axis is None else jnp.expand_dims(length, axis)), length


def normalize(x: Array, axis: int | None = None) -> Array:
    """Normalizes a vector; a zero vector stays zero."""
    return normalize_with_norm(x, axis)[0]


def safe_div(num: Array, den: Array) -> Array:
    """num / den, and 0 where den is zero."""
    return safe.divide(num, den)


def matmul_unroll(a: Array, b: Array) -> Array:
    """The product of two small matrices."""
    return jnp.sum(a[..., :, :, None] * b[..., None, :, :], axis=-2)


def rotate(vec: Array, quat: Array) -> Array:
    """Rotates a vector by a quaternion."""
    return rotation.rotate(quat, vec)


def quat_mul_axis(q: Array, axis: Array) -> Array:
    """The product of a quaternion and the quaternion (0, axis)."""
    return quat_mul(q, jnp.concatenate([jnp.zeros_like(axis[..., :1]), axis], axis=-1))


def quat_to_axis_angle(q: Array) -> tuple[Array, Array]:
    """Converts a quaternion to unit axis (3,) and angle in (-pi, pi]; the axis of the identity is zero."""
    axis, sine = normalize_with_norm(q[..., 1:], axis=-1)
    angle = 2 * safe.arctan2(sine, q[..., 0])
    return axis, jnp.where(angle > jnp.pi, angle - 2 * jnp.pi, angle)


def axis_angle_to_quat(axis: Array, angle: Array) -> Array:
    """The quaternion of a rotation by an angle about a unit axis; the angle may have shape () or (1,)."""
    angle = jnp.asarray(angle)
    single = angle.ndim == axis.ndim and angle.shape[-1:] == (1,)
    return rotation.axis_angle_to_quat(axis, angle[..., 0] if single else angle)


def quat_integrate(q: Array, v: Array, dt: Array) -> Array:
    """Integrates an orientation for dt with angular velocity v (3,) in the frame of the body."""
    return rotation.quat_integrate(q, v, jnp.asarray(dt))


def sign(x: Array) -> Array:
    """-1 where x is negative, else 1."""
    return jnp.where(x < 0, -1, 1)


def transform_motion(vel: Array, offset: Array, rotmat: Array) -> Array:
    """Transforms a spatial motion (6,) to a frame at an offset whose axes are the columns of rotmat."""
    moved = spatial.transport_motion(vel, offset)
    return spatial.spatial_vector(mul_vec_t(rotmat, moved[..., :3]), mul_vec_t(rotmat, moved[..., 3:]))


def orthogonals(a: Array) -> tuple[Array, Array]:
    """Two unit vectors that form a right-handed orthonormal frame with a unit vector; zeros for a zero vector."""
    # Gram-Schmidt from y, or from z if the vector is close to y
    level = jnp.abs(a[..., 1:2]) < 0.5
    hint = jnp.where(level, jnp.array([0.0, 1.0, 0.0], a.dtype), jnp.array([0.0, 0.0, 1.0], a.dtype))
    across = normalize(hint - scale(a, dot(a, hint)), axis=-1) * jnp.any(a != 0, axis=-1, keepdims=True)
    return across, cross(a, across)


def make_frame(a: Array) -> Array:
    """A rotation matrix (3, 3) whose first row is the direction of a vector."""
    a = normalize(a, axis=-1)
    return jnp.stack([a, *orthogonals(a)], axis=-2)


def closest_segment_point(a: Array, b: Array, pt: Array) -> Array:
    """The point of the segment from a to b that is nearest to a point."""
    along = safe.divide(dot(pt - a, b - a), dot(b - a, b - a))
    return a + scale(b - a, safe.clip(along, 0, 1))


def closest_segment_point_and_dist(a: Array, b: Array, pt: Array) -> tuple[Array, Array]:
    """The point of the segment from a to b that is nearest to a point, and the squared distance."""
    nearest = closest_segment_point(a, b, pt)
    return nearest, dot(pt - nearest, pt - nearest)


def closest_segment_to_segment_points(a0: Array, a1: Array, b0: Array, b1: Array) -> tuple[Array, Array]:
    """The nearest points of two segments; for parallel segments, points near the middle of the first."""
    # With the lines m_a + s u and m_b + t v and the gap m_a - m_b, the squared distance is least at
    # s = ((u.v)(v.gap) - (v.v)(u.gap)) / ((u.u)(v.v) - (u.v)^2); for parallel lines s = 0. Clip s to the segment, then
    # project this point onto segment b, and the projection back onto segment a.
    middle = (a0 + a1) / 2
    gap = (a0 + a1 - b0 - b1) / 2
    u = (a1 - a0) / 2
    v = (b1 - b0) / 2
    uu = dot(u, u)
    uv = dot(u, v)
    vv = dot(v, v)
    numerator = uv * dot(v, gap) - vv * dot(u, gap)
    s = safe.clip(safe.divide(numerator, uu * vv - uv * uv), -1, 1)
    b = closest_segment_point(b0, b1, middle + scale(u, s))
    return closest_segment_point(a0, a1, b), b
