"""Flexes as we simulate them beside MuJoCo: `make measure WHAT=flex_forward`, a line of each model that differs.

MuJoCo moves each model of the table of small ones, and each of its own files with flexes (MODELS names a folder with
its model/ and test/ trees at 3.8.1), for some steps from a random state near rest; then every stage of `forward` is fed
with its state, and one step is compared. Stages run in numpy. Both solvers end where nothing can be gained.

Contacts are compared as sets; then constraints, accelerations and a step are computed with MuJoCo's contacts, as its
search for closest points ends near 1e-13 in distance and 1e-6 in direction, and as the rotations of cells are MuJoCo's,
whose search for those ends near 1e-9. Of more than 50 contacts of a pair both choose; whether they choose the same is
counted and printed apart.

What is done is kept in out/flex_forward.json, and left out the next time: FRESH=1 begins anew, PART=k/n does a part.
"""

import dataclasses
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

import jax
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

import oracle
from flex.table import FILES, cases
from uncompiled import uncompiled

import diffsim
from diffsim import mjcf
from diffsim.base.errors import MjcfError
from diffsim.collision.flex_slots import slots_of
from diffsim.constraint import flex_rows
from diffsim.flex import cell_forces
from diffsim.flex.cells import cell_nodes
from diffsim.flex.nodes import node_positions
from diffsim.simulate import forward as stages
from diffsim.types.data import Kinematics
from diffsim.types.slots import FlexMeeting
from tests.measure.flex import files

KEPT = Path("out/flex_forward.json")
SMOOTH = ("flexvert_xpos", "flexedge_length", "flexedge_velocity", "qfrc_spring", "qfrc_damper", "qacc_smooth")
# relative to the largest number of MuJoCo's; of contacts m, m and a unit vector
CLOSE = dict.fromkeys(SMOOTH, 1e-8) | {"qacc": 1e-6, "qvel after a step": 1e-6}
CLOSE |= {"dist": 1e-8, "pos": 1e-5, "frame": 1e-4, "contacts that are not MuJoCo's": 0}
SEARCH = {"ccd_tolerance": 1e-13, "ccd_iterations": 1000, "tolerance": 0.0, "iterations": 300}
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
    for name, value in SEARCH.items():
        setattr(mjmodel.opt, name, value)
    option = model.opt.replace(tolerance=np.zeros(()), iterations=SEARCH["iterations"])
    data, rng = oracle.mujoco.MjData(mjmodel), np.random.default_rng(0)
    data.qvel[:] = 0.1 * rng.standard_normal(mjmodel.nv)
    for _ in range(STEPS):
        oracle.mujoco.mj_step(mjmodel, data)
    oracle.mujoco.mj_forward(mjmodel, data)
    # beyond mjMAXVAL it begins again at qpos0
    if not np.max(np.abs(data.qacc)) < 1e10:
        return "MuJoCo diverges"
    state = oracle.state_of(data)
    model = model.replace(opt=option, flex_stiffness=_same_modes(model, mjmodel))
    ours = uncompiled(lambda model, state: diffsim.forward(model, state).contact)(model, state)
    worst = compared_contacts(ours, data)
    turns = rotations(model, mjmodel, data)
    with ExitStack() as patches:
        patches.enter_context(patch.object(stages, "collide_flexes", lambda *_: fed(model, ours, data)))
        for user in (cell_forces, flex_rows):
            patches.enter_context(patch.object(user, "cell_rotations", lambda _, flex, corner: turns[flex]))
        found = uncompiled(diffsim.forward)(model, state)
        later = uncompiled(diffsim.step)(model, state)
    for field in (*SMOOTH, "qacc"):
        theirs = getattr(data, field)
        if theirs.size:
            mine = np.asarray(getattr(found, field)).reshape(theirs.shape)
            worst[field] = float(np.max(np.abs(mine - theirs)) / max(np.max(np.abs(theirs)), 1e-3))
    oracle.mujoco.mj_step(mjmodel, data)
    # stages of Runge and Kutta have contacts of their own
    if mjmodel.opt.integrator != oracle.mujoco.mjtIntegrator.mjINT_RK4:
        apart = np.max(np.abs(later.qvel - data.qvel))
        worst["qvel after a step"] = float(apart / max(np.max(np.abs(data.qvel)), 1e-3))
    return worst


def _listed(contact: Any, which: np.ndarray) -> dict[tuple[int, ...], list[int]]:
    """Numbers of some contacts by geom, flexes, elements and vertices; the elements of one flex in ascending order."""
    same = np.asarray(contact.flex)[:, :1] == np.asarray(contact.flex)[:, 1:]
    ids = np.asarray(contact.elem)
    elem = np.where(same & (ids[:, :1] >= 0), np.sort(ids, axis=1), ids)
    columns = [np.asarray(ids)[which] for ids in (contact.geom, contact.flex, elem, contact.vert)]
    listed: dict[tuple[int, ...], list[int]] = {}
    for number, key in zip(which.tolist(), np.concatenate(columns, axis=1).tolist(), strict=True):
        listed.setdefault(tuple(key), []).append(number)
    return listed


