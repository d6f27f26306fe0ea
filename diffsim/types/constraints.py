"""Constraints: the rows of the soft constraints, J qacc = aref with weight D, grouped by family.

A family is a set of rows of one law (how the force depends on x = J qacc - aref). Rows on single degrees of freedom
(hinge and slide limits, dof friction) are vectors over all dofs and need no Jacobian; all other rows share the one
matrix J. A contact of dimension d has d basis rows (normal, tangents, torsion, rolling) for both cones: the
edges of a pyramid are J_n +- mu_i J_i. An inactive row has D = 0 (or frictionloss = 0) and is never removed.
Source: MuJoCo documentation, "Computation", constraint model.
"""

from enum import IntEnum

import jax

from diffsim.math.block_matrix import BlockColumns
from diffsim.types.record import Record, child, leaf, record, static

Array = jax.Array


class Law(IntEnum):
    """How force depends on x = J qacc - aref."""

    # f = -D x
    QUADRATIC = 0
    # f = -D x, bounded by frictionloss
    BOUNDED = 1
    # f = -D x where x < 0
    ONE_SIDED = 2
    # one-sided on each edge x_n +- mu_i x_i
    PYRAMID = 3
    # projection on the dual of an elliptic cone
    CONE = 4


@record
class Rows(Record):
    """One family: n constraints of `dim` rows each, component-major.

    `sign` is 0 for rows of J, which start at row `start`; else the family has one row per dof, J = sign * identity.
    """

    law: Law = static()
    dim: int = static()
    sign: int = static()
    start: int = static()

    pos: Array = leaf("n")
    margin: Array = leaf("n")
    vel: Array = leaf("dim", "n")
    aref: Array = leaf("dim", "n")
    # inverse regularization, 1 / R; the weight of an edge for pyramids
    D: Array = leaf("dim", "n")
    # (n,) for bounded rows, else empty
    frictionloss: Array = leaf("n")
    # (dim - 1, n) friction coefficients and (n,) coefficient of the regularized cone, else empty
    friction: Array = leaf("dim - 1", "n")
    mu: Array = leaf("n")

    @property
    def count(self) -> int:
        """Number of constraints in the family, active or not."""
        return self.D.shape[-1]

    @property
    def forces(self) -> int:
        """Number of forces of one constraint: of edges for pyramids, else of basis rows."""
        return 2 * (self.dim - 1) if self.law == Law.PYRAMID else self.dim

    @property
    def height(self) -> int:
        """Number of rows of J that the family owns."""
        return 0 if self.sign else self.dim * self.count


@record
class Constraints(Record):
    """All rows. `jacobian` holds those of the families with sign 0, by blocks of M."""

    jacobian: BlockColumns = child()
    # world anchors on body 1 and body 2 of connect, then weld equalities
    eq_anchor: Array = leaf("nanchor", 2, 3)
    dof_friction: Rows = child()
    limit_lower: Rows = child()
    limit_upper: Rows = child()
    connect: Rows = child()
    weld: Rows = child()
    joint_equality: Rows = child()
    tendon_equality: Rows = child()
    tendon_friction: Rows = child()
    limit_ball: Rows = child()
    tendon_lower: Rows = child()
    tendon_upper: Rows = child()
    contact1: Rows = child()
    contact3: Rows = child()
    contact4: Rows = child()
    contact6: Rows = child()

    @property
    def J(self) -> Array:
        """The rows of the families with sign 0, in the order of `families`, dense (nrow, nv)."""
        return self.jacobian.dense

    @property
    def families(self) -> tuple[Rows, ...]:
        """The families that have rows."""
        rows = [value for value in vars(self).values() if isinstance(value, Rows)]
        return tuple(family for family in rows if family.count)

    def split(self, row_force: Array) -> tuple[Array, ...]:
        """(forces, n) of each of `families`, from all row forces one after another."""
        parts, start = [], 0
        for family in self.families:
            stop = start + family.forces * family.count
            parts.append(row_force[start:stop].reshape(family.forces, family.count))
            start = stop
        return tuple(parts)

    @property
    def contacts(self) -> tuple[Rows, ...]:
        """The contact families that have rows, by dimension."""
        return tuple(family for family in (self.contact1, self.contact3, self.contact4, self.contact6) if family.count)
