"""Field by field: a model that we compiled beside the oracle's compilation of the same XML."""

import dataclasses
from typing import Any

import numpy as np
import pytest
from compiler.hulls import hull_of, polygons_around, polygons_of
from uncompiled import uncompiled

from diffsim.simulate.constants import constants
from diffsim.types import Model, Option, Statistic, Topology
from diffsim.types.model import Headlight

TOLERANCE = 1e-6

# ours, or kept in another form
OWN = {"names", "texts", "max_contacts", "max_pairs", "present", "topology", "opt", "stat", "vis"}

# Qhull's lists of vertices and a hash table's list of polygons have no order that means anything
UNORDERED = {"mesh_graph"} | {f"mesh_poly{end}" for end in ("normal", "vertnum", "vertadr", "vert")}
UNORDERED |= {f"mesh_polymap{end}" for end in ("adr", "num", "")}

# numbers that the oracle rounds to float32; compared with the largest of their kind
ROUGH = {"mesh_vert", "mesh_normal", "mesh_texcoord"}
# the oracle takes a geom that is closer than this to its body's center of mass to be there
SAME_PLACE = {"dof_length": 1e-6}

derived = uncompiled(constants)


def share_traces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models of one structure share what is traced for their derived constants."""
    monkeypatch.setattr("diffsim.compiler.derive.interpret", lambda function, model, **_: derived(model))


def differences(model: Model, mjmodel: Any, skip: set[str] = frozenset()) -> list[str]:
    """One line for each field of ours that the oracle has with another value (relative 1e-6)."""
    sources = [
        (Topology, model.topology, mjmodel, ""),
        (Model, model, mjmodel, ""),
        (Option, model.opt, mjmodel.opt, "opt."),
        (Statistic, model.stat, mjmodel.stat, "stat."),
        (Headlight, model.vis.headlight, mjmodel.vis.headlight, "vis.headlight."),
    ]
    found = []
    for cls, ours, theirs, prefix in sources:
        names = [
            f.name for f in dataclasses.fields(cls) if f.name not in OWN | UNORDERED | skip and hasattr(theirs, f.name)
        ]
        found += [
            text for name in names if (text := _difference(prefix + name, getattr(ours, name), getattr(theirs, name)))
        ]
    return found + [text for mesh in range(mjmodel.nmesh) for text in _hull_differences(model, mjmodel, mesh)]


def _hull_differences(model: Model, mjmodel: Any, mesh: int) -> list[str]:
    """What differs in the hull of a mesh, and in its polygons."""
    found = [
        f"hull {what} of mesh {mesh}: {len(ours - theirs)} of {len(ours)} are ours only, {len(theirs - ours)} oracle's"
        for what, ours, theirs in zip(
            ("vertices", "edges", "triangles"), hull_of(model.topology, mesh), hull_of(mjmodel, mesh), strict=True
        )
        if ours != theirs
    ]
    ours = polygons_of(model.topology, mesh, model.mesh_polynormal)
    theirs = polygons_of(mjmodel, mesh, mjmodel.mesh_polynormal)
    if ours.keys() != theirs.keys():
        return found + _turned_polygons(mesh, ours, theirs)
    if polygons_around(model.topology, mesh) != polygons_around(mjmodel, mesh):
        found.append(f"polygons around the vertices of mesh {mesh}")
    # where the first corners of a polygon are on a line, the oracle divides (1, 0, 0) by nearly nothing
    sound = [path for path in ours if abs(theirs[path] @ theirs[path] - 1) < TOLERANCE]
    wrong = [path for path in sound if np.abs(ours[path] - theirs[path]).max() > TOLERANCE]
    found += [] if len(sound) >= 0.99 * len(ours) - 1 else [f"normals of mesh {mesh}: {len(sound)} can be compared"]
    return [*found, f"{len(wrong)} polygon normals of mesh {mesh}"] if wrong else found


def _turned_polygons(mesh: int, ours: dict, theirs: dict) -> list[str]:
    """Of several triangles that make one, the oracle may turn the rim inside out; ours always faces outwards."""
    mine, its = ours.keys() - theirs.keys(), theirs.keys() - ours.keys()
    turned = {(a, c, b) for a, b, c in (path for path in its if len(path) == 3)}
    agree = mine == turned and len(mine) <= 0.01 * len(ours) + 1
    agree = agree and all(np.abs(ours[a, b, c] + theirs[a, c, b]).max() < TOLERANCE for a, b, c in mine)
    return [] if agree else [f"polygons of mesh {mesh}: {len(mine)} of {len(ours)} differ"]


def _difference(name: str, ours: Any, theirs: Any) -> str:
    if np.asarray(ours).dtype == np.uint8:
        return "" if np.array_equal(np.ravel(ours), np.ravel(theirs)) else f"{name} differs"
    ours, theirs = np.asarray(ours, float).ravel(), np.asarray(theirs, float).ravel()
    if ours.shape != theirs.shape:
        return f"{name}: {ours.size} numbers, oracle {theirs.size}"
    # where the oracle has no value (a singular inertia matrix) there is nothing to agree with
    ours = np.where(np.isnan(theirs), 0.0, ours)
    theirs = np.nan_to_num(theirs, posinf=np.inf, neginf=-np.inf)
    # infinite numbers are equal or not, and say nothing of the size of the others
    with np.errstate(invalid="ignore"):
        error = np.where(ours == theirs, 0.0, np.abs(ours - theirs))
    size = np.where(np.isinf(theirs), 0.0, np.abs(theirs))
    scale = size + (1.0 if name in ROUGH else TOLERANCE) * np.max(size, initial=0.0)
    wrong = np.flatnonzero(~(error <= TOLERANCE * scale + SAME_PLACE.get(name, 1e-14)))
    if not wrong.size:
        return ""
    worst = wrong[np.argmax(error[wrong])]
    return f"{name}[{worst}]: ours {ours[worst]!r}, oracle {theirs[worst]!r} ({wrong.size} differ)"
