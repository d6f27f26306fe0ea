"""The implicit midpoint rule for free bodies that nothing holds, which conserves their energy and angular momentum.

Part of the `implicitfast` integrator. In the inertial frame of the body the rotation obeys

    2/h I (w_mid - w) + w_mid x I w_mid = torque about the centre of mass,     w_new = 2 w_mid - w,

which Newton's method solves; the solution, not the iterations, is differentiated. If the centre of mass is not at the
joint, translation is solved with it: (2/h + w_mid x) v_mid = force / mass + gravity + 2/h v, for the velocity v of the
centre of mass. Source: MuJoCo 3.8.1, mj_midpoint; Hairer, Lubich, Wanner 2006, ch. VII.5.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.base.enums import DisableBit
from diffsim.base.joints import is_free
from diffsim.constraint.islands import trees_moved
from diffsim.math import safe
from diffsim.math.rotation import quat_exp, quat_mul, rotate, rotate_inv
from diffsim.math.vector import cross, dot, scale, unpack
from diffsim.types.constraints import Constraints, Law
from diffsim.types.model import Model
from diffsim.types.topology import Topology, per_topology
from diffsim.xla.gather import pick
from diffsim.xla.loops import while_loop

# Newton steps at most, halved steps included; usually a few are enough
MAX_TRIALS = 100


@dataclasses.dataclass(frozen=True)
class FreeBodies:
    """Free joints that are trees of their own: bodies (n,), dofs (n, 6), whether bodies without dofs are attached."""

    bodies: np.ndarray
    dofs: np.ndarray
    laden: np.ndarray


@per_topology
def free_bodies(topology: Topology) -> FreeBodies:
    """The free bodies whose tree has no other degree of freedom."""
    joints = np.flatnonzero(is_free(topology.jnt_type))
    dofs = topology.jnt_dofadr[joints][:, None] + np.arange(6)
    trees = np.bincount(topology.dof_treeid, minlength=1)
    alone = trees[topology.dof_treeid[dofs[:, 0]]] == 6 if joints.size else np.zeros(0, dtype=bool)
    bodies = topology.jnt_bodyid[joints][alone]
    return FreeBodies(bodies, dofs[alone], np.isin(bodies, topology.body_parentid))


def unconstrained(model: Model, constraints: Constraints) -> Array:
    """(n,) which free bodies move without any active constraint, medium, or massive attachment."""
    free = free_bodies(model.topology)
    still = (model.opt.density == 0) & (model.opt.viscosity == 0)
    light = ~free.laden | (model.body_subtreemass[free.bodies] == model.body_mass[free.bodies])
    return ~held(model, constraints) & still & light


def held(model: Model, constraints: Constraints) -> Array:
    """(n,) which free bodies are moved by an active constraint."""
    free = free_bodies(model.topology)
    held = jnp.zeros((len(free.dofs),), bool)
    for rows in constraints.groups:
        bound = rows.frictionloss if rows.law == Law.BOUNDED else rows.D[0]
        if rows.on_dofs:
            held = held | (bound[free.dofs[:, 0]] > 0)
            continue
        touches = trees_moved(model, constraints, rows)[:, model.topology.dof_treeid[free.dofs[:, 0]]]
        held = held | jnp.any(touches & (bound > 0)[:, None], axis=0)
    return held


def midpoint_velocity(model: Model, xquat: Array, qvel: Array, force: Array, plain: Array) -> tuple[Array, Array]:
    """Velocities of the free bodies halfway and after a step, (n, 6) each, as in qvel.

    Args:
      xquat: (n, 4) orientations of the bodies.
      qvel: (n, 6) velocities: linear in the world (m/s), angular in the body (rad/s).
      force: (n, 6) generalized forces (N, N m), without bias forces; gravity is added here.
      plain: (n, 6) velocities after the step of the integrator that the rest of the model uses.
    """
    bodies = free_bodies(model.topology).bodies
    h = model.opt.timestep
    inertia, mass = pick(model.body_inertia, bodies), pick(model.body_mass, bodies)
    iquat, ipos = pick(model.body_iquat, bodies), pick(model.body_ipos, bodies)
    frame = quat_mul(xquat, iquat)
    gravity = jnp.zeros_like(model.opt.gravity) if model.opt.disabled(DisableBit.GRAVITY) else model.opt.gravity

    # rotation, in the inertial frame
    spin = rotate_inv(iquat, qvel[:, 3:])
    torque = rotate_inv(iquat, force[:, 3:])
    arm = rotate_inv(iquat, ipos)
    push = rotate_inv(frame, force[:, :3])
    middle = jax.vmap(midpoint_spin, in_axes=(0, 0, 0, None))(inertia, spin, torque - cross(arm, push), h)
    turning = rotate(iquat, middle)

    # translation of the centre of mass, then of the joint, carried over to the new orientation
    rate = 2 / h
    velocity = rotate_inv(frame, qvel[:, :3])
    weight = rotate_inv(frame, jnp.broadcast_to(gravity, (len(bodies), 3)))
    right = scale(push, safe.divide(jnp.ones_like(mass), mass)) + weight + rate * (velocity + cross(spin, arm))
    # (r + w x) v = b has the solution v = (r b + w (w . b) / r - w x b) / (r^2 + |w|^2)
    along = scale(middle, dot(middle, right) / rate)
    centre = scale(rate * right + along - cross(middle, right), 1 / (rate * rate + dot(middle, middle)))
    after = 2 * (centre - cross(middle, arm)) - velocity
    next_frame = quat_mul(quat_mul(xquat, quat_exp(h * turning)), iquat)
    linear = rotate(next_frame, after)

    # if the centre of mass is at the joint, rotation does not influence translation
    aligned = jnp.all(ipos == 0, axis=1, keepdims=True)
    half = jnp.where(aligned, plain[:, :3], 0.5 * (linear + qvel[:, :3]))
    full = jnp.where(aligned, plain[:, :3], linear)
    return (
        jnp.concatenate([half, turning], axis=1),
        jnp.concatenate([full, 2 * turning - qvel[:, 3:]], axis=1),
    )


def _residual(inertia: Array, spin: Array, torque: Array, h: Array, middle: Array) -> Array:
    """(3,) the residual of the midpoint equation at w_mid = middle, N m."""
    return 2 / h * inertia * (middle - spin) + cross(middle, inertia * middle) - torque


def _newton_step(inertia: Array, h: Array, middle: Array, residual: Array) -> Array:
    """(3,) J^-1 residual, with J = d residual / d w_mid."""
    # J = 2/h I + [w x] I - [I w x], inverted by cofactors: rows of the adjugate are cross products of the columns
    a, b, c = unpack(inertia)
    x, y, z = unpack(middle)
    diagonal = unpack(2 / h * inertia)
    columns = (
        jnp.stack([diagonal[0], z * (a - c), y * (b - a)]),
        jnp.stack([z * (c - b), diagonal[1], x * (b - a)]),
        jnp.stack([y * (c - b), x * (a - c), diagonal[2]]),
    )
    cofactors = [cross(columns[i], columns[j]) for i, j in ((1, 2), (2, 0), (0, 1))]
    determinant = dot(columns[0], cofactors[0])
    return jnp.stack([safe.divide(dot(row, residual), determinant) for row in cofactors])


@jax.custom_jvp
def midpoint_spin(inertia: Array, spin: Array, torque: Array, h: Array) -> Array:
    """(3,) angular velocity halfway, rad/s.

    Args:
      inertia, spin, torque: (3,) principal inertias, angular velocity and torque, in the inertial frame of the body.
      h: timestep in seconds.
    """
    tolerance = 1e-13 if spin.dtype == jnp.float64 else 1e-6

    def far(carry: tuple[Array, Array, Array]) -> Array:
        count, middle, _ = carry
        size = tolerance * (1 + 2 / h * safe.norm(inertia * middle))
        return (count < MAX_TRIALS) & (safe.norm(_residual(inertia, spin, torque, h, middle)) >= size)

    def trial(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        # a Newton step, at first a full one, and half as long after each step that does not reduce the residual
        count, middle, share = carry
        residual = _residual(inertia, spin, torque, h, middle)
        ahead = middle - share * _newton_step(inertia, h, middle, residual)
        better = safe.norm(_residual(inertia, spin, torque, h, ahead)) < safe.norm(residual)
        return count + 1, jnp.where(better, ahead, middle), jnp.where(better, 1.0, 0.5 * share).astype(spin.dtype)

    start = (jnp.zeros((), jnp.int32), spin, jnp.ones((), spin.dtype))
    return while_loop(far, trial, start)[1]


@midpoint_spin.defjvp
def _midpoint_spin_jvp(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    middle = midpoint_spin(*primals)

    def residual(inertia: Array, spin: Array, torque: Array, h: Array) -> Array:
        return _residual(inertia, spin, torque, h, middle)

    # residual(middle; inputs) = 0: J d middle = -d residual at fixed middle
    _, change = jax.jvp(residual, primals, tangents)
    inertia, _, _, h = primals
    return middle, -_newton_step(inertia, h, middle, change)
