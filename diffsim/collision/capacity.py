"""How many pairs are looked at, and how many contacts are kept.

Default rule. Per (type pair, contact dimension) all pairs are examined up to `PAIRS`; above that the nearest `PAIRS`
by bounding spheres, and by boxes for geoms that are not round. Per contact dimension all rows are kept up to
`CONTACTS`; above that the nearest, with room for two contacts of every moving body that has geoms, eight if it has a
flat one: as many as two faces have that lie on each other; with a distance field for all contacts that it can have with
two others. Small models are therefore exact, and static. Of a height field the prisms under a body are looked at, at
most MuJoCo's 50, in a window of as many cells as the body can span when the model is loaded. What does not fit is
counted in `ncon_dropped`, never silent.

`max_pairs` and `max_contacts` of the topology replace the two numbers; they come from `diffsim.load` or from the
custom numerics of MJX. MuJoCo's `size nconmax` is ignored.
"""

import numpy as np

from diffsim.base.enums import GeomType
from diffsim.types.topology import Topology

PAIRS = 1024
CONTACTS = 40
# MuJoCo's option sdf_initpoints
STARTS = 40
FLAT = (GeomType.CYLINDER, GeomType.BOX, GeomType.MESH)

NUMERICS = {"max_contacts": "max_contact_points", "max_pairs": "max_geom_pairs"}


def pair_capacity(topology: Topology, count: int) -> int:
    """Number of pairs of one group, out of `count`, whose geometry is computed."""
    return min(count, PAIRS if topology.max_pairs is None else topology.max_pairs)


def contact_capacity(topology: Topology, rows: int, searches: int = STARTS) -> int:
    """Number of contact slots of one contact dimension, out of `rows` that the pair functions return.

    `searches`: for contacts of a distance field and another geom.
    """
    if topology.max_contacts is not None:
        return min(rows, topology.max_contacts)
    moves = topology.body_weldid[topology.geom_bodyid] != 0
    flat = np.unique(topology.geom_bodyid[moves & np.isin(topology.geom_type, FLAT)])
    moving = np.unique(topology.geom_bodyid[moves])
    fields = np.unique(topology.geom_bodyid[moves & (topology.geom_type == GeomType.SDF)])
    return min(rows, max(CONTACTS, 2 * len(moving) + 6 * len(flat) + 2 * searches * len(fields)))


def capacities_of_numerics(names: tuple[str, ...], values: np.ndarray) -> dict[str, int]:
    """Capacities that a model asks for by MJX's custom numerics; `values` holds the first datum of each numeric.

    A value that is not positive asks for everything, as in MJX, and is left to the default rule.
    """
    places = {key: names.index(name) for key, name in NUMERICS.items() if name in names}
    return {key: int(values[at]) for key, at in places.items() if values[at] > 0}
