"""Rotations and poses: unit quaternions (w, x, y, z), rotation matrices, rotation vectors, positions with quaternions.

All functions act on the last axis (the last two for matrices) and broadcast over the leading ones. The exponential and
logarithm use series near zero, so values and derivatives are finite at the identity. A pose is a position (3,), m, and
a unit quaternion (4,); it maps points of a frame to its parent. The MuJoCo function that does the same is in brackets.
"""

import jax
import jax.numpy as jnp
from jax import Array

from diffsim.math import safe
from diffsim.math.vector import (
    Components,
    cross,
    cross_components,
    dot,
    dot_components,
    pack,
    scale,
    unpack,
)
from diffsim.xla.barriers import stored
from diffsim.xla.bilinear import Rule, bilinear


def quat_mul(p: Array, q: Array) -> Array:
    """(..., 4) Hamilton product p q: the rotation q followed by p (mju_mulQuat)."""
    return _product(p, q)


def quat_conj(q: Array) -> Array:
    """(..., 4) inverse of a unit quaternion."""
    return q * jnp.asarray([1, -1, -1, -1], q.dtype).reshape((1,) * (q.ndim - 1) + (4,))


def rotate(q: Array, v: Array) -> Array:
    """v rotated by the unit quaternion q: v + 2 w (u x v) + 2 u x (u x v)."""
    w = q[..., :1]
    u = q[..., 1:]
    t = 2 * cross(u, v)
    return v + w * t + cross(u, t)


def rotate_inv(q: Array, v: Array) -> Array:
    """v (..., 3) rotated by the inverse of the unit quaternion q (..., 4)."""
    return rotate(quat_conj(q), v)


# length of the shortest quaternion that is normalized; a shorter one counts as the identity (mjMINVAL)
SHORTEST = 1e-15
# squared length below which a quaternion in float32 is first multiplied by LIFT. Otherwise the powers of its length
# that derivatives need would overflow.
SMALL = 1e-12
# a power of two, so that nothing is rounded
LIFT = 2.0**40


def quat_normalize(q: Array) -> Array:
    """(..., 4) q / |q|; the identity, with zero derivative, where |q| < 1e-15 (mju_normalize4).

    Its derivatives are tangent to the unit sphere.
    """
    valid = dot(q, q) > SHORTEST**2
    q = scale(q, _lift(q))
    squared = dot(q, q)
    unit = scale(q, jax.lax.rsqrt(jnp.where(valid, squared, 1)))
    identity = jnp.asarray([1, 0, 0, 0], q.dtype)
    return jnp.where(valid[..., None], unit, jnp.broadcast_to(identity, q.shape))


def _lift(q: Array) -> Array:
    """(...) a power of two that makes the powers of |q| in derivatives representable; 1 unless q is very short."""
    # float64 represents all powers of the shortest length: its square is 1e-30
    return jnp.where(dot(q, q) < SMALL, LIFT, 1) if q.dtype == jnp.float32 else jnp.ones_like(q[..., 0])


def quat_to_mat(q: Array) -> Array:
    """Rotation matrix (..., 3, 3) of a unit quaternion."""
    w, x, y, z = unpack(q)
    ww = w * w
    xx = x * x
    yy = y * y
    zz = z * z
    entries = [
        *(ww + xx - yy - zz, 2 * (x * y - w * z), 2 * (x * z + w * y)),
        *(2 * (x * y + w * z), ww - xx + yy - zz, 2 * (y * z - w * x)),
        *(2 * (x * z - w * y), 2 * (y * z + w * x), ww - xx - yy + zz),
    ]
    return pack(entries).reshape(*w.shape, 3, 3)


def axis_angle_to_quat(axis: Array, angle: Array) -> Array:
    """Rotation by `angle` (rad) about the unit vector `axis`."""
    half = 0.5 * angle
    return jnp.concatenate([jnp.cos(half)[..., None], scale(axis, jnp.sin(half))], axis=-1)


