"""Tendon lengths and moment arms.

A fixed tendon is a linear function of scalar joints. A spatial tendon is a path through sites, perhaps around spheres
and cylinders (wrap.py), each part divided by its pulley. Its moment arms are those of unit forces along the straight
parts, at both of their ends: the parts on a surface do no work. Source: MuJoCo documentation, "Modeling", "Tendon".
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.enums import WrapType
from diffsim.math import safe
from diffsim.math.linalg import matmul
from diffsim.math.spatial import join
from diffsim.math.vector import cross, dot, scale
from diffsim.physics.tree import body_dof_mask, sum_chain
from diffsim.physics.wrap import wrap
from diffsim.types.data import ComFrame, Kinematics, Tendons, Velocities
from diffsim.types.model import Model
from diffsim.types.topology import Topology, per_topology

Array = jax.Array


def tendons(model: Model, qpos: Array, kinematics: Kinematics, com: ComFrame) -> Tendons:
    """ten_length (ntendon,) and ten_J (ntendon, nv) from qpos (nq,) and poses."""
    topology = model.topology
    wraps, owner, joints = _joint_wraps(topology)
    coefficient = model.wrap_prm[wraps]
    shape = (topology.ntendon, topology.nq), (topology.ntendon, topology.nv)
    by_qpos = jnp.zeros(shape[0], qpos.dtype).at[owner, topology.jnt_qposadr[joints]].add(coefficient)
    by_dof = jnp.zeros(shape[1], qpos.dtype).at[owner, topology.jnt_dofadr[joints]].add(coefficient)
    length = matmul(by_qpos, qpos)
    for path, parts in zip(spatial_paths(topology), (_straight, _wrapped), strict=True):
        if path.tendon.size:
            lengths, lines = parts(model, kinematics)
            length = length + _by_tendon(topology, path.tendon, lengths)
            for line in lines:
                by_dof = by_dof + _moments(model, com, line)
    return Tendons(ten_length=length, ten_J=by_dof)


@dataclasses.dataclass(frozen=True)
class Path:
    """Parts of spatial tendons between two sites: tendon, sites, and the path element of the pulley before (or -1).

    For parts around a geom: the geom, whether it is a sphere, and the geom's own path element.
    """

    tendon: np.ndarray
    first: np.ndarray
    last: np.ndarray
    pulley: np.ndarray
    geom: np.ndarray
    sphere: np.ndarray
    element: np.ndarray


@dataclasses.dataclass(frozen=True)
class Lines:
    """Straight parts (n): tendon, bodies at both ends, points (n, 3), and the share of the tendon's force (n,)."""

    tendon: np.ndarray
    bodies: tuple[np.ndarray, np.ndarray]
    points: tuple[Array, Array]
    weight: Array


