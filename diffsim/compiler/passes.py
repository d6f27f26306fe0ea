"""compile: the passes in their order, and the derived constants.

The derived constants are our own physics in JAX. They are computed once per load, on the host, in float64, without XLA:
evaluate.py says why and how.
"""

from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import jax
import numpy as np

from diffsim.collision import capacities_of_numerics
from diffsim.compiler import complete
from diffsim.compiler.assets.heightfields import hfield_rows
from diffsim.compiler.assets.images import texture_rows
from diffsim.compiler.assets.meshes import mesh_rows
from diffsim.compiler.draft import Draft
from diffsim.compiler.elements import settings
from diffsim.compiler.elements.actuators import actuator_rows
from diffsim.compiler.elements.attachments import attachment_rows
from diffsim.compiler.elements.bodies import body_inertias, body_poses, total_mass
from diffsim.compiler.elements.contacts import exclude_rows, pair_rows
from diffsim.compiler.elements.equality import equality_rows
from diffsim.compiler.elements.geoms import geom_rows
from diffsim.compiler.elements.joints import configuration, joint_rows
from diffsim.compiler.elements.keyframes import key_rows
from diffsim.compiler.elements.sensors import sensor_rows
from diffsim.compiler.elements.tendons import tendon_rows
from diffsim.compiler.elements.tree import flatten
from diffsim.compiler.fuse import discard_visual, forget_materials, fuse_static
from diffsim.compiler.interpret import evaluate
from diffsim.compiler.lengthrange import length_ranges
from diffsim.compiler.pack import pack
from diffsim.compiler.unsupported import check_elements, check_model
from diffsim.joints import dof_widths
from diffsim.mjcf.reader import check
from diffsim.mjcf.spec import Spec
from diffsim.simulate.constants import MINIMUM, constants
from diffsim.types.model import Model

# statistics that the file may fix
FIXED = ("meaninertia", "meanmass", "meansize", "extent", "center")

PASSES: tuple[Callable[[Draft], None], ...] = (
    forget_materials,
    settings.options,
    settings.materials,
    texture_rows,
    mesh_rows,
    hfield_rows,
    body_poses,
    joint_rows,
    geom_rows,
    attachment_rows,
    body_inertias,
    fuse_static,
    discard_visual,
    total_mass,
    complete.rows,
    complete.tree,
    configuration,
    pair_rows,
    exclude_rows,
    equality_rows,
    tendon_rows,
    actuator_rows,
    sensor_rows,
    settings.numerics,
    settings.tuples,
    complete.sizes,
    key_rows,
    complete.empty_fields,
    complete.relations,
)


def compile(
    spec: Spec,
    max_contacts: int | None = None,
    max_pairs: int | None = None,
    keep: Collection[str] = (),
) -> Model:
    """Compiles a Spec.

    Args:
      spec: the model as read.
      max_contacts, max_pairs: contact capacities; None for what the model's custom numerics `max_contact_points` and
        `max_geom_pairs` ask for, else for the rule of `diffsim.collision`.
      keep: switch fields that stay in the program although they are zero (see `Model.replace`).

    Returns:
      The Model, on the default device and in the default precision.

    Raises:
      MjcfError: the model is wrong. UnsupportedError: the model uses what diffsim lacks.
    """
    check(spec)
    return compile_all(spec, max_contacts, max_pairs, keep, refuse=True)


def compile_all(
    spec: Spec,
    max_contacts: int | None = None,
    max_pairs: int | None = None,
    keep: Collection[str] = (),
    refuse: bool = True,
) -> Model:
    """`compile` for a checked Spec; without `refuse` also what the physics lacks, to compare compilers."""
    draft = Draft(spec)
    run_passes(draft, refuse)
    names, texts = complete.names(draft), settings.texts(draft)

    asked = capacities_of_numerics(names["numeric"], draft.fields["numeric_data"][draft.fields["numeric_adr"]])
    given = {"max_contacts": max_contacts, "max_pairs": max_pairs}
    capacities = asked | {name: number for name, number in given.items() if number is not None}

    def packed(fields: dict[str, Any]) -> Model:
        return pack(fields, names, texts, **capacities, keep=keep)

    if refuse:
        check_model(draft, packed(draft.fields))
        draft.problems.raise_if_any()
    derive(draft, packed)
    return packed(draft.fields)


def run_passes(draft: Draft, refuse: bool = True) -> None:
    """All passes over the elements, then the check that the numbers of the file have led to numbers."""
    # what overflows is found by the check, and told with its place
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        for each in (flatten, *([check_elements] if refuse else []), *PASSES, complete.check_finite):
            each(draft)
            draft.problems.raise_if_any()


def derive(draft: Draft, packed: Callable[[dict[str, Any]], Model]) -> None:
    """Complete the fields with derived constants, and with what depends on these."""
    with jax.enable_x64(True), _on_host():
        draft.fields.update(evaluate(constants, packed(draft.fields)))
        _spring_dampers(draft)
        length_ranges(draft, packed)
    draft.problems.raise_if_any()
    for name in FIXED:
        value = getattr(draft.spec.statistic, name)
        if value is not None:
            draft.fields["stat"][name] = value


def _on_host() -> AbstractContextManager[Any]:
    """Arrays stay on the CPU, where JAX has been told that there is one."""
    try:
        return jax.default_device(jax.devices("cpu")[0])
    except RuntimeError:
        return nullcontext()


def _spring_dampers(draft: Draft) -> None:
    """Stiffness and damping of joints that are given by time constant and damping ratio."""
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
