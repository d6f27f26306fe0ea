"""write: a Spec as MJCF text, which loads to the same model.

Attributes are written as the elements hold them: in the file's own units and orientations, shortcuts as shortcuts,
class by class. Left out is what the element would have anyhow, from its default class or from MJCF. Settings are
written once, merged; included files, macros and comments are gone, for the reader has put their contents in place.
What was attached from another model must have been compiled with the same settings; its default class `main`, which
starts from MJCF's values, becomes a class below our `main` in which these values are said.
Each attribute's kind says how its value reads as text, in as many digits as the number needs.
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
from diffsim.mjcf.elements.body import Inertial, standing_in
from diffsim.mjcf.elements.sections import SECTIONS, Default, Section
from diffsim.mjcf.kinds import FileKind, Kind
from diffsim.mjcf.macros.keys import without_gaps
from diffsim.mjcf.reader import check
from diffsim.mjcf.schema import Element, children_of, xml_name
from diffsim.mjcf.spec import MAIN, Defaults, Spec

# settings that belong to the elements of a file, not to the whole model
OWN_SETTINGS = (
    "angle", "eulerseq", "autolimits", "boundmass", "boundinertia", "balanceinertia", "inertiafromgeom",
    "inertiagrouprange", "alignfree", "fitaabb",
)  # fmt: skip

SETTINGS = ("compiler", "option", "size", "visual", "statistic")

# these come first, whatever the order of the fields
LEADING = ("name", "class_")

# what an element would have without saying it: its attributes by field name
Inherited = Callable[[Element], Mapping[str, Any]]


@checked
def write(spec: Spec, path: str | Path | None = None) -> str:
    """The MJCF text of a Spec; reading it gives the same model.

    Names of asset files stay relative to the model's own folder: write beside them, or give the files in `assets` when
    reading. Inertias that geoms imply are not said; where the setting `saveinertial` asks for them, a warning names
    `diffsim.save_inertials`.

    Args:
      spec: the model.
      path: a file to which the text is written besides.

    Returns:
      The text.

    Raises:
      MjcfError: the model is wrong.
      UnsupportedError: an attached model has what one file cannot say.
    """
    check(spec)
    bodies = spec.bodies[1:] if spec.compiler.saveinertial else []
    lacking = [body for body in bodies if not any(isinstance(child, Inertial) for child in standing_in(body))]
    if lacking:
        message = f"the compiler setting saveinertial asks for inertias, which {lacking[0].label} does not give"
        warnings.warn(f"{message}; call diffsim.save_inertials(spec) before writing", stacklevel=3)
    _check_one_file(spec)

    def of_class(element: Element) -> Mapping[str, Any]:
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
    """The element and everything below it at the end of `parent`, unless there is nothing to say."""
    root = etree.SubElement(parent, tag, _texts(spec, element, inherited))
    waiting = [(element, root)]
    while waiting:
        source, node = waiting.pop()
        for child in source.children:
            # a part of the settings that no file has mentioned has no tag
            rules = children_of(type(source), source.tag).items()
            name = child.tag or next(tag for tag, rule in rules if rule.cls is type(child))
            waiting.append((child, etree.SubElement(node, name, _texts(spec, child, inherited))))
    if isinstance(element, Section) or tag in (*SETTINGS, "worldbody"):
        # a section that says nothing goes, and the empty parts of settings
        for child in list(root) if inherited is _mjcf_defaults else ():
            if not len(child) and not child.attrib:
                root.remove(child)
        if not len(root) and not root.attrib:
            parent.remove(root)


def _append_foreign(parent: "etree._Element", spec: Spec, section: Default) -> None:
    """The default classes of an attached model, in a class that undoes what our own `main` says."""
    _append(parent, spec, section, "default", _nothing)
    node = parent[-1]
    ours = spec.defaults.classes[MAIN]
    for key, plain in Defaults([], Problems()).classes[MAIN].items():
        undone = {
            xml_name(name): kind.text(getattr(plain, name))
            for name, kind in plain.legal(in_default=True).items()
            if not np.array_equal(getattr(ours[key], name), getattr(plain, name))
        }
        if undone:
            first = node.find(key)
            if first is None:
                first = etree.Element(key)
                node.insert(0, first)
            first.attrib.update({**undone, **first.attrib})


def _check_one_file(spec: Spec) -> None:
    """Refuse what an attached model has and one file cannot say."""
    problems = Problems()
    for element in spec.root.walk():
        theirs = spec.compiler_of(element)
        for name in OWN_SETTINGS if theirs is not spec.compiler else ():
            if not np.array_equal(getattr(theirs, name), getattr(spec.compiler, name)):
                problems.unsupported(element, f"comes from a model whose compiler setting '{name}' is another")
    foreign = [section for section in spec.root.each(Default) if section.settings is not None]
    for section in foreign:
        if any(other is not section and other.class_ == section.class_ for other in foreign):
            problems.unsupported(section, "an attached model has several sections of default classes")
        elif any(
            # what our class `main` gives, and has no value to go back to
            getattr(plain, name) is None and getattr(spec.defaults.classes[MAIN][key], name) is not None
            for key, plain in Defaults([], Problems()).classes[MAIN].items()
            for name in plain.legal(in_default=True)
        ):
            problems.unsupported(section, "our class 'main' says what a class in it cannot undo")
    problems.raise_if_any()


# --------------------------------------------------------------------------------------------------------- attributes


def _texts(spec: Spec, element: Element, inherited: Inherited) -> dict[str, str]:
    """What has to be written of an element, by attribute."""
    if element.tag == "worldbody":
        return {}
    before = inherited(element)
    texts = {}
    alone = {name for group in element.supersede for name in group}
    kinds = element.attributes()
    for name in sorted(element.legal(), key=lambda name: name not in LEADING):
        kind = kinds[name]
        value = getattr(element, name)
        if value is None:
            continue
        under = None if kind.required or name in alone else before.get(name)
        # what the element would have without saying it is left out
        if under is None or not np.array_equal(kind.over(under, value), under):
            texts[xml_name(name)] = _file_name(spec, element, kind, value) or kind.text(value)
    return texts


def _nothing(element: Element) -> Mapping[str, Any]:
    """In a default class everything is written: which class it overlays depends on the order of sections."""
    return {}


def _mjcf_defaults(element: Element) -> Mapping[str, Any]:
    return {name: kind.default for name, kind in element.attributes().items()}


def _file_name(spec: Spec, element: Element, kind: Kind, value: Any) -> str:
    """A file that was found beside an included file, from the folder where a file of the model itself looks for it."""
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
