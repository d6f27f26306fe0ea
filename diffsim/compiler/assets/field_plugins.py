"""What an element's `<plugin>` says of a distance field: which function, with which parameters; and its surface.

A mesh with such a plugin is the surface of its field, on a grid of about 300 points along all three sides. A geom of
type sdf has the plugin too, and collides with the field itself; without one it collides with the octree of its mesh. A
plugin that is not MuJoCo's is a function of the user's, who sets it on the model (`Hooks.sdf`): here it has numbers, in
their order, and no surface.
Source: MuJoCo "XML reference", extension; `mjCMesh::LoadSDF` of user_mesh.cc (3.8.1).
"""

import json
from typing import NamedTuple

import jax
import numpy as np

from diffsim.base.errors import near_match
from diffsim.compiler.assets.marching_cubes import marching_cubes
from diffsim.compiler.draft import Draft, Node
from diffsim.compiler.host.interpret import interpret
from diffsim.geometry.sdf.data import OCTREE
from diffsim.geometry.sdf.functions import FUNCTIONS, FieldFunction
from diffsim.mjcf.elements.deformable import MUJOCO, Plugin
from diffsim.mjcf.files.surface import Surface
from diffsim.mjcf.resources import AssetError

# grid points along all three sides together, less one or two for each
POINTS = 300


class FieldUse(NamedTuple):
    """A field: the name of its plugin, empty for none, and its parameters (k,)."""

    name: str
    parameters: np.ndarray

    @property
    def function(self) -> FieldFunction:
        """The field that the plugin computes.

        Raises:
          AssetError: it is the user's.
        """
        if self.name not in FUNCTIONS:
            hint = "give the mesh a file, vertices or builtin, and only the geom the plugin"
            raise AssetError(f"plugin '{self.name}' is a function that is not known when the model is compiled", hint)
        return FUNCTIONS[self.name]


NO_FIELD = FieldUse("", np.zeros(0))
SAMPLED = FieldUse(OCTREE, np.zeros(0))


def field_of(draft: Draft, node: Node) -> FieldUse | None:
    """The field that a geom or mesh has by its `<plugin>`; None if it has none.

    Raises:
      AssetError: the plugin is MuJoCo's and not known here, or a parameter is unknown or no number.
    """
    plugin = node.e.first(Plugin)
    if plugin is None:
        return None
    number = draft.instance_of[id(plugin)]
    name, settings = json.loads(draft.fields["plugins"][number])
    if name in FUNCTIONS:
        function = FUNCTIONS[name]
        parameters = np.array(function.defaults)
        for key, value in settings.items():
            if key not in function.names:
                hint = near_match(key, function.names, listed=8)
                raise AssetError(f"plugin '{name}' has no setting '{key}'", hint)
            parameters[function.names.index(key)] = _number(key, value)
        return FieldUse(name, parameters)
    if name.startswith(MUJOCO):
        hint = near_match(name, FUNCTIONS, listed=8)
        raise AssetError(f"plugin '{name}' is no distance field that diffsim knows", hint)
    if name in draft.plugins:
        first, count = (draft.fields[f"plugin_number{end}"][number] for end in ("adr", "num"))
        return FieldUse(name, draft.fields["plugin_number"][first : first + count])
    return FieldUse(name, np.array([_number(*setting) for setting in settings.items()]))


def _number(key: str, text: str) -> float:
    """A setting that is not empty, as a number."""
    try:
        value = float(text)
    except ValueError:
        value = np.nan
    if not np.isfinite(value):
        raise AssetError(f"setting '{key}' of a plugin is a number, not '{text}'")
    return value


def field_surface(field: FieldUse) -> Surface:
    """The surface of a field. Raises AssetError if its parameters leave none."""
    with jax.enable_x64(True):
        half = np.array(interpret(field.function.half_sides, field.parameters), float)
        sizes = np.floor(POINTS / half.sum() * half) + 1 if (half > 0).all() else np.zeros(3)
        if not (sizes >= 2).all():
            raise AssetError(f"a field of half sides {half.tolist()} m has no surface that a grid can show")
        sides = [-h + 2 * h * np.arange(n) / (n - 1) for h, n in zip(half, sizes, strict=True)]
        grid = np.stack(np.meshgrid(*sides, indexing="ij"), axis=-1)
        values = interpret(field.function.distance, field.parameters, grid)
    surface = marching_cubes(values, -half, half)
    if not len(surface.face):
        raise AssetError(f"a field with parameters {field.parameters.tolist()} has no surface")
    return surface
