"""Recordings of a real or simulated system, for `fit`: controls and sensor readings, one row a timestep."""

import csv
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from diffsim.base.checked import checked
from diffsim.base.enums import SensorType
from diffsim.kinematics.joints import position_difference
from diffsim.types import Model
from diffsim.types.record import Record, leaf, near, record

Array = jax.Array


@record
class Recording(Record):
    """T rows: controls from that time on, what sensors show at that time (NaN: not measured), and where about it was.

    Positions, velocities and activations are guesses, from which `fit` finds initial states.
    """

    ctrl: Array = leaf("T", "nu")
    sensordata: Array = leaf("T", "nsensordata")
    qpos: Array = leaf("T", "nq")
    qvel: Array = leaf("T", "nv")
    act: Array = leaf("T", "na")


@checked
def make_recording(
    model: Model,
    ctrl: ArrayLike,
    sensordata: ArrayLike,
    qpos: ArrayLike | None = None,
    qvel: ArrayLike | None = None,
    act: ArrayLike | None = None,
) -> Recording:
    """A recording, from arrays.

    Args:
      model: its actuators, sensors and timestep.
      ctrl: (T, nu) controls, each held for one timestep.
      sensordata: (T, nsensordata) readings, each at the time of the controls of its row; NaN where not measured.
      qpos: (T, nq) about where it was; None for what `jointpos` sensors measured, and qpos0 of other joints.
      qvel: (T, nv) about how it moved; None for differences of qpos.
      act: (T, na) about the activations; None for zero.

    Raises:
      ValueError: a wrong shape.
    """
    dtype = model.qpos0.dtype
    ctrl, sensordata = jnp.asarray(ctrl, dtype), jnp.asarray(sensordata, dtype)
    length = ctrl.shape[0]
    qpos = _encoders(model, np.asarray(sensordata)) if qpos is None else qpos
    given: dict[str, Any] = {"ctrl": ctrl, "sensordata": sensordata, "qpos": jnp.asarray(qpos, dtype)}
    given["act"] = jnp.zeros((length, model.na), dtype) if act is None else jnp.asarray(act, dtype)
    sizes = {"ctrl": model.nu, "sensordata": model.nsensordata, "qpos": model.nq, "act": model.na, "qvel": model.nv}
    _check_shapes(given, sizes, length)
    given["qvel"] = _velocities(model, given["qpos"]) if qvel is None else jnp.asarray(qvel, dtype)
    _check_shapes(given, sizes, length)
    return Recording(**given)


@checked
def read_csv(model: Model, path: str | Path) -> Recording:
    """A recording from a table with a header, one row a timestep.

    Columns are actuators and sensors by name; numbers of a sensor with several are `name.0`, `name.1` ... What is not
    there counts as a control of zero, or as not measured. A column `time` (s) must have the model's timestep.

    Raises:
      ValueError: a column that is neither, or another timestep.
    """
    with open(path, newline="") as file:
        header, *rows = csv.reader(file)
    table = np.asarray([[float(cell) if cell.strip() else np.nan for cell in row] for row in rows if row])
    controls, readings = _columns(model, "actuator"), _columns(model, "sensor")
    ctrl, sensordata = np.zeros((len(table), model.nu)), np.full((len(table), model.nsensordata), np.nan)
    for name, column in zip((cell.strip() for cell in header), table.T, strict=True):
        if name in controls:
            ctrl[:, controls[name]] = column
        elif name in readings:
            sensordata[:, readings[name]] = column
        elif name != "time":
            known = ["time", *controls, *readings]
            raise ValueError(f"{path}: column {name!r} is no actuator or sensor{near(name, known, listed=20)}")
        elif not np.allclose(np.diff(column), float(model.opt.timestep), rtol=1e-3, atol=0):
            raise ValueError(f"{path}: rows are not {float(model.opt.timestep)} s apart, as the model's steps are")
    return make_recording(model, ctrl, sensordata)


def _columns(model: Model, kind: str) -> dict[str, int]:
    """Column by name, of ctrl or sensordata."""
    if kind == "actuator":
        return {model.name(kind, i): i for i in range(model.nu) if model.name(kind, i)}
    found = {}
    for i in range(model.nsensor):
        name, first, width = model.name(kind, i), int(model.sensor_adr[i]), int(model.sensor_dim[i])
        found |= {name: first} if width == 1 else {f"{name}.{k}": first + k for k in range(width)}
    return found


def _check_shapes(given: dict[str, Array], sizes: dict[str, int], length: int) -> None:
    for name, value in given.items():
        if value.shape != (length, sizes[name]):
            raise ValueError(f"{name} has shape {value.shape}, expected {(length, sizes[name])}")


def _encoders(model: Model, sensordata: np.ndarray) -> Array:
    """(T, nq) what `jointpos` sensors measured; the last value where one is missing, qpos0 of other joints."""
    qpos = np.tile(np.asarray(model.qpos0), (len(sensordata), 1))
    for i in np.flatnonzero(np.asarray(model.sensor_type) == SensorType.JOINTPOS):
        column = sensordata[:, model.sensor_adr[i]]
        seen = np.maximum.accumulate(np.where(np.isfinite(column), np.arange(len(column)), -1))
        place = model.jnt_qposadr[model.sensor_objid[i]]
        qpos[:, place] = np.where(seen >= 0, column[np.maximum(seen, 0)], qpos[:, place])
    return jnp.asarray(qpos, model.qpos0.dtype)


def _velocities(model: Model, qpos: Array) -> Array:
    """(T, nv) central differences, one-sided at the ends."""
    if len(qpos) < 2:
        return jnp.zeros((len(qpos), model.nv), qpos.dtype)
    steps = jax.vmap(lambda later, now: position_difference(model, later, now))(qpos[1:], qpos[:-1])
    middle = 0.5 * (steps[1:] + steps[:-1])
    return jnp.concatenate([steps[:1], middle, steps[-1:]]) / model.opt.timestep
