"""Orientations and frames on the host, in numpy float64.

MJCF gives an orientation as quat, axisangle, xyaxes, zaxis or euler; the compiled model has only unit quaternions
(w, x, y, z). The tolerances (1e-14, 1e-12) and the order of sums match MuJoCo's compiler, so that compiled fields
agree to rounding. Source: MuJoCo "Modeling", frame orientations; Eberly, eigenvectors by Jacobi sweeps.
"""

from collections.abc import Callable, Sequence
from math import atan, atan2, cos, pi, sin, sqrt
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from diffsim.base import changes

Vector = np.ndarray

# squared length below which a vector has no direction (mjEPS)
TINY = 1e-14
# off-diagonal element below which a matrix counts as diagonal (mju_eig3's eigEPS)
EIGEN_TINY = 1e-12
# the same since MuJoCo 3.14, relative to the largest element; found by trying C MuJoCo 4.0.0
EIGEN_RELATIVE = 5e-15
# zaxis counts as vertical if the sine of its angle to the z axis is below this (mjuu_z2quat)
VERTICAL = 1e-10
# Jacobi rotations after which MuJoCo gives up; a few are enough
MOST_ROTATIONS = 500
# the quaternion of no rotation
IDENTITY = (1.0, 0.0, 0.0, 0.0)


def unit(vector: ArrayLike) -> tuple[Vector, float]:
    """Unit vector and length. A vector shorter than 1e-7 is returned unchanged, with length 0."""
    vector = np.array(vector, float)
    square = float(vector @ vector)
    if square < TINY:
        return vector, 0.0
    length = sqrt(square)
    return (vector / length if abs(length - 1) > TINY else vector), length


def multiply(a: ArrayLike, b: ArrayLike) -> Vector:
    """The quaternion product a b: first the rotation b, then a."""
    aw, ax, ay, az = (float(x) for x in a)  # type: ignore[union-attr]
    bw, bx, by, bz = (float(x) for x in b)  # type: ignore[union-attr]
    return np.array(
        [
            aw * bw - ax * bx - ay * by - az * bz,
            aw * bx + ax * bw + ay * bz - az * by,
            aw * by - ax * bz + ay * bw + az * bx,
            aw * bz + ax * by - ay * bx + az * bw,
        ]
    )


def conjugate(quat: ArrayLike) -> Vector:
    """The inverse of a unit quaternion."""
    return np.array(quat, float) * (1.0, -1.0, -1.0, -1.0)


def matrix(quat: ArrayLike) -> Vector:
    """(3, 3) the rotation matrix of a unit quaternion."""
    w, x, y, z = (float(value) for value in quat)  # type: ignore[union-attr]
    return np.array(
        [
            [w * w + x * x - y * y - z * z, 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), w * w - x * x + y * y - z * z, 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), w * w - x * x - y * y + z * z],
        ]
    )


def rotate(quat: ArrayLike, vector: ArrayLike) -> Vector:
    """The vector rotated by the quaternion."""
    return matrix(quat) @ np.asarray(vector, float)


def compose(pos: ArrayLike, quat: ArrayLike, child_pos: ArrayLike, child_quat: ArrayLike) -> tuple[Vector, Vector]:
    """The pose of a child: (pos, quat) is its parent's pose, (child_pos, child_quat) its pose in the parent's frame."""
    return np.asarray(pos, float) + rotate(quat, child_pos), multiply(quat, child_quat)


def invert(pos: ArrayLike, quat: ArrayLike) -> tuple[Vector, Vector]:
    """The inverse of a pose."""
    inverse = conjugate(quat)
    return -rotate(inverse, pos), inverse


def from_axis_angle(axisangle: Sequence[float], degree: bool) -> Vector:
    """The quaternion of (axis, angle); the axis can have any length but 0. Raises ValueError."""
    axis, length = unit(axisangle[:3])
    if not length:
        raise ValueError("the axis of axisangle is zero")
    half = (axisangle[3] / 180.0 * pi if degree else axisangle[3]) / 2
    return np.array([cos(half), *(sin(half) * axis)])


def from_z_axis(zaxis: ArrayLike) -> Vector:
    """The quaternion of the smallest rotation from (0, 0, 1) to `zaxis`; about the x axis if they are opposite."""
    direction, length = unit(zaxis)
    if not length:
        raise ValueError("zaxis is zero")
    axis, sine = unit([-direction[1], direction[0], 0.0])
    if sine < VERTICAL:
        axis = np.array([1.0, 0.0, 0.0])
    half = atan2(sine, direction[2]) / 2
    return np.array([cos(half), *(sin(half) * axis)])


def from_axes(xyaxes: ArrayLike) -> Vector:
    """The quaternion of the frame with these x and y axes (6,), after the y axis is made orthogonal to x."""
    x, length_x = unit(np.asarray(xyaxes, float)[:3])
    if not length_x:
        raise ValueError("the x axis of xyaxes is zero")
    y = np.asarray(xyaxes, float)[3:]
    y, length_y = unit(y - x * float(x @ y))
    if not length_y:
        raise ValueError("the axes of xyaxes are parallel, or the second is zero")
    z, length_z = unit(np.cross(x, y))
    if not length_z:
        raise ValueError("the axes of xyaxes are parallel")
    return from_matrix(np.stack([x, y, z], axis=1))


