"""Quaternion and pose helpers of `diffsim.math` beside MuJoCo's, and their derivatives where these are delicate."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracle import mujoco
from uncompiled import uncompiled

import diffsim

RNG = np.random.default_rng(0)
QUATS = [q / np.linalg.norm(q) for q in RNG.normal(size=(6, 4))] + [np.eye(4)[i] for i in range(4)]
VECTORS = [*RNG.normal(size=(4, 3)), np.array([0.0, 0, 1]), np.array([0.0, 0, -1]), np.zeros(3)]


def test_mat_to_quat() -> None:
    to_quat = uncompiled(diffsim.math.mat_to_quat)
    there_and_back = uncompiled(jax.jacrev(lambda q: diffsim.math.mat_to_quat(diffsim.math.quat_to_mat(q))))
    for quat in QUATS:
        matrix, expected = np.zeros(9), np.zeros(4)
        mujoco.mju_quat2Mat(matrix, quat)
        mujoco.mju_mat2Quat(expected, matrix)
        ours = to_quat(matrix.reshape(3, 3))
        np.testing.assert_allclose(ours, expected, atol=1e-14)
        # there and back again is a projection, whose derivative is finite: also at half turns
        back = there_and_back(quat)
        sign = np.sign(ours @ quat)
        np.testing.assert_allclose(
            sign * back @ (np.eye(4) - np.outer(quat, quat)), np.eye(4) - np.outer(quat, quat), atol=1e-12
        )


@pytest.mark.parametrize("sequence", ["xyz", "XYZ", "zyx", "xZy"])
def test_euler_to_quat(sequence: str) -> None:
    angles, expected = RNG.normal(size=3), np.zeros(4)
    mujoco.mju_euler2Quat(expected, angles, sequence)
    np.testing.assert_allclose(diffsim.math.euler_to_quat(jnp.array(angles), sequence), expected, atol=1e-14)
    with pytest.raises(ValueError, match="three letters"):
        diffsim.math.euler_to_quat(jnp.array(angles), "xyw")


@pytest.mark.parametrize("vector", VECTORS)
def test_quat_z_to_vec(vector: np.ndarray) -> None:
    expected = np.zeros(4)
    mujoco.mju_quatZ2Vec(expected, vector)
    np.testing.assert_allclose(diffsim.math.quat_z_to_vec(jnp.array(vector)), expected, atol=1e-12)
    for derivative in (jax.jacfwd, jax.jacrev):
        assert np.all(np.isfinite(uncompiled(derivative(diffsim.math.quat_z_to_vec))(vector)))


@pytest.mark.parametrize("quat", QUATS[:7])
def test_rates_and_poses(quat: np.ndarray) -> None:
    omega, pos, expected = RNG.normal(size=3), RNG.normal(size=3), np.zeros(4)
    mujoco.mju_derivQuat(expected, quat, omega)
    np.testing.assert_allclose(diffsim.math.quat_derivative(jnp.array(quat), jnp.array(omega)), expected, atol=1e-14)
    velocity = np.zeros(3)
    mujoco.mju_quat2Vel(velocity, quat, 0.2)
    np.testing.assert_allclose(diffsim.math.quat_to_vel(jnp.array(quat), 0.2), velocity, atol=1e-12)
    first, second = (jnp.array(pos), jnp.array(quat)), (jnp.array(omega), jnp.array(QUATS[1]))
    place, turn = np.zeros(3), np.zeros(4)
    mujoco.mju_mulPose(place, turn, pos, quat, omega, QUATS[1])
    for ours, theirs in zip(diffsim.math.pose_mul(first, second), (place, turn), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-14)
    mujoco.mju_negPose(place, turn, pos, quat)
    for ours, theirs in zip(diffsim.math.pose_inv(first), (place, turn), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-14)
    mujoco.mju_trnVecPose(place, pos, quat, omega)
    moved = diffsim.math.pose_apply(first, jnp.array(omega))
    np.testing.assert_allclose(moved, place, atol=1e-14)
    np.testing.assert_allclose(diffsim.math.pose_apply_inv(first, moved), omega, atol=1e-14)
