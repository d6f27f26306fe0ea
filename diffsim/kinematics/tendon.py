"""Tendon lengths and moment arms, and the points of tendon paths.

The length of a fixed tendon is a linear function of scalar joints. A spatial tendon is a path through sites, which may
go around spheres and cylinders (wrap.py); the length of each part is divided by the divisor of its pulley. Moment arms
are the generalized forces of unit forces at both ends of each straight part. Parts on a surface need none, because they
do no work. For drawing, `tendon_points` lists paths as MuJoCo does (wrap_xpos, wrap_obj): the sites, and two points on
the surface of each geom that the tendon touches; a pulley has a row without a point. Source: MuJoCo documentation,
"Modeling", "Tendon"; mj_tendon.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.base.enums import WrapType
from diffsim.kinematics.jacobian import MotionAxes, motion_axes, wrench_along, wrench_rows
from diffsim.kinematics.poses import geom_frames
from diffsim.kinematics.tree import body_dof_mask, sum_chain
from diffsim.kinematics.wrap import Wrap, wrap
from diffsim.math import safe
from diffsim.math.vector import cross, dot, matmul, scale
from diffsim.types.data import ComFrame, Kinematics, Tendons, Velocities
from diffsim.types.model import Model
from diffsim.types.topology import Topology, per_topology
from diffsim.xla.gather import pick


def _tendon_of_element(topology: Topology) -> np.ndarray:
    """(nwrap,) the tendon to which each path element belongs."""
    return np.repeat(np.arange(topology.ntendon), topology.tendon_num)


def compute_tendons(model: Model, qpos: Array, kinematics: Kinematics, com: ComFrame) -> Tendons:
    """ten_length (ntendon,), in m, or rad for fixed tendons of hinges, and ten_J (ntendon, nv), its derivative."""
    topology = model.topology
    # path elements of fixed tendons, their tendons and joints
    wraps = np.flatnonzero(topology.wrap_type == WrapType.JOINT)
    owner = _tendon_of_element(topology)[wraps]
    joints = topology.wrap_objid[wraps]
    coefficient = model.wrap_prm[wraps]
    by_qpos = jnp.zeros((topology.ntendon, topology.nq), qpos.dtype)
    by_qpos = by_qpos.at[owner, topology.jnt_qposadr[joints]].add(coefficient)
    by_dof = jnp.zeros((topology.ntendon, topology.nv), qpos.dtype)
    by_dof = by_dof.at[owner, topology.jnt_dofadr[joints]].add(coefficient)
    length = matmul(by_qpos, qpos)
    for path in spatial_paths(topology):
        moments = _straight if path.geom is None else _wrapped
        lengths, rows = moments(model, kinematics, motion_axes(topology, com), path)
        length = length + _by_tendon(topology, path.tendon, lengths)
        by_dof = by_dof + _by_tendon(topology, path.tendon, rows)
    return Tendons(ten_length=length, ten_J=by_dof)


class Path(NamedTuple):
    """Parts of spatial tendons, each from one site to the next: all straight parts, or all parts around a geom.

    Attributes:
      tendon, first, last: (n,) the tendon and the two sites.
      pulley: (n,) the path element of the pulley before the part, -1 for none.
      geom, sphere, around: (n,) the geom, whether it is a sphere, and its path element; None for straight parts.
      side: (n,) the side site of each part, -1 for none; None if no part has one.
    """

    tendon: np.ndarray
    first: np.ndarray
    last: np.ndarray
    pulley: np.ndarray
    geom: np.ndarray | None = None
    sphere: np.ndarray | None = None
    around: np.ndarray | None = None
    side: np.ndarray | None = None


@per_topology
def spatial_paths(topology: Topology) -> tuple[Path, ...]:
    """The parts of all spatial tendons: one `Path` of straight parts, one of parts around geoms, if there are any."""
    kinds, objects = topology.wrap_type, topology.wrap_objid
    straight, wrapped = [], []
    for tendon in range(topology.ntendon):
        start = topology.tendon_adr[tendon]
        end = start + topology.tendon_num[tendon]
        # Walk along the path. These are the last pulley and site so far, and the element of a geom since that site; -1
        # for none.
        pulley = site = around = -1
        for element in range(start, end):
            kind = kinds[element]
            if kind == WrapType.PULLEY:
                # after a pulley the path starts again
                pulley = element
                site = -1
                around = -1
            elif kind in (WrapType.SPHERE, WrapType.CYLINDER):
                around = element
            elif kind == WrapType.SITE:
                if site >= 0:
                    row = (tendon, site, objects[element], pulley)
                    if around < 0:
                        straight.append(row)
                    else:
                        sphere = kinds[around] == WrapType.SPHERE
                        side = topology.wrap_sideid[around]
                        wrapped.append((*row, objects[around], sphere, around, side))
                site = objects[element]
                around = -1
    paths = [Path(*np.array(rows, dtype=np.int32).T) for rows in (straight, wrapped) if rows]
    return tuple(path if path.side is None or (path.side >= 0).any() else path._replace(side=None) for path in paths)


def inverse_divisors(model: Model, path: Path) -> Array:
    """(n,) 1 / divisor of the pulley before each part."""
    divisor = jnp.where(path.pulley >= 0, model.wrap_prm[np.maximum(path.pulley, 0)], 1)
    return safe.divide(jnp.ones_like(divisor), divisor)


def _straight(model: Model, kinematics: Kinematics, axes: MotionAxes, path: Path) -> tuple[Array, Array]:
    """Lengths (n,) and moment arms (n, nv) of the parts between two sites."""
    start = kinematics.site_xpos[path.first]
    end = kinematics.site_xpos[path.last]
    weight = inverse_divisors(model, path)
    bodies = model.topology.site_bodyid[path.first], model.topology.site_bodyid[path.last]
    return safe.norm(end - start) * weight, _line_moments(model.topology, axes, (start, end), weight, bodies)


def _wrapped(model: Model, kinematics: Kinematics, axes: MotionAxes, path: Path) -> tuple[Array, Array]:
    """Lengths (n,) and moment arms (n, nv) of the parts around a geom, each with a line to the geom and one from it.

    Where a part does not touch the geom, both lines go from site to site, and their forces on the geom cancel.
    """
    topology = model.topology
    weight = inverse_divisors(model, path)
    start = kinematics.site_xpos[path.first]
    end = kinematics.site_xpos[path.last]
    touch = touches(model, kinematics, path)
    active = touch.active[:, None]
    # the first line goes from `start` to `near`, the second from `far` to `end`
    near = jnp.where(active, touch.first, end)
    far = jnp.where(active, touch.last, start)
    before = safe.norm(near - start)
    if_touching = before + touch.length + safe.norm(end - far)
    on_geom = topology.geom_bodyid[path.geom]
    from_body = topology.site_bodyid[path.first]
    to_body = topology.site_bodyid[path.last]
    # both lines of all parts are computed as one array, which compiles in half the time
    lines = jnp.concatenate([start, far]), jnp.concatenate([near, end])
    bodies = np.concatenate([from_body, on_geom]), np.concatenate([on_geom, to_body])
    to_geom, from_geom = jnp.split(_line_moments(topology, axes, lines, jnp.tile(weight, 2), bodies), 2)
    return jnp.where(touch.active, if_touching, before) * weight, to_geom + from_geom


def touches(model: Model, kinematics: Kinematics, path: Path) -> Wrap:
    """The paths of n parts around their geoms."""
    ends = jnp.stack([kinematics.site_xpos[path.first], kinematics.site_xpos[path.last]], axis=1)
    side = None if path.side is None else (kinematics.site_xpos[path.side], jnp.asarray(path.side >= 0))
    # since MuJoCo 4.0 a path goes around the geom in the same sense as the line through its side site
    path_of = functools.partial(wrap, through=model.opt.follows("wrapping"))
    return jax.vmap(path_of, in_axes=(0, 0, 0, 0, 0, None if side is None else 0))(
        ends,
        *geom_frames(model, kinematics, np.asarray(path.geom)),
        model.geom_size[path.geom, 0],
        jnp.asarray(path.sphere != 0),
        side,
    )


def _line_moments(
    topology: Topology,
    axes: MotionAxes,
    ends: tuple[Array, Array],
    weight: Array,
    bodies: tuple[np.ndarray, np.ndarray],
) -> Array:
    """(n, nv) moment arms of n straight lines, times `weight` (n,).

    A force along a line acts on both bodies with opposite signs, so that it does no work on a dof that moves both.

    Args:
      topology: of the model.
      axes: motion axes of all dofs.
      ends: first and last point (n, 3) of the lines.
      weight: (n,) factors.
      bodies: the body (n,) of the first and of the last points.
    """
    start, end = ends
    first, last = bodies
    unit_force = scale(safe.normalize(end - start), weight)
    mask = body_dof_mask(topology).astype(np.int8)
    rows = wrench_rows(axes, wrench_along(axes, start, unit_force))
    return rows * jnp.asarray(mask[last] - mask[first], unit_force.dtype)


def _by_tendon(topology: Topology, tendon: np.ndarray, values: Array) -> Array:
    """(ntendon, ...) for each tendon, the sum of the values (n, ...) of its parts."""
    if np.array_equal(tendon, np.arange(topology.ntendon)):
        return values
    owner = np.arange(topology.ntendon)[:, None] == tendon[None]
    return matmul(jnp.asarray(owner, values.dtype), values)


def tendon_drift(model: Model, qvel: Array, kinematics: Kinematics, com: ComFrame, velocities: Velocities) -> Array:
    """(ntendon,) m/s^2, the acceleration of tendon lengths at constant qvel (nv,): (d ten_J / dt) qvel.

    The length |r| of a straight part r with unit vector u has |r|'' = u . r'' + |r' - u (u . r')|^2 / |r|. Only tendons
    with armature need this, and they cannot go around geoms.
    """
    topology = model.topology
    path = next((path for path in spatial_paths(topology) if path.geom is None), None)
    if path is None:
        return jnp.zeros((topology.ntendon,), qvel.dtype)
    cacc = sum_chain(topology, (velocities.cdof_dot, qvel))
    ends = []
    for site in (path.first, path.last):
        # position, velocity and acceleration of the site
        body = topology.site_bodyid[site]
        point = kinematics.site_xpos[site]
        offset = point - pick(com.subtree_com, topology.body_rootid[body])
        cvel = velocities.cvel[body]
        velocity = cvel[:, 3:] + cross(cvel[:, :3], offset)
        acceleration = cacc[body, 3:] + cross(cacc[body, :3], offset) + cross(cvel[:, :3], velocity)
        ends.append((point, velocity, acceleration))
    # r, r' and r'' of the formula
    part, velocity, acceleration = (last - first for first, last in zip(*ends, strict=True))
    unit = safe.normalize(part)
    across = velocity - scale(unit, dot(unit, velocity))
    turning = safe.divide(dot(across, across), safe.norm(part))
    return _by_tendon(topology, path.tendon, (dot(unit, acceleration) + turning) * inverse_divisors(model, path))


# values of `wrap_obj` for points that are not on a geom, as in mjData
SITE = -1
PULLEY = -2
# path elements with two points, where the tendon reaches and leaves the geom
AROUND = (WrapType.SPHERE, WrapType.CYLINDER)


class TendonPoints(NamedTuple):
    """The points of all tendons, one tendon after another, at most 2 nwrap of them.

    Attributes:
      ten_wrapadr, ten_wrapnum: (ntendon,) first point and number of points of each tendon.
      wrap_obj: (2 nwrap,) the geom on which a point is; -1 for a site, -2 for a pulley, 0 beyond the last point.
      wrap_xpos: (2 nwrap, 3) m, positions in the world; zero for pulleys and beyond the last point.
    """

    ten_wrapadr: Array
    ten_wrapnum: Array
    wrap_obj: Array
    wrap_xpos: Array


def tendon_points(model: Model, kinematics: Kinematics) -> TendonPoints:
    """The points of all tendons in one state, with the poses `kinematics`."""
    topology = model.topology
    # the path element of each possible point; a geom has two
    element = np.repeat(np.arange(topology.nwrap), np.where(np.isin(topology.wrap_type, AROUND), 2, 1))
    tendon = _tendon_of_element(topology)[element]
    kind = topology.wrap_type[element]
    point = jnp.zeros((len(element), 3), kinematics.xpos.dtype)
    # Whether a point exists: a geom that the tendon does not touch has none. The rows of missing points are moved to
    # the end.
    exists = jnp.asarray(kind != WrapType.JOINT)
    sites = np.flatnonzero(kind == WrapType.SITE)
    point = point.at[sites].set(kinematics.site_xpos[topology.wrap_objid[element[sites]]])
    for path in spatial_paths(topology):
        if path.geom is None or path.around is None:
            continue
        touch = touches(model, kinematics, path)
        first = np.searchsorted(element, path.around)
        point = point.at[first].set(touch.first).at[first + 1].set(touch.last)
        exists = exists.at[first].set(touch.active).at[first + 1].set(touch.active)
    order = jnp.argsort(~exists)
    obj = np.where(np.isin(kind, AROUND), topology.wrap_objid[element], np.where(kind == WrapType.PULLEY, PULLEY, SITE))
    count = jnp.sum((tendon[None] == np.arange(topology.ntendon)[:, None]) & exists[None], axis=1, dtype=jnp.int32)
    padding = 2 * topology.nwrap - len(element)
    return TendonPoints(
        ten_wrapadr=(jnp.cumsum(count) - count).astype(jnp.int32),
        ten_wrapnum=count,
        wrap_obj=jnp.pad(jnp.where(exists, jnp.asarray(obj, jnp.int32), 0)[order], (0, padding)),
        wrap_xpos=jnp.pad(jnp.where(exists[:, None], point, 0)[order], ((0, padding), (0, 0))),
    )
