"""Contacts of flexes with geoms, with other flexes and with themselves.

A meeting (types/slots.py) pairs a flex with the geoms of one body, with another flex or with itself. Its rows are all
its possible contacts. At most 50 contacts of a meeting are kept (farthest.py).
Contacts of a flex with itself have no margin. Source: `engine_collision_driver.c` of 3.8.1.
"""

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.base.enums import GeomType
from diffsim.collision.farthest import thin
from diffsim.collision.flex_pairs import near_pairs
from diffsim.collision.flex_slots import (
    MOST,
    SEARCHED,
    condims,
    internal_rows,
    pair_condims,
    prism_window,
    slots_of,
)
from diffsim.collision.layout import layout_of
from diffsim.collision.narrowphase import FAR
from diffsim.collision.parameters import PairParameters, completed, mixed, side_of
from diffsim.flex.points import flex_elements
from diffsim.geometry.buckets import Poses, single
from diffsim.geometry.colliders import data_bucket, program_key
from diffsim.geometry.elements import (
    element_collider,
    element_gap,
    element_pairs,
    faces_of_tetrahedron,
    hull_elements,
    pair_rows,
    prism_element,
    prisms_under,
    vertex_element,
)
from diffsim.geometry.hull.many_pairs import HullPairs, rows_if_near, rows_of_hulls
from diffsim.geometry.sdf.pairs import field_triangles
from diffsim.geometry.shapes import Candidates, Shape
from diffsim.math.rotation import frame_from_z
from diffsim.math.vector import dot, scale, total
from diffsim.types.data import Contacts, Flexes
from diffsim.types.model import Model
from diffsim.types.slots import FlexMeeting, FlexSlots, Meeting
from diffsim.xla.gather import pick, pick_existing, pick_static


class MeetingContacts(NamedTuple):
    """All rows (n,) of a meeting.

    Attributes:
      parts: the rows, one part after another; for pairs of hulls the contact is not computed yet.
      table: parameters of contacts, such as margin and friction.
      place: (n,) the row of `table` of each contact.
      dim: (n,) contact dimensions.
      flex: both flexes, -1 for a geom.
      geom: (n,) geoms of the first side.
      vert, elem: (n, 2) vertices and elements of both sides, -1 for none.
      left_out: () number of near pairs that were not tested because there was no row for them.
    """

    parts: list[Candidates | HullPairs]
    table: PairParameters
    place: np.ndarray
    dim: np.ndarray
    flex: tuple[int, int]
    geom: np.ndarray
    vert: np.ndarray | Array
    elem: np.ndarray | Array
    left_out: Array


def meeting_contacts(model: Model, poses: Poses, vertices: Array, meeting: Meeting | FlexMeeting) -> MeetingContacts:
    """All rows of a meeting, given the vertices (nflexvert, 3) in the world."""
    topology = model.topology
    if isinstance(meeting, FlexMeeting):
        contacts_of = internal_contacts if meeting.internal else element_pair_contacts
        return contacts_of(model, vertices, meeting)
    geoms = meeting.geoms
    flexes = np.full(len(meeting.geoms), meeting.flex)
    table = completed(model, mixed(side_of(model, "geom", geoms), side_of(model, "flex", flexes)))
    place = np.searchsorted(geoms, meeting.geom)
    parts, elements, left_out = meeting_rows(model, poses, vertices, meeting)
    xp = jnp if meeting.searched else np
    vert, elem = (xp.stack([xp.full_like(ids, -1), ids], axis=1) for ids in (meeting.vert, elements))
    dim = condims(topology, meeting)[place]
    return MeetingContacts(parts, table, place, dim, (-1, meeting.flex), meeting.geom, vert, elem, left_out)


