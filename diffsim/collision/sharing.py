"""Which pairs run one program: kinds of pairs, and small kinds that join larger ones.

A program for each size of meshes would be quickest to run, and each takes seconds to compile. So the few pairs of a
kind run in the arrays of a larger one where that adds little work.
"""

from collections.abc import Mapping
from typing import NamedTuple

from diffsim.base.enums import GeomType
from diffsim.geometry.assets import fitting
from diffsim.geometry.colliders import Types
from diffsim.geometry.hull.box_hulls import BOX_SIZES
from diffsim.geometry.hull.pairs import MOST
from diffsim.geometry.hull.tables import Sizes

# how many products of numbers of edges a program is worth
WORTH = 4096
# edges of what is no mesh: a box
EDGES = 12
# pairs with a box run as those of two meshes do
INSTEAD = {(GeomType.BOX, GeomType.MESH): (GeomType.MESH, GeomType.MESH)}


class Kind(NamedTuple):
    """What the pairs of a group have in common: geom types and padded sizes of their data."""

    types: Types
    sizes: tuple[Sizes, Sizes]


def shared_kinds(pairs: Mapping[Kind, int]) -> dict[Kind, Kind]:
    """The kind that each kind runs as, given how many pairs there are of each."""
    runs: dict[Kind, Kind] = {}
    for kind in sorted(pairs, key=_work, reverse=True):
        larger = [each for each in runs.values() if _joins(kind, each, pairs[kind])]
        runs[kind] = min(larger, key=_work, default=kind)
    return runs


def _joins(kind: Kind, larger: Kind, pairs: int) -> bool:
    """Whether pairs of a kind can run as a larger one, and at little cost."""
    if larger.types not in (kind.types, INSTEAD.get(kind.types)):
        return False
    if kind.types[1] != GeomType.MESH or kind.types[0] == GeomType.HFIELD:
        return False
    # a box has the room of a hull where it runs as one
    own = kind if kind.types == larger.types else Kind(larger.types, (BOX_SIZES, kind.sizes[1]))
    fits = all(fitting(*sizes) for sizes in zip(own.sizes, larger.sizes, strict=True))
    return fits and _work(larger) <= MOST and pairs * (_work(larger) - _work(kind)) <= WORTH


def _work(kind: Kind) -> int:
    """The product of the numbers of edges of both geoms."""
    first, second = (sizes[-1] if sizes else EDGES for sizes in kind.sizes)
    return first * second
