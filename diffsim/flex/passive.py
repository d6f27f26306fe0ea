"""Passive forces of flexes: stretching and bending of elements, springs and dampers of edges.

Stretching (St. Venant-Kirchhoff): an element with edges e of lengths L and rest lengths L0 has the energy
1/4 sum k_ee' s_e s_e', s_e = L^2 - L0^2, so each edge pulls its ends together with (sum_e' k_ee' s_e') times the edge.
Damping adds to s_e what L^2 changed over the last timestep, times damping / timestep (Kharevych et al. 2006, sec. 5.2).

Bending of surfaces: an edge with two triangles, four vertices x_i, has the force -sum_j b_ij x_j, and b_16 times the
gradient of the volume that they span, which a surface that is curved at rest needs (Garg et al. 2007).

As in MuJoCo, forces of elements on vertices are given to the slides of their bodies component by component, as if these
were the axes of the world. Source: MuJoCo documentation, "Computation", "Deformable objects"; engine_passive.c.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.flex.points import edge_flex, edge_vertices, point_forces, sum_on_dofs
from diffsim.flex.strain import edge_rows, elastic_edges
from diffsim.kinematics.tree import dofs_of
from diffsim.math import safe
from diffsim.math.vector import cross, scale, total
from diffsim.types.data import ComFrame, Flexes
from diffsim.types.model import Model
from diffsim.types.topology import Topology, per_topology, rows_of
from diffsim.xla.gather import pick, pick_some, sum_gathered

# numbers that MuJoCo stores of the stiffness of an element, and of the bending of an edge
STIFFNESSES, BENDINGS = 21, 17


def flex_springs(model: Model, com: ComFrame, flexes: Flexes) -> Array:
    """(nv,) forces of bending and of springs of edges, N or N m."""
    topology, vertices = model.topology, flexes.flexvert_xpos
    force, live = jnp.zeros((model.nv,), vertices.dtype), elastic_edges(topology)
    for flaps in flaps_of(topology):
        x, weights = pick(vertices, flaps.vertex), pick(model.flex_bending, flaps.slot)
        first, second, third = x[1] - x[0], x[2] - x[0], x[3] - x[0]
        normals = [cross(second, third), cross(third, first), cross(first, second)]
        volume = jnp.stack([-total(normals), *normals]) * weights[16][None, :, None]
        force = force - sum_on_dofs(model, _thin_plate(weights, x) + volume, flaps.dofs)
    if len(live):
        stretch = pick(model.flexedge_length0 - flexes.flexedge_length, live)
        pull = pick(model.flex_edgestiffness, edge_flex(topology)[live]) * stretch
        force = force + edge_rows(model, com, vertices, live).mul_vec_t(pull)
    return force


def line_energy(model: Model, flexes: Flexes) -> Array:
    """() J, of the springs of edges of lines: as in MuJoCo no other elastic energy of flexes is counted."""
    topology, owner = model.topology, edge_flex(model.topology)
    lines = (topology.flex_dim[owner] == 1) & (topology.flex_rigid[owner] == 0) & (topology.flexedge_rigid == 0)
    edges = np.flatnonzero(lines)
    stretch = pick(model.flexedge_length0 - flexes.flexedge_length, edges)
    return jnp.sum(0.5 * pick(model.flex_edgestiffness, owner[edges]) * stretch * stretch)


def flex_dampers(model: Model, qvel: Array, com: ComFrame, flexes: Flexes) -> Array:
    """(nv,) forces of dampers of bending and of edges, N or N m."""
    topology = model.topology
    force, live = jnp.zeros_like(qvel), elastic_edges(topology)
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
    """The elements of a flex: their edges (k, n), and where their stiffness (k, k, n) stands in flex_stiffness."""

    flex: int
    edge: np.ndarray
    slot: np.ndarray


@per_topology
def _elements_of(topology: Topology) -> tuple[Elements, ...]:
    """The elements of each flex that stretches by elements."""
    listed = []
    for flex in np.flatnonzero((topology.flex_dim > 1) & (topology.flex_rigid == 0) & (topology.flex_interp == 0)):
        first, count = topology.flex_stiffnessadr[flex], topology.flex_elemnum[flex]
        if first >= 0:
            size, start = {2: 3, 3: 6}[int(topology.flex_dim[flex])], topology.flex_elemedgeadr[flex]
            edge = topology.flex_elemedge[start : start + size * count].reshape(count, size).T
            slot = np.zeros((size, size), int)
            slot[np.triu_indices(size)] = np.arange(size * (size + 1) // 2)
            slot = np.maximum(slot, slot.T)[..., None] + first + STIFFNESSES * np.arange(count)
            listed.append(Elements(int(flex), edge + topology.flex_edgeadr[flex], slot))
    return tuple(listed)


def flex_stretching(model: Model, com: ComFrame, flexes: Flexes) -> Array:
    """(nv,) forces of stretched elements, damping included, N or N m."""
    topology, h = model.topology, model.opt.timestep
    vertices, edges, force = flexes.flexvert_xpos, topology.nflexedge, jnp.zeros((model.nv,), com.cdof.dtype)
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
        # bodies that only slide
        dofs = np.where((topology.body_simple[body] == 2)[:, None], dofs_of(topology, body, 3), -1)
        force = force + point_forces(model, com, vertices, pulls, body, dofs)
    return force


class Flaps(NamedTuple):
    """Edges of a flex with two triangles: vertices (4, n), their dofs (4, n, 3), places in flex_bending (17, n)."""

    flex: int
    vertex: np.ndarray
    dofs: np.ndarray
    slot: np.ndarray


@per_topology
def flaps_of(topology: Topology) -> tuple[Flaps, ...]:
    """The edges of each flex that bends."""
    listed = []
    for flex in np.flatnonzero((topology.flex_dim == 2) & (topology.flex_rigid == 0) & (topology.flex_interp == 0)):
        rows = rows_of(topology, "flex_edge", flex)
        edge, flap = topology.flex_edge.reshape(-1, 2)[rows], topology.flex_edgeflap.reshape(-1, 2)[rows]
        inner = np.flatnonzero(flap[:, 1] >= 0)
        if topology.flex_bendingadr[flex] >= 0 and len(inner):
            vertex = np.concatenate([edge, flap], axis=1)[inner].T + topology.flex_vertadr[flex]
            slot = topology.flex_bendingadr[flex] + BENDINGS * inner + np.arange(BENDINGS)[:, None]
            dofs = dofs_of(topology, topology.flex_vertbodyid, 3)[vertex]
            listed.append(Flaps(int(flex), vertex, dofs, slot))
    return tuple(listed)


def _thin_plate(weights: Array, x: Array) -> Array:
    """sum_j b_ij x_j (4, n, 3), of weights (17, n) and x (4, n, 3)."""
    rows = weights[:16].reshape(4, 4, -1)
    return jnp.stack([total([scale(x[j], row[j]) for j in range(4)]) for row in rows])
