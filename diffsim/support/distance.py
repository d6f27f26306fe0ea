"""geom_distance: how far two geoms are apart, or how deep in each other, as MuJoCo's mj_geomDistance.

There is no largest distance: signed distance, nearest points and normal are true and differentiable also far apart.
Distance fields that overlap are as far as their contacts say, about half of the depth (geometry/sdf/distances.py).
Which features are nearest is a discrete choice. Source: MuJoCo documentation, "API reference", mj_geomDistance.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.base.checked import checked
from diffsim.base.enums import GeomType
from diffsim.base.errors import Problem, UnsupportedError
from diffsim.geometry.assets import gather, row_axes
from diffsim.geometry.colliders import (
    NEVER_COLLIDE,
    NO_DISTANCE,
    Types,
    distance_collider,
    distance_sizes,
    look,
    pair_bucket,
)
from diffsim.geometry.shapes import Candidates
from diffsim.math.vector import scale
from diffsim.types import Data, Model
from diffsim.types.data import Kinematics
from diffsim.types.topology import Topology
from diffsim.types.views import View

Array = jax.Array
Geom = int | str | View


class GeomDistance(NamedTuple):
    """`distance` (): signed, m, negative in penetration. `point1`, `point2` (3,): the nearest points, world, m.

    `normal` (3,): unit, from the first geom to the second, also in penetration.
    """

    distance: Array
    point1: Array
    point2: Array
    normal: Array


@checked
def geom_distance(model: Model, data: Data | Kinematics, geom1: Geom, geom2: Geom) -> GeomDistance:
    """The signed distance of two geoms, and where it is (mj_geomDistance without a largest distance).

    Args:
      model: the model.
      data: poses of one state, from `diffsim.forward`; its Kinematics do.
      geom1, geom2: two geoms, by name, view or index; whether they can collide does not matter.

    Returns:
      `GeomDistance`, differentiable by poses, sizes and vertices.

    Raises:
      UnsupportedError: two planes, or a height field.
    """
    first, second = (int(model.topology.index("geom", geom)) for geom in (geom1, geom2))
    flip = bool(model.topology.geom_type[first] > model.topology.geom_type[second])
    ids = (second, first) if flip else (first, second)
    types = _types(model.topology, ids)
    sizes = distance_sizes(model.topology, types, *(look(model.topology, geom) for geom in ids))
    buckets = [pair_bucket(model.topology, types, end, sizes[end]) for end in (0, 1)]
    one, other = (gather(model, data, np.array([geom]), each) for geom, each in zip(ids, buckets, strict=True))
    axes = [row_axes(*each) for each in zip((one, other), buckets, strict=True)]
    rows = jax.vmap(distance_collider(types).function, (*axes, 0))(one, other, jnp.zeros_like(one.size[:, 0]))
    dist, pos, normal = _nearest(Candidates(*(column[0] for column in rows)))
    half = scale(normal, 0.5 * dist)
    ends = (pos + half, pos - half) if flip else (pos - half, pos + half)
    return GeomDistance(dist, *ends, -normal if flip else normal)


def _types(topology: Topology, ids: tuple[int, int]) -> Types:
    """The types of two geoms that have a distance."""
    types = GeomType(topology.geom_type[ids[0]]), GeomType(topology.geom_type[ids[1]])
    reason = NO_DISTANCE.get(types, "these two have no distance" if types in NEVER_COLLIDE else "")
    if reason:
        names = " and ".join(f"geom {topology.name('geom', geom)!r} (id {geom})" for geom in ids)
        raise UnsupportedError([Problem("", 0, "", f"distance of {names}: {reason}", unsupported=True)])
    return types


def _nearest(rows: Candidates) -> tuple[Array, Array, Array]:
    """(distance, midpoint, normal) of the nearest row."""
    best = jnp.argmin(jax.lax.stop_gradient(jnp.where(rows.valid, rows.dist, jnp.inf)))
    return rows.dist[best], rows.pos[best], rows.normal[best]
