"""derive: the fields that follow from the compiled model, by physics.

Inverse weights, mean inertia, extents and reference lengths are our own physics in JAX, computed once per load on the
host, in float64, without XLA (interpret.py says why and how); springs given by time constant and ranges of actuator
lengths follow from these.

An inertia matrix that has no inverse is refused, with the joints that move the same thing: every constant that is
divided by it would be no number, also of bodies that have nothing to do with it, and so would accelerations. Where it
has none at qpos0 alone (three hinges in line, as a gimbal may be there), motion from elsewhere is sound: MuJoCo's
inverse weights are no numbers then, ours are those of a pose nearby, with a warning.
Source: mj_setConst and set0 of MuJoCo 3.8.1.
"""

import functools
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.base.joints import dof_widths
from diffsim.compiler import sizes_and_defaults
from diffsim.compiler.draft import Draft
from diffsim.compiler.elements.sleep import check_sleepers
from diffsim.compiler.host.interpret import interpret
from diffsim.compiler.lengthrange import length_ranges
from diffsim.flex.cells import cell_nodes, cell_stiffness
from diffsim.flex.material import STRAIN
from diffsim.simulate.constants import MINIMUM, constants, inverse_weights, position
from diffsim.simulate.status import motions_without_inertia
from diffsim.types.model import Model

# Young's modulus and Poisson's ratio of the cells whose modes strain constraints hold
STRAINED = (10.0, 0.3)
# statistics that the file may fix
FIXED = ("meaninertia", "meanmass", "meansize", "extent", "center")


def derive(draft: Draft, packed: Callable[[dict[str, Any]], Model]) -> None:
    """Complete the fields with derived constants, and with what depends on these.

    Raises:
      MjcfError: some constant is no finite number, most often because the inertia matrix is singular.
    """
    with jax.enable_x64(True), _on_host():
        model = packed(draft.fields)
        draft.fields.update(_sound_constants(draft, model))
        draft.problems.raise_if_any()
        _strain_modes(draft, model)
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


def _strain_modes(draft: Draft, model: Model) -> None:
    """flex_stiffness of flexes with strain constraints: of each cell how many modes, then the modes, filled up with 0.

    A mode is an eigenvector of the stiffness of a cell of a fixed material, times the root of its eigenvalue, without
    its rigid part. Eigenvalues of cubes come several at a time: which vectors span their spaces is left to rounding.
    """
    topology = model.topology
    for flex in np.flatnonzero((topology.flex_edgeequality == STRAIN) & (topology.flex_interp != 0)).tolist():
        node0 = jnp.asarray(draft.fields["flex_node0"])
        thickness = jnp.asarray(draft.fields["flex_thickness"][flex])
        young, poisson = map(jnp.asarray, STRAINED)
        of_cells = functools.partial(cell_stiffness, topology, flex)
        cells = np.asarray(interpret(of_cells, node0, young, poisson, thickness))
        corner = np.asarray(node0)[topology.flex_nodeadr[flex] + cell_nodes(topology, flex)]
        size, first = cells.shape[1], topology.flex_stiffnessadr[flex]
        table = np.zeros((len(cells), size * size))
        for row, matrix, place in zip(table, cells, corner, strict=True):
            value, vector = np.linalg.eigh(-matrix)
            kept = value > 1e-8 * np.abs(value).max()
            modes = (vector[:, kept] * np.sqrt(value[kept])).T
            middle = place - place.mean(axis=0)
            turns = [np.cross(axis, middle).ravel() for axis in np.eye(3)]
            rigid = np.linalg.qr(np.array([*(np.tile(axis, len(place)) for axis in np.eye(3)), *turns]).T)[0]
            modes = modes - modes @ rigid @ rigid.T
            modes = modes[np.sum(modes**2, axis=1) >= 1e-6 * value[kept]]
            row[0] = len(modes)
            row[1 : 1 + modes.size] = modes.ravel()
        stiffness = np.array(draft.fields["flex_stiffness"])
        stiffness[first : first + table.size] = table.ravel()
        draft.fields["flex_stiffness"] = stiffness


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


DIVIDED = ("dof_invweight0", "body_invweight0", "tendon_invweight0", "actuator_acc0")


def _sound_constants(draft: Draft, model: Model) -> dict[str, Any]:
    """The constants of the model; notes where inverse weights are no finite numbers, at qpos0 and near it."""
    result = interpret(constants, model)
    if all(np.isfinite(result[name]).all() for name in DIVIDED):
        return result
    # a third of a radian or metre from qpos0, by scalar joints
    address = model.topology.jnt_qposadr[dof_widths(model.topology.jnt_type) == 1]
    nearby = model.qpos0.at[address].add(np.where(np.arange(len(address)) % 2, 0.37, -0.29))
    if not motions_without_inertia(interpret(lambda m: position(m, nearby)[3].qM, model)):
        result.update(interpret(lambda m: inverse_weights(m, *position(m, nearby)), model))
        warnings.warn(
            "the inertia matrix is singular at qpos0; inverse weights are those of a pose nearby", stacklevel=2
        )
        return result
    joints = [node for node in draft.nodes["joint"] for _ in range(int(dof_widths(node.e.type)))]
    inertia = interpret(lambda m: position(m, m.qpos0)[3].qM, model)
    for dofs in motions_without_inertia(inertia):
        places = dict.fromkeys(joints[dof].source for dof in dofs)
        names = " and ".join(f"{place.label} (line {place.line})" for place in places)
        message = (
            f"the inertia matrix is singular at qpos0: nothing resists degrees of freedom {dofs.tolist()} of {names}"
        )
        draft.problems.add(joints[dofs[-1]].source, message, "remove a joint, or give armature")
    return result
