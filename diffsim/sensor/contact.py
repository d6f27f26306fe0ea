"""Sensors of contacts and volumes: contact, touch, insidesite.

Contacts that match the two criteria of a contact sensor are reduced to a fixed number of slots: the first, the nearest,
the strongest, or one net force. Contacts are taken in MuJoCo's order, by bodies and geoms, which also decides between
contacts of equal distance or force; unused slots are zero. All contacts within the margin count (`dist <= margin`);
contacts in a gap have no force.

Touch reads the normal force on a site's body that passes through the site's volume. A contact counts if
the half line from the contact point along the normal, away from the sensing body, meets the volume or starts in it.
Forces are differentiated. Which contacts count, and whether an object is inside a volume, are discrete and have no
derivative.
Source: MuJoCo XML reference, "sensor/contact", "sensor/touch", "sensor/insidesite".
"""

import jax
import jax.numpy as jnp
from jax import Array

from diffsim.base.enums import MINVAL, ConDataField, GeomType, ObjType
from diffsim.geometry.rays.surfaces import SURFACES
from diffsim.kinematics.tree import body_mask
from diffsim.math import safe
from diffsim.math.vector import cross, dot, mul_vec_t, pack, scale
from diffsim.sensor.frame import position
from diffsim.sensor.readings import Group, Ints, Readings
from diffsim.types import Topology
from diffsim.xla.gather import pick


def _in_capsule(size: Array, point: Array) -> Array:
    beyond = jnp.maximum(jnp.abs(point[..., 2]) - size[..., 1], 0)
    return dot(point[..., :2], point[..., :2]) + beyond * beyond < size[..., 0] * size[..., 0]


def _in_cylinder(size: Array, point: Array) -> Array:
    round_part = dot(point[..., :2], point[..., :2]) < size[..., 0] * size[..., 0]
    return round_part & (jnp.abs(point[..., 2]) < size[..., 1])


# point in the shape's frame -> whether it is strictly inside
INSIDE = {
    GeomType.PLANE: lambda size, point: point[..., 2] < 0,
    GeomType.SPHERE: lambda size, point: dot(point, point) < size[..., 0] * size[..., 0],
    GeomType.CAPSULE: _in_capsule,
    GeomType.ELLIPSOID: lambda size, point: dot(point / size, point / size) < 1,
    GeomType.CYLINDER: _in_cylinder,
    GeomType.BOX: lambda size, point: jnp.all(jnp.abs(point) < size, axis=-1),
}


def inside_site(readings: Readings, group: Group) -> Array:
    """1 where the object's origin is inside the reference site, (n, 1).

    For a massless body with a massive subtree, the point is the subtree's centre of mass.
    """
    point = position(readings, group.objtype, group.objid)
    if group.objtype == ObjType.BODY:
        model = readings.model
        hollow = (pick(model.body_mass, group.objid) < MINVAL) & (group.objid > 0)
        hollow &= pick(model.body_subtreemass, group.objid) >= MINVAL
        point = jnp.where(hollow[:, None], pick(readings.data.subtree_com, group.objid), point)
    return in_site(readings, group.refid, point[:, None]).astype(point.dtype)


def in_site(readings: Readings, site: Ints, point: Array) -> Array:
    """Whether k world points each, (n, k, 3), are inside the volumes of n sites of one type, (n, k)."""
    offset = jax.lax.stop_gradient(point - pick(readings.data.site_xpos, site)[:, None])
    local = mul_vec_t(pick(readings.data.site_xmat, site)[:, None], offset)
    size = jnp.broadcast_to(pick(readings.model.site_size, site)[:, None], local.shape)
    return INSIDE[GeomType(readings.topology.site_type[site[0]])](size, local)


def touch(readings: Readings, group: Group) -> Array:
    """Sum of the normal forces, N, (n, 1), of contacts on the site's body whose force ray meets the site."""
    topology = readings.topology
    data = readings.data
    contacts = readings.data.contact
    touching = on_body(topology, contacts.geom, topology.site_bodyid[group.objid])
    second = touching[:, :, 1]
    # the contact normal leads from geom1 to geom2
    normal = contacts.frame[None, :, 0]
    ray = scale(jnp.broadcast_to(normal, (*second.shape, 3)), jnp.where(second, -1, 1).astype(normal.dtype))
    matrix = pick(data.site_xmat, group.objid)[:, None]
    offset = contacts.pos[None] - pick(data.site_xpos, group.objid)[:, None]
    size = jnp.broadcast_to(pick(readings.model.site_size, group.objid)[:, None], offset.shape)
    surface = SURFACES[GeomType(topology.site_type[group.objid[0]])]
    meets = surface.distance(size, mul_vec_t(matrix, offset), mul_vec_t(matrix, ray)) >= 0
    force = readings.contact_force[:, 0]
    counts = jax.lax.stop_gradient((touching[:, :, 0] | second) & meets) & (force > 0)[None]
    return jnp.sum(jnp.where(counts, force[None], 0), axis=1)[:, None]


def on_body(topology: Topology, geom: Array, body: Ints) -> Array:
    """(n, ncon, 2): whether contact geoms (ncon, 2) belong to n bodies, whose geoms are a run of indices."""
    start = topology.body_geomadr[body].reshape(-1, 1, 1)
    stop = start + topology.body_geomnum[body].reshape(-1, 1, 1)
    return (geom[None] >= start) & (geom[None] < stop)


FIRST, MINDIST, MAXFORCE, NETFORCE = range(4)
# numbers in a slot by data field
WIDTH = {field: 1 if field in (ConDataField.FOUND, ConDataField.DIST) else 3 for field in ConDataField}