def _pair_table(model: Model, meeting: FlexMeeting) -> PairParameters:
    """The parameters of contacts of two flexes, one row; margin and gap are zero for a flex with itself."""
    sides = (side_of(model, "flex", np.array([flex])) for flex in (meeting.first, meeting.flex))
    table = completed(model, mixed(*sides))
    if meeting.first != meeting.flex:
        return table
    zero = jnp.zeros_like(table.margin)
    return table._replace(margin=zero, includemargin=zero)


def element_pair_contacts(model: Model, vertices: Array, meeting: FlexMeeting) -> MeetingContacts:
    """The rows of two flexes, or of a flex with itself: pairs of elements that are near each other."""
    topology = model.topology
    flexes = (meeting.first, meeting.flex)
    table = _pair_table(model, meeting)
    near = near_pairs(model, vertices, flexes, table.margin[0])
    elements = [jnp.asarray(flex_elements(topology, flex)) for flex in flexes]
    first, second = (vertices[ids[which]] for ids, which in zip(elements, (near.first, near.second), strict=True))
    radii = model.flex_radius[meeting.first], model.flex_radius[meeting.flex]
    part = element_pairs(first, second, radii, table.margin[0], near.exists)
    count = pair_rows((int(topology.flex_dim[meeting.first]), int(topology.flex_dim[meeting.flex])))
    elem = jnp.repeat(jnp.stack([near.first, near.second], axis=1).astype(jnp.int32), count, axis=0)
    none = np.full(len(elem), -1, np.int32)
    dim = np.full(len(elem), pair_condims(topology, meeting)[0])
    vert = np.stack([none, none], axis=1)
    return MeetingContacts([part], table, np.zeros(len(elem), int), dim, flexes, none, vert, elem, near.left_out)


def internal_contacts(model: Model, vertices: Array, meeting: FlexMeeting) -> MeetingContacts:
    """The rows within a flex: border vertices with adjacent elements, and faces with opposite vertices."""
    topology, flex = model.topology, meeting.flex
    fixed = internal_rows(topology, flex)
    radius = model.flex_radius[flex]
    first = topology.flex_vertadr[flex]
    element = flex_elements(topology, flex)
    parts = []
    beside = np.flatnonzero(fixed.vert[:, 0] >= 0)
    if len(beside):
        at = pick(vertices, fixed.vert[beside, 0] + first), pick(vertices, element[fixed.elem[beside, 1]])
        parts.append(jax.vmap(lambda v, e: vertex_element(v, e, radius))(*at).one_list())
    if topology.flex_dim[flex] == 3:
        parts.append(jax.vmap(lambda x: faces_of_tetrahedron(x, radius))(pick(vertices, element)).one_list())
    none = np.full(len(fixed.dim), -1, np.int32)
    nothing = jnp.zeros((), jnp.int32)
    place = np.zeros(len(fixed.dim), int)
    table = _pair_table(model, meeting)
    return MeetingContacts(parts, table, place, fixed.dim, (flex, flex), none, fixed.vert, fixed.elem, nothing)


class MeetingRows(NamedTuple):
    """Parts of rows (n,), the element of each, -1 for none, and the number of pairs that were not tested."""

    parts: list[Candidates | HullPairs]
    elem: np.ndarray | Array
    left_out: Array


