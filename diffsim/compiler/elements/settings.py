"""Objects without a body: options, materials, custom numerics, texts and tuples, keyframes.

A keyframe is a state to start from. Numbers that it does not give, because an attribute is missing, is too short or
contains NaN, come from the initial state. An incomplete pose of a mocap body counts as not given. A short qpos is
completed from qpos0; MuJoCo intends the same, but reads qpos0 before angles are in radians and bodies are in place.
Source: MuJoCo XML reference, option, statistic, custom, keyframe.
"""

import dataclasses
from typing import Any

import numpy as np

from diffsim.base import changes
from diffsim.base.enums import MINVAL, TextureRole
from diffsim.base.joints import kind_of
from diffsim.compiler.draft import Draft, Node, addresses, columns
from diffsim.mjcf.elements import visual
from diffsim.mjcf.elements.asset import Layer
from diffsim.mjcf.elements.settings import MOST_NUMBERS, TupleElement
from diffsim.mjcf.orientation import IDENTITY, unit
from diffsim.types.kinds import OBJECT_KIND
from diffsim.types.model import Headlight, Option

# attributes of a material that are fields with the prefix mat_
MATERIAL = (
    "rgba",
    "texuniform",
    "texrepeat",
    "emission",
    "specular",
    "shininess",
    "reflectance",
    "metallic",
    "roughness",
)


def options(draft: Draft) -> None:
    """fields["opt"]: mjOption, with flags as bit masks; fields["headlight"]: its colours, and whether it is on."""
    settings = draft.spec.option
    names = [field.name for field in dataclasses.fields(Option) if hasattr(settings, field.name)]
    option: dict[str, Any] = {name: getattr(settings, name) for name in names}
    flags = draft.spec.flags
    option["disableflags"], option["enableflags"] = int(flags.disableflags), int(flags.enableflags)
    draft.fields["opt"] = option
    headlight = (draft.spec.visual.first(visual.Headlight) or visual.Headlight()).filled()
    draft.fields["headlight"] = {field.name: getattr(headlight, field.name) for field in dataclasses.fields(Headlight)}
    draft.fields["mujoco"] = changes.version_of(draft.spec.mujoco)


def materials(draft: Draft) -> None:
    """mat_rgba and the other fields of materials; mat_texid has the index of a texture for each role, or -1."""
    for node in draft.nodes["material"]:
        numbers = {f"mat_{name}": getattr(node.e, name) for name in MATERIAL}
        textures = np.full(len(TextureRole), -1)
        textures[TextureRole.RGB] = draft.optional(node, "texture", node.e.texture)
        for layer in node.e.each(Layer):
            textures[layer.role] = draft.optional(node, "texture", layer.texture)
        node.row = {**numbers, "mat_texid": textures}
    draft.columns("material")


def numerics(draft: Draft) -> None:
    """numeric_adr, numeric_size, numeric_data."""
    data, sizes = [], []
    for node in draft.nodes["numeric"]:
        numbers = node.e.data if node.e.data is not None else np.zeros(0)
        size = node.e.size if node.e.size is not None else len(numbers)
        if not 1 <= size <= 500:
            draft.problems.add(node.source, f"attribute 'size': a custom numeric has 1 to 500 numbers, not {size}")
        if size < len(numbers):
            draft.problems.add(node.source, f"attribute 'size': {size} is less than the {len(numbers)} numbers given")
        data.append(np.append(numbers[:size], np.zeros(max(0, size - len(numbers)))))
        sizes.append(size)
    draft.fields.update(
        numeric_size=np.array(sizes, int),
        numeric_adr=addresses(np.array(sizes, int)),
        numeric_data=np.concatenate(data) if data else np.zeros(0),
    )


def texts(draft: Draft) -> tuple[str, ...]:
    """The contents of the custom texts."""
    return tuple(node.e.data for node in draft.nodes["text"])


def tuples(draft: Draft) -> None:
    """tuple_adr, tuple_size, and the objects in the tuples."""
    rows, sizes = [], []
    for node in draft.nodes["tuple"]:
        elements = [element.filled() for element in node.source.each(TupleElement)]
        for element in elements:
            kind = element.objtype
            target = draft.find(element, OBJECT_KIND[kind], element.objname)
            rows.append((int(kind), target.id if target else -1, element.prm))
        sizes.append(len(elements))
        if not elements:
            draft.problems.add(node.source, "a tuple needs at least one element")
    draft.fields.update(
        tuple_size=np.array(sizes, int),
        tuple_adr=addresses(np.array(sizes, int)),
        tuple_objtype=np.array([row[0] for row in rows], int),
        tuple_objid=np.array([row[1] for row in rows], int),
        tuple_objprm=np.array([row[2] for row in rows], float),
    )


def key_rows(draft: Draft) -> None:
    """Rows of all keyframes; if `<size nkey>` is larger than their number, the rest are initial states."""
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
        row = {f"key_{name}": _key_values(draft, node, name, value) for name, value in initial.items()}
        # A zero quaternion of a joint becomes the identity, a zero quaternion of a mocap body stays zero. In MuJoCo the
        # compiler leaves quaternions shorter than 1e-7 as they are, and the engine normalizes joints again.
        qpos = row["key_qpos"].copy()
        for kind, address in zip(fields.get("jnt_type", ()), fields["jnt_qposadr"], strict=True):
            start = kind_of(kind).quaternion
            if start is not None:
                part = slice(address + start, address + start + 4)
                length = np.linalg.norm(qpos[part])
                qpos[part] = qpos[part] / length if length >= MINVAL else IDENTITY
        quats = [unit(quat)[0] for quat in row["key_mquat"].reshape(-1, 4)]
        row |= {"key_qpos": qpos, "key_mquat": np.concatenate([np.zeros(0), *quats])}
        node.row = {"key_time": node.e.time} | row
    missing = max(0, draft.spec.size.nkey - len(draft.nodes["key"]))
    width = 1 + sum(len(value) for value in initial.values())
    if (missing + len(draft.nodes["key"])) * width > MOST_NUMBERS:
        draft.problems.add(
            draft.spec.size, f"all keyframes together have more than {MOST_NUMBERS} numbers", "make nkey smaller"
        )
        return
    spare = {"key_time": 0.0} | {f"key_{name}": value for name, value in initial.items()}
    draft.fields.update(columns([node.row for node in draft.nodes["key"]] + missing * [spare]))
    draft.fields["nkey"] = len(draft.nodes["key"]) + missing


# attributes whose numbers come in groups of this size; an incomplete group is ignored
WHOLE = {"mpos": 3, "mquat": 4}


def _key_values(draft: Draft, node: Node, name: str, initial: np.ndarray) -> np.ndarray:
    """The numbers that a keyframe gives, completed by the initial state."""
    value = getattr(node.e, name)
    if value is None:
        return initial
    if len(value) > len(initial):
        draft.problems.add(node.source, f"attribute '{name}': takes {len(initial)} numbers, {len(value)} given")
    value = value[: len(value) - len(value) % WHOLE.get(name, 1)]
    whole = np.append(value, initial[len(value) :])[: len(initial)]
    return np.where(np.isnan(whole), initial, whole)
