"""Scenes: what rays can meet, where it is, and how it looks. Objects of one type follow one another.

Objects are the geoms that are visible and the pieces of tendons. What a model looks like is found once; where its
objects are follows from the poses of each frame (`placed`).
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.base.enums import GeomType, TextureType
from diffsim.geometry.rays.surfaces import SURFACES
from diffsim.geometry.rays.triangle_surfaces import FACETED
from diffsim.math.vector import pack
from diffsim.types import Model
from diffsim.types.data import Kinematics
from diffsim.viz.mapping import factors
from diffsim.viz.material import Looks, looks
from diffsim.viz.tendon import along, tendon_ids, tendon_lines
from diffsim.viz.texture import Atlas, atlas_of
from diffsim.viz.visible import HIDDEN_GROUPS, drawn_type, visible_geoms
from diffsim.xla.gather import pick

Array = jax.Array


class Group(NamedTuple):
    """Objects of one type: the first of them, and how many."""

    kind: GeomType
    first: int
    number: int


class Plan(NamedTuple):
    """What shapes the program: groups of objects, the geoms and pieces of tendons that they are, and the sky's texture.

    `order`: places of the objects among these geoms and, behind them, pieces.
    """

    groups: tuple[Group, ...]
    geoms: tuple[int, ...]
    pieces: tuple[int, ...]
    order: tuple[int, ...]
    sky: int


class Places(NamedTuple):
    """Where n objects are: `xpos` (n, 3), `xmat` (n, 3, 3); their `size` (n, 3) and `reach` (n,) from xpos, m."""

    xpos: Array
    xmat: Array
    size: Array
    reach: Array


class Scene(NamedTuple):
    """All that a picture shows.

    Attributes:
      model: of which meshes and height fields are drawn, in float32.
      places: where the objects are.
      asset: (n,) mesh or height field of each object, -1 for none.
      looks: how they look.
      on_image, on_cube: (n, 2), (n, 3) see `mapping.factors`.
      atlas: the textures.
      tile, fade: side of the tiles of a floor without texture, and how far floors are seen, m.
    """

    model: Model
    places: Places
    asset: Array
    looks: Looks
    on_image: Array | np.ndarray
    on_cube: Array | np.ndarray
    atlas: Atlas
    tile: Array
    fade: Array


def plan_of(model: Model, hidden_groups: Sequence[int] = HIDDEN_GROUPS) -> Plan:
    """What there is to be drawn of a model."""
    geoms = np.flatnonzero(visible_geoms(model, hidden_groups)).tolist()
    kinds = [drawn_type(model, geom) for geom in geoms]
    known = [*SURFACES, *FACETED]
    geoms = [geom for geom, kind in zip(geoms, kinds, strict=True) if kind in known]
    tendons = tendon_ids(model)
    hidden = np.isin(model.topology.tendon_group[tendons], hidden_groups)
    hidden |= np.asarray(model.tendon_rgba)[tendons, 3] == 0
    pieces = np.flatnonzero(~hidden).tolist()
    kinds = [drawn_type(model, geom) for geom in geoms] + [GeomType.CAPSULE] * len(pieces)
    order = sorted(range(len(kinds)), key=lambda k: known.index(kinds[k]))
    groups, first = [], 0
    for kind in known:
        if count := kinds.count(kind):
            groups.append(Group(kind, first, count))
            first += count
    skies = np.flatnonzero(model.topology.tex_type == TextureType.SKYBOX).tolist()
    return Plan(tuple(groups), tuple(geoms), tuple(pieces), tuple(order), skies[0] if skies else -1)


def scene_of(model: Model, plan: Plan, poses: Kinematics) -> Scene:
    """What is to be seen of a model in some poses, or in several, (T, ...)."""
    model = jax.tree.map(lambda x: x.astype(np.float32) if jnp.issubdtype(x.dtype, jnp.floating) else x, model)
    geoms, order = np.array(plan.geoms, int), np.array(plan.order, int)
    kinds = np.concatenate([np.zeros(0, int), *(np.full(group.number, group.kind) for group in plan.groups)])
    parts = [looks(model, "geom", geoms), looks(model, "tendon", tendon_ids(model)[list(plan.pieces)])]
    both = Looks(*(np.concatenate(each)[order] for each in zip(*parts, strict=True)))
    size = np.concatenate([np.asarray(model.geom_size)[geoms], np.ones((len(plan.pieces), 3))])[order]
    asset = np.append(model.topology.geom_dataid[geoms], np.full(len(plan.pieces), -1))[order]
    extent = float(model.stat.extent)
    return Scene(
        model,
        places_of(model, plan, poses),
        jnp.asarray(asset, jnp.int32),
        both,
        *factors(kinds, size, both),
        atlas=atlas_of(model.topology),
        tile=jnp.asarray(tile_size(extent), jnp.float32),
        fade=jnp.asarray(8 * extent, jnp.float32),
    )


@functools.partial(jax.jit, static_argnums=1)
def places_of(model: Model, plan: Plan, poses: Kinematics) -> Places:
    """Where the objects of a plan are, (n, ...), or in each of several poses (T, n, ...), in float32."""
    poses = Kinematics(**{f.name: getattr(poses, f.name) for f in dataclasses.fields(Kinematics)})
    place = functools.partial(_placed, model, plan)
    places = place(poses) if poses.xpos.ndim == 2 else jax.vmap(place)(poses)
    return jax.tree.map(lambda leaf: leaf.astype(jnp.float32), places)


def _placed(model: Model, plan: Plan, poses: Kinematics) -> Places:
    geoms, pieces, order = (np.array(ids, int) for ids in (plan.geoms, plan.pieces, plan.order))
    reach = jnp.where(model.geom_rbound > 0, model.geom_rbound, jnp.inf)
    found = [Places(*(pick(each, geoms) for each in (poses.geom_xpos, poses.geom_xmat, model.geom_size, reach)))]
    if len(pieces):
        start, end, radius = (pick(each, pieces) for each in tendon_lines(model, poses))
        middle, matrix, half = along(start, end)
        size = pack([radius, half, jnp.zeros_like(half)])
        # no ray meets what reaches less than nothing
        found.append(Places(middle, matrix, size, jnp.where(radius >= 0, radius + half, -jnp.inf)))
    return Places(*(pick(jnp.concatenate(each), order) for each in zip(*found, strict=True)))


def tile_size(extent: float) -> float:
    """Side of a floor's tiles, m: the largest of 1, 2, 5, 10 ... that is not above a fifth of a model's extent."""
    length = extent / 5
    power = 10.0 ** np.floor(np.log10(max(length, 1e-6)))
    return float(power * max(step for step in (1, 2, 5) if step * power <= length * 1.0001))
