"""What can go wrong at run time: one row per bit of `data.status`, with its test and its explanation.

Nothing is raised inside a compiled program, and nothing leaks into other worlds of a batch. A world that goes bad is
flagged; `is_bad` says whether its numbers can be used, and `explain` what happened and what to do. A common cause is a
singular inertia matrix: two parallel slides of one body, or two hinges on one line, are two coordinates of one motion,
and nothing determines how much of the motion each of them makes (`motions_without_inertia`, on the host, in numpy).
"""

import functools
import operator
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.actuator.actuators import clamped_controls
from diffsim.base.checked import checked
from diffsim.base.enums import Status
from diffsim.math.safe import is_bad as is_bad_number
from diffsim.solver.conditioning import is_beyond, watched
from diffsim.types import Data, Inputs, Model, Rollout, State

# a dof takes part in a motion if its entry is at least this share of the largest entry
TAKES_PART = 0.1


def motions_without_inertia(inertia: np.ndarray) -> list[np.ndarray]:
    """The dofs of motions without inertia: one array for each diagonal block of M that is singular to rounding.

    Args:
      inertia: (nv, nv) joint-space inertia, kg m^2, kg m and kg.
    """
    if not np.isfinite(inertia).all():
        return [np.flatnonzero(~np.isfinite(inertia).all(axis=1))]
    # here, because it takes long to import and only broken models need it
    from scipy.sparse.csgraph import connected_components

    count, label = connected_components(inertia != 0, directed=False)
    motions = (_motion(inertia, np.flatnonzero(label == part)) for part in range(count))
    return [motion for motion in motions if len(motion)]


def _motion(inertia: np.ndarray, dofs: np.ndarray) -> np.ndarray:
    """The dofs, out of some, that take part in a motion without inertia; none if there is no such motion."""
    block = inertia[np.ix_(dofs, dofs)]
    # metres and radians made comparable
    size = np.sqrt(np.maximum(np.diagonal(block), np.finfo(block.dtype).tiny))
    values, vectors = np.linalg.eigh(block / size[:, None] / size)
    free = vectors[:, values <= len(dofs) * np.finfo(block.dtype).eps]
    share = np.abs(free).max(axis=1, initial=0)
    return dofs[share > TAKES_PART * share.max(initial=0)]


class Row(NamedTuple):
    """A way to go wrong.

    Attributes:
      test: (model, state, inputs, data) -> whether it happened.
      message: tells the user what happened, and in general what to do.
      bad: whether results are then useless; else they are only less accurate.
      advice: finds out what to do in this case, from the Data of one world in numpy.
      occurs: whether it can happen with a model; else programs do not test for it.
    """

    test: Callable[[Model, State, Inputs, Data], Array]
    message: str
    bad: bool = True
    advice: Callable[[Data], str] | None = None
    occurs: Callable[[Model], bool] = lambda model: True


def _about_acceleration(data: Data) -> str:
    """What to do about a bad qacc: the first cause that fits."""
    if int(data.status) & int(Status.BAD_QPOS | Status.BAD_QVEL | Status.BAD_INPUT):
        return "it follows from other bad numbers, which are flagged too"
    motions = motions_without_inertia(np.asarray(data.qM))
    if motions:
        dofs = ", ".join(str(motion.tolist()) for motion in motions)
        return f"the inertia matrix is singular here: nothing resists degrees of freedom {dofs}; give them armature"
    if not np.isfinite(data.qfrc_smooth).all():
        dofs = np.flatnonzero(~np.isfinite(data.qfrc_smooth)).tolist()
        return f"forces on degrees of freedom {dofs} are not finite: look at the numbers of the model and its hooks"
    return "reduce the timestep"


