"""Equalities between joints or between tendons: y1 - y1_0 = polynomial(y2 - y2_0), one row each.

The polynomial is quartic (eq_data[0:5]); without a second object y1 is held at its reference plus eq_data[0].
Source: MuJoCo XML reference, "equality/joint".
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.constraint.rows import Draft, Sources
from diffsim.enums import EqType
from diffsim.math.pick import pick
from diffsim.math.vector import scale
from diffsim.types.constraints import Law
from diffsim.types.topology import Topology, per_topology

Array = jax.Array


class Coupling(NamedTuple):
    """Equalities of one kind: ids, the two objects (the first repeated where there is no second)."""

    id: np.ndarray
    first: np.ndarray
    second: np.ndarray
    has_second: np.ndarray


@per_topology
def coupling(topology: Topology, kind: EqType) -> Coupling:
    """The equalities of a kind, and what they couple."""
    ids = np.flatnonzero(topology.eq_type == kind)
    first, second = topology.eq_obj1id[ids], topology.eq_obj2id[ids]
    return Coupling(ids, first, np.where(second < 0, first, second), second >= 0)


def _couple(source: Sources, plan: Coupling, value: Array, jacobian: Array, weight: Array) -> Draft:
    """Rows from values (n_object,) relative to their references, their gradients and inverse weights."""
    model, data = source.model, source.model.eq_data[plan.id]
    other = jnp.where(jnp.asarray(plan.has_second), value[plan.second], 0)
    c0, c1, c2, c3, c4 = (data[:, i] for i in range(5))
    polynomial = c0 + other * (c1 + other * (c2 + other * (c3 + other * c4)))
    slope = c1 + other * (2 * c2 + other * (3 * c3 + other * (4 * c4)))
    slope = jnp.where(jnp.asarray(plan.has_second), slope, 0)
    pos = value[plan.first] - polynomial
    return Draft(
        law=Law.QUADRATIC,
        pos=pos,
        margin=jnp.zeros_like(pos),
        active=source.inputs.eq_active[plan.id],
        diagonal=weight[plan.first] + jnp.where(jnp.asarray(plan.has_second), weight[plan.second], 0),
        solref=model.eq_solref[plan.id],
        solimp=model.eq_solimp[plan.id],
        jacobian=jacobian[plan.first] - scale(jacobian[plan.second], slope),
    )


def joint_equality(source: Sources) -> Draft | None:
    """Couplings of hinge and slide joints."""
    model, topology = source.model, source.model.topology
    plan = coupling(topology, EqType.JOINT)
    if not len(plan.id):
        return None
    value = pick(source.state.qpos - model.qpos0, topology.jnt_qposadr)
    identity = np.eye(topology.nv)[topology.jnt_dofadr]
    return _couple(source, plan, value, jnp.asarray(identity, value.dtype), model.dof_invweight0[topology.jnt_dofadr])


def tendon_equality(source: Sources) -> Draft | None:
    """Couplings of tendon lengths."""
    model = source.model
    plan = coupling(model.topology, EqType.TENDON)
    if not len(plan.id):
        return None
    value = source.tendons.ten_length - model.tendon_length0
    return _couple(source, plan, value, source.tendons.ten_J, model.tendon_invweight0)
