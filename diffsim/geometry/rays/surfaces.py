"""Surfaces of the primitive shapes for ray casting: the first hit of a line, and the normal there.

Each shape is three functions in its own frame, centred at its middle: `distance(size, origin, direction)` is the
smallest x >= 0 at which origin + x direction lies on the surface, or -1; `signed_distance(size, point)` (m) is exact
to first order near the surface; `normal(size, point)` is the outward unit normal at a point of the surface.
`through_box` finds where a ray enters and leaves an axis-aligned box. It takes components, so that rays and boxes can
have any layout. All functions take any number of leading axes. Source: Ericson 2005, ch. 5.3, for the quadratics; Ize
2013 for the rounding of boxes.
"""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import Array

from diffsim.base.enums import GeomType
from diffsim.math import safe
from diffsim.math.vector import Components, dot, pack, scale

# smaller components of a direction are replaced by this: the ray is all but parallel to two faces, and stays between
# them
SMALLEST = 1e-20


def through_box(lower: Components, upper: Components, origin: Components, direction: Components) -> tuple[Array, Array]:
    """Distances (enter, leave) of rays through boxes, enter >= 0; enter > leave where the ray misses the box.

    Args:
      lower, upper: x, y and z of the boxes' corners, m. Every ray misses a box with lower x > upper x.
      origin, direction: x, y and z of the rays; distances are in units of |direction|.
    """
    near, far = [], []
    for low, high, start, along in zip(lower, upper, origin, direction, strict=True):
        inverse = 1 / jnp.where(jnp.abs(along) < SMALLEST, SMALLEST, along)
        ends = (low - start) * inverse, (high - start) * inverse
        near.append(jnp.minimum(*ends))
        far.append(jnp.maximum(*ends))
    enter = jnp.maximum(jnp.maximum(near[0], near[1]), jnp.maximum(near[2], 0))
    leave = jnp.minimum(jnp.minimum(far[0], far[1]), far[2])
    # a flat box must be hit in spite of rounding
    return enter, jnp.where(lower[0] <= upper[0], leave * (1 + 8 * jnp.finfo(leave.dtype).eps), -jnp.inf)


# a direction whose component is smaller counts as parallel (mjMINVAL)
PARALLEL = 1e-15


def _roots(a: Array, b: Array, c: Array) -> tuple[Array, Array, Array]:
    """Both solutions x0 <= x1 of a x^2 + 2 b x + c = 0, and whether they are real."""
    discriminant = b * b - a * c
    real = (discriminant >= 0) & (a >= PARALLEL)
    root = safe.sqrt(jnp.where(real, discriminant, 0))
    divisor = jnp.where(real, a, 1)
    return (-b - root) / divisor, (-b + root) / divisor, real


def _nearest(candidates: list[tuple[Array, Array]]) -> Array:
    """The smallest non-negative distance among (distance, whether it counts), or -1."""
    best = -jnp.ones_like(candidates[0][0])
    for distance, counts in candidates:
        better = counts & (distance >= 0) & ((best < 0) | (distance < best))
        best = jnp.where(better, distance, best)
    return best


def _quotient(numerator: Array, denominator: Array) -> tuple[Array, Array]:
    """numerator / denominator, and whether the denominator is larger than PARALLEL."""
    steep = jnp.abs(denominator) > PARALLEL
    return numerator / jnp.where(steep, denominator, 1), steep


def plane_distance(size: Array, origin: Array, direction: Array) -> Array:
    """The plane z = 0, hit only from above and only within its rectangle (a size of 0 means infinite)."""
    x, steep = _quotient(-origin[..., 2], direction[..., 2])
    hit = origin + scale(direction, x)
    inside = (size[..., :2] <= 0) | (jnp.abs(hit[..., :2]) <= size[..., :2])
    return _nearest([(x, steep & (direction[..., 2] < 0) & inside[..., 0] & inside[..., 1])])


def plane_signed_distance(size: Array, point: Array) -> Array:
    """Height."""
    return point[..., 2]


