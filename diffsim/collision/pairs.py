"""Candidate pairs of geoms: the pairs that can touch, capacities, and the programs that they share.

The list of pairs is static. A pair is dynamic if its geoms' masks agree and their bodies are neither welded together
nor parent and child. It is explicit if it is listed under `contact`. An explicit pair replaces the dynamic one and is
not filtered. A user's filter (`Hooks(contact_filter=...)`) replaces the masks of geoms; the filters by bodies remain,
as in MuJoCo.

Default capacities of pairs, for each type pair and contact dimension: up to `PAIRS` pairs are all examined. Of more
pairs, the nearest `PAIRS` are examined, by bounding spheres and, for geoms that are not round, by boxes. Default
capacities of rows, for each contact dimension: up to `CONTACTS` rows are all kept. Of more rows, the nearest are kept,
with room for two contacts of every moving body that has geoms. A body with a flat geom has room for eight contacts,
because two faces that lie on each other make eight. A body with a distance field has room for all its contacts with two
other geoms. So small models are exact. A height field examines the prisms under a body, at most MuJoCo's 50, in a
window of the cells that the body can span when the model is loaded. `ncon_dropped` counts everything that does not
fit. `max_pairs` and `max_contacts` of the topology replace the two numbers; they come from `diffsim.load` or from MJX's
custom numerics.
MuJoCo's `size nconmax` is ignored.

A separate program for each mesh size would run fastest, but each program takes seconds to compile. So if a kind has few
pairs, they run in the arrays of a larger kind if this adds little work.

Source: `engine_collision_driver.c` of 3.8.1.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from diffsim.base.enums import DisableBit, GeomType
from diffsim.geometry.buckets import fitting
from diffsim.geometry.colliders import COLLIDERS, NEVER_COLLIDE, UNSUPPORTED, Types
from diffsim.geometry.hull.graph import GRAPH
from diffsim.geometry.hull.pairs import MOST
from diffsim.geometry.hull.polytope import BOX_SIZES
from diffsim.geometry.hull.tables import Sizes
from diffsim.types.hooks import Filter
from diffsim.types.topology import Topology, per_topology

# default number of pairs of one kind and contact dimension whose geometry is computed; of more pairs, the nearest
PAIRS = 1024
# default number of rows of one contact dimension that all have a slot; of more rows, the nearest
CONTACTS = 40
# searches for contacts of a distance field, MuJoCo's default of the option sdf_initpoints
STARTS = 40
# geom types with flat sides, which can touch in several contacts
FLAT = (GeomType.CYLINDER, GeomType.BOX, GeomType.MESH)

NUMERICS = {"max_contacts": "max_contact_points", "max_pairs": "max_geom_pairs"}


def pair_capacity(topology: Topology, count: int) -> int:
    """Number of pairs of one group, out of `count`, whose geometry is computed."""
    return min(count, PAIRS if topology.max_pairs is None else topology.max_pairs)


def contact_capacity(topology: Topology, rows: int, searches: int = STARTS) -> int:
    """Number of contact slots of one contact dimension, out of `rows` that the pair functions return.

    `searches`: number of searches for contacts of a distance field with another geom.
    """
    if topology.max_contacts is not None:
        return min(rows, topology.max_contacts)
    moves = topology.body_moves[topology.geom_bodyid]
    flat = np.unique(topology.geom_bodyid[moves & np.isin(topology.geom_type, FLAT)])
    moving = np.unique(topology.geom_bodyid[moves])
    fields = np.unique(topology.geom_bodyid[moves & (topology.geom_type == GeomType.SDF)])
    return min(rows, max(CONTACTS, 2 * len(moving) + 6 * len(flat) + 2 * searches * len(fields)))


def capacities_of_numerics(names: tuple[str, ...], values: np.ndarray) -> dict[str, int]:
    """Capacities that a model requests with MJX's custom numerics; `values` holds the first datum of each numeric.

    A value that is not positive requests everything, as in MJX; the default rule then applies.
    """
    places = {key: names.index(name) for key, name in NUMERICS.items() if name in names}
    return {key: int(values[at]) for key, at in places.items() if values[at] > 0}


# geoms whose pairs with all other geoms are listed in one go: limits the memory of the (ROWS, ngeom) tables
ROWS = 256


class Pairs(NamedTuple):
    """Candidate pairs, each column (n,): geoms, index of the explicit pair or -1, contact dimension."""

    geom1: np.ndarray
    geom2: np.ndarray
    pair: np.ndarray
    dim: np.ndarray

    def take(self, index: np.ndarray) -> "Pairs":
        """The pairs at `index`."""
        return Pairs(*(column[index] for column in self))


@per_topology
def candidate_pairs(topology: Topology, disableflags: int, contact_filter: Filter | None = None) -> Pairs:
    """All pairs that can touch: explicit ones first, then dynamic ones by geom."""
    if disableflags & (DisableBit.CONTACT | DisableBit.CONSTRAINT):
        none = np.zeros(0, np.int32)
        return Pairs(none, none, none, none)
    numbers = np.arange(topology.npair, dtype=np.int32)
    explicit = Pairs(topology.pair_geom1, topology.pair_geom2, numbers, topology.pair_dim)
    dynamic = _dynamic_pairs(topology, disableflags, contact_filter)
    pairs = Pairs(*(np.concatenate(columns) for columns in zip(explicit, dynamic, strict=True)))
    geom1, geom2 = _by_type(topology, pairs.geom1, pairs.geom2)
    never = np.zeros((len(GeomType), len(GeomType)), bool)
    never[tuple(np.array(sorted(NEVER_COLLIDE)).T)] = True
    possible = ~never[topology.geom_type[geom1], topology.geom_type[geom2]]
    return Pairs(geom1, geom2, pairs.pair, pairs.dim).take(np.flatnonzero(possible))


def _by_type(topology: Topology, geom1: np.ndarray, geom2: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The geoms of pairs, the smaller type first; equal types keep their order."""
    swap = topology.geom_type[geom1] > topology.geom_type[geom2]
    return np.where(swap, geom2, geom1), np.where(swap, geom1, geom2)


