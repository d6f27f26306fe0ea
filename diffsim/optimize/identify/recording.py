"""Recordings of a real or simulated system, for `fit`: controls and sensor readings, one row a timestep."""

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from diffsim.base.checked import checked
from diffsim.base.enums import ObjType, SensorType
from diffsim.base.joints import is_free
from diffsim.kinematics.joints import position_difference
from diffsim.math.rotation import quat_conj, quat_mul, rotate
from diffsim.types import Model
from diffsim.types.record import Record, leaf, near, record

# velocities are guessed from the positions this number of rows before and after; more rows average out more noise
VELOCITY_ROWS = 3
# the longest time between rows over which commands are held by default, s: a longer gap is a pause or a loss
GAP = 0.1
# a row of a table is on a timestep if it is nearer to it than this fraction of a timestep: clocks jitter
ON_TIME = 1e-2


@record
class Recording(Record):
    """A recording of T rows, one for each timestep.

    Attributes:
      ctrl: (T, nu) controls from the time of the row on.
      sensordata: (T, nsensordata) readings at that time; NaN if not measured.
      qpos: (T, nq) guess of the position, from which `fit` estimates initial states.
      qvel: (T, nv) guess of the velocity.
      act: (T, na) guess of the activation.
      offset: (T,) s, how much later than the controls of a row its readings were taken; at most half a timestep either
        way.
    """

    ctrl: Array = leaf("T", "nu")
    sensordata: Array = leaf("T", "nsensordata")
    qpos: Array = leaf("T", "nq")
    qvel: Array = leaf("T", "nv")
    act: Array = leaf("T", "na")
    offset: Array = leaf("T")


@checked
def make_recording(
    model: Model,
    ctrl: ArrayLike,
    sensordata: ArrayLike,
    qpos: ArrayLike | None = None,
    qvel: ArrayLike | None = None,
    act: ArrayLike | None = None,
    offset: ArrayLike | None = None,
) -> Recording:
    """Makes a recording from arrays.

    Args:
      model: its actuators, sensors and timestep.
      ctrl: (T, nu) controls, each held for one timestep.
      sensordata: (T, nsensordata) readings at the time of the controls of their row; NaN if not measured.
      qpos: (T, nq) guess of the positions; None to take them from sensors of joints and free bodies, and qpos0
        otherwise.
      qvel: (T, nv) guess of the velocities; None to take them from sensors, and from differences of qpos otherwise.
      act: (T, na) guess of the activations; None for zero.
      offset: (T,) s, how much later than the controls the readings were taken, less than a timestep; None for zero.

    Returns:
      The recording.

    Raises:
      ValueError: an array has the wrong shape.
    """
    dtype = model.qpos0.dtype
    ctrl = jnp.asarray(ctrl, dtype)
    sensordata = jnp.asarray(sensordata, dtype)
    length = ctrl.shape[0]
    fields: dict[str, Any] = {"ctrl": ctrl, "sensordata": sensordata}
    fields["act"] = jnp.zeros((length, model.na), dtype) if act is None else jnp.asarray(act, dtype)
    fields["offset"] = jnp.zeros(length, dtype) if offset is None else jnp.asarray(offset, dtype)
    shapes = {"ctrl": (model.nu,), "sensordata": (model.nsensordata,), "act": (model.na,), "offset": ()}
    _check_shapes(fields, shapes, length)
    positions = _positions(model, np.asarray(sensordata, float)) if qpos is None else np.asarray(qpos, float)
    fields["qpos"] = jnp.asarray(positions, dtype)
    _check_shapes(fields, {"qpos": (model.nq,)}, length)
    fields["qvel"] = _velocities(model, sensordata, fields["qpos"]) if qvel is None else jnp.asarray(qvel, dtype)
    _check_shapes(fields, {"qvel": (model.nv,)}, length)
    return Recording(**fields)


