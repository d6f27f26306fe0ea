"""Frames of geoms in the world: all of them, or those alone that are read."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.types.data import Data, Kinematics
from diffsim.xla.pick import pick_existing

Array = jax.Array


class GeomFrames(NamedTuple):
    """Positions (n, 3), m, and matrices (n, 3, 3) of some geoms, and the place of each geom (ngeom,) among them."""

    geom_xpos: Array
    geom_xmat: Array
    place: np.ndarray


Poses = Kinematics | Data | GeomFrames


def frames_at(poses: Poses, geoms: Array | np.ndarray) -> tuple[Array, Array]:
    """Positions (n, 3), m, and matrices (n, 3, 3) of geoms (n,), which are ids of the model."""
    rows = geoms
    if isinstance(poses, GeomFrames):
        rows = pick_existing(jnp.asarray(poses.place), geoms) if isinstance(geoms, Array) else poses.place[geoms]
    # rows of nine: XLA for CPU copies a row that is one axis at once
    mat = pick_existing(poses.geom_xmat.reshape(-1, 9), rows).reshape(*rows.shape, 3, 3)
    return pick_existing(poses.geom_xpos, rows), mat
