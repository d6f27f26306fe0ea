"""State and Inputs: what is integrated, and what the user sets. Together they are MuJoCo's mjtState.

Rollout is what many steps in a row give.
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
from diffsim.types.record import Record, child, held_as, leaf, record, restore, save
from diffsim.types.views import viewed


class Saved:
    """A record that is kept in a file, of one world or of a batch."""

    def save(self, path: str | Path) -> None:
        """Writes it to a file (npz): arrays and JSON, no code."""
        save(self, path)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Reads what `save` wrote. Whether it fits a model is seen when it is used with one.

        Raises:
          MjcfError: the file is damaged, or of another version or record.
        """
        return restore(cls, path)


@held_as("state")
@viewed
@record
class State(Saved, Sleepers, Record):
    """What a step integrates. Units: seconds, metres, radians; `qpos` quaternions are (w, x, y, z).

    With the flag `sleep` it knows which trees sleep: `tree_asleep` and `tree_awake` read, and
    `replace(tree_asleep=...)` sets, mjData's integers, which are kept as floats, `tree_sleep`, for the sake of
    `jax.grad`. `frozen` is what sleeping trees are compared with, to see whether someone moved them, and what their
    sensors show. Nothing flows through either.
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
        """As `Record.replace`; `tree_asleep` is taken for `tree_sleep`."""
        if "tree_asleep" in fields:
            fields["tree_sleep"] = fields.pop("tree_asleep")
        return super().replace(**fields)


@held_as("inputs")
@viewed
@record
class Inputs(Saved, Record):
    """What the user sets: controls, applied forces (N, N m), mocap poses, active equalities, own data.

    `xfrc_applied` is (force, torque) at each body's centre of mass, world axes. Which equalities are active is kept as
    floats, `eq_activity` (1 active, 0 not; nothing flows through it), so that `jax.grad` and optimizers take an Inputs;
    `eq_active` reads it as bool, and `replace(eq_active=...)` sets it.
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
        """(neq,) bool: which equalities are active."""
        return self.eq_activity > 0.5

    def replace(self, **fields: Any) -> Self:
        """As `Record.replace`; `eq_active` is taken for `eq_activity`."""
        if "eq_active" in fields:
            fields["eq_activity"] = fields.pop("eq_active")
        return super().replace(**fields)


@checked
def make_state(model: Model, keyframe: int | str | None = None) -> State:
    """The state at qpos0, or at a keyframe, at rest where the keyframe is silent.

    Args:
      model: the model.
      keyframe: by index or name; None for qpos0.

    Returns:
      The State of one world.

    Raises:
      KeyError: no keyframe of this name; the message lists near matches. IndexError: no keyframe of this index.
    """
    topology = model.topology
    if keyframe is None:
        time, qpos = jnp.zeros_like(model.opt.timestep), model.qpos0
        qvel, act = jnp.zeros_like(model.dof_damping), jnp.zeros(topology.na, model.qpos0.dtype)
    else:
        key = _keyframe(model, keyframe)
        fields = model.key_time, model.key_qpos, model.key_qvel, model.key_act
        time, qpos, qvel, act = (field[key] for field in fields)
    history = empty_history(model)
    # copies, so that a donated state never takes the model's own buffers with it
    time, qpos, qvel, act = (jnp.array(value, copy=True) for value in (time, qpos, qvel, act))
    tree_sleep = frozen = jnp.zeros(0, qpos.dtype)
    if topology.nsleep:
        # trees of policy init sleep at qpos0; a keyframe that has them elsewhere wakes them
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
        qacc_warmstart=jnp.zeros_like(qvel),
        tree_sleep=tree_sleep,
        frozen=frozen,
        plugin_state=first_plugin_state(model),
    )


@checked
def make_inputs(model: Model, keyframe: int | str | None = None) -> Inputs:
    """Inputs at rest: zero controls and forces, mocap poses of the model, equalities as the model starts them.

    Args:
      model: the model.
      keyframe: by index or name: controls and mocap poses are the keyframe's; None for none.

    Returns:
      The Inputs of one world.

    Raises:
      KeyError: no keyframe of this name; the message lists near matches. IndexError: no keyframe of this index.
    """
    topology, dtype = model.topology, model.qpos0.dtype
    mocap = np.flatnonzero(topology.body_mocapid >= 0)
    mocap = mocap[np.argsort(topology.body_mocapid[mocap])]
    ctrl, pos, quat = jnp.zeros(topology.nu, dtype), model.body_pos[mocap], model.body_quat[mocap]
    if keyframe is not None:
        key = _keyframe(model, keyframe)
        ctrl, pos, quat = model.key_ctrl[key], model.key_mpos[key], model.key_mquat[key]
    return Inputs(
        ctrl=ctrl,
        qfrc_applied=jnp.zeros(topology.nv, dtype),
        xfrc_applied=jnp.zeros((topology.nbody, 6), dtype),
        mocap_pos=pos,
        mocap_quat=quat,
        eq_activity=jnp.asarray(topology.eq_active0 != 0, dtype),
        userdata=jnp.zeros(topology.nuserdata, dtype),
    )


def _keyframe(model: Model, keyframe: int | str) -> int:
    """Index of a keyframe given by index or name."""
    if isinstance(keyframe, str):
        return model.id("key", keyframe)
    if not -model.nkey <= keyframe < model.nkey:
        raise IndexError(f"the model has {model.nkey} keyframes, keyframe {keyframe} is not one of them")
    return keyframe % model.nkey


@record
class Rollout(Record):
    """The final state and the readouts of all steps, which it unpacks to: `final, readouts = diffsim.rollout(...)`.

    `status` has the bits of `diffsim.base.enums.Status` that any of the steps has set, explained by `diffsim.check`.
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
