"""Edges of flexes: their lengths, how fast these grow, and the Jacobian rows of both.

An edge from x1 to x2 with unit vector u has the rate u . (v2 - v1). Flexes that are one rigid body, or whose vertices
are interpolated, have no edges that stretch. Source: mj_flex.
"""

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.flex.nodes import interpolated, interpolated_positions, node_positions
from diffsim.flex.points import point_rows, vertex_positions
from diffsim.flex.vertex_strain import neighbours, vertex_strain
from diffsim.math import safe
from diffsim.math.stencil_rows import Segment
from diffsim.types.data import ComFrame, Flexes, Kinematics
from diffsim.types.model import Model
from diffsim.types.topology import Topology, per_topology
from diffsim.xla.gather import pick, place

Array = jax.Array


@per_topology
def edge_vertices(topology: Topology) -> np.ndarray:
    """(2, nflexedge) both vertices of each edge, numbered over all flexes."""
    return (topology.flex_edge.reshape(-1, 2) + topology.flex_vertadr[edge_flex(topology)][:, None]).T


@per_topology
def edge_flex(topology: Topology) -> np.ndarray:
    """(nflexedge,) the flex of each edge."""
    return np.repeat(np.arange(topology.nflex), topology.flex_edgenum)


@per_topology
def elastic_edges(topology: Topology) -> np.ndarray:
    """(n,) the edges that stretch."""
    return np.flatnonzero(((topology.flex_rigid == 0) & (topology.flex_interp == 0))[edge_flex(topology)])


def edge_rows(model: Model, com: ComFrame, vertices: Array, edges: np.ndarray) -> Segment:
    """Rows that measure how fast some edges (n,) grow, of vertices (nflexvert, 3) in the world."""
    ends = edge_vertices(model.topology)[:, edges]
    pos = pick(vertices, ends)
    unit = safe.normalize(pos[1] - pos[0])
    return point_rows(model, com, model.topology.flex_vertbodyid[ends], pos, jnp.stack([-unit, unit])[:, None])


def flex_vertices(model: Model, kinematics: Kinematics) -> Array:
    """(nflexvert, 3) m, in the world, of all flexes."""
    topology, vertices = model.topology, vertex_positions(model, kinematics)
    nodes = node_positions(model, kinematics) if interpolated(topology) else None
    for flex in interpolated(topology):
        assert nodes is not None
        first = int(topology.flex_vertadr[flex])
        places = slice(first, first + int(topology.flex_vertnum[flex]))
        vertices = vertices.at[places].set(interpolated_positions(model, flex, nodes))
    return vertices


def compute_flexes(model: Model, qvel: Array, kinematics: Kinematics, com: ComFrame) -> Flexes:
    """Vertices of flexes and their edges, from poses and velocities qvel (nv,).

    As in MuJoCo, edges have no velocity where nothing reads it: neither constraints, nor dampers, nor springs.
    """
    topology, live = model.topology, elastic_edges(model.topology)
    vertices, edges = flex_vertices(model, kinematics), topology.nflexedge
    length, velocity = jnp.zeros((2, edges), vertices.dtype)
    if len(live):
        first, second = pick(vertices, edge_vertices(topology)[:, live])
        length = place(edges, live, safe.norm(second - first))
        used = (model.flex_edgedamping != 0) | (model.flex_edgestiffness != 0) | (model.flex_damping != 0)
        used = pick(used | (topology.flex_edgeequality == 1), edge_flex(topology)[live])
        rate = edge_rows(model, com, vertices, live).mul_vec(qvel)
        velocity = place(edges, live, jnp.where(used, rate, 0))
    invariants, at = jnp.zeros((topology.nflexvert, 2), length.dtype), neighbours(topology).vertex
    if len(at):
        invariants = place(len(invariants), at, vertex_strain(model, vertices).invariant.T)
    return Flexes(
        flexvert_xpos=vertices,
        flexvert_length=invariants,
        flexedge_length=length,
        flexedge_velocity=velocity,
    )
