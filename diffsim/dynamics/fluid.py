"""Forces of the surrounding medium: drag, lift and viscous resistance.

A body moves through the medium as the box that has its inertia, or, where a geom asks for it, as the ellipsoids of its
geoms. Local velocities are taken at the frame's origin, minus the wind. Quadratic terms use v |v|, so values and
derivatives are finite at rest. Source: MuJoCo documentation, "Computation", "Fluid forces".
"""

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.base.enums import GeomType
from diffsim.kinematics.jacobian import body_wrenches, dof_force
from diffsim.kinematics.poses import geom_frames
from diffsim.math import safe
from diffsim.math.vector import cross, dot, mul_vec, mul_vec_t, pack, scale
from diffsim.types.data import ComFrame, Kinematics, Velocities
from diffsim.types.model import Model
from diffsim.types.topology import Topology, per_topology
from diffsim.xla.gather import pick

Array = jax.Array

PI = np.pi
# MuJoCo's floor under masses, inertias and divisors
MINIMUM = 1e-15


def fluid_force(model: Model, kinematics: Kinematics, com: ComFrame, velocities: Velocities) -> Array:
    """(nv,) N or N m, generalized force of the medium on all bodies."""
    if not has_medium(model.topology):
        return jnp.zeros((model.nv,), com.cdof.dtype)
    return dof_force(model, com, fluid_wrenches(model, kinematics, com, velocities.cvel))


def has_medium(topology: Topology) -> bool:
    """Whether bodies can move through a medium."""
    return topology.has("density") or topology.has("viscosity")


