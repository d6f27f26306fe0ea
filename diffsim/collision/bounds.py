"""bounding_gap: a lower bound of the distance between two geoms.

The bound is from bounding spheres and, for geoms with corners or rims, from oriented boxes along their six face
normals. Source: Gottschalk et al. 1996, without the products of edges.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.base.enums import GeomType
from diffsim.collision.layout import Grid
from diffsim.geometry.buckets import Poses, frames_at
from diffsim.geometry.shapes import Shape, bounding_boxes
from diffsim.math import safe
from diffsim.math.vector import Components, dot_components, minus_components, mul_vec, total, unpack
from diffsim.types.model import Model
from diffsim.xla.barriers import stored

# types of geoms whose oriented boxes are compared, too
BOXED = (GeomType.ELLIPSOID, GeomType.CYLINDER, GeomType.BOX, GeomType.MESH, GeomType.SDF)


def bounding_gap(model: Model, poses: Poses, grid: Grid) -> Array:
    """Lower bounds (n, m), m, of the distances of a grid's pairs: by spheres and, for geoms with corners, boxes."""
    # distances of the bounding spheres, or of a plane and a bounding sphere
    pos1, mat1 = frames_at(poses, grid.geom1)
    pos2, _ = frames_at(poses, grid.geom2)
    centers = zip(*stored((unpack(pos1), unpack(pos2))), strict=True)
    between = [b[None, :] - a[:, None] for a, b in centers]
    if model.topology.geom_type[grid.geom1[0]] == GeomType.PLANE:
        distance = total([n[:, None] * x for n, x in zip(unpack(mat1[:, :, 2]), between, strict=True)])
    else:
        distance = safe.sqrt(total([x * x for x in between]))
    spheres = distance - model.geom_rbound[grid.geom1][:, None] - model.geom_rbound[grid.geom2][None]
    kinds = [model.topology.geom_type[geoms[0]] for geoms in (grid.geom1, grid.geom2)]
    if not np.all(np.isin(kinds, BOXED)):
        return spheres
    first, second = (
        _boxes(*frames_at(poses, geoms), model.geom_aabb[geoms, :3], model.geom_aabb[geoms, 3:], shape)
        for geoms, shape in ((grid.geom1, (-1, 1)), (grid.geom2, (1, -1)))
    )
    return jnp.maximum(spheres, between_boxes(first, second))


class Boxes(NamedTuple):
    """Bounding boxes, by components: centers in the world, half sizes, and the three axes."""

    middle: Components
    half: Components
    axes: tuple[Components, Components, Components]


def _boxes(pos: Array, mat: Array, middle: Array, half: Array, shape: tuple[int, ...]) -> Boxes:
    """Boxes of geoms at (n, 3) with axes (n, 3, 3), local centers and half sizes (n, 3), as arrays of this shape."""
    columns = (pos + mul_vec(mat, middle), half, *(mat[:, :, k] for k in range(3)))
    middles, halves, *axes = ([x.reshape(shape) for x in unpack(column)] for column in columns)
    return Boxes(middles, halves, tuple(axes))  # type: ignore[arg-type]


def boxes_around(kind: GeomType, shapes: Shape, shape: tuple[int, ...] = (-1,)) -> Boxes:
    """Boxes around n shapes of one type, from their current sizes, as arrays of this shape."""
    pos, mat, size, hull = shapes
    if kind == GeomType.MESH:
        lower, upper = hull.box[:, 0], hull.box[:, 1]
        middle = 0.5 * (lower + upper)
        half = 0.5 * (upper - lower)
    else:
        middle = jnp.zeros_like(size)
        half = bounding_boxes(np.full(len(size), kind), size)
    return _boxes(pos, mat, middle, half, shape)


def between_boxes(first: Boxes, second: Boxes) -> Array:
    """The greatest gap of boxes along the axes a of the first and b of the second: a lower bound of their distance.

    Along a_k: |c . a_k| - h1_k - sum over l of |a_k . b_l| h2_l, with half sizes h and the vector c between centers.
    """
    between = minus_components(second.middle, first.middle)
    cosines = [[jnp.abs(dot_components(a, b)) for b in second.axes] for a in first.axes]
    gaps = []
    for k in range(3):
        reach1 = total([cosines[k][other] * second.half[other] for other in range(3)])
        reach2 = total([cosines[other][k] * first.half[other] for other in range(3)])
        gaps += [jnp.abs(dot_components(between, first.axes[k])) - first.half[k] - reach1]
        gaps += [jnp.abs(dot_components(between, second.axes[k])) - second.half[k] - reach2]
    return jnp.max(jnp.stack(gaps), axis=0)


def between_upright_boxes(first: Boxes, second: Boxes) -> Array:
    """The greatest gap along x, y and z of the upright boxes around boxes: a lower bound of their distance.

    A box of half sizes h and axes a_k spans h_1 |a_1x| + h_2 |a_2x| + h_3 |a_3x| on both sides of its middle along x.
    It is a tenth of the work of `between_boxes`, and most pairs of a robot's geoms are already apart.
    """
    reach1, reach2 = stored([[_reach(boxes, k) for k in range(3)] for boxes in (first, second)])
    between = minus_components(second.middle, first.middle)
    gaps = [jnp.abs(c) - one - other for c, one, other in zip(between, reach1, reach2, strict=True)]
    return jnp.maximum(jnp.maximum(gaps[0], gaps[1]), gaps[2])


def _reach(boxes: Boxes, k: int) -> Array:
    """Half the length that boxes span along axis k of the world."""
    return total([half * jnp.abs(axis[k]) for half, axis in zip(boxes.half, boxes.axes, strict=True)])