def contact(readings: Readings, group: Group) -> Array:
    """All slots of all sensors, m, N and N m, (n, slots * fields).

    Forces and torques are in the frame of the contact, or, for a net force, in the world.
    """
    sign = _direction(readings, group)
    reduction = group.parameters[1]
    values = _net_force(readings, sign) if reduction == NETFORCE else _selected(readings, group, sign)
    wanted = [values[field] for field in ConDataField if group.parameters[0] & (1 << field)]
    slots = jnp.concatenate(wanted, axis=-1).reshape(group.size, -1)
    # a reduction to one slot leaves the others empty
    return jnp.pad(slots, ((0, 0), (0, group.dim - slots.shape[1])))


def _direction(readings: Readings, group: Group) -> Array:
    """(n, ncon): 1 for a match, -1 for a match with the objects in the other order, 0 for none."""
    contacts = readings.data.contact
    matches = jnp.broadcast_to((contacts.dist <= contacts.margin)[None], (group.size, len(contacts.dist)))
    if group.objtype == ObjType.SITE:
        point = jnp.broadcast_to(contacts.pos[None], (group.size, *contacts.pos.shape))
        matches &= in_site(readings, group.objid, point)
    first = _involved(readings, group.objtype, group.objid)
    second = _involved(readings, group.reftype, group.refid)
    matches &= jnp.any(first, axis=-1) & jnp.any(second, axis=-1)
    if group.objtype != ObjType.UNKNOWN and group.reftype != ObjType.UNKNOWN:
        regular = first[..., 0] & second[..., 1]
        reverse = first[..., 1] & second[..., 0]
        matches &= regular | reverse
    elif group.objtype != ObjType.UNKNOWN:
        regular = first[..., 0]
    else:
        regular = second[..., 1]
    return jnp.where(matches, jnp.where(regular, 1, -1), 0)


def _involved(readings: Readings, kind: ObjType, objid: Ints) -> Array:
    """(n, ncon, 2): whether the object has a part in each side of each contact."""
    geom = readings.data.contact.geom[None]
    wanted = objid.reshape(-1, 1, 1)
    if kind == ObjType.GEOM:
        return geom == wanted
    if kind == ObjType.BODY:
        return on_body(readings.topology, geom[0], objid)
    if kind == ObjType.XBODY:
        below = body_mask(readings.topology).T[objid][:, readings.topology.geom_bodyid]
        return jnp.take(jnp.asarray(below), jnp.maximum(geom[0], 0), axis=1) & (geom >= 0)
    return jnp.ones((len(objid), *geom.shape[1:]), bool)


def _selected(readings: Readings, group: Group, sign: Array) -> dict[ConDataField, Array]:
    """Fields (n, slots, width) of the contacts that a reduction keeps."""
    contacts = readings.data.contact
    force = readings.contact_force
    count = len(contacts.dist)
    slots = group.dim // sum(WIDTH[field] for field in ConDataField if group.parameters[0] & (1 << field))
    dtype = force.dtype
    # argsort and top_k are stable: contacts with equal values stay in MuJoCo's order
    order = jnp.argsort(contacts.sort_key)
    value = {
        FIRST: jnp.zeros_like(contacts.dist),
        MINDIST: -contacts.dist,
        MAXFORCE: dot(force, force),
    }[group.parameters[1]]
    better = jnp.where(sign != 0, jax.lax.stop_gradient(value)[None], -jnp.inf)
    kept = order[jax.lax.top_k(better[:, order], min(slots, count))[1]]
    facing = jnp.take_along_axis(sign, kept, 1)[..., None].astype(dtype)
    filled = facing != 0
    # turning the normal round is half a turn about the second tangent
    ones = jnp.ones_like(facing)
    turn = jnp.concatenate([ones, ones, facing], axis=-1)
    number = jnp.sum(sign != 0, axis=1).astype(dtype)[:, None, None]
    values = {
        ConDataField.FOUND: jnp.broadcast_to(number, filled.shape),
        ConDataField.FORCE: force[kept, :3] * turn,
        ConDataField.TORQUE: force[kept, 3:] * turn,
        ConDataField.DIST: contacts.dist[kept][..., None],
        ConDataField.POS: contacts.pos[kept],
        ConDataField.NORMAL: contacts.frame[kept, 0] * facing,
        ConDataField.TANGENT: contacts.frame[kept, 1] * facing,
    }
    return {field: jnp.where(filled, value, 0) for field, value in values.items()}


def _net_force(readings: Readings, sign: Array) -> dict[ConDataField, Array]:
    """Fields (n, 1, width) of the total force and torque in world axes, at the force-weighted mean position."""
    contacts, dtype = readings.data.contact, readings.contact_force.dtype
    facing = sign.astype(dtype)[..., None]
    force = mul_vec_t(contacts.frame, readings.contact_force[:, :3])[None] * facing
    torque = mul_vec_t(contacts.frame, readings.contact_force[:, 3:])[None] * facing
    place = jnp.broadcast_to(contacts.pos[None], force.shape)
    weight = safe.norm(force)
    total = safe.maximum(jnp.sum(weight, axis=1), MINVAL)
    point = scale(jnp.sum(scale(place, weight), axis=1), 1 / total)[:, None]
    moment = jnp.sum(torque + cross(place - point, force), axis=1)[:, None]
    zero, one = jnp.zeros_like(total)[:, None], jnp.ones_like(total)[:, None]
    return {
        ConDataField.FOUND: jnp.sum(sign != 0, axis=1).astype(dtype)[:, None, None],
        ConDataField.FORCE: jnp.sum(force, axis=1)[:, None],
        ConDataField.TORQUE: moment,
        ConDataField.DIST: zero[..., None],
        ConDataField.POS: point,
        ConDataField.NORMAL: pack([one, zero, zero]),
        ConDataField.TANGENT: pack([zero, one, zero]),
    }