def plane_normal(size: Array, point: Array) -> Array:
    """The z axis."""
    return jnp.broadcast_to(jnp.asarray([0, 0, 1], point.dtype), point.shape)


def sphere_distance(size: Array, origin: Array, direction: Array) -> Array:
    """A sphere of radius size[0]."""
    radius = size[..., 0]
    x0, x1, real = _roots(dot(direction, direction), dot(direction, origin), dot(origin, origin) - radius * radius)
    return _nearest([(x0, real), (x1, real)])


def capsule_distance(size: Array, origin: Array, direction: Array) -> Array:
    """A capsule along z: radius size[0], half length size[1] without the caps."""
    height = size[..., 1]
    candidates = [_side(size, origin, direction)]
    for sign in (1, -1):
        local = _shift_z(origin, -sign * height)
        radius = size[..., 0]
        a = dot(direction, direction)
        b = dot(direction, local)
        c = dot(local, local) - radius * radius
        low, high, real = _roots(a, b, c)
        for x in (low, high):
            candidates.append((x, real & (sign * _along_z(origin, direction, x) >= height)))
    return _nearest(candidates)


def ellipsoid_distance(size: Array, origin: Array, direction: Array) -> Array:
    """An ellipsoid with half axes `size`."""
    p = origin / size
    v = direction / size
    x0, x1, real = _roots(dot(v, v), dot(v, p), dot(p, p) - 1)
    return _nearest([(x0, real), (x1, real)])


def ellipsoid_signed_distance(size: Array, point: Array) -> Array:
    """The quadric over the length of its gradient."""
    scaled = point / size
    return safe.divide(dot(scaled, scaled) - 1, 2 * safe.norm(scaled / size))


def cylinder_distance(size: Array, origin: Array, direction: Array) -> Array:
    """A cylinder along z: radius size[0], half length size[1]."""
    radius = size[..., 0]
    height = size[..., 1]
    candidates = [_side(size, origin, direction)]
    for sign in (-1, 1):
        x, steep = _quotient(sign * height - origin[..., 2], direction[..., 2])
        hit = origin + scale(direction, x)
        candidates.append((x, steep & (dot(hit[..., :2], hit[..., :2]) <= radius * radius)))
    return _nearest(candidates)


def cylinder_signed_distance(size: Array, point: Array) -> Array:
    """Distance from the side or from an end, whichever is nearer."""
    beyond = safe.norm(_flat(point)) - size[..., 0]
    above = jnp.abs(point[..., 2]) - size[..., 1]
    return jnp.where(jnp.abs(beyond) <= jnp.abs(above), beyond, above)


def cylinder_normal(size: Array, point: Array) -> Array:
    """Radial on the side, along z on the ends, whichever is nearer to the point."""
    radial = _flat(point)
    beyond = safe.norm(radial) - size[..., 0]
    above = jnp.abs(point[..., 2]) - size[..., 1]
    side = jnp.abs(beyond) <= jnp.abs(above)
    zero = jnp.zeros_like(beyond)
    end = pack([zero, zero, jnp.sign(point[..., 2])])
    return jnp.where(side[..., None], safe.normalize(radial), end)


def box_distance(size: Array, origin: Array, direction: Array) -> Array:
    """A box with half edges `size`."""
    candidates = []
    for axis, first, second in ((0, 1, 2), (1, 0, 2), (2, 0, 1)):
        for sign in (-1, 1):
            x, steep = _quotient(sign * size[..., axis] - origin[..., axis], direction[..., axis])
            inside = jnp.abs(origin[..., first] + x * direction[..., first]) <= size[..., first]
            inside &= jnp.abs(origin[..., second] + x * direction[..., second]) <= size[..., second]
            candidates.append((x, steep & inside))
    return _nearest(candidates)


def box_signed_distance(size: Array, point: Array) -> Array:
    """Distance from the nearest face's plane."""
    beyond = jnp.where(_nearest_face(size, point), jnp.abs(point) - size, 0)
    return beyond[..., 0] + beyond[..., 1] + beyond[..., 2]


