"""Boxes around the triangles of a mesh, in a tree with eight children a node: what rays search.

The triangles are halved again and again along the longest side of the box of their middles, until few are left: 2^k
leaves of equally many, some twice. Eight leaves in a row are the children of a node, eight such nodes those of the
next, up to a root with 1 to 8 children, so that places follow from counts and no pointer is stored. Which triangle is
in which leaf is static (`mesh_leafface`); corners and boxes follow from the vertices, as leaves of the model
(`mesh_leafvert`, `mesh_boxes`), each node's and each leaf's in one row.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.types.topology import Topology, per_topology

Floats = TypeVar("Floats", np.ndarray, jax.Array)
Join = Callable[..., Any]

# triangles in a leaf, some of them twice
LEAF = 8
CHILDREN = 8
# lower and upper corner of the box of a child that is not there: inside out, no ray meets it
NOWHERE = (1e30, -1e30)


class Tree(NamedTuple):
    """Counts of one tree: leaves, different triangles in each, levels of nodes, children of the root."""

    leaves: int
    width: int
    depth: int
    top: int

    @property
    def nodes(self) -> list[int]:
        """Nodes of each level, the root's first."""
        return [1, *(self.top * CHILDREN**level for level in range(self.depth - 1))]


class Trees(NamedTuple):
    """The trees of all meshes of a model, one after another.

    `faces` (leaves, 8): rows of mesh_face in each leaf, the last one repeated where a leaf has fewer; `corners`
    (leaves, 8, 3): the rows of mesh_vert at their corners.
    """

    trees: tuple[Tree, ...]
    faces: np.ndarray
    corners: np.ndarray

    @property
    def places(self) -> np.ndarray:
        """(nmesh, 4): first node, first leaf, levels and children of the root of each tree."""
        nodes = np.cumsum([0, *(sum(tree.nodes) for tree in self.trees)])
        leaves = np.cumsum([0, *(tree.leaves for tree in self.trees)])
        rows = [(nodes[mesh], leaves[mesh], tree.depth, tree.top) for mesh, tree in enumerate(self.trees)]
        return np.array(rows, np.int32).reshape(-1, 4)


