"""Looks of geoms and tendons: colour, shine, light of their own, the texture of their material; which geoms are drawn.

Colours of a model are as on a screen; `linear` makes them amounts of light.
Source: MuJoCo "XML reference", material; `setMaterial` of 3.8.1.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from diffsim.base.enums import GeomType, TextureRole
from diffsim.types import Model

# what MuJoCo takes for no colour of their own, where there is a material
UNSET = (0.5, 0.5, 0.5, 1.0)
# of objects without a material
SPECULAR, SHININESS = 0.5, 0.5


class Looks(NamedTuple):
    """Looks of n objects: linear `colour` (n, 3); `specular`, `shininess`, `emission`, `reflectance` (n,), as in MJCF.

    `texture` (n,): -1 for none; `repeat` (n, 2), `uniform` (n,): of the material; `plain` (n,): no material.
    """

    colour: np.ndarray
    specular: np.ndarray
    shininess: np.ndarray
    emission: np.ndarray
    reflectance: np.ndarray
    texture: np.ndarray
    repeat: np.ndarray
    uniform: np.ndarray
    plain: np.ndarray


def colours(model: Model, kind: str = "geom") -> np.ndarray:
    """rgba (n, 4) of geoms, sites or tendons: their own, or their material's where their own is not set."""
    rgba, material = np.asarray(getattr(model, f"{kind}_rgba")), getattr(model.topology, f"{kind}_matid")
    if not model.nmat:
        return rgba
    unset = (rgba == np.asarray(UNSET, rgba.dtype)).all(axis=1) & (material >= 0)
    return np.where(unset[:, None], np.asarray(model.mat_rgba)[np.maximum(material, 0)], rgba)


def looks(model: Model, kind: str, ids: np.ndarray) -> Looks:
    """Looks of some geoms or tendons."""
    material = getattr(model.topology, f"{kind}_matid")[ids]

    def of(name: str, default: float) -> np.ndarray:
        # at -1 of objects without a material stands the default
        return np.append(np.asarray(getattr(model, f"mat_{name}"), np.float32), np.float32(default))[material]

    textures = np.append(model.topology.mat_texid.reshape(-1, len(TextureRole))[:, TextureRole.RGB], -1)
    repeat = np.concatenate([np.asarray(model.mat_texrepeat, np.float32).reshape(-1, 2), np.ones((1, 2), np.float32)])
    return Looks(
        colour=linear(colours(model, kind)[ids, :3]).astype(np.float32),
        specular=of("specular", SPECULAR),
        shininess=of("shininess", SHININESS),
        emission=of("emission", 0),
        reflectance=of("reflectance", 0),
        texture=textures[material].astype(np.int32),
        repeat=repeat[material],
        uniform=np.append(model.topology.mat_texuniform != 0, False)[material],
        plain=material < 0,
    )


def linear(colour: np.ndarray) -> np.ndarray:
    """Amounts of light of colours as on a screen, both in [0, 1]."""
    return np.clip(colour, 0, 1) ** 2.2


# groups that MuJoCo's viewer hides at first: by habit they hold collision geoms
HIDDEN_GROUPS = (3, 4, 5)


def visible_geoms(model: Model, hidden_groups: Sequence[int] = HIDDEN_GROUPS) -> np.ndarray:
    """Which geoms are drawn, (ngeom,): of groups that are not hidden, with an alpha above 0.

    The colliding geoms of moving bodies are drawn all the same where nothing else of these bodies, and of those that
    are welded to them, can be seen.
    """
    topology = model.topology
    seen = colours(model)[:, 3] > 0
    shown = seen & ~np.isin(topology.geom_group, hidden_groups)
    body = topology.body_weldid[topology.geom_bodyid]
    lacking = np.ones(topology.nbody, bool)
    lacking[body[shown]] = False
    lacking[0] = False
    collides = (topology.geom_contype | topology.geom_conaffinity) != 0
    return shown | (seen & collides & lacking[body])


def drawn_type(model: Model, geom: int) -> GeomType:
    """As what a geom is drawn: a signed distance field as the mesh that it was made from."""
    kind = GeomType(int(model.topology.geom_type[geom]))
    return GeomType.MESH if kind == GeomType.SDF and model.topology.geom_dataid[geom] >= 0 else kind
