"""expand: macros are replaced by what they stand for, innermost first: `<replicate>` and `<attach>` become frames.

What macros make is bounded, so that a short file cannot ask for a model without end.
"""

from diffsim.errors import Problems
from diffsim.mjcf.attach import AttachedKey, attach, place_keys
from diffsim.mjcf.defaults import Defaults
from diffsim.mjcf.elements.asset import ModelAsset
from diffsim.mjcf.elements.body import Replicate
from diffsim.mjcf.elements.deformable import Attach
from diffsim.mjcf.elements.sections import AssetSection, Default
from diffsim.mjcf.replicate import replicate
from diffsim.mjcf.schema import Element
from diffsim.mjcf.spec import Spec

MOST_COPIES = 20_000


def expand(spec: Spec, problems: Problems) -> None:
    """Replace every macro of a model, in place. `spec.models` has the models that it attaches, already expanded."""
    made, keys = 0, list[AttachedKey]()
    for element in _macros(spec.root):
        made += _size(spec, element)
        if made > MOST_COPIES:
            problems.add(element, f"macros would make more than {MOST_COPIES} elements")
            return
        if isinstance(element, Replicate):
            replicate(spec.root, element, element.filled(), spec.compiler)
        elif isinstance(element, Attach):
            attach(spec, element, keys, problems)
    if spec.models:
        spec.defaults = Defaults(spec.root.each(Default), problems)
        place_keys(spec, keys)
        for section in spec.root.each(AssetSection):
            section.children = [child for child in section.children if not isinstance(child, ModelAsset)]


def _macros(root: Element) -> list[Element]:
    """Every macro, what stands in another one first."""
    found, waiting = [], [root]
    while waiting:
        element = waiting.pop()
        if isinstance(element, Replicate | Attach):
            found.append(element)
        waiting.extend(element.children)
    # the walk above has the last child first and parents before children: its reverse is file order, innermost first
    return found[::-1]


def _size(spec: Spec, element: Element) -> int:
    """How many elements a macro makes."""
    if isinstance(element, Replicate):
        return (element.filled().count or 0) * sum(1 for _ in element.walk())
    child = spec.models.get(getattr(element, "model", ""))
    return sum(1 for _ in child.root.walk()) if child is not None else 0
