"""Simulated windows of recordings and their derivatives, by programs that all fits of a model share.

    x_{t+1} = f(x_t, u_t; theta),    y_t = y(x_t, u_t; theta),    x_0 = guess + change

A program simulates or linearizes a fixed number of steps, whatever the length of a recording; the host puts the parts
together. By default derivatives go step by step: f and y are linearized about the simulated states, many side by side,

    dx_{t+1} = A_t dx_t + B_t dtheta,    dy_t = C_t dx_t + D_t dtheta

in tangent coordinates, and these recursions run along each window (`propagated`). There are four ways to take
derivatives:

    columns   forward mode, one pass for each coordinate of x and each parameter of theta
    rows      reverse mode for the next velocities and activations, where that takes fewer passes; the next positions
              follow from velocities, q' = q + h v'
    forward   forward mode through whole windows: if a step hands on more than x = (q, v, a) to the next; or if first
              states are known, and theta has fewer entries than x
    reverse   reverse mode through whole windows: if a window has far fewer readings than unknowns

Sensors. A recording may show a reading y_i late, scaled and with an offset. These three can be unknowns; the host
applies them to the simulated readings:

    shown_i(t) = gain_i y_i(t - delay_i + offset(t)) + bias_i

Delays need not be whole timesteps: readings between two rows come from a cubic through four rows (Keys 1981). A delay
that all sensors share is also a delay between commands and readings. `offset` is known: the time between a row and the
moment when its readings were taken.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.base.enums import Integrator
from diffsim.kinematics.joints import integrate_position
from diffsim.math.vector import matmul
from diffsim.optimize.identify.places import Place, numbers, with_numbers
from diffsim.optimize.tangent import difference, integrate, tangent_size
from diffsim.simulate.randomize import with_leaves
from diffsim.simulate.step import rollout, step_data
from diffsim.types import Model, State
from diffsim.types.state import make_inputs, make_state
from diffsim.xla.compiled import jit, uncollected
from diffsim.xla.loops import scan

Places = tuple[Place, ...]

# one reverse pass costs about as much as this number of forward passes
REVERSE_COST = 3.0
# steps that a program simulates in a row, or linearizes side by side: few enough for the cache of a CPU (an arm
# of seven joints and 30 unknowns, 400 steps on a CPU: 27 ms with 64, 22 to 23 ms with 40, 25 ms with 16)
CHUNK = 40
MODES = ("auto", "steps", "forward", "reverse")


class First(NamedTuple):
    """Guesses of the first states of windows, (windows, ...)."""

    qpos: Array
    qvel: Array
    act: Array


class Windows(NamedTuple):
    """Windows as a simulation needs them: controls (windows, T, nu), and guesses of first states."""

    ctrl: Array
    first: First


class Guess(NamedTuple):
    """theta (n,), and the changes (windows, width) of first states; width is 0 if these are known."""

    theta: Array
    changes: Array


class Motions(NamedTuple):
    """Simulated windows, as numpy arrays. Each is simulated for `rows` rows; later readings and contacts are 0.

    Attributes:
      readings: (windows, T, ny).
      contacts: (windows, T) number of contacts.
      states: (windows, rows + 1, ...) before each row, and after the last one.
    """

    readings: np.ndarray
    contacts: np.ndarray
    states: State

    @property
    def ends(self) -> State:
        """The states after the windows, stacked."""
        return jax.tree.map(lambda leaf: leaf[:, -1], self.states)


class Derivatives(NamedTuple):
    """Derivatives of readings and of the last states of windows.

    Attributes:
      readings_by_theta: (windows, T, ny, n).
      readings_by_change: (windows, T, ny, width), with respect to the change of the window's first state.
      ends_by_theta: (windows, nx, n).
      ends_by_change: (windows, nx, width).
    """

    readings_by_theta: np.ndarray
    readings_by_change: np.ndarray
    ends_by_theta: np.ndarray
    ends_by_change: np.ndarray


class WindowGaps(NamedTuple):
    """How far each window ends from where the next one begins, in tangent coordinates.

    The last window is compared with the first one.

    Attributes:
      defects: (windows, nx) end minus beginning.
      by_end: (windows, nx, nx) derivatives with respect to the end.
      by_next: (windows, nx, width) derivatives with respect to the change of the next window's first state.
    """

    defects: Array
    by_end: Array
    by_next: Array


def motions(places: Places, model: Model, windows: Windows, guess: Guess, rows: int | None = None) -> Motions:
    """Simulates all windows, the first `rows` of each; None for all rows."""
    fitted = with_leaves(model, numbers(places, model, guess.theta)[0])
    state, _ = begins(model, windows.first, guess.changes)
    length = windows.ctrl.shape[1]
    wanted = rows or length
    seen = _in_chunks(fitted, state, np.asarray(windows.ctrl), None, wanted)
    rest = (0, length - wanted)
    return Motions(
        readings=np.pad(seen.readings, [(0, 0), rest, (0, 0)]),
        contacts=np.pad(seen.contacts, [(0, 0), rest]),
        states=seen.states,
    )


class _Seen(NamedTuple):
    """What a simulation shows, (windows, steps, ...): `Motions`, and forces of the actuators on the joints."""

    readings: Any
    contacts: Any
    states: State
    actuators: Any


def _in_chunks(model: Model, state: State, ctrl: np.ndarray, forces: np.ndarray | None, wanted: int) -> _Seen:
    """Simulates `wanted` rows of windows, by a program for `CHUNK` of them; `states` has the last ends, too."""
    count, length = ctrl.shape[:2]
    parts = []
    for first in range(0, wanted, CHUNK):
        index = np.minimum(np.arange(first, first + CHUNK), length - 1)
        pushes = np.zeros((count, CHUNK, model.nv), ctrl.dtype) if forces is None else forces[:, index]
        state, part = _simulated(model, state, ctrl[:, index], np.asarray(pushes, ctrl.dtype))
        parts.append(part)
    joined = jax.tree.map(lambda *leaves: np.concatenate(leaves, axis=1)[:, :wanted], *parts)
    # the last chunk is filled with further steps: the state before the first of them is the end
    ends = state if not wanted % CHUNK else jax.tree.map(lambda leaf: leaf[:, wanted % CHUNK], parts[-1].states)
    states = jax.tree.map(lambda part, end: np.concatenate([part, np.asarray(end)[:, None]], 1), joined.states, ends)
    return joined._replace(states=states)


@jit
@uncollected()
def _simulated(
    model: Model, states: State, ctrl: Array | np.ndarray, forces: Array | np.ndarray
) -> tuple[State, _Seen]:
    """The ends of windows under controls (windows, steps, nu) and forces (windows, steps, nv), and what is seen."""

    def advance(state: State, row: tuple[Array, Array]) -> tuple[State, _Seen]:
        inputs = make_inputs(model).replace(ctrl=row[0], qfrc_applied=row[1])
        later, data = step_data(model, state, inputs)
        touching = jnp.sum(data.contact.dist < data.contact.includemargin)
        return later, _Seen(data.sensordata, touching, state, data.qfrc_actuator)

    return jax.vmap(lambda state, ctrl, forces: scan(advance, state, (ctrl, forces)))(states, ctrl, forces)


class Pushed(NamedTuple):
    """Readings (windows, T, ny) under further forces, and forces of the actuators on the joints (windows, T, nv)."""

    readings: np.ndarray
    actuators: np.ndarray


def pushed(places: Places, model: Model, windows: Windows, guess: Guess, change: "Change") -> Pushed:
    """Simulates all windows of a changed system: further forces on the joints, and other leaves of the model."""
    leaves = numbers(places, model, guess.theta)[0]
    fitted = with_leaves(model, {**leaves, **change.leaves(with_leaves(model, leaves))})
    state, _ = begins(model, windows.first, guess.changes)
    seen = _in_chunks(fitted, state, np.asarray(windows.ctrl), change.forces, windows.ctrl.shape[1])
    return Pushed(seen.readings, seen.actuators)


class Change(NamedTuple):
    """A change of a system.

    Attributes:
      forces: (windows, T, nv) further forces on the joints.
      leaves: the leaves of the model that change, as a function of the model.
    """

    forces: np.ndarray
    leaves: Callable[[Model], dict[str, Array]] = lambda model: {}


def derivatives(
    places: Places,
    mode: str,
    model: Model,
    windows: Windows,
    guess: Guess,
    states: State,
    touching: bool = True,
) -> Derivatives:
    """Derivatives of `motions` at the states that it returned; zero for rows that were not simulated.

    `touching` is False if nothing touches anything in these states. The program then has no contacts, and compiles in
    half of the time.
    """
    if mode != "steps":
        return Derivatives(*map(np.asarray, _whole(mode, places, model, windows, guess, states)))
    leaves, slopes = numbers(places, model, guess.theta)
    first_slopes = np.asarray(begins(model, windows.first, guess.changes)[1])
    by_rows = REVERSE_COST * (model.nv + model.na) < guess.theta.size + tangent_size(model)
    by_rows = by_rows and model.opt.integrator != Integrator.RK4
    count, length = windows.ctrl.shape[:2]
    wanted = states.qpos.shape[1] - 1
    ctrl = np.asarray(windows.ctrl)[:, :wanted]
    before, after = (jax.tree.map(lambda leaf, k=k: np.asarray(leaf)[:, k : wanted + k], states) for k in (0, 1))
    every = jax.tree.map(lambda leaf: leaf.reshape(count * wanted, *leaf.shape[2:]), _Row(before, after, ctrl))
    parts = []
    model = model if touching else model.without_contacts()
    for first in range(0, count * wanted, CHUNK):
        # the last row fills the last chunk
        index = np.minimum(np.arange(first, first + CHUNK), count * wanted - 1)
        chunk = jax.tree.map(lambda leaf, index=index: leaf[index], every)
        parts.append(_linearized(by_rows, model, leaves, slopes, chunk))
    joined = jax.tree.map(lambda *leaves: np.concatenate(leaves)[: count * wanted], *parts)
    steps = jax.tree.map(lambda leaf: leaf.reshape(count, wanted, *leaf.shape[1:]), joined)
    return propagated(steps, first_slopes, length)


@jit
@uncollected()
def changes_to(model: Model, first: First, states: State) -> Array:
    """(windows, nx) the changes by which guesses of first states become these states."""
    guesses = begins(model, first, jnp.zeros((len(first.qpos), 0)))[0]
    return jax.vmap(functools.partial(difference, model))(states, guesses)


def mode_of(model: Model, places: Places, width: int, length: int) -> str:
    """The cheapest mode of differentiation.

    Args:
      model: the model.
      places: of theta in the model.
      width: number of unknowns of a first state.
      length: rows of a window.
    """
    unknowns = sum(place.size for place in places)
    if unknowns + width > REVERSE_COST * (length * model.nsensordata + tangent_size(model)):
        return "reverse"
    carries_more = model.topology.nhistory or model.opt.unrolled
    times = any("opt.timestep" in place.paths for place in places)
    return "forward" if carries_more or times or (not width and unknowns < tangent_size(model)) else "steps"


@jit
@uncollected()
def begins(model: Model, first: First, changes: Array) -> tuple[State, Array]:
    """The changed guesses of all first states, stacked; and their derivatives (windows, nx, width)."""

    def one(qpos: Array, qvel: Array, act: Array, change: Array) -> tuple[State, Array]:
        guessed = make_state(model).replace(qpos=qpos, qvel=qvel, act=act)
        begin = _changed(model, guessed, change)
        return begin, jax.jacfwd(lambda change: difference(model, _changed(model, guessed, change), begin))(change)

    return jax.vmap(one)(*first, changes)


@jit
@uncollected()
def window_gaps(model: Model, first: First, changes: Array, ends: State) -> WindowGaps:
    """How far each window ends from where the next one begins."""
    following = jax.tree.map(lambda leaf: jnp.roll(leaf, -1, axis=0), first)

    def one(end: State, first: First, change: Array) -> WindowGaps:
        guessed = make_state(model).replace(**first._asdict())

        def defect(moved: Array, change: Array) -> Array:
            return difference(model, integrate(model, end, moved), _changed(model, guessed, change))

        still = jnp.zeros(tangent_size(model), change.dtype)
        return WindowGaps(defect(still, change), *jax.jacfwd(defect, argnums=(0, 1))(still, change))

    return jax.vmap(one)(ends, following, jnp.roll(changes, -1, axis=0))


def _changed(model: Model, state: State, change: Array) -> State:
    """The state moved by a change in tangent coordinates; with known first states there is no change."""
    return integrate(model, state, change) if change.size else state


@functools.partial(jit, static_argnums=(0, 1))
@uncollected()
def _whole(
    mode: str, places: Places, model: Model, windows: Windows, guess: Guess, states: State
) -> tuple[Array, Array, Array, Array]:
    """Derivatives of readings and ends with respect to theta and changes, through whole windows."""
    derivative = jax.jacfwd if mode == "forward" else jax.jacrev

    def one(change: Array, window: Windows, end: State) -> tuple[Array, Array, Array, Array]:
        def outcome(theta: Array, change: Array) -> tuple[Array, Array]:
            fitted = with_numbers(model, places, theta)
            guessed = make_state(model).replace(**window.first._asdict())
            start = _changed(model, guessed, change)
            run = rollout(fitted, start, window.ctrl, lambda state, data: data.sensordata)
            return run.readouts, difference(model, run.final, end)

        (by_theta, by_change), (ends, ends_by) = derivative(outcome, argnums=(0, 1))(guess.theta, change)
        return by_theta, by_change, ends, ends_by

    return jax.vmap(one)(guess.changes, windows, jax.tree.map(lambda leaf: jnp.asarray(leaf[:, -1]), states))


class Steps(NamedTuple):
    """Linear models of steps, stacked: A (nx, nx), B (nx, n), C (ny, nx), D (ny, n)."""

    A: Any
    B: Any
    C: Any
    D: Any


class _Row(NamedTuple):
    """A step: the states before and after it, and the controls (nu,); or many steps, stacked."""

    before: State
    after: State
    ctrl: Any


@functools.partial(jit, static_argnums=0)
@uncollected()
def _linearized(by_rows: bool, model: Model, leaves: dict[str, Array], slopes: dict[str, Array], rows: _Row) -> Steps:
    """Linear models of steps side by side.

    Args:
      by_rows: reverse mode for velocities and activations, and forward mode for the readings; False for forward mode.
      model: the model before its leaves are replaced.
      leaves: the leaves that depend on theta.
      slopes: their derivatives (..., n) with respect to theta.
      rows: the steps.
    """
    nv = model.nv
    nx = tangent_size(model)
    nothing = jnp.zeros(nx, model.qpos0.dtype)
    n = next((slope.shape[-1] for slope in slopes.values()), 0)
    # directions of the columns: first the parameters, then the coordinates of the state
    of_leaves = {name: jnp.moveaxis(slope, -1, 0) for name, slope in slopes.items()}
    of_leaves = {name: jnp.pad(part, [(0, nx)] + [(0, 0)] * (part.ndim - 1)) for name, part in of_leaves.items()}
    of_state = jnp.concatenate([jnp.zeros((n, nx), nothing.dtype), jnp.eye(nx, dtype=nothing.dtype)])

    def linear_at(row: _Row) -> Any:
        def outcome(leaves: dict[str, Array], change: Array) -> tuple[Array, Array]:
            inputs = make_inputs(model).replace(ctrl=row.ctrl)
            changed = integrate(model, row.before, change)
            later, data = step_data(with_leaves(model, leaves), changed, inputs)
            return difference(model, later, row.after), data.sensordata

        return jax.linearize(outcome, leaves, nothing)[1]

    def by_column(row: _Row) -> tuple[Array, Array]:
        moved, read = jax.vmap(linear_at(row))(of_leaves, of_state)
        return moved.T, read.T

    def by_row(row: _Row) -> tuple[Array, Array, Array, Array, Array]:
        def place(change: Array, qvel: Array) -> Array:
            qpos = integrate(model, row.before, change).qpos
            moved = row.after.replace(qpos=integrate_position(model, qpos, qvel, model.opt.timestep))
            return difference(model, moved, row.after)[:nv]

        linear = linear_at(row)
        transposed = jax.linear_transpose(lambda leaves, change: linear(leaves, change)[0][nv:], leaves, nothing)
        by_leaves, rest = jax.vmap(transposed)(jnp.eye(nx - nv, dtype=nothing.dtype))
        by_change, by_qvel = jax.jacfwd(place, argnums=(0, 1))(nothing, row.after.qvel)
        flat = jnp.concatenate([by_leaves[name].reshape(nx - nv, -1) for name in leaves], axis=1)
        return rest, flat, by_change, by_qvel, jax.vmap(linear)(of_leaves, of_state)[1].T

    if not by_rows:
        moved, read = jax.vmap(by_column)(rows)
        return Steps(A=moved[..., n:], B=moved[..., :n], C=read[..., n:], D=read[..., :n])
    rest, by_leaves, by_change, by_qvel, read = jax.vmap(by_row)(rows)
    theta_rest = matmul(by_leaves, jnp.concatenate([slopes[name].reshape(-1, n) for name in leaves]))
    A = jnp.concatenate([by_change + matmul(by_qvel, rest[:, :nv]), rest], axis=1)
    B = jnp.concatenate([matmul(by_qvel, theta_rest[:, :nv]), theta_rest], axis=1)
    return Steps(A=A, B=B, C=read[..., n:], D=read[..., :n])


def propagated(steps: Steps, start: np.ndarray, length: int) -> Derivatives:
    """Derivatives along windows, from the linear models of their steps: the forward sensitivity recursion.

    Args:
      steps: (windows, rows, ...).
      start: (windows, nx, width) derivatives of the first states.
      length: number of rows of the readings; after the last step they are zero.
    """
    windows, rows, ny, n = steps.D.shape
    width = start.shape[-1]
    moved = np.concatenate([np.zeros((*start.shape[:2], n)), start], axis=-1)
    read = np.zeros((windows, length, ny, n + width))
    # a simulation that broke down may give any number
    with np.errstate(over="ignore", invalid="ignore"):
        for t in range(rows):
            read[:, t] = steps.C[:, t] @ moved
            read[:, t, :, :n] += steps.D[:, t]
            moved = steps.A[:, t] @ moved
            moved[..., :n] += steps.B[:, t]
    return Derivatives(
        readings_by_theta=read[..., :n],
        readings_by_change=read[..., n:],
        ends_by_theta=moved[..., :n],
        ends_by_change=moved[..., n:],
    )


# fields of unknowns that belong to sensors
SENSED = ("sensor.gain", "sensor.bias", "sensor.delay")


class Sensing(NamedTuple):
    """Parameters of sensors.

    Attributes:
      kind: one of `SENSED`.
      theta_index: (m,) their indices in theta.
      columns: for each parameter, the columns of sensordata that it changes.
    """

    kind: str
    theta_index: tuple[int, ...]
    columns: tuple[tuple[int, ...], ...]


def spoilt_rows(sensing: list[Sensing], lower: np.ndarray, upper: np.ndarray, timestep: float) -> tuple[int, int]:
    """How many rows at a window's beginning and end may show readings from outside it, because of delays in bounds."""
    index = [i for part in sensing if part.kind == "sensor.delay" for i in part.theta_index]
    if not index:
        return 0, 0
    longest_delay = max(float(upper[index].max()), 0.0)
    longest_lead = max(float(-lower[index].min()), 0.0)
    return int(np.ceil(longest_delay / timestep)) + 1, int(np.ceil(longest_lead / timestep)) + 1