class UnsupportedPair(NamedTuple):
    """Two geoms that may touch and that diffsim cannot collide: ids, why, and what a user can do."""

    geom1: int
    geom2: int
    reason: str
    hint: str = "filter the pair out with contype, conaffinity or <exclude>"


def unsupported_pairs(
    topology: Topology, disableflags: int, contact_filter: Filter | None = None
) -> list[UnsupportedPair]:
    """Candidate pairs that diffsim cannot collide, the first of each two geom types."""
    pairs = candidate_pairs(topology, disableflags, contact_filter)
    type1, type2 = topology.geom_type[pairs.geom1], topology.geom_type[pairs.geom2]
    first = np.unique(type1 * len(GeomType) + type2, return_index=True)[1]
    unsupported = []
    for index in np.sort(first):
        types = GeomType(type1[index]), GeomType(type2[index])
        if types not in COLLIDERS:
            geoms = int(pairs.geom1[index]), int(pairs.geom2[index])
            unsupported.append(UnsupportedPair(*geoms, UNSUPPORTED[types]))
    return unsupported


def _dynamic_pairs(topology: Topology, disableflags: int, contact_filter: Filter | None) -> Pairs:
    """Pairs g1 < g2 that pass every filter.

    Raises:
      ValueError: the user's filter returns something else than a truth for each pair.
    """
    body = topology.geom_bodyid
    masks = _masks(topology.geom_contype, topology.geom_conaffinity)
    if contact_filter is not None:
        masks = _masks(topology.body_contype[body], topology.body_conaffinity[body])
    starts = range(0, topology.ngeom, ROWS)
    blocks = [_rows(topology, masks, np.arange(i, min(i + ROWS, topology.ngeom)), disableflags) for i in starts]
    geom1, geom2 = np.concatenate([np.zeros((2, 0), int), *blocks], axis=1).astype(np.int32)
    listed = np.isin(_keys(geom1, geom2), _keys(topology.pair_geom1, topology.pair_geom2))
    excluded = np.isin(_keys(body[geom1], body[geom2]), _keys(*excluded_bodies(topology)))
    left = ~(excluded | listed)
    geom1, geom2 = geom1[left], geom2[left]
    if contact_filter is not None:
        leaves_out = np.asarray(contact_filter(topology, *_by_type(topology, geom1, geom2)))
        if leaves_out.shape != geom1.shape or leaves_out.dtype != bool:
            message = f"contact_filter returned {leaves_out.dtype}{list(leaves_out.shape)}"
            raise ValueError(f"{message}, expected bool[{len(geom1)}]: True for pairs to leave out")
        geom1, geom2 = geom1[~leaves_out], geom2[~leaves_out]
    priority, condim = topology.geom_priority, topology.geom_condim
    dim = prevailing_dim(priority[geom1], priority[geom2], condim[geom1], condim[geom2])
    return Pairs(geom1, geom2, np.full(len(geom1), -1, np.int32), dim.astype(np.int32))


def prevailing_dim(priority1: np.ndarray, priority2: np.ndarray, dim1: np.ndarray, dim2: np.ndarray) -> np.ndarray:
    """Contact dimensions (n,): from the side with the higher priority; at equal priority, the larger one."""
    return np.where(priority1 > priority2, dim1, np.where(priority1 < priority2, dim2, np.maximum(dim1, dim2)))


