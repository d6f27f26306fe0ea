"""Settings of the model and its custom data: options, materials, numerics, texts, tuples.

Source: MuJoCo XML reference, option, statistic, custom.
"""

import dataclasses
from typing import Any

import numpy as np

from diffsim.base.enums import TextureRole
from diffsim.compiler.draft import Draft, Node
from diffsim.compiler.topology import addresses
from diffsim.mjcf.elements.asset import Layer
from diffsim.mjcf.elements.custom import TupleElement
from diffsim.types.kinds import OBJECT_KIND
from diffsim.types.model import Option

# attributes of a material that are fields of the same name
MATERIAL = ("rgba", "texuniform", "texrepeat", "emission", "specular", "shininess", "reflectance")
MATERIAL += ("metallic", "roughness")


def options(draft: Draft) -> None:
    """fields["opt"]: mjOption, the flags as bit masks."""
    settings = draft.spec.option
    found: dict[str, Any] = {
        f.name: getattr(settings, f.name) for f in dataclasses.fields(Option) if hasattr(settings, f.name)
    }
    flags = draft.spec.flags
    found["disableflags"], found["enableflags"] = int(flags.disableflags), int(flags.enableflags)
    draft.fields["opt"] = found


def materials(draft: Draft) -> None:
    """mat_rgba and the other fields of looks; mat_texid: a texture for each role, -1 for none."""
    for node in draft.nodes["material"]:
        numbers = {f"mat_{name}": getattr(node.e, name) for name in MATERIAL}
        node.row = {**numbers, "mat_texid": _textures(draft, node)}
    draft.columns("material")


def _textures(draft: Draft, node: Node) -> np.ndarray:
    """(roles,) textures of a material, from its attribute or its layers."""
    found = np.full(len(TextureRole), -1)
    found[TextureRole.RGB] = draft.optional(node, "texture", node.e.texture)
    for layer in node.source.each(Layer):
        found[layer.role] = draft.optional(node, "texture", layer.texture)
    return found


def numerics(draft: Draft) -> None:
    """numeric_adr, numeric_size, numeric_data."""
    data, sizes = [], []
    for node in draft.nodes["numeric"]:
        given = node.e.data if node.e.data is not None else np.zeros(0)
        size = node.e.size if node.e.size is not None else len(given)
        if not 1 <= size <= 500:
            draft.problems.add(node.source, f"a custom numeric holds 1 to 500 numbers, not {size}")
        if size < len(given):
            draft.problems.add(node.source, f"size {size} is smaller than the {len(given)} numbers given")
        data.append(np.append(given[:size], np.zeros(max(0, size - len(given)))))
        sizes.append(size)
    draft.fields.update(
        numeric_size=np.array(sizes, int),
        numeric_adr=addresses(np.array(sizes, int)),
        numeric_data=np.concatenate(data) if data else np.zeros(0),
    )


def texts(draft: Draft) -> tuple[str, ...]:
    """Contents of the custom texts."""
    return tuple(node.e.data for node in draft.nodes["text"])


def tuples(draft: Draft) -> None:
    """tuple_adr, tuple_size and the objects in the tuples."""
    rows, sizes = [], []
    for node in draft.nodes["tuple"]:
        elements = [element.filled() for element in node.source.each(TupleElement)]
        for element in elements:
            kind = element.objtype
            found = draft.find(element, OBJECT_KIND[kind], element.objname)
            rows.append((int(kind), found.id if found else -1, element.prm))
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
