"""assemble: the elements of a file as a Spec: settings merged, one world body, default classes built.

Sections may stand in any order and may be repeated: settings merge, the last value wins, everything else is appended.
Source: mjXReader::Parse (3.8.1).
"""

from collections.abc import Iterable

from diffsim.base.errors import Problems
from diffsim.mjcf.defaults import Defaults
from diffsim.mjcf.elements.body import Body
from diffsim.mjcf.elements.sections import SECTIONS, Default, Mujoco
from diffsim.mjcf.elements.settings import Compiler, Option, Size, Statistic
from diffsim.mjcf.elements.visual import Visual
from diffsim.mjcf.resources import Resources
from diffsim.mjcf.schema import AnyElement, Element, children_of
from diffsim.mjcf.spec import Spec

SETTING_TAGS: dict[type[Element], str] = {cls: tag for tag, cls in SECTIONS.items()}


def assemble(root: Mujoco, resources: Resources, problems: Problems) -> Spec:
    """The model as views of its elements: settings merged, one world body, default classes built."""
    root.children = _with_one_world(root)
    return Spec(
        root=root,
        compiler=merge(root.each(Compiler), Compiler),
        option=merge(root.each(Option), Option),
        size=merge(root.each(Size), Size),
        visual=merge(root.each(Visual), Visual),
        statistic=merge(root.each(Statistic), Statistic),
        worldbody=root.each(Body)[0],
        defaults=Defaults(root.each(Default), problems),
        resources=resources,
    )


def _with_one_world(root: Mujoco) -> list[Element]:
    """The sections of a model with all world bodies merged into one, the last section."""
    worlds = root.each(Body)
    place = worlds[0] if worlds else root
    world = Body(tag="worldbody", name="world", parent=root, file=place.file, line=place.line)
    for part in worlds:
        for child in part.children:
            child.parent = world
            world.children.append(child)
    return [section for section in root.children if not isinstance(section, Body)] + [world]


def merge(sections: Iterable[AnyElement], cls: type[AnyElement]) -> AnyElement:
    """Repeated settings as one, filled: the last value wins, for the sub-elements too."""
    sections = list(sections)
    last = sections[-1] if sections else cls(tag=SETTING_TAGS.get(cls, ""))
    merged = cls(tag=last.tag, file=last.file, line=last.line, parent=last.parent)
    for section in sections:
        for name, value in section.given().items():
            setattr(merged, name, section.attributes()[name].over(getattr(merged, name), value))
    parts = [child for section in sections for child in section.children]
    merged.children = [
        merge([part for part in parts if type(part) is rule.cls], rule.cls) for rule in children_of(cls).values()
    ]
    return merged.filled()
