"""compile: the passes from a Spec to a Model, in their order.

Reading came before (mjcf/): XML, included files, default classes, macros, names and references. Each pass here reads
elements and earlier fields of the `Draft` and adds fields under mjModel's names; what it finds wrong is raised at its
end, all at once. After the passes come what the physics lacks (unsupported.py), the derived constants (derive.py), and
the arrays on the device (pack.py).
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from diffsim.base.checked import checked
from diffsim.compiler import budget, sizes_and_defaults
from diffsim.compiler.assets.heightfields import hfield_rows
from diffsim.compiler.assets.meshes import mesh_fields, mesh_rows
from diffsim.compiler.assets.textures import texture_rows
from diffsim.compiler.capacities import asked_capacities, check_capacities, warn_of_cuts
from diffsim.compiler.derive import derive
from diffsim.compiler.draft import Draft
from diffsim.compiler.elements import settings, sleep
from diffsim.compiler.elements.actuators import actuator_rows
from diffsim.compiler.elements.attachments import attachment_rows
from diffsim.compiler.elements.bodies import body_inertias, body_poses, total_mass
from diffsim.compiler.elements.contacts import exclude_rows, pair_rows
from diffsim.compiler.elements.equality import equality_rows
from diffsim.compiler.elements.flexes import flex_rows
from diffsim.compiler.elements.geoms import geom_rows
from diffsim.compiler.elements.joints import configuration, joint_rows
from diffsim.compiler.elements.keyframes import key_rows
from diffsim.compiler.elements.plugins import plugin_rows
from diffsim.compiler.elements.sensors import sensor_rows
from diffsim.compiler.elements.skins import skin_rows
from diffsim.compiler.elements.tendons import tendon_rows
from diffsim.compiler.elements.tree import flatten
from diffsim.compiler.fusestatic import discard_visual, forget_materials, fuse_static
from diffsim.compiler.pack import pack
from diffsim.compiler.unsupported import check_elements, check_model
from diffsim.mjcf.reader import check
from diffsim.mjcf.spec import Spec
from diffsim.types.model import Model

PASSES: tuple[Callable[[Draft], None], ...] = (
    # the tree of elements as lists of objects, frames dissolved
    flatten,
    budget.check_sizes,
    # settings and assets
    forget_materials,
    settings.options,
    settings.materials,
    texture_rows,
    mesh_rows,
    hfield_rows,
    # bodies and what hangs on them: orientations, units, shapes
    body_poses,
    joint_rows,
    geom_rows,
    attachment_rows,
    # masses and inertias
    body_inertias,
    fuse_static,
    discard_visual,
    mesh_fields,
    total_mass,
    # the kinematic tree in integers
    sizes_and_defaults.rows,
    sizes_and_defaults.tree,
    budget.check_pairs,
    configuration,
    # what refers to the tree
    flex_rows,
    skin_rows,
    pair_rows,
    exclude_rows,
    equality_rows,
    tendon_rows,
    plugin_rows,
    actuator_rows,
    sensor_rows,
    settings.numerics,
    settings.tuples,
    # sizes, reference values, and empty arrays for what the model lacks
    sizes_and_defaults.sizes,
    key_rows,
    sizes_and_defaults.empty_fields,
    sizes_and_defaults.relations,
    sleep.tree_rows,
    sleep.sleep_policies,
    sizes_and_defaults.check_finite,
)


@checked
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
    check_capacities(max_contacts, max_pairs)
    draft = Draft(spec)
    run_passes(draft, refuse)
    names, texts = sizes_and_defaults.names(draft), settings.texts(draft)
    asked = asked_capacities(draft)
    given = {"max_contacts": max_contacts, "max_pairs": max_pairs}
    capacities = asked | {name: number for name, number in given.items() if number is not None}

    def packed(fields: dict[str, Any]) -> Model:
        return pack(fields, names, texts, **capacities, keep=keep)

    if refuse:
        model = packed(draft.fields)
        check_model(draft, model)
        draft.problems.raise_if_any()
        if capacities == asked:
            warn_of_cuts(model)
    derive(draft, packed)
    return packed(draft.fields)


def run_passes(draft: Draft, refuse: bool = True) -> None:
    """All passes over the elements, then the check that the numbers of the file have led to numbers."""
    _run(draft, PASSES, refuse)


def passes_before_inertias(draft: Draft) -> None:
    """The passes up to shapes and poses of all geoms."""
    _run(draft, PASSES[: PASSES.index(body_inertias)], refuse=False)


def _run(draft: Draft, passes: Sequence[Callable[[Draft], None]], refuse: bool) -> None:
    # what overflows is found by the last pass, and told with its place
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        for each in passes:
            each(draft)
            if each is flatten and refuse:
                check_elements(draft)
            draft.problems.raise_if_any()
