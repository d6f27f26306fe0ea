"""The tangent space of states: vectors of 2 nv + na coordinates (dq, dv, da).

qpos contains quaternions, which do not add. A change of position is therefore a vector of nv numbers, like a velocity
(m, rad; the rotation of a free or ball joint is in its local frame). Time, delayed samples and the warm start are not
included.

Source: MuJoCo documentation, "Computation", quaternions in the configuration; mjd_transitionFD has the same order.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.base.checked import checked
from diffsim.kinematics.joints import integrate_position, position_difference
from diffsim.types import Model, State


def tangent_size(model: Model) -> int:
    """Number of tangent coordinates, 2 nv + na."""
    return 2 * model.nv + model.na


@checked
def difference(model: Model, state: State, reference: State) -> Array:
    """The change from `reference` to `state`, such that `integrate(model, reference, change)` is `state`.

    Args:
      model: the model of both.
      state: a state of one world.
      reference: another state of the same world.

    Returns:
      (2 nv + na,) differences of position (m, rad), velocity and activation.
    """
    dq = position_difference(model, state.qpos, reference.qpos)
    return jnp.concatenate([dq, state.qvel - reference.qvel, state.act - reference.act])


@checked
def integrate(model: Model, state: State, change: Array) -> State:
    """The state displaced by a change; quaternions stay normalized. The inverse of `difference`.

    Args:
      model: the model.
      state: a state of one world.
      change: (2 nv + na,) of position (m, rad), velocity and activation.

    Returns:
      The displaced state.
    """
    nv = model.nv
    return displaced(model, state, change[:nv], change[nv : 2 * nv], change[2 * nv :])


def displaced(model: Model, state: State, dq: Array, dv: Array, da: Array) -> State:
    """`integrate` for the parts of a change: (nv,) m or rad, (nv,), (na,)."""
    return state.replace(
        qpos=integrate_position(model, state.qpos, dq, jnp.ones((), state.qpos.dtype)),
        qvel=state.qvel + dv,
        act=state.act + da,
    )


def no_change(model: Model) -> tuple[Array, Array, Array, Array]:
    """Zero changes (dq, dv, da, du) of position, velocity, activation and controls."""
    nothing = jnp.zeros(2 * model.nv + model.na + model.nu, model.qpos0.dtype)
    dq, dv, da, du = jnp.split(nothing, np.cumsum([model.nv, model.nv, model.na]))
    return dq, dv, da, du


@checked
def tangent_gradient(model: Model, state: State, gradient: State) -> Array:
    """Converts a gradient with respect to a State to tangent coordinates.

    With x(d) = integrate(model, state, d), this is (dx/dd)^T gradient at d = 0: the part of the gradient along changes
    that keep quaternions normalized.

    Args:
      model: the model.
      state: the state at which the gradient was taken.
      gradient: the result of `jax.grad` of a function of a State.

    Returns:
      (2 nv + na,) with respect to position, velocity and activation.
    """

    def moved(change: Array) -> tuple[Array, Array, Array]:
        later = integrate(model, state, change)
        return later.qpos, later.qvel, later.act

    zero = jnp.zeros(tangent_size(model), state.qpos.dtype)
    return jax.vjp(moved, zero)[1]((gradient.qpos, gradient.qvel, gradient.act))[0]


def jacobians(
    function: Callable[..., tuple[Any, Any]], parts: tuple[Array, ...], together: bool = False
) -> tuple[Any, Any]:
    """Jacobians with respect to several parts of the input, in forward mode, side by side in the order of the parts.

    Velocities move no frame, and controls affect little but the forces. If each part is differentiated in a pass of its
    own, the pass computes only what depends on the part, and XLA computes once what the passes share. A single pass
    would compute everything for all columns. For one iteration of iLQR of a cartpole, a hopper and a quadruped,
    separate passes take 0.6 of the time of a single pass.

    Args:
      function: takes the parts (n_i,); returns a pytree of vectors (m,), and a result that is not differentiated.
      parts: the values of the parts; empty parts cost nothing.
      together: whether to differentiate with respect to all parts in a single pass, which compiles in three quarters of
        the time.

    Returns:
      The pytree with Jacobians (m, sum of n_i) in place of its vectors, and the other result.
    """
    if together:
        ends = np.cumsum([part.size for part in parts])[:-1]
        return jax.jacfwd(lambda flat: function(*jnp.split(flat, ends)), has_aux=True)(jnp.concatenate(parts))
    nonempty = [i for i, part in enumerate(parts) if part.size] or [0]
    slopes = [jax.jacfwd(function, argnums=i, has_aux=True)(*parts) for i in nonempty]
    return jax.tree.map(lambda *sides: jnp.concatenate(sides, axis=1), *(side for side, _ in slopes)), slopes[0][1]
