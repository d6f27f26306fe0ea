"""The static layout of contact detection: the candidate pairs of geoms, their order, and the slots of the buffer.

Candidate pairs are sorted by kind, that is, by geom types and by the padded sizes of data such as hulls, and then by
contact dimension, so that each pair function runs once, over a group of pairs of one kind. The rows that it returns are
contact candidates. They are permuted to the order of the buffer, by contact dimension (1, 3, 4, 6). If there are more
rows than slots, each world keeps the nearest ones.
"""

import itertools
from collections import Counter
from typing import NamedTuple

import numpy as np

from diffsim.base.enums import DisableBit, GeomType
from diffsim.base.errors import Problem, UnsupportedError
from diffsim.collision.pairs import (
    STARTS,
    Kind,
    Pairs,
    UnsupportedPair,
    candidate_pairs,
    contact_capacity,
    pair_capacity,
    shared_kinds,
    unsupported_pairs,
)
from diffsim.geometry.buckets import Bucket
from diffsim.geometry.colliders import (
    COLLIDERS,
    LATER,
    SINGLE,
    Collider,
    Types,
    common_sizes,
    hull_bucket,
    pair_bucket,
    program_key,
)
from diffsim.geometry.hull.graph import GRAPH
from diffsim.geometry.hull.tables import lesser_sizes
from diffsim.types.hooks import Filter
from diffsim.types.model import Model
from diffsim.types.topology import Topology, per_topology


class Section(NamedTuple):
    """The pairs [start, stop) of the table, which have one kind and one contact dimension.

    In each step, the pair function runs for the `kept` nearest of them, the *examined* pairs.
    """

    start: int
    stop: int
    kept: int


class Grid(NamedTuple):
    """The pairs of a section as a matrix: `pair` (n, m) of geoms `geom1` (n,) and `geom2` (m,), -1 for no pair.

    The distances of all pairs are then one elementwise operation, which costs less than picking the geoms of each pair.
    """

    geom1: np.ndarray
    geom2: np.ndarray
    pair: np.ndarray


class PairGroup(NamedTuple):
    """The examined pairs of one kind, for which one pair function runs.

    Attributes:
      kinds: the two geom types.
      collider: the pair function.
      start, stop: the range of the examined pairs.
      sections: the sections of the layout to which they belong.
      buckets: the padded data of the first and of the second geoms.
      rows: number of contact candidates of each pair.
    """

    kinds: Types
    collider: Collider
    start: int
    stop: int
    sections: slice
    buckets: tuple[Bucket | None, Bucket | None]
    rows: int


class Options(NamedTuple):
    """Options of the model: the disable flags, the number of searches for contacts of a distance field, and the changes
    of MuJoCo with colliders of their own (`LATER`) that the model follows.
    """

    disableflags: int
    searches: int
    changes: tuple[str, ...]


class Block(NamedTuple):
    """The rows [start, stop), which have one contact dimension, and the number of slots (`kept`) for them."""

    start: int
    stop: int
    kept: int