def tree_of(count: int) -> Tree:
    """The tree over a number of triangles."""
    halvings = max(0, -(-count // LEAF) - 1).bit_length()
    leaves, depth = 1 << halvings, max(1, -(-halvings // 3))
    return Tree(leaves, -(-count // leaves), depth, leaves // CHILDREN ** (depth - 1))


def tree_fields(fields: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """`mesh_leafface`, `mesh_leafvert` and `mesh_boxes` of a compiled model, given its other mesh fields."""
    vertex, face = (np.reshape(fields[f"mesh_{name}"], (-1, 3)) for name in ("vert", "face"))
    rows = zip(*(fields[f"mesh_{name}"] for name in ("faceadr", "facenum", "vertadr", "vertnum")), strict=True)
    leaves = [
        _leaf_faces(vertex[vertadr : vertadr + vertnum], face[faceadr : faceadr + facenum]).reshape(-1)
        for faceadr, facenum, vertadr, vertnum in rows
    ]
    leafface = np.concatenate([np.zeros(0, np.int32), *leaves]).astype(np.int32)
    return {"mesh_leafface": leafface, **around(_plan({**fields, "mesh_leafface": leafface}), vertex.astype(float))}


def _leaf_faces(vertex: np.ndarray, face: np.ndarray) -> np.ndarray:
    """(leaves, triangles in each): numbers of the triangles (m, 3) of one mesh with vertices (n, 3)."""
    tree = tree_of(len(face))
    corners = vertex[face]
    middle = corners.min(axis=1) + corners.max(axis=1)
    # whole leaves: the last triangle stands in for those that are missing
    part = np.minimum(np.arange(tree.leaves * tree.width), len(face) - 1)[None]
    while part.shape[1] > tree.width:
        places = middle[part]
        axis = np.argmax(np.ptp(places, axis=1), axis=1)
        along = np.take_along_axis(places, axis[:, None, None], axis=2)[:, :, 0]
        half = part.shape[1] // 2
        order = np.argpartition(along, half, axis=1)
        part = np.take_along_axis(part, order, axis=1).reshape(-1, half)
    return part


@per_topology
def trees(topology: Topology) -> Trees:
    """The trees of all meshes."""
    return _plan(vars(topology))


def _plan(fields: Mapping[str, Any]) -> Trees:
    plans = tuple(tree_of(int(count)) for count in fields["mesh_facenum"])
    faces, corners, first = [np.zeros((0, LEAF), np.int32)], [np.zeros((0, LEAF, 3), np.int32)], 0
    for mesh, tree in enumerate(plans):
        own = fields["mesh_leafface"][first : first + tree.leaves * tree.width].reshape(tree.leaves, tree.width)
        own = np.pad(own, ((0, 0), (0, LEAF - tree.width)), mode="edge") + fields["mesh_faceadr"][mesh]
        faces.append(own)
        corners.append(np.reshape(fields["mesh_face"], (-1, 3))[own] + fields["mesh_vertadr"][mesh])
        first += tree.leaves * tree.width
    return Trees(plans, np.concatenate(faces).astype(np.int32), np.concatenate(corners).astype(np.int32))


def around(plan: Trees, vertex: Floats) -> dict[str, Floats]:
    """`mesh_leafvert` and `mesh_boxes` of all trees, m, given the vertices (n, 3); of numpy and JAX arrays alike.

    Returns:
      mesh_leafvert: (leaves, 9, 8), x, y and z of the first, second and third corners of the triangles of each leaf.
      mesh_boxes: (nodes, 6, 8), lower and upper corners of each node's children, `NOWHERE` where there is no child; the
        nodes of one mesh follow one another, the root first.
    """
    corners = vertex[plan.corners.reshape(-1)].reshape(*plan.corners.shape[:2], 9)
    return {"mesh_leafvert": corners.swapaxes(1, 2), "mesh_boxes": _boxes(plan, corners)}


def _boxes(plan: Trees, corners: Floats) -> Floats:
    """`mesh_boxes`, given the corners of leaves (leaves, 8, 9). Trees of one shape are computed together."""
    join: Join = jnp.concatenate if isinstance(corners, jax.Array) else np.concatenate
    first_node, first_leaf = plan.places[:, :2].T
    found, nodes = [np.zeros((0, 6, CHILDREN), corners.dtype)], [np.zeros(0, int)]
    for tree in dict.fromkeys(plan.trees):
        same = np.array([mesh for mesh, other in enumerate(plan.trees) if other == tree])
        own = corners[first_leaf[same][:, None] + np.arange(tree.leaves)].reshape(len(same), tree.leaves, -1, 3)
        levels = join(_levels(tree, join, own.min(axis=2), own.max(axis=2)), axis=1)
        found.append(levels.reshape(-1, 6, CHILDREN))
        nodes.append((first_node[same][:, None] + np.arange(sum(tree.nodes))).ravel())
    return join(found)[np.argsort(np.concatenate(nodes))]


def _levels(tree: Tree, join: Join, lower: Any, upper: Any) -> list[Any]:
    """The levels of n trees of one shape from the roots on, (n, nodes, 6, 8), given boxes of leaves (n, leaves, 3)."""
    levels: list[Any] = []
    for count in reversed(tree.nodes):
        low, high = (corner.reshape(len(corner), count, -1, 3).swapaxes(2, 3) for corner in (lower, upper))
        missing = np.ones((*low.shape[:3], CHILDREN - low.shape[3]), low.dtype)
        padded = [join([corner, end * missing], axis=3) for corner, end in zip((low, high), NOWHERE, strict=True)]
        levels.insert(0, join(padded, axis=2))
        lower, upper = low.min(axis=3), high.max(axis=3)
    return levels
