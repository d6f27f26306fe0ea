"""Flexes as we simulate them beside MuJoCo: `make measure WHAT=flex_forward`, a line of each model that differs.

MuJoCo moves each model of the table of small ones, and each of its own files with flexes (MODELS names a folder with
its model/ and test/ trees at 3.8.1), for some steps from a random state near rest; then every stage of `forward` is fed
with its state, and one step is compared. Stages run in numpy. Both solvers end where nothing can be gained.

What is done is kept in out/flex_forward.json, and left out the next time: FRESH=1 begins anew, PART=k/n does a part.
"""

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

import oracle
from flex.table import FILES, cases
from uncompiled import uncompiled

import diffsim
from diffsim import mjcf
from diffsim.base.errors import MjcfError
from tests.measure.flex import files

KEPT = Path("out/flex_forward.json")
FIELDS = ("flexvert_xpos", "flexedge_length", "flexedge_velocity", "qfrc_spring", "qfrc_damper", "qacc_smooth", "qacc")
# relative to the largest number of MuJoCo's; forces of cells end where its search for rotations does
CLOSE = dict.fromkeys(FIELDS, 1e-8) | {"qacc": 1e-6, "qvel after a step": 1e-6}
STEPS, MOST = 20, 1800


def models() -> Iterator[tuple[str, Any]]:
    """Names, and MJCF text or a path."""
    for case in cases():
        ground = '<worldbody><geom type="plane" size="9 9 1" pos="0 0 -.3"/></worldbody></mujoco>'
        yield case.name, case.xml.replace("</mujoco>", ground)
    yield from ((str(path), path) for path in files())


def verdict(source: Any) -> str | dict[str, float]:
    """The worst relative difference of each field, or why there is none."""
    try:
        if isinstance(source, Path):
            mjmodel = oracle.mujoco.MjModel.from_xml_path(str(source))
            spec = mjcf.read(source, allow_outside=True)
        else:
            mjmodel, spec = oracle.load_with_assets(source, FILES), mjcf.read(source, FILES)
    except ValueError:
        return "refused by MuJoCo"
    if mjmodel.nv > MOST:
        return f"has {mjmodel.nv} dofs"
    try:
        model = diffsim.compile(spec)
    except MjcfError as error:
        return f"refused: {str(error).splitlines()[-1].strip()}"
    mjmodel.opt.tolerance, mjmodel.opt.iterations = 0.0, 300
    option = model.opt.replace(tolerance=np.zeros(()), iterations=300)
    data, rng = oracle.mujoco.MjData(mjmodel), np.random.default_rng(0)
    data.qvel[:] = 0.1 * rng.standard_normal(mjmodel.nv)
    for _ in range(STEPS):
        oracle.mujoco.mj_step(mjmodel, data)
    oracle.mujoco.mj_forward(mjmodel, data)
    if not np.isfinite(data.qacc).all():
        return "MuJoCo diverges"
    state = oracle.state_of(data)
    model = model.replace(opt=option, flex_stiffness=_same_modes(model, mjmodel))
    found = uncompiled(diffsim.forward)(model, state)
    worst = {}
    for field in FIELDS:
        theirs = getattr(data, field)
        if theirs.size:
            mine = np.asarray(getattr(found, field)).reshape(theirs.shape)
            worst[field] = float(np.max(np.abs(mine - theirs)) / max(np.max(np.abs(theirs)), 1e-3))
    later = uncompiled(diffsim.step)(model, state)
    oracle.mujoco.mj_step(mjmodel, data)
    worst["qvel after a step"] = float(np.max(np.abs(later.qvel - data.qvel)) / max(np.max(np.abs(data.qvel)), 1e-3))
    active = np.asarray(found.contact.dist) < np.asarray(found.contact.includemargin)
    return worst | {"contacts": float(data.ncon), "of ours": float(active.sum())}


def _same_modes(model: diffsim.Model, mjmodel: Any) -> Any:
    """flex_stiffness; MuJoCo's modes of strain where rounding chooses between equal ones."""
    strained = bool(((mjmodel.flex_interp != 0) & (mjmodel.flex_edgeequality == 3)).any())
    return jax.numpy.asarray(mjmodel.flex_stiffness) if strained else model.flex_stiffness


def main() -> None:
    """Prints what differs, and the counts."""
    jax.config.update("jax_enable_x64", True)
    KEPT.parent.mkdir(exist_ok=True)
    kept = {} if os.environ.get("FRESH") or not KEPT.exists() else json.loads(KEPT.read_text())
    part, parts = (int(number) for number in os.environ.get("PART", "1/1").split("/"))
    chosen = list(models())[part - 1 :: parts]
    until = time.monotonic() + float(os.environ.get("SECONDS_MOST", "1e9"))
    for name, source in chosen:
        if name not in kept and time.monotonic() < until:
            kept[name] = verdict(source)
            KEPT.write_text(json.dumps(kept, indent=1))
    close = differ = 0
    reasons: dict[str, int] = {}
    for name, result in ((name, kept[name]) for name, _ in chosen if name in kept):
        if isinstance(result, str):
            reasons[result] = reasons.get(result, 0) + 1
            if result.startswith("refused: "):
                print(name, result, sep="\n    ")
            continue
        wrong = {field: value for field, value in result.items() if value > CLOSE.get(field, np.inf)}
        differ, close = differ + bool(wrong), close + (not wrong)
        if wrong:
            where = f"{result['contacts']:.0f} contacts, {result['of ours']:.0f} of ours"
            print(name, ", ".join(f"{field} {value:.0e}" for field, value in wrong.items()), where, sep="\n    ")
    others = "; ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()))
    done = close + differ + sum(reasons.values())
    print(f"flex_forward: {close} close, {differ} differ, of {done} (of {len(chosen)}); {others}")


if __name__ == "__main__":
    main()
