"""Bounds of the gap between geoms, by which the nearest pairs are chosen where there are more than can be looked at.

No bound is above the true distance. Bounding spheres tell little of what is long or flat: for geoms with corners or
rims the boxes of their frames are looked at too, along the six normals of their sides.
Source: Gottschalk et al. 1996, without the products of edges.
"""

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.base.enums import GeomType
from diffsim.collision.layout import Grid
from diffsim.geometry.frames import Poses, frames_at
from diffsim.math import safe
from diffsim.math.vector import mul_vec, total, unpack
from diffsim.types.model import Model
from diffsim.xla.barriers import stored

Array = jax.Array

BOXED = (GeomType.ELLIPSOID, GeomType.CYLINDER, GeomType.BOX, GeomType.MESH, GeomType.SDF)


def bounding_gap(model: Model, poses: Poses, grid: Grid) -> Array:
    """A bound (n, m), m, of the distances of the pairs of a table; for boxes and the like by spheres and boxes."""
    spheres = _between_spheres(model, poses, grid)
    kinds = [model.topology.geom_type[geoms[0]] for geoms in (grid.geom1, grid.geom2)]
    if not np.all(np.isin(kinds, BOXED)):
        return spheres
    return jnp.maximum(spheres, _between_boxes(model, poses, grid))


def _between_spheres(model: Model, poses: Poses, grid: Grid) -> Array:
    """Distance (n, m) of the bounding spheres, or of a plane and a bounding sphere."""
    (first, mat), (second, _) = frames_at(poses, grid.geom1), frames_at(poses, grid.geom2)
    first, second = stored(unpack(first)), stored(unpack(second))
    between = [b[None, :] - a[:, None] for a, b in zip(first, second, strict=True)]
    if model.topology.geom_type[grid.geom1[0]] == GeomType.PLANE:
        normal = mat[:, :, 2]
        distance = total([n[:, None] * x for n, x in zip(unpack(normal), between, strict=True)])
    else:
        distance = safe.sqrt(total([x * x for x in between]))
    return distance - model.geom_rbound[grid.geom1][:, None] - model.geom_rbound[grid.geom2][None]


def _between_boxes(model: Model, poses: Poses, grid: Grid) -> Array:
    """The greatest gap (n, m) of two boxes along the axes a of the first and b of the second.

    Along a_k: |c . a_k| - h1_k - sum over l of |a_k . b_l| h2_l, with the half sizes h and the way c between middles.
    """
    places, halves, axes = zip(*(_boxes(model, poses, geoms) for geoms in (grid.geom1, grid.geom2)), strict=True)
    between = [b[None, :] - a[:, None] for a, b in zip(unpack(places[0]), unpack(places[1]), strict=True)]
    # axis k of the first and axis l of the second, each as three columns
    first, second = ([unpack(mat[:, :, k]) for k in range(3)] for mat in axes)
    own1, own2 = unpack(halves[0]), unpack(halves[1])
    cosines = [
        [jnp.abs(total([a[:, None] * b[None] for a, b in zip(x, y, strict=True)])) for y in second] for x in first
    ]
    gaps = []
    for k in range(3):
        along1 = total([x * a[:, None] for x, a in zip(between, first[k], strict=True)])
        along2 = total([x * b[None] for x, b in zip(between, second[k], strict=True)])
        reach1 = total([cosines[k][other] * own2[other][None] for other in range(3)])
        reach2 = total([cosines[other][k] * own1[other][:, None] for other in range(3)])
        gaps += [jnp.abs(along1) - own1[k][:, None] - reach1, jnp.abs(along2) - own2[k][None] - reach2]
    return jnp.max(jnp.stack(gaps), axis=0)


def _boxes(model: Model, poses: Poses, geoms: np.ndarray) -> tuple[Array, Array, Array]:
    """Of the bounding boxes of geoms (n,): middle (n, 3) in the world, half sizes (n, 3), axes (n, 3, 3) as columns."""
    (pos, mat), box = frames_at(poses, geoms), model.geom_aabb[geoms]
    return pos + mul_vec(mat, box[:, :3]), box[:, 3:], mat