@checked
def read_csv(
    model: Model,
    path: str | Path,
    columns: Mapping[str, str] | None = None,
    interpolate: bool = False,
    longest_gap: float = GAP,
) -> Recording:
    """Reads a recording from a CSV file with a header.

    Columns are named after actuators and sensors; the readings of a sensor with several are `name.0`, `name.1` ... Case
    and punctuation do not count. A missing column means controls of zero, or readings that were not measured. In an
    empty cell, the last control holds, or the reading was not measured. A column `time` (s) gives the time of each row,
    at any rate, even or uneven. Each timestep then gets the last command before it, and the nearest reading together
    with the time between the two, so that no reading is smoothed. Without this column, rows are one timestep apart.

    Args:
      model: its actuators, sensors and timestep.
      path: the file.
      columns: names in the file to names in the model, if they differ; "" leaves a column out.
      interpolate: True for commands that change linearly from row to row; False to hold them.
      longest_gap: the longest time between rows over which commands are held, s.

    Returns:
      The recording, with one row for each timestep of the model.

    Raises:
      ValueError: an unknown column, a cell that is not a number, times that do not increase, or a gap; with the row.
    """
    with open(path, newline="") as file:
        header, *lines = csv.reader(file)
    table = np.full((len(lines), len(header)), np.nan)
    numbered = [number for number, line in enumerate(lines, start=2) if line]
    for row, number in enumerate(numbered):
        line = lines[number - 2]
        if len(line) != len(header):
            raise ValueError(f"{path}:{number}: {len(line)} cells under {len(header)} names")
        for column, cell in enumerate(line):
            try:
                table[row, column] = float(cell) if cell.strip() else np.nan
            except ValueError as error:
                place = f"{cell!r} in column {header[column]!r}"
                reason = f"{place} is not a number; leave the cell empty if nothing was measured"
                raise ValueError(f"{path}:{number}: {reason}") from error
    table = table[: len(numbered)]
    controls = _columns(model, "actuator")
    readings = _columns(model, "sensor")
    known = {_plain(name): name for name in ["time", *controls, *readings]}
    mapped = {} if columns is None else dict(columns)
    names = [mapped.get(cell.strip(), cell.strip()) for cell in header]
    ctrl = np.zeros((len(table), model.nu))
    sensordata = np.full((len(table), model.nsensordata), np.nan)
    time = None
    for name, column in zip(names, table.T, strict=True):
        if not name:
            continue
        word = known.get(_plain(name))
        if word is None:
            listed = near(name, [*known.values()], listed=20)
            raise ValueError(f"{path}: column {name!r} is not an actuator or sensor{listed}; or map it with `columns`")
        if word == "time":
            time = column
        elif word in controls:
            ctrl[:, controls[word]] = column
        else:
            sensordata[:, readings[word]] = column
    if time is None:
        return make_recording(model, _held(ctrl), sensordata)
    _check_times(str(path), time, numbered, longest_gap)
    return resample(model, time, ctrl, sensordata, interpolate)


