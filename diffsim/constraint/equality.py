"""Equalities between joints or between tendons: y1 - y1_0 = polynomial(y2 - y2_0), one row each.

The polynomial is quartic (eq_data[0:5]); without a second object y1 is held at its reference plus eq_data[0].
Functions of the equalities with the given ids. Source: MuJoCo XML reference, "equality/joint".
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.constraint.rows import RawRows, Sources
from diffsim.math.vector import scale
from diffsim.types.topology import Topology
from diffsim.xla.gather import pick

Array = jax.Array


class Coupling(NamedTuple):
    """Equalities of one type: ids (n,), the two objects (the first repeated where there is no second)."""

    id: np.ndarray
    first: np.ndarray
    second: np.ndarray
    has_second: np.ndarray


def coupling(topology: Topology, ids: np.ndarray) -> Coupling:
    """What some equalities couple."""
    first, second = topology.eq_obj1id[ids], topology.eq_obj2id[ids]
    return Coupling(ids, first, np.where(second < 0, first, second), second >= 0)


def _couple(source: Sources, pairs: Coupling, value: Array, jacobian: Array, weight: Array) -> RawRows:
    """Rows from values (n_object,) relative to their references, their gradients and inverse weights."""
    model, data = source.model, source.model.eq_data[pairs.id]
    other = jnp.where(jnp.asarray(pairs.has_second), value[pairs.second], 0)
    c0, c1, c2, c3, c4 = (data[:, i] for i in range(5))
    polynomial = c0 + other * (c1 + other * (c2 + other * (c3 + other * c4)))
    slope = c1 + other * (2 * c2 + other * (3 * c3 + other * (4 * c4)))
    slope = jnp.where(jnp.asarray(pairs.has_second), slope, 0)
    pos = value[pairs.first] - polynomial
    return RawRows(
        pos=pos,
        margin=jnp.zeros_like(pos),
        active=source.inputs.eq_active[pairs.id],
        diagonal=weight[pairs.first] + jnp.where(jnp.asarray(pairs.has_second), weight[pairs.second], 0),
        solref=model.eq_solref[pairs.id],
        solimp=model.eq_solimp[pairs.id],
        jacobian=jacobian[pairs.first] - scale(jacobian[pairs.second], slope),
    )


def joint_equality(source: Sources, ids: np.ndarray) -> RawRows:
    """Couplings of hinge and slide joints."""
    model, topology = source.model, source.model.topology
    value = pick(source.state.qpos - model.qpos0, topology.jnt_qposadr)
    identity = jnp.asarray(np.eye(topology.nv)[topology.jnt_dofadr], value.dtype)
    return _couple(source, coupling(topology, ids), value, identity, model.dof_invweight0[topology.jnt_dofadr])


def tendon_equality(source: Sources, ids: np.ndarray) -> RawRows:
    """Couplings of tendon lengths."""
    model, tendons = source.model, source.tendons
    value = tendons.ten_length - model.tendon_length0
    return _couple(source, coupling(model.topology, ids), value, tendons.ten_J, model.tendon_invweight0)
