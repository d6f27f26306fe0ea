"""Distance sensors: how far two geoms, or the geoms of two bodies, are apart, and the segment between them.

Only distances below the sensor's cutoff count; where there is none, the distance is the cutoff, normal and segment are
zero. The pair functions are those of collisions, with true signed distances also when geoms are apart; pairs that
MuJoCo gives to its convex collider use the direction of greatest separation. The nearest pair is a discrete choice,
its distance is differentiable. Source: MuJoCo XML reference, "sensor/distance"; `mj_geomDistance`.
"""

from collections import defaultdict
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.base.enums import GeomType, ObjType
from diffsim.geometry.colliders import (
    NEVER_COLLIDE,
    NO_DISTANCE,
    Bucket,
    Collider,
    distance_collider,
    distance_sizes,
    gather,
    look,
    pair_bucket,
    row_axes,
)
from diffsim.math.vector import scale
from diffsim.sensor.readings import Group, Ints, Readings
from diffsim.types import Topology
from diffsim.types.topology import per_topology
from diffsim.xla.gather import pick

Array = jax.Array


class Pairs(NamedTuple):
    """Pairs of geoms of two types, the smaller type first; `flip` where the sensor names them the other way round.

    `buckets`: where the data of the first and the second geoms are.
    """

    collider: Collider
    buckets: tuple[Bucket | None, Bucket | None]
    geom1: Ints
    geom2: Ints
    flip: np.ndarray
    owner: Ints


class Closest(NamedTuple):
    """For n sensors: signed distance (n,), midpoint and unit normal from the first object (n, 3), and if any counts."""

    dist: Array
    pos: Array
    normal: Array
    near: Array


def geom_distance(readings: Readings, group: Group) -> Array:
    """Signed distance, m, at most the cutoff, (n, 1)."""
    return _closest(readings, group).dist[:, None]


def geom_normal(readings: Readings, group: Group) -> Array:
    """Unit vector from the first object's nearest point to the second's, (n, 3); it turns round in penetration."""
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
    kinds = {_kinds(topology, one, other) for one in first for other in second}
    return next((NO_DISTANCE[pair] for pair in sorted(kinds) if pair in NO_DISTANCE), "")


def _closest(readings: Readings, group: Group) -> Closest:
    model, data = readings.model, readings.data
    cutoff = pick(model.sensor_cutoff, group.sensors)
    rows, owners = [], []
    ends = (tuple(group.objid.tolist()), tuple(group.refid.tolist()))
    for pairs in _pairs(readings.topology, int(group.objtype), int(group.reftype), *ends):
        ends = zip((pairs.geom1, pairs.geom2), pairs.buckets, strict=True)
        first, second = (gather(model, data, *end) for end in ends)
        axes = [row_axes(*end) for end in zip((first, second), pairs.buckets, strict=True)]
        nearest = jax.vmap(pairs.collider.function, (*axes, 0))(first, second, cutoff[pairs.owner])
        sign = np.where(pairs.flip, -1.0, 1.0)[:, None, None]
        normal = nearest.normal * jnp.asarray(sign, nearest.normal.dtype)
        rows.append([part.reshape(-1, *part.shape[2:]) for part in (nearest.dist, nearest.pos, normal, nearest.valid)])
        owners.append(np.repeat(pairs.owner, nearest.dist.shape[1]))
    if not rows:
        nowhere = jnp.zeros((group.size, 3), cutoff.dtype)
        return Closest(cutoff, nowhere, nowhere, jnp.zeros(group.size, bool))
    dist, pos, normal, valid = (jnp.concatenate(columns) for columns in zip(*rows, strict=True))
    owns = np.concatenate(owners)[None] == np.arange(group.size)[:, None]
    counts = owns & valid[None] & (dist[None] < cutoff[:, None])
    best = jnp.argmin(jnp.where(counts, jax.lax.stop_gradient(dist)[None], jnp.inf), axis=1)
    near = jnp.any(counts, axis=1)
    return Closest(jnp.where(near, dist[best], cutoff), pos[best], normal[best], near)


@per_topology
def _pairs(
    topology: Topology, objtype: int, reftype: int, objid: tuple[int, ...], refid: tuple[int, ...]
) -> list[Pairs]:
    """All pairs of geoms between the objects of n sensors, grouped by types and sizes of their data."""
    members: dict[tuple, list[tuple[int, int, bool, int]]] = defaultdict(list)
    for owner, ends in enumerate(zip(objid, refid, strict=True)):
        for one in _geoms(topology, objtype, ends[0]):
            for other in _geoms(topology, reftype, ends[1]):
                flip = bool(topology.geom_type[one] > topology.geom_type[other])
                row = (other, one, flip, owner) if flip else (one, other, flip, owner)
                kinds = _kinds(topology, one, other)
                if kinds not in NEVER_COLLIDE:
                    sizes = distance_sizes(topology, kinds, *(look(topology, geom) for geom in row[:2]))
                    members[kinds, sizes].append(row)
    pairs = []
    for (kinds, sizes), rows in members.items():
        first, second = (pair_bucket(topology, kinds, end, sizes[end]) for end in (0, 1))
        columns = (np.array(column) for column in zip(*rows, strict=True))
        pairs.append(Pairs(distance_collider(kinds), (first, second), *columns))
    return pairs


def _kinds(topology: Topology, one: int, other: int) -> tuple[GeomType, GeomType]:
    first, second = sorted((topology.geom_type[one], topology.geom_type[other]))
    return GeomType(first), GeomType(second)


def _geoms(topology: Topology, objtype: int, index: int) -> list[int]:
    """The geoms of a geom or body."""
    if objtype == ObjType.GEOM:
        return [int(index)]
    start = int(topology.body_geomadr[index])
    return list(range(start, start + int(topology.body_geomnum[index])))
