"""The possible contacts of flexes, and their slots in the contact buffer.

A plane touches vertices; every other geom touches elements. There is no parent filter, but elements with a vertex on
the geom's body are omitted. Elements of flexes touch elements with which they share no body (flex_pairs.py). Within a
flex, if `internal` is set, vertices on a border touch the adjacent elements, and each face of a tetrahedron touches
the opposite vertex. Source: `engine_collision_driver.c` of 3.8.1.
"""

import itertools
from typing import NamedTuple

import numpy as np

from diffsim.base.enums import DisableBit, FlexSelf, GeomType
from diffsim.collision.flex_pairs import EXAMINED_PER_ELEMENT, LEAST_EXAMINED, active_elements, pair_count
from diffsim.collision.layout import contact_layout, layout_settings
from diffsim.collision.pair_rows import blocks_of
from diffsim.collision.pairs import excluded_bodies, prevailing_dim
from diffsim.flex.points import flex_elements
from diffsim.geometry.elements import FACES, element_collider, pair_rows
from diffsim.geometry.hfield import window_sizes
from diffsim.types.hooks import Filter
from diffsim.types.model import Model
from diffsim.types.slots import ContactSlots, FlexMeeting, FlexSlots, Meeting, Slots
from diffsim.types.topology import Topology, per_topology, rows_of

# contacts that a meeting keeps (MuJoCo's mjMAXCONPAIR)
MOST = 50
# geom types that need a search for the elements that they touch
SEARCHED = (GeomType.HFIELD, GeomType.SDF)


@per_topology
def meetings(topology: Topology, all_elements: bool) -> tuple[Meeting, ...]:
    """All meetings, in the order of bodies and flexes; with all elements of solids or only the outer layers."""
    excluded = _excluded(topology)
    listed = []
    for body in range(topology.nbody):
        for flex in range(topology.nflex):
            masks = topology.flex_contype[flex], topology.flex_conaffinity[flex]
            geoms = np.flatnonzero(topology.geom_bodyid == body)
            touch = (topology.geom_contype[geoms] & masks[1]) | (topology.geom_conaffinity[geoms] & masks[0])
            geoms = geoms[touch != 0]
            if len(geoms) and (body, topology.nbody + flex) not in excluded:
                meeting = meeting_of(topology, flex, geoms, all_elements)
                if len(meeting.geom):
                    listed.append(meeting)
    return tuple(listed)


def _excluded(topology: Topology) -> set[tuple[int, int]]:
    """Excluded pairs of bodies; the bodies of flexes follow all others."""
    return set(zip(*(bodies.tolist() for bodies in excluded_bodies(topology)), strict=True))


def meeting_of(topology: Topology, flex: int, geoms: np.ndarray, all_elements: bool) -> Meeting:
    """The rows of contacts of a flex with geoms of one body: planes first, then distance fields, then all others."""
    body = topology.geom_bodyid[geoms[0]]
    kinds = topology.geom_type[geoms]
    dim = int(topology.flex_dim[flex])
    first = topology.flex_vertadr[flex]
    elements = flex_elements(topology, flex)
    active = np.arange(len(elements)) if all_elements else active_elements(topology, flex)
    touching = active[~np.any(topology.flex_vertbodyid[elements[active]] == body, axis=1)]
    planes, fields = (geoms[kinds == kind] for kind in (GeomType.PLANE, GeomType.SDF))
    others = np.concatenate([fields, geoms[(kinds != GeomType.PLANE) & (kinds != GeomType.SDF)]])

    def rows(geom: int, corner: np.ndarray, vert: np.ndarray | int = -1, elem: np.ndarray | int = -1) -> tuple:
        """Rows with a geom: its id, their vertices and elements, and the vertices (n, k) of these; -1 for none."""
        count, width = corner.shape
        padded = np.pad(corner, [(0, 0), (0, 4 - width)], constant_values=-1)
        return np.full(count, geom), np.broadcast_to(vert, count), np.broadcast_to(elem, count), padded

    vertices = np.arange(topology.flex_vertnum[flex])
    parts = [rows(plane, vertices[:, None] + first, vert=vertices) for plane in planes]
    for owner in others:
        kind = GeomType(int(topology.geom_type[owner]))
        if kind in SEARCHED:
            # as in MuJoCo, distance fields touch only triangles, and at most MOST contacts are kept
            count = min(MOST, len(touching)) if dim == 2 else 0
            if kind == GeomType.HFIELD:
                prisms = len(touching) * prism_window(topology, flex, int(owner))[2]
                count = min(prisms, max(LEAST_EXAMINED, EXAMINED_PER_ELEMENT * len(touching)))
            parts.append(rows(owner, np.zeros((count, 0), int)))
        else:
            elem = np.repeat(touching, element_collider(kind, dim).rows)
            parts.append(rows(owner, elements[elem], elem=elem))
    geom, vert, elem, corner = (np.concatenate(column).astype(np.int32) for column in zip(*parts, strict=True))
    return Meeting(flex, geoms, geom, vert, elem, corner.T, touching)


@per_topology
def prism_window(topology: Topology, flex: int, geom: int) -> tuple[int, int, int]:
    """Columns and rows of cells of a height field that are examined under an element, and their number of prisms."""
    field = int(topology.geom_dataid[geom])
    cells = int(topology.hfield_ncol[field]) - 1, int(topology.hfield_nrow[field]) - 1
    columns, rows, _ = window_sizes(tuple(topology.geom_fieldcells[topology.ngeom + flex, field].tolist()), cells)
    return columns, rows, 2 * columns * rows


