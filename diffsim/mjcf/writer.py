"""write: a Spec as MJCF text, which loads to the same model.

Attributes are written as the elements hold them: in the file's own units and orientations, shortcuts as shortcuts,
class by class. Left out is what the element would have anyhow, from its default class or from MJCF. Settings are
written once, merged; included files, replicates and comments are gone, for the reader has put their contents in place.
Each attribute's kind says how its value reads as text, in as many digits as the number needs.
Source: MuJoCo XML reference; "Saving" in the manual's chapter on modeling.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from lxml import etree  # pyright: ignore[reportAttributeAccessIssue]

from diffsim.mjcf.elements.sections import SECTIONS, Default, Section
from diffsim.mjcf.kinds import FileKind, Kind
from diffsim.mjcf.reader import check
from diffsim.mjcf.schema import Element, children_of, xml_name
from diffsim.mjcf.spec import Spec

SETTINGS = ("compiler", "option", "size", "visual", "statistic")

# these come first, whatever the order of the fields
LEADING = ("name", "class_")

# what an element would have without saying it: its attributes by field name
Inherited = Callable[[Element], Mapping[str, Any]]


def write(spec: Spec, path: str | Path | None = None) -> str:
    """The MJCF text of a Spec, also written to `path` if that is given.

    Reading the text gives the same model. Names of asset files stay relative to the model's own folder: write beside
    them, or give the files in `assets` when reading. Raises MjcfError if the model is wrong.
    """
    check(spec)
    root = etree.Element("mujoco")
    if spec.root.model is not None:
        root.set("model", spec.root.model)
    for name in SETTINGS:
        _append(root, spec, getattr(spec, name), name, _mjcf_defaults)
    order = list(SECTIONS)
    for section in sorted(spec.root.children, key=lambda section: order.index(section.tag)):
        if section.tag not in SETTINGS:
            inherited = _nothing if isinstance(section, Default) else _class_of(spec)
            _append(root, spec, section, section.tag, inherited)
    etree.indent(root)
    text = etree.tostring(root, encoding="unicode") + "\n"
    if path is not None:
        Path(path).write_text(text, encoding="utf-8")
    return text


def _append(parent: "etree._Element", spec: Spec, element: Element, tag: str, inherited: Inherited) -> None:
    """The element and everything below it at the end of `parent`, unless there is nothing to say."""
    root = etree.SubElement(parent, tag, _texts(spec, element, inherited))
    waiting = [(element, root)]
    while waiting:
        source, node = waiting.pop()
        for child in source.children:
            made = etree.SubElement(node, child.tag or _tag(source, child), _texts(spec, child, inherited))
            waiting.append((child, made))
    if isinstance(element, Section) or tag in (*SETTINGS, "worldbody"):
        _prune(root, inherited is _mjcf_defaults)


def _prune(root: "etree._Element", deep: bool) -> None:
    """Remove a section that says nothing; `deep`: also its empty parts."""
    for child in list(root) if deep else ():
        if not len(child) and not child.attrib:
            root.remove(child)
    if not len(root) and not root.attrib:
        root.getparent().remove(root)


def _tag(parent: Element, part: Element) -> str:
    """The tag of a part of the settings that no file has mentioned."""
    return next(tag for tag, rule in children_of(type(parent)).items() if rule.cls is type(part))


# --------------------------------------------------------------------------------------------------------- attributes


def _texts(spec: Spec, element: Element, inherited: Inherited) -> dict[str, str]:
    """What has to be written of an element, by attribute."""
    if element.tag == "worldbody":
        return {}
    before, found = inherited(element), {}
    alone = {name for group in element.supersede for name in group}
    kinds = element.attributes()
    for name in sorted(element.legal(), key=lambda name: name not in LEADING):
        kind, value = kinds[name], getattr(element, name)
        if value is None:
            continue
        implied = name in before and not kind.required and name not in alone and _same(kind, before[name], value)
        if not implied:
            found[xml_name(name)] = _file_name(spec, element, kind, value) or kind.text(value)
    return found


def _same(kind: Kind, inherited: Any, own: Any) -> bool:
    """Whether an attribute says what it would be without it."""
    return inherited is not None and np.array_equal(kind.over(inherited, own), inherited)


def _nothing(element: Element) -> Mapping[str, Any]:
    """In a default class everything is written: which class it overlays depends on the order of sections."""
    return {}


def _mjcf_defaults(element: Element) -> Mapping[str, Any]:
    return {name: kind.default for name, kind in element.attributes().items()}


def _class_of(spec: Spec) -> Inherited:
    def inherited(element: Element) -> Mapping[str, Any]:
        complete = spec.defaults.inherited(element)
        return _mjcf_defaults(element) if type(complete) is Element else complete.given()

    return inherited


def _file_name(spec: Spec, element: Element, kind: Kind, value: Any) -> str:
    """A file that was found beside an included file, from the folder where a file of the model itself looks for it."""
    if not isinstance(kind, FileKind) or not os.path.dirname(element.file) or spec.compiler.strippath:
        return ""
    folder = spec.compiler.folder(kind.folder) if kind.folder else ""
    place = spec.resources.locate(value, folder, element.file)
    return os.path.relpath(place, folder or ".") if place else ""
