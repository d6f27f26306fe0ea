"""Rays and distances: ray, multi_ray, geom_distance, like MuJoCo's mj_ray, mj_multiRay, mj_geomDistance.

Which surface a ray hits is a discrete choice; the distance and the normal have first derivatives with respect to the
ray, poses, sizes, vertices and heights. Rays pass through invisible geoms (alpha 0 of the geom or its material).

geom_distance has no cutoff: signed distance, nearest points and normal are exact and differentiable at any distance.
For distance fields that overlap, it returns the depth of their contacts, about half of the true depth
(geometry/sdf/distances.py). Source: MuJoCo documentation, "API reference".
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.base.checked import checked
from diffsim.base.enums import GeomType
from diffsim.base.errors import UnsupportedError
from diffsim.geometry.colliders import (
    NEVER_COLLIDE,
    NO_DISTANCE,
    distances,
)
from diffsim.geometry.rays.ray import RayHits, Rays, cast, rgba
from diffsim.geometry.shapes import Candidates
from diffsim.math.vector import dot, scale
from diffsim.types import Data, Model
from diffsim.types.data import Kinematics
from diffsim.types.views import View
from diffsim.xla.gather import pick

# number of geom groups (mjNGROUP); a geom with another group counts as the first or the last
GROUPS = 6


class RayFilter(NamedTuple):
    """Which geoms rays can hit, under MuJoCo's names; values may be traced.

    Attributes:
      geomgroup: (6,) which groups of geoms; None for all.
      flg_static: whether rays hit geoms that are fixed to the world.
      bodyexclude: a body whose geoms the rays pass through; -1 for none.
      cutoff: m. Rays pass through geoms whose bounding sphere is farther from their origin (as in MuJoCo, the bounding
        sphere of a plane is its centre).
    """

    geomgroup: Sequence[int] | Array | None = None
    flg_static: bool | Array = True
    bodyexclude: int | Array = -1
    cutoff: float | Array = np.inf


EVERYTHING = RayFilter()


@checked
def ray(
    model: Model, data: Data | Kinematics, point: Array, direction: Array, meets: RayFilter = EVERYTHING
) -> RayHits:
    """The first surface that a ray hits (mj_ray).

    Args:
      model: the model.
      data: poses of one state, from `diffsim.forward`; its Kinematics are enough.
      point: (3,) m, world: where the ray starts.
      direction: (3,) world, of any length; a direction of length 0 hits nothing.
      meets: which geoms count.

    Returns:
      `RayHits`: `distance` in units of |direction|; `geom`; `normal` (3,), the outward unit normal of the surface,
      world. Without a hit they are -1, -1 and zero, and all derivatives are zero.
    """
    hits = multi_ray(model, data, point, jnp.asarray(direction)[None], meets)
    return RayHits(*(column[0] for column in hits))


@checked
def multi_ray(
    model: Model, data: Data | Kinematics, point: Array, direction: Array, meets: RayFilter = EVERYTHING
) -> RayHits:
    """The first surface that each of n rays hits, from one point (mj_multiRay) or from n points.

    Args:
      model, data, meets: as for `ray`.
      point: (3,) or (n, 3) m, world: where the rays start.
      direction: (n, 3) world.

    Returns:
      `RayHits` as for `ray`, with a leading axis: (n,), (n,), (n, 3).
    """
    dtype = data.geom_xpos.dtype
    direction = jnp.asarray(direction, dtype)
    point = jnp.asarray(point, dtype)
    points = point if point.ndim == 2 else jnp.broadcast_to(point[None], direction.shape)
    exclude = jnp.broadcast_to(jnp.asarray(meets.bodyexclude, jnp.int32), direction.shape[:1])
    # geoms that are visible and pass the filter
    topology = model.topology
    seen = rgba(model)[:, 3] != 0
    seen &= jnp.asarray(topology.body_weldid[topology.geom_bodyid] > 0) | jnp.asarray(meets.flg_static, bool)
    if meets.geomgroup is not None:
        seen &= pick(jnp.asarray(meets.geomgroup) != 0, np.clip(topology.geom_group, 0, GROUPS - 1))
    if isinstance(meets.cutoff, Array) or np.isfinite(meets.cutoff):
        # geoms whose bounding sphere is within the cutoff
        offset = jax.lax.stop_gradient(data.geom_xpos[None] - points[:, None])
        reach = jax.lax.stop_gradient(jnp.asarray(meets.cutoff, dtype) + model.geom_rbound)
        seen = seen[None] & (dot(offset, offset) <= jnp.where(reach > 0, reach * reach, -1)[None])
    return cast(model, data.geom_xpos, data.geom_xmat, Rays(points, direction, exclude), seen)


Geom = int | str | View


class GeomDistance(NamedTuple):
    """The distance of two geoms.

    Attributes:
      distance: () m, signed; negative if they penetrate.
      point1: (3,) m, world: the nearest point on the first geom.
      point2: (3,) m, world: the nearest point on the second geom.
      normal: (3,) unit vector from the first geom to the second, also if they penetrate.
    """

    distance: Array
    point1: Array
    point2: Array
    normal: Array


@checked
def geom_distance(model: Model, data: Data | Kinematics, geom1: Geom, geom2: Geom) -> GeomDistance:
    """The signed distance of two geoms and their nearest points (mj_geomDistance without a cutoff).

    Args:
      model: the model.
      data: poses of one state, from `diffsim.forward`; its Kinematics are enough.
      geom1, geom2: two geoms, by name, view or index; they need not be able to collide.

    Returns:
      `GeomDistance`, differentiable with respect to poses, sizes and vertices.

    Raises:
      UnsupportedError: both are planes, or one is a height field.
    """
    first, second = (int(model.topology.index("geom", geom)) for geom in (geom1, geom2))
    topology = model.topology
    flip = bool(topology.geom_type[first] > topology.geom_type[second])
    ids = (second, first) if flip else (first, second)
    types = GeomType(topology.geom_type[ids[0]]), GeomType(topology.geom_type[ids[1]])
    reason = NO_DISTANCE.get(types, "these two types have no distance" if types in NEVER_COLLIDE else "")
    if reason:
        names = " and ".join(f"geom {topology.name('geom', geom)!r} (id {geom})" for geom in ids)
        raise UnsupportedError.of("", f"distance of {names}: {reason}")
    pair = (np.array(ids[:1]), np.array(ids[1:]))
    limit = jnp.zeros((1,), model.geom_size.dtype)
    rows = distances(model, data, types, pair, limit)
    candidates = Candidates(*(column[0] for column in rows))
    best = jnp.argmin(jax.lax.stop_gradient(jnp.where(candidates.valid, candidates.dist, jnp.inf)))
    dist, pos, normal = candidates.dist[best], candidates.pos[best], candidates.normal[best]
    half = scale(normal, 0.5 * dist)
    ends = (pos + half, pos - half) if flip else (pos - half, pos + half)
    return GeomDistance(dist, *ends, -normal if flip else normal)
