"""Planes, spheres, capsules and the round side of cylinders: closest points in closed form.

A plane is always the first shape. Its normal is its local z axis, and all that is below it is solid; its sizes are for
drawing only.
Source: MuJoCo's `engine_collision_primitive.c` (3.8.1) for which contacts exist, and `mjc_PlaneConvex` for meshes;
Ericson 2005, ch. 5, for the closest points of segments.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from diffsim.geometry.hull.polytope import ball_around
from diffsim.geometry.shapes import Candidates, Shape, Vector, axes_fallback, ball_ball, candidate, collider, stack
from diffsim.math import safe
from diffsim.math.vector import cross, dot, dot_components, minus_components, mul_vec, mul_vec_t, scale, unpack
from diffsim.xla.gather import rows_at
from diffsim.xla.select import first as first_of
from diffsim.xla.select import where_tree

# least distance of the other contacts of a mesh from the first, relative to the bounding radius
ASIDE = 0.3


def plane_point(plane: Shape, point: Array, tangent: Array | None = None) -> Candidates:
    """One row for a surface point: dist = n . (point - plane), position halfway along the normal."""
    dist = dot(plane.axis, point - plane.pos)
    return candidate(dist, point - scale(plane.axis, 0.5 * dist), plane.axis, tangent)


# With planes only the cylinder has @collider: storing the few values that a capsule or a box shares costs 9 to 14%.
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


@collider
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
    """The lower corner of each of the four pairs of opposite corners, in MuJoCo's order."""
    corners, places = map(jnp.stack, _lower_corners(plane, box))
    # sorted by counting: the rank of a corner is the number of corners before it
    rank = jnp.sum(places[None] < places[:, None], axis=1)
    ordered = [jnp.sum(jnp.where((rank == i)[:, None], corners, 0), axis=0) for i in range(len(corners))]
    return _at_corners(plane, box, ordered)


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
    hull = mesh.data.whole
    downward = -mul_vec_t(mesh.mat, plane.axis)
    lower, upper = hull.box
    reach = dot(downward, 0.5 * (lower + upper)) + dot(jnp.abs(downward), 0.5 * (upper - lower))
    near = dot(plane.axis, mesh.pos - plane.pos) - reach < margin
    lowest = hull.furthest(*jax.lax.stop_gradient((downward, None, near)))
    first = plane_point(plane, mesh.pos + mul_vec(mesh.mat, hull.vertices(lowest)))
    around = hull.neighbours(lowest)
    # distances of all neighbours from the plane and from the first contact, in the frame of the mesh
    vertices = jax.lax.stop_gradient(hull.vertices(jnp.maximum(around, 0)))
    dist = dot(plane.axis, mesh.pos - plane.pos) - mul_vec(vertices, downward)
    aside = safe.norm(vertices - mul_vec_t(mesh.mat, first.pos - mesh.pos)[None])
    counts = jax.lax.stop_gradient((around >= 0) & (dist < margin) & (aside >= ASIDE * ball_around(hull.box)))
    # the first and the second that count
    second = counts & (jnp.arange(len(counts)) > first_of(counts))
    place = first_of(jnp.stack([counts, second]))
    exists = jnp.stack([jnp.any(counts), jnp.any(second)])
    points = mesh.pos[None] + mul_vec(mesh.mat[None], hull.vertices(jnp.maximum(rows_at(around, place), 0)))
    further = jax.vmap(plane_point, (None, 0))(plane, points)._replace(valid=exists)
    return Candidates(*(jnp.concatenate([a[None], b]) for a, b in zip(first, further, strict=True)))


@collider
def sphere_sphere(sphere1: Shape, sphere2: Shape, margin: Array) -> Candidates:
    """The line of centres."""
    centers = unpack(sphere1.pos), unpack(sphere2.pos)
    row = ball_ball(centers[0], sphere1.size[0], centers[1], sphere2.size[0], axes_fallback(sphere1, sphere2))
    return stack([candidate(*row)])


