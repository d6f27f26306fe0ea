"""Velocities of bodies, tendons and actuators, and the rate of change of motion axes.

cvel is the sum of cdof qvel over the dofs that move a body. cdof_dot is the velocity of the frame that carries a motion
axis, crossed with it: what the dofs before it do. Source: Featherstone 2008, ch. 2.
"""

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.base.enums import DisableBit
from diffsim.kinematics.joints import earlier_dof
from diffsim.kinematics.tree import last_dof, sum_dofs
from diffsim.math.linalg import matmul
from diffsim.math.spatial import cross_motion
from diffsim.types.data import ComFrame, Tendons, Transmission, Velocities
from diffsim.types.model import Model
from diffsim.xla.barriers import launched_once

Array = jax.Array


def compute_velocities(
    model: Model, qvel: Array, com: ComFrame, tendons: Tendons, transmission: Transmission
) -> Velocities:
    """cvel (nbody, 6), cdof_dot (nv, 6), ten_velocity (ntendon,), actuator_velocity (nu,) from qvel (nv,).

    Spatial vectors are (rad/s, m/s), world-oriented, about the centre of mass of each tree; tendons and actuators move
    in m/s, or rad/s where their length is an angle. Actuators that are all disabled do not move, as in MuJoCo.
    """
    topology = model.topology
    # bodies, and the frames that carry each motion axis, in one product
    last = np.concatenate([last_dof(topology), earlier_dof(topology)])
    sums = launched_once(sum_dofs)(topology, last, (com.cdof, qvel))
    idle = model.opt.disabled(DisableBit.ACTUATION)
    return Velocities(
        cvel=sums[: topology.nbody],
        cdof_dot=cross_motion(sums[topology.nbody :], com.cdof),
        ten_velocity=matmul(tendons.ten_J, qvel),
        actuator_velocity=jnp.zeros((model.nu,), qvel.dtype) if idle else matmul(transmission.actuator_moment, qvel),
    )
