"""Support functions against the oracle's, from its own state."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest
from oracle import mujoco

import diffsim
from diffsim.enums import ObjType
from diffsim.simulate import support
from diffsim.types.data import Kinematics
from tests.physics import stages

BAR = 1e-10


@pytest.fixture(scope="module")
def scene() -> tuple[diffsim.Model, diffsim.Data, Any, Any]:
    model, mjmodel = stages.load("smooth")
    data = oracle.sample(mjmodel, 1)
    mujoco.mj_rnePostConstraint(mjmodel, data)
    ours = jax.jit(diffsim.forward)(model, oracle.state_of(data), oracle.inputs_of(data))
    return model, ours, mjmodel, data


def test_jacobians(scene: tuple) -> None:
    model, ours, mjmodel, data = scene
    point = np.array([0.3, -0.2, 0.5])
    calls = {
        "body": (support.jac_body, mujoco.mj_jacBody, mjmodel.nbody),
        "com": (support.jac_body_com, mujoco.mj_jacBodyCom, mjmodel.nbody),
        "geom": (support.jac_geom, mujoco.mj_jacGeom, mjmodel.ngeom),
        "site": (support.jac_site, mujoco.mj_jacSite, mjmodel.nsite),
    }
    first, second = np.zeros((3, mjmodel.nv)), np.zeros((3, mjmodel.nv))
    for name, (function, theirs, count) in calls.items():
        # traced indices serve all objects at once
        found = jax.jit(jax.vmap(lambda i, f=function: f(model, ours, i)))(jnp.arange(count))
        for i in range(count):
            theirs(mjmodel, data, first, second, i)
            oracle.assert_close(f"{name} translation", found[0][i], first, BAR)
            oracle.assert_close(f"{name} rotation", found[1][i], second, BAR)
    bodies = jnp.arange(mjmodel.nbody)
    at_point = [
        jax.jit(jax.vmap(lambda i, f=f: f(model, ours, jnp.asarray(point), i)))(bodies)
        for f in (support.jac, support.jac_dot)
    ]
    centres, momenta = (
        jax.jit(jax.vmap(lambda i, f=f: f(model, ours, i)))(bodies)
        for f in (support.jac_subtree_com, support.angular_momentum_matrix)
    )
    for i in range(1, mjmodel.nbody):
        for found, theirs in zip(at_point, (mujoco.mj_jac, mujoco.mj_jacDot), strict=True):
            theirs(mjmodel, data, first, second, point, i)
            oracle.assert_close("jac translation", found[0][i], first, BAR * 10)
            oracle.assert_close("jac rotation", found[1][i], second, BAR * 10)
        mujoco.mj_jacSubtreeCom(mjmodel, data, first, i)
        # the oracle divides by the mass of massless subtrees
        if mjmodel.body_subtreemass[i]:
            oracle.assert_close("jac_subtree_com", centres[i], first, BAR)
        mujoco.mj_angmomMat(mjmodel, data, first, i)
        oracle.assert_close("angular_momentum_matrix", momenta[i], first, BAR)


def test_inertia_and_forces(scene: tuple) -> None:
    model, ours, mjmodel, data = scene
    vector = np.random.default_rng(0).normal(size=mjmodel.nv)
    full = oracle.field_of("qM", mjmodel, data)
    oracle.assert_close("full_m", support.full_m(model, ours), full, BAR)
    oracle.assert_close("mul_m", support.mul_m(model, ours, vector), full @ vector, BAR)
    oracle.assert_close("solve_m", support.solve_m(model, ours, vector), np.linalg.solve(full, vector), 1e-7)
    force, torque, point = np.random.default_rng(1).normal(size=(3, 3))
    for body in (0, 3, mjmodel.nbody - 1):
        expected = np.zeros(mjmodel.nv)
        mujoco.mj_applyFT(mjmodel, data, force, torque, point, body, expected)
        oracle.assert_close("apply_ft", support.apply_ft(model, ours, force, torque, point, body), expected, BAR)


def test_object_motion(scene: tuple) -> None:
    model, ours, mjmodel, data = scene
    counts = {ObjType.BODY: mjmodel.nbody, ObjType.XBODY: mjmodel.nbody, ObjType.GEOM: mjmodel.ngeom}
    counts |= {ObjType.SITE: mjmodel.nsite, ObjType.CAMERA: mjmodel.ncam}
    expected = np.zeros(6)
    for kind, count in counts.items():
        for local in (False, True):
            for i in range(0, count, 3):
                mujoco.mj_objectVelocity(mjmodel, data, kind, i, expected, int(local))
                value = support.object_velocity(model, ours, kind, i, local)
                oracle.assert_close(f"velocity {kind}", value, expected, BAR)
                mujoco.mj_objectAcceleration(mjmodel, data, kind, i, expected, int(local))
                value = support.object_acceleration(model, ours, kind, i, local)
                oracle.assert_close(f"acceleration {kind}", value, expected, 1e-7 * (1 + np.abs(expected).max()))


def test_positions(scene: tuple) -> None:
    model, _, mjmodel, data = scene
    velocity = np.random.default_rng(2).normal(size=mjmodel.nv)
    moved = data.qpos.copy()
    mujoco.mj_integratePos(mjmodel, moved, velocity, 0.3)
    ours = support.integrate_pos(model, jnp.asarray(data.qpos), velocity, 0.3)
    oracle.assert_close("integrate_pos", ours, moved, BAR)
    back = np.zeros(mjmodel.nv)
    mujoco.mj_differentiatePos(mjmodel, back, 0.3, data.qpos, moved)
    oracle.assert_close("differentiate_pos", support.differentiate_pos(model, 0.3, data.qpos, moved), back, BAR)


STATES = ("mjSTATE_PHYSICS", "mjSTATE_USER", "mjSTATE_INTEGRATION", "mjSTATE_QVEL")


@pytest.mark.parametrize("bits", [int(getattr(mujoco.mjtState, name)) for name in STATES])
def test_state_vectors(scene: tuple, bits: int) -> None:
    model, _, mjmodel, data = scene
    state, inputs = oracle.state_of(data), oracle.inputs_of(data)
    expected = np.zeros(mujoco.mj_stateSize(mjmodel, bits))
    mujoco.mj_getState(mjmodel, data, expected, bits)
    vector = support.get_state(model, state, inputs, bits)
    oracle.assert_close("get_state", vector, expected, 0.0)
    start = support.reset(model)
    again = support.get_state(model, *support.set_state(model, *start, vector, bits), bits)
    oracle.assert_close("set_state", again, expected, 0.0)
    with pytest.raises(ValueError, match="elements"):
        support.set_state(model, *start, vector[1:], bits)


def test_contact_forces() -> None:
    model, mjmodel = oracle.load_pair("contact_dims")
    data = oracle.visited_states(mjmodel, 2)[-1]
    ours = jax.jit(diffsim.forward)(model, oracle.state_of(data), oracle.inputs_of(data))
    total = np.abs(oracle.contact_forces_of(mjmodel, data)[:, 0]).sum()
    assert np.abs(np.asarray(support.contact_force(model, ours))[:, 0]).sum() == pytest.approx(total, rel=1e-4)


WRAPPED = """<mujoco><worldbody><site name="a" pos="-.5 0 .3"/><site name="b" pos=".6 0 .3"/>
  <site name="c" pos="1 0 0"/>
  <geom name="ball" size=".2" pos="0 0 {height}"/><body pos="0 0 1"><joint name="j"/><geom size=".1"/>
  <site name="d" pos=".3 0 0"/></body></worldbody>
  <tendon><spatial><site site="a"/><geom geom="ball"/><site site="b"/><site site="d"/><pulley divisor="2"/>
    <site site="b"/><site site="c"/></spatial><fixed><joint joint="j" coef="1"/></fixed>
    <spatial><site site="c"/><geom geom="ball"/><site site="a"/></spatial></tendon></mujoco>"""


@pytest.mark.parametrize("path", ["wrapping", WRAPPED.format(height=0.3), WRAPPED.format(height=-1)])
def test_tendon_paths(path: str) -> None:
    model, mjmodel = oracle.load_pair(path)
    find = jax.jit(lambda kinematics: support.tendon_paths(model, kinematics))
    for seed in range(3):
        data = oracle.sample(mjmodel, seed)
        ours = find(oracle.record_of(Kinematics, mjmodel, data))
        count = int(data.ten_wrapnum.sum())
        assert count and int(ours.ten_wrapnum.sum()) == count
        spatial = data.ten_wrapnum > 0
        np.testing.assert_array_equal(ours.ten_wrapnum, data.ten_wrapnum)
        np.testing.assert_array_equal(ours.ten_wrapadr[spatial], data.ten_wrapadr[spatial])
        np.testing.assert_array_equal(ours.wrap_obj[:count], data.wrap_obj.ravel()[:count])
        oracle.assert_close("wrap_xpos", ours.wrap_xpos[:count], data.wrap_xpos.reshape(-1, 3)[:count], BAR)
        assert len(ours.wrap_obj) == data.wrap_obj.size