def from_matrix(m: Vector) -> Vector:
    """The quaternion of a rotation matrix.

    The largest component follows from the diagonal. The others are divided by it, which is well conditioned.
    """
    trace = m[0, 0] + m[1, 1] + m[2, 2]
    antisymmetric = np.array([m[2, 1] - m[1, 2], m[0, 2] - m[2, 0], m[1, 0] - m[0, 1]])
    quat = np.zeros(4)
    if trace > 0:
        quat[0] = 0.5 * sqrt(1 + trace)
        quat[1:] = 0.25 * antisymmetric / quat[0]
    else:
        i = int(m[1, 1] >= m[0, 0])
        if m[2, 2] >= m[i, i]:
            i = 2
        j = (i + 1) % 3
        k = (i + 2) % 3
        quat[1 + i] = 0.5 * sqrt(1 + m[i, i] - m[j, j] - m[k, k])
        quat[0] = 0.25 * antisymmetric[i] / quat[1 + i]
        quat[1 + j] = 0.25 * (m[j, i] + m[i, j]) / quat[1 + i]
        quat[1 + k] = 0.25 * (m[k, i] + m[i, k]) / quat[1 + i]
    return unit(quat)[0]


def from_euler(euler: Sequence[float] | Vector, sequence: str, degree: bool) -> Vector:
    """The quaternion of three rotations; lower-case letters are axes of the moving frame, upper-case ones are fixed."""
    quat = np.array(IDENTITY)
    for angle, letter in zip(euler, sequence, strict=True):
        half = (angle / 180.0 * pi if degree else angle) / 2
        turn = np.array([cos(half), 0.0, 0.0, 0.0])
        turn[1 + "xyz".index(letter.lower())] = sin(half)
        quat = multiply(quat, turn) if letter.islower() else multiply(turn, quat)
    return unit(quat)[0]


def diagonalize(
    symmetric: Vector, mujoco: str = changes.DEFAULT, precision: float = EIGEN_RELATIVE
) -> tuple[Vector, Vector]:
    """Eigenvalues in decreasing order, and the quaternion of their axes.

    Jacobi's method: each rotation, in the plane of two axes, makes the largest off-diagonal element zero, and the
    product of all rotations is kept as a quaternion. If eigenvalues are equal, several sets of axes are right; the
    order of the rotations selects the one that MuJoCo finds (mju_eig3).

    Args:
      symmetric: (3, 3) the matrix.
      mujoco: the version of MuJoCo to follow. Since 3.14 axes of small inertias are as exact as others.
      precision: since 3.14, elements smaller than this times the largest count as zero.
    """
    relative = changes.follows(mujoco, "principal_axes")
    scale = float(np.abs(symmetric).max()) if relative else 1.0
    if scale > 0 and relative:
        symmetric = symmetric / scale
    quat = np.array(IDENTITY)
    d = symmetric
    for _ in range(MOST_ROTATIONS):
        axes = matrix(quat)
        d = product(product(axes.T, symmetric), axes)
        off = abs(d[0, 1]), abs(d[0, 2]), abs(d[1, 2])
        row, column = (0, 1) if off[0] > off[1] and off[0] > off[2] else (0, 2) if off[1] > off[2] else (1, 2)
        if abs(d[row, column]) < (precision if relative else EIGEN_TINY):
            break
        # tan(theta) is the smaller root of t^2 + 2 tau t - 1 = 0
        tau = (d[column, column] - d[row, row]) / (2 * d[row, column])
        tangent = 1 / (tau + sqrt(1 + tau * tau)) if tau >= 0 else -1 / (-tau + sqrt(1 + tau * tau))
        cosine = 1 / sqrt(1 + tangent * tangent)
        if cosine > 1 - EIGEN_TINY and not relative:
            break
        # the quaternion of the rotation by theta about the third axis
        axis = 3 - row - column
        half_sine = sin(atan(abs(tangent)) / 2) if relative else sqrt(0.5 - 0.5 * cosine)
        half_sine *= (-1 if tau >= 0 else 1) * (-1 if axis == 1 else 1)
        turn = np.zeros(4)
        turn[0] = sqrt(1 - half_sine * half_sine)
        turn[1 + axis] = half_sine
        quat = unit(multiply(quat, unit(turn)[0]))[0]
    # sort by three exchanges of neighbours, each a quarter turn about the third axis
    values = np.diag(d).copy()
    equal = max(EIGEN_TINY, precision) if relative else EIGEN_TINY
    for lead in (0, 1, 0):
        if values[lead] + equal < values[lead + 1]:
            values[[lead, lead + 1]] = values[[lead + 1, lead]]
            turn = np.zeros(4)
            # cosine and sine of 45 degrees, with MuJoCo's digits
            turn[0] = turn[(lead + 2) % 3 + 1] = 0.707106781186548
            quat = unit(multiply(quat, turn))[0]
    return values * scale, quat


def product(a: Vector, b: Vector) -> Vector:
    """(n, 3) the product of matrices (n, 3) and (3, 3), summed in MuJoCo's order.

    Rounding decides which axes are found for equal eigenvalues, and on which side of a sharp edge a point of an octree
    lies; in this order of summation, both are the same as in MuJoCo.
    """
    return a[:, :1] * b[:1] + a[:, 1:2] * b[1:2] + a[:, 2:] * b[2:]


def orientation_of(e: Any, settings: Any) -> Vector:
    """The unit quaternion of an element with quat, axisangle, xyaxes, zaxis or euler.

    Args:
      e: the element.
      settings: compiler settings, for the units of angles and the sequence of Euler angles.

    Raises:
      ValueError: an axis is zero, or two axes are parallel.
    """
    ways: dict[str, Callable[[Any], Vector]] = {
        "axisangle": lambda value: from_axis_angle(value, settings.degree),
        "xyaxes": from_axes,
        "zaxis": from_z_axis,
        "euler": lambda value: from_euler(value, settings.eulerseq, settings.degree),
    }
    for name, convert in ways.items():
        value = getattr(e, name, None)
        if value is not None:
            return convert(value)
    return unit(e.quat)[0]
