"""Tactile sensor: the depth of each vertex of a mesh in the geoms that its body touches, and its sliding speed there.

The mesh is fixed to a geom. A vertex at depth d in the distance field of another geom gives the number -d / (c - d),
c = 5 cm, and, if the mesh has tangents (a builtin wedge or plate), the speeds |v . t| along both tangents. The numbers
are summed over all geoms that have a contact with anything welded to the sensor's body; meshes count if they have a
distance field. Since MuJoCo 3.9 the first number is d itself, and the largest of all geoms counts. The readings are
three runs, each over all vertices. As in MuJoCo, v is the velocity of the vertex minus the velocity of the center of
the other geom, and until 3.13 t are axes of the mesh, not turned with the geom. Depths and velocities are
differentiated; which geoms touch is discrete and has no derivative.
Source: MuJoCo XML reference, "sensor/tactile"; `tactile_taxel_batch` of engine_sensor.c (3.8.1).
"""

from collections import defaultdict
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.base.enums import GeomType
from diffsim.collision.pairs import candidate_pairs
from diffsim.geometry.sdf.data import field_function, field_parameters, parameter_axes
from diffsim.geometry.sdf.functions import FUNCTIONS, PRIMITIVES
from diffsim.geometry.sdf.octree import levels, octree_function, octrees
from diffsim.math import safe
from diffsim.math.rotation import quat_to_mat
from diffsim.math.spatial import transport_motion
from diffsim.math.vector import dot, mul_vec, mul_vec_t
from diffsim.sensor.readings import Group, Readings
from diffsim.types import Topology
from diffsim.types.hooks import Filter
from diffsim.types.topology import per_topology, rows_of
from diffsim.xla.gather import pick

CHANNELS = 3
# m, depth at which the number of a vertex would be infinite
DEEPEST = 0.05


class Partners(NamedTuple):
    """Geoms `geom` (p,), of one type and sort of field, that sensors `owner` (p,) of a group may touch."""

    kind: GeomType
    field: int
    geom: np.ndarray
    owner: np.ndarray


def tactile(readings: Readings, group: Group) -> Array:
    """Depths and slips of all vertices, (n, 3 * vertices); the group has one mesh."""
    topology, model, data = readings.topology, readings.model, readings.data
    mesh = int(group.objid[0])
    vertex = model.mesh_vert[rows_of(topology, "mesh_vert", mesh)]
    count = len(vertex)
    # normals of vertices (1, count, 3) and both tangents where it has them, in the frame in which the mesh is written;
    # since MuJoCo 3.13 (n, count, 3), in the world
    normals = model.mesh_normal[rows_of(topology, "mesh_normal", mesh)]
    written = mul_vec(quat_to_mat(model.mesh_quat[mesh])[None], normals)
    axes = [written[k::3][None] for k in range(3)] if len(normals) == CHANNELS * count else [written[None, :count]]

    weld = topology.body_weldid[topology.geom_bodyid[group.refid]]
    turn, place = pick(data.geom_xmat, group.refid)[:, None], pick(data.geom_xpos, group.refid)[:, None]
    world = mul_vec(turn, vertex[None]) + place
    if model.opt.follows("tactile_tangents") and len(axes) > 1:
        axes = [mul_vec(turn, normals[None, k::3]) for k in range(3)]
    total = jnp.zeros((group.size, CHANNELS, count), world.dtype)
    plain = model.opt.follows("tactile_depth")
    geoms = data.contact.geom
    settings = (model.opt.disableflags, model.hooks.contact_filter)
    sides = jnp.asarray(topology.body_weldid[topology.geom_bodyid])[geoms]
    near = jnp.all(geoms >= 0, axis=1) & (data.contact.dist <= data.contact.margin)
    for partners in _partners(topology, *settings, tuple(weld.tolist())):
        point, bodies = world[partners.owner], weld[partners.owner]
        # which partners have a contact with anything that is welded to the sensor's body
        meets = (sides[None] == bodies[:, None, None]) & (geoms[None, :, ::-1] == partners.geom[:, None, None])
        touching = jnp.any(meets & near[None, :, None], axis=(1, 2))
        depth = safe.minimum(_distances(readings, partners, point), 0)
        channels = [-depth if plain else depth / (DEEPEST - depth) * dot(axes[0], axes[0])]
        if len(axes) > 1:
            body = topology.geom_bodyid[partners.geom]
            arm = point - pick(data.subtree_com, topology.body_rootid[bodies])[:, None]
            motion = jnp.broadcast_to(pick(data.cvel, bodies)[:, None], (*arm.shape[:2], 6))
            other = pick(data.geom_xpos, partners.geom) - pick(data.subtree_com, topology.body_rootid[body])
            resting = transport_motion(pick(data.cvel, body), other)[:, None]
            sliding = (transport_motion(motion, arm) - resting)[..., 3:]
            along = [axis[partners.owner] if len(axis) == group.size else axis for axis in axes[1:]]
            channels += [jnp.abs(dot(sliding, tangent)) for tangent in along]
        inside = (touching[:, None] & (depth < 0))[:, None]
        felt = jnp.where(inside, jnp.stack(channels, axis=1), 0)
        if plain:
            total = total.at[partners.owner, 0].max(felt[:, 0])
            total = total.at[partners.owner, 1 : len(axes)].add(felt[:, 1:])
        else:
            total = total.at[partners.owner, : len(axes)].add(felt)
    return total.reshape(group.size, -1)


