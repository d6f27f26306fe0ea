"""Touch: the normal force on a site's body that passes through the site's volume.

A contact counts if its force, as a half line from the contact point into the sensing body's surroundings, meets the
volume (or starts in it). Which contacts count is discrete and not differentiated; the forces are.
Source: MuJoCo XML reference, "sensor/touch".
"""

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.enums import GeomType
from diffsim.math.vector import mul_vec_t, scale
from diffsim.sensor.ray import SHAPES
from diffsim.sensor.readings import Group, Readings, take

Array = jax.Array


def touch(readings: Readings, group: Group) -> Array:
    """Sum of the normal forces of the contacts in the zone, N, (n, 1)."""
    force = readings.contact_force[:, 0]
    counts = jax.lax.stop_gradient(_in_zone(readings, group)) & (force > 0)[None]
    return jnp.sum(jnp.where(counts, force[None], 0), axis=1)[:, None]


def _in_zone(readings: Readings, group: Group) -> Array:
    """(n, ncon): whether the contact is on the site's body and its force ray meets the site."""
    topology, data, contacts = readings.topology, readings.data, readings.data.contact
    body = topology.site_bodyid[group.objid][:, None]
    touching = contact_bodies(readings)
    second = touching[None, :, 1] == body
    on_body = second | (touching[None, :, 0] == body)
    # the contact normal leads from geom1 to geom2
    normal = contacts.frame[None, :, 0]
    ray = scale(jnp.broadcast_to(normal, (*second.shape, 3)), jnp.where(second, -1, 1).astype(normal.dtype))
    matrix = take(data.site_xmat, group.objid)[:, None]
    offset = contacts.pos[None] - take(data.site_xpos, group.objid)[:, None]
    size = jnp.broadcast_to(take(readings.model.site_size, group.objid)[:, None], offset.shape)
    shape = SHAPES[GeomType(topology.site_type[group.objid[0]])]
    return on_body & (shape.distance(size, mul_vec_t(matrix, offset), mul_vec_t(matrix, ray)) >= 0)


def contact_bodies(readings: Readings) -> Array:
    """The two bodies of every contact slot, (ncon, 2); -1 in unused slots."""
    geom = readings.data.contact.geom
    body = jnp.asarray(np.asarray(readings.topology.geom_bodyid), geom.dtype)
    return jnp.where(geom >= 0, body[jnp.maximum(geom, 0)], -1)
