"""ray, multi_ray: what half lines meet first in a model, as MuJoCo's mj_ray and mj_multiRay, and differentiable.

Which surface is met is a discrete choice; distance and normal on it are differentiable once by ray, poses, sizes,
vertices and heights. Invisible geoms (alpha 0, of the geom or its material) are passed through. Source: MuJoCo
documentation, "API reference", ray casting.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.base.checked import checked
from diffsim.geometry.rays.ray import RayHits, Rays, cast, rgba
from diffsim.math.vector import dot
from diffsim.types import Data, Model
from diffsim.types.data import Kinematics
from diffsim.xla.pick import pick

Array = jax.Array

# groups of geoms (mjNGROUP); others count as the nearest of these
GROUPS = 6


class RayFilter(NamedTuple):
    """Which geoms rays meet, under MuJoCo's names; values may be traced.

    `geomgroup` (6,): which groups of geoms, None for all. `flg_static`: whether geoms that are fixed to the world are
    met. `bodyexclude`: a body whose geoms are passed through, -1 for none. `cutoff`: geoms whose bounding sphere is
    further from the origin of the rays than this, m, are passed through (a plane counts as its centre, as in MuJoCo).
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
    """The first surface on a half line (mj_ray).

    Args:
      model: the model.
      data: poses of one state, from `diffsim.forward`; its Kinematics do.
      point: where the ray starts, world, m, (3,).
      direction: along the ray, world, of any length, (3,); a ray of length 0 meets nothing.
      meets: which geoms count.

    Returns:
      `RayHits`: `distance`, in units of |direction|, -1 for nothing; `geom`, -1 for nothing; `normal` (3,), the outward
      unit normal of the surface, world, zero for nothing. Without a hit the derivatives are zero.
    """
    hits = multi_ray(model, data, point, jnp.asarray(direction)[None], meets)
    return RayHits(*(each[0] for each in hits))


@checked
def multi_ray(
    model: Model, data: Data | Kinematics, point: Array, direction: Array, meets: RayFilter = EVERYTHING
) -> RayHits:
    """The first surface on each of n half lines from one point (mj_multiRay), or from n points.

    Args:
      model, data, meets: as for `ray`.
      point: where the rays start, world, m, (3,) or (n, 3).
      direction: along the rays, world, (n, 3).

    Returns:
      `RayHits`, as of `ray`, with a leading axis: (n,), (n,), (n, 3).
    """
    dtype = data.geom_xpos.dtype
    direction = jnp.asarray(direction, dtype)
    point = jnp.asarray(point, dtype)
    points = point if point.ndim == 2 else jnp.broadcast_to(point[None], direction.shape)
    exclude = jnp.broadcast_to(jnp.asarray(meets.bodyexclude, jnp.int32), direction.shape[:1])
    seen = _visible(model, meets)
    if isinstance(meets.cutoff, jax.Array) or np.isfinite(meets.cutoff):
        seen = seen[None] & _in_reach(model, data, points, jnp.asarray(meets.cutoff, dtype))
    return cast(model, data.geom_xpos, data.geom_xmat, Rays(points, direction, exclude), seen)


def _visible(model: Model, meets: RayFilter) -> Array:
    """(ngeom,) which geoms are neither transparent nor filtered out."""
    topology = model.topology
    visible = rgba(model)[:, 3] != 0
    moving = topology.body_weldid[topology.geom_bodyid] > 0
    visible &= jnp.asarray(moving) | jnp.asarray(meets.flg_static, bool)
    if meets.geomgroup is None:
        return visible
    return visible & pick(jnp.asarray(meets.geomgroup) != 0, np.clip(topology.geom_group, 0, GROUPS - 1))


def _in_reach(model: Model, data: Data | Kinematics, points: Array, cutoff: Array) -> Array:
    """(n, ngeom) which bounding spheres come nearer than the cutoff."""
    offset = jax.lax.stop_gradient(data.geom_xpos[None] - points[:, None])
    reach = jax.lax.stop_gradient(cutoff + model.geom_rbound)
    return dot(offset, offset) <= jnp.where(reach > 0, reach * reach, -1)[None]
