"""Passive forces of flexes: stretching and bending of elements, springs and dampers of edges.

Stretching (St. Venant-Kirchhoff): an element with edges e of lengths L and rest lengths L0 has the energy
1/4 sum_ee' k_ee' s_e s_e' with s_e = L^2 - L0^2. So each edge pulls its ends together with a force of
(sum_e' k_ee' s_e') times the edge vector. Damping adds to s_e the change of L^2 over the last timestep, times damping /
timestep (Kharevych et al. 2006, sec. 5.2).

Bending of surfaces: the force of an edge with two triangles on its four vertices x_i is -sum_j b_ij x_j minus b_16
times the gradient of the volume that the vertices span. The second term is zero unless the surface is curved at rest
(Garg et al. 2007).

As in MuJoCo, the components of a force on a vertex act directly on the three slide joints of its body, as if their axes
were the axes of the world. Source: MuJoCo documentation, "Computation", "Deformable objects"; engine_passive.c.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.flex.material import NBENDING, NSTIFFNESS
from diffsim.flex.points import edge_flex, edge_vertices, point_forces, sum_on_dofs
from diffsim.flex.strain import edge_rows, elastic_edges
from diffsim.kinematics.tree import dofs_of
from diffsim.math import safe
from diffsim.math.vector import cross, scale, total
from diffsim.types.data import ComFrame, Flexes
from diffsim.types.model import Model
from diffsim.types.topology import Topology, per_topology, rows_of
from diffsim.xla.gather import pick, pick_some, sum_gathered


def flex_springs(model: Model, com: ComFrame, flexes: Flexes) -> Array:
    """(nv,) N or N m: forces of bending and of edge springs."""
    topology = model.topology
    vertices = flexes.flexvert_xpos
    force = jnp.zeros((model.nv,), vertices.dtype)
    live = elastic_edges(topology)
    for flaps in flaps_of(topology):
        x = pick(vertices, flaps.vertex)
        weights = pick(model.flex_bending, flaps.slot)
        first = x[1] - x[0]
        second = x[2] - x[0]
        third = x[3] - x[0]
        normals = [cross(second, third), cross(third, first), cross(first, second)]
        # the gradient of the volume with respect to each vertex, times b_16
        volume = jnp.stack([-total(normals), *normals]) * weights[16][None, :, None]
        force = force - sum_on_dofs(model, _thin_plate(weights, x) + volume, flaps.dofs)
    if len(live):
        stretch = pick(model.flexedge_length0 - flexes.flexedge_length, live)
        pull = pick(model.flex_edgestiffness, edge_flex(topology)[live]) * stretch
        force = force + edge_rows(model, com, vertices, live).mul_vec_t(pull)
    return force


def line_energy(model: Model, flexes: Flexes) -> Array:
    """() J: energy of the edge springs of flexes of dim 1; like MuJoCo, it leaves out all other energy of flexes."""
    topology = model.topology
    owner = edge_flex(model.topology)
    lines = (topology.flex_dim[owner] == 1) & (topology.flex_rigid[owner] == 0) & (topology.flexedge_rigid == 0)
    edges = np.flatnonzero(lines)
    stretch = pick(model.flexedge_length0 - flexes.flexedge_length, edges)
    return jnp.sum(0.5 * pick(model.flex_edgestiffness, owner[edges]) * stretch * stretch)


def flex_dampers(model: Model, qvel: Array, com: ComFrame, flexes: Flexes) -> Array:
    """(nv,) N or N m: forces of the dampers of bending and of edges."""
    topology = model.topology
    force = jnp.zeros_like(qvel)
    live = elastic_edges(topology)
    for flaps in flaps_of(topology):
        weights = pick(model.flex_bending, flaps.slot)
        speed = pick_some(qvel, flaps.dofs)
        drag = _thin_plate(weights, speed) * model.flex_damping[flaps.flex]
        force = force - sum_on_dofs(model, drag, flaps.dofs)
    if len(live):
        drag = -pick(model.flex_edgedamping, edge_flex(topology)[live]) * pick(flexes.flexedge_velocity, live)
        force = force + edge_rows(model, com, flexes.flexvert_xpos, live).mul_vec_t(drag)
    return force


class Elements(NamedTuple):
    """The n elements of a flex, with k edges each.

    Attributes:
      flex: index of the flex.
      edge: (k, n) edges of each element.
      slot: (k, k, n) where their stiffness is stored in flex_stiffness.
    """

    flex: int
    edge: np.ndarray
    slot: np.ndarray


@per_topology
def _elements_of(topology: Topology) -> tuple[Elements, ...]:
    """The elements of each flex whose elements resist stretching."""
    listed = []
    for flex in np.flatnonzero((topology.flex_dim > 1) & (topology.flex_rigid == 0) & (topology.flex_interp == 0)):
        first = topology.flex_stiffnessadr[flex]
        count = topology.flex_elemnum[flex]
        if first >= 0:
            # number of edges of a triangle or tetrahedron
            size = {2: 3, 3: 6}[int(topology.flex_dim[flex])]
            start = topology.flex_elemedgeadr[flex]
            edge = topology.flex_elemedge[start : start + size * count].reshape(count, size).T
            # flex_stiffness has the upper triangle of each matrix, row by row
            slot = np.zeros((size, size), int)
            slot[np.triu_indices(size)] = np.arange(size * (size + 1) // 2)
            slot = np.maximum(slot, slot.T)[..., None] + first + NSTIFFNESS * np.arange(count)
            listed.append(Elements(int(flex), edge + topology.flex_edgeadr[flex], slot))
    return tuple(listed)


def flex_stretching(model: Model, com: ComFrame, flexes: Flexes) -> Array:
    """(nv,) N or N m: forces of stretched elements, including their damping."""
    topology = model.topology
    h = model.opt.timestep
    vertices = flexes.flexvert_xpos
    edges = topology.nflexedge
    force = jnp.zeros((model.nv,), com.cdof.dtype)
    for elements in _elements_of(topology):
        length = pick(flexes.flexedge_length, elements.edge)
        before = length - h * pick(flexes.flexedge_velocity, elements.edge)
        strain = length * length - jnp.square(pick(model.flexedge_length0, elements.edge))
        rate = safe.divide(model.flex_damping[elements.flex], h)
        strain = strain + rate * (length * length - before * before)
        stiffness = pick(model.flex_stiffness, elements.slot)
        tension = total([stiffness[:, k] * strain[k][None] for k in range(len(strain))])
        pull = sum_gathered(tension.reshape(-1), tuple(elements.edge.ravel().tolist()), edges, 0)
        ends = edge_vertices(topology)
        toward = scale(pick(vertices, ends[1]) - pick(vertices, ends[0]), pull)
        ids = tuple(ends.ravel().tolist())
        pulls = sum_gathered(jnp.concatenate([toward, -toward]), ids, len(vertices), 0)
        body = topology.flex_vertbodyid
        # the three slides of bodies that only slide; other bodies are pushed at the point
        dofs = np.where((topology.body_simple[body] == 2)[:, None], dofs_of(topology, body, 3), -1)
        force = force + point_forces(model, com, vertices, pulls, body, dofs)
    return force


class Flaps(NamedTuple):
    """The n edges of a flex that have two triangles.

    Attributes:
      flex: index of the flex.
      vertex: (4, n) the two ends of each edge and the two opposite vertices.
      dofs: (4, n, 3) the slides of their bodies.
      slot: (17, n) where the edge's numbers are stored in flex_bending.
    """

    flex: int
    vertex: np.ndarray
    dofs: np.ndarray
    slot: np.ndarray


@per_topology
def flaps_of(topology: Topology) -> tuple[Flaps, ...]:
    """The edges with two triangles of each flex that resists bending."""
    listed = []
    for flex in np.flatnonzero((topology.flex_dim == 2) & (topology.flex_rigid == 0) & (topology.flex_interp == 0)):
        rows = rows_of(topology, "flex_edge", flex)
        edge, flap = topology.flex_edge.reshape(-1, 2)[rows], topology.flex_edgeflap.reshape(-1, 2)[rows]
        inner = np.flatnonzero(flap[:, 1] >= 0)
        if topology.flex_bendingadr[flex] >= 0 and len(inner):
            vertex = np.concatenate([edge, flap], axis=1)[inner].T + topology.flex_vertadr[flex]
            slot = topology.flex_bendingadr[flex] + NBENDING * inner + np.arange(NBENDING)[:, None]
            dofs = dofs_of(topology, topology.flex_vertbodyid, 3)[vertex]
            listed.append(Flaps(int(flex), vertex, dofs, slot))
    return tuple(listed)


def _thin_plate(weights: Array, x: Array) -> Array:
    """(4, n, 3) sum_j b_ij x_j, given weights (17, n) and x (4, n, 3)."""
    rows = weights[:16].reshape(4, 4, -1)
    return jnp.stack([total([scale(x[j], row[j]) for j in range(4)]) for row in rows])
