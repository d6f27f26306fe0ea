"""Limits of the size of a model, checked before the work is done, and the capacities for contacts.

A model file may come from an untrusted source. With sizes, counts and macros that are all legal, a short file can need
more memory or time than any machine has. The limits are far above what the engine simulates at a useful speed.

The second half is about capacities: the numbers of contacts and of pairs of geoms for which a model has room. They come
from the caller or from two custom numerics that MJX defined. Capacities from numerics can drop contacts that MuJoCo
would keep; then a warning says so when the model is loaded. The rule for models without them is in `diffsim.collision`.
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

# degrees of freedom: masks that relate dofs and bodies take about 3 bool arrays (nv, nv), 0.4 GB
MOST_DOFS = 12_000
# bodies times degrees of freedom, summed over trees: derived constants need the Jacobians of all bodies of a tree
MOST_JACOBIANS = 2500 * 2500
# geoms: finding candidate pairs takes about 24 bytes for each ordered pair of geoms, 0.9 GB
MOST_GEOMS = 6000
# candidate pairs of geoms
MOST_PAIRS = 4_000_000
# actuators and sensors: reading, checking and compiling one of them takes about 0.25 ms, all of them 3 to 4 s
MOST_OBJECTS = {"actuator": 12_000, "sensor": 15_000}
# the largest number of contacts or pairs for which a model can have room
MOST_CONTACTS = 10_000_000


def check_sizes(draft: Draft) -> None:
    """Notes errors for counts, degrees of freedom, activations and keyframes beyond the limits."""
    widths = [int(dof_widths(node.e.type)) for node in draft.nodes["joint"]]
    _check_sum(draft, "joint", widths, MOST_DOFS, "degrees of freedom")
    # bodies times degrees of freedom, summed over all trees; `root` is the child of the world above each body
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
        draft.problems.add(
            bodies[largest].source, f"{message}, too many for its derived constants", "make the tree smaller"
        )
    _check_sum(draft, "geom", [1] * len(draft.nodes["geom"]), MOST_GEOMS, "geoms")
    for kind, most in MOST_OBJECTS.items():
        _check_sum(draft, kind, [1] * len(draft.nodes[kind]), most, f"{kind}s")
    activations = [max(0, node.e.actdim) for node in draft.nodes["actuator"]]
    _check_sum(draft, "actuator", activations, MOST_NUMBERS, "activations")
    # the table of activations has as many columns for each actuator as the longest one needs
    longest = int(np.argmax(activations)) if activations else 0
    if len(activations) > 1 and len(activations) * activations[longest] > MOST_NUMBERS:
        message = f"{len(activations)} actuators with as many activations as this one have more than {MOST_NUMBERS}"
        draft.problems.add(draft.nodes["actuator"][longest].source, message, "make the model smaller")
    configuration = sum(int(qpos_widths(node.e.type)) for node in draft.nodes["joint"])
    mocap = 7 * sum(bool(node.e.mocap) for node in draft.nodes["body"])
    width = 1 + configuration + sum(widths) + sum(activations) + mocap + len(activations)
    keys = [width] * len(draft.nodes["key"])
    _check_sum(draft, "key", keys, MOST_NUMBERS, "numbers of keyframes")


def _check_sum(draft: Draft, kind: str, numbers: list[int], most: int, what: str) -> None:
    """Notes an error at the object where the running sum of `numbers` first exceeds `most`; `what` names the sum."""
    total = np.cumsum(np.array(numbers, float))
    if len(total) and total[-1] > most:
        first = int(np.argmax(total > most))
        message = f"from here on the model has more than {most} {what}, {total[-1]:.0f} in total"
        draft.problems.add(draft.nodes[kind][first].source, message, "make the model smaller")


def check_pairs(draft: Draft) -> None:
    """Notes an error if the model has too many candidate pairs of geoms, before any pair is made."""
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
        message = f"{touched.sum() // 2} pairs of geoms could touch, {touched.max()} of them with this geom"
        draft.problems.add(
            node.source, f"{message}, more than the limit of {MOST_PAIRS}", "use contype and conaffinity"
        )


def check_capacities(max_contacts: object, max_pairs: object) -> None:
    """Raises ArgumentError unless each is None or a legal number of contacts or pairs."""
    for name, number in {"max_contacts": max_contacts, "max_pairs": max_pairs}.items():
        legal = isinstance(number, Integral) and not isinstance(number, bool) and 0 <= int(number) <= MOST_CONTACTS
        if number is not None and not legal:
            raise ArgumentError(f"{name} is {number!r}, expected an integer from 0 to {MOST_CONTACTS} or None")


def asked_capacities(draft: Draft) -> dict[str, int]:
    """The capacities that a model's custom numerics set, by the name of the argument of `load`."""
    names = tuple(node.name for node in draft.nodes["numeric"])
    first = draft.fields["numeric_data"][draft.fields["numeric_adr"]]
    return capacities_of_numerics(names, first.clip(max=MOST_CONTACTS))


def warn_of_cuts(model: Model) -> None:
    """Warns if the capacities that a model sets keep fewer contacts than the default rule."""
    topology = model.topology
    if topology.max_contacts is None and topology.max_pairs is None:
        return
    free = dataclasses.replace(topology, max_contacts=None, max_pairs=None)
    settings = (model.opt.disableflags, None, model.opt.sdf_initpoints)
    kept, usual = contact_layout(topology, *settings).ncon, contact_layout(free, *settings).ncon
    if kept < usual:
        warnings.warn(
            f"the model's custom numerics (max_contact_points, max_geom_pairs) keep at most {kept} contacts; without "
            f"them diffsim would keep {usual}. Pass max_contacts and max_pairs to choose",
            CapacityWarning,
            stacklevel=2,
        )
