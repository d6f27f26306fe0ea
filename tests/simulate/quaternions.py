"""Quaternions of any length in qpos, mocap poses, welds and sensors: a scene, and errors of two steps of it."""

from typing import NamedTuple

import jax
import numpy as np
from oracle import mujoco, state_of
from uncompiled import uncompiled

import diffsim

TURNING = """<mujoco><worldbody>
  <body pos="0 0 1"><freejoint/><geom type="ellipsoid" size=".1 .2 .3"/></body>
  <body><joint name="j" type="ball" stiffness="2" range="0 .5" damping=".1"/><geom size=".1" pos="2 0 0"/></body>
  <body name="m" mocap="true" pos="3 3 3"><geom size=".1"/></body>
  <body name="b" pos="3 3 3"><freejoint/><geom type="box" size=".1 .2 .3" contype="0"/></body></worldbody>
  <equality><weld body1="m" body2="b"/></equality>
  <sensor><framequat objtype="body" objname="m"/><ballquat joint="j"/></sensor></mujoco>"""
# decades of lengths: 1e-15 is the least length that MuJoCo normalizes
DECADES = (-300.0, 8.0)


class Comparison(NamedTuple):
    """Errors of random quaternions: how many states, and the largest error of positions, velocities and sensors."""

    states: int
    qpos: float
    qvel: float
    sensors: float


def compare(count: int, seed: int) -> Comparison:
    """Two steps, and sensors after them, of quaternions of random directions and lengths (float64)."""
    model, mjmodel = diffsim.load(TURNING), mujoco.MjModel.from_xml_string(TURNING)
    rng = np.random.default_rng(seed)
    # half of the lengths near the limit
    decade = np.where(
        rng.integers(2, size=(count, 4)), rng.uniform(-17, -13, (count, 4)), rng.uniform(*DECADES, (count, 4))
    )
    quat = rng.normal(size=(count, 4, 4)) * (rng.uniform(size=(count, 4)) > 0.05)[..., None] * 10.0 ** decade[..., None]
    theirs = []
    for quats in quat:
        data = mujoco.MjData(mjmodel)
        data.qpos[3:7], data.qpos[7:11], data.qpos[14:18], data.mocap_quat[0] = quats
        data.qvel[:] = rng.normal(size=mjmodel.nv)
        theirs.append(data)
    states = jax.tree.map(lambda *leaves: np.stack(leaves), *map(state_of, theirs))
    mocap = np.stack([data.mocap_quat for data in theirs])

    def move(state: diffsim.State, mocap_quat: jax.Array) -> tuple[diffsim.State, jax.Array]:
        inputs = diffsim.make_inputs(model).replace(mocap_quat=mocap_quat)
        after = diffsim.step(model, diffsim.step(model, state, inputs), inputs)
        return after, diffsim.forward(model, after, inputs).sensordata

    ours, readings = uncompiled(jax.vmap(move))(states, mocap)
    for data in theirs:
        mujoco.mj_step(mjmodel, data, 2)
        mujoco.mj_forward(mjmodel, data)
    columns = ((ours.qpos, "qpos"), (ours.qvel, "qvel"), (readings, "sensordata"))
    errors = [np.max(np.abs(found - np.stack([getattr(data, name) for data in theirs]))) for found, name in columns]
    return Comparison(count, *map(float, errors))
