"""Steps of a motion linearized side by side, by state and by numbers of the model; and their products along it.

    dx_{t+1} = A_t dx_t + B_t dtheta,    dy_t = C_t dx_t + D_t dtheta

in tangent coordinates. Columns by forward mode cost as many passes as there are coordinates of x and numbers of theta.
Where that is more, the next velocities and activations are differentiated in reverse mode, row by row, with respect to
the leaves of the model that theta changes; positions follow from velocities, q' = q + h v'.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.base.enums import Integrator
from diffsim.kinematics.joints import integrate_position
from diffsim.math.vector import matmul
from diffsim.optimize.identify.parameters import Place, changed_leaves, with_numbers
from diffsim.optimize.tangent import difference, integrate, tangent_size
from diffsim.simulate.randomize import leaf, with_leaves
from diffsim.simulate.step import step_data
from diffsim.types import Model, State
from diffsim.types.state import make_inputs

Array = jax.Array
Places = tuple[Place, ...]

# one reverse pass costs about as much as this many forward ones
REVERSE_COST = 3.0
# steps that are linearized side by side: what they need at once stays in the cache (an arm of seven joints and 30
# unknowns, 400 steps on a CPU: 27 ms with 64, 22 to 23 with 40, 25 with 16)
CHUNK = 40


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
    """All steps of motions, states and controls (motions, T, ...); A and B of the last one of each mean nothing."""
    count = ctrl.shape[0] * ctrl.shape[1]
    there = jax.tree.map(lambda leaf: jnp.roll(leaf, -1, axis=1), states)
    flat = jax.tree.map(lambda leaf: leaf.reshape(count, *leaf.shape[2:]), _Row(states, there, ctrl))
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
        return rest, _flat(by_leaves, names, len(rest)), by_change, by_qvel

    def readings(theta: Array, change: Array) -> Array:
        fitted = with_numbers(model, places, theta)
        return _in_chunks(lambda row: _step(model, fitted, row, change)[1], rows)

    rest, by_leaves, by_change, by_qvel = _in_chunks(one, rows)
    # in one product for all rows
    theta_rest = matmul(by_leaves, jnp.concatenate([slopes[name].reshape(-1, theta.size) for name in names]))
    # the last row of a motion led elsewhere, and is not used
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


def _flat(leaves: dict[str, Array], names: list[str], count: int) -> Array:
    """(count, L) of derivatives (count, ...) by leaves."""
    return jnp.concatenate([leaves[name].reshape(count, -1) for name in names], axis=1)


def along(steps: Steps, start: Array) -> tuple[Array, Array]:
    """Derivatives (T, ny, n) and (T, ny, width) of the readings; the first state changes by `start` (nx, width)."""
    n, width = steps.B.shape[-1], start.shape[-1]

    def advance(moved: Array, step: Steps) -> tuple[Array, Array]:
        later = matmul(step.A, moved).at[:, :n].add(step.B)
        return later, matmul(step.C, moved).at[:, :n].add(step.D)

    first = jnp.concatenate([jnp.zeros((start.shape[0], n), start.dtype), start], axis=1)
    read = jax.lax.scan(advance, first, steps)[1]
    return read[..., :n], read[..., n : n + width]
