"""Motions of windows of recordings and their derivatives, by programs that all fits of a model share.

    x_{t+1} = f(x_t, u_t; theta),    y_t = y(x_t, u_t; theta),    x_0 = guess + change

Programs simulate and differentiate so many steps at a time, whatever the length of a recording: what is not simulated
in a row is put together on the host. Derivatives go by steps: f and y are linearized about states that a simulation has
left, many side by side,

    dx_{t+1} = A_t dx_t + B_t dtheta,    dy_t = C_t dx_t + D_t dtheta,

in tangent coordinates, and the products run along each window. Columns by forward mode cost as many passes as there are
coordinates of x and numbers of theta. Where that is more, the next velocities and activations are differentiated in
reverse mode, row by row, with respect to the leaves of the model that theta changes; positions follow from velocities,
q' = q + h v'. Where x (dq, dv, da) is not all that a step hands on, or first states are known and dx has more columns
than theta, whole windows are differentiated in forward mode; in reverse mode where a window has much fewer readings
than unknowns.

What a recording shows of a reading y_i may be late, scaled and off, which are unknowns of sensors, on the host:

    shown_i(t) = gain_i y_i(t - delay_i + offset(t)) + bias_i

Delays need not be whole timesteps: readings between two rows are those of a cubic through four of them (Keys 1981). A
delay that all sensors share is also one between commands and readings; offsets are known, of rows that were not taken
in time with the steps.
"""

import functools
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
from diffsim.types import Data, Model, State
from diffsim.types.state import make_inputs, make_state
from diffsim.xla.compiled import jit, uncollected

Places = tuple[Place, ...]

# one reverse pass costs about as much as this many forward ones
REVERSE_COST = 3.0
# steps that a program simulates in a row, or linearizes side by side: what those need at once stays in the cache (an
# arm of seven joints and 30 unknowns, 400 steps on a CPU: 27 ms with 64, 22 to 23 with 40, 25 with 16)
CHUNK = 40
MODES = ("auto", "steps", "forward", "reverse")


class First(NamedTuple):
    """Guesses of the windows' first states, (windows, ...)."""

    qpos: Array
    qvel: Array
    act: Array


class Windows(NamedTuple):
    """Windows as a simulation needs them: controls (windows, T, nu), and guesses of first states."""

    ctrl: Array
    first: First


class Guess(NamedTuple):
    """theta (n,), and the changes (windows, width) of the windows' first states; width is 0 where these are known."""

    theta: Array
    changes: Array


class Motions(NamedTuple):
    """Windows as they are simulated, arrays of numpy.

    Attributes:
      readings: (windows, T, ny), contacts: (windows, T) how many there are; zero after what was asked for.
      states: (windows, rows + 1, ...) before each of the rows that were asked for, and after the last one.
    """

    readings: np.ndarray
    contacts: np.ndarray
    states: State

    @property
    def ends(self) -> State:
        """The states after the windows, stacked."""
        return jax.tree.map(lambda leaf: leaf[:, -1], self.states)


class Derivatives(NamedTuple):
    """Derivatives of readings (windows, T, ny, ...) and ends (windows, nx, ...).

    By theta (n), and by the change (width) of the window's first state.
    """

    readings_by_theta: np.ndarray
    readings_by_change: np.ndarray
    ends_by_theta: np.ndarray
    ends_by_change: np.ndarray


class Meetings(NamedTuple):
    """Ends of windows beside where the next ones begin, in tangent coordinates; of the last one, where the first does.

    Attributes:
      defects: (windows, nx) end minus begin.
      by_end, by_next: (windows, nx, nx) and (windows, nx, width) their derivatives by the end and by the change of the
        next window's first state.
    """

    defects: Array
    by_end: Array
    by_next: Array


