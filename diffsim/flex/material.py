"""Stiffness of flexes that are not interpolated: Saint Venant-Kirchhoff elements, and bending of surfaces.

The energy of an element is quadratic in L^2 - L0^2, where L are the lengths of its edges; `flex_stiffness` holds the
matrix. The edge from vertex a to vertex b contributes the strain B_ab = -(g_a g_b^T + g_b g_a^T) / 2, where g are the
gradients of the barycentric coordinates. Therefore the matrix follows from the products G_ab = g_a . g_b alone:

    k(ab, cd) = mu tr(B_ab B_cd) + lambda tr(B_ab) tr(B_cd)
              = mu (G_ac G_bd + G_ad G_bc) / 2 + lambda G_ab G_cd

A surface bends as a cubic shell. The two triangles at an edge have a 4 x 4 matrix, which follows from the
cotangents of their angles, and one number for their curvature at rest. Source: ComputeStiffness, ComputeBending of
user_mesh.cc (MuJoCo 3.8.1); Weischedel 2012; Wardetzky et al. 2007, Garg et al. 2007.
"""

from itertools import combinations_with_replacement
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.base.enums import Elastic2D
from diffsim.flex.cells import cell_stiffness, shell_bending
from diffsim.flex.points import flex_elements
from diffsim.flex.rest_shape import VERTICES, RestShape
from diffsim.math.safe import divide, norm
from diffsim.math.vector import cross, dot
from diffsim.types.model import Model
from diffsim.types.topology import Topology, per_topology, rows_of

Fields = dict[str, Array]

# the edges of an element, as pairs of its vertices, by dimension
EDGES = {
    1: ((0, 1),),
    2: ((1, 2), (2, 0), (0, 1)),
    3: ((0, 1), (1, 2), (2, 0), (2, 3), (0, 3), (1, 3)),
}
# numbers for the stiffness of an element, as MuJoCo stores it: the upper triangle of the 6 x 6 matrix of a tetrahedron
NSTIFFNESS = 21
# numbers for the bending of an edge: a 4 x 4 matrix over the vertices of two triangles, and the curvature at rest
NBENDING = 17
# value of flex_edgeequality for strain equalities, whose modes the compiler finds (compiler/derive.py)
STRAIN = VERTICES + 1
# value of flex_elastic2d in a model from MuJoCo's compiler, which does not keep the material
UNKNOWN = -1


def material_fields(model: Model, rest: RestShape, node0: Array) -> Fields:
    """flex_stiffness and flex_bending, one flex after the other."""
    topology = model.topology
    stiffness, bending = list[Array](), list[Array]()
    for flex in range(topology.nflex):
        entries = _of_flex(model, flex)
        if entries["stiffness"].size:
            stiffness.append(_stiffness(model, flex, rest, node0, entries["stiffness"]))
        if entries["bending"].size:
            bending.append(_bending(model, flex, rest, node0, entries["bending"]))
    return {
        "flex_stiffness": jnp.concatenate(stiffness) if stiffness else model.flex_stiffness,
        "flex_bending": jnp.concatenate(bending) if bending else model.flex_bending,
    }


def _of_flex(model: Model, flex: int) -> dict[str, Array]:
    """The entries of flex_stiffness and flex_bending that belong to a flex."""
    topology = model.topology
    parts = {}
    for what, values in (("stiffness", model.flex_stiffness), ("bending", model.flex_bending)):
        first = getattr(topology, f"flex_{what}adr")
        later = first[flex + 1 :][first[flex + 1 :] >= 0]
        stop = int(later[0]) if len(later) else values.shape[0]
        parts[what] = values[first[flex] : stop] if first[flex] >= 0 else values[:0]
    return parts


