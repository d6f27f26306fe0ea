"""Materials: colour, highlights and emission of objects, and which geoms are drawn.

The colours of a model are gamma-encoded, as on a screen; `linear` converts them to amounts of light.
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

# MuJoCo's default rgba; an object with this rgba and a material has the colour of the material
UNSET = (0.5, 0.5, 0.5, 1.0)
# `specular` of objects without a material, in [0, 1]: MuJoCo's default for materials
SPECULAR = 0.5
# `shininess` of objects without a material, in [0, 1]: MuJoCo's default for materials
SHININESS = 0.5
# exponent of the gamma curve that converts colours of a screen to amounts of light; approximates sRGB
GAMMA = 2.2


class Looks(NamedTuple):
    """How n objects look.

    Attributes:
      colour: (n, 3) linear.
      alpha: (n,) opacity in [0, 1]; an object with less than 1 is clear, like glass.
      specular, shininess, emission, reflectance: (n,) as in MJCF.
      texture: (n,) index of the texture, -1 for none.
      repeat: (n, 2) texrepeat of the material.
      uniform: (n,) texuniform of the material.
      plain: (n,) whether the object has no material.
    """

    colour: Array
    alpha: Array
    specular: Array
    shininess: Array
    emission: Array
    reflectance: Array
    texture: np.ndarray | Array
    repeat: Array
    uniform: np.ndarray | Array
    plain: np.ndarray | Array


def colours(model: Model, kind: str = "geom") -> Array | np.ndarray:
    """rgba (n, 4) of geoms, sites or tendons: their own or, if that is the default, the rgba of their material.

    A numpy array unless the colours are traced, so that a program that draws a given model knows what can be seen.
    """
    rgba = getattr(model, f"{kind}_rgba")
    material = getattr(model.topology, f"{kind}_matid")
    if not model.nmat:
        return rgba
    of_material = model.mat_rgba
    if not isinstance(rgba, Tracer) and not isinstance(of_material, Tracer):
        rgba, of_material = np.asarray(rgba), np.asarray(of_material)
    unset = (rgba == np.asarray([UNSET], rgba.dtype)).all(axis=1) & (material >= 0)
    where = np.where if isinstance(rgba, np.ndarray) else jnp.where
    return where(unset[:, None], of_material[np.maximum(material, 0)], rgba)


def looks(model: Model, kind: str, ids: np.ndarray) -> Looks:
    """Looks of the objects `ids` of a kind: geom, tendon or flex."""
    material = getattr(model.topology, f"{kind}_matid")[ids]

    def column(name: str, default: float) -> Array:
        # objects without a material have index -1, which reads the default at the end
        return jnp.append(getattr(model, f"mat_{name}"), default)[material]

    textures = np.append(model.topology.mat_texid.reshape(-1, len(TextureRole))[:, TextureRole.RGB], -1)
    repeat = jnp.concatenate([model.mat_texrepeat, jnp.ones((1, 2), model.mat_texrepeat.dtype)])
    rgba = colours(model, kind)[ids]
    return Looks(
        colour=linear(rgba[:, :3]),
        alpha=jnp.clip(rgba[:, 3], 0, 1),
        specular=column("specular", SPECULAR),
        shininess=column("shininess", SHININESS),
        emission=column("emission", 0),
        reflectance=column("reflectance", 0),
        texture=textures[material].astype(np.int32),
        repeat=repeat[material],
        uniform=np.append(model.topology.mat_texuniform != 0, False)[material],
        plain=material < 0,
    )


def linear(colour: Array | np.ndarray) -> Array:
    """Converts colours of a screen to amounts of light, both in [0, 1]."""
    return jnp.clip(colour, 0, 1) ** GAMMA


# groups that MuJoCo's viewer hides by default: models conventionally put collision geoms there
HIDDEN_GROUPS = (3, 4, 5)


def visible_geoms(model: Model, hidden_groups: Sequence[int] = HIDDEN_GROUPS) -> np.ndarray:
    """Which geoms are drawn, (ngeom,): geoms with an alpha above 0 whose group is not hidden.

    If nothing of a moving body and of the bodies welded to it would be drawn, its colliding geoms are drawn even if
    their group is hidden.
    """
    topology = model.topology
    seen = opaque(colours(model)[:, 3])
    shown = seen & ~np.isin(topology.geom_group, hidden_groups)
    body = topology.body_weldid[topology.geom_bodyid]
    # bodies of which nothing is drawn yet; the world never counts as one
    lacking = np.ones(topology.nbody, bool)
    lacking[body[shown]] = False
    lacking[0] = False
    collides = (topology.geom_contype | topology.geom_conaffinity) != 0
    return shown | (seen & collides & lacking[body])


def opaque(alpha: Array | np.ndarray) -> np.ndarray:
    """Which alphas (n,) are above 0; all of them if the alphas are traced."""
    return np.ones(len(alpha), bool) if isinstance(alpha, Tracer) else np.asarray(alpha) > 0


def clear(alpha: Array | np.ndarray) -> np.ndarray:
    """Which alphas (n,) are between 0 and 1; none of them if the alphas are traced."""
    if isinstance(alpha, Tracer):
        return np.zeros(len(alpha), bool)
    return (np.asarray(alpha) > 0) & (np.asarray(alpha) < 1)


# types on which a material's reflectance has an effect, as in MuJoCo: it mirrors on their side +z
MIRRORS = (GeomType.PLANE, GeomType.BOX)


def mirrors(model: Model) -> np.ndarray:
    """Which geoms (ngeom,) mirror; none of them if the reflectances are traced."""
    if isinstance(model.mat_reflectance, Tracer):
        return np.zeros(model.ngeom, bool)
    amount = np.append(np.asarray(model.mat_reflectance), 0)[model.topology.geom_matid]
    return (amount > 0) & np.isin(model.topology.geom_type, MIRRORS)


def drawn_type(model: Model, geom: int) -> GeomType:
    """The type that a geom is drawn as: a signed distance field that has a mesh is drawn as the mesh."""
    kind = GeomType(int(model.topology.geom_type[geom]))
    return GeomType.MESH if kind == GeomType.SDF and model.topology.geom_dataid[geom] >= 0 else kind
