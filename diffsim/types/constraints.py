"""Constraints: the rows J qacc = aref of the soft constraints, with weights D, grouped by family.

A family is a kind of constraint, such as joint limits, welds or elliptic contacts; constraint/families.py has the
table. Each family has one law, which says how the force depends on x = J qacc - aref, and one group of rows (contacts
have one group per contact dimension). Rows on single degrees of freedom (limits of hinges and slides, friction of dofs)
are stored as vectors over all dofs and need no Jacobian. All other rows share one matrix J. A contact of dimension d
has d basis rows (normal, tangents, torsion, rolling) with both friction cones; the edges of a pyramid are
J_n +- mu_i J_i. The number of rows is static: an inactive row has D = 0 (or frictionloss = 0).
Source: MuJoCo documentation, "Computation", constraint model.
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from diffsim.math.linalg import BlockColumns
from diffsim.math.stencil_rows import SparseRows
from diffsim.types.record import Record, child, leaf, record, static
from diffsim.xla.solves.cpu_cholesky import Limbs

# one array (dim, n) per group of rows
PerGroup = tuple[Array, ...]


class ActiveSet(NamedTuple):
    """The discrete decisions of the constraints in one state, which constraint/active_set.py can fix (all bool).

    Attributes:
      acts: for each group, (n,) whether each constraint is active: close enough to exert a force.
      pushes: for each group, (force_count, n) whether each row or pyramid edge exerts a force.
      deep: for each group, (2, n) whether each constraint is deeper than the two `kinks` of its impedance.
      binds: () whether these decisions are used; if not, the decisions follow from the state as usual.
    """

    acts: tuple[Array, ...]
    pushes: tuple[Array, ...]
    deep: tuple[Array, ...]
    binds: Array


class Law(IntEnum):
    """How the force f of a row depends on x = J qacc - aref."""

    # f = -D x
    QUADRATIC = 0
    # f = -D x, clipped to +- frictionloss
    BOUNDED = 1
    # f = -D x where x < 0
    ONE_SIDED = 2
    # ONE_SIDED for each edge x_n +- mu_i x_i
    PYRAMID = 3
    # f is in an elliptic cone: minus the projection of D x on its dual
    CONE = 4


@record
class RowGroup(Record):
    """n constraints of one family, with `dim` rows each. In J, row i of all constraints comes before row i + 1."""

    # key of constraint.families.FAMILIES
    family: str = static()
    law: Law = static()
    dim: int = static()
    # 0 if the rows are in J; +1 or -1 if the group has one row per dof, whose J = sign * identity is not stored
    sign: int = static()
    # index of the first row in J, for groups with sign 0
    start: int = static()
    # index of the group's first slot in the contact buffer; None for other constraints than contacts
    slot: int | None = static()

    # distance, angle or residual (m or rad), and the value below which the constraint is active
    pos: Array = leaf("n")
    margin: Array = leaf("n")
    # depths (m or rad) of the midpoint and of the end of the impedance curve (solimp); 0 where it is constant
    kinks: Array = leaf(2, "n")
    # J qvel (m/s or rad/s) and reference acceleration (m/s^2 or rad/s^2)
    vel: Array = leaf("dim", "n")
    aref: Array = leaf("dim", "n")
    # inverse regularization, 1 / R; for pyramids the value of an edge
    D: Array = leaf("dim", "n")
    # value of x below which a one-sided row, or an edge of a pyramid, exerts a force; empty if it is 0
    threshold: Array = leaf("force_count", "n")
    # largest force of bounded rows (N or N m); empty for other laws
    frictionloss: Array = leaf("n")
    # contacts: friction coefficients, and the coefficient mu of the regularized cone; else empty
    friction: Array = leaf("dim - 1", "n")
    mu: Array = leaf("n")
    # connects and welds: anchors (m) on body 1 and body 2 in the world; else empty
    anchor: Array = leaf("nanchor", 2, 3)

    @property
    def on_dofs(self) -> bool:
        """Whether the group has one row per dof, which is not stored in J."""
        return self.sign != 0

    @property
    def count(self) -> int:
        """Number of constraints in the group, active or not."""
        return self.D.shape[-1]

    @property
    def force_count(self) -> int:
        """Number of forces of one constraint, which is MuJoCo's number of rows: 2 (dim - 1) for pyramids, else dim."""
        return 2 * (self.dim - 1) if self.law == Law.PYRAMID else self.dim

    @property
    def height(self) -> int:
        """Number of rows of J that belong to the group."""
        return 0 if self.on_dofs else self.dim * self.count

    def select(self, values: Array) -> Array:
        """(dim, n, ...) the group's part of an array (nrow, ...) over the rows of J."""
        part = values[self.start : self.start + self.height]
        return part.reshape(self.dim, self.count, *values.shape[1:])


@record
class Constraints(Record):
    """All constraint rows. `jacobian` has the rows of the groups with sign 0, in columns of the blocks of M."""

    jacobian: BlockColumns | SparseRows = child()
    # in the order of the table of families; families without rows are left out
    groups: tuple[RowGroup, ...] = child()
    # J qacc_warmstart (m/s^2 or rad/s^2), at which the solver starts; empty if the solver has to compute it
    warm: Array = leaf("nrow")
    # the sparsity of M + J^T K J by limbs, which linear solves use; None if it is not known
    limbs: Limbs | None = static(default=None)

    @property
    def J(self) -> Array:
        """(nrow, nv) the rows of the groups with sign 0, in the order of `groups`, as a dense matrix."""
        return self.jacobian.dense

    def basis_jacobian(self, rows: RowGroup) -> Array:
        """(dim, n, nv) the basis rows of a group, as a dense array."""
        if rows.on_dofs:
            return rows.sign * jnp.eye(rows.count, dtype=self.jacobian.dtype)[None]
        return rows.select(self.J)

    def split(self, row_force: Array) -> tuple[Array, ...]:
        """The forces (force_count, n) of each group, from the vector of all row forces."""
        forces = []
        start = 0
        for rows in self.groups:
            stop = start + rows.force_count * rows.count
            forces.append(row_force[start:stop].reshape(rows.force_count, rows.count))
            start = stop
        return tuple(forces)

    def concatenate(self, forces: Sequence[Array]) -> Array:
        """The vector of all row forces, from the forces of each group: the inverse of `split`."""
        return jnp.concatenate([jnp.zeros((0,), self.jacobian.dtype), *[force.reshape(-1) for force in forces]])

    def find(self, family: str) -> RowGroup | None:
        """The first group of a family, by the family's name in the table; None if the family has no rows."""
        return next((rows for rows in self.groups if rows.family == family), None)

    @property
    def contacts(self) -> tuple[RowGroup, ...]:
        """The groups of contacts, by dimension."""
        return tuple(rows for rows in self.groups if rows.slot is not None)