def _stiffness(model: Model, flex: int, rest: RestShape, node0: Array, known: Array) -> Array:
    """The entries of flex_stiffness of a flex: of all elements or, if it is interpolated, of all cells.

    known: the present entries, which are kept if the material is unknown or if they are modes of strain equalities.
    """
    topology = model.topology
    strained = topology.flex_edgeequality[flex] == STRAIN and topology.flex_interp[flex]
    if topology.flex_elastic2d[flex] == UNKNOWN or strained:
        return known
    young, poisson = model.flex_young[flex], model.flex_poisson[flex]
    if topology.flex_interp[flex]:
        return cell_stiffness(topology, flex, node0, young, poisson, model.flex_thickness[flex]).reshape(-1)
    dim = topology.flex_dim[flex]
    stretches = bool(topology.flex_elastic2d[flex] & Elastic2D.STRETCH)
    if dim == 1 or (dim == 2 and not stretches):
        return jnp.zeros_like(known)
    corner = rest.vertex[flex_elements(topology, flex)]
    volume, products = _gradient_products(corner)
    constants = elastic_constants(model, flex)
    mu = constants.mu * volume
    la = constants.la * volume
    terms = []
    # k(ab, cd) of the module's docstring, for the upper triangle of the matrix, row by row
    for (a, b), (c, d) in combinations_with_replacement(EDGES[int(dim)], 2):
        shear = products[a][c] * products[b][d] + products[a][d] * products[b][c]
        terms.append(mu * shear / 2 + la * products[a][b] * products[c][d])
    terms += [jnp.zeros_like(volume)] * (NSTIFFNESS - len(terms))
    return jnp.stack(terms, axis=1).reshape(-1)


class ElasticConstants(NamedTuple):
    """The factors mu and lambda of the stiffness (Pa; N/m for a surface), and a surface's bending rigidity (N m)."""

    mu: Array
    la: Array
    bending: Array


def elastic_constants(model: Model, flex: int) -> ElasticConstants:
    """The constants of a flex from Young's modulus, Poisson's ratio and, for a surface, the thickness.

    In 4.0, lambda is half of the Lame parameter, and a surface is a plate in plane stress with the rigidity
    E t^3 / (12 (1 - nu^2)). In 3.8.1, a surface has a quarter of both, and another rigidity.
    """
    young, poisson = model.flex_young[flex], model.flex_poisson[flex]
    surface = model.topology.flex_dim[flex] == 2
    thickness = model.flex_thickness[flex] if surface else jnp.ones_like(young)
    mu = young / (2 * (1 + poisson))
    la = young * poisson / ((1 + poisson) * (1 - 2 * poisson))
    if not model.opt.follows("elastic_constants"):
        quarter = thickness / 4 if surface else thickness
        return ElasticConstants(mu=mu * quarter, la=la * quarter, bending=mu * thickness**3 / 8)
    la = young * poisson / (1 - poisson**2) if surface else la
    bending = young * thickness**3 / (12 * (1 - poisson**2))
    return ElasticConstants(mu=mu * thickness, la=la * thickness / 2, bending=bending)


def _gradient_products(corner: Array) -> tuple[Array, list[list[Array]]]:
    """Volumes (m,) of simplices with corners (m, dim + 1, 3), and G_ab for all pairs of corners, each (m,).

    With the first corner as the origin, the gradients of the other coordinates are the dual basis of the sides. They
    sum to zero over all corners, which gives the gradient of the first.
    """
    first = corner[:, 0]
    if corner.shape[1] == 3:
        u = corner[:, 1] - first
        v = corner[:, 2] - first
        normal = cross(u, v)
        square = dot(normal, normal)
        inner = [
            [divide(dot(v, v), square), divide(-dot(u, v), square)],
            [divide(-dot(u, v), square), divide(dot(u, u), square)],
        ]
        volume = norm(normal) / 2
    else:
        u, v, w = (corner[:, index] - first for index in (1, 2, 3))
        sides = [cross(v, w), cross(w, u), cross(u, v)]
        determinant = dot(u, sides[0])
        inner = [[divide(dot(p, q), determinant * determinant) for q in sides] for p in sides]
        volume = jnp.abs(determinant) / 6
    size = len(inner)
    of_first = [-sum(inner[i][j] for i in range(1, size)) - inner[0][j] for j in range(size)]
    both = -sum(of_first[j] for j in range(1, size)) - of_first[0]
    return volume, [[both, *of_first], *([of_first[i], *inner[i]] for i in range(size))]