def motions(places: Places, model: Model, windows: Windows, guess: Guess, rows: int | None = None) -> Motions:
    """All windows, simulated; as many of their rows as are asked for, None for all."""
    length, ctrl = windows.ctrl.shape[1], np.asarray(windows.ctrl)
    fitted = with_leaves(model, numbers(places, model, guess.theta)[0])
    state, _ = begins(model, windows.first, guess.changes)
    parts, wanted = [], rows or length
    for first in range(0, wanted, CHUNK):
        chunk = ctrl[:, np.minimum(np.arange(first, first + CHUNK), length - 1)]
        state, part = _simulated(fitted, state, chunk)
        parts.append(part)
    readings, contacts, before = jax.tree.map(lambda *leaves: np.concatenate(leaves, axis=1)[:, :wanted], *parts)
    # states before the steps that fill the last chunk are those after the last step
    ends = state if not wanted % CHUNK else jax.tree.map(lambda leaf: leaf[:, wanted % CHUNK], parts[-1][2])
    states = jax.tree.map(lambda part, end: np.concatenate([part, np.asarray(end)[:, None]], axis=1), before, ends)
    readings, contacts = (
        np.pad(part, [(0, 0), (0, length - wanted), (0, 0)][: part.ndim]) for part in (readings, contacts)
    )
    return Motions(readings, contacts, states)


@jit
@uncollected()
def _simulated(model: Model, states: State, ctrl: Array | np.ndarray) -> tuple[State, tuple[Array, Array, State]]:
    """Where windows end under controls (windows, steps, nu); readings, contacts, and the states before the steps."""

    def kept(state: State, data: Data) -> tuple[Array, Array, State]:
        return data.sensordata, jnp.sum(data.contact.dist < data.contact.includemargin), state

    run = jax.vmap(lambda state, ctrl: rollout(model, state, ctrl, kept))(states, ctrl)
    return run.final, run.readouts


def derivatives(places: Places, mode: str, model: Model, windows: Windows, guess: Guess, states: State) -> Derivatives:
    """Derivatives of `motions`, whose states they are taken at; zero after the last of them."""
    if mode != "steps":
        return Derivatives(*map(np.asarray, _whole(mode, places, model, windows, guess, states)))
    leaves, slopes = numbers(places, model, guess.theta)
    rows = REVERSE_COST * (model.nv + model.na) < guess.theta.size + tangent_size(model)
    rows = rows and model.opt.integrator != Integrator.RK4
    (count, length), wanted = windows.ctrl.shape[:2], states.qpos.shape[1] - 1
    ctrl = np.asarray(windows.ctrl)[:, :wanted]
    before, after = (jax.tree.map(lambda leaf, k=k: np.asarray(leaf)[:, k : wanted + k], states) for k in (0, 1))
    every = jax.tree.map(lambda leaf: leaf.reshape(count * wanted, *leaf.shape[2:]), _Row(before, after, ctrl))
    parts = []
    for first in range(0, count * wanted, CHUNK):
        # the last row fills the last chunk
        index = np.minimum(np.arange(first, first + CHUNK), count * wanted - 1)
        chunk = jax.tree.map(lambda leaf, index=index: leaf[index], every)
        parts.append(_linearized(rows, model, leaves, slopes, chunk))
    joined = jax.tree.map(lambda *leaves: np.concatenate(leaves)[: count * wanted], *parts)
    steps = jax.tree.map(lambda leaf: leaf.reshape(count, wanted, *leaf.shape[1:]), joined)
    return chained(steps, np.asarray(begins(model, windows.first, guess.changes)[1]), length)


@jit
@uncollected()
def changes_to(model: Model, first: First, states: State) -> Array:
    """(windows, nx) changes of the guesses of first states that lead to these states."""
    guesses = begins(model, first, jnp.zeros((len(first.qpos), 0)))[0]
    return jax.vmap(functools.partial(difference, model))(states, guesses)


def mode_of(model: Model, places: Places, width: int, length: int) -> str:
    """The cheapest mode: of a model, places of theta, unknowns of a first state, and rows of a window."""
    unknowns = sum(place.size for place in places)
    if unknowns + width > REVERSE_COST * (length * model.nsensordata + tangent_size(model)):
        return "reverse"
    carries_more = model.topology.nhistory or model.opt.unrolled
    times = any("opt.timestep" in place.paths for place in places)
    return "forward" if carries_more or times or (not width and unknowns < tangent_size(model)) else "steps"


