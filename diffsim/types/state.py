"""State, which a step integrates; Inputs, which the user sets; and Rollout, the result of many steps.

State and Inputs together have the components of MuJoCo's mjtState.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.base.checked import checked
from diffsim.types.data import Sleepers
from diffsim.types.history import empty_history
from diffsim.types.hooks import first_plugin_state
from diffsim.types.model import Model
from diffsim.types.record import Record, child, held_as, leaf, record
from diffsim.types.saved import restore, save
from diffsim.types.views import viewed
from diffsim.xla.compiled import copied, rows, zeros


class Saved:
    """A record, of one world or of a batch, that can be saved in a file."""

    def save(self, path: str | Path) -> None:
        """Writes the record to a file (npz with arrays and JSON, no code)."""
        save(self, path)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """The record in a file that `save` wrote. Whether it belongs to a model is checked when both are used together.

        Raises:
          MjcfError: the file is damaged, or contains another record or another version of the format.
        """
        return restore(cls, path)


@held_as("state")
@viewed
@record
class State(Saved, Sleepers, Record):
    """The state that a step integrates. Units are s, m and rad; quaternions in `qpos` are (w, x, y, z).

    With the flag `sleep`, the state also says which trees sleep: `tree_asleep` and `tree_awake` read it, and
    `replace(tree_asleep=...)` sets it. It is stored as floats (`tree_sleep`), so that `jax.grad` takes a State.
    `frozen` has the positions and sensor readings with which trees fell asleep: a tree wakes if its position differs
    from them. Neither has derivatives.
    """

    time: Array = leaf()
    qpos: Array = leaf("nq")
    qvel: Array = leaf("nv")
    act: Array = leaf("na")
    history: Array = leaf("nhistory")
    qacc_warmstart: Array = leaf("nv")
    tree_sleep: Array = leaf("nsleep")
    frozen: Array = leaf("nfrozen")
    plugin_state: Array = leaf("npluginstate")

    def replace(self, **fields: Any) -> Self:
        """A copy with some fields changed, as `Record.replace`; `tree_asleep` sets `tree_sleep`."""
        if "tree_asleep" in fields:
            fields["tree_sleep"] = fields.pop("tree_asleep")
        return super().replace(**fields)


@held_as("inputs")
@viewed
@record
class Inputs(Saved, Record):
    """The inputs of a step: controls, applied forces (N, N m), mocap poses, active equalities, user data.

    `xfrc_applied` is (force, torque) at each body's centre of mass, in world axes. `eq_active` says as booleans which
    equalities are active, and `replace(eq_active=...)` sets it. It is stored as floats (`eq_activity`, 1 or 0, without
    derivative), so that `jax.grad` and optimizers take an Inputs.
    """

    ctrl: Array = leaf("nu")
    qfrc_applied: Array = leaf("nv")
    xfrc_applied: Array = leaf("nbody", 6)
    mocap_pos: Array = leaf("nmocap", 3)
    mocap_quat: Array = leaf("nmocap", 4)
    eq_activity: Array = leaf("neq")
    userdata: Array = leaf("nuserdata")

    @property
    def eq_active(self) -> Array:
        """(neq,) bool: whether each equality is active."""
        return self.eq_activity > 0.5

    def replace(self, **fields: Any) -> Self:
        """A copy with some fields changed, as `Record.replace`; `eq_active` sets `eq_activity`."""
        if "eq_active" in fields:
            fields["eq_activity"] = fields.pop("eq_active")
        return super().replace(**fields)


@checked
def make_state(model: Model, keyframe: int | str | None = None) -> State:
    """The initial state: at rest at qpos0, or at a keyframe.

    Args:
      model: the model.
      keyframe: index or name of a keyframe; None for qpos0.

    Returns:
      The State of one world.

    Raises:
      KeyError: no keyframe has this name; the message suggests similar ones.
      IndexError: no keyframe has this index.
    """
    topology = model.topology
    if keyframe is None:
        time = zeros((), model.opt.timestep.dtype)
        qpos = copied(model.qpos0)
        qvel = zeros(topology.nv, model.dof_damping.dtype)
        act = zeros(topology.na, model.qpos0.dtype)
    else:
        key = _keyframe(model, keyframe)
        # copies, so that a program to which the state is donated never frees the model's own buffers
        time = rows(model.key_time, key)
        qpos = rows(model.key_qpos, key)
        qvel = rows(model.key_qvel, key)
        act = rows(model.key_act, key)
    history = empty_history(model)
    tree_sleep = frozen = zeros(0, qpos.dtype)
    if topology.nsleep:
        # trees with the sleep policy "init" sleep at qpos0; they wake if a keyframe has them elsewhere
        first = make_inputs(model)
        mocap = jnp.concatenate([first.mocap_pos, first.mocap_quat], axis=1).reshape(-1)
        tree_sleep = jnp.asarray(topology.tree_asleep0, qpos.dtype)
        frozen = jnp.concatenate([model.qpos0, mocap, jnp.asarray(topology.sensordata_asleep0, qpos.dtype)])
    return State(
        time=time,
        qpos=qpos,
        qvel=qvel,
        act=act,
        history=history,
        qacc_warmstart=zeros(qvel.shape, qvel.dtype),
        tree_sleep=tree_sleep,
        frozen=frozen,
        plugin_state=first_plugin_state(model),
    )


@checked
def make_inputs(model: Model, keyframe: int | str | None = None) -> Inputs:
    """The initial inputs: zero controls and forces, mocap poses and active equalities as in the model.

    Args:
      model: the model.
      keyframe: index or name of a keyframe, whose controls and mocap poses are used; None for no keyframe.

    Returns:
      The Inputs of one world.

    Raises:
      KeyError: no keyframe has this name; the message suggests similar ones.
      IndexError: no keyframe has this index.
    """
    topology = model.topology
    dtype = model.qpos0.dtype
    if keyframe is None:
        # the mocap bodies in the order of their poses in the inputs
        mocap = np.flatnonzero(topology.body_mocapid >= 0)
        mocap = mocap[np.argsort(topology.body_mocapid[mocap])]
        ctrl = zeros(topology.nu, dtype)
        pos = rows(model.body_pos, mocap)
        quat = rows(model.body_quat, mocap)
    else:
        key = _keyframe(model, keyframe)
        ctrl = rows(model.key_ctrl, key)
        pos = rows(model.key_mpos, key)
        quat = rows(model.key_mquat, key)
    return Inputs(
        ctrl=ctrl,
        qfrc_applied=zeros(topology.nv, dtype),
        xfrc_applied=zeros((topology.nbody, 6), dtype),
        mocap_pos=pos,
        mocap_quat=quat,
        eq_activity=jnp.asarray((topology.eq_active0 != 0).astype(dtype), dtype),
        userdata=zeros(topology.nuserdata, dtype),
    )


def _keyframe(model: Model, keyframe: int | str) -> int:
    """The index of a keyframe that is given by index or name."""
    if isinstance(keyframe, str):
        return model.id("key", keyframe)
    if not -model.nkey <= keyframe < model.nkey:
        raise IndexError(f"there is no keyframe {keyframe}: the model has {model.nkey} keyframes")
    return keyframe % model.nkey


@record
class Rollout(Record):
    """The result of a rollout: `final, readouts = diffsim.rollout(...)`.

    `final` is the last State, and `readouts` has what each step returned, along the first axis. `status` has all bits
    of `diffsim.base.enums.Status` that any step has set; `diffsim.check` explains them.
    """

    final: State = child()
    readouts: Any = child()
    status: Array = leaf(dtype=int)

    def __iter__(self) -> Iterator[Any]:
        return iter((self.final, self.readouts))

    def __getitem__(self, index: int) -> Any:
        return (self.final, self.readouts)[index]

    def __len__(self) -> int:
        return 2