# ------------------------------------------------------------------------------------------------------------ bending


def _bending(model: Model, flex: int, rest: RestShape, node0: Array, known: Array) -> Array:
    """The bending stiffness of all edges of a surface, 17 numbers each; 0 on the border.

    x0 and x1 are the ends of the edge, x2 and x3 the opposite corners of its two triangles. The quadratic energy is
    from Wardetzky et al.; its matrix is proportional to w w^T with sums of cotangents w_i. The last number is the cubic
    term of Garg et al., which makes the rest shape a minimum even where it is curved. `known` has the present entries,
    which are kept if the material is unknown.
    """
    topology = model.topology
    if topology.flex_elastic2d[flex] == UNKNOWN:
        return known
    young, poisson, thickness = model.flex_young[flex], model.flex_poisson[flex], model.flex_thickness[flex]
    if topology.flex_interp[flex]:
        return shell_bending(topology, flex, node0, young, poisson, thickness)
    stencil = flap_stencils(topology, flex)
    inner = np.flatnonzero(stencil[:, 3] >= 0)
    x0, x1, x2, x3 = (rest.vertex[stencil[inner, index]] for index in range(4))
    a01 = _cot(x0, x1, x2)
    a02 = _cot(x0, x3, x1)
    a03 = _cot(x1, x2, x0)
    a04 = _cot(x1, x0, x3)
    weight = [a03 + a04, a01 + a02, -(a01 + a03), -(a02 + a04)]
    area = norm(cross(x1 - x0, x2 - x0)) / 2 + norm(cross(x0 - x1, x3 - x1)) / 2
    stiff = divide(elastic_constants(model, flex).bending, area)
    # e0 is the common edge; e1, e3 and e2, e4 are the other edges of the first and of the second triangle
    e0 = x1 - x0
    e1 = x2 - x0
    e2 = x3 - x0
    e3 = x2 - x1
    e4 = x3 - x1
    t0 = -(a03[:, None] * e1 + a01[:, None] * e3)
    t1 = -(a04[:, None] * e2 + a02[:, None] * e4)
    square = dot(e0, e0)
    cosine = divide(-dot(t0, t1), square)
    lift = dot(cross(e0, e1), e2) * (a01 - a03) * (a04 - a02)
    columns = [weight[i] * weight[j] * cosine * stiff for i in range(4) for j in range(4)]
    columns.append(divide(lift * stiff, square * norm(e0)))
    result = jnp.zeros((len(stencil), NBENDING), young.dtype)
    return result.at[inner].set(jnp.stack(columns, axis=1)).reshape(-1)


@per_topology
def flap_stencils(topology: Topology, flex: int) -> np.ndarray:
    """(nedge, 4) the two ends of each edge of a surface and the two opposite vertices; -1 for a missing triangle.

    The ends follow the orientation of the edge's first triangle.
    """
    elements = flex_elements(topology, flex)
    first = topology.flex_elemedgeadr[flex]
    count = 3 * topology.flex_elemnum[flex]
    elemedge = topology.flex_elemedge[first : first + count]
    _, where = np.unique(elemedge, return_index=True)
    ends = elements[:, np.array(EDGES[2])].reshape(-1, 2)[where]
    flap = topology.flex_edgeflap[rows_of(topology, "flex_edge", flex)]
    shifted = np.where(flap >= 0, flap + topology.flex_vertadr[flex], -1)
    return np.concatenate([ends, shifted], axis=1)


def _cot(x0: Array, x1: Array, x2: Array) -> Array:
    """The cotangent of the angle at x0."""
    u = x1 - x0
    v = x2 - x0
    return divide(dot(u, v), norm(cross(u, v)))
