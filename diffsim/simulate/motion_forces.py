"""When derivatives of the solver take inertia as sums over bodies instead of the entries of M."""

import jax

from diffsim.base.enums import DisableBit, Integrator
from diffsim.dynamics.bias import moving
from diffsim.dynamics.motion_forces import MotionForces
from diffsim.dynamics.reflected import dof_armature, has_tendon_armature, is_damped
from diffsim.types import Model
from diffsim.types.data import ComFrame, Velocities

Array = jax.Array


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