@per_topology
def flex_meetings(topology: Topology) -> tuple[FlexMeeting, ...]:
    """Pairs of flexes that may touch each other, then flexes that may touch themselves, as in MuJoCo."""
    types, affinities = topology.flex_contype, topology.flex_conaffinity
    excluded = _excluded(topology)
    listed = []
    for first, second in itertools.combinations(range(topology.nflex), 2):
        allowed = (topology.nbody + first, topology.nbody + second) not in excluded
        if allowed and (types[first] & affinities[second]) | (types[second] & affinities[first]):
            listed.append(FlexMeeting(first, second))
    for flex in range(topology.nflex):
        if not topology.flex_rigid[flex] and types[flex] & affinities[flex]:
            if topology.flex_internal[flex]:
                listed.append(FlexMeeting(flex, flex, True))
            if topology.flex_selfcollide[flex] != FlexSelf.NONE:
                listed.append(FlexMeeting(flex, flex))
    return tuple(listed)


class InternalRows(NamedTuple):
    """Rows (n,) within a flex: dimensions, vertices and elements (n, 2) of both sides, -1 for none."""

    dim: np.ndarray
    vert: np.ndarray
    elem: np.ndarray


@per_topology
def internal_rows(topology: Topology, flex: int) -> InternalRows:
    """The rows of vertices with adjacent elements, then the rows of the faces of tetrahedra."""
    pairs = topology.flex_evpair.reshape(-1, 2)[rows_of(topology, "flex_evpair", flex)]
    none = np.full(len(pairs), -1)
    dim = [np.full(len(pairs), topology.flex_condim[flex])]
    vert = [np.stack([pairs[:, 1], none], axis=1)]
    elem = [np.stack([none, pairs[:, 0]], axis=1)]
    if topology.flex_dim[flex] == 3:
        element = flex_elements(topology, flex) - topology.flex_vertadr[flex]
        opposite = element[:, [face[3] for face in FACES]].ravel()
        number = np.repeat(np.arange(len(element)), len(FACES))
        dim.append(np.ones(len(number), int))
        vert.append(np.stack([np.full(len(number), -1), opposite], axis=1))
        elem.append(np.stack([number, np.full(len(number), -1)], axis=1))
    return InternalRows(*map(np.concatenate, (dim, vert, elem)))


def slots_of(model: Model) -> ContactSlots:
    """The assignment of each slot of a model's contact buffer."""
    return contact_slots(model.topology, *layout_settings(model))


@per_topology
def contact_slots(
    topology: Topology, disableflags: int, contact_filter: Filter | None, searches: int, changes: tuple[str, ...]
) -> ContactSlots:
    """Slots of geoms, one run for each contact dimension, followed by the slots of flexes."""
    layout = contact_layout(topology, disableflags, contact_filter, searches, changes)
    cuts = [0, *(np.flatnonzero(np.diff(layout.dim)) + 1).tolist(), layout.ncon]
    # one block of the layout for each contact dimension
    sorted_dims = {dim for block, dim in blocks_of(layout) if block.kept < block.stop - block.start}
    runs = ((int(layout.dim[a]), a, b) for a, b in itertools.pairwise(cuts) if a < b)
    geoms = tuple(Slots(dim, a, b, dim in sorted_dims) for dim, a, b in runs)
    body = layout.body if np.all(layout.body >= 0) else None
    return ContactSlots(geoms, body, flex_slots(topology, disableflags, layout.ncon))


@per_topology
def flex_slots(topology: Topology, disableflags: int, first: int) -> tuple[FlexSlots, ...]:
    """The slots of all meetings, which begin at `first`: by contact dimension, of passive flexes last."""
    if not topology.nflex or disableflags & (DisableBit.CONSTRAINT | DisableBit.CONTACT):
        return ()
    listed = []
    # the search by boxes looks at the outer layers of solids only
    for meeting in meetings(topology, bool(disableflags & DisableBit.MIDPHASE)):
        dims = np.unique(condims(topology, meeting))
        passive = bool(topology.flex_passive[meeting.flex])
        listed += [(passive, int(dim), meeting, len(meeting.geom)) for dim in dims]
    for meeting in flex_meetings(topology):
        dims, count = np.unique(pair_condims(topology, meeting), return_counts=True)
        if not meeting.internal:
            pair = meeting.first, meeting.flex
            sizes = int(topology.flex_dim[meeting.first]), int(topology.flex_dim[meeting.flex])
            count = [pair_count(topology, pair) * pair_rows(sizes)]
        passive = bool(np.any(topology.flex_passive[[meeting.first, meeting.flex]]))
        listed += [(passive, int(dim), meeting, int(n)) for dim, n in zip(dims, count, strict=True)]
    slots = []
    start = first
    for passive, dim, meeting, count in sorted(listed, key=lambda run: run[:2]):
        if not count:
            continue
        stop = start + min(MOST, count)
        slots.append(FlexSlots(meeting, passive, dim, start, stop))
        start = stop
    return tuple(slots)


def condims(topology: Topology, meeting: Meeting) -> np.ndarray:
    """Contact dimensions (n,) with the geoms of a meeting."""
    flex, geoms = meeting.flex, meeting.geoms
    priorities = topology.flex_priority[flex], topology.geom_priority[geoms]
    return prevailing_dim(*priorities, topology.flex_condim[flex], topology.geom_condim[geoms])


def pair_condims(topology: Topology, meeting: FlexMeeting) -> np.ndarray:
    """Contact dimensions (n,) of a meeting of flexes: of its rows, or (1,)."""
    if meeting.internal:
        return internal_rows(topology, meeting.flex).dim
    ids = np.array([[meeting.first], [meeting.flex]])
    return prevailing_dim(*topology.flex_priority[ids], *topology.flex_condim[ids])
