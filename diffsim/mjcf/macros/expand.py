"""expand: macros are replaced by what they stand for, innermost first: `<replicate>` and `<attach>` become
frames, `<flexcomp>` becomes bodies and a flex.

What macros make is bounded, so that a short file cannot ask for a model without end.
"""

from diffsim.base.errors import Problems
from diffsim.mjcf.defaults import Defaults
from diffsim.mjcf.elements.asset import ModelAsset
from diffsim.mjcf.elements.body import Replicate
from diffsim.mjcf.elements.deformable import Attach, FlexComp
from diffsim.mjcf.elements.sections import AssetSection, Default
from diffsim.mjcf.macros.attach import attach
from diffsim.mjcf.macros.flexcomp import Made, flexcomp
from diffsim.mjcf.macros.keys import Keys
from diffsim.mjcf.macros.replicate import replicate
from diffsim.mjcf.schema import Element
from diffsim.mjcf.spec import Spec

MOST_COPIES = 20_000


def expand(spec: Spec, problems: Problems) -> None:
    """Replace every macro of a model, in place. `spec.models` has the models that it attaches, already expanded."""
    macros, keys, made = [], Keys(spec, problems), Made()
    waiting: list[Element] = [spec.root]
    while waiting:
        element = waiting.pop()
        if isinstance(element, Replicate | Attach | FlexComp):
            macros.append(element)
        waiting.extend(element.children)
    # this walk has the last child first and parents before children: its reverse is file order, innermost first
    macros.reverse()
    sizes = _sizes(spec, macros)
    for element in macros:
        if sizes[id(element)] > MOST_COPIES:
            problems.add(element, f"macros would make more than {MOST_COPIES} elements")
            return
    for element in macros:
        if isinstance(element, Replicate):
            replicate(spec.root, element, element.filled(), spec.compiler, keys)
        elif isinstance(element, Attach):
            attach(spec, element, keys, problems)
        elif isinstance(element, FlexComp):
            flexcomp(spec, element, made, problems)
    for section in (made.equalities, made.flexes):
        if section.children:
            section.parent = spec.root
            spec.root.children.insert(len(spec.root.children) - 1, section)
    if spec.models:
        spec.defaults = Defaults(spec.root.each(Default), problems)
        for section in spec.root.each(AssetSection):
            section.children = [child for child in section.children if not isinstance(child, ModelAsset)]
    keys.place()


def _sizes(spec: Spec, macros: list[Element]) -> dict[int, int]:
    """How many elements have been made when a macro is done, by identity: by it, and by all before it."""
    grown, sizes, total = dict[int, int](), dict[int, int](), 0
    # parents come before their children in a walk
    for element in reversed(list(spec.root.walk())):
        size = 1 + sum(grown[id(child)] for child in element.children)
        if isinstance(element, Replicate):
            size *= element.filled().count or 0
        elif isinstance(element, Attach):
            child = spec.models.get(element.model)
            size = sum(1 for _ in child.root.walk()) if child is not None else 0
        grown[id(element)] = size
    for element in macros:
        total += grown[id(element)]
        sizes[id(element)] = total
    return sizes
