"""Budgets: what compiling a model would need, looked at before the work, and refused with the number and the element.

Models are input from strangers: a short file can ask for more memory or time than any machine has, by macros, sizes or
counts that are legal one by one. The limits are well above what the engine simulates at any useful speed.

Then the contacts and pairs that a model is packed for: what the caller gives, else what its custom numerics ask for.
Those numerics are MJX's and cut contacts that MuJoCo would keep; where they do, a warning says so as the model loads.
The rule for models that ask for nothing is in `diffsim.collision`.
"""

import dataclasses
import warnings
from numbers import Integral

import numpy as np

from diffsim.base.errors import ArgumentError, CapacityWarning
from diffsim.base.joints import dof_widths, qpos_widths
from diffsim.collision import capacities_of_numerics, contact_layout
from diffsim.compiler.draft import Draft
from diffsim.mjcf.elements.settings import MOST_NUMBERS
from diffsim.types.model import Model

# masks of dofs and bodies: about 3 tables of nv x nv truths
MOST_DOFS = 12_000
# the Jacobians of all bodies of a tree are multiplied by the inverse of its inertia while constants are derived
MOST_JACOBIANS = 2500 * 2500
# tables of geoms against geoms, while candidate pairs are found: about 24 bytes for each two
MOST_GEOMS = 6000
MOST_PAIRS = 4_000_000
# a quarter of a millisecond each, read, checked and compiled
MOST_DRIVEN = {"actuator": 12_000, "sensor": 15_000}


def check_sizes(draft: Draft) -> None:
    """Note counts, degrees of freedom, activations and numbers of keyframes beyond what can be compiled."""
    widths = [int(dof_widths(node.e.type)) for node in draft.nodes["joint"]]
    _check_sum(draft, "joint", widths, MOST_DOFS, "degrees of freedom")
    # bodies times degrees of freedom, summed over all trees
    bodies = draft.nodes["body"]
    root = np.arange(len(bodies))
    for node in bodies:
        if node.parent is not None and node.parent.id > 0:
            root[node.id] = root[node.parent.id]
    size = np.bincount(root, minlength=len(bodies))
    dofs = np.zeros(len(bodies))
    for node, width in zip(draft.nodes["joint"], widths, strict=True):
        dofs[root[node.body.id if node.body else 0]] += width
    if size @ dofs > MOST_JACOBIANS:
        largest = int(np.argmax(size * dofs))
        message = f"the tree has {size[largest]} bodies and {dofs[largest]:.0f} degrees of freedom"
        draft.problems.add(bodies[largest].source, f"{message}, too many to derive its constants", "make it smaller")
    _check_sum(draft, "geom", [1] * len(draft.nodes["geom"]), MOST_GEOMS, "geoms")
    for kind, most in MOST_DRIVEN.items():
        _check_sum(draft, kind, [1] * len(draft.nodes[kind]), most, f"{kind}s")
    activations = [max(0, node.e.actdim) for node in draft.nodes["actuator"]]
    _check_sum(draft, "actuator", activations, MOST_NUMBERS, "activations")
    # the table of who holds which activation is as wide for all as for the longest
    longest = int(np.argmax(activations)) if activations else 0
    if len(activations) > 1 and len(activations) * activations[longest] > MOST_NUMBERS:
        message = f"{len(activations)} actuators of as many activations have more than {MOST_NUMBERS}"
        draft.problems.add(draft.nodes["actuator"][longest].source, message, "make the model smaller")
    configuration = sum(int(qpos_widths(node.e.type)) for node in draft.nodes["joint"])
    mocap = 7 * sum(bool(node.e.mocap) for node in draft.nodes["body"])
    width = 1 + configuration + sum(widths) + sum(activations) + mocap + len(activations)
    keys = [width] * len(draft.nodes["key"])
    _check_sum(draft, "key", keys, MOST_NUMBERS, "numbers of keyframes")


def _check_sum(draft: Draft, kind: str, numbers: list[int], most: int, what: str) -> None:
    """Note the first object with which there are more than `most` of something."""
    total = np.cumsum(np.array(numbers, float))
    if len(total) and total[-1] > most:
        first = int(np.argmax(total > most))
        message = f"with it the model has more than {most} {what}, {total[-1]:.0f} in all"
        draft.problems.add(draft.nodes[kind][first].source, message, "make the model smaller")


def check_pairs(draft: Draft) -> None:
    """Note more candidate pairs of geoms than can be kept, before any is made."""
    fields = draft.fields
    geoms = len(fields["geom_bodyid"])
    if not geoms:
        return
    weld = fields["body_weldid"][fields["geom_bodyid"]]
    contype, conaffinity = fields["geom_contype"], fields["geom_conaffinity"]
    touched = np.zeros(geoms, int)
    for geom in range(geoms):
        meet = (contype[geom] & conaffinity) | (conaffinity[geom] & contype)
        touched[geom] = np.count_nonzero((meet != 0) & (weld != weld[geom]))
    if touched.sum() // 2 > MOST_PAIRS:
        node = draft.nodes["geom"][int(np.argmax(touched))]
        message = f"{touched.sum() // 2} pairs of geoms could touch, {touched.max()} of them with this one"
        draft.problems.add(node.source, f"{message}; more than {MOST_PAIRS}", "use contype and conaffinity")


MOST_CONTACTS = 10_000_000


def check_capacities(max_contacts: object, max_pairs: object) -> None:
    """Raises ArgumentError unless both are None or a number of contacts or pairs."""
    for name, number in {"max_contacts": max_contacts, "max_pairs": max_pairs}.items():
        legal = isinstance(number, Integral) and not isinstance(number, bool) and 0 <= int(number) <= MOST_CONTACTS
        if number is not None and not legal:
            expected = f"an integer from 0 to {MOST_CONTACTS}, or None, is expected"
            raise ArgumentError(f"{name}: {expected}, {number!r} was given")


def asked_capacities(draft: Draft) -> dict[str, int]:
    """What the custom numerics of a model ask for, by the name of the argument of `load`; MOST_CONTACTS at the most."""
    names = tuple(node.name for node in draft.nodes["numeric"])
    first = draft.fields["numeric_data"][draft.fields["numeric_adr"]]
    return capacities_of_numerics(names, first.clip(max=MOST_CONTACTS))


def warn_of_cuts(model: Model) -> None:
    """Warn where the capacities that a model asks for keep fewer contacts than the default rule."""
    topology = model.topology
    if topology.max_contacts is None and topology.max_pairs is None:
        return
    free = dataclasses.replace(topology, max_contacts=None, max_pairs=None)
    settings = (model.opt.disableflags, None, model.opt.sdf_initpoints)
    kept, usual = contact_layout(topology, *settings).ncon, contact_layout(free, *settings).ncon
    if kept < usual:
        warnings.warn(
            f"the model's custom numerics (max_contact_points, max_geom_pairs) keep at most {kept} contacts, where "
            f"{usual} would be kept without them; give max_contacts and max_pairs to choose",
            CapacityWarning,
            stacklevel=2,
        )