class ContactLayout(NamedTuple):
    """The static layout of contact detection, from candidate pairs to slots.

    Attributes:
      dim: (ncon,) contact dimension of each slot.
      geom, body: (ncon, 2) geoms and bodies of each slot; -1 for a slot whose pair depends on the state.
      pairs: the table of candidate pairs.
      sections: its sections.
      grids: for each section the matrix of its pairs; None if all its pairs are examined.
      groups: the examined pairs, by pair function. Their rows follow one another.
      blocks: the rows and slots by contact dimension.
      pair_sort_key: MuJoCo's order of contacts: the sort key of a row is the pair_sort_key of its pair in the table
        plus the number of the row within its pair.
      parts: the most rows of a pair.
    """

    dim: np.ndarray
    geom: np.ndarray
    body: np.ndarray
    pairs: Pairs
    sections: tuple[Section, ...]
    grids: tuple[Grid | None, ...]
    groups: tuple[PairGroup, ...]
    blocks: tuple[Block, ...]
    pair_sort_key: np.ndarray
    parts: int

    @property
    def ncon(self) -> int:
        """Number of contact slots."""
        return len(self.dim)

    @property
    def culls(self) -> bool:
        """Whether any section examines only its nearest pairs."""
        return any(grid is not None for grid in self.grids)

    @property
    def described(self) -> str:
        """A text for users about what makes a program with these contacts large."""
        if not self.groups:
            return "nothing can touch"
        # a pair function with a search for nearest points has the most code; among equals, the one with the most pairs
        costliest = max(self.groups, key=lambda group: (group.collider.searches, group.stop - group.start))
        names = " with ".join(kind.name.lower() for kind in costliest.kinds)
        kinds = "one kind of pair" if len(self.groups) == 1 else f"{len(self.groups)} kinds of pairs"
        return f"{kinds} of geoms can touch, {names} costs most; model.without_contacts() if nothing touches"

    @property
    def static(self) -> bool:
        """Whether every slot always belongs to one pair."""
        return not self.culls and all(block.kept == block.stop - block.start for block in self.blocks)


@per_topology
def contact_layout(
    topology: Topology,
    disableflags: int = 0,
    contact_filter: Filter | None = None,
    searches: int = STARTS,
    changes: tuple[str, ...] = (),
) -> ContactLayout:
    """The layout of contact detection for a model.

    Args:
      topology: of the model.
      disableflags: `opt.disableflags`.
      contact_filter: the filter of the model's hooks.
      searches: number of searches for contacts of a distance field, `opt.sdf_initpoints`.
      changes: the changes of MuJoCo with colliders of their own that the model follows.

    Raises:
      UnsupportedError: two geoms that can touch have types that diffsim cannot collide; all such pairs of types are
        listed.
    """
    _refuse(topology, unsupported_pairs(topology, disableflags, contact_filter))
    pairs, kind, kinds = _sorted(topology, candidate_pairs(topology, disableflags, contact_filter))
    starts = _starts(kind, pairs.dim)
    sections = tuple(Section(a, b, _kept(topology, pairs, a, b)) for a, b in starts)
    # the examined pairs, in the order of the table (if a section examines only some, these depend on the state)
    examined = np.concatenate([np.arange(s.start, s.start + s.kept) for s in sections] or [np.zeros(0, int)])
    groups = _groups(topology, (pairs, kind), sections, kinds, Options(disableflags, searches, changes))
    row_pair = np.concatenate([np.repeat(np.arange(g.start, g.stop), g.rows) for g in groups] or [np.zeros(0, int)])
    parts = max((group.rows for group in groups), default=1)
    row_dim = pairs.dim[examined[row_pair]]
    row_order = np.argsort(row_dim, kind="stable")
    row_pair, row_dim = row_pair[row_order], row_dim[row_order]
    blocks = tuple(Block(a, b, contact_capacity(topology, b - a, searches)) for a, b in _starts(row_dim))
    dim = np.concatenate([np.full(b.kept, row_dim[b.start]) for b in blocks] or [np.zeros(0, int)]).astype(np.int32)
    # for each examined pair whether the state decides which pair of the table it is
    culled = np.concatenate([np.full(s.kept, s.kept < s.stop - s.start) for s in sections] or [np.zeros(0, bool)])
    geoms = [_slot_geoms(pairs, examined, culled, row_pair, block) for block in blocks]
    geom = np.concatenate(geoms or [np.zeros((0, 2), int)]).astype(np.int32)
    return ContactLayout(
        dim=dim,
        geom=geom,
        body=np.where(geom < 0, -1, topology.geom_bodyid[np.maximum(geom, 0)]) if topology.ngeom else geom,
        pairs=pairs,
        sections=sections,
        grids=tuple(_grid(pairs, section) for section in sections),
        groups=groups,
        blocks=blocks,
        pair_sort_key=_mujoco_order(topology, pairs, disableflags) * parts,
        parts=parts,
    )


