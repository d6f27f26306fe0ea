"""Limits on forces: on what all actuators of a tendon or of a joint exert together.

Source: MuJoCo documentation, "Computation", "Actuation model", "Force limits".
"""

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.actuator.actuators import clamp
from diffsim.base.enums import TrnType
from diffsim.math import safe
from diffsim.math.linalg import matmul
from diffsim.types.model import Model
from diffsim.types.topology import Topology, per_topology
from diffsim.xla.pick import place

Array = jax.Array


@per_topology
def _limited_tendons(topology: Topology) -> tuple[np.ndarray, np.ndarray]:
    """Actuators that pull on a tendon whose total force is limited, and their tendons."""
    tendon = np.where(topology.actuator_trntype == TrnType.TENDON, topology.actuator_trnid[:, 0], -1)
    limited = np.append(topology.tendon_actfrclimited != 0, False)
    actuators = np.flatnonzero(limited[tendon] & (tendon >= 0))
    return actuators, tendon[actuators]


def limit_on_tendons(model: Model, force: Array) -> Array:
    """(nu,) forces, N, scaled so that their sum on each tendon stays within tendon_actfrcrange."""
    actuators, tendon = _limited_tendons(model.topology)
    if not actuators.size:
        return force
    same = jnp.asarray(tendon[:, None] == tendon[None], force.dtype)
    total = matmul(same, force[actuators])
    bounds = model.tendon_actfrcrange[tendon]
    bound = safe.clip(total, bounds[:, 0], bounds[:, 1])
    factor = jnp.where(bound == total, 1, safe.divide(bound, total, 1.0))
    pulls = np.isin(np.arange(model.nu), actuators)
    return force * jnp.where(pulls, place(model.nu, actuators, factor), 1)


@per_topology
def _limited_dofs(topology: Topology) -> tuple[np.ndarray, np.ndarray]:
    """(nv,) whether each dof's actuator force is limited (the first dof of a joint is), and its joint."""
    joint = topology.dof_jntid
    first = topology.jnt_dofadr[joint] == np.arange(topology.nv)
    return first & (topology.jnt_actfrclimited[joint] != 0), joint


def limit_on_joints(model: Model, force: Array) -> Array:
    """(nv,) generalized forces, N or N m, within jnt_actfrcrange."""
    limited, joint = _limited_dofs(model.topology)
    return clamp(force, model.jnt_actfrcrange[joint], limited)
