"""The process that a newer MuJoCo runs in: reads requests from stdin and answers on stdout, by the newer environment.

A request and an answer are 8 bytes with a length and an npz file of that length. A request's array `request` is JSON:
what to do, XML text or a path, options of the model; its other arrays are states, one a row.
"""

import io
import json
import sys
from typing import Any

import mujoco
import numpy as np

INPUTS = ("qpos", "qvel", "act", "ctrl", "qfrc_applied", "xfrc_applied", "mocap_pos", "mocap_quat", "qacc_warmstart")
Arrays = dict[str, np.ndarray]


def model_of(request: dict[str, Any]) -> mujoco.MjModel:
    """The model of a request, with its options."""
    text = request["model"]
    read = mujoco.MjModel.from_xml_string if text.lstrip().startswith("<") else mujoco.MjModel.from_xml_path
    model = read(text)
    for name, value in request.get("options", {}).items():
        setattr(model.opt, name, value)
    return model


def compiled(request: dict[str, Any], _: Arrays) -> Arrays:
    """The arrays of the compiled model, and its options and statistics as opt.NAME and stat.NAME."""
    model = model_of(request)
    owners = {"": model, "opt.": model.opt, "stat.": model.stat}
    found = {}
    for prefix, owner in owners.items():
        for name in dir(owner):
            value = None if name.startswith("_") or name == "names" else getattr(owner, name)
            if isinstance(value, np.ndarray | int | float):
                found[prefix + name] = np.asarray(value)
    return found


def run(request: dict[str, Any], states: Arrays) -> Arrays:
    """Fields of mjData: after `mj_forward` of each state where `steps` is 0, else after that many `mj_step`."""
    model = model_of(request)
    # the sparse Newton solver of 4.0.0 is wrong (mujoco#3767)
    model.opt.jacobian = mujoco.mjtJacobian.mjJAC_DENSE
    data = mujoco.MjData(model)
    found: dict[str, list[np.ndarray]] = {name: [] for name in request["fields"]}
    contacts: list[np.ndarray] = []
    for row in range(len(next(iter(states.values())))):
        mujoco.mj_resetData(model, data)
        for name, value in states.items():
            getattr(data, name)[:] = value[row]
        if not request["steps"]:
            mujoco.mj_forward(model, data)
        for _ in range(request["steps"]):
            mujoco.mj_step(model, data)
        for name in found:
            found[name].append(np.array(getattr(data, name)))
        listed = [(row, *c.geom, c.exclude, c.dist, c.includemargin, *c.pos, *c.frame[:3]) for c in data.contact]
        contacts.append(np.reshape(listed, (-1, 12)))
    return {name: np.array(rows) for name, rows in found.items()} | {"contacts": np.concatenate(contacts)}


def sample(request: dict[str, Any], _: Arrays) -> Arrays:
    """Random states near qpos0, with random controls and forces, one for each seed."""
    model = model_of(request)
    data = mujoco.MjData(model)
    found: dict[str, list[np.ndarray]] = {name: [] for name in INPUTS}
    for seed in range(request["count"]):
        rng = np.random.default_rng(seed)
        mujoco.mj_resetData(model, data)
        mujoco.mj_integratePos(model, data.qpos, request["spread"] * rng.normal(size=model.nv), 1.0)
        data.qvel[:] = request["speed"] * rng.normal(size=model.nv)
        data.act[:] = rng.uniform(size=model.na)
        data.ctrl[:] = rng.uniform(-1, 1, size=model.nu)
        data.qfrc_applied[:] = request["force"] * rng.normal(size=model.nv)
        data.xfrc_applied[1:] = request["force"] * rng.normal(size=(model.nbody - 1, 6))
        for name in found:
            found[name].append(np.array(getattr(data, name)))
    return {name: np.array(rows) for name, rows in found.items()}


def saved(request: dict[str, Any], _: Arrays) -> Arrays:
    """The version, and where a model was asked for what MuJoCo saves of it as XML."""
    text = ""
    if request["model"]:
        mujoco.mj_saveLastXML("/dev/null", model := model_of(request))
        text = mujoco.MjSpec.from_string(request["model"]).to_xml() if model else ""
    return {"version": np.array(mujoco.__version__), "text": np.array(text)}


DOES = {"compiled": compiled, "run": run, "sample": sample, "saved": saved}


def answer(arrays: Arrays) -> Arrays:
    """What a request asks for; an array `error` with a message, where MuJoCo refuses."""
    request = json.loads(str(arrays.pop("request")))
    try:
        return DOES[request["do"]](request, arrays)
    except (ValueError, RuntimeError, AttributeError, mujoco.FatalError) as error:
        return {"error": np.array(f"{type(error).__name__}: {error}")}


def main() -> None:
    """Answers until stdin ends."""
    while head := sys.stdin.buffer.read(8):
        body = sys.stdin.buffer.read(int.from_bytes(head, "little"))
        with np.load(io.BytesIO(body)) as file:
            arrays = {name: file[name] for name in file.files}
        buffer = io.BytesIO()
        np.savez(buffer, **answer(arrays))
        sys.stdout.buffer.write(len(buffer.getvalue()).to_bytes(8, "little") + buffer.getvalue())
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
