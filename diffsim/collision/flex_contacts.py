"""Contacts of flexes with geoms: which there can be, and where they are.

A plane touches vertices, every other geom elements. There is no filter for parents; elements with a vertex on the body
of the geom are left out.

Of all contacts of a flex with the geoms of one body at most 50 stay: the deepest, then one after another the farthest
from those that were chosen (Gonzalez 1985). In MuJoCo the one that is chosen trades places with one of the first, while
flags and distances stay where they are; which contacts come out depends on that, so it is done here too.
Source: `engine_collision_driver.c` of 3.8.1.
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.base.enums import DisableBit, GeomType
from diffsim.base.errors import Problem, UnsupportedError
from diffsim.collision.layout import layout_of
from diffsim.collision.pairs import PairParameters, completed, mixed, side_of
from diffsim.geometry.colliders import Poses, data_bucket, gather, look
from diffsim.geometry.elements import element_collider
from diffsim.geometry.shapes import Candidates
from diffsim.math.rotation import frame_from_z
from diffsim.math.vector import dot, scale
from diffsim.types.data import Contacts, Flexes
from diffsim.types.model import Model
from diffsim.types.topology import Topology, per_topology
from diffsim.xla.barriers import anywhere
from diffsim.xla.gather import pick, pick_existing
from diffsim.xla.select import where

Array = jax.Array

FAR = 1e10
# mjMAXCONPAIR
MOST = 50
NO_ELEMENTS = (GeomType.HFIELD, GeomType.SDF)


class Meeting(NamedTuple):
    """A flex and a body, whose geoms (n,) touch it: all rows of contacts that there can be, in MuJoCo's order.

    Of each row (m,) the geom, vertex and element, -1 for none, and the vertices (4, m) by their number among all, -1
    for none.
    """

    flex: int
    geoms: np.ndarray
    geom: np.ndarray
    vert: np.ndarray
    elem: np.ndarray
    corner: np.ndarray


class FlexSlots(NamedTuple):
    """Slots [start, stop), after those of geoms, of contacts of one dimension of a meeting."""

    meeting: Meeting
    dim: int
    start: int
    stop: int


@per_topology
def meetings(topology: Topology, all_elements: bool) -> tuple[Meeting, ...]:
    """All meetings, in the order of bodies and flexes; with all elements of solids, or those near the surface.

    Raises:
      UnsupportedError: a height field or distance field that touches a flex.
    """
    excluded = {(int(s) >> 16, int(s) & 0xFFFF) for s in topology.exclude_signature}
    listed = []
    for body in range(topology.nbody):
        for flex in range(topology.nflex):
            masks = topology.flex_contype[flex], topology.flex_conaffinity[flex]
            own = np.flatnonzero(topology.geom_bodyid == body)
            touch = (topology.geom_contype[own] & masks[1]) | (topology.geom_conaffinity[own] & masks[0])
            own = own[touch != 0]
            if len(own) and (body, topology.nbody + flex) not in excluded:
                meeting = meeting_of(topology, flex, own, all_elements)
                if len(meeting.geom):
                    listed.append(meeting)
    return tuple(listed)


def meeting_of(topology: Topology, flex: int, geoms: np.ndarray, all_elements: bool) -> Meeting:
    """Of the geoms of a body that may touch a flex; planes first."""
    body = topology.geom_bodyid[geoms[0]]
    kinds = topology.geom_type[geoms]
    for geom, kind in zip(geoms, kinds, strict=True):
        if kind in NO_ELEMENTS:
            name, other = topology.name("geom", int(geom)), topology.name("flex", flex)
            what = f"contact of geom {name!r} ({GeomType(int(kind)).name.lower()}) with flex {other!r}"
            raise UnsupportedError([Problem("", 0, "", f"{what}: not supported yet", unsupported=True)])
    dim, first = int(topology.flex_dim[flex]), topology.flex_vertadr[flex]
    start, count = topology.flex_elemdataadr[flex], topology.flex_elemnum[flex]
    elements = topology.flex_elem.ravel()[start : start + count * (dim + 1)].reshape(count, dim + 1) + first
    layer = topology.flex_elemlayer[topology.flex_elemadr[flex] + np.arange(count)]
    active = all_elements | (dim < 3) | (layer < topology.flex_activelayers[flex])
    touching = np.flatnonzero(active & ~np.any(topology.flex_vertbodyid[elements] == body, axis=1))
    planes, others = geoms[kinds == GeomType.PLANE], geoms[kinds != GeomType.PLANE]
    geom, vert, elem, corner = [], [], [], []
    for each in planes:
        number = np.arange(topology.flex_vertnum[flex])
        geom.append(np.full(len(number), each))
        vert.append(number)
        elem.append(np.full(len(number), -1))
        corner.append(np.pad(number[:, None] + first, [(0, 0), (0, 3)], constant_values=-1))
    for each in others:
        rows = np.repeat(touching, element_collider(GeomType(int(topology.geom_type[each])), dim).rows)
        geom.append(np.full(len(rows), each))
        vert.append(np.full(len(rows), -1))
        elem.append(rows)
        corner.append(np.pad(elements[rows], [(0, 0), (0, 3 - dim)], constant_values=-1))
    geom, vert, elem, corner = (np.concatenate(column).astype(np.int32) for column in (geom, vert, elem, corner))
    return Meeting(flex, geoms, geom, vert, elem, corner.T)


@per_topology
def flex_slots(topology: Topology, disableflags: int, first: int) -> tuple[FlexSlots, ...]:
    """The slots of all meetings, which begin at `first`: by contact dimension, of passive flexes last."""
    if disableflags & (DisableBit.CONSTRAINT | DisableBit.CONTACT):
        return ()
    listed = []
    # the search by boxes looks at the outer layers of solids only
    for meeting in meetings(topology, bool(disableflags & DisableBit.MIDPHASE)):
        dims = condims(topology, meeting)
        listed += [(bool(topology.flex_passive[meeting.flex]), int(dim), meeting) for dim in np.unique(dims)]
    slots, start = [], first
    for _, dim, meeting in sorted(listed, key=lambda each: each[:2]):
        stop = start + min(MOST, len(meeting.geom))
        slots.append(FlexSlots(meeting, dim, start, stop))
        start = stop
    return tuple(slots)


def slots_of(model: Model) -> tuple[FlexSlots, ...]:
    """The slots of a model's contacts of flexes."""
    return flex_slots(model.topology, model.opt.disableflags, layout_of(model).ncon) if model.topology.nflex else ()


