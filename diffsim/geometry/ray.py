"""Rays: which geom each one meets first, how far away, and the surface's normal there.

The search is not differentiated. One Newton step on the signed distance F of the surface that was found, from the
distance x found, x - F(o + x v) / (n . v), has the value x and its exact first derivatives with respect to pose, size,
origin o and direction v, in a few operations. Source: MuJoCo documentation, "mj_ray".
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.enums import GeomType
from diffsim.geometry.surfaces import SURFACES
from diffsim.math import safe
from diffsim.math.vector import dot, mul_vec, mul_vec_t, scale
from diffsim.types import Model
from diffsim.types.topology import Topology, per_topology

Array = jax.Array


class Rays(NamedTuple):
    """k half lines: `origin` and `direction` (k, 3), world; distances are in units of |direction|.

    `exclude`, static (k,), is a body whose geoms each ray passes through, -1 for none.
    """

    origin: Array
    direction: Array
    exclude: np.ndarray


class _Geoms(NamedTuple):
    """World poses (n, 3), (n, 3, 3) and sizes (n, 3) of geoms."""

    xpos: Array
    xmat: Array
    size: Array

    def at(self, index: np.ndarray | Array) -> "_Geoms":
        return _Geoms(*(values[index] for values in self))


@dataclass(frozen=True, eq=False)
class Hits:
    """What k rays met: distance (k,) and geom (k,), both -1 for nothing; world normal (k, 3), zero for nothing."""

    distance: Array
    geom: Array
    normal: Array


def cast(model: Model, geom_xpos: Array, geom_xmat: Array, rays: Rays, seen: Array | None = None) -> Hits:
    """Sends rays through a model and finds the nearest visible geom.

    Args:
      model: the model.
      geom_xpos, geom_xmat: poses of all geoms, (ngeom, 3) and (ngeom, 3, 3).
      rays: the rays.
      seen: (ngeom,) which geoms rays meet; by default those whose alpha (their own or their material's) is not 0.

    Returns:
      Hits. The choice of the geom is discrete; distance and normal are differentiable once.
    """
    order, groups = _visible_groups(model.topology)
    if not len(order):
        nothing = -jnp.ones_like(rays.origin[:, 0])
        return Hits(nothing, nothing.astype(jnp.int32), jnp.zeros_like(rays.origin))
    seen = rgba(model)[:, 3] != 0 if seen is None else seen
    all_geoms = _Geoms(geom_xpos, geom_xmat, model.geom_size)
    searched, *line = jax.lax.stop_gradient((all_geoms, rays.origin, rays.direction))
    distance = jnp.concatenate([_distances(kind, searched.at(geoms), *line) for kind, geoms in groups], axis=1)
    passed = model.topology.geom_bodyid[order][None] == np.asarray(rays.exclude)[:, None]
    hit = (distance >= 0) & seen[order][None] & ~passed
    best = jnp.argmin(jnp.where(hit, distance, jnp.inf), axis=1)[:, None]
    any_hit = jnp.take_along_axis(hit, best, 1)[:, 0]
    distance = jnp.take_along_axis(distance, best, 1)[:, 0]
    geom = jnp.asarray(order, jnp.int32)[best[:, 0]]
    kind = jnp.asarray(np.asarray(model.topology.geom_type))[geom]
    met = _Met([each for each, _ in groups], kind, all_geoms.at(geom))
    distance, normal = _refine(met, rays, distance)
    return Hits(jnp.where(any_hit, distance, -1), jnp.where(any_hit, geom, -1), jnp.where(any_hit[:, None], normal, 0))


class _Met(NamedTuple):
    """The geom that each of k rays meets: its kind (k,), one of `kinds` (static), its pose and size."""

    kinds: list[GeomType]
    kind: Array
    geoms: _Geoms

    def own(self, each: GeomType) -> tuple[Array, Array]:
        """Which are of one type, and their sizes; others get 1, since a size that a type lacks is 0."""
        own = self.kind == each
        return own, jnp.where(own[:, None], self.geoms.size, 1)


def _distances(kind: GeomType, geoms: _Geoms, origin: Array, direction: Array) -> Array:
    """Distances (k, m) along k rays to m geoms of one type."""
    xpos, matrix, size = (values[None] for values in geoms)
    local_origin = mul_vec_t(matrix, origin[:, None] - xpos)
    local_direction = mul_vec_t(matrix, jnp.broadcast_to(direction[:, None], local_origin.shape))
    return SURFACES[kind].distance(jnp.broadcast_to(size, local_origin.shape), local_origin, local_direction)


def _refine(met: _Met, rays: Rays, distance: Array) -> tuple[Array, Array]:
    """Differentiable distance (k,) and world normal (k, 3) on the geom that each ray was found to meet."""
    xpos, xmat, _ = met.geoms
    local_origin = mul_vec_t(xmat, rays.origin - xpos)
    local_direction = mul_vec_t(xmat, rays.direction)
    distance = jax.lax.stop_gradient(distance)
    point = local_origin + scale(local_direction, distance)
    slope = jax.lax.stop_gradient(dot(_normal(met, point), local_direction))
    beyond = jnp.zeros_like(distance)
    for each in met.kinds:
        own, sized = met.own(each)
        beyond = jnp.where(own, SURFACES[each].surface(sized, point), beyond)
    # a ray that grazes has no derivative: it keeps its distance
    distance = distance - safe.divide(beyond, slope)
    return distance, mul_vec(xmat, _normal(met, local_origin + scale(local_direction, distance)))


def _normal(met: _Met, point: Array) -> Array:
    """Outward unit normals (k, 3) at points of the geoms, each in its geom's frame."""
    normal = jnp.zeros_like(point)
    for each in met.kinds:
        own, sized = met.own(each)
        normal = jnp.where(own[:, None], SURFACES[each].normal(sized, point), normal)
    return normal


def rgba(model: Model) -> Array:
    """Colour and opacity of every geom, (ngeom, 4): its material's if it has one."""
    material = model.topology.geom_matid
    if not len(model.mat_rgba):
        return model.geom_rgba
    return jnp.where((material >= 0)[:, None], model.mat_rgba[np.maximum(material, 0)], model.geom_rgba)


@per_topology
def _visible_groups(topology: Topology) -> tuple[np.ndarray, list[tuple[GeomType, np.ndarray]]]:
    """All geoms that rays can meet, grouped by type: their order, and (type, geoms)."""
    groups = [(kind, np.flatnonzero(topology.geom_type == kind)) for kind in SURFACES]
    groups = [(kind, geoms) for kind, geoms in groups if len(geoms)]
    order = np.concatenate([geoms for _, geoms in groups]) if groups else np.zeros(0, int)
    return order, groups
