"""Touch: the normal force on a site's body that passes through the site's volume.

A contact counts if its force, as a half line from the contact point into the sensing body's surroundings, meets the
volume (or starts in it). Which contacts count is discrete and not differentiated; the forces are.
Source: MuJoCo XML reference, "sensor/touch".
"""

import jax
import jax.numpy as jnp

from diffsim.base.enums import GeomType
from diffsim.geometry.rays.surfaces import SURFACES
from diffsim.math.vector import mul_vec_t, scale
from diffsim.sensor.readings import Group, Ints, Readings
from diffsim.types import Topology
from diffsim.xla.pick import pick

Array = jax.Array


def touch(readings: Readings, group: Group) -> Array:
    """Sum of the normal forces of the contacts in the zone, N, (n, 1)."""
    force = readings.contact_force[:, 0]
    counts = jax.lax.stop_gradient(_in_zone(readings, group)) & (force > 0)[None]
    return jnp.sum(jnp.where(counts, force[None], 0), axis=1)[:, None]


def _in_zone(readings: Readings, group: Group) -> Array:
    """(n, ncon): whether the contact is on the site's body and its force ray meets the site."""
    topology, data, contacts = readings.topology, readings.data, readings.data.contact
    touching = on_body(topology, contacts.geom, topology.site_bodyid[group.objid])
    second = touching[:, :, 1]
    # the contact normal leads from geom1 to geom2
    normal = contacts.frame[None, :, 0]
    ray = scale(jnp.broadcast_to(normal, (*second.shape, 3)), jnp.where(second, -1, 1).astype(normal.dtype))
    matrix = pick(data.site_xmat, group.objid)[:, None]
    offset = contacts.pos[None] - pick(data.site_xpos, group.objid)[:, None]
    size = jnp.broadcast_to(pick(readings.model.site_size, group.objid)[:, None], offset.shape)
    surface = SURFACES[GeomType(topology.site_type[group.objid[0]])]
    return (touching[:, :, 0] | second) & (
        surface.distance(size, mul_vec_t(matrix, offset), mul_vec_t(matrix, ray)) >= 0
    )


def on_body(topology: Topology, geom: Array, body: Ints) -> Array:
    """(n, ncon, 2): whether contact geoms (ncon, 2) belong to n bodies, whose geoms are a run of indices."""
    start = topology.body_geomadr[body].reshape(-1, 1, 1)
    stop = start + topology.body_geomnum[body].reshape(-1, 1, 1)
    return (geom[None] >= start) & (geom[None] < stop)
