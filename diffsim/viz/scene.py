"""Scenes: the objects that rays can hit, where they are and how they look. Objects are sorted by type.

The objects are the visible geoms, the pieces of spatial tendons, and the lines and triangles of flexes (for solid
flexes, the triangles of the boundary). How a model looks is computed once; where its objects are follows from the poses
of each frame (`places_of`).

A spatial tendon is drawn as capsules along its path: one piece between two sites, or three pieces if it wraps a geom:
to the geom, through it, and on from it. As in MuJoCo's renderer, the piece inside the geom has half the width.
Source: `addTendonGeoms` of 3.8.1.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.base.enums import GeomType, TextureType
from diffsim.flex.points import flex_elements
from diffsim.flex.strain import flex_vertices
from diffsim.geometry.assets import geom_assets, geoms_exist
from diffsim.geometry.rays.surfaces import SURFACES
from diffsim.geometry.rays.triangle_surfaces import FACETED
from diffsim.kinematics.tendon import spatial_paths, touches
from diffsim.math import safe
from diffsim.math.vector import cross, dot, pack, scale
from diffsim.types import Model
from diffsim.types.data import Kinematics
from diffsim.types.topology import Topology, per_topology
from diffsim.viz.lights import Lamps, drawn_lights
from diffsim.viz.material import HIDDEN_GROUPS, Looks, clear, colours, drawn_type, looks, mirrors, opaque, visible_geoms
from diffsim.viz.textures import Atlas, atlas_of, factors
from diffsim.xla.gather import pick


class Group(NamedTuple):
    """The consecutive objects of one type: index of the first object, and their number."""

    kind: GeomType
    first: int
    number: int


class Plan(NamedTuple):
    """The static part of a scene.

    Attributes:
      groups: the objects by type.
      geoms: ids of the geoms that are drawn.
      pieces: indices of the pieces of tendons that are drawn (rows of `tendon_lines`).
      flexes: ids of the flexes that are drawn.
      order: for each object, its index in the list of these geoms, then pieces, then fragments of flexes.
      sky: id of the texture of the sky, -1 for none.
      lights: ids of the lights that are drawn; a model without them has a sun.
      clear: whether one can look through some of the objects.
      mirrors: whether some of the objects mirror.
    """

    groups: tuple[Group, ...]
    geoms: tuple[int, ...]
    pieces: tuple[int, ...]
    flexes: tuple[int, ...]
    order: tuple[int, ...]
    sky: int
    lights: tuple[int, ...]
    clear: bool
    mirrors: bool


class Places(NamedTuple):
    """Where n objects are: `xpos` (n, 3), `xmat` (n, 3, 3), `size` (n, 3), and bounding radius `reach` (n,), m."""

    xpos: Array
    xmat: Array
    size: Array
    reach: Array


class Scene(NamedTuple):
    """Everything that a picture shows.

    Attributes:
      model: the model, for its meshes and height fields.
      places: where the objects are.
      lamps: where the lights are.
      asset: (n,) id of the mesh or height field of each object, -1 for none.
      looks: how the objects look.
      on_image, on_cube: (n, 2), (n, 3) factors of texture coordinates, see `material.factors`.
      atlas: the textures.
      tile: m, side of the tiles of a floor without texture.
      fade: m, distance over which floors fade into the horizon.
    """

    model: Model
    places: Places
    lamps: Lamps
    asset: Array
    looks: Looks
    on_image: Array | np.ndarray
    on_cube: Array | np.ndarray
    atlas: Atlas
    tile: Array
    fade: Array


def plan_of(model: Model, hidden_groups: Sequence[int] = HIDDEN_GROUPS) -> Plan:
    """Plans a scene: which objects are drawn, sorted by type."""
    geoms = np.flatnonzero(visible_geoms(model, hidden_groups)).tolist()
    kinds = [drawn_type(model, geom) for geom in geoms]
    known = [*SURFACES, *FACETED]
    geoms = [geom for geom, kind in zip(geoms, kinds, strict=True) if kind in known]
    tendons = tendon_ids(model)
    hidden = np.isin(model.topology.tendon_group[tendons], hidden_groups)
    hidden |= ~opaque(model.tendon_rgba[:, 3])[tendons]
    pieces = np.flatnonzero(~hidden).tolist()
    seen = ~np.isin(model.topology.flex_group, hidden_groups) & opaque(model.flex_rgba[:, 3])
    flexes = tuple(np.flatnonzero(seen).tolist())
    kinds = [drawn_type(model, geom) for geom in geoms] + [GeomType.CAPSULE] * len(pieces)
    kinds += [part.kind for part in fragments(model.topology, flexes) for _ in part.vertex]
    # the sort is stable: objects of one type stay in the order of their ids
    order = sorted(range(len(kinds)), key=lambda k: known.index(kinds[k]))
    groups = []
    first = 0
    for kind in known:
        if count := kinds.count(kind):
            groups.append(Group(kind, first, count))
            first += count
    skies = np.flatnonzero(model.topology.tex_type == TextureType.SKYBOX).tolist()
    return Plan(
        groups=tuple(groups),
        geoms=tuple(geoms),
        pieces=tuple(pieces),
        flexes=flexes,
        order=tuple(order),
        sky=skies[0] if skies else -1,
        lights=drawn_lights(model.topology),
        clear=bool(
            clear(colours(model)[:, 3])[geoms].any()
            or clear(model.tendon_rgba[:, 3])[tendons[pieces]].any()
            or clear(model.flex_rgba[:, 3])[list(flexes)].any()
        ),
        mirrors=bool(mirrors(model)[geoms].any()),
    )


def scene_of(model: Model, plan: Plan, poses: Kinematics) -> Scene:
    """The scene of a model for one or several (T, ...) poses, in float32."""

    def single(x: Array | np.ndarray) -> Array | np.ndarray:
        # converted by numpy, because JAX would compile a program for each shape
        return np.asarray(x, np.float32) if x.dtype == np.float64 else x

    model, poses = jax.tree.map(single, (model, poses))
    return exact_scene_of(model, plan, poses)


def exact_scene_of(model: Model, plan: Plan, poses: Kinematics) -> Scene:
    """The scene of a model for one or several (T, ...) poses, in the precision of the inputs."""
    # pieces of tendons and fragments of flexes have no asset
    soft = sum(len(part.vertex) for part in fragments(model.topology, plan.flexes))
    others = np.full(len(plan.pieces) + soft, -1)
    asset = jnp.append(jnp.asarray(geom_assets(model))[np.array(plan.geoms, int)], others)
    asset = asset[np.array(plan.order, int)]
    drawn, on_image, on_cube, tile, fade = _appearance(model, plan)
    return Scene(
        model=model,
        places=places_of(model, plan, poses),
        lamps=Lamps(*(positions[..., list(plan.lights), :] for positions in (poses.light_xpos, poses.light_xdir))),
        asset=jnp.asarray(asset, jnp.int32),
        looks=drawn,
        on_image=on_image,
        on_cube=on_cube,
        atlas=Atlas(*map(jnp.asarray, atlas_of(model.topology))),
        tile=tile,
        fade=fade,
    )


@functools.partial(jax.jit, static_argnums=1)
def _appearance(model: Model, plan: Plan) -> tuple[Looks, Array, Array, Array, Array]:
    """The fields of a scene that do not depend on poses: looks, on_image, on_cube, tile and fade."""
    geoms, pieces, order = (np.array(ids, int) for ids in (plan.geoms, plan.pieces, plan.order))
    kinds = np.concatenate([np.zeros(0, int), *(np.full(group.number, group.kind) for group in plan.groups)])
    soft = fragments(model.topology, plan.flexes)
    owner = np.concatenate([np.zeros(0, int), *(np.full(len(part.vertex), part.flex) for part in soft)])
    parts = [looks(model, "geom", geoms), looks(model, "tendon", tendon_ids(model)[pieces])]
    # flexes are drawn without textures
    parts.append(looks(model, "flex", owner)._replace(texture=np.full(len(owner), -1, np.int32)))
    drawn = Looks(*(jnp.concatenate(columns)[order] for columns in zip(*parts, strict=True)))
    others = jnp.ones((len(pieces) + len(owner), 3), model.geom_size.dtype)
    size = jnp.concatenate([model.geom_size[geoms], others])[order]
    on_image, on_cube = factors(kinds, size, drawn)
    # floors fade over 8 extents, which is so far that the model itself never looks hazy
    fade = 8 * model.stat.extent
    return drawn, on_image, on_cube, tile_size(model.stat.extent), fade


@functools.partial(jax.jit, static_argnums=1)
def places_of(model: Model, plan: Plan, poses: Kinematics) -> Places:
    """Where the objects of a plan are, (n, ...), or (T, n, ...) for several poses."""

    def place(poses: Kinematics) -> Places:
        geoms, pieces, order = (np.array(ids, int) for ids in (plan.geoms, plan.pieces, plan.order))
        # geom_rbound 0 means unbounded (planes); an invisible geom gets reach -inf, which no ray hits
        reach = jnp.where(model.geom_rbound > 0, model.geom_rbound, jnp.inf)
        reach = jnp.where(colours(model)[:, 3] > 0, reach, -jnp.inf)
        exist = geoms_exist(model)
        reach = reach if exist is None else jnp.where(exist, reach, -jnp.inf)
        parts = [
            Places(
                xpos=pick(poses.geom_xpos, geoms),
                xmat=pick(poses.geom_xmat, geoms),
                size=pick(model.geom_size, geoms),
                reach=pick(reach, geoms),
            )
        ]
        if len(pieces):
            start, end, radius = (pick(x, pieces) for x in tendon_lines(model, poses))
            middle, matrix, half = capsules_between(start, end)
            size = pack([radius, half, jnp.zeros_like(half)])
            radius = jnp.where(model.tendon_rgba[tendon_ids(model)[pieces], 3] > 0, radius, -1)
            reach = jnp.where(radius >= 0, radius + half, -jnp.inf)
            parts.append(Places(xpos=middle, xmat=matrix, size=size, reach=reach))
        if plan.flexes:
            vertices = flex_vertices(model, poses)
            parts += [fragment_places(model, part, vertices) for part in fragments(model.topology, plan.flexes)]
        return Places(*(pick(jnp.concatenate(columns), order) for columns in zip(*parts, strict=True)))

    poses = Kinematics(**{f.name: getattr(poses, f.name) for f in dataclasses.fields(Kinematics)})
    return place(poses) if poses.xpos.ndim == 2 else jax.vmap(place)(poses)


class Fragments(NamedTuple):
    """The n lines or triangles of a flex.

    Attributes:
      flex: id of the flex.
      vertex: (n, 2 or 3) indices of vertices, counted over all flexes.
      kind: the type that they are drawn as.
    """

    flex: int
    vertex: np.ndarray
    kind: GeomType


@per_topology
def fragments(topology: Topology, flexes: tuple[int, ...]) -> tuple[Fragments, ...]:
    """The lines and triangles of some flexes."""
    listed = []
    for flex in flexes:
        dim = int(topology.flex_dim[flex])
        vertex = flex_elements(topology, flex)
        # of a solid only the boundary (its shell) can be seen
        if dim == 3:
            start, count = int(topology.flex_shelldataadr[flex]), int(topology.flex_shellnum[flex])
            vertex = topology.flex_shell.ravel()[start : start + 3 * count].reshape(-1, 3) + topology.flex_vertadr[flex]
        listed.append(Fragments(flex, vertex, GeomType.CAPSULE if dim == 1 else GeomType.FLEX))
    return tuple(listed)


def fragment_places(model: Model, part: Fragments, vertices: Array) -> Places:
    """Where the lines or triangles of a flex are, given vertices (nflexvert, 3) in the world frame."""
    corner = pick(vertices, part.vertex)
    if part.kind == GeomType.CAPSULE:
        middle, matrix, half = capsules_between(corner[:, 0], corner[:, 1])
        radius = jnp.broadcast_to(model.flex_radius[part.flex], half.shape)
        size = jnp.stack([radius, half, jnp.zeros_like(half)], axis=1)
        return Places(xpos=middle, xmat=matrix, size=size, reach=half + radius)
    # The frame of a triangle: x along its first edge u, z along its normal, origin in its centroid. In this frame u is
    # (u.x, 0) and the other edge v is (v.x, v.y), so three numbers are the size.
    first = corner[:, 1] - corner[:, 0]
    second = corner[:, 2] - corner[:, 0]
    x = safe.normalize(first)
    z = safe.normalize(cross(first, second), (0.0, 0.0, 1.0))
    y = cross(z, x)
    size = jnp.stack([dot(first, x), dot(second, x), dot(second, y)], axis=1)
    middle = corner[:, 0] + scale(first + second, jnp.full(len(first), 1 / 3, first.dtype))
    reach = jnp.max(safe.norm(corner - middle[:, None]), axis=1)
    return Places(xpos=middle, xmat=jnp.stack([x, y, z], axis=2), size=size, reach=reach)


def tile_size(extent: Array) -> Array:
    """Side of a floor's tiles, m: the largest of ..., 0.5, 1, 2, 5, 10, ... up to a fifth of the model's extent."""
    length = extent / 5
    power = 10.0 ** jnp.floor(jnp.log10(jnp.maximum(length, 1e-6)))
    # the tolerance lets a length that rounding made slightly smaller than 2 or 5 still count
    limit = 1.0001 * length
    return power * jnp.where(5 * power <= limit, 5, jnp.where(2 * power <= limit, 2, 1))


class Lines(NamedTuple):
    """n straight pieces of paths: both ends (n, 3), m, and radius (n,), m; a piece with a negative radius is absent."""

    start: Array
    end: Array
    radius: Array


def tendon_ids(model: Model) -> np.ndarray:
    """Tendon id (n,) of each row of `tendon_lines`: three rows for a segment with a wrapping geom, else one."""
    ids = [np.zeros(0, int)]
    for path in spatial_paths(model.topology):
        ids += [path.tendon] * (1 if path.geom is None else 3)
    return np.concatenate(ids)


def tendon_lines(model: Model, kinematics: Kinematics) -> Lines:
    """The pieces of all spatial tendons. A segment that does not touch its wrapping geom has only its first piece."""
    none = kinematics.site_xpos[:0]
    pieces = [Lines(none, none, none[:, 0])]
    for path in spatial_paths(model.topology):
        start = kinematics.site_xpos[path.first]
        end = kinematics.site_xpos[path.last]
        width = model.tendon_width[path.tendon]
        if path.geom is None:
            pieces.append(Lines(start, end, width))
            continue
        touch = touches(model, kinematics, path)
        active = touch.active[:, None]
        pieces.append(Lines(start, jnp.where(active, touch.first, end), width))
        pieces.append(Lines(touch.first, touch.last, jnp.where(touch.active, 0.5 * width, -1)))
        pieces.append(Lines(touch.last, end, jnp.where(touch.active, width, -1)))
    return Lines(*(jnp.concatenate(columns) for columns in zip(*pieces, strict=True)))


def capsules_between(start: Array, end: Array) -> tuple[Array, Array, Array]:
    """Centers (n, 3), rotations (n, 3, 3) with z along the axis, and half lengths (n,) of capsules between points."""
    offset = end - start
    z = safe.normalize(offset)
    # any direction that is not parallel to z: the world's x axis, or its y axis if z is close to x
    other = jnp.where(jnp.abs(z[:, :1]) < 0.9, jnp.asarray([[1.0, 0, 0]]), jnp.asarray([[0, 1.0, 0]])).astype(z.dtype)
    x = safe.normalize(cross(other, z))
    return (start + end) / 2, jnp.stack([x, cross(z, x), z], axis=2), safe.norm(offset) / 2