def quat_exp(rotvec: Array) -> Array:
    """(..., 4) unit quaternion of a rotation vector (..., 3): (cos(t/2), sin(t/2) rotvec / t), t = |rotvec|."""
    squared = dot(rotvec, rotvec)
    # cos(t/2) and sin(t/2) / t as Taylor series in t^2: below the threshold they are exact to rounding, and unlike
    # sqrt(t^2) they have a derivative at 0
    large = squared > 1e-3
    half = 0.5 * jnp.sqrt(jnp.where(large, squared, 1))
    cosine = jnp.where(large, jnp.cos(half), 1 - squared / 8 + squared**2 / 384 - squared**3 / 46080)
    sinc = jnp.where(
        large,
        0.5 * jnp.sin(half) / half,
        0.5 * (1 - squared / 24 + squared**2 / 1920 - squared**3 / 322560),
    )
    return jnp.concatenate([cosine[..., None], scale(rotvec, sinc)], axis=-1)


def quat_log(q: Array) -> Array:
    """(..., 3) rotation vector r of a unit quaternion, with |r| <= pi: the shorter way round."""
    # q and -q are the same rotation: take the one with w >= 0
    q = jnp.where(jax.lax.stop_gradient(q[..., :1]) < 0, -q, q)
    w = q[..., 0]
    u = q[..., 1:]
    squared = dot(u, u)
    large = squared > 1e-6
    length = jnp.sqrt(jnp.where(large, squared, 1))
    # with s = |u|: atan(s / w) / s = 1/w - s^2 / (3 w^3) + s^4 / (5 w^5) for small s, where w is near 1
    safe_w = jnp.where(large, 1, w)
    inverse = 1 / safe_w
    series = inverse * (1 - squared * inverse**2 / 3 + squared**2 * inverse**4 / 5)
    ratio = jnp.where(large, jnp.arctan2(length, w) / length, series)
    return scale(u, 2 * ratio)


def quat_sub(a: Array, b: Array) -> Array:
    """(..., 3) rotation vector, in the frame of b, that takes b to a: log(b^-1 a)."""
    return quat_log(quat_mul(quat_conj(b), a))


def quat_integrate(q: Array, omega: Array, dt: Array) -> Array:
    """q after rotating with the local angular velocity omega (rad/s) for dt: q / |q| exp(omega dt).

    As in MuJoCo (mju_quatIntegrate), q is normalized first, so a q of length 0 turns like the identity.
    """
    return quat_mul(quat_normalize(q), quat_exp(scale(omega, jnp.broadcast_to(dt, omega.shape[:-1]))))


def quat_rate(q: Array, change: Array) -> Array:
    """Local angular velocity of the rotation q / |q| as q changes: the vector part of 2 (q* change) / |q|^2.

    Zero where q counts as the identity, like the derivative of `quat_normalize`.
    """
    valid = dot(q, q) > SHORTEST**2
    lift = _lift(q)
    q = scale(q, lift)
    change = scale(change, lift)
    squared = dot(q, q)
    return scale(_left_conjugated(q, change)[..., 1:], jnp.where(valid, 2 / jnp.where(valid, squared, 1), 0))


# squared angle below which `rotvec_rate` uses a series instead of a quotient of two small numbers, rad^2
SMALL_TURN = 1e-2


def rotvec_rate(rotvec: Array, omega: Array) -> Array:
    """(..., 3) dr/dt of a rotation vector r, while the rotation exp(r) turns with the local angular velocity omega.

        dr/dt = omega + r x omega / 2 + c r x (r x omega),   c = (1 - (a / 2) cot(a / 2)) / a^2,   a = |r|

    This applies the inverse of the right Jacobian of the exponential map (Chirikjian 2011, section 10.3). It is
    singular at full turns, a = 2 pi.
    """
    squared = dot(rotvec, rotvec)
    small = squared < SMALL_TURN
    angle = jnp.sqrt(jnp.where(small, 1, squared))
    quotient = (1 - 0.5 * angle / jnp.tan(0.5 * angle)) / jnp.where(small, 1, squared)
    series = 1 / 12 + squared / 720 + squared**2 / 30240 + squared**3 / 1209600
    turned = cross(rotvec, omega)
    return omega + 0.5 * turned + scale(cross(rotvec, turned), jnp.where(small, series, quotient))


