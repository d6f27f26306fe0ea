"""Coriolis, centrifugal and gravitational forces: recursive Newton-Euler at zero acceleration, as sums over the tree.

cacc = -gravity + sum of cdof_dot qvel; f = I cacc + cvel x* (I cvel); qfrc_bias = cdof . (sum of f over the subtree).
Tendon armature adds J^T a (dJ/dt qvel).
Source: Featherstone 2008, ch. 5.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from diffsim.base.enums import DisableBit
from diffsim.dynamics.reflected import has_tendon_armature, tendon_armature
from diffsim.kinematics.tendon import straight_parts, tendon_drift
from diffsim.kinematics.tree import sum_chain, sum_subtree
from diffsim.math.linalg import matmul
from diffsim.math.spatial import cross_force, inertia_mul
from diffsim.math.vector import dot
from diffsim.types.data import Bias, ComFrame, Kinematics, Tendons, Velocities
from diffsim.types.model import Model
from diffsim.types.topology import Topology
from diffsim.xla.barriers import launched_once
from diffsim.xla.pick import pick

Array = jax.Array


def compute_bias(
    model: Model,
    qvel: Array,
    kinematics: Kinematics,
    com: ComFrame,
    velocities: Velocities,
    tendons: Tendons,
) -> Bias:
    """qfrc_bias (nv,), N or N m: the force that keeps qvel (nv,) constant without other forces."""
    topology = model.topology
    force = newton_euler(topology, moving(model, qvel, com, velocities))
    if has_tendon_armature(topology) and straight_parts(topology) is not None:
        drift = tendon_drift(model, qvel, kinematics, com, velocities)
        force = force + matmul(tendons.ten_J.T, tendon_armature(model) * drift)
    return Bias(qfrc_bias=force)


class Moving(NamedTuple):
    """What the recursion reads of bodies that move: qvel (nv,), inertias, axes, velocities and their rates, and the
    acceleration of the world (6,).
    """

    qvel: Array
    cinert: Array
    cdof: Array
    cdof_dot: Array
    cvel: Array
    rest: Array


def moving(model: Model, qvel: Array, com: ComFrame, velocities: Velocities) -> Moving:
    """What moves with qvel (nv,), against gravity."""
    return Moving(qvel, com.cinert, com.cdof, velocities.cdof_dot, velocities.cvel, rest_acceleration(model))


def newton_euler(topology: Topology, bodies: Moving, qacc: Array | None = None) -> Array:
    """(nv,) force, N or N m, that gives the bodies qacc (nv,); None for qacc = 0."""
    terms = [(bodies.cdof_dot, bodies.qvel), *([] if qacc is None else [(bodies.cdof, qacc)])]
    acceleration = bodies.rest[None] + launched_once(sum_chain)(topology, *terms)
    total = sum_subtree(topology, body_force(bodies.cinert, bodies.cvel, acceleration))
    return dot(bodies.cdof, pick(total, topology.dof_bodyid))


def rest_acceleration(model: Model) -> Array:
    """(6,) rad/s^2 and m/s^2, acceleration of the world: gravity as an upward acceleration."""
    zero = jnp.zeros_like(model.opt.gravity)
    if model.opt.disabled(DisableBit.GRAVITY):
        return jnp.concatenate([zero, zero])
    return jnp.concatenate([zero, -model.opt.gravity])


def body_force(cinert: Array, cvel: Array, cacc: Array) -> Array:
    """(nbody, 6) torque (N m) and force (N) that move each body: I a + v x* (I v), about its tree's centre of mass."""
    return inertia_mul(cinert, cacc) + cross_force(cvel, inertia_mul(cinert, cvel))
