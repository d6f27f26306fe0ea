"""expand: replaces macros, innermost first.

`<replicate>` and `<attach>` become frames, `<flexcomp>` becomes bodies and a flex, `<composite>` a chain of bodies. The
number of elements that macros make is limited, so that a short file cannot make an endless model.

Copy i of a `<replicate>` is in a frame that is turned by i times `euler` and moved by the sum of the offsets so far,
each turned like its copy. Names get the suffix `sep` + i, padded to the number of digits of `count`; suffixes of inner
replicates come first. Elements in other sections that refer to the copied elements (pairs, tendons, actuators, sensors)
are copied too, to the end of their section, and refer to the copies. Elements that only refer to others are not copied.
A constraint or actuator that refers to both kinds is dropped, as in MuJoCo; diffsim warns of it.

MuJoCo 3.8.1 also copies sensors without references (clock, energies) and doubles them with every further copy; diffsim
leaves them alone. MuJoCo refuses tuples that refer to copied elements; diffsim copies them.
Source: MuJoCo XML reference, "replicate"; mjXReader::Body and mjCBody::operator+= (3.8.1).
"""

import warnings

import numpy as np

from diffsim.base.errors import Problems
from diffsim.mjcf.defaults import Defaults
from diffsim.mjcf.elements.actuator import Actuator
from diffsim.mjcf.elements.asset import ModelAsset
from diffsim.mjcf.elements.body import Frame, Replicate
from diffsim.mjcf.elements.constraints import Equality
from diffsim.mjcf.elements.deformable import Attach, Composite, FlexComp
from diffsim.mjcf.elements.sections import REFERRING, Default, Section
from diffsim.mjcf.elements.settings import Compiler
from diffsim.mjcf.kinds import NameKind
from diffsim.mjcf.macros.attach import attach
from diffsim.mjcf.macros.cable import cable
from diffsim.mjcf.macros.flexcomp import Sections, flexcomp
from diffsim.mjcf.macros.keys import Keys
from diffsim.mjcf.orientation import from_euler, rotate
from diffsim.mjcf.schema import Element, own_names, references
from diffsim.mjcf.spec import Spec

# largest number of elements that the macros of one model can make
MOST_COPIES = 20_000


def expand(spec: Spec, problems: Problems) -> None:
    """Replaces every macro of a model, in place. `spec.models` has the models that it attaches, already expanded."""
    macros: list[Element] = []
    keys = Keys(spec, problems)
    sections = Sections()
    excludes, texts = Section(tag="contact"), Section(tag="custom")
    waiting: list[Element] = [spec.root]
    while waiting:
        element = waiting.pop()
        if isinstance(element, Replicate | Attach | FlexComp | Composite):
            macros.append(element)
        waiting.extend(element.children)
    # this walk visits parents before children and last children first, so its reverse is file order with inner macros
    # first
    macros.reverse()
    sizes = _sizes(spec, macros)
    for element in macros:
        if sizes[id(element)] > MOST_COPIES:
            problems.add(
                element, f"the macros up to here would make more than {MOST_COPIES} elements", "make the model smaller"
            )
            return
    for element in macros:
        if isinstance(element, Replicate):
            replicate(spec.root, element, element.filled(), spec.compiler, keys)
        elif isinstance(element, Attach):
            attach(spec, element, keys, problems)
        elif isinstance(element, FlexComp):
            flexcomp(spec, element, sections, problems)
        elif isinstance(element, Composite):
            cable(element, excludes=excludes, texts=texts, skins=sections.flexes, problems=problems)
    for section in (sections.equalities, sections.flexes, excludes, texts):
        if section.children:
            section.parent = spec.root
            spec.root.children.insert(len(spec.root.children) - 1, section)
    if spec.models:
        spec.defaults = Defaults(spec.root.each(Default), problems, spec.mujoco)
        for section in spec.root.tagged("asset"):
            section.children = [child for child in section.children if not isinstance(child, ModelAsset)]
    keys.place()


def _sizes(spec: Spec, macros: list[Element]) -> dict[int, int]:
    """The number of elements that each macro and all macros before it make, by id() of the macro."""
    grown = dict[int, int]()
    sizes = dict[int, int]()
    total = 0
    # a walk visits parents before their children; the reverse knows the sizes of the children first
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


# names as (kind, name)
Names = set[tuple[str, str]]


def replicate(root: Element, source: Replicate, filled: Replicate, compiler: Compiler, keys: Keys) -> None:
    """Replaces `source` by one frame for each copy, in place.

    Args:
      root: the `<mujoco>` element.
      source: the `<replicate>`.
      filled: `source` with all attributes filled.
      compiler: settings for its angles.
      keys: where the keyframes that it changes are left.
    """
    assert source.parent is not None
    pending = keys.take(source, filled.count or 0)
    inside = {key for child in source.children for element in child.walk() for key in own_names(element)}
    referring = _take_referring(root, source, inside)
    count = filled.count or 0
    suffixes = [f"{filled.sep}{index:0{len(str(count))}d}" for index in range(count)]
    frames: list[Element] = []
    copies: list[dict[int, Element]] = []
    pos = np.zeros(3)
    for index, suffix in enumerate(suffixes):
        euler = index * filled.euler
        place = {"tag": "frame", "file": filled.file, "line": filled.line, "parent": filled.parent}
        frame = Frame(**place, childclass=filled.childclass, pos=pos, euler=euler)
        pos = pos + rotate(from_euler(euler, compiler.eulerseq, compiler.degree), filled.offset)
        copied: dict[int, Element] = {}
        frame.children = [_copy(child, frame, suffix, inside, copied) for child in source.children]
        frames.append(frame)
        copies.append(copied)
        for element in referring:
            section = root.tagged((element.parent or root).tag)[-1]
            section.children.append(_copy(element, section, suffix, inside, copied))
    source.give_way(frames)
    keys.replicated(pending, suffixes, copies)


def _take_referring(root: Element, source: Replicate, inside: Names) -> list[Element]:
    """Removes from their sections the elements that refer to names `inside`, and returns those to be copied.

    Their own names are added to `inside`, because elements of later sections may refer to them.
    """
    taken: list[Element] = []
    for tag in REFERRING:
        for section in root.tagged(tag):
            staying: list[Element] = []
            for element in section.children:
                named = [key for part in element.walk() for _, *key in references(part) if key[0] != "default"]
                outside = [name for space, name in named if (space, name) not in inside]
                if len(outside) == len(named):
                    staying.append(element)
                elif outside and isinstance(element, Equality | Actuator):
                    message = (
                        f"{element.label} is dropped, as in MuJoCo: it refers to '{outside[0]}' outside <replicate>"
                    )
                    warnings.warn(f"{element.file}:{element.line} {message}", stacklevel=2)
                else:
                    taken.append(element)
                    inside |= own_names(element)
            section.children = staying
    return taken


def _copy(element: Element, parent: Element, suffix: str, inside: Names, copies: dict[int, Element]) -> Element:
    """A copy of an element and everything in it, noted in `copies`; names and references to `inside` get the suffix."""
    renamed = {name: value + suffix for name, space, value in references(element) if (space, value) in inside}
    for name, kind in element.attributes().items():
        if isinstance(kind, NameKind) and getattr(element, name):
            renamed[name] = getattr(element, name) + suffix
    copy = element.replace(parent=parent, children=[], **renamed)
    copy.children = [_copy(child, copy, suffix, inside, copies) for child in element.children]
    copies[id(element)] = copy
    return copy
