"""rollout: many steps in one scan, which carries State and the worst status; controls are a table or a policy's."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from diffsim.base.checked import checked
from diffsim.simulate.arguments import check_arguments
from diffsim.simulate.forward import forward
from diffsim.simulate.step import step_and_read
from diffsim.types import Data, Inputs, Model, Rollout, State
from diffsim.xla.barriers import entwined, recomputed
from diffsim.xla.compiled import uncollected

Array = jax.Array
Read = Callable[[Data], Any]


class Policy(NamedTuple):
    """Controls in a closed loop, for `rollout`.

    Attributes:
      act: (state, data, key) -> controls (nu,). `data` is that of the state under the controls before, as a robot
        would sense it; what is not read of it is not computed.
      steps: how many.
      key: of `jax.random.key`, split over the steps; None if the policy is not random (it then gets None).
    """

    act: Callable[[State, Data, Any], Array]
    steps: int
    key: Array | None = None


@checked
@uncollected()
def rollout(
    model: Model,
    state: State,
    ctrl: Array | Policy,
    readout: Callable[[State, Data], Any] | None = None,
    inputs: Inputs | None = None,
    checkpoint: bool = True,
) -> Rollout:
    """Steps through a sequence of controls, or with those of a policy.

        policy = diffsim.Policy(lambda state, data, key: -state.qvel[6:], steps=200)
        final, sensors = diffsim.rollout(model, state, policy, lambda state, data: data.sensordata)

    Args:
      model: the compiled model.
      state: the first state.
      ctrl: controls, shape (T, nu), one step for each row; or a `Policy`, which starts from the controls of `inputs`.
      readout: what to keep of each step, a function of the state before the step and its Data; None keeps the state.
      inputs: everything else that the user sets, constant; None for `make_inputs(model)`.
      checkpoint: in reverse mode compute each step again instead of storing it, its solver's result excepted, so that
        memory grows by a state and an acceleration a step, with PGS and noslip by constraint forces too. Without it,
        reverse mode is somewhat faster.

    Returns:
      The final state, and the readouts stacked along a leading axis of length T: unpack it as a pair. Its `status`
      has every bit that any step has set; `diffsim.check(result)` says in words what they mean, such as that gradients
      are less accurate because the solver stopped early.

    Raises:
      ValueError: controls of a wrong shape.
    """
    base = check_arguments(model, state, inputs)
    if isinstance(ctrl, Policy):
        return _closed_loop(model, state, ctrl, readout, base, checkpoint)
    ctrl = jnp.asarray(ctrl, dtype=state.qpos.dtype)
    if ctrl.ndim != 2 or ctrl.shape[1] != model.nu:
        raise ValueError(f"ctrl has shape {ctrl.shape}, expected (T, {model.nu}); batch with jax.vmap")

    def one_step(before: State, _: None, row: Array, read: Read) -> tuple[State, None, Any]:
        later, seen = step_and_read(model, before, base.replace(ctrl=row), read)
        return later, None, seen

    return _scan(_Loop(one_step, readout, checkpoint), state, None, ctrl, len(ctrl))


def _closed_loop(
    model: Model, state: State, policy: Policy, readout: Callable | None, base: Inputs, checkpoint: bool
) -> Rollout:
    """Steps with controls of a policy, which are carried along with the state."""

    def one_step(state: State, before: Array, key: Array | None, read: Read) -> tuple[State, Array, Any]:
        chosen = policy.act(state, forward(model, state, base.replace(ctrl=before)), key)
        if jnp.shape(chosen) != (model.nu,):
            raise ValueError(f"the policy gives controls of shape {jnp.shape(chosen)}, expected ({model.nu},)")
        ctrl = jnp.asarray(chosen, before.dtype)
        later, seen = step_and_read(model, state, base.replace(ctrl=ctrl), read)
        return later, ctrl, seen

    keys = None if policy.key is None else jax.random.split(policy.key, policy.steps)
    return _scan(_Loop(one_step, readout, checkpoint), state, base.ctrl, keys, policy.steps)


class _Loop(NamedTuple):
    """`one_step(state, other, row, read)` -> (next state, next other, what `read` takes of the Data), what is kept of a
    step, and how it is reversed.
    """

    one_step: Callable[[State, Any, Any, Read], tuple[State, Any, Any]]
    readout: Callable[[State, Data], Any] | None
    checkpoint: bool


def _scan(loop: _Loop, state: State, other: Any, rows: Any, length: int) -> Rollout:
    """`lax.scan`, whose reverse mode computes each step again where `checkpoint` says so."""

    def advance(carry: tuple[State, Any, Array], row: Any) -> tuple[tuple[State, Any, Array], Any]:
        before, other, status = carry

        def read(data: Data) -> tuple[Array, Any]:
            return data.status, before if loop.readout is None else loop.readout(before, data)

        later, other, (bits, kept) = loop.one_step(before, other, row, read)
        return (later, other, status | bits), kept

    start = (_moving(state, rows), other, entwined(jnp.zeros((), jnp.int32), (state.qpos, rows)))
    (final, _, status), readouts = jax.lax.scan(
        recomputed(advance) if loop.checkpoint else advance, start, rows, length
    )
    return Rollout(final=final, readouts=readouts, status=status)


def _moving(state: State, rows: Any) -> State:
    """The state; what a step makes of the controls is a function of them."""
    moved = {name: entwined(getattr(state, name), rows) for name in ("qpos", "qvel", "act")}
    return state.replace(**moved)
