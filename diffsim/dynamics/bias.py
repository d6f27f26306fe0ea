"""Coriolis, centrifugal and gravitational forces: recursive Newton-Euler as sums over the tree.

    cacc      = -gravity + sum over the chain of (cdof_dot qvel + cdof qacc)
    f         = I cacc + cvel x* (I cvel)
    qfrc_bias = cdof . (sum of f over the subtree), at qacc = 0

Tendons with armature a add J^T a (dJ/dt qvel).

The derivative of the solver's optimum needs the derivative of M qacc + qfrc_bias at fixed qacc. One recursion computes
both terms (`MotionForces`). Reverse mode then passes through the bodies once, at the cost of the derivative of
qfrc_bias alone. If M qacc were computed from the entries of M, reverse mode would also need an outer product (nv, nv)
and four products with it.
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
      model: the model.
      qvel: (nv,) velocity.
      com, velocities, tendons: the results of these stages.
      drift: (ntendon,) m/s^2, dJ/dt qvel of tendons (`tendon_drift`).
    """
    force = newton_euler(model.topology, body_motion(model, qvel, com, velocities))
    # `reflected` adds the inertia of the motors that drive tendons or dofs
    if has_reflected(model.topology, "tendon_armature"):
        force = force + matmul(tendons.ten_J.T, reflected(model, "tendon_armature") * drift)
    return Bias(qfrc_bias=force)


class BodyMotion(NamedTuple):
    """The inputs of the recursion, under mjData's names; `world_acceleration` (6,) is the cacc of body 0, -gravity."""

    qvel: Array
    cinert: Array
    cdof: Array
    cdof_dot: Array
    cvel: Array
    world_acceleration: Array


def body_motion(model: Model, qvel: Array, com: ComFrame, velocities: Velocities) -> BodyMotion:
    """The motion of all bodies at qvel (nv,)."""
    return BodyMotion(
        qvel=qvel,
        cinert=com.cinert,
        cdof=com.cdof,
        cdof_dot=velocities.cdof_dot,
        cvel=velocities.cvel,
        world_acceleration=world_acceleration(model),
    )


def newton_euler(topology: Topology, motion: BodyMotion, qacc: Array | None = None) -> Array:
    """(nv,) inverse dynamics without constraints: the force, N or N m, that causes qacc (nv,); None for qacc = 0."""
    # Forward pass: accelerations are sums over chains. Backward pass: forces are summed over subtrees, then projected
    # on the axes of the joints.
    terms = [(motion.cdof_dot, motion.qvel), *([] if qacc is None else [(motion.cdof, qacc)])]
    cacc = motion.world_acceleration[None] + sum_chain(topology, *terms)
    subtree_force = sum_subtree(topology, body_force(motion.cinert, motion.cvel, cacc))
    return dot(motion.cdof, pick(subtree_force, topology.dof_bodyid))


def world_acceleration(model: Model) -> Array:
    """(6,) rad/s^2 and m/s^2, the acceleration of the world: gravity acts as an upward acceleration of all bodies."""
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
    """The equation of motion without constraints, as a function of the acceleration.

    Attributes:
      topology: of the model.
      motion: the motion of the bodies.
      armature: (nv,) armature of the dofs, kg or kg m^2.
      others: (nv,) all smooth forces except qfrc_bias, N or N m.
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
    """The equation of motion at qvel (nv,); `others` (nv,) are all smooth forces except qfrc_bias, N or N m.

    None if the entries of M must be differentiated anyway. This is so if the integrator also solves with M, tendons
    have armature, there are noslip iterations, or the iterations of the solver are differentiated.
    """
    opt = model.opt
    explicit = opt.integrator in (Integrator.EULER, Integrator.RK4) and not damps_implicitly(model)
    by_entries = has_reflected(model.topology, "tendon_armature") or opt.noslip_iterations or opt.unrolled
    if by_entries or not explicit:
        return None
    motion = body_motion(model, qvel, com, velocities)
    return MotionForces(
        topology=model.topology,
        motion=motion,
        armature=reflected(model, "dof_armature"),
        others=others,
    )


def damps_implicitly(model: Model) -> bool:
    """Whether the integrator is Euler with implicit joint damping, which solves with M + h D instead of M."""
    off = model.opt.disabled(DisableBit.EULERDAMP) or model.opt.disabled(DisableBit.DAMPER)
    return model.opt.integrator == Integrator.EULER and not off and has_reflected(model.topology, *DOF_DAMPING)