def slot_dims(model: Model) -> np.ndarray:
    """(ncon,) contact dimensions of all slots, of geoms and flexes."""
    more = [np.full(each.stop - each.start, each.dim, np.int32) for each in slots_of(model)]
    return np.concatenate([layout_of(model).dim, *more])


def condims(topology: Topology, meeting: Meeting) -> np.ndarray:
    """Contact dimensions (n,) with the geoms of a meeting."""
    flex, geoms = meeting.flex, meeting.geoms
    mine, theirs = topology.flex_priority[flex], topology.geom_priority[geoms]
    own, other = topology.flex_condim[flex], topology.geom_condim[geoms]
    return np.where(theirs > mine, other, np.where(theirs < mine, own, np.maximum(own, other)))


def meeting_parameters(model: Model, meeting: Meeting) -> PairParameters:
    """Contact parameters with the geoms (n,) of a meeting."""
    geoms, flexes = meeting.geoms, np.full(len(meeting.geoms), meeting.flex)
    columns = mixed(side_of(model, "geom", geoms), side_of(model, "flex", flexes))
    return completed(model, columns)


def meeting_rows(model: Model, poses: Poses, vertices: Array, meeting: Meeting) -> Candidates:
    """All rows of a meeting, of vertices (nflexvert, 3) in the world."""
    topology, parts = model.topology, []
    radius, margin = model.flex_radius[meeting.flex], model.flex_margin[meeting.flex]
    at = pick(vertices, np.maximum(meeting.corner, 0))
    # rows of one geom follow one another
    for geom in dict.fromkeys(meeting.geom.tolist()):
        own = np.flatnonzero(meeting.geom == geom)
        kind = GeomType(int(topology.geom_type[geom]))
        bucket = data_bucket(topology, kind, look(topology, geom).sizes)
        shape = jax.tree.map(lambda x: x[0], gather(model, poses, np.array([geom]), bucket))
        if kind == GeomType.PLANE:
            dist = dot(at[0][own] - shape.pos[None], shape.axis[None]) - radius
            normal = jnp.broadcast_to(shape.axis, (len(own), 3))
            pos = at[0][own] - scale(normal, 0.5 * dist + radius)
            parts.append(Candidates(dist, pos, normal, jnp.zeros_like(pos), jnp.ones(len(own), bool)))
            continue
        dim = int(topology.flex_dim[meeting.flex])
        function, rows = element_collider(kind, dim)
        corners = jnp.moveaxis(at[: dim + 1, own[::rows]], 0, 1)
        room = margin + model.geom_margin[geom]
        found = jax.vmap(lambda x, f=function, s=shape, m=room: f(s, x, radius, m))(corners)
        parts.append(Candidates(*(x.reshape(len(own), *x.shape[2:]) for x in found)))
    return Candidates(*(jnp.concatenate(column) for column in zip(*parts, strict=True)))


