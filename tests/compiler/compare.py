"""Field by field: a model that we compiled beside the oracle's compilation of the same XML."""

import dataclasses
from typing import Any

import numpy as np

from diffsim.types import Model, Option, Statistic, Topology

TOLERANCE = 1e-6

# ours, or kept in another form
OWN = {"names", "texts", "max_contacts", "max_pairs", "present", "topology", "opt", "stat"}


def differences(model: Model, mjmodel: Any, skip: set[str] = frozenset()) -> list[str]:
    """One line for each field of ours that the oracle has with another value (relative 1e-6)."""
    sources = [
        (Topology, model.topology, mjmodel, ""),
        (Model, model, mjmodel, ""),
        (Option, model.opt, mjmodel.opt, "opt."),
        (Statistic, model.stat, mjmodel.stat, "stat."),
    ]
    found = []
    for cls, ours, theirs, prefix in sources:
        names = [f.name for f in dataclasses.fields(cls) if f.name not in OWN | skip and hasattr(theirs, f.name)]
        found += [
            text for name in names if (text := _difference(prefix + name, getattr(ours, name), getattr(theirs, name)))
        ]
    return found


def _difference(name: str, ours: Any, theirs: Any) -> str:
    ours, theirs = np.asarray(ours, float).ravel(), np.asarray(theirs, float).ravel()
    if ours.shape != theirs.shape:
        return f"{name}: {ours.size} numbers, oracle {theirs.size}"
    # where the oracle has no value (a singular inertia matrix) there is nothing to agree with
    ours = np.where(np.isnan(theirs), 0.0, ours)
    theirs = np.nan_to_num(theirs, posinf=np.inf, neginf=-np.inf)
    error = np.abs(ours - theirs)
    scale = np.abs(theirs) + TOLERANCE * np.max(np.abs(theirs), initial=0.0)
    wrong = np.flatnonzero(~(error <= TOLERANCE * scale + 1e-14))
    if not wrong.size:
        return ""
    worst = wrong[np.argmax(error[wrong])]
    return f"{name}[{worst}]: ours {ours[worst]!r}, oracle {theirs[worst]!r} ({wrong.size} differ)"
