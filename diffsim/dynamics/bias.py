"""Coriolis, centrifugal and gravitational forces: recursive Newton-Euler as sums over the tree.

cacc = -gravity + sum of cdof_dot qvel (+ cdof qacc); f = I cacc + cvel x* (I cvel); qfrc_bias = cdof . (sum of f over
the subtree), at qacc = 0. Tendon armature a adds J^T a (dJ/dt qvel).

Derivatives of the solver need M qacc + qfrc_bias, in one recursion (`MotionForces`). M itself is needed to find qacc.
Where it is known, its derivative needs M in the product with qacc alone; reverse mode then goes back through the bodies
once, with as much work as for qfrc_bias. Through the entries of M it would take an outer product (nv, nv) and four
products with it besides. Source: Featherstone 2008, ch. 5.
"""

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from diffsim.base.enums import DisableBit, Integrator
from diffsim.dynamics.inertia import dof_armature, has_tendon_armature, is_damped, tendon_armature
from diffsim.kinematics.tree import sum_chain, sum_subtree
from diffsim.math.spatial import cross_force, inertia_mul
from diffsim.math.vector import dot, matmul
from diffsim.types.data import Bias, ComFrame, Tendons, Velocities
from diffsim.types.model import Model
from diffsim.types.topology import Topology
from diffsim.xla.gather import pick

Array = jax.Array


def compute_bias(
    model: Model, qvel: Array, com: ComFrame, velocities: Velocities, tendons: Tendons, drift: Array
) -> Bias:
    """qfrc_bias (nv,), N or N m: the force that keeps qvel (nv,) constant without other forces.

    Args:
      drift: (ntendon,) m/s^2, (dJ/dt qvel) of tendons.
    """
    force = newton_euler(model.topology, moving(model, qvel, com, velocities))
    if has_tendon_armature(model.topology):
        force = force + matmul(tendons.ten_J.T, tendon_armature(model) * drift)
    return Bias(qfrc_bias=force)


class Moving(NamedTuple):
    """What the recursion reads: qvel (nv,), inertias, motion axes and their rates, velocities of bodies, and the
    acceleration of the world (6,).
    """

    qvel: Array
    cinert: Array
    cdof: Array
    cdof_dot: Array
    cvel: Array
    rest: Array


def moving(model: Model, qvel: Array, com: ComFrame, velocities: Velocities) -> Moving:
    """The bodies as they move with qvel (nv,), against gravity."""
    return Moving(qvel, com.cinert, com.cdof, velocities.cdof_dot, velocities.cvel, rest_acceleration(model))


def newton_euler(topology: Topology, bodies: Moving, qacc: Array | None = None) -> Array:
    """(nv,) force, N or N m, that gives the bodies qacc (nv,); None for qacc = 0."""
    terms = [(bodies.cdof_dot, bodies.qvel), *([] if qacc is None else [(bodies.cdof, qacc)])]
    acceleration = bodies.rest[None] + sum_chain(topology, *terms)
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


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=["bodies", "armature", "others"], meta_fields=["topology"]
)
@dataclasses.dataclass(frozen=True, eq=False)
class MotionForces:
    """How bodies move; armature of the dofs (nv,); all smooth forces but qfrc_bias (nv,), N or N m."""

    topology: Topology
    bodies: Moving
    armature: Array
    others: Array

    def missing(self, qacc: Array) -> Array:
        """M qacc + qfrc_bias - others (nv,): the force that qacc needs beside the smooth ones."""
        return newton_euler(self.topology, self.bodies, qacc) + self.armature * qacc - self.others


def motion_forces(
    model: Model, qvel: Array, com: ComFrame, velocities: Velocities, others: Array
) -> MotionForces | None:
    """The forces of a motion qvel (nv,), and all other smooth forces (nv,), N or N m.

    None where the integrator solves with M too, so that its entries are differentiated anyway, and where tendons have
    inertia, noslip has a derivative of its own, or derivatives go through the iterations of the solver.
    """
    opt = model.opt
    explicit = opt.integrator in (Integrator.EULER, Integrator.RK4) and not damps_implicitly(model)
    by_entries = has_tendon_armature(model.topology) or opt.noslip_iterations or opt.unrolled
    if by_entries or not explicit:
        return None
    return MotionForces(model.topology, moving(model, qvel, com, velocities), dof_armature(model), others)


def damps_implicitly(model: Model) -> bool:
    """Whether Euler steps solve with the dampers of dofs, and so with another matrix than the solver's."""
    off = model.opt.disabled(DisableBit.EULERDAMP) or model.opt.disabled(DisableBit.DAMPER)
    return model.opt.integrator == Integrator.EULER and not off and is_damped(model.topology)
