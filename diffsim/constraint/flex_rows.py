"""Equalities of flexes: edges keep their length, or surfaces what does not change when they bend.

Of each edge that stretches, one row: pos = length - length at rest, J how fast the edge grows, and the inverse weight
is that of the edge at qpos0. Of each vertex of a surface two rows (flex/vertex_strain.py), with the inverse weight of
its body. Source: MuJoCo XML reference, "equality/flex", "equality/flexvert".

Contacts of vertices and elements have the rows of all contacts (contact.py); the side of the flex moves as the mean of
the vertices of the element, with the inverse of their distances from the contact for weights.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.base.enums import EqType
from diffsim.collision.flex_contacts import FlexSlots, slots_of
from diffsim.constraint.rows import RawRows, Sources
from diffsim.flex.edges import edge_rows
from diffsim.flex.points import point_rows
from diffsim.flex.vertex_strain import neighbours, vertex_rows, vertex_strain
from diffsim.math import safe
from diffsim.math.stencil_rows import Segment
from diffsim.types.data import ComFrame, Contacts, Flexes, Passive
from diffsim.types.model import Model
from diffsim.types.topology import Topology, per_topology
from diffsim.xla.gather import pick

Array = jax.Array

# N/m of contacts that are springs
STIFFNESS = 1e4


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


class FlexSide(NamedTuple):
    """The vertices of contacts (k, n) by their number among all, -1 for none, and their weights (k, n)."""

    vertex: np.ndarray | Array
    weight: Array


@per_topology
def element_corners(topology: Topology) -> tuple[np.ndarray, np.ndarray]:
    """(nflexelem + 1, 4) the vertices of each element, behind a row for none; the first element of each flex."""
    table = np.full((topology.nflexelem + 1, 4), -1)
    for flex in range(topology.nflex):
        start, count, size = topology.flex_elemdataadr[flex], topology.flex_elemnum[flex], topology.flex_dim[flex] + 1
        own = topology.flex_elem.ravel()[start : start + count * size].reshape(count, size)
        first = 1 + topology.flex_elemadr[flex]
        table[first : first + count, :size] = own + topology.flex_vertadr[flex]
    return table, topology.flex_elemadr


def flex_side(model: Model, slots: Sequence[FlexSlots], contacts: Contacts, vertices: Array) -> FlexSide:
    """The side of the flex of contacts in some slots."""
    topology = model.topology
    most = max(topology.flex_dim[each.meeting.flex] + 1 for each in slots)
    if all(len(each.meeting.geom) == each.stop - each.start for each in slots):
        vertex: np.ndarray | Array = np.concatenate([each.meeting.corner for each in slots], axis=1)[:most]
        there, at = vertex >= 0, pick(vertices, np.maximum(vertex, 0))
    else:
        table, first = element_corners(topology)
        flex, elem, vert = (part[:, 1] for part in (contacts.flex, contacts.elem, contacts.vert))
        owner = jnp.maximum(flex, 0)
        row = jnp.where(elem >= 0, 1 + jnp.asarray(first)[owner] + elem, 0)
        alone = jnp.where(vert >= 0, jnp.asarray(topology.flex_vertadr)[owner] + vert, -1)
        vertex = jnp.asarray(table[:, :most])[row].T
        vertex = vertex.at[0].set(jnp.where(vert >= 0, alone, vertex[0]))
        there, at = vertex >= 0, vertices[jnp.maximum(vertex, 0)]
    gap = jnp.where(there, safe.norm(at - contacts.pos[None]), 1)
    # 1 / gap, times the product of all gaps
    others = [jnp.prod(jnp.delete(gap, k, axis=0), axis=0) for k in range(most)]
    share = jnp.where(there, jnp.stack(others), 0)
    return FlexSide(vertex, safe.divide(share, jnp.broadcast_to(jnp.sum(share, axis=0), share.shape)))


def contact_slots(model: Model, passive: bool = False) -> list[tuple[FlexSlots, ...]]:
    """Slots of contacts of flexes, passive ones or all others, by dimension."""
    slots = slots_of(model)
    groups: dict[int, list[FlexSlots]] = {}
    for each in slots:
        if bool(model.topology.flex_passive[each.meeting.flex]) == passive:
            groups.setdefault(each.dim, []).append(each)
    return [tuple(group) for group in groups.values()]


def contacts(source: Sources, dimensions: tuple[int, ...]) -> list[RawRows]:
    """Contacts of flexes with geoms, of some dimensions."""
    groups = [slots for slots in contact_slots(source.model) if slots[0].dim in dimensions]
    return [contact_rows(source, slots) for slots in groups]


def contact_rows(source: Sources, slots: tuple[FlexSlots, ...]) -> RawRows:
    """The rows of one dimension."""
    model, dim, (start, stop) = source.model, slots[0].dim, (slots[0].start, slots[-1].stop)
    own = jax.tree.map(lambda leaf: leaf[start:stop] if leaf.ndim else leaf, source.contacts)
    segment, weight = contact_jacobian(model, source.com, source.flexes, own, slots)
    return RawRows(
        pos=own.dist,
        margin=own.includemargin,
        active=own.dist < own.includemargin,
        diagonal=weight,
        solref=own.solref,
        solimp=own.solimp,
        dim=dim,
        jacobian=segment,
        slot=start,
        friction=own.friction[:, : dim - 1].T,
        solref_friction=own.solreffriction,
    )


def contact_jacobian(
    model: Model, com: ComFrame, flexes: Flexes | None, contacts: Contacts, slots: tuple[FlexSlots, ...]
) -> tuple[Segment, Array]:
    """The rows of contacts of one dimension in their frames, and the sum of the inverse weights of both sides (n,)."""
    assert flexes is not None
    topology, dim = model.topology, slots[0].dim
    vertex, weight = flex_side(model, slots, contacts, flexes.flexvert_xpos)
    if isinstance(vertex, np.ndarray):
        geom = np.concatenate([each.meeting.geom for each in slots])
        of_flex, of_geom = topology.flex_vertbodyid[np.maximum(vertex, 0)], topology.geom_bodyid[geom]
        body: np.ndarray | Array = np.concatenate([np.where(vertex >= 0, of_flex, 0), of_geom[None]])
    else:
        of_flex = jnp.where(vertex >= 0, jnp.asarray(topology.flex_vertbodyid)[jnp.maximum(vertex, 0)], 0)
        of_geom = jnp.where(contacts.geom[:, 0] >= 0, jnp.asarray(topology.geom_bodyid)[contacts.geom[:, 0]], 0)
        body = jnp.concatenate([of_flex, of_geom[None]])
    sign = jnp.concatenate([weight, -jnp.ones_like(weight[:1])])
    frame = jnp.swapaxes(contacts.frame, 0, 1)
    pos = jnp.broadcast_to(contacts.pos, (*sign.shape, 3))
    direction, turning = (
        sign[:, None, :, None] * part[None] for part in (frame[: min(dim, 3)], frame[: max(dim - 3, 0)])
    )
    among = np.concatenate(
        [np.unique(topology.flex_vertbodyid[np.maximum(each.meeting.corner, 0)]) for each in slots]
        + [topology.geom_bodyid[each.meeting.geoms] for each in slots]
    )
    segment = point_rows(model, com, body, pos, direction, turning if dim > 3 else None, among)
    return segment, jnp.sum(jnp.abs(sign) * pick(model.body_invweight0[:, 0], body), axis=0)


def add_contact_springs(model: Model, com: ComFrame, flexes: Flexes, contacts: Contacts, passive: Passive) -> Passive:
    """Passive forces with those of contacts of flexes that are springs instead of constraints.

    They push with `STIFFNESS` times their depth, and pull within the margin, as in MuJoCo.
    """
    push = jnp.zeros_like(passive.qfrc_spring)
    for slots in contact_slots(model, passive=True):
        start, stop = slots[0].start, slots[-1].stop
        own = jax.tree.map(lambda leaf, a=start, b=stop: leaf[a:b] if leaf.ndim else leaf, contacts)
        segment, _ = contact_jacobian(model, com, flexes, own, (slots[0]._replace(dim=1), *slots[1:]))
        push = push + segment.mul_vec_t(jnp.where(own.dist <= own.margin, -STIFFNESS * own.dist, 0))
    spring, whole = passive.qfrc_spring + push, passive.qfrc_passive + push
    return dataclasses.replace(passive, qfrc_spring=spring, qfrc_passive=whole)