@per_topology
def _joint_wraps(topology: Topology) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Path elements of fixed tendons: their ids, tendons and joints."""
    owner = np.repeat(np.arange(topology.ntendon), topology.tendon_num)
    wraps = np.flatnonzero(topology.wrap_type == WrapType.JOINT)
    return wraps, owner[wraps], topology.wrap_objid[wraps]


@per_topology
def spatial_paths(topology: Topology) -> tuple[Path, Path]:
    """The parts of all spatial tendons: straight ones, and those around a geom."""
    kinds, objects = topology.wrap_type, topology.wrap_objid
    parts: tuple[list, list] = ([], [])
    for tendon in range(topology.ntendon):
        start = topology.tendon_adr[tendon]
        end = start + topology.tendon_num[tendon]
        pulley, site, around = -1, -1, -1
        for element in range(start, end):
            kind = kinds[element]
            if kind == WrapType.PULLEY:
                # the path begins anew
                pulley, site, around = element, -1, -1
            elif kind in (WrapType.SPHERE, WrapType.CYLINDER):
                around = element
            elif kind == WrapType.SITE:
                if site >= 0:
                    geom = objects[around] if around >= 0 else -1
                    sphere = around >= 0 and kinds[around] == WrapType.SPHERE
                    row = (tendon, site, objects[element], pulley, geom, sphere, around)
                    parts[around >= 0].append(row)
                site, around = objects[element], -1
    straight, wrapped = (np.array(rows, dtype=np.int32).reshape(-1, 7).T for rows in parts)
    return Path(*straight), Path(*wrapped)


def _weights(model: Model, path: Path) -> Array:
    """(n,) one over the divisor of the pulley before each part."""
    divisor = jnp.where(path.pulley >= 0, model.wrap_prm[np.maximum(path.pulley, 0)], 1)
    return safe.divide(jnp.ones_like(divisor), divisor)


def _straight(model: Model, kinematics: Kinematics) -> tuple[Array, list[Lines]]:
    """Lengths of the parts between two sites, and these parts as lines."""
    path, _ = spatial_paths(model.topology)
    weight = _weights(model, path)
    line = _between_sites(model.topology, kinematics, path, weight)
    return safe.norm(line.points[1] - line.points[0]) * weight, [line]


def _between_sites(topology: Topology, kinematics: Kinematics, path: Path, weight: Array) -> Lines:
    points = kinematics.site_xpos[path.first], kinematics.site_xpos[path.last]
    bodies = topology.site_bodyid[path.first], topology.site_bodyid[path.last]
    return Lines(path.tendon, bodies, points, weight)


def _wrapped(model: Model, kinematics: Kinematics) -> tuple[Array, list[Lines]]:
    """Lengths of the parts around a geom, and the lines from site to site, to the geom, and from the geom.

    The first has no weight where the part touches the geom, the other two where it does not.
    """
    topology = model.topology
    _, path = spatial_paths(topology)
    weight = _weights(model, path)
    direct = _between_sites(topology, kinematics, path, weight)
    start, end = direct.points
    side = jnp.round(model.wrap_prm[path.element]).astype(jnp.int32)
    touch = jax.vmap(wrap)(
        jnp.stack([start, end], axis=1),
        kinematics.geom_xpos[path.geom],
        kinematics.geom_xmat[path.geom],
        model.geom_size[path.geom, 0],
        jnp.asarray(path.sphere != 0),
        kinematics.site_xpos[jnp.maximum(side, 0)],
        side >= 0,
    )
    around = safe.norm(touch.first - start) + touch.length + safe.norm(end - touch.last)
    length = jnp.where(touch.active, around, safe.norm(end - start)) * weight
    on_geom, (from_body, to_body) = topology.geom_bodyid[path.geom], direct.bodies
    used, unused = jnp.where(touch.active, weight, 0), jnp.where(touch.active, 0, weight)
    return length, [
        dataclasses.replace(direct, weight=unused),
        Lines(path.tendon, (from_body, on_geom), (start, touch.first), used),
        Lines(path.tendon, (on_geom, to_body), (touch.last, end), used),
    ]


def _by_tendon(topology: Topology, tendon: np.ndarray, values: Array) -> Array:
    """(ntendon, ...) sums of the values (n, ...) of parts."""
    owner = np.arange(topology.ntendon)[:, None] == tendon[None]
    return matmul(jnp.asarray(owner, values.dtype), values)


def _moments(model: Model, com: ComFrame, line: Lines) -> Array:
    """(ntendon, nv) moment arms of straight parts: unit forces along them, apart at both ends."""
    topology = model.topology
    pull = scale(safe.normalize(line.points[1] - line.points[0], (0.0, 0.0, 1.0)), line.weight)
    rows = jnp.zeros((len(line.tendon), topology.nv), pull.dtype)
    for body, point, force in zip(line.bodies, line.points, (-pull, pull), strict=True):
        offset = point - com.subtree_com[topology.body_rootid[body]]
        wrench = join(cross(offset, force), force)
        rows = rows + jnp.where(body_dof_mask(topology)[body], matmul(wrench, com.cdof.T), 0)
    return _by_tendon(topology, line.tendon, rows)


def tendon_drift(model: Model, qvel: Array, kinematics: Kinematics, com: ComFrame, velocities: Velocities) -> Array:
    """(ntendon,) what tendon velocities change by per second at constant qvel: (d ten_J / dt) qvel.

    Only for parts between two sites; tendons with armature cannot wrap.
    """
    topology = model.topology
    path, _ = spatial_paths(topology)
    line = _between_sites(topology, kinematics, path, _weights(model, path))
    acceleration = sum_chain(topology, scale(velocities.cdof_dot, qvel))
    motions = [
        _point_motion(topology, com, velocities.cvel, acceleration, body, point)
        for body, point in zip(line.bodies, line.points, strict=True)
    ]
    velocity, rate = (after - before for before, after in zip(*motions, strict=True))
    gap = line.points[1] - line.points[0]
    along = safe.normalize(gap, (0.0, 0.0, 1.0))
    across = velocity - scale(along, dot(along, velocity))
    turning = safe.divide(dot(across, across), safe.norm(gap))
    return _by_tendon(topology, line.tendon, (dot(along, rate) + turning) * line.weight)


def _point_motion(
    topology: Topology, com: ComFrame, cvel: Array, cacc: Array, body: np.ndarray, point: Array
) -> tuple[Array, Array]:
    """Velocity and acceleration (n, 3) of points fixed to bodies, at the given body velocities and accelerations."""
    offset = point - com.subtree_com[topology.body_rootid[body]]
    angular, linear = cvel[body, :3], cvel[body, 3:]
    velocity = linear + cross(angular, offset)
    return velocity, cacc[body, 3:] + cross(cacc[body, :3], offset) + cross(angular, velocity)
