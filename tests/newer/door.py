"""diffsim.mjx beside a newer MuJoCo in one process: MjModel and MjData go in and come out.

Run by the Python of a newer environment, whose `mujoco` comes first; JAX is that of the environment of the tests, the
first argument. Reads JSON from stdin, models and how many steps, and writes JSON: what `report` returns for each.
"""

import json
import sys
from typing import Any

sys.path.append(sys.argv[1])

import jax
import mujoco
import numpy as np

import diffsim
from diffsim import mjx
from tests.newer.newer import EXACT
from tests.uncompiled import uncompiled

# fields of MjData that a round trip keeps
KEPT = ("qpos", "qvel", "act", "ctrl", "xpos", "xquat", "xiquat", "geom_xquat", "site_xquat", "ten_length", "M", "qLD")
KEPT += ("actuator_force", "qfrc_constraint", "efc_pos", "efc_force", "sensordata")


def beside(model: mujoco.MjModel, steps: int) -> dict[str, Any]:
    """The largest difference after some steps of `mjx.step` and of `mj_step`, and of a round trip of MjData."""
    model.opt.jacobian = mujoco.mjtJacobian.mjJAC_DENSE
    for name, value in EXACT.items():
        setattr(model.opt, name, value)
    rng, data = np.random.default_rng(0), mujoco.MjData(model)
    data.qvel[:] = 0.3 * rng.normal(size=model.nv)
    data.ctrl[:] = rng.uniform(0, 0.5, size=model.nu)
    ours = mjx.put_model(model)
    mujoco.mj_forward(model, data)
    put = mjx.put_data(model, data)
    back = mjx.get_data(model, put)
    lost = {name: distance(getattr(back, name), getattr(data, name)) for name in KEPT if hasattr(data, name)}
    assert back.ncon == data.ncon
    step, far = uncompiled(mjx.step), 0.0
    for _ in range(steps):
        put = step(ours, put)
        mujoco.mj_step(model, data)
        far = max(far, distance(put.qpos, data.qpos), distance(put.qvel, data.qvel))
    return {
        "mujoco": ours.opt.mujoco,
        "far": far,
        "lost": max(lost.values()),
        "moved": distance(data.qpos, model.qpos0),
    }


def distance(one: Any, other: Any) -> float:
    """The largest difference of two arrays of one shape."""
    assert np.shape(one) == np.shape(other)
    return float(np.max(np.abs(np.asarray(one) - np.asarray(other)), initial=0))


def report(text: str, steps: int) -> dict[str, Any]:
    """What happens to one model: a text of MJCF, or a path."""
    read = mujoco.MjModel.from_xml_string if text.lstrip().startswith("<") else mujoco.MjModel.from_xml_path
    try:
        return beside(read(text), steps)
    except diffsim.UnsupportedError as error:
        return {"refused": str(error)}


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    asked = json.load(sys.stdin)
    print(json.dumps([report(text, asked["steps"]) for text in asked["models"]]))