def box_normal(size: Array, point: Array) -> Array:
    """The axis of the nearest face."""
    return jnp.where(_nearest_face(size, point), jnp.sign(point), 0)


def _nearest_face(size: Array, point: Array) -> Array:
    """(..., 3) bool: the axis of the face that is nearest to a point."""
    gap = jax.lax.stop_gradient(jnp.abs(jnp.abs(point) - size))
    x, y, z = gap[..., 0], gap[..., 1], gap[..., 2]
    first = (x <= y) & (x <= z)
    second = ~first & (y <= z)
    return pack([first, second, ~first & ~second])


def _side(size: Array, origin: Array, direction: Array) -> tuple[Array, Array]:
    """(distance to the side of a cylinder along z, whether the ray hits it): radius size[0], half length size[1].

    From inside, the ray hits it at the larger root.
    """
    p, v = origin[..., :2], direction[..., :2]
    x0, x1, real = _roots(dot(v, v), dot(v, p), dot(p, p) - size[..., 0] * size[..., 0])
    x = jnp.where(x0 >= 0, x0, x1)
    return x, real & (jnp.abs(_along_z(origin, direction, x)) <= size[..., 1])


def _along_z(origin: Array, direction: Array, x: Array) -> Array:
    return origin[..., 2] + x * direction[..., 2]


def _shift_z(point: Array, amount: Array) -> Array:
    return pack([point[..., 0], point[..., 1], point[..., 2] + amount])


def _off_axis(size: Array, point: Array) -> Array:
    """The vector (..., 3) to a point from the nearest point of a capsule's axis segment."""
    height = size[..., 1]
    return _shift_z(point, -safe.clip(point[..., 2], -height, height))


def _flat(point: Array) -> Array:
    return pack([point[..., 0], point[..., 1], jnp.zeros_like(point[..., 2])])


@dataclass(frozen=True)
class Surface:
    """The functions of a geom type, as described at the top of the file. Sizes, points, rays: (..., 3)."""

    distance: Callable[[Array, Array, Array], Array]
    signed_distance: Callable[[Array, Array], Array]
    normal: Callable[[Array, Array], Array]


def triangle_distance(size: Array, origin: Array, direction: Array) -> Array:
    """A triangle in the plane z = 0 with its centroid at the origin, hit from both sides.

    The two sides from its first corner are (size[0], 0) and (size[1], size[2]).
    """
    x, steep = _quotient(-origin[..., 2], direction[..., 2])
    hit = origin + scale(direction, x)
    a, b, c = (size[..., k] for k in range(3))
    across, steep_c = _quotient(hit[..., 1] + c / 3, c)
    along, steep_a = _quotient(hit[..., 0] + (a + b) / 3 - across * b, a)
    inside = steep & steep_a & steep_c & (across >= 0) & (along >= 0) & (across + along <= 1)
    return _nearest([(x, inside)])


SURFACES = {
    GeomType.PLANE: Surface(plane_distance, plane_signed_distance, plane_normal),
    GeomType.SPHERE: Surface(
        sphere_distance, lambda size, point: safe.norm(point) - size[..., 0], lambda size, point: safe.normalize(point)
    ),
    GeomType.CAPSULE: Surface(
        capsule_distance,
        lambda size, point: safe.norm(_off_axis(size, point)) - size[..., 0],
        lambda size, point: safe.normalize(_off_axis(size, point)),
    ),
    GeomType.ELLIPSOID: Surface(
        ellipsoid_distance, ellipsoid_signed_distance, lambda size, point: safe.normalize(point / (size * size))
    ),
    GeomType.CYLINDER: Surface(cylinder_distance, cylinder_signed_distance, cylinder_normal),
    GeomType.BOX: Surface(box_distance, box_signed_distance, box_normal),
    # the elements of flexes, for rendering
    GeomType.FLEX: Surface(triangle_distance, plane_signed_distance, plane_normal),
}