@checked
def resample(
    model: Model, time: ArrayLike, ctrl: ArrayLike, sensordata: ArrayLike, interpolate: bool = False
) -> Recording:
    """Makes a recording from rows at arbitrary times: one row for each timestep of the model.

    Args:
      model: its actuators, sensors and timestep.
      time: (rows,) s, increasing.
      ctrl: (rows, nu) controls; each one holds until the next, and also over NaN.
      sensordata: (rows, nsensordata) readings; NaN if not measured.
      interpolate: True for commands that change linearly from row to row; False to hold them.

    Returns:
      The recording.

    Raises:
      ValueError: an array has the wrong shape, or times do not increase.
    """
    when = np.asarray(time, float)
    commands = _held(np.asarray(ctrl, float))
    seen = np.asarray(sensordata, float)
    if when.ndim != 1 or commands.shape != (when.size, model.nu) or seen.shape != (when.size, model.nsensordata):
        wanted = f"({when.size},), ({when.size}, {model.nu}), ({when.size}, {model.nsensordata})"
        raise ValueError(f"time, ctrl, sensordata: {when.shape}, {commands.shape}, {seen.shape}, expected {wanted}")
    if np.any(~(np.diff(when) > 0)):
        raise ValueError(f"time does not increase after row {int(np.argmin(np.diff(when) > 0))}")
    h = float(model.opt.timestep)
    steps = (when - when[0]) / h
    grid = np.arange(int(np.floor(steps[-1] + ON_TIME)) + 1)
    before = np.clip(np.searchsorted(steps, grid + ON_TIME, side="right") - 1, 0, when.size - 1)
    held = commands[before]
    if interpolate:
        held = np.stack([np.interp(grid, steps, column) for column in commands.T], axis=1).reshape(grid.size, model.nu)
    rows = np.full((grid.size, model.nsensordata), np.nan)
    offset = np.zeros(grid.size)
    nearest = np.rint(steps).astype(int)
    # of several rows nearest to one timestep, the nearest one counts: it is written last
    for row in np.argsort(-np.abs(steps - nearest), kind="stable"):
        if nearest[row] < grid.size:
            rows[nearest[row]] = seen[row]
            away = steps[row] - nearest[row]
            offset[nearest[row]] = 0.0 if abs(away) < ON_TIME else away * h
    return make_recording(model, held, rows, offset=offset)


def _held(rows: np.ndarray) -> np.ndarray:
    """Columns (rows, n) in which the last number holds where there is none; zero before the first number."""
    seen = np.maximum.accumulate(np.where(np.isfinite(rows), np.arange(len(rows))[:, None], -1), axis=0)
    return np.where(seen >= 0, np.take_along_axis(rows, np.maximum(seen, 0), axis=0), 0.0)


def _plain(name: str) -> str:
    """A name without case and punctuation."""
    return "".join(letter for letter in name.lower() if letter.isalnum())


def _check_times(path: str, time: np.ndarray, numbered: list[int], longest_gap: float) -> None:
    """Raises a ValueError for times that are missing, do not increase, or leave a gap."""
    missing = np.flatnonzero(~np.isfinite(time))
    if missing.size:
        raise ValueError(f"{path}:{numbered[missing[0]]}: no time")
    steps = np.diff(time)
    back = np.flatnonzero(steps <= 0)
    if back.size:
        row = int(back[0]) + 1
        reason = f"time {time[row]:.6g} s is not after {time[row - 1]:.6g} s of the row before; sort or drop rows"
        raise ValueError(f"{path}:{numbered[row]}: {reason}")
    gaps = np.flatnonzero(steps > longest_gap)
    if gaps.size:
        row = int(gaps[0]) + 1
        cure = f"cut the file there, or give longest_gap={steps[row - 1] * 1.01:.2g} to hold commands over it"
        raise ValueError(f"{path}:{numbered[row]}: {steps[row - 1]:.3g} s after the row before; {cure}")


def _columns(model: Model, kind: str) -> dict[str, int]:
    """The columns of ctrl or sensordata, by name."""
    if kind == "actuator":
        return {model.name(kind, i): i for i in range(model.nu) if model.name(kind, i)}
    first_columns = {}
    for i in range(model.nsensor):
        name = model.name(kind, i)
        first = int(model.sensor_adr[i])
        width = int(model.sensor_dim[i])
        first_columns |= {name: first} if width == 1 else {f"{name}.{k}": first + k for k in range(width)}
    return first_columns


def _check_shapes(fields: Mapping[str, Array], shapes: Mapping[str, tuple[int, ...]], length: int) -> None:
    """Raises ValueError unless each field has `length` rows of its shape."""
    for name, shape in shapes.items():
        if fields[name].shape != (length, *shape):
            raise ValueError(f"{name} has shape {fields[name].shape}, expected {(length, *shape)}")


