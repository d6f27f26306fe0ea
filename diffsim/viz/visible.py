"""Which geoms are drawn: those of the groups that are wanted, and what must stand in for a body without any."""

from collections.abc import Sequence

import numpy as np

from diffsim.base.enums import GeomType
from diffsim.types import Model
from diffsim.viz.material import colours

# groups that MuJoCo's viewer hides at first: by habit they hold collision geoms
HIDDEN_GROUPS = (3, 4, 5)


def visible_geoms(model: Model, hidden_groups: Sequence[int] = HIDDEN_GROUPS) -> np.ndarray:
    """Which geoms are drawn, (ngeom,): of groups that are not hidden, with an alpha above 0.

    The colliding geoms of moving bodies are drawn all the same where nothing else of these bodies, and of those that
    are welded to them, can be seen.
    """
    topology = model.topology
    seen = colours(model)[:, 3] > 0
    shown = seen & ~np.isin(topology.geom_group, hidden_groups)
    body = topology.body_weldid[topology.geom_bodyid]
    lacking = np.ones(topology.nbody, bool)
    lacking[body[shown]] = False
    lacking[0] = False
    collides = (topology.geom_contype | topology.geom_conaffinity) != 0
    return shown | (seen & collides & lacking[body])


def drawn_type(model: Model, geom: int) -> GeomType:
    """As what a geom is drawn: a signed distance field as the mesh that it was made from."""
    kind = GeomType(int(model.topology.geom_type[geom]))
    return GeomType.MESH if kind == GeomType.SDF and model.topology.geom_dataid[geom] >= 0 else kind
