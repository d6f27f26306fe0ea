"""write: a Spec as MJCF text, from which the same model is loaded.

Attributes are written as the elements have them: in the units and orientations of the file, shortcuts as shortcuts,
with their default classes. An attribute is left out if the element gets the same value from its default class or from
MJCF. Settings are merged and written once. Included files, macros and comments are not restored: the reader has
replaced them. Elements of an attached model must have the same compiler settings as this model.

The default class `main` of an attached model starts from MJCF's defaults, not from our `main`. It is written as a class
inside our `main`, with MJCF's defaults spelled out where our `main` has other values.
Source: MuJoCo XML reference; "Saving" in the manual's chapter on modeling.
"""

import os
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from lxml import etree  # pyright: ignore[reportAttributeAccessIssue]

from diffsim.base.checked import checked
from diffsim.base.errors import Problems
from diffsim.mjcf.defaults import MAIN, Defaults
from diffsim.mjcf.elements.body import Inertial, own_elements
from diffsim.mjcf.elements.sections import SECTIONS, Default, Section
from diffsim.mjcf.kinds import FileKind, Kind
from diffsim.mjcf.macros.keys import without_gaps
from diffsim.mjcf.reader import check
from diffsim.mjcf.schema import Element, children_of, xml_name
from diffsim.mjcf.spec import Spec

# compiler settings that apply to the elements of one file, not to the whole model
OWN_SETTINGS = (
    "angle",
    "eulerseq",
    "autolimits",
    "boundmass",
    "boundinertia",
    "balanceinertia",
    "inertiafromgeom",
    "inertiagrouprange",
    "alignfree",
    "fitaabb",
)

# sections of settings, in the order in which they are written
SETTINGS = ("compiler", "option", "size", "visual", "statistic")

# attributes that are written first
LEADING = ("name", "class_")

# the attributes that an element has without giving them, by field name
Inherited = Callable[[Element], Mapping[str, Any]]


@checked
def write(spec: Spec, path: str | Path | None = None) -> str:
    """The MJCF text of a Spec, from which the same model is loaded.

    File names of assets stay relative to the model's folder, so write to that folder or pass the files in `assets` when
    loading. Inertias that follow from geoms are not written; with the compiler setting `saveinertial`, a warning names
    `diffsim.save_inertials`.

    Args:
      spec: the model.
      path: a file to which the text is also written.

    Returns:
      The text.

    Raises:
      MjcfError: the model is wrong.
      UnsupportedError: one file cannot express an attached model.
    """
    check(spec)
    bodies = spec.bodies[1:] if spec.compiler.saveinertial else []
    lacking = [body for body in bodies if not any(isinstance(child, Inertial) for child in own_elements(body))]
    if lacking:
        message = f"the compiler setting saveinertial is true, but {lacking[0].label} has no <inertial>"
        warnings.warn(f"{message}; call diffsim.save_inertials(spec) before writing", stacklevel=3)
    _check_one_file(spec)

    def of_class(element: Element) -> Mapping[str, Any]:
        """What an element inherits: the values of its default class, or MJCF's defaults if classes do not apply."""
        complete = spec.defaults.inherited(element)
        return _mjcf_defaults(element) if type(complete) is Element else complete.given()

    root = etree.Element("mujoco")
    if spec.root.model is not None:
        root.set("model", spec.root.model)
    for name in SETTINGS:
        _append(root, spec, getattr(spec, name), name, _mjcf_defaults)
    order = list(SECTIONS)
    for section in sorted(
        spec.root.children, key=lambda section: (order.index(section.tag), section.settings is not None)
    ):
        if isinstance(section, Default) and section.settings is not None:
            _append_foreign(etree.SubElement(root, "default"), spec, section)
        elif section.tag not in SETTINGS:
            inherited = _nothing if isinstance(section, Default) else of_class
            section = without_gaps(spec, section) if section.tag == "keyframe" else section
            _append(root, spec, section, section.tag, inherited)
    etree.indent(root)
    text = etree.tostring(root, encoding="unicode") + "\n"
    if path is not None:
        Path(path).write_text(text, encoding="utf-8")
    return text


