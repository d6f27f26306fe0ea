"""Keyframes: states to start from. What a key does not say, breaks off, or gives as not a number is the initial value.

A pose of a mocap body that breaks off in the middle counts as not given. A broken-off qpos goes on with qpos0; MuJoCo
means the same, but reads it before angles are in radians and bodies in place.
Source: MuJoCo XML reference, keyframe.
"""

import numpy as np

from diffsim.base.joints import kind_of
from diffsim.compiler.draft import Draft, Fields, Node, columns
from diffsim.mjcf.elements.settings import MOST_NUMBERS
from diffsim.mjcf.orientation import unit


def key_rows(draft: Draft) -> None:
    """Rows of all keyframes; `<size nkey>` may ask for more than the file has."""
    fields = draft.fields
    mocap = fields["body_mocapid"] >= 0
    initial = {
        "qpos": fields["qpos0"],
        "qvel": np.zeros(int(fields["nv"])),
        "act": np.zeros(int(fields["na"])),
        "mpos": fields["body_pos"][mocap].ravel(),
        "mquat": fields["body_quat"][mocap].ravel(),
        "ctrl": np.zeros(int(fields["nu"])),
    }
    for node in draft.nodes["key"]:
        node.row = {"key_time": node.e.time} | {
            f"key_{name}": _given(draft, node, name, value) for name, value in initial.items()
        }
        _normalize(draft, node.row)
    missing = max(0, draft.spec.size.nkey - len(draft.nodes["key"]))
    width = 1 + sum(len(value) for value in initial.values())
    if (missing + len(draft.nodes["key"])) * width > MOST_NUMBERS:
        draft.problems.add(draft.spec.size, f"all keyframes together hold more than {MOST_NUMBERS} numbers")
        return
    spare = {"key_time": 0.0} | {f"key_{name}": value for name, value in initial.items()}
    draft.fields.update(columns([node.row for node in draft.nodes["key"]] + missing * [spare]))
    draft.fields["nkey"] = len(draft.nodes["key"]) + missing


# numbers that only count together
WHOLE = {"mpos": 3, "mquat": 4}


def _given(draft: Draft, node: Node, name: str, initial: np.ndarray) -> np.ndarray:
    """The numbers that the key gives, followed by the initial ones that it does not reach."""
    value = getattr(node.e, name)
    if value is None:
        return initial
    if len(value) > len(initial):
        draft.problems.add(node.source, f"{name} takes {len(initial)} numbers, {len(value)} given")
    value = value[: len(value) - len(value) % WHOLE.get(name, 1)]
    whole = np.append(value, initial[len(value) :])[: len(initial)]
    return np.where(np.isnan(whole), initial, whole)


def _normalize(draft: Draft, row: Fields) -> None:
    """Make the quaternions of qpos and mquat unit ones."""
    for kind, address in zip(draft.fields.get("jnt_type", ()), draft.fields["jnt_qposadr"], strict=True):
        start = kind_of(kind).quaternion
        if start is not None:
            part = slice(address + start, address + start + 4)
            row["key_qpos"] = row["key_qpos"].copy()
            row["key_qpos"][part] = unit(row["key_qpos"][part])[0]
    quats = [unit(quat)[0] for quat in row["key_mquat"].reshape(-1, 4)]
    row["key_mquat"] = np.concatenate(quats) if quats else np.zeros(0)
