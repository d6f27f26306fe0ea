"""Looks of geoms and tendons: colour, shine, light of their own, the texture of their material; which geoms are drawn.

Colours of a model are as on a screen; `linear` makes them amounts of light.
Source: MuJoCo "XML reference", material; `setMaterial` of 3.8.1.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer

from diffsim.base.enums import GeomType, TextureRole
from diffsim.types import Model

# the colour of objects with a material that MuJoCo takes for none: theirs is then the material's
UNSET = (0.5, 0.5, 0.5, 1.0)
# of objects without a material
SPECULAR, SHININESS = 0.5, 0.5


class Looks(NamedTuple):
    """Looks of n objects: linear `colour` (n, 3); `specular`, `shininess`, `emission`, `reflectance` (n,), as in MJCF.

    `texture` (n,): -1 for none; `repeat` (n, 2), `uniform` (n,): of the material; `plain` (n,): no material.
    """

    colour: Array
    specular: Array
    shininess: Array
    emission: Array
    reflectance: Array
    texture: np.ndarray | Array
    repeat: Array
    uniform: np.ndarray | Array
    plain: np.ndarray | Array


def colours(model: Model, kind: str = "geom") -> Array:
    """rgba (n, 4) of geoms, sites or tendons: their own, or their material's where their own is not set."""
    rgba, material = getattr(model, f"{kind}_rgba"), getattr(model.topology, f"{kind}_matid")
    if not model.nmat:
        return rgba
    unset = jnp.all(rgba == jnp.asarray([UNSET], rgba.dtype), axis=1) & (material >= 0)
    return jnp.where(unset[:, None], model.mat_rgba[np.maximum(material, 0)], rgba)


def looks(model: Model, kind: str, ids: np.ndarray) -> Looks:
    """Looks of some geoms or tendons."""
    material = getattr(model.topology, f"{kind}_matid")[ids]

    def column(name: str, default: float) -> Array:
        # objects without a material have number -1, where the default stands
        return jnp.append(getattr(model, f"mat_{name}"), default)[material]

    textures = np.append(model.topology.mat_texid.reshape(-1, len(TextureRole))[:, TextureRole.RGB], -1)
    repeat = jnp.concatenate([model.mat_texrepeat, jnp.ones((1, 2), model.mat_texrepeat.dtype)])
    return Looks(
        colour=linear(colours(model, kind)[ids, :3]),
        specular=column("specular", SPECULAR),
        shininess=column("shininess", SHININESS),
        emission=column("emission", 0),
        reflectance=column("reflectance", 0),
        texture=textures[material].astype(np.int32),
        repeat=repeat[material],
        uniform=np.append(model.topology.mat_texuniform != 0, False)[material],
        plain=material < 0,
    )


def linear(colour: Array) -> Array:
    """Amounts of light of colours as on a screen, both in [0, 1]."""
    return jnp.clip(colour, 0, 1) ** 2.2


# groups that MuJoCo's viewer hides at first: by habit they hold collision geoms
HIDDEN_GROUPS = (3, 4, 5)


def visible_geoms(model: Model, hidden_groups: Sequence[int] = HIDDEN_GROUPS) -> np.ndarray:
    """Which geoms are drawn, (ngeom,): of groups that are not hidden, with an alpha above 0.

    The colliding geoms of moving bodies are drawn all the same where nothing else of these bodies, and of those that
    are welded to them, can be seen.
    """
    topology = model.topology
    seen = opaque(colours(model)[:, 3])
    shown = seen & ~np.isin(topology.geom_group, hidden_groups)
    body = topology.body_weldid[topology.geom_bodyid]
    lacking = np.ones(topology.nbody, bool)
    lacking[body[shown]] = False
    lacking[0] = False
    collides = (topology.geom_contype | topology.geom_conaffinity) != 0
    return shown | (seen & collides & lacking[body])


def opaque(alpha: Array) -> np.ndarray:
    """Which alphas (n,) are above 0; all, where they are only known when a program runs."""
    return np.ones(len(alpha), bool) if isinstance(alpha, Tracer) else np.asarray(alpha) > 0


def drawn_type(model: Model, geom: int) -> GeomType:
    """The type that a geom is drawn as: a signed distance field as the mesh that it was made from."""
    kind = GeomType(int(model.topology.geom_type[geom]))
    return GeomType.MESH if kind == GeomType.SDF and model.topology.geom_dataid[geom] >= 0 else kind
