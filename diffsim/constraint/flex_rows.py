"""Equalities of flexes, which keep the length of edges, the strain of surfaces or the shape of cells; and contacts.

An edge that can stretch has one row: pos = length - length at rest, J the rate of the length, and the inverse weight of
the edge at qpos0. A vertex of a surface has two rows (flex/strain.py), with the inverse weight of its body. A cell of
an interpolated flex has one row for each of its modes of strain, which the compiler finds. Source: MuJoCo XML
reference, "equality/flex", "equality/flexvert", "equality/flexstrain".

Contacts of vertices and elements have the rows of all contacts (contact.py). The side of the flex moves as a weighted
mean of the vertices of the element, with the inverse of their distances from the contact as weights.
"""

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.base.enums import EqType
from diffsim.constraint.rows import RawRows, Sources, contact_rows, equality_rows, slots_between
from diffsim.flex.cell_forces import Cells, cell_rotations, cells_of
from diffsim.flex.nodes import contact_weights, node_positions, node_rows
from diffsim.flex.points import carried_rows, flex_elements
from diffsim.flex.strain import edge_rows, neighbours, vertex_rows, vertex_strain
from diffsim.math import safe
from diffsim.math.linalg import BlockColumns
from diffsim.math.stencil_rows import Segment
from diffsim.math.vector import matmul, mul_vec, mul_vec_t
from diffsim.types.data import ComFrame, Contacts, Flexes, Passive
from diffsim.types.model import Model
from diffsim.types.slots import ContactSlots, FlexMeeting, FlexSlots
from diffsim.types.topology import Topology, per_topology, rows_of
from diffsim.xla.gather import pick

# N/m, of contacts that are springs; fixed in MuJoCo too
STIFFNESS = 1e4


class Carriers(NamedTuple):
    """What moves contacts: `body` (k, n), 0 for none, and its `weight` (k, n), negative on the first side."""

    body: np.ndarray | Array
    weight: Array


class _Members(NamedTuple):
    """Members (n,) that equalities (n,) hold: edges, or vertices by their index in `neighbours`."""

    member: np.ndarray
    equality: np.ndarray


def _members(topology: Topology, kind: EqType, of_flex: Callable[[int], np.ndarray]) -> _Members:
    """The edges or vertices of all equalities of a type, in MuJoCo's order."""
    equalities = np.flatnonzero(topology.eq_type == kind)
    held = [of_flex(int(flex)) for flex in topology.eq_obj1id[equalities]]
    none = np.zeros(0, int)
    return _Members(np.concatenate([none, *held]), np.repeat(equalities, [len(part) for part in held]))


@per_topology
def _edges(topology: Topology) -> _Members:
    def of_flex(flex: int) -> np.ndarray:
        edges = np.arange(topology.nflexedge)[rows_of(topology, "flex_edge", flex)]
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
    model = source.model
    edge, equality = _edges(source.model.topology)
    if not len(edge):
        return []
    assert source.flexes is not None
    pos = pick(source.flexes.flexedge_length, edge) - pick(model.flexedge_length0, edge)
    segment = edge_rows(model, source.com, source.flexes.flexvert_xpos, edge)
    return [equality_rows(source, equality, pos, pick(model.flexedge_invweight0, edge), segment)]


def vertices(source: Sources) -> list[RawRows]:
    """Vertices at which the strain of a surface stays at its value at rest."""
    model = source.model
    topology = source.model.topology
    member, equality = _vertices(topology)
    if not len(member):
        return []
    assert source.flexes is not None
    at = source.flexes.flexvert_xpos
    strain = vertex_strain(model, at)
    weight = pick(model.body_invweight0[:, 0], topology.flex_vertbodyid[neighbours(topology).vertex[member]])
    segment = vertex_rows(model, source.com, at, strain, member)
    pos = pick(strain.invariant.T, member).reshape(-1)
    return [equality_rows(source, np.repeat(equality, 2), pos, jnp.repeat(weight, 2), segment)]


