"""derive: the fields that follow from the compiled model, by physics.

Inverse weights, mean inertia, extents and reference lengths are our own physics in JAX, computed once per load on the
host, in float64, without XLA (interpret.py says why and how); springs given by time constant and ranges of actuator
lengths follow from these. Source: mj_setConst and set0 of MuJoCo 3.8.1.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import jax

from diffsim.base.joints import dof_widths
from diffsim.compiler import sizes_and_defaults
from diffsim.compiler.draft import Draft
from diffsim.compiler.elements.sleep import check_sleepers
from diffsim.compiler.host.interpret import interpret
from diffsim.compiler.lengthrange import length_ranges
from diffsim.compiler.singular import check_inertia
from diffsim.simulate.constants import MINIMUM, constants
from diffsim.types.model import Model

# statistics that the file may fix
FIXED = ("meaninertia", "meanmass", "meansize", "extent", "center")


def derive(draft: Draft, packed: Callable[[dict[str, Any]], Model]) -> None:
    """Complete the fields with derived constants, and with what depends on these.

    Raises:
      MjcfError: some constant is no finite number, most often because the inertia matrix is singular.
    """
    with jax.enable_x64(True), _on_host():
        model = packed(draft.fields)
        found = interpret(constants, model)
        check_inertia(draft, model, found)
        draft.problems.raise_if_any()
        draft.fields.update(found)
        _spring_dampers(draft)
        length_ranges(draft, packed)
        check_sleepers(draft, packed)
    sizes_and_defaults.check_finite(draft)
    draft.problems.raise_if_any()
    for name in FIXED:
        value = getattr(draft.spec.statistic, name)
        if value is not None:
            draft.fields["stat"][name] = value


def _on_host() -> AbstractContextManager[Any]:
    """Arrays stay on the CPU, where JAX has been told that there is one."""
    try:
        return jax.default_device(jax.local_devices(backend="cpu")[0])
    except RuntimeError:
        return nullcontext()


def _spring_dampers(draft: Draft) -> None:
    """Stiffness (N/m or Nm/rad) and damping of joints that are given by time constant (s) and damping ratio.

    k = m / (t d)^2, b = 2 m / t, where 1 / m is the mean inverse weight of the joint's dofs.
    """
    fields = draft.fields
    for node in draft.nodes["joint"]:
        timeconst, dampratio = node.e.springdamper
        if timeconst <= 0 or dampratio <= 0:
            continue
        width = dof_widths(fields["jnt_type"][node.id])
        dofs = slice(fields["jnt_dofadr"][node.id], fields["jnt_dofadr"][node.id] + width)
        inertia = width / max(MINIMUM, fields["dof_invweight0"][dofs].sum())
        fields["jnt_stiffness"][node.id] = inertia / max(MINIMUM, (timeconst * dampratio) ** 2)
        fields["dof_damping"][dofs] = 2 * inertia / max(MINIMUM, timeconst)