class Clock(NamedTuple):
    """The timestep (s), and how much later than its row each reading was taken, (windows, T) s."""

    timestep: float
    offset: np.ndarray


def shown(sensing: list[Sensing], theta: np.ndarray, clock: Clock, readings: np.ndarray) -> np.ndarray:
    """Readings (windows, T, ny) as the recording shows them."""
    gain, bias, late = _numbers(sensing, theta, clock, readings.shape[2])
    return gain * _delayed(readings, late, 0) + bias


def shown_slopes(sensing: list[Sensing], theta: np.ndarray, clock: Clock, slopes: np.ndarray) -> np.ndarray:
    """Derivatives (windows, T, ny, m) of shown readings, from derivatives of readings; not for sensors' parameters."""
    gain, _, late = _numbers(sensing, theta, clock, slopes.shape[2])
    return gain[:, None] * _delayed(slopes, late, 0)


def sensing_slopes(sensing: list[Sensing], theta: np.ndarray, clock: Clock, readings: np.ndarray) -> np.ndarray:
    """Derivatives (windows, T, ny, n) of shown readings with respect to sensors' parameters; zero for the others."""
    gain, _, late = _numbers(sensing, theta, clock, readings.shape[2])
    slopes = np.zeros((*readings.shape, theta.size))
    later = _delayed(readings, late, 0)
    rate = _delayed(readings, late, 1)
    for part in sensing:
        for i, columns in zip(part.theta_index, part.columns, strict=True):
            for column in columns:
                by = {
                    "sensor.gain": later[..., column],
                    "sensor.bias": 1.0,
                    "sensor.delay": -gain[column] * rate[..., column] / clock.timestep,
                }
                slopes[..., column, i] = by[part.kind]
    return slopes


