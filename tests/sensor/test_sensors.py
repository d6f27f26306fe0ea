"""Every sensor against the oracle, fed the oracle's own inputs, and the table against the oracle's compiler."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracle import assert_close, load_pair, visited_states

from diffsim.enums import DisableBit, SensorType, Stage
from diffsim.errors import UnsupportedError
from diffsim.sensor import Group, Readings, sensors, unsupported_sensors
from diffsim.sensor.table import SENSORS, UNSUPPORTED, Sensor
from tests.sensor.feed import DISTANCES, LIMITS, evaluate, oracle_values, readings_of

MODELS = [
    "sensors",
    LIMITS,
    DISTANCES,
    "mujoco/mjx/test_data/sensor/sensor.xml",
    "dm_control/suite/finger.xml",
    "dm_control/suite/hopper.xml",
    "dm_control/suite/fish.xml",
    "dm_control/suite/manipulator.xml",
    "dm_control/suite/humanoid_CMU.xml",
]
NAMES = ["sensors", "limits", "distances", *(path.split("/")[-1] for path in MODELS[3:])]


@pytest.mark.parametrize("path", MODELS, ids=NAMES)
def test_parity(path: str) -> None:
    model, mjmodel = load_pair(path)
    assert not unsupported_sensors(model.topology)
    topology = model.topology
    for mjdata in visited_states(mjmodel, 4):
        ours = np.asarray(evaluate(*readings_of(path, mjdata)))
        oracle = oracle_values(mjmodel, mjdata)
        for i in range(topology.nsensor):
            kind = SensorType(topology.sensor_type[i]).name
            part = slice(topology.sensor_adr[i], topology.sensor_adr[i] + topology.sensor_dim[i])
            assert_close(f"{kind} {i}", ours[part], oracle[part], atol=1e-9, rtol=1e-9)


def test_table_is_complete() -> None:
    assert set(SENSORS) | set(UNSUPPORTED) == set(SensorType)
    assert not set(SENSORS) & set(UNSUPPORTED)


def test_every_kind_is_compared() -> None:
    kinds = {SensorType(kind) for path in MODELS for kind in load_pair(path)[0].topology.sensor_type}
    assert set(SENSORS) <= kinds


@pytest.mark.parametrize("path", MODELS, ids=NAMES)
def test_table_agrees_with_the_compiler(path: str) -> None:
    topology = load_pair(path)[0].topology
    for i, kind in enumerate(topology.sensor_type):
        row = SENSORS[SensorType(kind)]
        assert row.stage == topology.sensor_needstage[i], SensorType(kind)
        assert row.datatype == topology.sensor_datatype[i], SensorType(kind)
        assert row.dim in (None, topology.sensor_dim[i]), SensorType(kind)


def test_disabled_sensors_are_zero() -> None:
    model, mjmodel = load_pair("sensors")
    mjdata = visited_states(mjmodel, 1)[0]
    _, *rest = readings_of("sensors", mjdata)
    off = dataclasses.replace(model.opt, disableflags=model.opt.disableflags | DisableBit.SENSOR)
    assert not np.any(sensors(model.replace(opt=off), *rest))


def test_unsupported_sensor_is_named() -> None:
    xml = "<mujoco><sensor><user name='mine' dim='2'/></sensor></mujoco>"
    model, _ = load_pair(xml)
    assert unsupported_sensors(model.topology)[0][0] == 0
    with pytest.raises(UnsupportedError, match="user 'mine'"):
        sensors(model, None, None, None, None)


def test_rays_refuse_geoms_that_they_would_miss() -> None:
    model, _ = load_pair("dm_control/suite/quadruped.xml")
    reasons = {reason for _, reason in unsupported_sensors(model.topology)}
    assert reasons == {"rays do not see height fields yet"}


def test_float32_stays_float32() -> None:
    mjmodel = load_pair("sensors")[1]
    arguments = readings_of("sensors", visited_states(mjmodel, 1)[0])
    shrunk = jax.tree.map(lambda x: np.float32(x) if np.asarray(x).dtype == np.float64 else x, arguments)
    out = jax.eval_shape(sensors, *shrunk)
    assert out.dtype == np.float32 and not out.weak_type


def test_a_user_sensor_is_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def speed(readings: Readings, group: Group) -> jax.Array:
        return jnp.broadcast_to(jnp.abs(readings.state.qvel).sum(), (group.size, group.dim))

    monkeypatch.setitem(SENSORS, SensorType.USER, Sensor(Stage.VEL, None, speed))
    xml = """<mujoco><worldbody><body><geom size='1'/><freejoint/></body></worldbody><sensor><clock/>
    <user dim='2' cutoff='.5' needstage='vel' datatype='positive'/></sensor></mujoco>"""
    mjmodel = load_pair(xml)[1]
    mjdata = visited_states(mjmodel, 1)[0]
    ours = sensors(*readings_of(xml, mjdata, slots=0))
    expected = min(0.5, float(np.abs(mjdata.qvel).sum()))
    np.testing.assert_allclose(ours, [mjdata.time, expected, expected])