def meeting_rows(model: Model, poses: Poses, vertices: Array, meeting: Meeting) -> MeetingRows:
    """All rows of a meeting, given the vertices (nflexvert, 3) in the world."""
    topology = model.topology
    parts = []
    elements = []
    left_out = jnp.zeros((), jnp.int32)
    radius, margin = model.flex_radius[meeting.flex], model.flex_margin[meeting.flex]
    # (4, m, 3) the vertices of each row
    at = pick(vertices, np.maximum(meeting.corner, 0))
    # rows of one geom follow one another
    for geom in dict.fromkeys(meeting.geom.tolist()):
        members = np.flatnonzero(meeting.geom == geom)
        kind = GeomType(int(topology.geom_type[geom]))
        room = margin + model.geom_margin[geom]
        if kind in SEARCHED:
            searched = searched_contacts(model, poses, vertices, meeting, geom, room)
            parts += searched.parts
            elements.append(searched.elem)
            left_out = left_out + searched.left_out
            continue
        elements.append(meeting.elem[members])
        shape = _shape_of(model, poses, geom)
        if kind == GeomType.PLANE:
            dist = dot(at[0][members] - shape.pos[None], shape.axis[None]) - radius
            normal = jnp.broadcast_to(shape.axis, (len(members), 3))
            pos = at[0][members] - scale(normal, 0.5 * dist + radius)
            parts.append(Candidates(dist, pos, normal, jnp.zeros_like(pos), jnp.ones(len(members), bool)))
            continue
        dim = int(topology.flex_dim[meeting.flex])
        function, rows, searches = element_collider(kind, dim)
        corners = jnp.moveaxis(at[: dim + 1, members[::rows]], 0, 1)
        if function is None:
            parts.append(hull_elements(kind, shape, corners, radius, room))
            continue
        of_element = functools.partial(function, shape)
        if searches:
            near = jax.lax.stop_gradient(element_gap(kind, shape, corners) <= radius + room)
            search = functools.partial(jax.vmap(of_element, (0, None, None, 0)), corners, radius, room, near)
            parts.append(rows_if_near(near, search, vertices.dtype))
            continue
        parts.append(jax.vmap(of_element, (0, None, None))(corners, radius, room).one_list())
    return MeetingRows(parts, (jnp if meeting.searched else np).concatenate(elements), left_out)


def _shape_of(model: Model, poses: Poses, geom: int) -> Shape:
    """A geom's shape in the world frame, with its mesh, height field or distance field."""
    kind = GeomType(int(model.topology.geom_type[geom]))
    sizes = program_key(model.topology, geom).sizes
    return single(model, poses, geom, data_bucket(model.topology, kind, sizes))


def searched_contacts(
    model: Model, poses: Poses, vertices: Array, meeting: Meeting, geom: int, margin: Array
) -> MeetingRows:
    """The rows of a height field or distance field with the elements that are near it."""
    topology, flex, touching = model.topology, meeting.flex, meeting.touching
    kind = GeomType(int(topology.geom_type[geom]))
    radius = model.flex_radius[flex]
    corners = pick(vertices, flex_elements(topology, flex)[touching])
    count = int(np.sum(meeting.geom == geom))
    if kind == GeomType.SDF:
        field = _shape_of(model, poses, geom)
        rows, triangle, left_out = field_triangles(field, corners, count)
        return MeetingRows([rows], jnp.asarray(touching, jnp.int32)[triangle], left_out)
    field = single(model, poses, geom, data_bucket(topology, kind, prism_window(topology, flex, geom)))
    under = prisms_under(*jax.lax.stop_gradient((field, corners, radius, margin)))
    near = under.near.reshape(-1)
    pair = jnp.nonzero(near, size=count, fill_value=len(near))[0]
    exists = pair < len(near)
    pair = jnp.minimum(pair, len(near) - 1)
    element = pair // under.near.shape[1]
    place = under.place.reshape(-1, 3)[pair]
    search = jax.vmap(lambda p, x, near: prism_element(field, p, x, radius, margin, near))
    rows = rows_if_near(exists, lambda: search(place, corners[element], exists), vertices.dtype)
    left_out = jnp.sum(under.left_out) + jnp.maximum(jnp.sum(near, dtype=jnp.int32) - count, 0)
    return MeetingRows([rows], jnp.asarray(touching, jnp.int32)[element], left_out)