@collider
def sphere_capsule(sphere: Shape, capsule: Shape, margin: Array) -> Candidates:
    """The sphere against a ball at the nearest point of the capsule's segment."""
    half = capsule.size[1]
    axis = unpack(capsule.axis)
    center = unpack(sphere.pos)
    middle = unpack(capsule.pos)
    along = safe.clip(dot_components(axis, minus_components(center, middle)), -half, half)
    nearest = _ahead(middle, along, axis)
    row = ball_ball(center, sphere.size[0], nearest, capsule.size[0], axes_fallback(sphere, capsule))
    return stack([candidate(*row)])


def _ahead(start: Vector, distance: Array, axis: Vector) -> Vector:
    """The point at a distance from another along an axis."""
    return [x + distance * d for x, d in zip(start, axis, strict=True)]


@collider
def sphere_cylinder(sphere: Shape, cylinder: Shape, margin: Array) -> Candidates:
    """The sphere against the cylinder's side, cap or rim, whichever is nearest."""
    radius, half = cylinder.size[0], cylinder.size[1]
    offset = sphere.pos - cylinder.pos
    along = dot(cylinder.axis, offset)
    radial = offset - scale(cylinder.axis, along)
    outward = jnp.where(jax.lax.stop_gradient(along) > 0, cylinder.axis, -cylinder.axis)
    height = dot(outward, offset)
    # discrete choice: beside the wall, above a cap, both (centre inside: the nearer exit) or neither (rim)
    distance = jax.lax.stop_gradient(safe.norm(radial))
    beside = jax.lax.stop_gradient(height) < half
    above = distance < radius
    cap_is_nearer = jax.lax.stop_gradient(half - height) < radius - distance
    side = beside & ~(above & cap_is_nearer)
    cap = above & ~side
    rim = cylinder.pos + scale(outward, half) + scale(safe.normalize(radial), radius)
    nearest = jnp.where(side, cylinder.pos + scale(cylinder.axis, along), rim)
    # on the axis and nearer to the wall: the balls are concentric
    centers = unpack(sphere.pos), unpack(nearest)
    round_row = ball_ball(
        centers[0], sphere.size[0], centers[1], jnp.where(side, radius, 0), axes_fallback(sphere, cylinder)
    )
    dist = height - half - sphere.size[0]
    cap_row = (dist, sphere.pos - scale(outward, sphere.size[0] + 0.5 * dist), -outward)
    return stack([candidate(*where_tree(cap, cap_row, round_row))])


class _Quadratic(NamedTuple):
    """The squared distance of points on two segments: matrix ((ma, mb), (mb, mc)) and right-hand side (u, v)."""

    ma: Array
    mb: Array
    mc: Array
    u: Array
    v: Array


