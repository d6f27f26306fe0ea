"""assemble: the Spec of a tree of elements. Sections may be repeated; the settings in them are merged."""

from collections.abc import Iterable

from diffsim.base import changes
from diffsim.base.errors import Problems
from diffsim.mjcf.defaults import Defaults
from diffsim.mjcf.elements.body import Body
from diffsim.mjcf.elements.sections import SECTIONS, Default, Mujoco
from diffsim.mjcf.elements.settings import Compiler, Option, Size, Statistic
from diffsim.mjcf.elements.visual import Visual
from diffsim.mjcf.resources import Resources
from diffsim.mjcf.schema import AnyElement, Element, children_of
from diffsim.mjcf.spec import Spec

# default of sleep_tolerance since MuJoCo 3.11, m/s: trees that move slower may fall asleep
SLEEP_TOLERANCE = 1e-3

# the tag of each class of sections
SETTING_TAGS: dict[type[Element], str] = {cls: tag for tag, cls in SECTIONS.items()}


def assemble(root: Mujoco, resources: Resources, problems: Problems, mujoco: str = changes.DEFAULT) -> Spec:
    """The Spec of a tree of elements: merges settings and world bodies, builds default classes."""
    # all <worldbody> sections are merged into one, which becomes the last section
    worlds = root.each(Body)
    place = worlds[0] if worlds else root
    world = Body(tag="worldbody", name="world", parent=root, file=place.file, line=place.line)
    world.children = [child for part in worlds for child in part.children]
    for child in world.children:
        child.parent = world
    root.children = [section for section in root.children if not isinstance(section, Body)] + [world]
    options = root.each(Option)
    option = merge(options, Option)
    if changes.follows(mujoco, "sleep_tolerance") and all(one.sleep_tolerance is None for one in options):
        option.sleep_tolerance = SLEEP_TOLERANCE
    return Spec(
        root=root,
        compiler=merge(root.each(Compiler), Compiler),
        option=option,
        size=merge(root.each(Size), Size),
        visual=merge(root.each(Visual), Visual),
        statistic=merge(root.each(Statistic), Statistic),
        worldbody=world,
        defaults=Defaults(root.each(Default), problems, mujoco),
        resources=resources,
        mujoco=mujoco,
    )


def merge(sections: Iterable[AnyElement], cls: type[AnyElement]) -> AnyElement:
    """Merges repeated sections of settings into one with all attributes filled; the last value of each counts."""
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