@per_topology
def _strained(topology: Topology) -> tuple[tuple[Cells, np.ndarray], ...]:
    """The cells that strain equalities hold in shape, and these equalities."""
    of_strain = np.flatnonzero(topology.eq_type == EqType.FLEXSTRAIN)
    listed = ((cells, of_strain[topology.eq_obj1id[of_strain] == cells.flex]) for cells in cells_of(topology, True))
    return tuple((cells, equality) for cells, equality in listed if len(equality))


def _most_modes(cells: Cells) -> int:
    """The number of modes of strain of a cell: all motions of its nodes except the six rigid ones."""
    return 3 * cells.node.shape[1] - 6


def strain_equalities(topology: Topology) -> np.ndarray:
    """(n,) the equality of each row of strain."""
    parts = (np.repeat(equality, _most_modes(cells)) for cells, equality in _strained(topology))
    return np.concatenate([np.zeros(0, int), *parts])


def strains(source: Sources) -> list[RawRows]:
    """Cells of interpolated flexes whose modes of strain w stay 0: pos = w . (R^T x - x0), along R w, R held fixed."""
    model = source.model
    topology = source.model.topology
    rows = []
    if not _strained(topology):
        return []
    nodes = node_positions(model, source.kinematics)
    jacobian = node_rows(model, source.com, nodes)
    count = len(nodes)
    for cells, equality in _strained(topology):
        most = _most_modes(cells)
        size = cells.node.shape[1]
        # eq_data holds, as floats, the cell whose shape an equality keeps
        place = jax.lax.stop_gradient(model.eq_data[equality, :3]).astype(jnp.int32)
        y, z = (int(n) for n in topology.flex_cellnum[cells.flex, 1:])
        shell = topology.flex_interp[cells.flex] < 0
        cell = place[:, 0] if shell else (place[:, 0] * y + place[:, 1]) * z + place[:, 2]
        node = jnp.asarray(cells.node)[cell]
        # corotational: nodes turned back by the rotation R of the cell, less the nodes at rest, along each mode
        corner = nodes[node]
        turn = cell_rotations(topology, cells.flex, pick(nodes, cells.node))[cell][:, None]
        table = cells.stiffness(model)[cell].reshape(len(equality), -1)
        modes = table[:, 1 : 1 + most * 3 * size].reshape(-1, most, size, 3)
        apart = mul_vec_t(turn, corner) - model.flex_node0[node]
        pos = jnp.sum(modes * apart[:, None], axis=(2, 3)).reshape(-1)
        direction = jnp.swapaxes(mul_vec(turn[:, None], modes), 2, 3).reshape(len(equality), most, -1)
        row = (jnp.arange(3)[None, :, None] * count + node[:, None]).reshape(len(equality), -1)

        def along_modes(part: Array, row: Array = row, direction: Array = direction) -> Array:
            return jax.vmap(matmul)(direction, part[row]).reshape(-1, part.shape[1])

        parts = tuple(jax.vmap(along_modes)(part) for part in jacobian.parts)
        segment = Segment(BlockColumns(jacobian.blocks, parts))
        weight = jnp.mean(pick(model.body_invweight0[:, 0], topology.flex_nodebodyid)[node], axis=1)
        raw = equality_rows(source, np.repeat(equality, most), pos, jnp.repeat(weight, most), segment)
        exists = jnp.arange(most)[None] < table[:, :1]
        rows.append(raw._replace(active=raw.active & exists.reshape(-1)))
    return rows


@per_topology
def element_corners(topology: Topology) -> tuple[np.ndarray, np.ndarray]:
    """(nflexelem + 1, 4) the vertices of each element, after a row for none; and the first element of each flex."""
    table = np.full((topology.nflexelem + 1, 4), -1)
    for flex in range(topology.nflex):
        corners = flex_elements(topology, flex)
        first = 1 + topology.flex_elemadr[flex]
        table[first : first + len(corners), : corners.shape[1]] = corners
    return table, topology.flex_elemadr


