"""What rays meet first on distance fields: along each ray as far as the field says that nothing is nearer.

The march is not differentiated; near its end the field is a surface like those of the primitive shapes. As in MuJoCo a
ray has so many steps, and meets only what is behind the box of the geom's sizes.
Source: Hart 1996 (sphere tracing); `mj_raySdf` of engine_ray.c (3.8.1).
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.geometry.rays.surfaces import box_distance
from diffsim.geometry.rays.triangle_surfaces import Lines
from diffsim.geometry.sdf.data import (
    Parameters,
    field_function,
    field_parameters,
    parameter_axes,
    parameter_rows,
)
from diffsim.geometry.sdf.functions import FieldFunction
from diffsim.math import safe
from diffsim.math.vector import scale
from diffsim.types.model import Model

Array = jax.Array

STEPS = 40
# m, to the surface, where a march ends; further out there is nothing
NEAR = {jnp.dtype(jnp.float64): 1e-7, jnp.dtype(jnp.float32): 1e-5}
FAR = 1e6


def search_fields(model: Model, geoms: np.ndarray, lines: Lines) -> tuple[Array, Array]:
    """Distance (k, m), in units of |direction|, to the fields of some geoms (m,), infinite for nothing; facets (0)."""
    numbers = model.topology.geom_sdf[geoms]
    distance = jnp.full(lines.wanted.shape, jnp.inf, lines.origin.dtype)
    for number in np.unique(numbers).tolist():
        members = np.flatnonzero(numbers == number)
        function = field_function(model, number)
        part = Lines(*(values[:, members] for values in lines))
        parameters = jax.lax.stop_gradient(field_parameters(model, geoms[members], number))
        met = jax.vmap(partial(_march, function), (parameter_axes(parameters), 1), 1)(parameters, part)
        size = jnp.broadcast_to(model.geom_size[geoms[members]][None], part.origin.shape)
        around = box_distance(size, part.origin, part.direction) >= 0
        distance = distance.at[:, members].set(jnp.where(part.wanted & around, met, jnp.inf))
    return distance, jnp.zeros(distance.shape, jnp.int32)


def _march(function: FieldFunction, parameters: Parameters, lines: Lines) -> Array:
    """Distances (k,) along rays to one field, infinite for nothing."""
    near = NEAR[lines.origin.dtype]
    length = safe.norm(lines.direction)
    unit = safe.normalize(lines.direction)

    def step(_: int, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        total, last = carry
        gap = jnp.abs(function.distance(parameters, lines.origin + scale(unit, total)))
        going = (last >= near) & (last <= FAR)
        return jnp.where(going, total + gap, total), jnp.where(going, gap, last)

    start = jnp.zeros_like(length), jnp.ones_like(length)
    total, last = jax.lax.fori_loop(0, STEPS, step, start)
    return jnp.where(last < near, safe.divide(total, length), jnp.inf)


class FieldSurface(NamedTuple):
    """The surfaces of k fields: `mask` (k,) which of k geoms have this function; arbitrary for the others.

    Of points (k, 3) in the geoms' frames: signed `distance` to first order, its `slope` as a unit vector, and `normal`,
    MuJoCo's, which is another where searches for contacts follow another direction.
    """

    mask: Array
    distance: Callable[[Array], Array]
    slope: Callable[[Array], Array]
    normal: Callable[[Array], Array]


def field_surfaces(model: Model, geom: Array) -> list[FieldSurface]:
    """For each function the surfaces of the fields of k geoms (k,)."""
    numbers, surfaces = model.topology.geom_sdf, []
    for number in np.unique(numbers[numbers >= 0]).tolist():
        members = np.flatnonzero(numbers == number)
        # other geoms get parameters that this function can have
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
