"""Wrapping: many random paths against the oracle, and finite derivatives where the geometry is singular."""

import jax
import jax.numpy as jnp
import numpy as np
import oracle

from diffsim.kinematics.com import compute_com_frame
from diffsim.kinematics.joints import integrate_position
from diffsim.kinematics.poses import compute_kinematics
from diffsim.kinematics.tendon import compute_tendons
from diffsim.kinematics.wrap import wrap
from diffsim.types.data import Tendons
from tests.uncompiled import uncompiled

STATES = 200


def test_random_paths_match_oracle() -> None:
    model, mjmodel = oracle.load_pair("wrapping")

    def lengths(qpos: jax.Array) -> Tendons:
        poses = compute_kinematics(model, qpos, jnp.zeros((0, 3)), jnp.zeros((0, 4)))
        return compute_tendons(model, qpos, poses, compute_com_frame(model, poses))

    def both(qpos: jax.Array) -> tuple[Tendons, jax.Array]:
        # moment arms are the derivative of lengths in tangent coordinates
        move = jnp.zeros(model.nv)
        slope = jax.jacfwd(lambda v: lengths(integrate_position(model, qpos, v, jnp.ones(()))).ten_length)(move)
        return lengths(qpos), slope

    data = [oracle.mujoco.MjData(mjmodel) for _ in range(STATES)]
    for seed, one in enumerate(data):
        move = 0.2 * np.random.default_rng(seed).normal(size=mjmodel.nv)
        oracle.mujoco.mj_integratePos(mjmodel, one.qpos, move, 1.0)
        oracle.mujoco.mj_fwdPosition(mjmodel, one)
    paths, slopes = uncompiled(jax.vmap(both))(np.stack([one.qpos for one in data]))
    expected = [oracle.record_of(Tendons, mjmodel, one) for one in data]
    arms = np.stack([one.ten_J for one in expected])
    oracle.assert_close("ten_length", paths.ten_length, np.stack([one.ten_length for one in expected]), 1e-10)
    oracle.assert_close("ten_J", paths.ten_J, arms, 1e-10)
    # inside wraps touch within MuJoCo's search tolerance of the shortest path
    oracle.assert_close("slope", slopes, arms, 1e-5)
    touches = np.array([[one.ten_wrapnum[i] > 2 for i in range(6)] for one in data]).mean(axis=0)
    assert np.all((touches > 0.1) & (touches < 0.9)), touches


def test_singular_paths_have_finite_derivatives() -> None:
    ends = {
        "through the centre": [[-1, 0, 0], [1, 0, 0]],
        "starts at the centre": [[0, 0, 0], [1, 0, 0]],
        "coincident ends": [[0.5, 0.2, 0], [0.5, 0.2, 0]],
        "same direction": [[0.5, 0, 0], [1, 0, 0]],
        "tangent": [[-1, 0.1, 0], [1, 0.1, 0]],
        "on the surface": [[0.1, 0, 0], [0, 0.1, 0]],
        "along the axis": [[0, 0, -1], [0, 0, 1]],
    }
    sides = [[0.2, 0, 0], [0, 0, 0], [0.05, 0, 0], [0, 0, 0.3]]

    def total(ends: jax.Array, mat: jax.Array, radius: jax.Array, side: jax.Array, sphere: jax.Array) -> jax.Array:
        paths = [
            wrap(ends, jnp.zeros(3), mat, radius, sphere, place)
            for place in (*((side, jnp.array(there)) for there in (True, False)), None)
        ]
        return sum(jnp.sum(path.first + path.last) + path.length for path in paths)

    def check(*arguments: jax.Array) -> tuple[jax.Array, tuple[jax.Array, ...]]:
        return jax.value_and_grad(total, argnums=(0, 1, 2, 3))(*arguments)

    cases = [(e, s, r, f) for e in ends.values() for s in sides for r in (0.1, 0.0) for f in (False, True)]
    columns = [jnp.asarray(np.array(column, dtype=float)) for column in list(zip(*cases, strict=True))[:3]]
    spheres = jnp.asarray(np.array([case[3] for case in cases]))
    mats = jnp.broadcast_to(jnp.eye(3), (len(cases), 3, 3))
    results = uncompiled(jax.vmap(check))(columns[0], mats, columns[2], columns[1], spheres)
    for leaf in jax.tree.leaves(results):
        assert np.all(np.isfinite(leaf))