def fluid_wrenches(model: Model, kinematics: Kinematics, com: ComFrame, cvel: Array) -> Array:
    """(nbody, 6) torque (N m) and force (N) of the medium on each body that moves with cvel (nbody, 6), world axes.

    They are taken about the centre of mass of the body's tree.
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
    """(nbody, 6) spatial forces of local forces and torques (n, 3); none on bodies without mass."""
    heavy = (pick(model.body_mass, bodies) >= MINIMUM)[:, None]
    force, torque = (jnp.where(heavy, mul_vec(mat, x), 0) for x in local)
    return body_wrenches(model, com, pos, bodies, force, torque)


@per_topology
def _immersed(topology: Topology) -> tuple[np.ndarray, np.ndarray]:
    """Bodies that move as their inertia box, and geoms that move as ellipsoids."""
    shaped = topology.present["geom_fluid"].any(axis=1)
    with_geoms = np.zeros(topology.nbody, dtype=bool)
    with_geoms[topology.geom_bodyid[shaped]] = True
    # forces on the world move nothing
    boxes = np.flatnonzero(~with_geoms & (np.arange(topology.nbody) > 0))
    return boxes, np.flatnonzero(shaped & (topology.geom_bodyid > 0))


def _local_velocity(
    model: Model, com: ComFrame, cvel: Array, pos: Array, mat: Array, bodies: np.ndarray
) -> tuple[Array, Array]:
    """Angular and linear velocity (n, 3) of frames fixed to bodies, relative to the wind, in those frames."""
    motion = pick(cvel, bodies)
    offset = pos - pick(com.subtree_com, model.topology.body_rootid[bodies])
    linear = motion[:, 3:] + cross(motion[:, :3], offset) - model.opt.wind[None]
    return mul_vec_t(mat, motion[:, :3]), mul_vec_t(mat, linear)


def _box_force(model: Model, bodies: np.ndarray, angular: Array, linear: Array) -> tuple[Array, Array]:
    """Force and torque (n, 3), local, on the boxes of equal inertia (their full sides are `box`)."""
    density, viscosity = model.opt.density, model.opt.viscosity
    inertia, mass = pick(model.body_inertia, bodies), pick(model.body_mass, bodies)
    across = jnp.stack([inertia[:, 1], inertia[:, 2], inertia[:, 0]], axis=1)
    beside = jnp.stack([inertia[:, 2], inertia[:, 0], inertia[:, 1]], axis=1)
    square = 6 * safe.maximum(MINIMUM, across + beside - inertia)
    box = safe.sqrt(scale(square, safe.divide(jnp.ones_like(mass), mass)))
    b, c = (jnp.roll(box, shift, axis=1) for shift in (-1, -2))
    diameter = (box[:, 0] + box[:, 1] + box[:, 2]) / 3
    force = -scale(linear, 3 * PI * viscosity * diameter) - 0.5 * density * b * c * jnp.abs(linear) * linear
    drag = density * box * (b**4 + c**4) / 64 * jnp.abs(angular) * angular
    return force, -scale(angular, PI * viscosity * diameter**3) - drag


@per_topology
def _axes_of(topology: Topology) -> tuple[np.ndarray, np.ndarray]:
    """Where the semi-axes of each geom come from: columns of geom_size (ngeom, 3), and how often to add column 1."""
    columns = {
        GeomType.SPHERE: ((0, 0, 0), (0, 0, 0)),
        GeomType.CAPSULE: ((0, 0, 0), (0, 0, 1)),
        GeomType.CYLINDER: ((0, 0, 1), (0, 0, 0)),
    }
    rows = [columns.get(GeomType(t), ((0, 1, 2), (0, 0, 0))) for t in topology.geom_type]
    table = np.array(rows, dtype=np.int32).reshape(-1, 2, 3)
    return table[:, 0], table[:, 1]


def semi_axes(model: Model, geoms: np.ndarray) -> Array:
    """(n, 3) m, semi-axes of the ellipsoids that stand for geoms."""
    columns, extra = _axes_of(model.topology)
    size = pick(model.geom_size, geoms)
    picked = jnp.take_along_axis(size, jnp.asarray(columns[geoms]), axis=1)
    return picked + size[:, 1:2] * extra[geoms]


def _ellipsoid_force(model: Model, geoms: np.ndarray, angular: Array, linear: Array) -> tuple[Array, Array]:
    """Force and torque (n, 3), local, on ellipsoids: added mass, Magnus and Kutta lift, viscous drag."""
    coefficient = pick(model.geom_fluid, geoms)
    size = semi_axes(model, geoms)
    # of the fluid that moves with the body; its acceleration is neglected
    momentum, spin = model.opt.density * coefficient[:, 6:9] * linear, model.opt.density * coefficient[:, 9:] * angular
    force, torque = cross(momentum, angular), cross(momentum, linear) + cross(spin, angular)
    lift = _lift(model.opt.density, coefficient, size, angular, linear)
    drag, angular_drag = _drag(model, coefficient, size, angular, linear)
    interaction = coefficient[:, 0]
    return (
        scale(force + lift - scale(linear, drag), interaction),
        scale(torque - scale(angular, angular_drag), interaction),
    )


def _projection(size: Array, linear: Array) -> tuple[Array, Array, Array, Array]:
    """For motion of ellipsoids along `linear`: projected area, its normal (not unit), and two sums (n,)."""
    weight = pack([size[:, 1] * size[:, 2], size[:, 2] * size[:, 0], size[:, 0] * size[:, 1]])
    normal = weight**2 * linear
    denominator, numerator = dot(normal, normal), dot(normal, linear)
    # at rest the area is zero, as MuJoCo's 0 / minval is
    ratio = denominator / safe.maximum(numerator, MINIMUM)
    return PI * safe.sqrt(ratio), normal, numerator, denominator


def _lift(density: Array, coefficient: Array, size: Array, angular: Array, linear: Array) -> Array:
    """Magnus force of spin and Kutta force of circulation."""
    volume = 4 / 3 * PI * size[:, 0] * size[:, 1] * size[:, 2]
    magnus = scale(cross(angular, linear), coefficient[:, 5] * density * volume)
    area, normal, numerator, denominator = _projection(size, linear)
    cosine = numerator / safe.maximum(safe.norm(linear) * denominator, MINIMUM)
    circulation = scale(cross(normal, linear), coefficient[:, 4] * density * cosine * area)
    return magnus + cross(circulation, linear)


def _drag(model: Model, coefficient: Array, size: Array, angular: Array, linear: Array) -> tuple[Array, Array]:
    """Resistance per linear and per angular velocity (n,): linear (Stokes) plus quadratic."""
    density, viscosity = model.opt.density, model.opt.viscosity
    blunt, slender, turning = coefficient[:, 1], coefficient[:, 2], coefficient[:, 3]
    a, b, c = size[:, 0], size[:, 1], size[:, 2]
    largest, smallest = safe.maximum(safe.maximum(a, b), c), safe.minimum(safe.minimum(a, b), c)
    middle = a + b + c - largest - smallest
    full = PI * largest * middle
    area, *_ = _projection(size, linear)
    diameter = 2 / 3 * (a + b + c)
    drag = viscosity * 3 * PI * diameter + density * safe.norm(linear) * (area * blunt + slender * (full - area))
    moment = pack([_max_moment(a, b, c), _max_moment(b, c, a), _max_moment(c, a, b)])
    largest_moment = 8 / 15 * PI * middle * largest**4
    weighted = scale(moment, turning) + scale(largest_moment[:, None] - moment, slender)
    return drag, viscosity * PI * diameter**3 + density * safe.norm(angular * weighted)


def _max_moment(along: Array, first: Array, second: Array) -> Array:
    """Moment of inertia that bounds quadratic drag about one axis."""
    return 8 / 15 * PI * along * safe.maximum(first, second) ** 4
