"""Residuals of windows of recordings and their Jacobians, as programs that all fits of the same shapes share.

    r_t = (y(x_t, u_t; theta) - measured_t) / noise,    x_{t+1} = f(x_t, u_t; theta),    x_0 = guess + change

The Jacobian goes by steps: f and y of all steps are linearized side by side, about a motion that is simulated once,

    dx_{t+1} = A_t dx_t + B_t dtheta,    dr_t = (C_t dx_t + D_t dtheta) / noise,

and the products run along each window. Where x (dq, dv, da) is not all that a step hands on, or first states are known
and dx has more columns than theta, whole windows are differentiated in forward mode; in reverse mode where a window has
much fewer readings than unknowns.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.optimize.identify.linearized_steps import REVERSE_COST, Places, Steps, along, linearized
from diffsim.optimize.identify.parameters import with_numbers
from diffsim.optimize.identify.recording import Recording
from diffsim.optimize.tangent import difference, integrate, tangent_size
from diffsim.simulate.rollout import rollout
from diffsim.types import Model, State
from diffsim.types.state import make_state

Array = jax.Array

MODES = ("auto", "steps", "forward", "reverse")


class Known(NamedTuple):
    """What a search does not change: the model, 1 / noise of each reading, and the windows, stacked."""

    model: Model
    weight: Array
    windows: Recording


class Guess(NamedTuple):
    """theta (n,), and the changes (windows, width) of the windows' first states; width is 0 where these are known."""

    theta: Array
    changes: Array


@functools.partial(jax.jit, static_argnums=0)
def residuals(places: Places, known: Known, guess: Guess) -> Array:
    """(windows, k), row by row of each window."""
    model = with_numbers(known.model, places, guess.theta)

    def one(change: Array, window: Recording) -> Array:
        run = rollout(model, first_state(model, change, window), window.ctrl, lambda state, data: data.sensordata)
        return _weighed(known, window, run.readouts - _measured(model, window, run.readouts)).reshape(-1)

    return jax.vmap(one)(guess.changes, known.windows)


@functools.partial(jax.jit, static_argnums=(0, 1))
def jacobian(places: Places, mode: str, known: Known, guess: Guess) -> tuple[Array, Array]:
    """(windows, k, n) and (windows, k, width): derivatives of the residuals by theta and by changes."""
    if mode == "steps":
        return _by_steps(places, known, guess)
    derivative = jax.jacfwd if mode == "forward" else jax.jacrev

    def one(change: Array, window: Recording) -> tuple[Array, Array]:
        def whole(theta: Array, change: Array) -> Array:
            alone = known._replace(windows=jax.tree.map(lambda leaf: leaf[None], window))
            return residuals(places, alone, Guess(theta, change[None]))[0]

        return derivative(whole, argnums=(0, 1))(guess.theta, change)

    return jax.vmap(one)(guess.changes, known.windows)


def mode_of(model: Model, places: Places, width: int, length: int) -> str:
    """The cheapest mode: of a model, places of theta, unknowns of a first state, and rows of a window."""
    unknowns = sum(place.size for place in places)
    if unknowns + width > REVERSE_COST * length * model.nsensordata:
        return "reverse"
    carries_more = model.topology.nhistory or model.opt.unrolled
    times = any("opt.timestep" in place.paths for place in places)
    return "forward" if carries_more or times or (not width and unknowns < tangent_size(model)) else "steps"


def first_state(model: Model, change: Array, window: Recording) -> State:
    """The guess of a window's first row, changed."""
    guess = make_state(model).replace(qpos=window.qpos[0], qvel=window.qvel[0], act=window.act[0])
    return integrate(model, guess, change) if change.size else guess


def _by_steps(places: Places, known: Known, guess: Guess) -> tuple[Array, Array]:
    """Linearized steps, and their products along each window."""
    model = with_numbers(known.model, places, guess.theta)

    def motion(change: Array, window: Recording) -> State:
        return rollout(model, first_state(model, change, window), window.ctrl).readouts

    states = jax.vmap(motion)(guess.changes, known.windows)
    steps = linearized(known.model, places, guess.theta, states, known.windows.ctrl)

    def one(change: Array, window: Recording, steps: Steps) -> tuple[Array, Array]:
        first = first_state(model, change, window)
        start = jax.jacfwd(lambda change: difference(model, first_state(model, change, window), first))(change)
        by_theta, by_change = along(steps, start)
        n = by_theta.shape[-1]
        both = _weighed(known, window, jnp.concatenate([by_theta, by_change], axis=-1))
        both = both.reshape(-1, both.shape[-1])
        return both[:, :n], both[:, n:]

    return jax.vmap(one)(guess.changes, known.windows, steps)


def _measured(model: Model, window: Recording, readings: Array) -> Array:
    """(T, ny) what was measured; quaternions, whose sign means nothing, on the side of the readings."""
    measured = window.sensordata
    for i in np.flatnonzero(np.asarray(model.sensor_dim) == 4):
        place = slice(int(model.sensor_adr[i]), int(model.sensor_adr[i]) + 4)
        side = jnp.sum(readings[:, place] * jnp.nan_to_num(measured[:, place]), axis=1, keepdims=True)
        measured = measured.at[:, place].multiply(jnp.where(side < 0, -1, 1).astype(measured.dtype))
    return measured


def _weighed(known: Known, window: Recording, errors: Array) -> Array:
    """(T, ny, ...) over the noise; zero where nothing was measured."""
    widths = (1,) * (errors.ndim - 2)
    seen = jnp.isfinite(window.sensordata).reshape(*window.sensordata.shape, *widths)
    return jnp.where(seen, errors, 0) * known.weight.reshape(1, -1, *widths)
