"""Equalities of flexes: edges keep their length, or surfaces what does not change when they bend.

Of each edge that stretches, one row: pos = length - length at rest, J how fast the edge grows, and the inverse weight
is that of the edge at qpos0. Of each vertex of a surface two rows (flex/vertex_strain.py), with the inverse weight of
its body. Source: MuJoCo XML reference, "equality/flex", "equality/flexvert".
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.base.enums import EqType
from diffsim.constraint.rows import RawRows, Sources
from diffsim.flex.edges import edge_rows
from diffsim.flex.vertex_strain import neighbours, vertex_rows, vertex_strain
from diffsim.math.stencil_rows import Segment
from diffsim.types.topology import Topology, per_topology
from diffsim.xla.gather import pick

Array = jax.Array


class _Members(NamedTuple):
    """Edges, or vertices (n,) by their number among `neighbours`, that equalities (n,) hold."""

    member: np.ndarray
    equality: np.ndarray


def _members(topology: Topology, kind: EqType, of_flex: Callable[[int], np.ndarray]) -> _Members:
    """Those of all equalities of a type, in MuJoCo's order."""
    equalities = np.flatnonzero(topology.eq_type == kind)
    own = [of_flex(int(flex)) for flex in topology.eq_obj1id[equalities]]
    none = np.zeros(0, int)
    return _Members(np.concatenate([none, *own]), np.repeat(equalities, [len(part) for part in own]))


@per_topology
def _edges(topology: Topology) -> _Members:
    def of_flex(flex: int) -> np.ndarray:
        edges = topology.flex_edgeadr[flex] + np.arange(topology.flex_edgenum[flex])
        return edges[topology.flexedge_rigid[edges] == 0]

    return _members(topology, EqType.FLEX, of_flex)


@per_topology
def _vertices(topology: Topology) -> _Members:
    return _members(topology, EqType.FLEXVERT, lambda flex: np.flatnonzero(neighbours(topology).flex == flex))


def edge_equalities(topology: Topology) -> np.ndarray:
    """(n,) the equality of each row of edges."""
    return _edges(topology).equality


def vertex_equalities(topology: Topology) -> np.ndarray:
    """(n,) the equality of each row of vertices."""
    return np.repeat(_vertices(topology).equality, 2)


def edges(source: Sources) -> list[RawRows]:
    """Edges that keep their length."""
    model, (edge, equality) = source.model, _edges(source.model.topology)
    if not len(edge):
        return []
    assert source.flexes is not None
    pos = pick(source.flexes.flexedge_length, edge) - pick(model.flexedge_length0, edge)
    segment = edge_rows(model, source.com, source.flexes.flexvert_xpos, edge)
    return [_raw_rows(source, equality, pos, pick(model.flexedge_invweight0, edge), segment)]


def vertices(source: Sources) -> list[RawRows]:
    """Surfaces whose strain at vertices is as at rest."""
    model, topology = source.model, source.model.topology
    member, equality = _vertices(topology)
    if not len(member):
        return []
    assert source.flexes is not None
    at = source.flexes.flexvert_xpos
    strain = vertex_strain(model, at)
    weight = pick(model.body_invweight0[:, 0], topology.flex_vertbodyid[neighbours(topology).vertex[member]])
    segment = vertex_rows(model, source.com, at, strain, member)
    pos = pick(strain.invariant.T, member).reshape(-1)
    return [_raw_rows(source, np.repeat(equality, 2), pos, jnp.repeat(weight, 2), segment)]


def _raw_rows(source: Sources, equality: np.ndarray, pos: Array, weight: Array, segment: Segment) -> RawRows:
    """Rows of equalities (n,) from what they hold at zero, inverse weights (n,) and J."""
    model = source.model
    return RawRows(
        pos=pos,
        margin=jnp.zeros_like(pos),
        active=pick(source.inputs.eq_active, equality),
        diagonal=weight,
        solref=pick(model.eq_solref, equality),
        solimp=pick(model.eq_solimp, equality),
        jacobian=segment,
    )
