"""Strain of flexes: lengths of edges, invariants at the vertices of surfaces, their rates and Jacobian rows.

The length of an edge from x1 to x2 with unit vector u changes at the rate u . (v2 - v1). Edges of rigid and of
interpolated flexes have no such length.

A vertex of a surface has two invariants of C = F^T F, both zero at rest. F (3 x 2) maps the edges dx at the vertex, in
the plane of the rest shape, to the current edges dy by least squares, weighted with the masses w of the neighbours:
F = (sum w dy dx^T) B^-1 with B = sum w dx dx^T. The invariants are tr C - 2 and det C - 1, times the square root of the
vertex's mass. Their derivatives with respect to dy are 2 w F B^-1 dx and 2 w F adj(C) B^-1 dx, times the same root.
Source: Chen, Kry and Vouga 2019, "Locking-free simulation of isometric thin plates"; mj_flex.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.base.enums import MINVAL
from diffsim.flex.nodes import interpolated, interpolated_positions, node_positions
from diffsim.flex.points import edge_flex, edge_vertices, point_rows, vertex_positions
from diffsim.flex.rest_shape import EDGES, VERTICES
from diffsim.math import safe
from diffsim.math.stencil_rows import Segment
from diffsim.math.vector import dot_components, total
from diffsim.types.data import ComFrame, Flexes, Kinematics
from diffsim.types.model import Model
from diffsim.types.topology import Topology, per_topology, rows_of
from diffsim.xla.gather import pick, place


@per_topology
def elastic_edges(topology: Topology) -> np.ndarray:
    """(n,) the edges that can stretch."""
    return np.flatnonzero(((topology.flex_rigid == 0) & (topology.flex_interp == 0))[edge_flex(topology)])


def edge_rows(model: Model, com: ComFrame, vertices: Array, edges: np.ndarray) -> Segment:
    """Jacobian rows of the lengths of some edges (n,), given vertices (nflexvert, 3) in the world."""
    ends = edge_vertices(model.topology)[:, edges]
    pos = pick(vertices, ends)
    unit = safe.normalize(pos[1] - pos[0])
    return point_rows(model, com, model.topology.flex_vertbodyid[ends], pos, jnp.stack([-unit, unit])[:, None])


def flex_vertices(model: Model, kinematics: Kinematics) -> Array:
    """(nflexvert, 3) m: vertices of all flexes in the world."""
    topology = model.topology
    vertices = vertex_positions(model, kinematics)
    nodes = node_positions(model, kinematics) if interpolated(topology) else None
    for flex in interpolated(topology):
        assert nodes is not None
        vertices = vertices.at[rows_of(topology, "flex_vert", flex)].set(interpolated_positions(model, flex, nodes))
    return vertices


class Neighbours(NamedTuple):
    """The n vertices of surfaces with flexvert equalities.

    Attributes:
      vertex: (n,) the vertices.
      flex: (n,) their flexes.
      neighbour: (k, n) the other ends of their edges; -1 fills the columns of vertices with fewer edges.
    """

    vertex: np.ndarray
    flex: np.ndarray
    neighbour: np.ndarray


@per_topology
def neighbours(topology: Topology) -> Neighbours:
    """The vertices of all surfaces with flexvert equalities, and their neighbours."""
    flexes = np.flatnonzero((topology.flex_dim == 2) & (topology.flex_edgeequality == VERTICES))
    flexes = flexes[(topology.flex_rigid[flexes] == 0) & (topology.flex_interp[flexes] == 0)]
    vertex, owner, around = [], [], []
    for flex in flexes:
        start = topology.flex_vertadr[flex]
        edges = topology.flex_edge.reshape(-1, 2)[rows_of(topology, "flex_edge", flex)]
        for v in range(topology.flex_vertnum[flex]):
            at = topology.flex_vertedgeadr[start + v]
            edge_ids = edges[topology.flex_vertedge.ravel()[at : at + topology.flex_vertedgenum[start + v]]]
            around.append(np.where(edge_ids[:, 0] == v, edge_ids[:, 1], edge_ids[:, 0]) + start)
            vertex.append(start + v)
            owner.append(flex)
    table = np.full((max(map(len, around), default=0), len(vertex)), -1)
    for column, near in enumerate(around):
        table[: len(near), column] = near
    return Neighbours(np.array(vertex, int), np.array(owner, int), table)


class VertexStrain(NamedTuple):
    """Invariants (2, n) at the vertices of `neighbours`, and derivatives (k, 2, n, 3) with respect to neighbours."""

    invariant: Array
    gradient: Array


def vertex_strain(model: Model, vertices: Array) -> VertexStrain:
    """The invariants and their derivatives, given vertices (nflexvert, 3) in the world.

    In the terms of the module's docstring, `metric` is B^-1, `moment` is sum w dy dx^T, `stretch` is F and `cauchy` is
    C.
    """
    topology = model.topology
    vertex, flex, near = neighbours(topology)
    exists = near >= 0
    other = np.maximum(near, 0)
    size = 2 * pick(model.flex_size, flex)
    rest = (pick(model.flex_vert0, other) - pick(model.flex_vert0, vertex)[None]) * size[None]
    now = pick(vertices, other) - pick(vertices, vertex)[None]
    mass = pick(model.body_mass, topology.flex_vertbodyid)
    weight = jnp.where(exists, jnp.maximum(pick(mass, other), MINVAL), 0)
    dx = [rest[..., i] for i in range(2)]
    metric = [[pick(model.flex_vertmetric[:, 2 * i + j], vertex) for j in range(2)] for i in range(2)]
    moment = [[jnp.sum(weight * now[..., i] * dx[j], axis=0) for j in range(2)] for i in range(3)]
    stretch = [[dot_components(row, [metric[0][j], metric[1][j]]) for j in range(2)] for row in moment]
    cauchy = [[total([row[i] * row[j] for row in stretch]) for j in range(2)] for i in range(2)]
    mass_of_vertex = pick(mass, vertex)
    unit = jnp.where(mass_of_vertex > MINVAL, safe.sqrt(mass_of_vertex), 1)
    determinant = cauchy[0][0] * cauchy[1][1] - cauchy[0][1] * cauchy[1][0]
    invariant = jnp.stack([cauchy[0][0] + cauchy[1][1] - 2, determinant - 1]) * unit[None]
    # B^-1 dx, then adj(C) B^-1 dx
    flat = [dot_components([m[None] for m in row], dx) for row in metric]
    (c00, c01), (c10, c11) = ([c[None] for c in row] for row in cauchy)
    adjugate = [c11 * flat[0] - c01 * flat[1], c00 * flat[1] - c10 * flat[0]]
    factor = 2 * weight * unit[None]
    rows = [[f[None] for f in row] for row in stretch]
    gradients = [
        jnp.stack([factor * dot_components(row, plane) for row in rows], axis=-1) for plane in (flat, adjugate)
    ]
    return VertexStrain(invariant, jnp.stack(gradients, axis=1))


def vertex_rows(model: Model, com: ComFrame, vertices: Array, strain: VertexStrain, chosen: np.ndarray) -> Segment:
    """Jacobian rows (2 n) of both invariants at `chosen` (n,) of the vertices of `neighbours`, vertex by vertex."""
    vertex, _, near = neighbours(model.topology)
    gradient = strain.gradient[:, :, chosen]
    ids = np.concatenate([np.where(near < 0, vertex, near), vertex[None]])[:, chosen]
    direction = jnp.concatenate([gradient, -jnp.sum(gradient, axis=0, keepdims=True)])
    # the two rows of a vertex follow each other
    direction = jnp.swapaxes(direction, 1, 2).reshape(len(ids), 1, -1, 3)
    ids = np.repeat(ids, 2, axis=1)
    return point_rows(model, com, model.topology.flex_vertbodyid[ids], pick(vertices, ids), direction)


def compute_flexes(model: Model, qvel: Array, kinematics: Kinematics, com: ComFrame) -> Flexes:
    """Vertices of flexes and their edges, from poses and velocities qvel (nv,).

    As in MuJoCo, the velocity of an edge stays zero if no constraint, damper or spring of its flex reads it.
    """
    topology = model.topology
    live = elastic_edges(model.topology)
    vertices = flex_vertices(model, kinematics)
    edges = topology.nflexedge
    length, velocity = jnp.zeros((2, edges), vertices.dtype)
    if len(live):
        first, second = pick(vertices, edge_vertices(topology)[:, live])
        length = place(edges, live, safe.norm(second - first))
        used = (model.flex_edgedamping != 0) | (model.flex_edgestiffness != 0) | (model.flex_damping != 0)
        used = pick(used | (topology.flex_edgeequality == EDGES), edge_flex(topology)[live])
        rate = edge_rows(model, com, vertices, live).mul_vec(qvel)
        velocity = place(edges, live, jnp.where(used, rate, 0))
    invariants = jnp.zeros((topology.nflexvert, 2), length.dtype)
    at = neighbours(topology).vertex
    if len(at):
        invariants = place(len(invariants), at, vertex_strain(model, vertices).invariant.T)
    return Flexes(
        flexvert_xpos=vertices,
        flexvert_length=invariants,
        flexedge_length=length,
        flexedge_velocity=velocity,
    )
