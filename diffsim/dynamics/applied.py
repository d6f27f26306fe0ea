"""Generalized force of what the user applies: qfrc_applied, and xfrc_applied at the bodies' centres of mass."""

import jax
import numpy as np

from diffsim.kinematics.jacobian import joint_force
from diffsim.types.data import ComFrame, Kinematics
from diffsim.types.model import Model
from diffsim.types.state import Inputs

Array = jax.Array


def applied_force(model: Model, inputs: Inputs, kinematics: Kinematics, com: ComFrame) -> Array:
    """(nv,) N or N m: qfrc_applied + J^T xfrc_applied, which is (nbody, 6) force (N) and torque (N m) in world axes."""
    wrench = inputs.xfrc_applied
    bodies = np.arange(model.nbody)
    return inputs.qfrc_applied + joint_force(model, com, kinematics.xipos, bodies, wrench[:, :3], wrench[:, 3:])