def unsupported_tactile(topology: Topology, sensor: int) -> str:
    """Why a tactile sensor cannot be evaluated; empty if it can."""
    body = topology.geom_bodyid[topology.sensor_refid[sensor]]
    partners = _partners(topology, 0, None, (int(topology.body_weldid[body]),))
    fields = any(one.kind == GeomType.HFIELD for one in partners)
    return "its body may touch a height field, where depth is not defined; MuJoCo exits with an error" if fields else ""


@per_topology
def _partners(
    topology: Topology, disableflags: int, contact_filter: Filter | None, weld: tuple[int, ...]
) -> list[Partners]:
    """What n sensors may touch, whose geoms are welded to the bodies `weld`; meshes without a field do not count."""
    pairs = candidate_pairs(topology, disableflags, contact_filter)
    members: dict[tuple[GeomType, int], set[tuple[int, int]]] = defaultdict(set)
    for ends in ((pairs.geom1, pairs.geom2), (pairs.geom2, pairs.geom1)):
        of_body = topology.body_weldid[topology.geom_bodyid[ends[0]]]
        for owner, body in enumerate(weld):
            for geom in np.unique(ends[1][of_body == body]).tolist():
                kind = GeomType(topology.geom_type[geom])
                mesh = topology.geom_dataid[geom]
                if kind != GeomType.MESH or topology.mesh_octadr[mesh] >= 0:
                    members[kind, int(topology.geom_sdf[geom])].add((geom, owner))
    return [Partners(*key, *np.array(sorted(rows)).T) for key, rows in sorted(members.items())]


def _distances(readings: Readings, partners: Partners, world: Array) -> Array:
    """(p, vertices) signed distances of points (p, vertices, 3) from the partners, m."""
    model, data, topology = readings.model, readings.data, readings.topology
    turn, place = pick(data.geom_xmat, partners.geom)[:, None], pick(data.geom_xpos, partners.geom)[:, None]
    point = mul_vec_t(turn, world - place)
    if partners.kind == GeomType.PLANE:
        return point[..., 2]
    if partners.kind in PRIMITIVES:
        return jax.vmap(PRIMITIVES[partners.kind].distance)(pick(model.geom_size, partners.geom), point)
    if partners.kind == GeomType.MESH:
        parameters = octrees(model, partners.geom)
        distance = octree_function(levels(topology)).distance
    else:
        parameters = field_parameters(model, partners.geom, partners.field)
        distance = field_function(model, partners.field).distance
        if topology.sdf_names[partners.field] in FUNCTIONS:
            # MuJoCo's functions are of points in the frame in which the mesh is written
            mesh = topology.geom_dataid[partners.geom]
            written = quat_to_mat(pick(model.mesh_quat, mesh))[:, None]
            point = mul_vec(written, point) + pick(model.mesh_pos, mesh)[:, None]
    return jax.vmap(distance, (parameter_axes(parameters), 0))(parameters, point)
