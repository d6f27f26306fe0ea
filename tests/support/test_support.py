"""Support functions against the oracle's, from its own state."""

import copy
import io
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest
from oracle import mujoco
from uncompiled import uncompiled

import diffsim
from diffsim import support
from diffsim.base.enums import ObjType
from diffsim.types.data import Kinematics
from tests.kinematics import stages

BAR = 1e-10


@pytest.fixture(scope="module")
def scene() -> tuple[diffsim.Model, diffsim.Data, Any, Any]:
    model, mjmodel = stages.load("smooth")
    data = oracle.sample(mjmodel, 1)
    mujoco.mj_rnePostConstraint(mjmodel, data)
    ours = uncompiled(diffsim.forward)(model, oracle.state_of(data), oracle.inputs_of(data))
    return model, jax.tree.map(jnp.asarray, ours), mjmodel, data


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
        found = uncompiled(jax.vmap(lambda i, f=function: f(model, ours, i)))(jnp.arange(count))
        for i in range(count):
            theirs(mjmodel, data, first, second, i)
            oracle.assert_close(f"{name} translation", found[0][i], first, BAR)
            oracle.assert_close(f"{name} rotation", found[1][i], second, BAR)
    bodies = jnp.arange(mjmodel.nbody)
    at_point = [
        uncompiled(jax.vmap(lambda i, f=f: f(model, ours, jnp.asarray(point), i)))(bodies)
        for f in (support.jac, support.jac_dot)
    ]
    centres, momenta = (
        uncompiled(jax.vmap(lambda i, f=f: f(model, ours, i)))(bodies)
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
    ours = uncompiled(support.integrate_pos)(model, data.qpos, velocity, 0.3)
    oracle.assert_close("integrate_pos", ours, moved, BAR)
    back = np.zeros(mjmodel.nv)
    mujoco.mj_differentiatePos(mjmodel, back, 0.3, data.qpos, moved)
    ours = uncompiled(support.differentiate_pos)(model, 0.3, data.qpos, moved)
    oracle.assert_close("differentiate_pos", ours, back, BAR)


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
    ours = uncompiled(diffsim.forward)(model, oracle.state_of(data), oracle.inputs_of(data))
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
    find = uncompiled(lambda kinematics: support.tendon_paths(model, kinematics))
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


def test_sizes_of_state_vectors(scene: tuple) -> None:
    model, _, mjmodel, _ = scene
    for bit in range(13):
        assert support.state_size(model, 1 << bit) == mujoco.mj_stateSize(mjmodel, 1 << bit)


def test_square_roots_of_m(scene: tuple) -> None:
    model, ours, mjmodel, data = scene
    vector, expected = np.random.default_rng(3).normal(size=mjmodel.nv), np.zeros((1, mjmodel.nv))
    mujoco.mj_mulM2(mjmodel, data, expected[0], vector)
    oracle.assert_close("mul_m2", support.mul_m2(model, ours, vector), expected[0], BAR)
    mujoco.mj_solveM2(mjmodel, data, expected, vector[None], 1 / np.sqrt(diagonal_factor(mjmodel, data))[None])
    oracle.assert_close("solve_m2", support.solve_m2(model, ours, vector), expected[0], 1e-8)


def diagonal_factor(mjmodel: Any, data: Any) -> np.ndarray:
    """D of M = L^T D L, which the oracle keeps inverted."""
    return 1 / data.qLDiagInv


def test_newton_euler(scene: tuple) -> None:
    model, ours, mjmodel, data = scene
    expected = np.zeros(mjmodel.nv)
    for with_acceleration in (0, 1):
        mujoco.mj_rne(mjmodel, data, with_acceleration, expected)
        qacc = ours.qacc if with_acceleration else None
        if with_acceleration:
            data.qacc[:] = ours.qacc
            mujoco.mj_rne(mjmodel, data, 1, expected)
        value = support.rne(model, oracle.state_of(data), ours, qacc)
        oracle.assert_close("rne", value, expected, 1e-8)


def test_point_and_axis(scene: tuple) -> None:
    model, ours, mjmodel, data = scene
    point, axis = np.array([0.3, -0.2, 0.5]), np.array([0.0, 0.6, 0.8])
    moved, turned = np.zeros((3, mjmodel.nv)), np.zeros((3, mjmodel.nv))
    body = mjmodel.nbody - 1
    mujoco.mj_jacPointAxis(mjmodel, data, moved, turned, point, axis, body)
    first, second = support.jac_point_axis(model, ours, jnp.array(point), jnp.array(axis), model.body(body))
    oracle.assert_close("point", first, moved, BAR)
    oracle.assert_close("axis", second, turned, BAR)


def test_total_mass(scene: tuple) -> None:
    model, _, mjmodel, _ = scene
    np.testing.assert_allclose(support.total_mass(model), mujoco.mj_getTotalmass(mjmodel))
    heavier, theirs = uncompiled(support.set_total_mass)(model, 7.0), copy.deepcopy(mjmodel)
    mujoco.mj_setTotalmass(theirs, 7.0)
    mujoco.mj_setConst(theirs, mujoco.MjData(theirs))
    for name in ("body_mass", "body_inertia", "body_subtreemass", "body_invweight0", "dof_M0"):
        oracle.assert_close(name, getattr(heavier, name), getattr(theirs, name), 1e-10, 1e-8)


BOXES = """
<mujoco>
  <option cone="elliptic" timestep="0.005"/>
  <worldbody>
    <geom name="floor" type="plane" size="3 3 1"/>
    <body name="box" pos="0 0 0.099"><freejoint name="free"/><geom name="box" type="box" size="0.1 0.1 0.1"/></body>
    <body name="top" pos="0.02 0 0.2975"><freejoint/><geom name="top" size="0.1"/></body>
    <body name="far" pos="2 0 1"><joint name="hinge" range="-1 -0.1"/><geom name="far" size="0.1"/></body>
  </worldbody>
  <keyframe><key name="now"/></keyframe>
</mujoco>
"""


@pytest.fixture(scope="module")
def boxes() -> tuple[diffsim.Model, diffsim.Data, Any, Any]:
    model, mjmodel = diffsim.load(BOXES), mujoco.MjModel.from_xml_string(BOXES)
    data = mujoco.MjData(mjmodel)
    mjmodel.opt.tolerance = 1e-15
    model = model.replace(opt=model.opt.replace(tolerance=1e-15))
    data.qvel[:] = 0.1
    mujoco.mj_forward(mjmodel, data)
    ours = uncompiled(diffsim.forward)(model, oracle.state_of(data), oracle.inputs_of(data))
    return model, jax.tree.map(jnp.asarray, ours), mjmodel, data


@pytest.mark.parametrize(
    ("geom", "other"), [("floor", "box"), ("box", "floor"), ("top", "box"), ("box", None), ("far", None)]
)
def test_forces_of_named_geoms_and_bodies(geom: str, other: str | None, boxes: tuple) -> None:
    model, ours, mjmodel, data = boxes
    expected, one = np.zeros(3), mjmodel.geom(geom).id
    for contact, wrench in zip(data.contact, oracle.contact_forces_of(mjmodel, data), strict=True):
        pair = list(contact.geom)
        if one in pair and (other is None or mjmodel.geom(other).id in pair):
            expected += (1 if pair[1] == one else -1) * contact.frame.reshape(3, 3).T @ wrench[:3]
    oracle.assert_close("force", support.geom_force(model, ours, geom, other), expected, 1e-7)
    if geom != "floor":
        body = {None: None, "floor": "world", "box": "box"}[other]
        oracle.assert_close("force", support.body_force(model, ours, geom, body), expected, 1e-7)
    assert bool(support.in_contact(model, ours, geom, other)) == bool(np.any(expected))


def test_cost_of_the_constraints_at_an_acceleration(boxes: tuple) -> None:
    model, ours, mjmodel, data = boxes

    @uncompiled
    def found(qacc: jax.Array) -> tuple[jax.Array, ...]:
        value, slope = jax.value_and_grad(lambda a: support.constraint_cost(model, ours, a))(qacc)
        return value, slope, support.constraint_gradient(model, ours, qacc)

    for seed in range(3):
        qacc = data.qacc + np.random.default_rng(seed).normal(size=mjmodel.nv)
        jar, cost = np.zeros(data.nefc), np.zeros(1)
        mujoco.mj_mulJacVec(mjmodel, data, jar, qacc)
        mujoco.mj_constraintUpdate(mjmodel, data, jar - data.efc_aref, cost, 0)
        value, slope, gradient = found(qacc)
        np.testing.assert_allclose(value, cost[0], rtol=1e-8)
        oracle.assert_close("gradient", gradient, -data.qfrc_constraint, 1e-7, 1e-8)
        np.testing.assert_allclose(slope, gradient, rtol=1e-9, atol=1e-9)
    mujoco.mj_forward(mjmodel, data)


def test_keyframes_are_set(boxes: tuple) -> None:
    model = boxes[0]
    state = diffsim.make_state(model).replace(qpos=jnp.arange(15.0), time=jnp.array(2.0))
    kept = support.set_keyframe(model, "now", state)
    np.testing.assert_array_equal(diffsim.make_state(kept, "now").qpos, state.qpos)
    assert float(kept.key("now").time) == 2
    with pytest.raises(KeyError, match="expected one of: now"):
        support.set_keyframe(model, "later", state)


def test_dumps_name_what_they_show(boxes: tuple) -> None:
    model, ours, *_ = boxes
    text = io.StringIO()
    support.print_model(model, text)
    support.print_data(model, ours, text)
    support.print_data(model, diffsim.make_state(model), text)
    for line in (
        "solver newton",
        "nbody 4",
        "body_mass (nbody)",
        "jnt_range (njnt, 2)",
        "contact.dist (ncon)",
        "qpos (nq)",
    ):
        assert line in text.getvalue()
    assert re.search(r"qacc \(nv\)\n +0 free ", text.getvalue())
    assert re.search(r"xpos \(nbody, 3\)\n.*world +0 0 0\n +1 box +0 0 0.099\n", text.getvalue())


def test_delayed_values_are_read_and_set() -> None:
    path = str(oracle.MODELS / "delays.xml")
    model, mjmodel = diffsim.load(path), mujoco.MjModel.from_xml_path(path)
    data, rng = mujoco.MjData(mjmodel), np.random.default_rng(0)
    for _ in range(12):
        data.ctrl[:] = rng.normal(size=mjmodel.nu)
        mujoco.mj_step(mjmodel, data)
    state, inputs = jax.tree.map(jnp.asarray, (oracle.state_of(data), oracle.inputs_of(data)))
    ahead = jax.tree.map(jnp.asarray, uncompiled(diffsim.forward)(model, state, inputs))
    for kind, word in enumerate(("zoh", "linear", "cubic", None)):
        code = -1 if word is None else kind

        def read(time: jax.Array, word: str | None = word) -> tuple:
            sensors = {k: support.read_sensor(model, state, ahead, k, time, word) for k in (1, 2, 3, 4)}
            return support.read_ctrl(model, state, inputs, "m", time, word), sensors

        reading = uncompiled(read)
        for time in data.time - np.array([0, 0.003, 0.005]):
            value, sensors = reading(time)
            np.testing.assert_allclose(value, mujoco.mj_readCtrl(mjmodel, data, 0, time, code), atol=1e-9)
            for sensor, ours in sensors.items():
                expected = np.zeros(mjmodel.sensor_dim[sensor])
                found = mujoco.mj_readSensor(mjmodel, data, sensor, time, expected, code)
                expected = expected if found is None else np.ravel(found)
                np.testing.assert_allclose(ours, expected, atol=1e-9)
    times, values = np.array([0.01, 0.02, 0.03]), np.array([1.0, 2.0, 3.0])
    mujoco.mj_initCtrlHistory(mjmodel, data, 0, times, values)
    changed = support.init_ctrl_history(model, state, "m", values, times)
    readings = rng.normal(size=(5, 3))
    mujoco.mj_initSensorHistory(mjmodel, data, 3, np.arange(5.0), readings, 0.7)
    changed = support.init_sensor_history(model, changed, 3, readings, np.arange(5.0), 0.7)
    oracle.assert_close("history", changed.history, data.history, 1e-12)
    with pytest.raises(ValueError, match="nsample"):
        support.init_sensor_history(model, state, 9, readings)
    with pytest.raises(ValueError, match="zoh, linear, cubic"):
        support.read_ctrl(model, state, inputs, "m", 0.0, "hold")
