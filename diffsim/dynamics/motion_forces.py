"""Forces of motion: M qacc + qfrc_bias in one recursion over the bodies, for derivatives.

M itself is needed to find qacc. Where it is known, its derivative needs M in the product with qacc alone; reverse mode
then goes back through the bodies once, with as much work as for qfrc_bias. Through the entries of M it would take an
outer product (nv, nv) and four products with it besides. Source: Featherstone 2008, ch. 5.
"""

import dataclasses
import functools

import jax

from diffsim.dynamics.bias import Moving, newton_euler
from diffsim.types.topology import Topology

Array = jax.Array


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=["bodies", "armature", "others"], meta_fields=["topology"]
)
@dataclasses.dataclass(frozen=True, eq=False)
class MotionForces:
    """How bodies move; armature of the dofs (nv,); all smooth forces but qfrc_bias (nv,), N or N m."""

    topology: Topology
    bodies: Moving
    armature: Array
    others: Array

    def missing(self, qacc: Array) -> Array:
        """M qacc + qfrc_bias - others (nv,): the force that qacc needs beside the smooth ones."""
        return newton_euler(self.topology, self.bodies, qacc) + self.armature * qacc - self.others
