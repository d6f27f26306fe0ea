"""Motions of windows of recordings and their derivatives, as programs that all fits of the same shapes share.

    x_{t+1} = f(x_t, u_t; theta),    y_t = y(x_t, u_t; theta),    x_0 = guess + change

A window also tells by how much it fails to end where the next one begins, its defect. Derivatives go by steps: f and y
of all steps are linearized side by side, about a motion that is simulated once,

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
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.base.enums import Integrator
from diffsim.kinematics.joints import integrate_position
from diffsim.math.vector import matmul
from diffsim.optimize.identify.places import Place, changed_leaves, with_numbers
from diffsim.optimize.tangent import difference, integrate, tangent_size
from diffsim.simulate.randomize import leaf, with_leaves
from diffsim.simulate.step import rollout, step_data
from diffsim.types import Data, Model, State
from diffsim.types.state import make_inputs, make_state

Array = jax.Array
Places = tuple[Place, ...]

# one reverse pass costs about as much as this many forward ones
REVERSE_COST = 3.0
# steps that are linearized side by side: what they need at once stays in the cache (an arm of seven joints and 30
# unknowns, 400 steps on a CPU: 27 ms with 64, 22 to 23 with 40, 25 with 16)
CHUNK = 40
MODES = ("auto", "steps", "forward", "reverse")


class Windows(NamedTuple):
    """Windows as a simulation needs them: controls (windows, T, nu), and guesses of first states (windows, ...)."""

    ctrl: Array
    qpos: Array
    qvel: Array
    act: Array


class Guess(NamedTuple):
    """theta (n,), and the changes (windows, width) of the windows' first states; width is 0 where these are known."""

    theta: Array
    changes: Array


class Motions(NamedTuple):
    """Windows as they are simulated.

    Attributes:
      readings: (windows, T, ny).
      contacts: (windows, T) how many there are.
      defects: (windows, nx) end of a window minus the first state of the next one, in tangent coordinates; of the last
        window, minus that of the first one.
      ends: the states after the windows, stacked.
    """

    readings: Array
    contacts: Array
    defects: Array
    ends: State


class Derivatives(NamedTuple):
    """Derivatives of readings (windows, T, ny, ...) and defects (windows, nx, ...).

    By theta (n), by the change (width) of the window's first state, and of defects by that of the next window's too.
    """

    readings_by_theta: Array
    readings_by_change: Array
    defects_by_theta: Array
    defects_by_change: Array
    defects_by_next: Array


@functools.partial(jax.jit, static_argnums=0)
def motions(places: Places, model: Model, windows: Windows, guess: Guess) -> Motions:
    """All windows, simulated."""
    fitted = with_numbers(model, places, guess.theta)
    starts = first_states(model, windows, guess.changes)

    def kept(state: State, data: Data) -> tuple[Array, Array]:
        return data.sensordata, jnp.sum(data.contact.dist < data.contact.includemargin)

    run = jax.vmap(lambda state, ctrl: rollout(fitted, state, ctrl, kept))(starts, windows.ctrl)
    defects = jax.vmap(functools.partial(difference, model))(run.final, _next(starts))
    readings, contacts = run.readouts
    return Motions(readings, contacts, defects, run.final)


@functools.partial(jax.jit, static_argnums=(0, 1))
def derivatives(places: Places, mode: str, model: Model, windows: Windows, guess: Guess) -> Derivatives:
    """Derivatives of `motions`."""
    find = _by_steps if mode == "steps" else functools.partial(_whole, mode)
    by_theta, by_change, end_by_theta, end_by_change, ends = find(places, model, windows, guess)
    starts = first_states(model, windows, guess.changes)

    def defect(end: State, start: State, moved: Array, change: Array) -> Array:
        return difference(model, integrate(model, end, moved), _changed(model, start, change))

    nothing, still = jnp.zeros(tangent_size(model), guess.theta.dtype), jnp.zeros(guess.changes.shape[1])
    slopes = jax.vmap(jax.jacfwd(defect, argnums=2), in_axes=(0, 0, None, None))(ends, _next(starts), nothing, still)

    def by_own_start(end: State, guessed: State, change: Array) -> Array:
        return jax.jacfwd(lambda change: difference(model, end, _changed(model, guessed, change)))(change)

    guessed = _next(first_states(model, windows, jnp.zeros_like(guess.changes)))
    by_next = jax.vmap(by_own_start)(ends, guessed, jnp.roll(guess.changes, -1, axis=0))
    return Derivatives(by_theta, by_change, matmul(slopes, end_by_theta), matmul(slopes, end_by_change), by_next)


@jax.jit
def changes_to(model: Model, windows: Windows, states: State) -> Array:
    """(windows, nx) changes of the guesses of first states that lead to these states."""
    guesses = first_states(model, windows, jnp.zeros((len(windows.qpos), 0)))
    return jax.vmap(functools.partial(difference, model))(states, guesses)


