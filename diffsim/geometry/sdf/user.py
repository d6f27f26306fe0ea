"""Which function a model's distance field is: one of MuJoCo's plugins, an octree, or one of the user's (`Hooks.sdf`).

A function of the user's is of points in the frame in which the geom's mesh is written; the mesh itself, and so the
geom, is in its inertial frame. The pose between them follows the user's numbers in the parameters.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.base.errors import Problem, UnsupportedError
from diffsim.geometry.sdf.functions import FUNCTIONS, FieldFunction
from diffsim.geometry.sdf.octree import AXES, OCTREE, Octree, levels, octree_function, octrees
from diffsim.math.rotation import quat_to_mat
from diffsim.math.vector import mul_vec
from diffsim.types.hooks import DistanceField
from diffsim.types.model import Model

Array = jax.Array
Parameters = Array | Octree

# the pose behind the user's parameters: position, quaternion
POSE = 7


def field_function(model: Model, number: int) -> FieldFunction:
    """The function with a number of `sdf_names`.

    Raises:
      UnsupportedError: it is the user's, and the model has no hook of its name.
    """
    name = model.topology.sdf_names[number]
    if name in FUNCTIONS:
        return FUNCTIONS[name]
    if name == OCTREE:
        return octree_function(levels(model.topology))
    hook = dict(model.hooks.sdf or ()).get(name)
    if hook is None:
        reason = (
            f"the distance field '{name}' is unknown: model.replace(hooks=Hooks(sdf={{'{name}': ...}})) says what it is"
        )
        raise UnsupportedError([Problem("", 0, "<plugin>", reason, unsupported=True)])
    return _function_of(hook)


@functools.lru_cache(64)
def _function_of(hook: DistanceField) -> FieldFunction:
    """A hook as a field; the same each time, so that programs know it again."""
    return FieldFunction((), (), functools.partial(_user_distance, hook), _no_sides)


def field_parameters(model: Model, geoms: np.ndarray, number: int) -> Parameters:
    """Parameters of the fields of geoms (n,), all with one function: numbers (n, k), or octrees."""
    if model.topology.sdf_names[number] == OCTREE:
        return octrees(model, geoms)
    own = model.geom_sdfparam[geoms]
    if model.topology.sdf_names[number] in FUNCTIONS:
        return own
    mesh = model.topology.geom_dataid[geoms]
    return jnp.concatenate([own, model.mesh_pos[mesh], model.mesh_quat[mesh]], axis=1)


def parameter_axes(parameters: Parameters) -> Any:
    """For `vmap` over fields of one function."""
    return AXES if isinstance(parameters, Octree) else 0


def parameter_rows(parameters: Parameters, row: Array) -> Parameters:
    """The parameters of some of the fields (k,)."""
    if isinstance(parameters, Octree):
        return parameters._replace(root=parameters.root[row], address=parameters.address[row])
    return parameters[row]


def _user_distance(hook: DistanceField, parameters: Array, point: Array) -> Array:
    """Distances (...) of points (..., 3) in the geom's frame.

    Raises:
      ValueError: the hook returns something else than one number.
    """
    own, pos, turn = parameters[:-POSE], parameters[-POSE:-4], quat_to_mat(parameters[-4:])

    def distance(place: Array) -> Array:
        return jnp.asarray(hook(mul_vec(turn, place) + pos, own))

    found = jax.vmap(distance)(point.reshape(-1, 3))
    if found.ndim != 1:
        raise ValueError(f"a distance field returned an array of shape {found.shape[1:]}, expected one number")
    return found.reshape(point.shape[:-1]).astype(point.dtype)


def _no_sides(parameters: Array) -> list[Array]:
    """The surface of a user's field is its mesh."""
    return []