def excluded_bodies(topology: Topology) -> tuple[np.ndarray, np.ndarray]:
    """The first and second bodies (n,) of <exclude> pairs; the bodies of flexes follow all others."""
    return topology.exclude_signature >> 16, topology.exclude_signature & 0xFFFF


Masks = Callable[[np.ndarray], np.ndarray]


def _masks(contype: np.ndarray, conaffinity: np.ndarray) -> Masks:
    """A function from geoms (k,) to whether their masks agree with each geom (k, ngeom)."""

    def agree(geom: np.ndarray) -> np.ndarray:
        return (contype[geom, None] & conaffinity | conaffinity[geom, None] & contype) != 0

    return agree


def _rows(topology: Topology, agree: Masks, geom: np.ndarray, disableflags: int) -> np.ndarray:
    """(2, n) pairs of `geom` with later geoms: one of both moves; not welded together, not on parent and child."""
    weld = topology.body_weldid[topology.geom_bodyid]
    parent = topology.body_weldid[topology.body_parentid[weld]]
    moves = topology.body_moves[topology.geom_bodyid]
    allowed = agree(geom) & (geom[:, None] < np.arange(topology.ngeom)) & (weld[geom, None] != weld)
    allowed &= moves[geom, None] | moves
    if not disableflags & DisableBit.FILTERPARENT:
        child = (weld[geom, None] == parent) | (parent[geom, None] == weld)
        allowed &= ~(child & (weld[geom, None] != 0) & (weld != 0))
    first, second = np.nonzero(allowed)
    return np.stack([geom[first], second])


def _keys(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """One number for each unordered pair."""
    return np.minimum(first, second).astype(np.int64) << 32 | np.maximum(first, second)


# A kind of pairs may run in the arrays of a larger kind, which saves the compilation of a program. These limits bound
# the additional work.
# additional pairs of edges that all pairs of the kind together may compare
WORTH = 4096
# additional vertices that the search of a pair may compare
MORE_VERTICES = 512
# factor by which the vertices in the search of a pair may grow, if the kind has few pairs
TIMES = 4
# a kind with at most this many pairs has few pairs
FEW = 64
# edges of a geom that is not a mesh: a box has most
EDGES = 12
# pairs with a box run like pairs of two meshes
INSTEAD = {(GeomType.BOX, GeomType.MESH): (GeomType.MESH, GeomType.MESH)}


class Kind(NamedTuple):
    """The kind of the pairs of a group: geom types and padded sizes of their data."""

    types: Types
    sizes: tuple[Sizes, Sizes]


def shared_kinds(pairs: Mapping[Kind, int]) -> dict[Kind, Kind]:
    """For each kind, the kind in whose arrays it runs, given the number of pairs of each kind."""
    runs: dict[Kind, Kind] = {}
    for kind in sorted(pairs, key=_work, reverse=True):
        larger = [run for run in runs.values() if _joins(kind, run, pairs[kind])]
        runs[kind] = min(larger, key=_work, default=kind)
    return runs


def _joins(kind: Kind, larger: Kind, pairs: int) -> bool:
    """Whether pairs of a kind can run as a larger kind at little cost."""
    if larger.types not in (kind.types, INSTEAD.get(kind.types)):
        return False
    if kind.types[1] != GeomType.MESH or kind.types[0] == GeomType.HFIELD:
        return False
    if GRAPH in larger.sizes:
        # where a plane touches a very small mesh, MuJoCo uses other neighbours
        apart = GRAPH in kind.sizes or not kind.sizes[1][-1] or kind.types[0] == GeomType.PLANE
        return kind.types == larger.types and not apart and pairs <= FEW
    # a box that runs as a hull has the sizes of a hull
    joined = kind if kind.types == larger.types else Kind(larger.types, (BOX_SIZES, kind.sizes[1]))
    if not all(fitting(*sizes) for sizes in zip(joined.sizes, larger.sizes, strict=True)):
        return False
    if _work(larger) <= MOST:
        return pairs * (_work(larger) - _work(kind)) <= WORTH
    first, second = (sum(sizes[0] if sizes else 1 for sizes in one.sizes) for one in (joined, larger))
    few = pairs <= FEW
    most = max(first + MORE_VERTICES, TIMES * first) if few else first + MORE_VERTICES
    return second <= most and (few or _work(kind) > MOST)


def _work(kind: Kind) -> int:
    """The product of the numbers of edges of both geoms; for graphs, more than any other."""
    if GRAPH in kind.sizes:
        return 1 << 62
    first, second = (sizes[-1] if sizes else EDGES for sizes in kind.sizes)
    return first * second