def compared_contacts(ours: Any, data: Any) -> dict[str, float]:
    """How far contacts with flexes that both have are apart at most, and how many are on one side alone."""
    there = np.flatnonzero((np.asarray(ours.dist) <= ours.margin) & (np.asarray(ours.flex[:, 1]) >= 0))
    theirs = np.flatnonzero(data.contact.flex[:, 1] >= 0)
    mine, other = _listed(ours, there), _listed(data.contact, theirs)
    pairs = [(i, j) for key in set(mine) & set(other) for i, j in zip(mine[key], other[key], strict=False)]
    worst: dict[str, float] = {"contacts": float(len(theirs)), "of ours": float(len(there))}
    pair = np.array(sorted(other, key=str))[:, :4] if other else np.zeros((0, 4))
    counts = np.unique(pair, axis=0, return_counts=True)[1]
    # where one pair of geom and flex is full, which ones stay follows from the order in which they were met
    name = "other choice of 50" if max([len(theirs), *counts.tolist()]) >= 50 else "contacts that are not MuJoCo's"
    worst[name] = float(max(len(there), len(theirs)) - len(pairs))
    if pairs:
        rows, columns = np.array(pairs).T
        # with its elements the other way round a normal points the other way
        sign = np.where(np.any(np.asarray(ours.elem)[rows] != data.contact.elem[columns], axis=1), -1, 1)[:, None]
        for field in ("dist", "pos", "frame"):
            first = np.asarray(getattr(ours, field))[rows].reshape(len(rows), -1)
            second = np.asarray(getattr(data.contact, field))[columns].reshape(len(rows), -1)
            second = second * sign if field == "frame" else second
            worst[field] = float(np.max(np.abs(first - second)[:, :3]))
    return worst


def fed(model: diffsim.Model, ours: Any, data: Any) -> Any:
    """Our contact buffer with MuJoCo's contacts of flexes: where ours has the same one, else in free slots."""
    slots, free = dict[tuple[int, ...], list[int]](), dict[int, list[int]]()
    for each in slots_of(model).flexes:
        for slot in range(each.start, each.stop):
            meeting = each.meeting
            if isinstance(meeting, FlexMeeting) or len(meeting.geom) != each.stop - each.start:
                free.setdefault(each.dim, []).append(slot)
                continue
            row = slot - each.start
            key = (meeting.geom[row], -1, -1, meeting.flex, -1, meeting.elem[row], -1, meeting.vert[row])
            slots.setdefault(tuple(int(n) for n in key), []).append(slot)
    contact = {field.name: np.array(getattr(ours, field.name)) for field in dataclasses.fields(ours)}
    contact["dist"][model_slots(model)] = 1e10
    for row in np.flatnonzero(data.contact.flex[:, 1] >= 0):
        ids = [getattr(data.contact, name)[row].tolist() for name in ("geom", "flex", "elem", "vert")]
        places = slots.get(tuple(number for pair in ids for number in pair), []) or free[int(data.contact.dim[row])]
        slot = places.pop(0)
        names = ("dist", "pos", "includemargin", "friction", "solref", "solreffriction", "solimp")
        for name in (*names, "geom", "flex", "elem", "vert"):
            contact[name][slot] = getattr(data.contact, name)[row]
        contact["frame"][slot] = data.contact.frame[row].reshape(3, 3)
        # which only says whether passive contacts push
        contact["margin"][slot] = max(contact["margin"][slot], contact["dist"][slot])
    return type(ours)(**{name: jax.numpy.asarray(value) for name, value in contact.items()})


def rotations(model: diffsim.Model, mjmodel: Any, data: Any) -> dict[int, Any]:
    """The rotations of the cells of interpolated flexes as MuJoCo's search finds them."""

    def searched(matrix: Any) -> Any:
        turns = np.empty((len(matrix), 9))
        for turn, rows in zip(turns, np.asarray(matrix), strict=True):
            quat = np.array([1.0, 0, 0, 0])
            oracle.mujoco.mju_mat2Rot(quat, rows.ravel())
            oracle.mujoco.mju_quat2Mat(turn, quat)
        return jax.numpy.asarray(turns.reshape(-1, 3, 3))

    if not mjmodel.nflexnode:
        return {}
    nodes = node_positions(model, oracle.record_of(Kinematics, mjmodel, data))
    flexes = [cells.flex for strained in (False, True) for cells in cell_forces.cells_of(model.topology, strained)]
    with patch.object(cell_forces, "polar_rotation", searched):
        return {
            flex: cell_forces.cell_rotations(
                model.topology, flex, nodes[cell_nodes(model.topology, flex) + mjmodel.flex_nodeadr[flex]]
            )
            for flex in flexes
        }


def model_slots(model: diffsim.Model) -> np.ndarray:
    """The slots of contacts with flexes."""
    ranges = [np.arange(each.start, each.stop) for each in slots_of(model).flexes]
    return np.concatenate([np.zeros(0, int), *ranges])


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
    choice = sum(not isinstance(result, str) and result.get("other choice of 50", 0) > 0 for result in kept.values())
    print(
        f"flex_forward: {close} close, {differ} differ, of {done} (of {len(chosen)}); {choice} choose other 50 "
        f"of more contacts; {others}"
    )


if __name__ == "__main__":
    main()
