"""Distance sensors: the distance between two geoms, or between the geoms of two bodies, and the segment between them.

Only distances below the sensor's cutoff count; if no distance is, the reading is the cutoff, and normal and segment are
zero. Distances come from the pair functions of collisions, which return true signed distances also when geoms are
apart; pairs that MuJoCo gives to its convex collider use the direction of greatest separation. The nearest pair is a
discrete choice, and its distance is differentiable. Source: MuJoCo XML reference, "sensor/distance"; `mj_geomDistance`.
"""

import itertools
from collections import defaultdict
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.base.enums import GeomType, ObjType
from diffsim.geometry.colliders import (
    NEVER_COLLIDE,
    NO_DISTANCE,
    Types,
    distance_sizes,
    distances,
)
from diffsim.math.vector import scale
from diffsim.sensor.readings import Group, Ints, Readings
from diffsim.types import Topology
from diffsim.types.topology import per_topology, rows_of
from diffsim.xla.gather import pick


class Pairs(NamedTuple):
    """Pairs (n,) of geoms of two types, the smaller type first.

    Attributes:
      types: of the first and of the second geoms.
      geom1, geom2: (n,).
      flip: (n,) whether the sensor names them the other way round.
      sensor: (n,) the index in the group of the sensor that needs the pair.
    """

    types: Types
    geom1: Ints
    geom2: Ints
    flip: np.ndarray
    sensor: Ints


class Closest(NamedTuple):
    """The nearest points of the two objects of n sensors.

    Attributes:
      dist: (n,) m, signed distance; the cutoff if that is less.
      pos: (n, 3) m, midpoint.
      normal: (n, 3) unit, from the first object to the second.
      near: (n,) whether the objects are nearer than the cutoff.
    """

    dist: Array
    pos: Array
    normal: Array
    near: Array


def geom_distance(readings: Readings, group: Group) -> Array:
    """Signed distance, m, at most the cutoff, (n, 1)."""
    return _closest(readings, group).dist[:, None]


def geom_normal(readings: Readings, group: Group) -> Array:
    """Unit vector from the first object's nearest point to the second's, (n, 3); reversed if the objects overlap."""
    nearest = _closest(readings, group)
    sign = jnp.where(nearest.dist < 0, -1, 1).astype(nearest.pos.dtype)
    return jnp.where(nearest.near[:, None], scale(nearest.normal, sign), 0)


def geom_segment(readings: Readings, group: Group) -> Array:
    """The two nearest points, world, m, (n, 6)."""
    nearest = _closest(readings, group)
    half = scale(nearest.normal, nearest.dist / 2)
    points = jnp.concatenate([nearest.pos - half, nearest.pos + half], axis=1)
    return jnp.where(nearest.near[:, None], points, 0)


def unsupported_distance(topology: Topology, sensor: int) -> str:
    """Why a distance sensor cannot be evaluated; empty if it can."""
    first = _geoms(topology, topology.sensor_objtype[sensor], topology.sensor_objid[sensor])
    second = _geoms(topology, topology.sensor_reftype[sensor], topology.sensor_refid[sensor])
    types = {_types(topology, geom1, geom2) for geom1 in first for geom2 in second}
    return next((NO_DISTANCE[pair] for pair in sorted(types) if pair in NO_DISTANCE), "")


def _closest(readings: Readings, group: Group) -> Closest:
    """The nearest of all candidates of all pairs of geoms, for each sensor of a group."""
    model, data = readings.model, readings.data
    cutoff = pick(model.sensor_cutoff, group.sensors)
    rows, sensors = [], []
    objid, refid = tuple(group.objid.tolist()), tuple(group.refid.tolist())
    for pairs in _pairs(readings.topology, int(group.objtype), int(group.reftype), objid, refid):
        nearest = distances(model, data, pairs.types, (pairs.geom1, pairs.geom2), cutoff[pairs.sensor])
        sign = np.where(pairs.flip, -1.0, 1.0)[:, None, None]
        normal = nearest.normal * jnp.asarray(sign, nearest.normal.dtype)
        rows.append([part.reshape(-1, *part.shape[2:]) for part in (nearest.dist, nearest.pos, normal, nearest.valid)])
        sensors.append(np.repeat(pairs.sensor, nearest.dist.shape[1]))
    if not rows:
        nowhere = jnp.zeros((group.size, 3), cutoff.dtype)
        return Closest(cutoff, nowhere, nowhere, jnp.zeros(group.size, bool))
    dist, pos, normal, valid = (jnp.concatenate(columns) for columns in zip(*rows, strict=True))
    of_sensor = np.concatenate(sensors)[None] == np.arange(group.size)[:, None]
    counts = of_sensor & valid[None] & (dist[None] < cutoff[:, None])
    best = jnp.argmin(jnp.where(counts, jax.lax.stop_gradient(dist)[None], jnp.inf), axis=1)
    near = jnp.any(counts, axis=1)
    return Closest(jnp.where(near, dist[best], cutoff), pos[best], normal[best], near)


@per_topology
def _pairs(
    topology: Topology, objtype: int, reftype: int, objid: tuple[int, ...], refid: tuple[int, ...]
) -> list[Pairs]:
    """All pairs of geoms between the objects of n sensors, grouped by types and sizes of their data."""
    members: dict[tuple, list[tuple[int, int, bool, int]]] = defaultdict(list)
    for sensor, (obj, ref) in enumerate(zip(objid, refid, strict=True)):
        for geom1, geom2 in itertools.product(_geoms(topology, objtype, obj), _geoms(topology, reftype, ref)):
            flip = bool(topology.geom_type[geom1] > topology.geom_type[geom2])
            first, second = (geom2, geom1) if flip else (geom1, geom2)
            types = _types(topology, first, second)
            if types not in NEVER_COLLIDE:
                members[types, distance_sizes(topology, types, first, second)].append((first, second, flip, sensor))
    return [
        Pairs(types, *(np.array(column) for column in zip(*rows, strict=True))) for (types, _), rows in members.items()
    ]


def _types(topology: Topology, geom1: int, geom2: int) -> Types:
    """The types of two geoms, the smaller first."""
    first, second = sorted((topology.geom_type[geom1], topology.geom_type[geom2]))
    return GeomType(first), GeomType(second)


def _geoms(topology: Topology, objtype: int, index: int) -> list[int]:
    """The geoms of a geom or body."""
    if objtype == ObjType.GEOM:
        return [int(index)]
    return np.arange(topology.ngeom)[rows_of(topology, "body_geom", index)].tolist()