def frame_from_z(z: Array) -> Array:
    """Right-handed orthonormal matrix (..., 3, 3): first row z, second row along `axis_far_from(z)`, across z."""
    return frame_along(unpack(z), unpack(axis_far_from(z)))


def axis_far_from(z: Array) -> Array:
    """(..., 3) the y axis, or the z axis where |z_y| >= 0.5 (mju_makeFrame); the choice is not differentiated."""
    steep = jnp.abs(jax.lax.stop_gradient(z[..., 1])) >= 0.5
    zero = jnp.zeros_like(z[..., 0])
    one = jnp.ones_like(z[..., 0])
    return pack([zero, jnp.where(steep, zero, one), jnp.where(steep, one, zero)])


def frame_along(z: Components, hint: Components) -> Array:
    """Right-handed orthonormal matrix (..., 3, 3) with rows z, t, z x t, where t is the direction of `hint` across z.

    Both arguments are components (`unpack`). If the hint is along z, it has no part across z; then the second row is
    the y axis, with zero derivative.
    """
    part = across(z, hint)
    squared = dot_components(part, part)
    valid = squared > safe.tiny(squared)
    shrink = stored(jax.lax.rsqrt(jnp.where(valid, squared, 1)))
    first = [jnp.where(valid, x * shrink, instead) for x, instead in zip(part, (0.0, 1.0, 0.0), strict=True)]
    return jnp.stack([pack(row) for row in (z, first, cross_components(z, first))], axis=-2)


def across(z: Components, hint: Components) -> list[Array]:
    """The part of `hint` that is normal to the unit vector z; takes and returns components (`unpack`)."""
    along = stored(dot_components(z, hint))
    return [x - along * n for x, n in zip(hint, z, strict=True)]


AXES = {"x": (1.0, 0.0, 0.0), "y": (0.0, 1.0, 0.0), "z": (0.0, 0.0, 1.0)}


def mat_to_quat(matrix: Array) -> Array:
    """The quaternion of a rotation matrix (..., 3, 3), with its largest component positive (mju_mat2Quat).

    The entries of the matrix 4 q q^T are sums of entries of the rotation matrix, and its row k is 4 q_k q. So q is the
    row with the largest q_k, normalized; this row loses the fewest digits. The choice is not differentiated.
    """
    xx, xy, xz, yx, yy, yz, zx, zy, zz = unpack(matrix.reshape(*matrix.shape[:-2], 9))
    # the entries 4 q_i q_j of the matrix, off the diagonal and on it
    qwx = zy - yz
    qwy = xz - zx
    qwz = yx - xy
    qxy = xy + yx
    qxz = xz + zx
    qyz = yz + zy
    squares = [1 + xx + yy + zz, 1 + xx - yy - zz, 1 - xx + yy - zz, 1 - xx - yy + zz]
    quaternion = pack([squares[0], qwx, qwy, qwz])
    largest = squares[0]
    rows = [[qwx, squares[1], qxy, qxz], [qwy, qxy, squares[2], qyz], [qwz, qxz, qyz, squares[3]]]
    for square, row in zip(squares[1:], rows, strict=True):
        larger = jax.lax.stop_gradient(square > largest)
        quaternion = jnp.where(larger[..., None], pack(row), quaternion)
        largest = jnp.where(larger, square, largest)
    return quat_normalize(quaternion)


def euler_to_quat(euler: Array, sequence: str = "xyz") -> Array:
    """The quaternion of three angles (..., 3), rad (mju_euler2Quat).

    Args:
      euler: angles about the axes of `sequence`, in this order.
      sequence: three letters: x, y, z for axes that move with the frame, X, Y, Z for fixed axes.

    Raises:
      ValueError: the sequence is not three of these letters.
    """
    if len(sequence) != 3 or set(sequence.lower()) - set(AXES):
        raise ValueError(f"sequence must be three letters of xyz or XYZ, got {sequence!r}")
    quat = None
    for letter, angle in zip(sequence, unpack(euler), strict=True):
        axis = jnp.broadcast_to(jnp.asarray(AXES[letter.lower()], euler.dtype), (*angle.shape, 3))
        turn = axis_angle_to_quat(axis, angle)
        quat = turn if quat is None else quat_mul(quat, turn) if letter.islower() else quat_mul(turn, quat)
    return quat  # type: ignore[return-value]