def layout_of(model: Model) -> ContactLayout:
    """The layout of contact detection for a model, with its options and hooks."""
    return contact_layout(model.topology, *layout_settings(model))


def layout_settings(model: Model) -> tuple[int, Filter | None, int, tuple[str, ...]]:
    """The arguments of `contact_layout` after the topology."""
    opt = model.opt
    asked = {
        "plane_mesh": opt.follows("plane_mesh"),
        "face_depths": opt.follows("face_depths"),
        "round_faces": opt.follows("round_faces"),
    }
    changes = tuple(name for name, followed in asked.items() if followed)
    return opt.disableflags, model.hooks.contact_filter, opt.sdf_initpoints, changes


def _kept(topology: Topology, pairs: Pairs, start: int, stop: int) -> int:
    """The number of examined pairs of a section; all if two geoms form several pairs, which a Grid cannot represent."""
    geoms = pairs.geom1[start:stop].astype(np.int64) * topology.ngeom + pairs.geom2[start:stop]
    several = len(np.unique(geoms)) < stop - start
    return stop - start if several else pair_capacity(topology, stop - start)


def _grid(pairs: Pairs, section: Section) -> Grid | None:
    """The matrix of a section's pairs; None if all of them are examined."""
    return None if section.kept == section.stop - section.start else grid_of(pairs, section.start, section.stop)


def grid_of(pairs: Pairs, start: int, stop: int) -> Grid:
    """The matrix of the pairs [start, stop) of the table."""
    number = np.arange(start, stop)
    geom1, row = np.unique(pairs.geom1[number], return_inverse=True)
    geom2, column = np.unique(pairs.geom2[number], return_inverse=True)
    pair = np.full((len(geom1), len(geom2)), -1, np.int32)
    pair[row, column] = number
    return Grid(geom1, geom2, pair)


def _mujoco_order(topology: Topology, pairs: Pairs, disableflags: int) -> np.ndarray:
    """The position of each pair in MuJoCo's order: by bodies, then explicit pairs before others, then by geoms.

    In a pair, the geom of the smaller type comes first; if the midphase is disabled, the geom of the first body.
    """
    geoms = np.stack([pairs.geom1, pairs.geom2])
    owners = topology.geom_bodyid[geoms]
    bodies = np.sort(owners, axis=0)
    if disableflags & DisableBit.MIDPHASE:
        geoms = np.where(owners[0] <= owners[1], geoms, geoms[::-1])
    dynamic = pairs.pair < 0
    order = np.lexsort((geoms[1], geoms[0], np.where(dynamic, 0, pairs.pair), dynamic, bodies[1], bodies[0]))
    position = np.empty(len(order), dtype=int)
    position[order] = np.arange(len(order))
    return position


def _refuse(topology: Topology, unsupported: list[UnsupportedPair]) -> None:
    """Raises UnsupportedError for candidate pairs without a pair function, with one problem per pair of types."""
    problems = []
    for pair in unsupported:
        first, second = (
            f"geom {topology.name('geom', geom)!r} (id {geom}, {GeomType(int(topology.geom_type[geom])).name.lower()})"
            for geom in (pair.geom1, pair.geom2)
        )
        message = f"contact of {first} with {second}: {pair.reason}"
        problems.append(Problem("", 0, "", message, pair.hint, unsupported=True))
    if problems:
        raise UnsupportedError(problems)