def _numbers(
    sensing: list[Sensing], theta: np.ndarray, clock: Clock, count: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Gains and biases (count,) of all readings, and by how many rows they are late, (windows, T, count)."""
    numbers = {"sensor.gain": np.ones(count), "sensor.bias": np.zeros(count), "sensor.delay": np.zeros(count)}
    for part in sensing:
        for i, columns in zip(part.theta_index, part.columns, strict=True):
            numbers[part.kind][list(columns)] = theta[i]
    late = (numbers["sensor.delay"] - clock.offset[..., None]) / clock.timestep
    return numbers["sensor.gain"], numbers["sensor.bias"], late


def _delayed(rows: np.ndarray, delay: np.ndarray, derivative: int) -> np.ndarray:
    """Columns (windows, T, ny, ...) at rows that are earlier by a delay (windows, T, ny).

    With `derivative` 1, it is their derivative with respect to the row. They are interpolated by cubic convolution
    (Keys 1981); `kernels` are its four polynomials of the fraction between two rows.
    """
    if not delay.any() and not derivative:
        return rows
    whole = np.ceil(delay).astype(int)
    last = rows.shape[1] - 1
    f = np.polynomial.Polynomial([0, 1])
    kernels = (-f / 2 + f**2 - f**3 / 2, 1 - 2.5 * f**2 + 1.5 * f**3, f / 2 + 2 * f**2 - 1.5 * f**3, (f**3 - f**2) / 2)
    first = np.arange(last + 1)[None, :, None] - whole
    later = np.zeros_like(rows)
    widths = (1,) * (rows.ndim - 3)
    for k, kernel in enumerate(kernels, start=-1):
        weight = (kernel.deriv(derivative) if derivative else kernel)(whole - delay)
        index = np.clip(first + k, 0, last)
        later += weight.reshape(*weight.shape, *widths) * np.take_along_axis(
            rows, index.reshape(*index.shape, *widths), axis=1
        )
    return later
