"""Candidate pairs: which two geoms can ever touch. Static, by MuJoCo's rules (features.md 3.2).

A pair is dynamic, when its geoms' masks agree and their bodies are neither welded together nor parent and child, or
explicit, when it is listed under `contact`; an explicit pair replaces the dynamic one and obeys no filter.
Source: `engine_collision_driver.c` of 3.8.1.
"""

from typing import NamedTuple

import numpy as np

from diffsim.enums import DisableBit, GeomType
from diffsim.geometry.colliders import COLLIDERS, NEVER_COLLIDE, UNSUPPORTED, Types
from diffsim.types.topology import Topology, per_topology


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
def candidate_pairs(topology: Topology, disableflags: int) -> Pairs:
    """All pairs that can touch: explicit ones first, then dynamic ones by geom."""
    if disableflags & (DisableBit.CONTACT | DisableBit.CONSTRAINT):
        none = np.zeros(0, np.int32)
        return Pairs(none, none, none, none)
    explicit, dynamic = _explicit_pairs(topology), _dynamic_pairs(topology, disableflags)
    pairs = Pairs(*(np.concatenate(columns) for columns in zip(explicit, dynamic, strict=True)))
    # smaller type first; equal types keep their order
    swap = topology.geom_type[pairs.geom1] > topology.geom_type[pairs.geom2]
    geom1 = np.where(swap, pairs.geom2, pairs.geom1)
    geom2 = np.where(swap, pairs.geom1, pairs.geom2)
    possible = np.array(
        [(int(a), int(b)) not in NEVER_COLLIDE for a, b in zip(*_types(topology, geom1, geom2), strict=True)], bool
    )
    return Pairs(geom1, geom2, pairs.pair, pairs.dim).take(np.flatnonzero(possible))


class UnsupportedPair(NamedTuple):
    """Two geoms that may touch and that diffsim cannot collide: ids, why, and what a user can do."""

    geom1: int
    geom2: int
    reason: str
    hint: str = "filter the pair out with contype, conaffinity or <exclude>"


def unsupported_pairs(topology: Topology, disableflags: int) -> list[UnsupportedPair]:
    """Candidate pairs that diffsim cannot collide, the first of each two geom types."""
    pairs = candidate_pairs(topology, disableflags)
    unsupported: dict[Types, UnsupportedPair] = {}
    for types, geom1, geom2 in zip(pair_types(topology, pairs), pairs.geom1, pairs.geom2, strict=True):
        if types not in COLLIDERS:
            unsupported.setdefault(types, UnsupportedPair(int(geom1), int(geom2), UNSUPPORTED[types]))
    return list(unsupported.values())


def pair_types(topology: Topology, pairs: Pairs) -> list[Types]:
    """Geom types of every pair."""
    types = zip(*_types(topology, pairs.geom1, pairs.geom2), strict=True)
    return [(GeomType(t1), GeomType(t2)) for t1, t2 in types]


def _types(topology: Topology, geom1: np.ndarray, geom2: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return topology.geom_type[geom1], topology.geom_type[geom2]


def _explicit_pairs(topology: Topology) -> Pairs:
    return Pairs(topology.pair_geom1, topology.pair_geom2, np.arange(topology.npair, dtype=np.int32), topology.pair_dim)


def _dynamic_pairs(topology: Topology, disableflags: int) -> Pairs:
    """Pairs g1 < g2 that pass every filter; a table of all geoms against all, so quadratic in memory."""
    upper = np.triu(np.ones((topology.ngeom, topology.ngeom), bool), k=1)
    allowed = upper & _masks_agree(topology) & ~_bodies_filtered(topology, disableflags) & ~_listed(topology)
    geom1, geom2 = (index.astype(np.int32) for index in np.nonzero(allowed))
    # contact dimension: that of the higher priority, the larger one at equal priority
    priority1, priority2 = topology.geom_priority[geom1], topology.geom_priority[geom2]
    dim1, dim2 = topology.geom_condim[geom1], topology.geom_condim[geom2]
    dim = np.where(priority1 > priority2, dim1, np.where(priority1 < priority2, dim2, np.maximum(dim1, dim2)))
    return Pairs(geom1, geom2, np.full(len(geom1), -1, np.int32), dim.astype(np.int32))


def _masks_agree(topology: Topology) -> np.ndarray:
    contype, conaffinity = topology.geom_contype, topology.geom_conaffinity
    one_way = (contype[:, None] & conaffinity[None, :]) != 0
    return one_way | one_way.T


def _bodies_filtered(topology: Topology, disableflags: int) -> np.ndarray:
    """True where two geoms' bodies are welded together, parent and child, or excluded."""
    body = topology.geom_bodyid
    weld = topology.body_weldid[body]
    parent = topology.body_weldid[topology.body_parentid[weld]]
    filtered = weld[:, None] == weld[None, :]
    if not disableflags & DisableBit.FILTERPARENT:
        child = (weld[:, None] == parent[None, :]) & (weld[:, None] != 0) & (weld[None, :] != 0)
        filtered = filtered | child | child.T
    signature = np.minimum(body[:, None], body[None, :]) * 65536 + np.maximum(body[:, None], body[None, :])
    first, second = topology.exclude_signature >> 16, topology.exclude_signature & 0xFFFF
    excluded = np.minimum(first, second) * 65536 + np.maximum(first, second)
    return filtered | np.isin(signature, excluded)


def _listed(topology: Topology) -> np.ndarray:
    """True where an explicit pair names the two geoms."""
    listed = np.zeros((topology.ngeom, topology.ngeom), bool)
    listed[topology.pair_geom1, topology.pair_geom2] = True
    return listed | listed.T
