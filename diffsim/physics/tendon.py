"""Tendon lengths and moment arms.

A fixed tendon is a linear function of scalar joints, length = sum of coef qpos; its moment arms are constants.
Source: MuJoCo documentation, "Computation", "Tendons"; XML reference, `tendon/fixed`.
"""

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.enums import WrapType
from diffsim.math.linalg import matmul
from diffsim.types.data import ComFrame, Kinematics, Tendons
from diffsim.types.model import Model
from diffsim.types.topology import Topology, per_topology

Array = jax.Array


def tendons(model: Model, qpos: Array, kinematics: Kinematics, com: ComFrame) -> Tendons:
    """ten_length (ntendon,) and ten_J (ntendon, nv) from qpos (nq,) and poses."""
    topology = model.topology
    wraps, owner, joints = _joint_wraps(topology)
    coefficient = model.wrap_prm[wraps]
    shape = (topology.ntendon, topology.nq), (topology.ntendon, topology.nv)
    by_qpos = jnp.zeros(shape[0], qpos.dtype).at[owner, topology.jnt_qposadr[joints]].add(coefficient)
    by_dof = jnp.zeros(shape[1], qpos.dtype).at[owner, topology.jnt_dofadr[joints]].add(coefficient)
    return Tendons(ten_length=matmul(by_qpos, qpos), ten_J=by_dof)


@per_topology
def wrap_owner(topology: Topology) -> np.ndarray:
    """(nwrap,) the tendon of each path element."""
    return np.repeat(np.arange(topology.ntendon), topology.tendon_num)


@per_topology
def _joint_wraps(topology: Topology) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Path elements of fixed tendons: their ids, tendons and joints."""
    wraps = np.flatnonzero(topology.wrap_type == WrapType.JOINT)
    return wraps, wrap_owner(topology)[wraps], topology.wrap_objid[wraps]
