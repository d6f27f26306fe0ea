"""Facets and edges of hulls: what is flat is one facet, whatever its triangles."""

import numpy as np
import pytest
from geometry.hulls import BOX, cloud, column
from geometry.test_sides import DODECAHEDRON, SLIVERS, TURN

from diffsim.compiler.assets.hull import convex_hull
from diffsim.geometry.hull.tables import facet_fields, outline_of

CASES = {
    "box": (BOX, 6, 12),
    "prism": (column(7, 0.2, 0.1), 9, 21),
    "dodecahedron": (DODECAHEDRON, 12, 30),
    "cloud": (cloud(20, 1), 36, 54),
}


def owners(vertex: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The triangles of a hull and their facets, of vertices in float32 as models have them."""
    triangle = convex_hull(vertex.astype(np.float32).astype(float)).face
    number = np.unique(triangle)
    counts = [len(number), len(triangle)]
    unused = np.zeros(2 * len(number) + len(number) + 3 * len(triangle), int)
    fields = {
        "mesh_vert": vertex,
        "mesh_vertadr": np.zeros(1, int),
        "mesh_graphadr": np.zeros(1, int),
        "mesh_graph": np.concatenate([counts, unused, triangle.ravel()]),
    }
    return triangle, facet_fields(fields)["mesh_facet"]


@pytest.mark.parametrize("name", CASES)
def test_flat_triangles_are_one_facet(name: str) -> None:
    vertex, facets, edges = CASES[name]
    triangle, owner = owners(vertex @ TURN.T)
    found = outline_of(triangle.tolist(), owner)
    assert len(np.unique(owner)) == facets
    assert len(found.edge) == edges
    assert len(found.facet) == len(triangle)


def test_slivers_belong_to_what_they_lie_on() -> None:
    """The largest triangle stands for them: they have no direction of their own."""
    triangle, owner = owners(SLIVERS @ TURN.T)
    assert len(triangle) > 12
    assert len(np.unique(owner)) == 6


def test_edges_run_with_their_first_facet_on_the_left() -> None:
    vertex = cloud(20, 1)
    triangle, owner = owners(vertex)
    found = outline_of(triangle.tolist(), owner)
    corner = vertex[found.facet]
    outward = np.cross(corner[:, 1] - corner[:, 0], corner[:, 2] - corner[:, 0])
    along = vertex[found.edge[:, 1]] - vertex[found.edge[:, 0]]
    bend = np.cross(outward[found.flank[:, 0]], outward[found.flank[:, 1]])
    assert np.all(np.sum(bend * along, axis=1) > 0)
