"""compile: the passes from a Spec to a Model, in their order.

Reading came before (mjcf/): XML, includes, default classes, macros, names and references. Each pass here reads elements
and earlier fields of the `Draft`, and adds fields under mjModel's names; its errors are raised together at its end.
After the passes come checks for features that the physics does not support (`check_model`), the derived constants
(derive.py), and the arrays on the device (pack.py).

Other packages have tables of the features that they support (pairs of geoms, sensors, transmissions). The checks use
these tables, so a feature is supported here as soon as it has a row there. Elements and attributes that are refused
when they are read declare this in their own classes (`unsupported`).
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from diffsim.actuator.laws import torn_apart
from diffsim.actuator.transmission import TRANSMISSIONS
from diffsim.base import changes
from diffsim.base.checked import checked
from diffsim.base.enums import MINVAL
from diffsim.collision import unsupported_pairs
from diffsim.compiler import budget, sizes_and_defaults
from diffsim.compiler.assets.heightfields import hfield_rows
from diffsim.compiler.assets.meshes import mesh_fields, mesh_rows
from diffsim.compiler.assets.textures import texture_rows
from diffsim.compiler.budget import asked_capacities, check_capacities, warn_of_cuts
from diffsim.compiler.derive import derive, on_host
from diffsim.compiler.draft import NO_HOOKS, Draft
from diffsim.compiler.elements import settings, sleep
from diffsim.compiler.elements.actuators import actuator_rows
from diffsim.compiler.elements.attachments import attachment_rows
from diffsim.compiler.elements.bodies import body_inertias, body_poses, inertial_row, total_mass
from diffsim.compiler.elements.constraints import equality_rows, exclude_rows, pair_rows
from diffsim.compiler.elements.flexes import flex_rows
from diffsim.compiler.elements.geoms import geom_rows
from diffsim.compiler.elements.joints import configuration, joint_rows
from diffsim.compiler.elements.plugins import plugin_instances, plugin_rows
from diffsim.compiler.elements.sensors import sensor_rows
from diffsim.compiler.elements.settings import key_rows
from diffsim.compiler.elements.skins import skin_rows
from diffsim.compiler.elements.tendons import tendon_rows
from diffsim.compiler.elements.tree import discard_visual, flatten, forget_materials, fuse_static
from diffsim.compiler.pack import pack
from diffsim.compiler.precision import warn_of_precision
from diffsim.mjcf.elements.body import Inertial, own_elements
from diffsim.mjcf.reader import check
from diffsim.mjcf.spec import Spec
from diffsim.sensor import unsupported_sensors
from diffsim.simulate.sleep_layout import SLEEPLESS, sleepless_equalities
from diffsim.types.hooks import Hooks
from diffsim.types.model import Model
from diffsim.types.topology import Topology
from diffsim.xla.compiled import uncollected

PASSES: tuple[Callable[[Draft], None], ...] = (
    # the tree of elements as lists of objects, frames dissolved
    flatten,
    budget.check_sizes,
    plugin_instances,
    # settings and assets
    forget_materials,
    settings.options,
    settings.materials,
    texture_rows,
    mesh_rows,
    hfield_rows,
    # bodies and the objects on them: orientations, units, shapes
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
    # objects that refer to the tree
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
    # sizes, reference values, and empty arrays for kinds without objects
    sizes_and_defaults.sizes,
    key_rows,
    sizes_and_defaults.empty_fields,
    sizes_and_defaults.relations,
    sleep.tree_rows,
    sleep.sleep_policies,
    sizes_and_defaults.check_finite,
)


@checked
@uncollected()
def compile(
    spec: Spec,
    max_contacts: int | None = None,
    max_pairs: int | None = None,
    keep: Collection[str] = (),
    hooks: Hooks = NO_HOOKS,
    mujoco: str | None = None,
) -> Model:
    """Compiles a Spec.

    Args:
      spec: the model as read.
      max_contacts, max_pairs: contact capacities. None takes them from the model's custom numerics `max_contact_points`
        and `max_geom_pairs` or, if it has none, from the rule of `diffsim.collision`.
      keep: names of switch fields that stay in the program even if they are zero (see `Model.replace`).
      hooks: functions of the user. Plugins must be given here; the others can be set later with `Model.replace`.
      mujoco: the version of MuJoCo whose semantics the model gets, as for `diffsim.load`; None for `spec.mujoco`. The
        Spec keeps it.

    Returns:
      The Model, on the default device and in the default precision.

    Raises:
      MjcfError: the model is wrong; the message lists all errors.
      UnsupportedError: the model uses a feature that diffsim does not support.
    """
    if mujoco is not None:
        spec.mujoco = changes.version_of(mujoco)
    check(spec)
    return compile_all(spec, max_contacts, max_pairs, keep, hooks)


def compile_all(
    spec: Spec,
    max_contacts: int | None = None,
    max_pairs: int | None = None,
    keep: Collection[str] = (),
    hooks: Hooks = NO_HOOKS,
    refuse: bool = True,
) -> Model:
    """`compile` for a checked Spec; without `refuse` it also compiles what the physics does not support (for tests)."""
    check_capacities(max_contacts, max_pairs)
    draft = Draft(spec, hooks)
    run_passes(draft, refuse)
    names = sizes_and_defaults.names(draft)
    texts = settings.texts(draft)
    asked = asked_capacities(draft)
    arguments = {"max_contacts": max_contacts, "max_pairs": max_pairs}
    capacities = asked | {name: number for name, number in arguments.items() if number is not None}

    like: list[Topology] = []

    def packed(fields: dict[str, Any], first: bool = False) -> Model:
        model = pack(fields, names, texts, **capacities, keep=keep, like=like[0] if like else None, draft=first)
        return model.replace(hooks=hooks)

    with on_host():
        model = packed(draft.fields, first=True)
        like.append(model.topology)
        if refuse:
            check_model(draft, model)
            draft.problems.raise_if_any()
            if capacities == asked:
                warn_of_cuts(model)
        derive(draft, model, packed)
    model = packed(draft.fields)
    warn_of_precision(model, draft.fields)
    return model


def run_passes(draft: Draft, refuse: bool = True, passes: Sequence[Callable[[Draft], None]] = PASSES) -> None:
    """Runs passes over the elements, by default all of them; the last one checks that all fields are finite."""
    # the last pass reports overflows with their place
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        for run in passes:
            run(draft)
            if run is flatten and refuse:
                check_elements(draft)
            draft.problems.raise_if_any()


@checked
def save_inertials(spec: Spec) -> None:
    """Adds an `<inertial>` with the compiled values to every body with mass, in place, replacing existing ones.

    This is what MuJoCo's compiler setting `saveinertial` does when it saves a model. In diffsim compiling and saving
    are separate, so call it before `mjcf.write`. The Spec compiles to the same model as before. If geoms change
    afterwards and `inertiafromgeom` is "auto", bodies keep the saved values.

    Args:
      spec: the model as read.

    Raises:
      MjcfError: the model is wrong.
    """
    check(spec)
    draft = Draft(spec)
    run_passes(draft, refuse=False, passes=PASSES[: PASSES.index(body_inertias)])
    rows = [(node, inertial_row(draft, node)) for node in draft.nodes["body"][1:]]
    draft.problems.raise_if_any()
    for node, row in rows:
        if row["body_mass"] < MINVAL:
            continue
        # delete existing ones, including those inside frames
        for old in [child for child in own_elements(node.source) if isinstance(child, Inertial)]:
            assert old.parent is not None
            old.parent.children.remove(old)
        values = {"mass": row["body_mass"], "diaginertia": row["body_inertia"]}
        node.source.add("inertial", pos=row["body_ipos"], quat=row["body_iquat"], **values)


def check_elements(draft: Draft) -> None:
    """Notes every actuator that diffsim does not support."""
    for node in draft.nodes["actuator"]:
        if node.e.target[0] not in TRANSMISSIONS:
            draft.problems.unsupported(node.source, "this transmission is not supported yet")
        if torn_apart(node.e.dyntype, node.e.gaintype, node.e.biastype):
            reason = "these dynamics, gain and bias types only work together: give all three the same type"
            draft.problems.unsupported(node.source, reason)


def check_model(draft: Draft, model: Model) -> None:
    """Notes unsupported features of the compiled model: sleeping equalities, sensors, pairs of geoms."""
    for equality, reason in sleepless_equalities(model):
        draft.problems.unsupported(draft.nodes["equality"][equality].source, reason, SLEEPLESS)
    for sensor, reason in unsupported_sensors(model.topology):
        draft.problems.unsupported(draft.nodes["sensor"][sensor].source, reason)
    # one error for each pair of geom types that can touch and that diffsim cannot collide
    for pair in unsupported_pairs(model.topology, model.opt.disableflags):
        first, second = (draft.nodes["geom"][geom].source for geom in (pair.geom1, pair.geom2))
        message = f"contact with {second.label} at line {second.line}: {pair.reason}"
        draft.problems.unsupported(first, message, pair.hint)
