"""Equalities of flexes: edges keep their length.

Of each edge that stretches, one row: pos = length - length at rest, J how fast the edge grows, and the inverse weight
is that of the edge at qpos0. Source: MuJoCo XML reference, "equality/flex".
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from diffsim.base.enums import EqType
from diffsim.constraint.rows import RawRows, Sources
from diffsim.flex.edges import edge_rows
from diffsim.types.topology import Topology, per_topology
from diffsim.xla.pick import pick


class _HeldEdges(NamedTuple):
    """Edges (n,) that equalities (n,) hold."""

    edge: np.ndarray
    equality: np.ndarray


@per_topology
def _held_edges(topology: Topology) -> _HeldEdges:
    """All of them, in MuJoCo's order."""
    edges, equalities = [np.zeros(0, int)], [np.zeros(0, int)]
    for equality in np.flatnonzero(topology.eq_type == EqType.FLEX):
        flex = topology.eq_obj1id[equality]
        own = topology.flex_edgeadr[flex] + np.arange(topology.flex_edgenum[flex])
        edges.append(own[topology.flexedge_rigid[own] == 0])
        equalities.append(np.full(len(edges[-1]), equality))
    return _HeldEdges(np.concatenate(edges), np.concatenate(equalities))


def edge_equalities(topology: Topology) -> np.ndarray:
    """(n,) the equality of each row."""
    return _held_edges(topology).equality


def edges(source: Sources) -> list[RawRows]:
    """Edges that keep their length."""
    model, (edge, equality) = source.model, _held_edges(source.model.topology)
    if not len(edge):
        return []
    assert source.flexes is not None
    pos = pick(source.flexes.flexedge_length, edge) - pick(model.flexedge_length0, edge)
    segment = edge_rows(model, source.com, source.flexes.flexvert_xpos, edge)
    return [
        RawRows(
            pos=pos,
            margin=jnp.zeros_like(pos),
            active=pick(source.inputs.eq_active, equality),
            diagonal=pick(model.flexedge_invweight0, edge),
            solref=pick(model.eq_solref, equality),
            solimp=pick(model.eq_solimp, equality),
            jacobian=segment,
        )
    ]