def _positions(model: Model, sensordata: np.ndarray) -> np.ndarray:
    """(T, nq) positions from sensors of joints and free bodies; missing values repeat the last; qpos0 otherwise."""
    qpos = np.tile(np.asarray(model.qpos0, float), (len(sensordata), 1))
    turned: dict[int, np.ndarray] = {}
    for kind in (SensorType.JOINTPOS, SensorType.BALLQUAT, SensorType.FRAMEQUAT, SensorType.FRAMEPOS):
        for i in np.flatnonzero(np.asarray(model.sensor_type) == kind):
            columns = sensordata[:, int(model.sensor_adr[i]) : int(model.sensor_adr[i] + model.sensor_dim[i])]
            measured = np.isfinite(columns).all(axis=1)
            if not measured.any():
                continue
            shown = _held(np.where(measured[:, None], columns, np.nan))
            shown[: np.argmax(measured)] = shown[np.argmax(measured)]
            if kind in (SensorType.JOINTPOS, SensorType.BALLQUAT):
                place = int(model.jnt_qposadr[model.sensor_objid[i]])
                qpos[:, place : place + columns.shape[1]] = shown
                continue
            free = _free_frame(model, int(i))
            if free is None:
                continue
            place, offset, turn = free
            if kind == SensorType.FRAMEQUAT:
                turned[place] = np.asarray(jax.vmap(quat_mul, in_axes=(0, None))(jnp.asarray(shown), quat_conj(turn)))
                qpos[:, place + 3 : place + 7] = turned[place]
            else:
                quats = turned.get(place, qpos[:, place + 3 : place + 7])
                arms = np.asarray(jax.vmap(rotate, in_axes=(0, None))(jnp.asarray(quats), offset))
                qpos[:, place : place + 3] = shown - arms
    return qpos


def _free_frame(model: Model, sensor: int) -> tuple[int, Array, Array] | None:
    """The address in qpos of the free joint of a sensor's frame, and the frame's pose in its body; None without one."""
    if int(model.sensor_refid[sensor]) >= 0:
        return None
    kind = ObjType(int(model.sensor_objtype[sensor]))
    which = int(model.sensor_objid[sensor])
    identity = jnp.zeros(3), jnp.asarray([1.0, 0.0, 0.0, 0.0])
    frames = {
        ObjType.XBODY: lambda: (which, *identity),
        ObjType.BODY: lambda: (which, model.body_ipos[which], model.body_iquat[which]),
        ObjType.GEOM: lambda: (int(model.geom_bodyid[which]), model.geom_pos[which], model.geom_quat[which]),
        ObjType.SITE: lambda: (int(model.site_bodyid[which]), model.site_pos[which], model.site_quat[which]),
    }
    if kind not in frames:
        return None
    body, offset, turn = frames[kind]()
    joint = int(model.body_jntadr[body])
    if joint < 0 or not is_free(model.jnt_type[joint]):
        return None
    return int(model.jnt_qposadr[joint]), offset, turn


def _velocities(model: Model, sensordata: Array, qpos: Array) -> Array:
    """(T, nv) velocities from sensors of joints, otherwise differences over some rows, one-sided at the ends."""
    length = len(qpos)
    if length < 2:
        return jnp.zeros((length, model.nv), qpos.dtype)
    rows = np.arange(length)
    before = np.maximum(rows - VELOCITY_ROWS, 0)
    after = np.minimum(rows + VELOCITY_ROWS, length - 1)
    steps = jax.vmap(lambda later, now: position_difference(model, later, now))(qpos[after], qpos[before])
    moved = steps / (model.opt.timestep * jnp.asarray(after - before, qpos.dtype)[:, None])
    for i in np.flatnonzero(np.asarray(model.sensor_type) == SensorType.JOINTVEL):
        place = int(model.jnt_dofadr[model.sensor_objid[i]])
        column = sensordata[:, int(model.sensor_adr[i])]
        moved = moved.at[:, place].set(jnp.where(jnp.isfinite(column), column, moved[:, place]))
    return moved
