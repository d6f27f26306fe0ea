"""Convex hulls out of mesh_graph and polygons out of mesh_poly*, without the order in which they happen to stand."""

from typing import Any

import numpy as np


def hull_of(model: Any, mesh: int) -> tuple[frozenset, frozenset, frozenset]:
    """Vertices, directed neighbours and triangles (rotated to begin with the smallest vertex) of a mesh's hull."""
    start = int(model.mesh_graphadr[mesh])
    if start < 0:
        return frozenset(), frozenset(), frozenset()
    graph = np.asarray(model.mesh_graph)[start:]
    nvert, nface = graph[:2].tolist()
    first, vertex = graph[2 : 2 + nvert], graph[2 + nvert : 2 + 2 * nvert].tolist()
    rest = graph[2 + 2 * nvert :]
    edges = set()
    for k in range(nvert):
        at = first[k]
        while rest[at] >= 0:
            edges.add((vertex[k], vertex[rest[at]]))
            at += 1
    faces = rest[nvert + 3 * nface : nvert + 6 * nface].reshape(-1, 3).tolist()
    return frozenset(vertex), frozenset(edges), frozenset(rotated(face) for face in faces)


def polygons_of(model: Any, mesh: int, normals: Any) -> dict[tuple, np.ndarray]:
    """Polygons of a mesh's hull, rotated likewise, with their normals."""
    first, number = int(model.mesh_polyadr[mesh]), int(model.mesh_polynum[mesh])
    found = {}
    for polygon in range(first, first + number):
        at, count = int(model.mesh_polyvertadr[polygon]), int(model.mesh_polyvertnum[polygon])
        found[rotated(np.asarray(model.mesh_polyvert)[at : at + count].tolist())] = np.asarray(normals)[polygon]
    return found


def polygons_around(model: Any, mesh: int) -> list[frozenset]:
    """For each vertex of a mesh the polygons that it is a corner of."""
    first, number = int(model.mesh_vertadr[mesh]), int(model.mesh_vertnum[mesh])
    table = list(polygons_of(model, mesh, np.zeros((int(model.nmeshpoly), 3))))
    around = []
    for vertex in range(first, first + number):
        at, count = int(model.mesh_polymapadr[vertex]), int(model.mesh_polymapnum[vertex])
        around.append(frozenset(table[k] for k in np.asarray(model.mesh_polymap)[at : at + count]))
    return around


def rotated(path: list[int]) -> tuple[int, ...]:
    """A closed path, beginning with its smallest vertex."""
    start = path.index(min(path))
    return tuple(path[start:] + path[:start])
