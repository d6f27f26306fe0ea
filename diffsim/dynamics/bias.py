"""Coriolis, centrifugal and gravitational forces: recursive Newton-Euler as sums over the tree.

cacc = -gravity + sum of cdof_dot qvel (+ cdof qacc); f = I cacc + cvel x* (I cvel); qfrc_bias = cdof . (sum of f over
the subtree), at qacc = 0. Tendon armature a adds J^T a (dJ/dt qvel).

The derivative of the solver's optimum needs the derivative of M qacc + qfrc_bias at fixed qacc. One recursion gives
both terms (`MotionForces`), and reverse mode goes back through the bodies once, at the cost of qfrc_bias alone. Through
the entries of M it would also take an outer product (nv, nv) and four products with it.
Source: Featherstone 2008, ch. 5.
"""

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from diffsim.base.enums import DisableBit, Integrator
from diffsim.dynamics.inertia import DOF_DAMPING, has_reflected, reflected
from diffsim.kinematics.tree import sum_chain, sum_subtree
from diffsim.math.spatial import cross_force, inertia_mul
from diffsim.math.vector import dot, matmul
from diffsim.types.data import Bias, ComFrame, Tendons, Velocities
from diffsim.types.model import Model
from diffsim.types.topology import Topology
from diffsim.xla.gather import pick


def compute_bias(
    model: Model, qvel: Array, com: ComFrame, velocities: Velocities, tendons: Tendons, drift: Array
) -> Bias:
    """qfrc_bias (nv,), N or N m: the force that keeps qvel (nv,) constant without other forces.

    Args:
      drift: (ntendon,) m/s^2, (dJ/dt qvel) of tendons.
    """
    force = newton_euler(model.topology, body_motion(model, qvel, com, velocities))
    if has_reflected(model.topology, "tendon_armature"):
        force = force + matmul(tendons.ten_J.T, reflected(model, "tendon_armature") * drift)
    return Bias(qfrc_bias=force)


class BodyMotion(NamedTuple):
    """The inputs of the recursion, with mjData's names; `world_acceleration` (6,) is cacc of body 0, -gravity."""

    qvel: Array
    cinert: Array
    cdof: Array
    cdof_dot: Array
    cvel: Array
    world_acceleration: Array


def body_motion(model: Model, qvel: Array, com: ComFrame, velocities: Velocities) -> BodyMotion:
    """The motion of all bodies at qvel (nv,)."""
    return BodyMotion(qvel, com.cinert, com.cdof, velocities.cdof_dot, velocities.cvel, world_acceleration(model))


def newton_euler(topology: Topology, motion: BodyMotion, qacc: Array | None = None) -> Array:
    """(nv,) force, N or N m, that gives the bodies qacc (nv,); None for qacc = 0."""
    # forward: accelerations, cacc = sum over the chain; backward: forces, summed over subtrees; projected on the axes
    terms = [(motion.cdof_dot, motion.qvel), *([] if qacc is None else [(motion.cdof, qacc)])]
    cacc = motion.world_acceleration[None] + sum_chain(topology, *terms)
    subtree_force = sum_subtree(topology, body_force(motion.cinert, motion.cvel, cacc))
    return dot(motion.cdof, pick(subtree_force, topology.dof_bodyid))


def world_acceleration(model: Model) -> Array:
    """(6,) rad/s^2 and m/s^2, acceleration of the world: gravity as an upward acceleration."""
    zero = jnp.zeros_like(model.opt.gravity)
    if model.opt.disabled(DisableBit.GRAVITY):
        return jnp.concatenate([zero, zero])
    return jnp.concatenate([zero, -model.opt.gravity])


def body_force(cinert: Array, cvel: Array, cacc: Array) -> Array:
    """(nbody, 6) torque (N m) and force (N) that move each body: I a + v x* (I v), about its tree's centre of mass."""
    return inertia_mul(cinert, cacc) + cross_force(cvel, inertia_mul(cinert, cvel))


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=["motion", "armature", "others"], meta_fields=["topology"]
)
@dataclasses.dataclass(frozen=True, eq=False)
class MotionForces:
    """The forces of a motion without constraints.

    Attributes:
      motion: of the bodies.
      armature: (nv,) of the dofs, kg or kg m^2.
      others: (nv,) all smooth forces but qfrc_bias, N or N m.
    """

    topology: Topology
    motion: BodyMotion
    armature: Array
    others: Array

    def unbalanced(self, qacc: Array) -> Array:
        """M qacc + qfrc_bias - others (nv,): what constraint forces must add for an acceleration qacc (nv,)."""
        return newton_euler(self.topology, self.motion, qacc) + self.armature * qacc - self.others


def motion_forces(
    model: Model, qvel: Array, com: ComFrame, velocities: Velocities, others: Array
) -> MotionForces | None:
    """The forces of a motion qvel (nv,); `others` (nv,) are all smooth forces but qfrc_bias, N or N m.

    None if the entries of M are differentiated anyway: because the integrator solves with M too, tendons have armature,
    noslip iterations are on, or the iterations of the solver are differentiated.
    """
    opt = model.opt
    explicit = opt.integrator in (Integrator.EULER, Integrator.RK4) and not damps_implicitly(model)
    by_entries = has_reflected(model.topology, "tendon_armature") or opt.noslip_iterations or opt.unrolled
    if by_entries or not explicit:
        return None
    motion = body_motion(model, qvel, com, velocities)
    return MotionForces(model.topology, motion, reflected(model, "dof_armature"), others)


def damps_implicitly(model: Model) -> bool:
    """Whether Euler steps solve with the dampers of dofs, and so with another matrix than the solver's."""
    off = model.opt.disabled(DisableBit.EULERDAMP) or model.opt.disabled(DisableBit.DAMPER)
    return model.opt.integrator == Integrator.EULER and not off and has_reflected(model.topology, *DOF_DAMPING)
