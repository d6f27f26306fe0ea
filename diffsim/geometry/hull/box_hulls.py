"""Boxes among the hulls of meshes, in arrays of one size: a few pairs with boxes need no program of their own."""

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.base.enums import GeomType
from diffsim.geometry.assets import Hull, hulls
from diffsim.geometry.hull.polytope import BOX, CORNERS, with_polygons
from diffsim.geometry.hull.tables import Sizes, hull_sizes
from diffsim.math import safe
from diffsim.types.model import Model
from diffsim.types.topology import Topology
from diffsim.xla.pick import pick

Array = jax.Array

# padded sizes of a box as a hull, in the order of `hull_sizes`
BOX_SIZES = (8, 1, 8, 8, 8, 8, 8, 16)


def box_or_mesh_sizes(topology: Topology, geom: int) -> Sizes:
    """Padded sizes of a geom's hull."""
    is_mesh = topology.geom_type[geom] == GeomType.MESH
    return hull_sizes(topology, int(topology.geom_dataid[geom])) if is_mesh else BOX_SIZES


def boxes_and_meshes(model: Model, geoms: tuple[int, ...], sizes: Sizes) -> Hull:
    """The hulls of some boxes and meshes, stacked."""
    topology = model.topology
    boxes = [geom for geom in geoms if topology.geom_type[geom] == GeomType.BOX]
    data = {geom: int(topology.geom_dataid[geom]) for geom in geoms if geom not in boxes}
    meshes = tuple(sorted(set(data.values())))
    own = jax.vmap(lambda size: _box(size, sizes))(pick(model.geom_size, np.array(boxes, int)))
    table = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), own, hulls(model, meshes, sizes)) if meshes else own
    row = [len(boxes) + meshes.index(data[geom]) if geom in data else boxes.index(geom) for geom in geoms]
    return jax.tree.map(lambda x: pick(x, np.array(row, int)), table)


def _box(size: Array, sizes: Sizes) -> Hull:
    """The hull of a box in arrays of some sizes."""
    vertices, lists, longest, sides, corners, ends, facets, edges = sizes
    hull = with_polygons(jnp.asarray(CORNERS, size.dtype) * size[None], BOX)
    vert = jnp.concatenate([hull.vert, jnp.broadcast_to(hull.vert[:1], (vertices - len(CORNERS), 3))])
    return Hull(
        vert=vert,
        around=jnp.full((lists, longest), -1, jnp.int32),
        bound=safe.norm(size),
        side=_padded(hull.side, (sides, corners), -1),
        normal=_padded(hull.normal, (sides, 3), 0),
        joined=_padded(hull.joined, (vertices, ends), -1),
        facet=_padded(hull.facet, (facets, 3), -1),
        outward=_padded(hull.outward, (facets, 3), 0),
        edge=_padded(hull.edge, (edges, 2), -1),
        flank=_padded(hull.flank, (edges, 2), -1),
    )


def _padded(table: Array, shape: tuple[int, int], value: int) -> Array:
    return jnp.pad(
        table, [(0, size - own) for size, own in zip(shape, table.shape, strict=True)], constant_values=value
    )
