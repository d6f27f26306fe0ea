"""Dry friction of dofs and tendons: rows that oppose motion with a force of at most `frictionloss`.

The rows exist where frictionloss was not zero when the model was compiled; a value of zero at run time gives no
force, and has the derivative that it has to more friction. Source: MuJoCo documentation, "Computation", friction loss.
"""

import jax.numpy as jnp
import numpy as np

from diffsim.constraint.rows import RawRows, Sources
from diffsim.types.topology import Topology


def all_dofs(topology: Topology) -> np.ndarray:
    """Ids of all dofs (nv,)."""
    return np.arange(topology.nv)


def dofs(topology: Topology) -> np.ndarray:
    """Ids of the dofs with dry friction."""
    return np.flatnonzero(topology.present["dof_frictionloss"])


def dof_friction(source: Sources) -> list[RawRows]:
    """Dry friction on all dofs; J is the identity."""
    model, topology = source.model, source.model.topology
    if not topology.has("dof_frictionloss"):
        return []
    none = jnp.zeros_like(source.state.qvel)
    raw = RawRows(
        pos=none,
        margin=none,
        active=jnp.asarray(topology.present["dof_frictionloss"]),
        diagonal=model.dof_invweight0,
        solref=model.dof_solref,
        solimp=model.dof_solimp,
        sign=1,
        frictionloss=model.dof_frictionloss,
    )
    return [raw]


def tendons(topology: Topology) -> np.ndarray:
    """Ids of the tendons with dry friction."""
    return np.flatnonzero(topology.present["tendon_frictionloss"])


def tendon_friction(source: Sources) -> list[RawRows]:
    """Dry friction along tendons."""
    model = source.model
    tendon = tendons(model.topology)
    if not len(tendon):
        return []
    loss = model.tendon_frictionloss[tendon]
    raw = RawRows(
        pos=jnp.zeros_like(loss),
        margin=jnp.zeros_like(loss),
        active=jnp.ones(loss.shape, bool),
        diagonal=model.tendon_invweight0[tendon],
        solref=model.tendon_solref_fri[tendon],
        solimp=model.tendon_solimp_fri[tendon],
        jacobian=source.tendons.ten_J[tendon],
        frictionloss=loss,
    )
    return [raw]
