"""Every sensor against the oracle, fed the oracle's own inputs, and the table against the oracle's compiler."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracle import assert_close, load_pair, visited_states

import diffsim
from diffsim import Data, Hooks, Inputs, Model, State
from diffsim.base.enums import DataType, DisableBit, RayDataField, SensorType, Stage
from diffsim.base.errors import UnsupportedError
from diffsim.mjcf.attributes import Keywords
from diffsim.mjcf.elements.sections import Section
from diffsim.mjcf.elements.sensor import RAY_DATA, SiteSensor
from diffsim.mjcf.schema import Child, children_of
from diffsim.sensor import Group, Readings, read_sensors, unsupported_sensors
from diffsim.sensor.table import SENSORS, Sensor
from tests.sensor.feed import DISTANCES, LIMITS, RANGES, evaluate, oracle_values, readings_of

MODELS = [
    "sensors",
    LIMITS,
    DISTANCES,
    RANGES,
    "mujoco/mjx/test_data/sensor/sensor.xml",
    "dm_control/suite/finger.xml",
    "dm_control/suite/hopper.xml",
    "dm_control/suite/fish.xml",
    "dm_control/suite/manipulator.xml",
    "dm_control/suite/humanoid_CMU.xml",
]
NAMES = ["sensors", "limits", "distances", "ranges", *(path.split("/")[-1] for path in MODELS[4:])]


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
    assert set(SENSORS) == set(SensorType)


def test_every_kind_is_compared() -> None:
    kinds = {SensorType(kind) for path in MODELS for kind in load_pair(path)[0].topology.sensor_type}
    # these are compared in tests/simulate/test_plugins.py and test_tactile.py
    assert set(SENSORS) - {SensorType.USER, SensorType.PLUGIN, SensorType.TACTILE} <= kinds


@pytest.mark.parametrize("path", MODELS, ids=NAMES)
def test_table_agrees_with_the_oracle(path: str) -> None:
    mjmodel = load_pair(path)[1]
    for i, kind in enumerate(mjmodel.sensor_type):
        row = SENSORS[SensorType(kind)]
        assert row.stage == mjmodel.sensor_needstage[i], SensorType(kind)
        assert row.datatype == mjmodel.sensor_datatype[i], SensorType(kind)
        assert row.dim in (None, mjmodel.sensor_dim[i]), SensorType(kind)


def test_disabled_sensors_are_zero() -> None:
    model, mjmodel = load_pair("sensors")
    mjdata = visited_states(mjmodel, 1)[0]
    _, *rest = readings_of("sensors", mjdata)
    off = dataclasses.replace(model.opt, disableflags=model.opt.disableflags | DisableBit.SENSOR)
    assert not np.any(read_sensors(model.replace(opt=off), *rest))


def test_unsupported_sensor_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    model, _ = load_pair("<mujoco><sensor><clock name='mine'/></sensor></mujoco>")
    monkeypatch.setitem(SENSORS, SensorType.USER, Sensor(None, None, lambda *_: None, refusal=lambda *_: "no"))
    topology = dataclasses.replace(model.topology, sensor_type=np.array([SensorType.USER]))
    assert unsupported_sensors(topology)[0][0] == 0
    with pytest.raises(UnsupportedError, match="user 'mine'"):
        read_sensors(model.replace(topology=topology), None, None, None, None)


def test_float32_stays_float32() -> None:
    mjmodel = load_pair("sensors")[1]
    arguments = readings_of("sensors", visited_states(mjmodel, 1)[0])
    shrunk = jax.tree.map(lambda x: np.float32(x) if np.asarray(x).dtype == np.float64 else x, arguments)
    out = jax.eval_shape(read_sensors, *shrunk)
    assert out.dtype == np.float32 and not out.weak_type


USER = """<mujoco><worldbody><body><geom size='1'/><freejoint/></body></worldbody><sensor><clock/>
    <user dim='2' cutoff='.5' needstage='vel' datatype='positive'/><clock/><user dim='3'/><user dim='0'/>
    <user dim='2' name='last'/></sensor></mujoco>"""


def test_user_sensors_compile_and_read_zero_as_the_oracles() -> None:
    model, (_, mjmodel) = diffsim.load(USER), load_pair(USER)
    for name in ("type", "dim", "adr", "needstage", "datatype", "objtype", "objid"):
        np.testing.assert_array_equal(getattr(model.topology, f"sensor_{name}"), getattr(mjmodel, f"sensor_{name}"))
    mjdata = visited_states(mjmodel, 1)[0]
    np.testing.assert_array_equal(read_sensors(*readings_of(USER, mjdata, slots=0)), mjdata.sensordata)


def test_a_user_sensor_is_a_hook() -> None:
    calls = []

    def measure(model: Model, state: State, inputs: Inputs, data: Data) -> jax.Array:
        calls.append(data)
        return jnp.arange(model.nsensordata) / 4 + jnp.abs(state.qvel).sum() + data.xpos[1, 2]

    mjdata = visited_states(load_pair(USER)[1], 1)[0]
    model, *rest = readings_of(USER, mjdata, slots=0)
    ours = read_sensors(model.replace(hooks=Hooks(sensor=measure)), *rest)
    assert len(calls) == 1
    numbers = np.arange(9) / 4 + np.abs(mjdata.qvel).sum() + mjdata.xpos[1, 2]
    numbers[1:3] = np.minimum(numbers[1:3], 0.5)
    numbers[[0, 3]] = mjdata.time
    np.testing.assert_allclose(ours, numbers)


def test_a_sensor_is_an_element_a_function_and_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """No other place knows of it: it is read, compiled, checked and evaluated."""

    @dataclasses.dataclass(eq=False)
    class Tactile(SiteSensor):
        """1. The element, under its tag."""

        data: tuple[RayDataField, ...] = Keywords(RAY_DATA, ("dist",), ordered=True)

    def heights(readings: Readings, group: Group) -> jax.Array:
        """2. The function."""
        return jnp.broadcast_to(readings.data.site_xpos[group.objid][:, 2:], (group.size, group.dim))

    # 3. the row
    row = Sensor(Stage.POS, None, heights, DataType.POSITIVE, fields={RayDataField.DIST: 1, RayDataField.DIR: 3})
    monkeypatch.setitem(children_of(Section, "sensor"), "tactile", Child(Tactile, False))
    monkeypatch.setitem(SENSORS, SensorType.TACTILE, row)
    xml = """<mujoco><worldbody><site name='s' pos='0 0 2'/></worldbody><sensor><clock/>
      <tactile site='s' data='dist dir' cutoff='1.5'/></sensor></mujoco>"""
    model = diffsim.load(xml)
    assert model.topology.sensor_dim.tolist() == [1, 4]
    data = diffsim.forward(model, diffsim.make_state(model))
    np.testing.assert_allclose(data.sensordata, [0, 1.5, 1.5, 1.5, 1.5])
