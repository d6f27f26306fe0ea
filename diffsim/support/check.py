"""check: what went wrong in a world, in words: the bits of its status, and contacts deeper than their geoms overlap.

MuJoCo 3.8.1 sometimes reports a contact that is far too deep, as between thin boxes that lie on each other; diffsim
reproduces it. `geom_distance` finds the true distance in another way, so that the two can be compared.
"""

from functools import partial
from typing import Any

import jax
import numpy as np

from diffsim.base.enums import GeomType
from diffsim.geometry.colliders import NO_DISTANCE
from diffsim.simulate.status import explain
from diffsim.support.rays import geom_distance
from diffsim.types import Data, Model

# a contact is too deep if it is deeper than its geoms overlap by more than this share of the smaller bounding radius.
# Among 32,000 random pairs of all convex types, C MuJoCo 3.8.1 has three such contacts, all of them false
TOO_DEEP = 0.01
# pairs of geoms that are compared, the deepest ones first: each compiles a program of a few seconds
COMPARED = 10


def check(data: Any, model: Model | None = None) -> list[str]:
    """Explains the status of one world or of a batch in words; an empty list means that all is well.

    Args:
      data: anything with a `status`: Data, a Rollout (what went wrong in any of its steps), a trajectory of
        `diffsim.optimize`, the state of an environment (`info["status"]`); or the bits themselves.
      model: the model of the Data, to compare the depth of contacts with `geom_distance` too. Contacts with height
        fields, distance fields and flexes are not compared.

    Returns:
      A sentence for each bit that is set in any world, and one for each pair of geoms with a contact that is too deep.

    Raises:
      TypeError: `data` has no status; or a model is given with something other than Data.
    """
    lines = explain(data)
    if model is None:
        return lines
    if not isinstance(data, Data):
        raise TypeError(f"contacts are compared for Data, and this is a {type(data).__name__}: leave the model out")
    return lines + _contacts_too_deep(model, data)


def _contacts_too_deep(model: Model, data: Data) -> list[str]:
    """A sentence for each pair of geoms whose deepest contact in a batch is deeper than the geoms overlap."""
    topology = model.topology
    worlds = np.shape(data.status)
    depth = -np.asarray(data.contact.dist)
    geoms = np.asarray(data.contact.geom)
    # m, how far a depth may be off; a plane has no radius
    radius = np.where(topology.geom_type == GeomType.PLANE, np.inf, np.asarray(model.geom_rbound))
    allowed = TOO_DEEP * radius[geoms].min(axis=-1)
    places = np.argwhere((depth > allowed) & (geoms.min(axis=-1) >= 0))
    # the deepest contact of each pair
    deepest: dict[tuple[int, int], tuple[int, ...]] = {}
    for place in sorted(map(tuple, places.tolist()), key=lambda place: -depth[place]):
        deepest.setdefault((int(geoms[place][0]), int(geoms[place][1])), place)
    lines = []
    for pair, place in [item for item in deepest.items() if _has_distance(model, item[0])][:COMPARED]:
        world = place[:-1]
        true = float(_distance(pair, model, jax.tree.map(lambda leaf, world=world: leaf[world], data)))
        if depth[place] + min(true, 0.0) > allowed[place]:
            where = f" in world {', '.join(map(str, world))}" if worlds else ""
            names = " and ".join(f"{topology.name('geom', geom)!r} (id {geom})" for geom in pair)
            lines.append(
                f"CONTACT_TOO_DEEP{where}: a contact of geoms {names} is {depth[place]:.3g} m deep, and their distance "
                f"is {true:.3g} m; MuJoCo 3.8.1 does the same, and mujoco='4.0' does not for boxes"
            )
    return lines


def _has_distance(model: Model, pair: tuple[int, int]) -> bool:
    """Whether the depth of a pair's contacts should equal what `geom_distance` finds."""
    first, second = sorted(GeomType(model.topology.geom_type[geom]) for geom in pair)
    return (first, second) not in NO_DISTANCE and second != GeomType.SDF


@partial(jax.jit, static_argnums=0)
def _distance(pair: tuple[int, int], model: Model, data: Data) -> jax.Array:
    """The signed distance of two geoms, () m."""
    return geom_distance(model, data, *pair).distance
