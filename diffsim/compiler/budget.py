"""Budgets: what compiling a model would need, looked at before the work, and refused with the number and the element.

Models are input from strangers: a short file can ask for more memory or time than any machine has, by macros, sizes or
counts that are legal one by one. The limits are well above what the engine simulates at any useful speed.
"""

import numpy as np

from diffsim.compiler.draft import Draft
from diffsim.joints import dof_widths, qpos_widths
from diffsim.mjcf.elements.settings import MOST_NUMBERS

# the inertia matrix and its kin are dense while constants are derived: about 12 tables of nv x nv float64
MOST_DOFS = 4000
# tables of geoms against geoms, while candidate pairs are found: about 24 bytes for each two
MOST_GEOMS = 6000
MOST_PAIRS = 4_000_000


def check_sizes(draft: Draft) -> None:
    """Note degrees of freedom, geoms, activations and numbers of keyframes beyond what can be compiled."""
    widths = [int(dof_widths(node.e.type)) for node in draft.nodes["joint"]]
    _check_sum(draft, "joint", widths, MOST_DOFS, "degrees of freedom")
    _check_sum(draft, "geom", [1] * len(draft.nodes["geom"]), MOST_GEOMS, "geoms")
    activations = [max(0, node.e.actdim) for node in draft.nodes["actuator"]]
    _check_sum(draft, "actuator", activations, MOST_NUMBERS, "activations")
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