def slot_contacts(slots: FlexSlots, meeting: MeetingContacts, rows: Candidates, first_key: int) -> Contacts:
    """The contacts in the slots of one dimension, chosen from the rows (n,) of their meeting."""
    count = len(meeting.place)
    valid = rows.valid & (meeting.dim == slots.dim)
    chosen: Array | np.ndarray = np.arange(count)
    stop = slots.size
    if count > MOST:
        active = rows.valid & (rows.dist <= pick(meeting.table.margin, meeting.place))
        chosen, stays = thin(rows.dist, rows.pos, jax.lax.stop_gradient(active), MOST)
        valid = valid[chosen] & stays
    elif stop < count:
        # the rows of one dimension
        chosen = np.flatnonzero(meeting.dim == slots.dim)
        valid = valid[chosen]
    # MuJoCo sorts contacts by geoms, then by vertices or elements
    if isinstance(meeting.elem, np.ndarray) or meeting.geom[0] < 0:
        numbers = [ids for ids in (meeting.elem, meeting.vert) if isinstance(ids, np.ndarray)]
        key = np.argsort(np.lexsort((np.max(np.concatenate(numbers, axis=1), axis=1), meeting.geom)))
    else:
        number = jnp.maximum(meeting.elem[:, 1], meeting.vert[:, 1])
        key = jnp.argsort(jnp.lexsort((number, jnp.asarray(meeting.geom))))
    dist, pos, normal = (pick_existing(column, chosen) for column in rows[:3])
    geom, vert, elem, sort_key = (
        pick_static(x, chosen).astype(jnp.int32) for x in (meeting.geom, meeting.vert, meeting.elem, key + first_key)
    )
    place = pick_static(meeting.place, chosen)
    flex = jnp.broadcast_to(jnp.asarray(meeting.flex, jnp.int32), (len(dist), 2))
    geoms = jnp.stack([geom, jnp.full_like(geom, -1)], axis=1)
    pairs = {"geom": geoms, "flex": flex, "elem": elem, "vert": vert}
    return Contacts(
        dist=jnp.where(valid, dist, FAR),
        pos=pos,
        frame=frame_from_z(normal),
        sort_key=jnp.asarray(sort_key),
        ncon_dropped=jnp.zeros((), jnp.int32),
        **{name: pick_existing(column, place) for name, column in meeting.table._asdict().items()},
        **{name: jnp.where(valid[:, None], jnp.asarray(ends), -1) for name, ends in pairs.items()},
    )


def collide_flexes(model: Model, poses: Poses, flexes: Flexes, contacts: Contacts) -> Contacts:
    """The contact buffer of a model with flexes: first the slots of geoms (`contacts`), then the slots of flexes."""
    if not model.topology.nflex:
        return contacts
    none = jnp.full((len(contacts.dist), 2), -1, jnp.int32)
    whole = dataclasses.replace(contacts, flex=none, elem=none, vert=none)
    # contacts of flexes are sorted after all pairs of geoms
    layout = layout_of(model)
    key = int(np.max(layout.pair_sort_key, initial=0)) + layout.parts
    runs = slots_of(model).flexes
    parts = [whole]
    meetings = {id(run.meeting): run.meeting for run in runs}
    met = {number: meeting_contacts(model, poses, flexes.flexvert_xpos, one) for number, one in meetings.items()}
    # the contacts of all pairs of hulls are computed in one batch
    searched = iter(rows_of_hulls([part for one in met.values() for part in one.parts if isinstance(part, HullPairs)]))
    rows = dict[int, Candidates]()
    for meeting, one in met.items():
        columns = zip(*(next(searched) if isinstance(part, HullPairs) else part for part in one.parts), strict=True)
        rows[meeting] = Candidates(*(jnp.concatenate(column) for column in columns))
    for run in runs:
        meeting = id(run.meeting)
        parts.append(slot_contacts(run, met[meeting], rows[meeting], key))
        key += len(met[meeting].place)
    left_out = total([contacts.ncon_dropped, *(one.left_out for one in met.values())])
    joined = jax.tree.map(lambda *columns: jnp.concatenate(columns) if columns[0].ndim else columns[0], *parts)
    return dataclasses.replace(joined, ncon_dropped=left_out)