def flex_side(
    model: Model, slots: Sequence[FlexSlots], contacts: Contacts, vertices: Array, side: int
) -> tuple[np.ndarray | Array, Array]:
    """The vertices (k, n) of a side of contacts in some slots, -1 for none, and their weights (k, n)."""
    topology = model.topology
    flexes = [run.flexes[side] for run in slots]
    most = max(topology.flex_dim[flex] + 1 for flex in flexes)
    if not any(
        isinstance(run.meeting, FlexMeeting) or run.meeting.searched or len(run.meeting.geom) != run.size
        for run in slots
    ):
        corners = [run.meeting.corner for run in slots if not isinstance(run.meeting, FlexMeeting)]
        vertex: np.ndarray | Array = np.concatenate(corners, axis=1)[:most]
        exists = vertex >= 0
        at = pick(vertices, np.maximum(vertex, 0))
    else:
        table, first = element_corners(topology)
        flex, elem, vert = (part[:, side] for part in (contacts.flex, contacts.elem, contacts.vert))
        owner = jnp.maximum(flex, 0)
        row = jnp.where(elem >= 0, 1 + jnp.asarray(first)[owner] + elem, 0)
        alone = jnp.where(vert >= 0, jnp.asarray(topology.flex_vertadr)[owner] + vert, -1)
        vertex = jnp.asarray(table[:, :most])[row].T
        vertex = vertex.at[0].set(jnp.where(vert >= 0, alone, vertex[0]))
        # an element moves without the vertex that it touches
        other = contacts.vert[:, 1 - side]
        touched = jnp.where(other >= 0, jnp.asarray(topology.flex_vertadr)[owner] + other, -2)
        vertex = jnp.where(vertex == touched[None], -1, vertex)
        exists = vertex >= 0
        at = vertices[jnp.maximum(vertex, 0)]
    # the weights 1 / distance, normalized; each is multiplied by the product of all distances. A contact on a vertex
    # then has all of its weight on that vertex, without a division by zero
    gap = jnp.where(exists, safe.norm(at - contacts.pos[None]), 1)
    others = [jnp.prod(jnp.delete(gap, k, axis=0), axis=0) for k in range(most)]
    share = jnp.where(exists, jnp.stack(others), 0)
    return vertex, safe.divide(share, jnp.broadcast_to(jnp.sum(share, axis=0), share.shape))


def contacts(source: Sources, dimensions: tuple[int, ...]) -> list[RawRows]:
    """Contacts of flexes with geoms, of some dimensions, one group for each."""
    rows = []
    for slots in source.slots.of_flexes():
        dim, start = slots[0].dim, slots[0].start
        if dim not in dimensions:
            continue
        buffer = slots_between(source.contacts, start, slots[-1].stop)
        segment, weight = contact_jacobian(source.model, source.com, source.flexes, buffer, slots)
        rows.append(contact_rows(buffer, dim, start, segment, weight))
    return rows


def contact_jacobian(
    model: Model, com: ComFrame, flexes: Flexes | None, contacts: Contacts, slots: tuple[FlexSlots, ...]
) -> tuple[Segment, Array]:
    """The rows of contacts of one dimension in their frames, and the sum of the inverse weights of both sides (n,)."""
    assert flexes is not None
    topology = model.topology
    dim = slots[0].dim
    moved_by = carriers(model, slots, contacts, flexes.flexvert_xpos)
    frame = jnp.swapaxes(contacts.frame, 0, 1)
    turning = frame[: dim - 3] if dim > 3 else None
    among = np.concatenate([possible_bodies(topology, run) for run in slots])
    segment = carried_rows(model, com, moved_by, contacts.pos, frame[: min(dim, 3)], turning, among)
    inverse = pick(model.body_invweight0[:, 0], moved_by.body)
    return segment, jnp.sum(jnp.abs(moved_by.weight) * inverse, axis=0)


def possible_bodies(topology: Topology, slots: FlexSlots) -> np.ndarray:
    """The bodies that may move either side of contacts in some slots."""
    meeting = slots.meeting
    bodies = []
    for flex in slots.flexes:
        if flex < 0:
            assert not isinstance(meeting, FlexMeeting)
            bodies.append(topology.geom_bodyid[meeting.geoms])
        elif topology.flex_interp[flex]:
            bodies.append(topology.flex_nodebodyid[rows_of(topology, "flex_node", flex)])
        else:
            bodies.append(np.unique(topology.flex_vertbodyid[flex_elements(topology, flex)]))
    return np.concatenate(bodies)