def mode_of(model: Model, places: Places, width: int, length: int) -> str:
    """The cheapest mode: of a model, places of theta, unknowns of a first state, and rows of a window."""
    unknowns = sum(place.size for place in places)
    if unknowns + width > REVERSE_COST * (length * model.nsensordata + tangent_size(model)):
        return "reverse"
    carries_more = model.topology.nhistory or model.opt.unrolled
    times = any("opt.timestep" in place.paths for place in places)
    return "forward" if carries_more or times or (not width and unknowns < tangent_size(model)) else "steps"


def first_states(model: Model, windows: Windows, changes: Array) -> State:
    """The guesses of all windows' first states, changed; stacked."""

    def first(qpos: Array, qvel: Array, act: Array, change: Array) -> State:
        return _changed(model, make_state(model).replace(qpos=qpos, qvel=qvel, act=act), change)

    return jax.vmap(first)(windows.qpos, windows.qvel, windows.act, changes)


def _changed(model: Model, state: State, change: Array) -> State:
    return integrate(model, state, change) if change.size else state


def _next(states: State) -> State:
    """The state of the next window, for all; the first one's for the last."""
    return jax.tree.map(lambda leaf: jnp.roll(leaf, -1, axis=0), states)


Whole = tuple[Array, Array, Array, Array, State]


def _whole(mode: str, places: Places, model: Model, windows: Windows, guess: Guess) -> Whole:
    """Derivatives of readings and ends by theta and by changes, of whole windows at once; and the ends."""
    derivative = jax.jacfwd if mode == "forward" else jax.jacrev

    def one(change: Array, window: Windows) -> Whole:
        def run(theta: Array, change: Array) -> tuple[Array, State]:
            fitted = with_numbers(model, places, theta)
            alone = jax.tree.map(lambda leaf: leaf[None], window)
            start = jax.tree.map(lambda leaf: leaf[0], first_states(model, alone, change[None]))
            done = rollout(fitted, start, window.ctrl, lambda state, data: data.sensordata)
            return done.readouts, done.final

        end = jax.lax.stop_gradient(run(guess.theta, change)[1])

        def outcome(theta: Array, change: Array) -> tuple[Array, Array]:
            readings, final = run(theta, change)
            return readings, difference(model, final, end)

        (by_theta, by_change), (ends, ends_by) = derivative(outcome, argnums=(0, 1))(guess.theta, change)
        return by_theta, by_change, ends, ends_by, end

    return jax.vmap(one)(guess.changes, windows)


def _by_steps(places: Places, model: Model, windows: Windows, guess: Guess) -> Whole:
    """The same by linearized steps, and their products along each window."""
    fitted = with_numbers(model, places, guess.theta)
    starts = first_states(model, windows, guess.changes)
    run = jax.vmap(lambda state, ctrl: rollout(fitted, state, ctrl))(starts, windows.ctrl)
    states = jax.tree.map(lambda rows, last: jnp.concatenate([rows, last[:, None]], axis=1), run.readouts, run.final)
    steps = linearized(model, places, guess.theta, states, windows.ctrl)
    guessed = first_states(model, windows, jnp.zeros_like(guess.changes))

    def one(change: Array, guessed: State, first: State, steps: Steps) -> tuple[Array, Array, Array, Array]:
        start = jax.jacfwd(lambda change: difference(model, _changed(model, guessed, change), first))(change)
        return along(steps, start)

    return *jax.vmap(one)(guess.changes, guessed, starts, steps), run.final


class Steps(NamedTuple):
    """Of one step, or of many stacked: A (nx, nx), B (nx, n), C (ny, nx), D (ny, n)."""

    A: Array
    B: Array
    C: Array
    D: Array


class _Row(NamedTuple):
    """A step: the state before, where it led, and the controls (nu,)."""

    state: State
    there: State
    ctrl: Array


def linearized(model: Model, places: Places, theta: Array, states: State, ctrl: Array) -> Steps:
    """All steps of motions, states (motions, T + 1, ...) and controls (motions, T, nu)."""
    count = ctrl.shape[0] * ctrl.shape[1]
    before = jax.tree.map(lambda leaf: leaf[:, :-1], states)
    there = jax.tree.map(lambda leaf: leaf[:, 1:], states)
    flat = jax.tree.map(lambda leaf: leaf.reshape(count, *leaf.shape[2:]), _Row(before, there, ctrl))
    rows = REVERSE_COST * (model.nv + model.na) < theta.size + tangent_size(model)
    find = _by_rows if rows and model.opt.integrator != Integrator.RK4 else _by_columns
    return jax.tree.map(lambda leaf: leaf.reshape(*ctrl.shape[:2], *leaf.shape[1:]), find(model, places, theta, flat))