def _append(parent: "etree._Element", spec: Spec, element: Element, tag: str, inherited: Inherited) -> None:
    """Appends an element and everything below it to `parent`; empty sections are left out."""
    root = etree.SubElement(parent, tag, _texts(spec, element, inherited))
    waiting = [(element, root)]
    while waiting:
        source, node = waiting.pop()
        for child in source.children:
            # a part of the settings that no file mentions has no tag yet: it comes from the schema
            rules = children_of(type(source), source.tag).items()
            name = child.tag or next(tag for tag, rule in rules if rule.cls is type(child))
            waiting.append((child, etree.SubElement(node, name, _texts(spec, child, inherited))))
    if isinstance(element, Section) or tag in (*SETTINGS, "worldbody"):
        # remove sections and parts of settings that are empty
        for child in list(root) if inherited is _mjcf_defaults else ():
            if not len(child) and not child.attrib:
                root.remove(child)
        if not len(root) and not root.attrib:
            parent.remove(root)


def _append_foreign(parent: "etree._Element", spec: Spec, section: Default) -> None:
    """Appends the default classes of an attached model.

    Where our `main`, which surrounds them, has other values than MJCF, their outermost class restores MJCF's.
    """
    _append(parent, spec, section, "default", _nothing)
    node = parent[-1]
    ours = spec.defaults.classes[MAIN]
    for key, plain in Defaults([], Problems()).classes[MAIN].items():
        restored = {
            xml_name(name): kind.text(getattr(plain, name))
            for name, kind in plain.legal(in_default=True).items()
            if not np.array_equal(getattr(ours[key], name), getattr(plain, name))
        }
        if restored:
            first = node.find(key)
            if first is None:
                first = etree.Element(key)
                node.insert(0, first)
            first.attrib.update({**restored, **first.attrib})


def _check_one_file(spec: Spec) -> None:
    """Raises UnsupportedError if one file cannot express an attached model."""
    problems = Problems()
    for element in spec.root.walk():
        theirs = spec.compiler_of(element)
        for name in OWN_SETTINGS if theirs is not spec.compiler else ():
            if not np.array_equal(getattr(theirs, name), getattr(spec.compiler, name)):
                problems.unsupported(
                    element, f"comes from a model with another compiler setting '{name}', which one file cannot express"
                )
    foreign = [section for section in spec.root.each(Default) if section.settings is not None]
    for section in foreign:
        if any(other is not section and other.class_ == section.class_ for other in foreign):
            problems.unsupported(
                section, "an attached model has several sections of default classes, which one file cannot express"
            )
        elif any(
            # our class `main` gives an attribute that has no default in MJCF, so that no value can restore it
            getattr(plain, name) is None and getattr(spec.defaults.classes[MAIN][key], name) is not None
            for key, plain in Defaults([], Problems()).classes[MAIN].items()
            for name in plain.legal(in_default=True)
        ):
            problems.unsupported(
                section, "the class 'main' of this model gives attributes that a class in it cannot undo"
            )
    problems.raise_if_any()


# --------------------------------------------------------------------------------------------------------- attributes


def _texts(spec: Spec, element: Element, inherited: Inherited) -> dict[str, str]:
    """The attributes of an element that have to be written, as text."""
    if element.tag == "worldbody":
        return {}
    before = inherited(element)
    texts = {}
    # attributes of these groups are always written: if one is given, inherited values of the others do not apply
    always = {name for group in element.supersede for name in group}
    kinds = element.attributes()
    for name in sorted(element.legal(), key=lambda name: name not in LEADING):
        kind = kinds[name]
        value = getattr(element, name)
        if value is None:
            continue
        default = None if kind.required or name in always else before.get(name)
        # leave out what the element inherits anyway
        if default is None or not np.array_equal(kind.over(default, value), default):
            texts[xml_name(name)] = _file_name(spec, element, kind, value) or kind.text(value)
    return texts


def _nothing(element: Element) -> Mapping[str, Any]:
    """No inherited values. Default classes are written in full: what they inherit depends on the order of sections."""
    return {}


def _mjcf_defaults(element: Element) -> Mapping[str, Any]:
    """MJCF's defaults, for elements to which default classes do not apply."""
    return {name: kind.default for name, kind in element.attributes().items()}


def _file_name(spec: Spec, element: Element, kind: Kind, value: Any) -> str:
    """The name to write for a file of an included or attached model, relative to our own asset folder; else empty."""
    foreign = element.settings is not None
    if not isinstance(kind, FileKind) or not (foreign or os.path.dirname(element.file)):
        return ""
    compiler, home = spec.compiler_of(element), spec.home_of(element)
    if compiler.strippath or (spec.compiler.strippath and foreign):
        return ""
    place = home.locate(value, compiler.folder(kind.folder) if kind.folder else "", element.file)
    if not place:
        return ""
    if home.folder != spec.resources.folder:
        place = os.path.relpath((home.folder or Path.cwd()) / place, spec.resources.folder or Path.cwd())
    return os.path.relpath(place, (spec.compiler.folder(kind.folder) if kind.folder else "") or ".")