@collider
def capsule_capsule(capsule1: Shape, capsule2: Shape, margin: Array) -> Candidates:
    """The closest points of two segments; two rows where the segments are parallel, else the second is not valid.

    The segments are p + x a with |x| <= 1. The squared distance is a quadratic in (x1, x2) with the matrix
    ((ma, mb), (mb, mc)) and the right-hand side (u, v).
    """
    # middles of the segments, and the way from there to their ends
    start1, start2 = unpack(capsule1.pos), unpack(capsule2.pos)
    axis1, axis2 = ([x * capsule.size[1] for x in unpack(capsule.axis)] for capsule in (capsule1, capsule2))
    offset = minus_components(start1, start2)
    products = [(axis1, axis1), (axis1, axis2), (axis2, axis2), (axis1, offset), (axis2, offset), (offset, offset)]
    ma, mb, mc, u, v, squared = (dot_components(*product) for product in products)
    # |offset + x1 axis1 - x2 axis2|^2 = squared + x1^2 ma + x2^2 mc + 2 (x1 x2 mb - x1 u - x2 v)
    quadratic = _Quadratic(ma=ma, mb=-mb, mc=mc, u=-u, v=v)
    ma, mb, mc, u, _ = quadratic
    determinant = ma * mc - mb * mb
    limit = 1e-15 if u.dtype == jnp.float64 else 1e-15 + 1e-6 * ma * mc
    parallel = jax.lax.stop_gradient(jnp.abs(determinant) < limit)
    crossing = _crossing_parameters(quadratic, jnp.where(parallel, 1, determinant))
    reach = margin + capsule1.size[0] + capsule2.size[0]
    first, second, both = _parallel_parameters(quadratic, squared, reach)
    fallback = axes_fallback(capsule1, capsule2)
    one = where_tree(parallel, first, crossing)

    def row(x1: Array, x2: Array) -> Candidates:
        centers = _ahead(start1, x1, axis1), _ahead(start2, x2, axis2)
        return candidate(*ball_ball(centers[0], capsule1.size[0], centers[1], capsule2.size[0], fallback))

    return stack([row(*one), row(*second)])._replace(valid=jnp.stack([jnp.ones_like(both), parallel & both]))


def _crossing_parameters(quadratic: _Quadratic, determinant: Array) -> tuple[Array, Array]:
    """(x1, x2) of the closest points of segments that are not parallel.

    The minimum of the quadratic, clipped to the first segment, then to the second, each time solved for the other.
    """
    ma, mb, mc, u, v = quadratic
    free1 = (mc * u - mb * v) / determinant
    free2 = (ma * v - mb * u) / determinant
    x1 = safe.clip(free1, -1, 1)
    clamped = (free1 > 1) | (free1 < -1)
    x2 = jnp.where(clamped, safe.divide(v - mb * x1, mc), free2)
    # the second segment clips last, and then the first parameter follows
    end = safe.clip(x2, -1, 1)
    x1 = jnp.where((x2 > 1) | (x2 < -1), safe.clip(safe.divide(u - mb * end, ma), -1, 1), x1)
    return x1, end


def _parallel_parameters(
    quadratic: _Quadratic, squared: Array, reach: Array
) -> tuple[tuple[Array, Array], tuple[Array, Array], Array]:
    """The first two of the four end points that lie within reach of the other segment, and whether there are two.

    Order: both ends of the first segment, then both ends of the second. If none is in reach, the nearest is taken.
    """
    ma, mb, mc, u, v = quadratic
    one = jnp.ones_like(u)
    seconds = [safe.clip(safe.divide(v - mb * end, mc), -1, 1) for end in (one, -one)]
    firsts = [safe.clip(safe.divide(u - mb * end, ma), -1, 1) for end in (one, -one)]
    ends = [*zip((one, -one), seconds, strict=True), *zip(firsts, (one, -one), strict=True)]
    gaps = [
        jax.lax.stop_gradient(squared + x1 * x1 * ma + x2 * x2 * mc + 2 * (x1 * x2 * mb - x1 * u - x2 * v))
        for x1, x2 in ends
    ]
    near = [gap <= jax.lax.stop_gradient(reach * reach) for gap in gaps]
    none = ~(near[0] | near[1] | near[2] | near[3])
    nearest = jnp.minimum(jnp.minimum(gaps[0], gaps[1]), jnp.minimum(gaps[2], gaps[3]))
    taken = [hit | (none & (gap <= nearest)) for gap, hit in zip(gaps, near, strict=True)]
    # from the last end to the first: an end that is taken becomes the first, and the first so far becomes the second
    first = ends[3]
    second = ends[3]
    two = jnp.zeros_like(near[0])
    some = jnp.zeros_like(near[0])
    for end, here in reversed(list(zip(ends, taken, strict=True))):
        second = where_tree(here, first, second)
        two = jnp.where(here, some, two)
        some = some | here
        first = where_tree(here, end, first)
    return first, second, two & ~none
