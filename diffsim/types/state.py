"""State and Inputs: what is integrated, and what the user sets. Together they are MuJoCo's mjtState."""

import jax

from diffsim.types.record import Record, leaf, record

Array = jax.Array


@record
class State(Record):
    """What a step integrates. Units: seconds, metres, radians; `qpos` quaternions are (w, x, y, z)."""

    time: Array = leaf()
    qpos: Array = leaf("nq")
    qvel: Array = leaf("nv")
    act: Array = leaf("na")
    history: Array = leaf("nhistory")
    qacc_warmstart: Array = leaf("nv")


@record
class Inputs(Record):
    """What the user sets: controls, applied forces (N, N m), mocap poses, active equalities, own data.

    `xfrc_applied` is (force, torque) at each body's centre of mass, world axes.
    """

    ctrl: Array = leaf("nu")
    qfrc_applied: Array = leaf("nv")
    xfrc_applied: Array = leaf("nbody", 6)
    mocap_pos: Array = leaf("nmocap", 3)
    mocap_quat: Array = leaf("nmocap", 4)
    eq_active: Array = leaf("neq", dtype=bool)
    userdata: Array = leaf("nuserdata")
