"""fluid_force: the forces of the surrounding fluid on bodies.

The fluid acts on a body as on a box of the same mass and inertia. If geoms of the body have the attribute `fluidshape`,
it acts instead on ellipsoids in place of these geoms. Forces are computed in the frame of the box or ellipsoid,
from the velocity of its centre relative to the wind. Quadratic terms are written as v |v|, so that values and
derivatives are finite at rest.
Source: MuJoCo documentation, "Computation", "Fluid forces".
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.base.enums import MINVAL, GeomType
from diffsim.kinematics.jacobian import body_wrenches, wrenches_on_dofs
from diffsim.kinematics.poses import geom_frames
from diffsim.math import safe
from diffsim.math.vector import cross, dot, mul_vec, mul_vec_t, pack, scale
from diffsim.types.data import ComFrame, Kinematics, Velocities
from diffsim.types.model import Model
from diffsim.types.topology import Topology, per_topology
from diffsim.xla.gather import pick

PI = np.pi


def fluid_force(model: Model, kinematics: Kinematics, com: ComFrame, velocities: Velocities) -> Array:
    """(nv,) generalized force of the fluid on all bodies, N or N m."""
    if not has_medium(model.topology):
        return jnp.zeros((model.nv,), com.cdof.dtype)
    return wrenches_on_dofs(model, com, fluid_wrenches(model, kinematics, com, velocities.cvel))


def has_medium(topology: Topology) -> bool:
    """Whether the model can have a surrounding fluid, with density or viscosity."""
    return topology.has("density") or topology.has("viscosity")


def fluid_wrenches(model: Model, kinematics: Kinematics, com: ComFrame, cvel: Array) -> Array:
    """(nbody, 6) torque (N m) and force (N) of the fluid on each body, at the velocities cvel (nbody, 6).

    World axes, about the centre of mass of the body's tree.
    """
    topology = model.topology
    total = jnp.zeros((model.nbody, 6), cvel.dtype)
    boxes, ellipsoids = _immersed(topology)
    if boxes.size:
        pos, mat = kinematics.xipos[boxes], kinematics.ximat[boxes]
        local = _local_velocity(model, com, cvel, pos, mat, boxes)
        total = total + _wrenches(model, com, pos, mat, boxes, _box_force(model, boxes, *local))
    if ellipsoids.size:
        bodies = topology.geom_bodyid[ellipsoids]
        pos, mat = geom_frames(model, kinematics, ellipsoids)
        local = _local_velocity(model, com, cvel, pos, mat, bodies)
        total = total + _wrenches(model, com, pos, mat, bodies, _ellipsoid_force(model, ellipsoids, *local))
    return total


def _wrenches(
    model: Model, com: ComFrame, pos: Array, mat: Array, bodies: np.ndarray, local: tuple[Array, Array]
) -> Array:
    """(nbody, 6) spatial forces from `local` forces and torques (n, 3) at `pos`, in frames `mat`, on bodies (n,).

    No force acts on bodies without mass.
    """
    heavy = (pick(model.body_mass, bodies) >= MINVAL)[:, None]
    force, torque = (jnp.where(heavy, mul_vec(mat, x), 0) for x in local)
    return body_wrenches(model, com, pos, bodies, force, torque)


@per_topology
def _immersed(topology: Topology) -> tuple[np.ndarray, np.ndarray]:
    """The bodies that stand in the fluid as boxes, and the geoms that stand in it as ellipsoids."""
    ellipsoid = topology.present["geom_fluid"].any(axis=1)
    has_ellipsoid = np.zeros(topology.nbody, dtype=bool)
    has_ellipsoid[topology.geom_bodyid[ellipsoid]] = True
    # forces on the world move nothing
    boxes = np.flatnonzero(~has_ellipsoid & (np.arange(topology.nbody) > 0))
    return boxes, np.flatnonzero(ellipsoid & (topology.geom_bodyid > 0))


def _local_velocity(
    model: Model, com: ComFrame, cvel: Array, pos: Array, mat: Array, bodies: np.ndarray
) -> tuple[Array, Array]:
    """Angular velocity, and linear velocity relative to the wind, (n, 3) each, of frames on bodies, in these frames."""
    motion = pick(cvel, bodies)
    offset = pos - pick(com.subtree_com, model.topology.body_rootid[bodies])
    linear = motion[:, 3:] + cross(motion[:, :3], offset) - model.opt.wind[None]
    return mul_vec_t(mat, motion[:, :3]), mul_vec_t(mat, linear)


def _box_force(model: Model, bodies: np.ndarray, angular: Array, linear: Array) -> tuple[Array, Array]:
    """Force and torque (n, 3) in the local frame on boxes with the mass and inertia of bodies (n,).

    A box of mass m has the sides a, b and c, with a^2 = 6 (Iyy + Izz - Ixx) / m, and so on. For axis x the quadratic
    drag is -1/2 density b c |v| v, and its torque -density a (b^4 + c^4) / 64 |w| w. The viscous resistance
    follows Stokes' law for a sphere whose diameter is the mean of the sides.
    """
    density = model.opt.density
    viscosity = model.opt.viscosity
    inertia = pick(model.body_inertia, bodies)
    mass = pick(model.body_mass, bodies)
    # for each axis, the moments of inertia about the two axes after it in cyclic order; b and c are their sides
    next_inertia = jnp.stack([inertia[:, 1], inertia[:, 2], inertia[:, 0]], axis=1)
    last_inertia = jnp.stack([inertia[:, 2], inertia[:, 0], inertia[:, 1]], axis=1)
    square = 6 * safe.maximum(MINVAL, next_inertia + last_inertia - inertia)
    a = safe.sqrt(scale(square, safe.divide(jnp.ones_like(mass), mass)))
    b, c = (jnp.roll(a, shift, axis=1) for shift in (-1, -2))
    diameter = (a[:, 0] + a[:, 1] + a[:, 2]) / 3
    force = -scale(linear, 3 * PI * viscosity * diameter) - 0.5 * density * b * c * jnp.abs(linear) * linear
    drag_torque = density * a * (b**4 + c**4) / 64 * jnp.abs(angular) * angular
    return force, -scale(angular, PI * viscosity * diameter**3) - drag_torque


# The semi-axes along x, y and z for each geom type: a column of geom_size, and how many times column 1 is added to it
# (the half length of a capsule does not include its caps). Types that are not listed have their sizes.
SEMI_AXES = {
    GeomType.SPHERE: ((0, 0, 0), (0, 0, 0)),
    GeomType.CAPSULE: ((0, 0, 0), (0, 0, 1)),
    GeomType.CYLINDER: ((0, 0, 1), (0, 0, 0)),
}


def semi_axes(model: Model, geoms: np.ndarray) -> Array:
    """(n, 3) m, the semi-axes of the ellipsoids that stand for these geoms (n,)."""
    rows = [SEMI_AXES.get(GeomType(kind), ((0, 1, 2), (0, 0, 0))) for kind in model.topology.geom_type]
    columns, extra = np.array(rows, np.int32).reshape(-1, 2, 3).swapaxes(0, 1)
    size = pick(model.geom_size, geoms)
    picked = jnp.take_along_axis(size, jnp.asarray(columns[geoms]), axis=1)
    return picked + size[:, 1:2] * extra[geoms]


class FluidCoefficients(NamedTuple):
    """The columns of geom_fluid, in MuJoCo's order.

    Attributes:
      interaction: (n,) 1 if the geom interacts with the fluid, else 0.
      blunt_drag, slender_drag, angular_drag, kutta_lift, magnus_lift: (n,) dimensionless coefficients.
      virtual_mass, virtual_inertia: (n, 3) added mass and inertia, per density of the fluid: m^3 and m^5.
    """

    interaction: Array
    blunt_drag: Array
    slender_drag: Array
    angular_drag: Array
    kutta_lift: Array
    magnus_lift: Array
    virtual_mass: Array
    virtual_inertia: Array


def _ellipsoid_force(model: Model, geoms: np.ndarray, angular: Array, linear: Array) -> tuple[Array, Array]:
    """Force and torque (n, 3) in the local frame on ellipsoids: added mass, Magnus and Kutta lift, drag, viscosity."""
    columns = pick(model.geom_fluid, geoms)
    coefficients = FluidCoefficients(
        *(columns[:, k] for k in range(6)), virtual_mass=columns[:, 6:9], virtual_inertia=columns[:, 9:]
    )
    size = semi_axes(model, geoms)
    # The fluid that moves with the body (added mass) has a momentum that turns with the body. As in MuJoCo, its rate of
    # change in the body's frame is neglected.
    momentum = model.opt.density * coefficients.virtual_mass * linear
    spin = model.opt.density * coefficients.virtual_inertia * angular
    force = cross(momentum, angular)
    torque = cross(momentum, linear) + cross(spin, angular)
    lift = _lift(model.opt.density, coefficients, size, angular, linear)
    drag, angular_drag = _drag(model, coefficients, size, angular, linear)
    return (
        scale(force + lift - scale(linear, drag), coefficients.interaction),
        scale(torque - scale(angular, angular_drag), coefficients.interaction),
    )


class Projection(NamedTuple):
    """The projections of ellipsoids with semi-axes (a, b, c) along their velocities v.

    With w = (b^2 c^2, c^2 a^2, a^2 b^2), which multiplies vectors by components:

    Attributes:
      area: (n,) m^2, area of the projection, pi sqrt(|w v|^2 / (w v . v)).
      normal: (n, 3) w v, the normal of the plane of the ellipsoid's outline, not of unit length.
      along: (n,) w v . v.
      square: (n,) |w v|^2.
    """

    area: Array
    normal: Array
    along: Array
    square: Array


def _projection(size: Array, linear: Array) -> Projection:
    """The projections of ellipsoids with semi-axes `size` (n, 3) along velocities `linear` (n, 3)."""
    weight = pack([size[:, 1] * size[:, 2], size[:, 2] * size[:, 0], size[:, 0] * size[:, 1]])
    normal = weight**2 * linear
    square = dot(normal, normal)
    along = dot(normal, linear)
    # at rest the ratio is 0 / MINVAL, so that the area is zero, as in MuJoCo
    ratio = square / safe.maximum(along, MINVAL)
    return Projection(area=PI * safe.sqrt(ratio), normal=normal, along=along, square=square)


def _lift(density: Array, coefficients: FluidCoefficients, size: Array, angular: Array, linear: Array) -> Array:
    """(n, 3) lift, N: the Magnus force density volume w x v, and the Kutta force (n x v) x v of circulation."""
    volume = 4 / 3 * PI * size[:, 0] * size[:, 1] * size[:, 2]
    magnus = scale(cross(angular, linear), coefficients.magnus_lift * density * volume)
    projection = _projection(size, linear)
    cosine = projection.along / safe.maximum(safe.norm(linear) * projection.square, MINVAL)
    circulation = scale(cross(projection.normal, linear), coefficients.kutta_lift * density * cosine * projection.area)
    return magnus + cross(circulation, linear)


def _drag(
    model: Model, coefficients: FluidCoefficients, size: Array, angular: Array, linear: Array
) -> tuple[Array, Array]:
    """Resistance per linear velocity (n,) N s / m and per angular velocity (n,) N m s / rad.

    Both are the sum of Stokes' law for a sphere whose diameter is the mean of the axes, and of a quadratic drag, which
    is density |v| (blunt A + slender (A_max - A)) for the projected area A and its largest value A_max.
    """
    density = model.opt.density
    viscosity = model.opt.viscosity
    a = size[:, 0]
    b = size[:, 1]
    c = size[:, 2]
    largest = safe.maximum(safe.maximum(a, b), c)
    smallest = safe.minimum(safe.minimum(a, b), c)
    middle = a + b + c - largest - smallest
    max_area = PI * largest * middle
    area = _projection(size, linear).area
    diameter = 2 / 3 * (a + b + c)
    blunt = coefficients.blunt_drag
    slender = coefficients.slender_drag
    drag = viscosity * 3 * PI * diameter + density * safe.norm(linear) * (area * blunt + slender * (max_area - area))

    moment = pack([_max_moment(a, b, c), _max_moment(b, c, a), _max_moment(c, a, b)])
    largest_moment = 8 / 15 * PI * middle * largest**4
    drag_moment = scale(moment, coefficients.angular_drag) + scale(largest_moment[:, None] - moment, slender)
    return drag, viscosity * PI * diameter**3 + density * safe.norm(angular * drag_moment)


def _max_moment(axis: Array, first: Array, second: Array) -> Array:
    """(n,) m^5, the factor of the angular drag about the semi-axis `axis`, given the other two semi-axes."""
    return 8 / 15 * PI * axis * safe.maximum(first, second) ** 4