@jit
@uncollected()
def begins(model: Model, first: First, changes: Array) -> tuple[State, Array]:
    """The guesses of all windows' first states, changed; stacked. And their derivatives (windows, nx, width)."""

    def one(qpos: Array, qvel: Array, act: Array, change: Array) -> tuple[State, Array]:
        guessed = make_state(model).replace(qpos=qpos, qvel=qvel, act=act)
        begin = _changed(model, guessed, change)
        return begin, jax.jacfwd(lambda change: difference(model, _changed(model, guessed, change), begin))(change)

    return jax.vmap(one)(*first, changes)


@jit
@uncollected()
def meetings(model: Model, first: First, changes: Array, ends: State) -> Meetings:
    """How far windows end from where the next ones begin."""
    following = jax.tree.map(lambda leaf: jnp.roll(leaf, -1, axis=0), first)

    def one(end: State, first: First, change: Array) -> Meetings:
        guessed = make_state(model).replace(**first._asdict())

        def defect(moved: Array, change: Array) -> Array:
            return difference(model, integrate(model, end, moved), _changed(model, guessed, change))

        still = jnp.zeros(tangent_size(model), change.dtype)
        return Meetings(defect(still, change), *jax.jacfwd(defect, argnums=(0, 1))(still, change))

    return jax.vmap(one)(ends, following, jnp.roll(changes, -1, axis=0))


def _changed(model: Model, state: State, change: Array) -> State:
    return integrate(model, state, change) if change.size else state


@functools.partial(jit, static_argnums=(0, 1))
@uncollected()
def _whole(
    mode: str, places: Places, model: Model, windows: Windows, guess: Guess, states: State
) -> tuple[Array, Array, Array, Array]:
    """Derivatives of readings and ends by theta and by changes, of whole windows at once."""
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
    """A step: the states before and after it, and the controls (nu,); or many, stacked."""

    before: State
    after: State
    ctrl: Any


@functools.partial(jit, static_argnums=0)
@uncollected()
def _linearized(by_rows: bool, model: Model, leaves: dict[str, Array], slopes: dict[str, Array], rows: _Row) -> Steps:
    """Steps side by side, of a model with other leaves, which have derivatives (..., n) by theta.

    In forward mode; or, by rows, velocities and activations in reverse mode, and what follows from them and the
    readings in forward mode.
    """
    nv, nx, nothing = model.nv, tangent_size(model), jnp.zeros(tangent_size(model), model.qpos0.dtype)
    n = next((slope.shape[-1] for slope in slopes.values()), 0)
    # directions of the columns: those of theta, then those of the state
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
        return Steps(moved[..., n:], moved[..., :n], read[..., n:], read[..., :n])
    rest, by_leaves, by_change, by_qvel, read = jax.vmap(by_row)(rows)
    theta_rest = matmul(by_leaves, jnp.concatenate([slopes[name].reshape(-1, n) for name in leaves]))
    A = jnp.concatenate([by_change + matmul(by_qvel, rest[:, :nv]), rest], axis=1)
    B = jnp.concatenate([matmul(by_qvel, theta_rest[:, :nv]), theta_rest], axis=1)
    return Steps(A, B, read[..., n:], read[..., :n])


def chained(steps: Steps, start: np.ndarray, length: int) -> Derivatives:
    """Products of steps (windows, rows, ...), whose first states change by `start` (windows, nx, width).

    Readings have so many rows; after the last step they are zero.
    """
    (windows, rows, ny, n), width = steps.D.shape, start.shape[-1]
    moved = np.concatenate([np.zeros((*start.shape[:2], n)), start], axis=-1)
    read = np.zeros((windows, length, ny, n + width))
    # a simulation that broke down may be anywhere
    with np.errstate(over="ignore", invalid="ignore"):
        for t in range(rows):
            read[:, t] = steps.C[:, t] @ moved
            read[:, t, :, :n] += steps.D[:, t]
            moved = steps.A[:, t] @ moved
            moved[..., :n] += steps.B[:, t]
    return Derivatives(read[..., :n], read[..., n:], moved[..., :n], moved[..., n:])


