"""Rays: the first geom that each ray hits, its distance, and the surface normal there.

The search is not differentiated. It finds a distance x to a surface with the signed distance F. After it, one Newton
step x - F(o + x v) / (n . v) has the value x and the exact first derivatives with respect to pose, size, origin o and
direction v, at the cost of a few operations.

Distance fields are searched by sphere tracing: each step along the ray is as long as the field's distance. At its end,
the field is treated like the surface of a primitive shape. As in MuJoCo, the number of steps is fixed, and a ray must
hit the box of the geom's sizes to hit the field.

Source: MuJoCo documentation, "mj_ray"; Hart 1996 (sphere tracing); `mj_raySdf` of engine_ray.c (3.8.1).
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.base.enums import GeomType
from diffsim.geometry.assets import geom_assets, geoms_exist
from diffsim.geometry.rays.surfaces import SURFACES, box_distance
from diffsim.geometry.rays.triangle_surfaces import FACETED, Lines, height_over, outward_normals
from diffsim.geometry.sdf.data import (
    Parameters,
    field_function,
    field_parameters,
    parameter_axes,
    parameter_rows,
)
from diffsim.geometry.sdf.functions import FieldFunction
from diffsim.math import safe
from diffsim.math.vector import dot, mul_vec, mul_vec_t, scale
from diffsim.types import Model
from diffsim.types.topology import Topology, per_topology
from diffsim.xla.gather import pick
from diffsim.xla.loops import fori_loop

# number of sphere tracing steps, as in MuJoCo
STEPS = 40
# m, distance from the surface at which a march has arrived, by precision
ARRIVED = {jnp.dtype(jnp.float64): 1e-7, jnp.dtype(jnp.float32): 1e-5}
# m, distance from the surface at which a march gives up
FAR = 1e6


def search_fields(model: Model, geoms: np.ndarray, lines: Lines) -> tuple[Array, Array]:
    """Distances (k, m) to the fields of geoms (m,), in units of |direction|, infinite for a miss; facets, all 0."""
    numbers = model.topology.geom_sdf[geoms]
    distance = jnp.full(lines.wanted.shape, jnp.inf, lines.origin.dtype)
    for number in np.unique(numbers).tolist():
        members = np.flatnonzero(numbers == number)
        function = field_function(model, number)
        part = Lines(*(values[:, members] for values in lines))
        parameters = jax.lax.stop_gradient(field_parameters(model, geoms[members], number))
        found = jax.vmap(partial(_march, function), (parameter_axes(parameters), 1), 1)(parameters, part)
        size = jnp.broadcast_to(model.geom_size[geoms[members]][None], part.origin.shape)
        around = box_distance(size, part.origin, part.direction) >= 0
        distance = distance.at[:, members].set(jnp.where(part.wanted & around, found, jnp.inf))
    return distance, jnp.zeros(distance.shape, jnp.int32)


def _march(function: FieldFunction, parameters: Parameters, lines: Lines) -> Array:
    """Distances (k,) along rays to one field, infinite for a miss."""
    near = ARRIVED[lines.origin.dtype]
    length = safe.norm(lines.direction)
    unit = safe.normalize(lines.direction)

    def step(_: int, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        total, last = carry
        gap = jnp.abs(function.distance(parameters, lines.origin + scale(unit, total)))
        going = (last >= near) & (last <= FAR)
        return jnp.where(going, total + gap, total), jnp.where(going, gap, last)

    start = jnp.zeros_like(length), jnp.ones_like(length)
    total, last = fori_loop(0, STEPS, step, start)
    return jnp.where(last < near, safe.divide(total, length), jnp.inf)


class FieldSurface(NamedTuple):
    """The surfaces of k geoms whose fields share a function; `mask` (k,): which geoms have this function; for the
    others the values are arbitrary.

    Functions of points (k, 3) in the geoms' frames: the signed `distance` to first order, its `slope` as a unit vector,
    and MuJoCo's `normal`. The normal differs from the slope if searches for contacts follow another direction.
    """

    mask: Array
    distance: Callable[[Array], Array]
    slope: Callable[[Array], Array]
    normal: Callable[[Array], Array]


def field_surfaces(model: Model, geom: Array) -> list[FieldSurface]:
    """The surfaces of the fields of k geoms (k,), one entry for each function."""
    numbers = model.topology.geom_sdf
    surfaces = []
    for number in np.unique(numbers[numbers >= 0]).tolist():
        members = np.flatnonzero(numbers == number)
        # other geoms get the parameters of the first member
        slot = np.zeros(len(numbers), np.int32)
        slot[members] = np.arange(len(members))
        parameters = parameter_rows(field_parameters(model, members, number), jnp.asarray(slot)[geom])
        mask = jnp.asarray(numbers)[geom] == number
        surfaces.append(FieldSurface(mask, *_surface(field_function(model, number), parameters)))
    return surfaces


def _surface(function: FieldFunction, parameters: Parameters) -> tuple[Callable[[Array], Array], ...]:
    """Signed distance, slope and normal of the surfaces of k fields of one function."""
    axes = parameter_axes(parameters), 0

    def slope(point: Array) -> Array:
        return safe.normalize(jax.vmap(function.gradient, axes)(parameters, point))

    def normal(point: Array) -> Array:
        return safe.normalize(jax.vmap(function.field.gradient, axes)(parameters, point))

    def surface(point: Array) -> Array:
        steep = safe.norm(jax.vmap(function.gradient, axes)(parameters, point))
        return safe.divide(jax.vmap(function.distance, axes)(parameters, point), jax.lax.stop_gradient(steep))

    return surface, slope, normal


class Rays(NamedTuple):
    """k half lines: `origin` and `direction` (k, 3), world; distances are in units of |direction|.

    `exclude` (k,): the body whose geoms a ray passes through, -1 for none.
    """

    origin: Array
    direction: Array
    exclude: np.ndarray | Array


class _Geoms(NamedTuple):
    """World poses (n, 3), (n, 3, 3) and sizes (n, 3) of geoms."""

    xpos: Array
    xmat: Array
    size: Array

    def at(self, index: np.ndarray | Array) -> "_Geoms":
        return _Geoms(*(pick(values, index) for values in self))


class RayHits(NamedTuple):
    """Hits of k rays: distance (k,) and geom (k,), both -1 for a miss; world normal (k, 3), zero for a miss."""

    distance: Array
    geom: Array
    normal: Array


def cast(model: Model, geom_xpos: Array, geom_xmat: Array, rays: Rays, seen: Array | None = None) -> RayHits:
    """Sends rays through a model and finds the nearest visible geom.

    Args:
      model: the model.
      geom_xpos, geom_xmat: poses of all geoms, (ngeom, 3) and (ngeom, 3, 3).
      rays: the rays.
      seen: the geoms that rays can hit, (ngeom,) or for each ray (k, ngeom); by default, all geoms whose alpha (or
        whose material's alpha) is not 0.

    Returns:
      RayHits. The choice of the geom is discrete; distance and normal are differentiable once.
    """
    order, groups = _visible_groups(model.topology)
    if not len(order):
        nothing = -jnp.ones_like(rays.origin[:, 0])
        return RayHits(nothing, nothing.astype(jnp.int32), jnp.zeros_like(rays.origin))
    seen = rgba(model)[:, 3] != 0 if seen is None else seen
    passed = jnp.asarray(model.topology.geom_bodyid)[None] == jnp.asarray(rays.exclude)[:, None]
    wanted = (seen if seen.ndim == 2 else seen[None]) & ~passed
    exist = geoms_exist(model)
    wanted = wanted if exist is None else wanted & exist[None]
    all_geoms = _Geoms(geom_xpos, geom_xmat, model.geom_size)
    searched, line = jax.lax.stop_gradient((all_geoms, (rays.origin, rays.direction)))
    hits = [_search(model, kind, geoms, _Scene(searched, *line, wanted)) for kind, geoms in groups]
    # of equally near geoms, the first one counts
    distance, facet = (pick(jnp.concatenate(column, axis=1).T, order).T for column in zip(*hits, strict=True))
    geom = jnp.argmin(distance, axis=1).astype(jnp.int32)
    distance, facet = (jnp.take_along_axis(column, geom[:, None], 1)[:, 0] for column in (distance, facet))
    hit = distance < jnp.inf
    hit_geoms = _HitGeoms([kind for kind, _ in groups], geom, facet, all_geoms.at(geom))
    distance, normal = _refine(model, hit_geoms, rays, jnp.where(hit, distance, 0))
    return RayHits(jnp.where(hit, distance, -1), jnp.where(hit, geom, -1), jnp.where(hit[:, None], normal, 0))


class _Scene(NamedTuple):
    """All geoms, k rays (k, 3), and which geoms each ray can meet (k, ngeom)."""

    geoms: _Geoms
    origin: Array
    direction: Array
    wanted: Array


def _search(model: Model, kind: GeomType, geoms: np.ndarray, scene: _Scene) -> tuple[Array, Array]:
    """Distances (k, m) along k rays to m geoms of one type, infinite for a miss, and the facets (k, m) that are hit."""
    xpos, matrix, size = (values[None] for values in scene.geoms.at(geoms))
    origin = mul_vec_t(matrix, scene.origin[:, None] - xpos)
    direction = mul_vec_t(matrix, jnp.broadcast_to(scene.direction[:, None], origin.shape))
    wanted = pick(scene.wanted.T, geoms).T & (dot(direction, direction) > 0)
    if kind == GeomType.SDF:
        return search_fields(model, geoms, Lines(origin, direction, wanted))
    if kind in FACETED:
        return FACETED[kind].search(model, geom_assets(model)[geoms], Lines(origin, direction, wanted))
    distance = SURFACES[kind].distance(jnp.broadcast_to(size, origin.shape), origin, direction)
    return jnp.where(wanted & (distance >= 0), distance, jnp.inf), jnp.zeros(distance.shape, jnp.int32)


class _HitGeoms(NamedTuple):
    """The geom (k,) that each of k rays hits, its facet (k,), pose and size; `kinds`: all possible types, static."""

    kinds: list[GeomType]
    geom: Array
    facet: Array
    geoms: _Geoms

    def surfaces(self, model: Model) -> list[tuple[Array, "_LocalSurface"]]:
        """For each type, the rays (k,) that hit it, and the surface that they hit; arbitrary for the other rays."""
        topology = model.topology
        surfaces = []
        kind, asset = (jnp.asarray(column)[self.geom] for column in (topology.geom_type, geom_assets(model)))
        for shape in self.kinds:
            mask = kind == shape
            if shape == GeomType.SDF:
                fields = field_surfaces(model, jnp.where(mask, self.geom, 0))
                surfaces += [
                    (mask & field.mask, _LocalSurface(field.distance, field.slope, field.normal)) for field in fields
                ]
            elif shape in FACETED:
                corners = FACETED[shape].corners(model, jnp.where(mask, asset, 0), jnp.where(mask, self.facet, 0))
                normal = outward_normals(corners)
                across = partial(lambda normal, point: normal, normal)
                surfaces.append((mask, _LocalSurface(partial(height_over, corners), across, across)))
            else:
                # a size that a type lacks is 0
                size = jnp.where(mask[:, None], self.geoms.size, 1)
                across = partial(SURFACES[shape].normal, size)
                surfaces.append((mask, _LocalSurface(partial(SURFACES[shape].signed_distance, size), across, across)))
        return surfaces


class _LocalSurface(NamedTuple):
    """Functions of points (k, 3) in their geoms' frames: signed distance (k,), its slope and the normal (k, 3).

    Slope and normal are unit vectors. They are equal, except for octrees.
    """

    signed_distance: Callable[[Array], Array]
    slope: Callable[[Array], Array]
    normal: Callable[[Array], Array]


def _refine(model: Model, hit_geoms: _HitGeoms, rays: Rays, distance: Array) -> tuple[Array, Array]:
    """Differentiable distance (k,) and world normal (k, 3) on the geom that each ray hits."""
    xpos, xmat, _ = hit_geoms.geoms
    surfaces = hit_geoms.surfaces(model)
    local_origin = mul_vec_t(xmat, rays.origin - xpos)
    local_direction = mul_vec_t(xmat, rays.direction)
    distance = jax.lax.stop_gradient(distance)
    point = local_origin + scale(local_direction, distance)
    slopes = [(mask, local.slope) for mask, local in surfaces]
    slope = jax.lax.stop_gradient(dot(_of_surfaces(slopes, point), local_direction))
    beyond = jnp.zeros_like(distance)
    for mask, local in surfaces:
        beyond = jnp.where(mask, local.signed_distance(point), beyond)
    # a ray that is tangent to the surface keeps its distance, without derivatives
    distance = distance - safe.divide(beyond, slope)
    normals = [(mask, local.normal) for mask, local in surfaces]
    return distance, mul_vec(xmat, _of_surfaces(normals, local_origin + scale(local_direction, distance)))


def _of_surfaces(vectors: list[tuple[Array, Callable[[Array], Array]]], point: Array) -> Array:
    """For each point, the vector (k, 3) of its surface, in its geom's frame."""
    chosen = jnp.zeros_like(point)
    for mask, vector in vectors:
        chosen = jnp.where(mask[:, None], vector(point), chosen)
    return chosen


def rgba(model: Model) -> Array:
    """Colour and opacity of every geom, (ngeom, 4): its material's if it has one."""
    material = model.topology.geom_matid
    if not len(model.mat_rgba):
        return model.geom_rgba
    return jnp.where((material >= 0)[:, None], model.mat_rgba[np.maximum(material, 0)], model.geom_rgba)


@per_topology
def _visible_groups(topology: Topology) -> tuple[np.ndarray, list[tuple[GeomType, np.ndarray]]]:
    """All geoms that rays can hit, grouped by type: the index of each geom in the groups, and (type, geoms)."""
    kinds = (*SURFACES, *FACETED, GeomType.SDF)
    groups = [(kind, np.flatnonzero(topology.geom_type == kind)) for kind in kinds]
    groups = [(kind, geoms) for kind, geoms in groups if len(geoms)]
    order = np.concatenate([geoms for _, geoms in groups]) if groups else np.zeros(0, int)
    return np.argsort(order), groups