def quat_z_to_vec(vector: Array) -> Array:
    """The shortest rotation from the z axis to a vector (..., 3); half a turn about x for -z (mju_quatZ2Vec)."""
    # the quaternion of the rotation from a to b is (1 + a.b, a x b), normalized
    x, y, z = unpack(safe.normalize(vector, (0.0, 0.0, 1.0)))
    return safe.normalize(pack([1 + z, -y, x, jnp.zeros_like(x)]), (0.0, 1.0, 0.0, 0.0))


def quat_derivative(quat: Array, omega: Array) -> Array:
    """d quat / dt (..., 4) = (0, omega) quat / 2, for an angular velocity in the parent's axes (..., 3), rad/s.

    As mju_derivQuat. For an angular velocity in the rotating frame's axes, exchange the two factors.
    """
    zero = jnp.zeros_like(omega[..., :1])
    return 0.5 * quat_mul(jnp.concatenate([zero, omega], axis=-1), quat)


def quat_to_vel(quat: Array, dt: Array | float) -> Array:
    """The angular velocity (..., 3), rad/s, that makes the rotation `quat` in dt seconds (mju_quat2Vel)."""
    turned = quat_log(quat)
    return scale(turned, jnp.broadcast_to(1 / jnp.asarray(dt, quat.dtype), turned.shape[:-1]))


# position (3,), m, and unit quaternion (4,)
Pose = tuple[Array, Array]


def pose_mul(first: Pose, second: Pose) -> Pose:
    """The composition of two poses: pose `second`, given in frame `first`, in the parent of `first` (mju_mulPose)."""
    return first[0] + rotate(first[1], second[0]), quat_mul(first[1], second[1])


def pose_inv(pose: Pose) -> Pose:
    """The inverse pose: the parent's pose in the frame (mju_negPose)."""
    return -rotate_inv(pose[1], pose[0]), quat_conj(pose[1])


def pose_apply(pose: Pose, point: Array) -> Array:
    """A point (3,) of the frame in its parent's coordinates (mju_trnVecPose)."""
    return pose[0] + rotate(pose[1], point)


def pose_apply_inv(pose: Pose, point: Array) -> Array:
    """A point (3,) of the parent in the frame's coordinates."""
    return rotate_inv(pose[1], point - pose[0])


def _multiplied(p: Components, q: Components) -> Array:
    """The Hamilton product p q from components."""
    pw, px, py, pz = p
    qw, qx, qy, qz = q
    return pack(
        [
            pw * qw - px * qx - py * qy - pz * qz,
            pw * qx + px * qw + py * qz - pz * qy,
            pw * qy - px * qz + py * qw + pz * qx,
            pw * qz + px * qy - py * qx + pz * qw,
        ]
    )


def _conjugated(q: Array) -> Components:
    """The components of q*."""
    w, *u = unpack(q)
    return [w, *(-x for x in u)]


# The inner products <p q, c> = <p, c q*> = <q, p* c> are equal for any quaternions. So the transpose of each of these
# three products is another of them, and each is one primitive for JAX.
_product = bilinear(
    "quaternion_product",
    Rule(
        lambda p, q: _multiplied(unpack(p), unpack(q)),
        4,
        left=lambda c, q: _right_conjugated(c, q),
        right=lambda c, p: _left_conjugated(p, c),
    ),
)
_right_conjugated = bilinear(
    "quaternion_product_right_conjugated",
    Rule(
        lambda p, q: _multiplied(unpack(p), _conjugated(q)),
        4,
        left=lambda c, q: _product(c, q),
        right=lambda c, p: _left_conjugated(c, p),
    ),
)
_left_conjugated = bilinear(
    "quaternion_product_left_conjugated",
    Rule(
        lambda p, q: _multiplied(_conjugated(p), unpack(q)),
        4,
        left=lambda c, q: _right_conjugated(q, c),
        right=lambda c, p: _product(p, c),
    ),
)