ROWS = {
    Status.BAD_QPOS: Row(
        lambda model, state, inputs, data: is_bad_number(state.qpos),
        "qpos is not finite or beyond 1e10; start from a valid state",
    ),
    Status.BAD_QVEL: Row(
        lambda model, state, inputs, data: is_bad_number(state.qvel),
        "qvel is not finite or beyond 1e10; reduce the timestep",
    ),
    Status.BAD_QACC: Row(
        lambda model, state, inputs, data: is_bad_number(data.qacc),
        "qacc is not finite or beyond 1e10",
        advice=_about_acceleration,
    ),
    Status.BAD_CTRL: Row(
        lambda model, state, inputs, data: is_bad_number(clamped_controls(model, inputs.ctrl)),
        "ctrl is not finite or beyond 1e10: all controls count as 0",
    ),
    Status.CONTACTS_DROPPED: Row(
        lambda model, state, inputs, data: data.ncon_dropped > 0,
        "contacts did not fit in the buffer; load the model with a larger max_contacts or max_pairs",
    ),
    Status.NOT_CONVERGED: Row(
        lambda model, state, inputs, data: data.solver_stalled,
        "the solver stopped at opt.iterations, or for rounding, before it reached opt.tolerance; "
        "implicit gradients are less accurate",
        bad=False,
    ),
    Status.BAD_INPUT: Row(
        lambda model, state, inputs, data: functools.reduce(
            operator.or_,
            map(is_bad_number, (inputs.qfrc_applied, inputs.xfrc_applied, inputs.mocap_pos, inputs.mocap_quat)),
        ),
        "an applied force or mocap pose is not finite or beyond 1e10",
    ),
    Status.BAD_TIME: Row(
        lambda model, state, inputs, data: is_bad_number(state.time), "time is not finite or beyond 1e10"
    ),
    Status.ILL_CONDITIONED: Row(
        lambda model, state, inputs, data: is_beyond(data.M),
        "the inertia matrix is beyond float32, and accelerations may be off by over 1%: switch jax_enable_x64 on "
        "before you load the model, or give light links that carry heavy ones armature",
        bad=False,
        occurs=watched,
    ),
}

# the bits that make the numbers of a world useless
BAD = functools.reduce(operator.or_, (bit for bit, row in ROWS.items() if row.bad))


def status(model: Model, state: State, inputs: Inputs, data: Data) -> Array:
    """() int32, the bits that are set."""
    bits = jnp.zeros((), jnp.int32)
    for bit, row in ROWS.items():
        if not row.occurs(model):
            continue
        bits = bits | jnp.where(row.test(model, state, inputs, data), jnp.int32(bit), jnp.int32(0))
    return bits


@checked
def is_bad(data: Data | Rollout) -> Array:
    """Whether the numbers of each world are useless: not finite, out of range, or contacts were lost; bool.

    A solver that stopped at its iteration limit does not count; `data.status` has a bit for it.

    Args:
      data: Data of one world or of a batch, or a Rollout; a world is bad if any step of its rollout is.

    Returns:
      bool, in the shape of the batch.
    """
    return (data.status & int(BAD)) != 0


def explain(data: Any) -> list[str]:
    """A sentence for each bit of the status that is set in any world.

    Args:
      data: anything with a `status`, as for `diffsim.check`.

    Raises:
      TypeError: `data` has no status.
    """
    flags = getattr(data, "status", None)
    if flags is None:
        info = getattr(data, "info", None)
        flags = info.get("status") if isinstance(info, Mapping) else data
    bits: np.ndarray = np.asarray(flags) if isinstance(flags, Array | np.ndarray | np.integer | int) else np.zeros(0)
    if not np.issubdtype(bits.dtype, np.integer):
        raise TypeError(f"a {type(data).__name__} carries no status; diffsim.step_data and rollout give what does")
    lines = []
    for bit, row in ROWS.items():
        worlds = np.argwhere(bits & int(bit))
        if len(worlds):
            where = f" in {len(worlds)} of {bits.size} worlds" if bits.size > 1 else ""
            advice = ""
            if row.advice and isinstance(data, Data):
                first = tuple(worlds[0])
                advice = f"; {row.advice(jax.tree.map(lambda leaf, at=first: np.asarray(leaf)[at], data))}"
            lines.append(f"{bit.name}{where}: {row.message}{advice}")
    return lines
