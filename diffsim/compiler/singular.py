"""singular: an inertia matrix that has no inverse is refused, with the joints that move the same thing.

Every constant that is divided by the inertia would be no number, also of bodies that have nothing to do with it, and so
would accelerations. Where it has none at qpos0 alone (three hinges in line, as a gimbal may be there), motion from
elsewhere is sound: MuJoCo's inverse weights are no numbers then, ours are those of a pose nearby, with a warning.
"""

import warnings
from typing import Any

import numpy as np

from diffsim.base.joints import dof_widths
from diffsim.compiler.draft import Draft
from diffsim.compiler.host.interpret import interpret
from diffsim.simulate.constants import inverse_weights, position
from diffsim.simulate.status import motions_without_inertia
from diffsim.types.model import Model

DIVIDED = ("dof_invweight0", "body_invweight0", "tendon_invweight0", "actuator_acc0")


def check_inertia(draft: Draft, model: Model, found: dict[str, Any]) -> None:
    """Note what makes the inverse weights among the constants `found` something else than finite numbers."""
    if all(np.isfinite(found[name]).all() for name in DIVIDED):
        return
    # a third of a radian or metre from qpos0, by scalar joints
    address = model.topology.jnt_qposadr[dof_widths(model.topology.jnt_type) == 1]
    nearby = model.qpos0.at[address].add(np.where(np.arange(len(address)) % 2, 0.37, -0.29))
    if not motions_without_inertia(interpret(lambda m: position(m, nearby)[3].qM, model)):
        found.update(interpret(lambda m: inverse_weights(m, *position(m, nearby)), model))
        warnings.warn(
            "the inertia matrix is singular at qpos0; inverse weights are those of a pose nearby", stacklevel=2
        )
        return
    joints = [node for node in draft.nodes["joint"] for _ in range(int(dof_widths(node.e.type)))]
    inertia = interpret(lambda m: position(m, m.qpos0)[3].qM, model)
    for dofs in motions_without_inertia(inertia):
        places = dict.fromkeys(joints[dof].source for dof in dofs)
        names = " and ".join(f"{place.label} (line {place.line})" for place in places)
        message = (
            f"the inertia matrix is singular at qpos0: nothing resists degrees of freedom {dofs.tolist()} of {names}"
        )
        draft.problems.add(joints[dofs[-1]].source, message, "remove a joint, or give armature")
