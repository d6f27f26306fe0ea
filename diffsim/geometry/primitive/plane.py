"""Planes against everything with a smooth or polyhedral support: the half space below the plane is solid.

First shape: the plane, its normal the local z axis (sizes are for drawing only). Source: MuJoCo, "Computation",
collision; features follow `engine_collision_primitive.c` and, for meshes,
`mjc_PlaneConvex` of 3.8.1.
"""

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.geometry.hull.tables import Hull, Rim
from diffsim.geometry.shapes import Candidates, Shape, candidate, stack
from diffsim.math import safe
from diffsim.math.vector import cross, dot, mul_vec, mul_vec_t, scale
from diffsim.xla.select import first as first_of
from diffsim.xla.select import greatest

Array = jax.Array

# of the bounding radius: how far from the first contact of a mesh the others must be
ASIDE = 0.3


def plane_point(plane: Shape, point: Array, tangent: Array | None = None) -> Candidates:
    """One row for a surface point: dist = n . (point - plane), position halfway along the normal."""
    dist = dot(plane.axis, point - plane.pos)
    return candidate(dist, point - scale(plane.axis, 0.5 * dist), plane.axis, tangent)


def plane_sphere(plane: Shape, sphere: Shape, margin: Array) -> Candidates:
    """The lowest point of the sphere."""
    return stack([plane_point(plane, sphere.pos - scale(plane.axis, sphere.size[0]))])


def plane_capsule(plane: Shape, capsule: Shape, margin: Array) -> Candidates:
    """The lowest points of both end balls; the first tangent follows the capsule's axis."""
    half = scale(capsule.axis, capsule.size[1])
    down = scale(plane.axis, capsule.size[0])
    return stack([plane_point(plane, capsule.pos + end - down, capsule.axis) for end in (half, -half)])


def plane_ellipsoid(plane: Shape, ellipsoid: Shape, margin: Array) -> Candidates:
    """The support point against the normal: with s the semi-axes, x = -R s^2 (R^T n) / |s (R^T n)|."""
    stretched = mul_vec_t(ellipsoid.mat, plane.axis) * ellipsoid.size
    local = safe.normalize(stretched) * ellipsoid.size
    return stack([plane_point(plane, ellipsoid.pos - mul_vec(ellipsoid.mat, local))])


def plane_cylinder(plane: Shape, cylinder: Shape, margin: Array) -> Candidates:
    """The lowest rim points of both discs, then two more on the lower disc, 120 degrees from the first."""
    radius, half = cylinder.size[0], cylinder.size[1]
    # the axis that points towards the plane
    upward = dot(plane.axis, cylinder.axis)
    axis = jnp.where(jax.lax.stop_gradient(upward) > 0, -cylinder.axis, cylinder.axis)
    # the steepest direction down the disc; the local x axis when the disc is parallel to the plane
    slope = scale(axis, dot(plane.axis, axis)) - plane.axis
    flat = dot(slope, slope) < (1e-30 if slope.dtype == jnp.float64 else 1e-12)
    rim = scale(jnp.where(flat, cylinder.mat[:, 0], safe.normalize(jnp.where(flat, 1, slope))), radius)
    end = scale(axis, half)
    side = scale(safe.normalize(cross(rim, end)), radius * (3**0.5 / 2))
    offsets = [rim + end, rim - end, side + end - 0.5 * rim, end - side - 0.5 * rim]
    return stack([plane_point(plane, cylinder.pos + offset) for offset in offsets])


def plane_box(plane: Shape, box: Shape, margin: Array) -> Candidates:
    """The four corners below the centre, of each pair of opposite corners the lower one; in MuJoCo's order."""
    corners, places = _lower_corners(plane, box)
    return _at_corners(plane, box, _in_order(jnp.stack(corners), jnp.stack(places)))


def plane_box_steady(plane: Shape, box: Shape, margin: Array) -> Candidates:
    """The same corners, each pair of opposite corners in a row of its own, however the box turns."""
    return _at_corners(plane, box, _lower_corners(plane, box)[0])


def _at_corners(plane: Shape, box: Shape, corners: list[Array]) -> Candidates:
    return stack([plane_point(plane, box.pos + mul_vec(box.mat, corner * box.size)) for corner in corners])


def _lower_corners(plane: Shape, box: Shape) -> tuple[list[Array], list[Array]]:
    """Signs (3,) of the corners below the centre, and their places in MuJoCo's order, of four pairs."""
    heights = mul_vec_t(box.mat, plane.axis) * box.size
    corners, places = [], []
    for place, signs in enumerate(((-1, -1, -1), (1, -1, -1), (-1, 1, -1), (1, 1, -1))):
        sign = jnp.asarray(signs, heights.dtype)
        other = jax.lax.stop_gradient(dot(sign, heights)) > 0
        corners.append(jnp.where(other, -sign, sign))
        places.append(jnp.where(other, 7 - place, place))
    return corners, places


def plane_mesh(plane: Shape, mesh: Shape, margin: Array) -> Candidates:
    """The lowest vertex of the hull, then the first two of its neighbours below the margin that lie well aside.

    MuJoCo measures how far aside from the first contact point, which is halfway to the plane.
    """
    hull: Hull | Rim = mesh.data
    heights = mul_vec(hull.vert, mul_vec_t(mesh.mat, plane.axis))
    lowest = greatest(jax.lax.stop_gradient(-heights), hull.bound)
    first = plane_point(plane, mesh.pos + mul_vec(mesh.mat, hull.vert[lowest]))
    around = hull.around[jnp.minimum(lowest, len(hull.around) - 1)]
    points = mesh.pos[None] + mul_vec(mesh.mat[None], hull.vert[jnp.maximum(around, 0)])
    rows = jax.vmap(plane_point, (None, 0))(plane, points)
    other = (around >= 0) & ((around != lowest) | (len(hull.around) > 1))
    aside = safe.norm(points - first.pos[None]) >= ASIDE * hull.bound
    counts = jax.lax.stop_gradient(other & (rows.dist < margin) & aside)
    # places of the first and the second that count
    number = jnp.cumsum(counts)[None] == np.array([[1], [2]])
    place, exists = first_of(number), jnp.any(number, axis=1)
    further = Candidates(*(column[place] for column in rows))._replace(valid=exists)
    return Candidates(*(jnp.concatenate([a[None], b]) for a, b in zip(first, further, strict=True)))


def _in_order(rows: Array, places: Array) -> list[Array]:
    """The rows (n, k) by their places (n,), all different: a sort of few, without a sort."""
    rank = jnp.sum(places[None] < places[:, None], axis=1)
    return [jnp.sum(jnp.where((rank == i)[:, None], rows, 0), axis=0) for i in range(len(rows))]
