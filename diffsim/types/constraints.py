"""Constraints: the rows of the soft constraints, J qacc = aref with weight D, grouped by family.

A family is what constraint/families.py defines: joint limits, welds, elliptic contacts ... It has one law (how the
force depends on x = J qacc - aref) and one group of rows, contacts one for each dimension. Rows on single degrees of
freedom (hinge and slide limits, dof friction) are vectors over all dofs and need no Jacobian; all other rows share the
one matrix J. A contact of dimension d has d basis rows (normal, tangents, torsion, rolling) for both cones: the edges
of a pyramid are J_n +- mu_i J_i. An inactive row has D = 0 (or frictionloss = 0) and is never removed.
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
    """Decisions of a state, bool, as constraint/active_set.py fixes them; one array for each group.

    Attributes:
      acts: (n,) which constraints act.
      pushes: (force_count, n) which of their rows or edges push.
      deep: (2, n) which constraints are deeper than the two `kinks` of their impedance.
      binds: () whether these decisions hold; else the state decides.
    """

    acts: tuple[Array, ...]
    pushes: tuple[Array, ...]
    deep: tuple[Array, ...]
    binds: Array


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
class RowGroup(Record):
    """n constraints of one family with `dim` rows each, component-major: row i of all, then row i + 1 of all."""

    # key of constraint.families.FAMILIES
    family: str = static()
    law: Law = static()
    dim: int = static()
    # 0 for rows of J; +1 or -1 for one row per dof, J = sign * identity, which is not stored
    sign: int = static()
    # first row in J, of groups with sign 0
    start: int = static()
    # first slot of the contact buffer that the group stands for; None if these are no contacts
    slot: int | None = static()

    # distance, angle or residual (m or rad), and the value below which a row is active
    pos: Array = leaf("n")
    margin: Array = leaf("n")
    # depths (m or rad) of the midpoint and of the end of the impedance curve (solimp); 0 where it is constant
    kinks: Array = leaf(2, "n")
    # J qvel (m/s or rad/s) and reference acceleration (m/s^2 or rad/s^2)
    vel: Array = leaf("dim", "n")
    aref: Array = leaf("dim", "n")
    # inverse regularization, 1 / R; the weight of an edge for pyramids
    D: Array = leaf("dim", "n")
    # threshold of x below which a one-sided row, or an edge of a pyramid, pushes; empty where it is 0
    threshold: Array = leaf("force_count", "n")
    # (n,) for bounded rows (N or N m), else empty
    frictionloss: Array = leaf("n")
    # (dim - 1, n) friction coefficients and (n,) coefficient of the regularized cone, else empty
    friction: Array = leaf("dim - 1", "n")
    mu: Array = leaf("n")
    # world anchors (m) on body 1 and body 2 of equalities that hold points of bodies together, else empty
    anchor: Array = leaf("nanchor", 2, 3)

    @property
    def count(self) -> int:
        """Number of constraints in the group, active or not."""
        return self.D.shape[-1]

    @property
    def force_count(self) -> int:
        """Number of rows of one constraint as MuJoCo counts them: 2 (dim - 1) edges for pyramids, else dim."""
        return 2 * (self.dim - 1) if self.law == Law.PYRAMID else self.dim

    @property
    def height(self) -> int:
        """Number of rows of J that belong to the group."""
        return 0 if self.sign else self.dim * self.count

    def select(self, values: Array) -> Array:
        """The part (dim, n, ...) of an array (nrow, ...) over the rows of J that belongs to the group."""
        part = values[self.start : self.start + self.height]
        return part.reshape(self.dim, self.count, *values.shape[1:])


@record
class Constraints(Record):
    """All rows. `jacobian` holds those of the groups with sign 0, by blocks of M."""

    jacobian: BlockColumns | SparseRows = child()
    # in the order of the table of families; only those that have rows
    groups: tuple[RowGroup, ...] = child()
    # J qacc_warmstart (m/s^2 or rad/s^2), where the solver starts; empty where it has to compute that
    warm: Array = leaf("nrow")
    # how M + J^T K J falls apart, of which solves make use; None if that is not known
    limbs: Limbs | None = static(default=None)

    @property
    def J(self) -> Array:
        """The rows of the groups with sign 0, in the order of `groups`, dense (nrow, nv)."""
        return self.jacobian.dense

    def basis_jacobian(self, rows: RowGroup) -> Array:
        """The basis rows of a group, dense (dim, n, nv)."""
        if rows.sign:
            return rows.sign * jnp.eye(rows.count, dtype=self.jacobian.dtype)[None]
        return rows.select(self.J)

    def split(self, row_force: Array) -> tuple[Array, ...]:
        """(force_count, n) of each of `groups`, from all row forces one after another."""
        forces, start = [], 0
        for rows in self.groups:
            stop = start + rows.force_count * rows.count
            forces.append(row_force[start:stop].reshape(rows.force_count, rows.count))
            start = stop
        return tuple(forces)

    def concatenate(self, forces: Sequence[Array]) -> Array:
        """All row forces in one vector, from those of each of `groups`: the inverse of `split`."""
        return jnp.concatenate([jnp.zeros((0,), self.jacobian.dtype), *[force.reshape(-1) for force in forces]])

    def find(self, family: str) -> RowGroup | None:
        """The first group of a family, by its name in the table; None where the family has no rows."""
        return next((rows for rows in self.groups if rows.family == family), None)

    @property
    def contacts(self) -> tuple[RowGroup, ...]:
        """The groups of contacts, by dimension."""
        return tuple(rows for rows in self.groups if rows.slot is not None)
