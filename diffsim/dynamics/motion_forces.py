"""Forces of motion: M qacc + qfrc_bias in one recursion over the bodies, for derivatives of the solver.

M itself is needed to find qacc. Where it is known, its derivative needs M in the product with qacc alone; reverse mode
then goes back through the bodies once, with as much work as for qfrc_bias. Through the entries of M it would take an
outer product (nv, nv) and four products with it besides. Source: Featherstone 2008, ch. 5.
"""

import dataclasses
import functools

import jax

from diffsim.base.enums import DisableBit, Integrator
from diffsim.dynamics.bias import Moving, moving, newton_euler
from diffsim.dynamics.reflected import dof_armature, has_tendon_armature, is_damped
from diffsim.types import Model
from diffsim.types.data import ComFrame, Velocities
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


def motion_forces(
    model: Model, qvel: Array, com: ComFrame, velocities: Velocities, others: Array
) -> MotionForces | None:
    """Those of a motion qvel (nv,), beside all other smooth forces (nv,), N or N m.

    None where the integrator solves with M too, so that its entries are differentiated anyway, and where tendons have
    inertia, noslip has a derivative of its own, or derivatives go through the iterations of the solver.
    """
    opt = model.opt
    explicit = opt.integrator in (Integrator.EULER, Integrator.RK4) and not damps_implicitly(model)
    by_entries = has_tendon_armature(model.topology) or opt.noslip_iterations or opt.unrolled
    if by_entries or not explicit:
        return None
    return MotionForces(model.topology, moving(model, qvel, com, velocities), dof_armature(model), others)


def damps_implicitly(model: Model) -> bool:
    """Whether Euler steps solve with the dampers of dofs, and so with another matrix than the solver's."""
    off = model.opt.disabled(DisableBit.EULERDAMP) or model.opt.disabled(DisableBit.DAMPER)
    return model.opt.integrator == Integrator.EULER and not off and is_damped(model.topology)