def slot_contacts(model: Model, slots: FlexSlots, rows: Candidates, first_key: int) -> Contacts:
    """The contacts of some slots."""
    topology, meeting = model.topology, slots.meeting
    table, place = meeting_parameters(model, meeting), np.searchsorted(meeting.geoms, meeting.geom)
    right = condims(topology, meeting)[place] == slots.dim
    valid = rows.valid & right
    # MuJoCo sorts what it found by geoms, then vertices or elements
    key = np.argsort(np.lexsort((np.maximum(meeting.vert, meeting.elem), meeting.geom)))
    chosen: Array | np.ndarray = np.arange(len(meeting.geom))
    if len(chosen) > MOST:
        active = rows.valid & (rows.dist <= pick(table.margin, place))
        chosen, stays = thin(rows.dist, rows.pos, jax.lax.stop_gradient(active), MOST)
        valid = valid[chosen] & stays
    dist, pos, normal = (pick_existing(column, chosen) for column in rows[:3])
    fixed = (meeting.geom, meeting.vert, meeting.elem, key + first_key)
    geom, vert, elem, sort_key = (jnp.asarray(_at(column.astype(np.int32), chosen)) for column in fixed)
    parameters = [_at(column, _at(place, chosen)) for column in table]
    names = ("margin", "includemargin", "friction", "solref", "solreffriction", "solimp")
    none = jnp.full_like(geom, -1)
    pairs = {"geom": (geom, none), "flex": (none, none * 0 + meeting.flex), "elem": (none, elem), "vert": (none, vert)}
    return Contacts(
        dist=where(valid, dist, FAR),
        pos=pos,
        frame=frame_from_z(normal),
        sort_key=sort_key,
        ncon_dropped=jnp.zeros((), jnp.int32),
        **dict(zip(names, parameters, strict=True)),
        **{name: where(valid[:, None], jnp.stack(ends, axis=1), -1) for name, ends in pairs.items()},
    )


def _at(column: Array | np.ndarray, index: Array | np.ndarray) -> Array | np.ndarray:
    """column[index], static where both are."""
    if isinstance(column, np.ndarray) and isinstance(index, np.ndarray):
        return column[index]
    return pick_existing(jnp.asarray(column), index)


def collide_flexes(model: Model, poses: Poses, flexes: Flexes, contacts: Contacts) -> Contacts:
    """The contact buffer of geoms with the slots of flexes behind it, by positions of vertices.

    Raises:
      UnsupportedError: a height field or distance field that touches a flex.
    """
    count = len(contacts.dist)
    slots = slots_of(model)
    if not model.topology.nflex:
        return contacts
    none = jnp.full((count, 2), -1, jnp.int32)
    whole = dataclasses.replace(contacts, flex=none, elem=none, vert=none)
    # after all pairs of geoms
    layout = layout_of(model)
    key = int(np.max(layout.pair_sort_key, initial=0) + np.max(layout.row_part, initial=0)) + 1
    rows, parts = {}, [whole]
    for each in slots:
        meeting = id(each.meeting)
        if meeting not in rows:
            rows[meeting] = meeting_rows(model, poses, flexes.flexvert_xpos, each.meeting)
        parts.append(slot_contacts(model, each, rows[meeting], key))
        key += len(each.meeting.geom)
    return jax.tree.map(lambda *columns: jnp.concatenate(columns) if columns[0].ndim else columns[0], *parts)


class _Sampling(NamedTuple):
    """What stands at each place (n,): a row and its position (n, 3). Whether a place was chosen, its squared distance
    from the chosen (n,), the place that is chosen next, and -1 where all are.
    """

    row: Array
    pos: Array
    chosen: Array
    distance: Array
    best: Array


def thin(dist: Array, pos: Array, active: Array, most: int = MOST) -> tuple[Array, Array]:
    """(rows (most,) of n > most that stay, which of these are contacts (most,)); not differentiated.

    Args:
      dist: (n,) m.
      pos: (n, 3) m.
      active: (n,) which rows are contacts at all; up to `most` of them, all stay, in their order.
    """
    dist, pos = jax.lax.stop_gradient((dist, pos))
    # contacts first, in their order
    order = jnp.argsort(~active, stable=True)
    count = jnp.sum(active)
    rows = jax.lax.cond(
        anywhere(count > most), lambda: farthest(order, dist[order], pos[order], count, most), lambda: order[:most]
    )
    return jnp.where(count > most, rows, order[:most]), jnp.arange(most) < count


def farthest(order: Array, dist: Array, pos: Array, count: Array, most: int) -> Array:
    """The rows that are chosen one after another, of `order` (n,), whose first `count` are contacts."""
    number = jnp.arange(len(order))
    beyond = number >= count
    start = jnp.argmin(jnp.where(beyond, FAR, dist)).astype(number.dtype)

    def choose(turn: Array, state: _Sampling) -> _Sampling:
        row, pos, chosen, distance, best = state
        chosen = chosen | (number == best)
        offset = pos - pos[best][None]
        distance = jnp.where(chosen, distance, jnp.minimum(distance, dot(offset, offset)))
        following = jnp.argmax(jnp.where(chosen, -1, distance)).astype(best.dtype)
        # the last one stays where it is
        swaps = turn < most - 1
        at = jnp.where(swaps, best, turn)
        row, pos = (x.at[turn].set(x[at]).at[at].set(x[turn]) for x in (row, pos))
        return _Sampling(row, pos, chosen, distance, jnp.where(swaps & (following == turn), best, following))

    state = _Sampling(order, pos, beyond, jnp.full_like(dist, FAR), start)
    return jax.lax.fori_loop(0, most, choose, state).row[:most]