def _sorted(topology: Topology, pairs: Pairs) -> tuple[Pairs, np.ndarray, list[Kind]]:
    """Pairs sorted by kind and then by dimension; the index of the kind of each pair; and the kinds in their order."""
    geoms, end = np.unique([pairs.geom1, pairs.geom2], return_inverse=True)
    keys = [program_key(topology, int(geom)) for geom in geoms]
    listed = sorted(set(keys))
    number = np.array([listed.index(key) for key in keys], dtype=int)[end.reshape(2, -1)]
    # a pair of keys as one integer
    code = number[0] * len(listed) + number[1]
    codes, begin, code, count = np.unique(code, return_index=True, return_inverse=True, return_counts=True)
    ends = [(listed[pair // len(listed)], listed[pair % len(listed)]) for pair in codes]
    exact = [Kind((first.kind, second.kind), common_sizes(topology, first, second)) for first, second in ends]
    # count the pairs of each kind, in the order of their first pairs
    counts = Counter[Kind]()
    for place in np.argsort(begin):
        counts[exact[place]] += int(count[place])
    shared = shared_kinds(counts)
    kinds = sorted(set(shared.values()))
    kind = np.array([kinds.index(shared[wanted]) for wanted in exact], dtype=int)[code]
    order = np.lexsort((pairs.dim, kind))
    return pairs.take(order), kind[order], kinds


def _groups(
    topology: Topology,
    sorted_pairs: tuple[Pairs, np.ndarray],
    sections: tuple[Section, ...],
    kinds: list[Kind],
    options: Options,
) -> tuple[PairGroup, ...]:
    """The examined pairs of each kind, which consist of one or more sections."""
    pairs, kind = sorted_pairs
    numbers = np.array([kind[section.start] for section in sections], int)
    # the index of the first examined pair of each section
    begin = np.cumsum([0, *(section.kept for section in sections)])
    colliders = dict(COLLIDERS)
    for change in options.changes:
        colliders |= LATER[change]
    if options.disableflags & DisableBit.MULTICCD:
        colliders |= SINGLE
    groups = []
    for run in itertools.starmap(slice, _starts(numbers)):
        number = numbers[run.start]
        types, sizes = kinds[number]
        collider = colliders[types]
        ends = np.stack([pairs.geom1, pairs.geom2])[:, kind == number]
        if types == (GeomType.MESH, GeomType.MESH):
            boxes = np.any(topology.geom_type[ends] == GeomType.BOX, axis=1).tolist()
            first, second = (hull_bucket(topology, *end) for end in zip(boxes, sizes, strict=True))
        else:
            first, second = (pair_bucket(topology, types, end, sizes[end]) for end in (0, 1))
        if collider.fitted is not None and sizes[0] != GRAPH:
            collider = collider._replace(function=collider.fitted(lesser_sizes(topology, *ends)))
        # the last of the sizes of a height field is the number of its parts that are tested
        parts = sizes[0][-1] if collider.parts else 1
        rows = parts * (collider.rows or options.searches)
        groups.append(
            PairGroup(
                kinds=types,
                collider=collider,
                start=int(begin[run.start]),
                stop=int(begin[run.stop]),
                sections=run,
                buckets=(first, second),
                rows=rows,
            )
        )
    return tuple(groups)


def _starts(*keys: np.ndarray) -> list[tuple[int, int]]:
    """The intervals [start, stop) in which all keys (n,) are constant."""
    if not len(keys[0]):
        return []
    changes = np.any([np.diff(key) != 0 for key in keys], axis=0)
    cuts = [0, *(np.flatnonzero(changes) + 1).tolist()]
    return list(zip(cuts, [*cuts[1:], len(keys[0])], strict=True))


def _slot_geoms(
    pairs: Pairs, examined: np.ndarray, culled: np.ndarray, row_pair: np.ndarray, block: Block
) -> np.ndarray:
    """(kept, 2) geom ids of the slots of a block; -1 for slots whose pair depends on the state."""
    if block.kept < block.stop - block.start:
        return np.full((block.kept, 2), -1)
    at = row_pair[block.start : block.stop]
    table = examined[at]
    geoms = np.stack([pairs.geom1[table], pairs.geom2[table]], axis=-1)
    return np.where(culled[at][:, None], -1, geoms)
