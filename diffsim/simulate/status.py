"""What can go wrong at run time: one row per bit of `data.status`, with its test and its explanation.

Nothing is raised inside a compiled program and nothing leaks into other worlds of a batch: a world that goes bad is
flagged, and `check` says in words what happened and what to do.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.actuator.actuation import clamped_controls
from diffsim.enums import Status
from diffsim.math.safe import is_bad
from diffsim.types import Data, Inputs, Model, State

Array = jax.Array


class Row(NamedTuple):
    """A way to go wrong: when, and what to tell the user."""

    test: Callable[[Model, State, Inputs, Data], Array]
    message: str


ROWS = {
    Status.BAD_QPOS: Row(
        lambda model, state, inputs, data: is_bad(state.qpos),
        "qpos is not finite or beyond 1e10; start from a valid state",
    ),
    Status.BAD_QVEL: Row(
        lambda model, state, inputs, data: is_bad(state.qvel), "qvel is not finite or beyond 1e10; reduce the timestep"
    ),
    Status.BAD_QACC: Row(
        lambda model, state, inputs, data: is_bad(data.qacc), "qacc is not finite or beyond 1e10; reduce the timestep"
    ),
    Status.BAD_CTRL: Row(
        lambda model, state, inputs, data: is_bad(clamped_controls(model, inputs.ctrl)),
        "ctrl is not finite or beyond 1e10: all controls count as 0",
    ),
    Status.CONTACTS_DROPPED: Row(
        lambda model, state, inputs, data: data.ncon_dropped > 0,
        "contacts did not fit in the buffer; load the model with a larger max_contacts or max_pairs",
    ),
    Status.NOT_CONVERGED: Row(
        lambda model, state, inputs, data: data.solver_stalled,
        "the solver stopped at opt.iterations before it reached opt.tolerance",
    ),
}


def status(model: Model, state: State, inputs: Inputs, data: Data) -> Array:
    """The bits that are set, an int32 scalar."""
    bits = jnp.zeros((), jnp.int32)
    for bit, row in ROWS.items():
        bits = bits | jnp.where(row.test(model, state, inputs, data), jnp.int32(bit), jnp.int32(0))
    return bits


def check(data: Data) -> list[str]:
    """Explains `data.status`, of one world or of a batch, in words; an empty list means that all is well."""
    bits = np.atleast_1d(np.asarray(data.status))
    lines = []
    for bit, row in ROWS.items():
        count = int(np.count_nonzero(bits & bit))
        if count:
            where = f" in {count} of {bits.size} worlds" if bits.size > 1 else ""
            lines.append(f"{bit.name}{where}: {row.message}")
    return lines
