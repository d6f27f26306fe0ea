"""Centres of mass, and the spatial quantities that are expressed at them: inertias, motion axes, velocities, momenta.

All spatial vectors of a kinematic tree are expressed in world axes at the tree's centre of mass (`subtree_com` of its
root body), so that sums along the tree need no change of frame.

    cvel     = sum of cdof qvel over the dofs that move the body
    cdof_dot = v x cdof, v the velocity of the frame to which the axis is fixed, from the dofs before it on the chain

The momenta I cvel of the bodies of a subtree, about the centre of mass o of the tree, add up to (L_o, p). About the
centre of mass c of the subtree, the angular momentum is L_o - (c - o) x p. The world's "subtree" consists of several
trees, each with an o of its own. Source: Featherstone 2008, ch. 2 and 5; MuJoCo mj_subtreeVel.
"""

import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.base.enums import MINVAL, DisableBit
from diffsim.kinematics.joints import earlier_dof, joint_axes
from diffsim.kinematics.tree import last_dof, sum_dofs, sum_subtree
from diffsim.math import safe
from diffsim.math.spatial import cross_motion, inertia_mul
from diffsim.math.vector import cross, dot_components, matmul, pack, scale, unpack
from diffsim.types.data import ComFrame, Kinematics, SubtreeVelocities, Tendons, Transmission, Velocities
from diffsim.types.model import Model
from diffsim.xla.bilinear import by_components
from diffsim.xla.gather import pick


def compute_com_frame(model: Model, kinematics: Kinematics) -> ComFrame:
    """subtree_com (nbody, 3) in m, cinert (nbody, 10) in kg m^2, kg m and kg, and cdof (nv, 6), all in world axes."""
    topology = model.topology
    centre = subtree_com(model, kinematics.xipos)
    origin = pick(centre, topology.body_rootid)
    inertia = _inertia_about(model.body_mass, model.body_inertia, kinematics.ximat, kinematics.xipos - origin)
    offset = pick(origin, topology.jnt_bodyid) - kinematics.xanchor
    return ComFrame(
        subtree_com=centre,
        # as in MuJoCo, the world has no inertia
        cinert=by_components(jnp.where(np.arange(topology.nbody)[:, None] > 0, inertia, 0)),
        cdof=by_components(joint_axes(topology, kinematics.xaxis, kinematics.xmat, offset)),
    )


def subtree_com(model: Model, xipos: Array) -> Array:
    """(nbody, 3) m, world: centre of mass of each body together with its descendants; xipos if they have no mass."""
    mass = model.body_mass
    # masses and moments are summed separately, so that worlds with one model compute the masses of subtrees only once
    subtree_mass = sum_subtree(model.topology, mass[:, None])[:, 0]
    heavy = subtree_mass > MINVAL
    inverse_mass = safe.divide(jnp.ones_like(mass), jnp.where(heavy, subtree_mass, 1))
    mean = scale(sum_subtree(model.topology, scale(xipos, mass)), inverse_mass)
    return jnp.where(heavy[:, None], mean, xipos)


def _inertia_about(mass: Array, diagonal: Array, ximat: Array, offset: Array) -> Array:
    """(nbody, 10) inertias R diag R^T + m (o.o 1 - o o^T) about points; o is the `offset` from point to body centre."""
    rows = [unpack(row) for row in unpack(ximat, axis=-2)]
    sizes = unpack(diagonal)
    scaled = [[size * x for size, x in zip(sizes, row, strict=True)] for row in rows]
    moment = unpack(scale(offset, mass))
    arm = unpack(offset)
    square = dot_components(moment, arm)

    def entry(i: int, j: int) -> Array:
        """An entry of R diag R^T - m o o^T."""
        return dot_components(scaled[i], rows[j]) - moment[i] * arm[j]

    diagonals = [entry(i, i) + square for i in range(3)]
    return pack([*diagonals, entry(0, 1), entry(0, 2), entry(1, 2), *moment, mass])


def compute_velocities(
    model: Model, qvel: Array, com: ComFrame, tendons: Tendons, transmission: Transmission
) -> Velocities:
    """cvel (nbody, 6), cdof_dot (nv, 6), ten_velocity (ntendon,), actuator_velocity (nu,) from qvel (nv,).

    Spatial vectors are (rad/s, m/s), in world axes, about the centre of mass of each tree. Velocities of tendons and
    actuators are in m/s, or rad/s where their length is an angle; velocities of actuators are zero if the flag
    `actuation` is disabled, as in MuJoCo.
    """
    topology = model.topology
    # one sum gives the velocities of the bodies and of the frames to which the motion axes are fixed
    last = np.concatenate([last_dof(topology), earlier_dof(topology)])
    sums = sum_dofs(topology, last, (com.cdof, qvel))
    idle = model.opt.disabled(DisableBit.ACTUATION)
    return Velocities(
        cvel=sums[: topology.nbody],
        cdof_dot=cross_motion(sums[topology.nbody :], com.cdof),
        ten_velocity=matmul(tendons.ten_J, qvel),
        actuator_velocity=jnp.zeros((model.nu,), qvel.dtype) if idle else matmul(transmission.actuator_moment, qvel),
    )


def compute_subtree_velocities(model: Model, com: ComFrame, velocities: Velocities) -> SubtreeVelocities:
    """subtree_linvel (nbody, 3) m/s and subtree_angmom (nbody, 3) kg m^2/s about subtree_com, world axes."""
    topology = model.topology
    momentum = sum_subtree(topology, inertia_mul(com.cinert, velocities.cvel))
    arm = com.subtree_com - pick(com.subtree_com, topology.body_rootid)
    spin = momentum[:, :3] - cross(arm, momentum[:, 3:])
    # the world's angular momentum is the sum over trees, moved from their centres of mass o to the common one
    roots = np.flatnonzero((topology.body_rootid == np.arange(topology.nbody)) & (np.arange(topology.nbody) > 0))
    across = pick(com.subtree_com, roots) - com.subtree_com[:1]
    total = jnp.sum(pick(spin, roots) + cross(across, pick(momentum, roots)[:, 3:]), axis=0)
    mass = jnp.maximum(model.body_subtreemass, MINVAL)
    return SubtreeVelocities(subtree_linvel=scale(momentum[:, 3:], 1 / mass), subtree_angmom=spin.at[0].set(total))