def _step(model: Model, fitted: Model, row: _Row, change: Array) -> tuple[State, Array]:
    """The next state and the readings of a model with the numbers of theta, from a changed state."""
    inputs = make_inputs(model).replace(ctrl=row.ctrl)
    later, data = step_data(fitted, integrate(model, row.state, change), inputs)
    return later, data.sensordata


def _by_columns(model: Model, places: Places, theta: Array, rows: _Row) -> Steps:
    """In forward mode."""

    def outcomes(theta: Array, change: Array) -> tuple[Array, Array]:
        fitted = with_numbers(model, places, theta)

        def one(row: _Row) -> tuple[Array, Array]:
            later, readings = _step(model, fitted, row, change)
            return difference(model, later, row.there), readings

        return _in_chunks(one, rows)

    nothing = jnp.zeros(tangent_size(model), theta.dtype)
    (B, A), (D, C) = jax.jacfwd(outcomes, argnums=(0, 1))(theta, nothing)
    return Steps(A, B, C, D)


def _by_rows(model: Model, places: Places, theta: Array, rows: _Row) -> Steps:
    """Velocities and activations in reverse mode, what follows from them and the readings in forward mode."""
    names, nv = changed_leaves(model, places, theta), model.nv

    def leaves_of(theta: Array) -> dict[str, Array]:
        fitted = with_numbers(model, places, theta)
        return {name: leaf(fitted, name) for name in names}

    leaves, slopes = leaves_of(theta), jax.jacfwd(leaves_of)(theta)
    nothing = jnp.zeros(tangent_size(model), theta.dtype)

    def one(row: _Row) -> tuple[Array, Array, Array, Array]:
        def moved(leaves: dict[str, Array], change: Array) -> Array:
            later, _ = _step(model, with_leaves(model, leaves), row, change)
            return jnp.concatenate([later.qvel, later.act])

        def place(change: Array, qvel: Array) -> Array:
            qpos = integrate(model, row.state, change).qpos
            led = row.there.replace(qpos=integrate_position(model, qpos, qvel, model.opt.timestep))
            return difference(model, led, row.there)[:nv]

        by_leaves, rest = jax.jacrev(moved, argnums=(0, 1))(leaves, nothing)
        by_change, by_qvel = jax.jacfwd(place, argnums=(0, 1))(nothing, row.there.qvel)
        flat = jnp.concatenate([by_leaves[name].reshape(len(rest), -1) for name in names], axis=1)
        return rest, flat, by_change, by_qvel

    def readings(theta: Array, change: Array) -> Array:
        fitted = with_numbers(model, places, theta)
        return _in_chunks(lambda row: _step(model, fitted, row, change)[1], rows)

    rest, by_leaves, by_change, by_qvel = _in_chunks(one, rows)
    # in one product for all rows
    theta_rest = matmul(by_leaves, jnp.concatenate([slopes[name].reshape(-1, theta.size) for name in names]))
    A = jnp.concatenate([by_change + matmul(by_qvel, rest[:, :nv]), rest], axis=1)
    B = jnp.concatenate([matmul(by_qvel, theta_rest[:, :nv]), theta_rest], axis=1)
    D, C = jax.jacfwd(readings, argnums=(0, 1))(theta, nothing)
    return Steps(A, B, C, D)


def _in_chunks(function: Callable[[_Row], Any], rows: _Row) -> Any:
    """A function of each row, of some side by side; the last row fills the last chunk, so that all are one program."""
    count = len(rows.ctrl)
    chunks = -(-count // CHUNK)
    shape = chunks, -(-count // chunks)
    index = np.minimum(np.arange(shape[0] * shape[1]), count - 1)
    filled = jax.tree.map(lambda leaf: leaf[index].reshape(*shape, *leaf.shape[1:]), rows)
    found = jax.lax.map(jax.vmap(function), filled)
    return jax.tree.map(lambda leaf: leaf.reshape(index.size, *leaf.shape[2:])[:count], found)


def along(steps: Steps, start: Array) -> tuple[Array, Array, Array, Array]:
    """Derivatives (T, ny, n) and (T, ny, width) of the readings, (nx, n) and (nx, width) of the end.

    The first state changes by `start` (nx, width).
    """
    n, width = steps.B.shape[-1], start.shape[-1]

    def advance(moved: Array, step: Steps) -> tuple[Array, Array]:
        later = matmul(step.A, moved).at[:, :n].add(step.B)
        return later, matmul(step.C, moved).at[:, :n].add(step.D)

    first = jnp.concatenate([jnp.zeros((start.shape[0], n), start.dtype), start], axis=1)
    end, read = jax.lax.scan(advance, first, steps)
    return read[..., :n], read[..., n : n + width], end[:, :n], end[:, n:]


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


def own_slopes(sensing: list[Sensing], theta: np.ndarray, clock: Clock, readings: np.ndarray) -> np.ndarray:
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
