"""The points of tendon paths as MuJoCo lists them (wrap_xpos, wrap_obj), for drawing and for people who look inside.

A path is a row of sites; before a site that follows a geom stand two points on the geom's surface, if the tendon
touches it. Pulleys are marks without a place. Source: mj_tendon.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.base.enums import WrapType
from diffsim.kinematics.tendon import spatial_paths, touches
from diffsim.types.data import Kinematics
from diffsim.types.model import Model
from diffsim.types.topology import Topology, per_topology

Array = jax.Array

SITE, PULLEY = -1, -2
AROUND = (WrapType.SPHERE, WrapType.CYLINDER)


class TendonPoints(NamedTuple):
    """Paths of all tendons, one after another, at most 2 nwrap points.

    Attributes:
      ten_wrapadr, ten_wrapnum: (ntendon,) first point and number of points of each tendon.
      wrap_obj: (2 nwrap,) the geom that a point is on; -1 for a site, -2 for a pulley, 0 beyond the last point.
      wrap_xpos: (2 nwrap, 3) m, world; zero of pulleys and beyond the last point.
    """

    ten_wrapadr: Array
    ten_wrapnum: Array
    wrap_obj: Array
    wrap_xpos: Array


def tendon_points(model: Model, kinematics: Kinematics) -> TendonPoints:
    """The points of one state."""
    topology = model.topology
    element, tendon, kind = _places(topology)
    point = jnp.zeros((len(element), 3), kinematics.xpos.dtype)
    there = jnp.asarray(kind != WrapType.JOINT)
    sites = np.flatnonzero(kind == WrapType.SITE)
    point = point.at[sites].set(kinematics.site_xpos[topology.wrap_objid[element[sites]]])
    for path in spatial_paths(topology):
        if path.geom is None or path.around is None:
            continue
        touch = touches(model, kinematics, path)
        first = np.searchsorted(element, path.around)
        point = point.at[first].set(touch.first).at[first + 1].set(touch.last)
        there = there.at[first].set(touch.active).at[first + 1].set(touch.active)
    order = jnp.argsort(~there)
    mark = np.where(
        np.isin(kind, AROUND), topology.wrap_objid[element], np.where(kind == WrapType.PULLEY, PULLEY, SITE)
    )
    number = jnp.sum((tendon[None] == np.arange(topology.ntendon)[:, None]) & there[None], axis=1, dtype=jnp.int32)
    room = 2 * topology.nwrap - len(element)
    return TendonPoints(
        ten_wrapadr=(jnp.cumsum(number) - number).astype(jnp.int32),
        ten_wrapnum=number,
        wrap_obj=jnp.pad(jnp.where(there, jnp.asarray(mark, jnp.int32), 0)[order], (0, room)),
        wrap_xpos=jnp.pad(jnp.where(there[:, None], point, 0)[order], ((0, room), (0, 0))),
    )


@per_topology
def _places(topology: Topology) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Where points can be: path element, tendon and kind of each; two for a geom."""
    owner = np.repeat(np.arange(topology.ntendon), topology.tendon_num)
    number = np.where(np.isin(topology.wrap_type, AROUND), 2, 1)
    element = np.repeat(np.arange(topology.nwrap), number)
    return element, owner[element], topology.wrap_type[element]