# unknowns of sensors
SENSED = ("sensor.gain", "sensor.bias", "sensor.delay")


class Sensing(NamedTuple):
    """Numbers of theta that belong to sensors: what they are, their indices in theta, and which readings they change.

    Attributes:
      kind: one of `SENSED`.
      places: (m,) in theta.
      columns: m tuples of columns of sensordata.
    """

    kind: str
    places: tuple[int, ...]
    columns: tuple[tuple[int, ...], ...]


def spoilt_rows(sensing: list[Sensing], lower: np.ndarray, upper: np.ndarray, timestep: float) -> tuple[int, int]:
    """How many rows at the begin and at the end of a window delays within bounds take from outside of it."""
    index = [i for part in sensing if part.kind == "sensor.delay" for i in part.places]
    if not index:
        return 0, 0
    first, last = max(float(upper[index].max()), 0.0), max(float(-lower[index].min()), 0.0)
    return tuple(int(np.ceil(most / timestep)) + 1 for most in (first, last))  # type: ignore[return-value]


class Clock(NamedTuple):
    """The timestep, s, and by how much readings (windows, T) are later than their rows, s."""

    timestep: float
    offset: np.ndarray


def shown(sensing: list[Sensing], theta: np.ndarray, clock: Clock, readings: np.ndarray) -> np.ndarray:
    """Readings (windows, T, ny) as the recording shows them."""
    gain, bias, late = _numbers(sensing, theta, clock, readings.shape[2])
    return gain * _delayed(readings, late, 0) + bias


def shown_slopes(sensing: list[Sensing], theta: np.ndarray, clock: Clock, slopes: np.ndarray) -> np.ndarray:
    """Derivatives (windows, T, ny, m) of what is shown, from those of the readings by what is not of sensors."""
    gain, _, late = _numbers(sensing, theta, clock, slopes.shape[2])
    return gain[:, None] * _delayed(slopes, late, 0)


def sensing_slopes(sensing: list[Sensing], theta: np.ndarray, clock: Clock, readings: np.ndarray) -> np.ndarray:
    """Derivatives (windows, T, ny, n) of what is shown by the numbers of sensors alone; zero by all others."""
    gain, _, late = _numbers(sensing, theta, clock, readings.shape[2])
    slopes = np.zeros((*readings.shape, theta.size))
    later, rate = _delayed(readings, late, 0), _delayed(readings, late, 1)
    for part in sensing:
        for i, columns in zip(part.places, part.columns, strict=True):
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
    """Gains and biases (count,) of all readings, and by how many rows (windows, T, count) they come late."""
    numbers = {"sensor.gain": np.ones(count), "sensor.bias": np.zeros(count), "sensor.delay": np.zeros(count)}
    for part in sensing:
        for i, columns in zip(part.places, part.columns, strict=True):
            numbers[part.kind][list(columns)] = theta[i]
    late = (numbers["sensor.delay"] - clock.offset[..., None]) / clock.timestep
    return numbers["sensor.gain"], numbers["sensor.bias"], late


def _delayed(rows: np.ndarray, delay: np.ndarray, derivative: int) -> np.ndarray:
    """Columns (windows, T, ny, ...) so many rows (windows, T, ny) later; or their derivatives by the row."""
    if not delay.any() and not derivative:
        return rows
    whole = np.ceil(delay).astype(int)
    last, f = rows.shape[1] - 1, np.polynomial.Polynomial([0, 1])
    keys = (-f / 2 + f**2 - f**3 / 2, 1 - 2.5 * f**2 + 1.5 * f**3, f / 2 + 2 * f**2 - 1.5 * f**3, (f**3 - f**2) / 2)
    first = np.arange(last + 1)[None, :, None] - whole
    later, widths = np.zeros_like(rows), (1,) * (rows.ndim - 3)
    for k, key in enumerate(keys, start=-1):
        weight = (key.deriv(derivative) if derivative else key)(whole - delay)
        index = np.clip(first + k, 0, last)
        later += weight.reshape(*weight.shape, *widths) * np.take_along_axis(
            rows, index.reshape(*index.shape, *widths), axis=1
        )
    return later