def carriers(model: Model, slots: Sequence[FlexSlots], contacts: Contacts, vertices: Array) -> Carriers:
    """The bodies that move contacts in some slots, with their weights."""
    topology = model.topology

    def kind(slots_of_one: FlexSlots) -> tuple:
        """Slots of one kind are treated together: of the same interpolated flexes, or of all other flexes."""
        return tuple(flex if flex >= 0 and topology.flex_interp[flex] else min(flex, 0) for flex in slots_of_one.flexes)

    parts = list[Carriers]()
    for _, several in itertools.groupby(slots, kind):
        run = list(several)
        start, stop = (place - slots[0].start for place in (run[0].start, run[-1].stop))
        buffered = slots_between(contacts, start, stop)
        sides = [side_carriers(model, run, buffered, vertices, side) for side in range(2)]
        static = all(isinstance(moved_by.body, np.ndarray) for moved_by in sides)
        join: Callable[..., Any] = np.concatenate if static else jnp.concatenate
        body = join([moved_by.body for moved_by in sides])
        parts.append(Carriers(body, jnp.concatenate([-sides[0].weight, sides[1].weight])))
    if len(parts) == 1:
        return parts[0]
    most = max(len(part.weight) for part in parts)
    bodies, weights = (
        [jnp.pad(jnp.asarray(part), [(0, most - len(part)), (0, 0)]) for part in column]
        for column in zip(*parts, strict=True)
    )
    return Carriers(jnp.concatenate(bodies, axis=1), jnp.concatenate(weights, axis=1))


def side_carriers(model: Model, slots: Sequence[FlexSlots], contacts: Contacts, vertices: Array, side: int) -> Carriers:
    """The bodies that move one side of contacts; all weights are positive."""
    topology = model.topology
    flex = slots[0].flexes[side]
    if flex < 0:
        geoms = [run.meeting.geom for run in slots if not isinstance(run.meeting, FlexMeeting)]
        if all(len(geom) == run.size for geom, run in zip(geoms, slots, strict=True)):
            return Carriers(topology.geom_bodyid[np.concatenate(geoms)][None], jnp.ones_like(contacts.dist)[None])
        geom = contacts.geom[:, :1].T
        body = jnp.where(geom >= 0, jnp.asarray(topology.geom_bodyid)[jnp.maximum(geom, 0)], 0)
        return Carriers(body, jnp.ones_like(contacts.dist)[None])
    vertex, weight = flex_side(model, slots, contacts, vertices, side)
    table = topology.flex_vertbodyid
    if topology.flex_interp[flex]:
        vertex, weight = contact_weights(model, flex, vertex, weight)
        table = topology.flex_nodebodyid
    if isinstance(vertex, np.ndarray):
        return Carriers(np.where(vertex >= 0, table[vertex], 0), weight)
    return Carriers(jnp.where(vertex >= 0, jnp.asarray(table)[jnp.maximum(vertex, 0)], 0), weight)


def add_contact_springs(
    model: Model, com: ComFrame, flexes: Flexes, buffer: tuple[ContactSlots, Contacts], passive: Passive
) -> Passive:
    """Passive forces with the contacts of flexes that are springs and not constraints.

    Such a contact pushes with `STIFFNESS` times its depth, and pulls within its margin, as in MuJoCo.
    """
    push = jnp.zeros_like(passive.qfrc_spring)
    contact_slots, contacts = buffer
    for slots in contact_slots.of_flexes(passive=True):
        buffered = slots_between(contacts, slots[0].start, slots[-1].stop)
        segment, _ = contact_jacobian(model, com, flexes, buffered, (slots[0]._replace(dim=1), *slots[1:]))
        push = push + segment.mul_vec_t(jnp.where(buffered.dist <= buffered.margin, -STIFFNESS * buffered.dist, 0))
    spring = passive.qfrc_spring + push
    total = passive.qfrc_passive + push
    return dataclasses.replace(passive, qfrc_spring=spring, qfrc_passive=total)
