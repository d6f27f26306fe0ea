"""read: MJCF text to Spec. All that is wrong in a file is found in one go.

Passes: parse the XML; put included files in their place; turn every node into an element of its class, attribute by
attribute; merge settings, build default classes; check each element; expand macros; check names and references.
Sections may stand in any order and may be repeated: settings merge, the last value wins, everything else is appended,
and since names are looked up at the end, references may point forward. Every name is unique among its kind, every
reference points to something that is there; references are checked on resolved elements, so that a material that comes
from a default class is looked up too.
Source: MuJoCo XML reference; mjXReader::Parse and mjXSchema::Check (3.8.1).
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from diffsim.base import changes
from diffsim.base.errors import MissingFileError, MjcfError, Problem, Problems, near_match
from diffsim.mjcf import versions
from diffsim.mjcf.elements.asset import FileAsset, ModelAsset
from diffsim.mjcf.elements.body import Body
from diffsim.mjcf.elements.sections import SECTIONS, Default, Mujoco
from diffsim.mjcf.elements.settings import Compiler, Option, Size, Statistic
from diffsim.mjcf.elements.visual import Visual
from diffsim.mjcf.kinds import BadValue, NameKind
from diffsim.mjcf.macros.expand import expand
from diffsim.mjcf.resources import MissingResource, ResourceError, Resources
from diffsim.mjcf.schema import AnyElement, Element, children_of, xml_name, xml_names
from diffsim.mjcf.schema import references as references
from diffsim.mjcf.source import Node, expand_includes, parse
from diffsim.mjcf.spec import Defaults, Spec
from diffsim.mjcf.urdf import translate

TEXT_NAME = "<xml>"
ROOTS = ("mujoco", "robot")
DEEPEST = 400
DEEPEST_ATTACH = 32
MOST_ELEMENTS = 25_000


def read(
    source: str | bytes | Path,
    assets: Mapping[str, bytes] | None = None,
    allow_outside: bool | None = None,
    mujoco: str = changes.DEFAULT,
) -> Spec:
    """Reads a model, MJCF or URDF.

    Args:
      source: a path, or XML text (what begins with `<`, or bytes).
      assets: files in memory by name; they come before files on disk.
      allow_outside: whether files outside of the model's folder may be read; by default those that a file on the disk
        names are, and text opens none. Pass False for a file that came from a stranger.
      mujoco: the version of MuJoCo whose semantics the model gets, as for `diffsim.load`.

    Returns:
      The Spec, checked.

    Raises:
      MjcfError: the model is wrong; the message has everything that is. MissingFileError, which is a FileNotFoundError
        too: there is no such file.
      UnsupportedError: the model is right but needs what diffsim lacks.
    """
    root, resources = _open(source, assets, allow_outside)
    return _read(root, resources, {root.file: None}, True, changes.version_of(mujoco))


def _read(root: Node, resources: Resources, files: "dict[str, Spec | None]", complete: bool, mujoco: str) -> Spec:
    """The Spec of an XML tree. `files`: models read so far, None while they are being read.

    complete: False for a model that is only there to be attached, whose references may lead out of it.
    """
    problems = Problems()
    if root.tag not in ROOTS:
        message = "the root of a model is <mujoco> or, of a URDF, <robot>"
        raise MjcfError([Problem(root.file, root.line, root.label, message, near_match(root.tag, ROOTS))])
    if root.tag == "robot":
        root = translate(root, resources, problems)
    else:
        expand_includes(root, resources, problems)
    count = 0
    waiting = [root]
    while waiting:
        count += 1
        waiting += waiting.pop().children
    if count > MOST_ELEMENTS:
        problems.add(root, f"the model has {count} elements, more than {MOST_ELEMENTS}")
    problems.raise_if_any()
    model = _element(root, Mujoco, None, problems, False)
    spec = assemble(model, resources, problems, mujoco)
    _read_models(spec, files, problems)
    _check(spec, complete, problems)
    problems.raise_if_any()
    return spec


def new(model: str = "MuJoCo Model") -> Spec:
    """An empty model, to be filled by a program.

    Args:
      model: its name.

    Returns:
      A Spec with an empty world.
    """
    spec = read("<mujoco/>")
    spec.root.model = model
    return spec


def _read_models(spec: Spec, files: "dict[str, Spec | None]", problems: Problems) -> None:
    """Read the models that `spec` attaches, each file once."""
    for asset in spec.all(ModelAsset):
        try:
            file, data = spec.resources.xml(asset.file_ or "", near=asset.file)
        except ResourceError as problem:
            problems.add(asset, str(problem), problem.hint)
            continue
        if file in files and files[file] is None:
            problems.add(asset, f"model '{asset.file_}' attaches itself")
            continue
        if list(files.values()).count(None) > DEEPEST_ATTACH:
            problems.add(asset, f"models are attached more than {DEEPEST_ATTACH} deep")
            continue
        if file not in files:
            files[file] = None
            try:
                files[file] = _read(parse(data, file), spec.resources, files, False, spec.mujoco)
            except MjcfError as error:
                problems.take(error)
        child = files[file]
        name = asset.name or (child.model if child is not None else "")
        if name in spec.models:
            problems.add(asset, f"a model '{name}' is already there", "give attribute 'name'")
        elif child is not None:
            spec.models[name] = child


def _open(
    source: str | bytes | Path, assets: Mapping[str, bytes] | None, allow_outside: bool | None
) -> tuple[Node, Resources]:
    """The XML tree and the place where further files are."""
    if isinstance(source, bytes) or (isinstance(source, str) and source.lstrip("\ufeff \t\r\n").startswith("<")):
        return parse(source, TEXT_NAME), Resources(None, assets, allow_outside)
    if not str(source).strip():
        raise MjcfError([Problem(TEXT_NAME, 0, "", "the model is empty", "pass a path, or XML text")])
    path = Path(source)
    resources = Resources(path.parent, assets, allow_outside)
    try:
        name, data = resources.xml(path.name)
    except (ResourceError, ValueError, OSError) as problem:
        hint = "XML text begins with '<'" if "<" in str(source) else getattr(problem, "hint", "")
        kind = MissingFileError if isinstance(problem, MissingResource) else MjcfError
        raise kind([Problem(str(source)[:200], 0, "", str(problem), hint)]) from None
    return parse(data, name), resources


# ------------------------------------------------------------------------------------------------- nodes to elements


def _element(
    node: Node, cls: type[AnyElement], parent: Element | None, problems: Problems, in_default: bool, depth: int = 0
) -> AnyElement:
    """The element that `node` says, with its children; whatever is wrong is noted, the rest is read all the same."""
    values = _values(node, cls, problems, in_default)
    element = cls.of(values, tag=node.tag, said=node.said, file=node.file, line=node.line, parent=parent)
    if cls.unsupported:
        problems.unsupported(element, cls.unsupported)
    _check_alternatives(element, problems)
    if depth > DEEPEST:
        problems.add(element, f"elements are nested more than {DEEPEST} deep")
        return element
    legal = children_of(cls, node.tag)
    tags: set[str] = set()
    for child in node.children:
        rule = legal.get(child.tag)
        if rule is None:
            _unknown_element(child, element, problems)
            continue
        if rule.once and child.tag in tags:
            problems.add(child, f"stands more than once in {element.label}")
        tags.add(child.tag)
        inside = in_default or isinstance(element, Default)
        element.children.append(_element(child, rule.cls, element, problems, inside, depth + 1))
    return element


def _values(node: Node, cls: type[Element], problems: Problems, in_default: bool) -> dict[str, Any]:
    """The values of the attributes of a node, by field name."""
    if node.tag == "worldbody":
        for name in node.attributes:
            problems.add(node, f"attribute '{name}': the world body has no attributes")
        return {"name": "world"}
    legal = cls.legal(in_default)
    field_names = xml_names(cls, in_default)
    values: dict[str, Any] = {}
    for name, text in node.attributes.items():
        if name not in field_names:
            _unknown_attribute(node, name, cls, field_names, problems)
            continue
        try:
            values[field_names[name]] = legal[field_names[name]].parse(text)
        except BadValue as bad:
            words, since = versions.NEWER_WORDS.get((node.tag, name), (frozenset(), ""))
            if (said := set(text.split())) and said <= words:
                problems.unsupported(node, f"attribute '{name}': '{text}' is new in MuJoCo {since}, not supported yet")
            else:
                problems.add(node, f"attribute '{name}': {bad.message}", bad.hint)
    if not in_default:
        for name in (name for name, field in field_names.items() if legal[field].required):
            # what could not be read has been noted
            if name not in node.attributes and (since := versions.NEWER_WITHOUT.get((node.tag, name))):
                problems.unsupported(node, f"to leave out '{name}' is new in MuJoCo {since}, not supported yet")
            elif name not in node.attributes or values.get(field_names[name], 0) is None:
                problems.add(node, f"attribute '{name}' is required")
    return values


def _unknown_attribute(node: Node, name: str, cls: type[Element], legal: Iterable[str], problems: Problems) -> None:
    if name in {xml_name(field_name) for field_name in cls.legal()}:
        problems.add(node, f"attribute '{name}' is not allowed in a default class")
    elif since := versions.NEWER_ATTRIBUTES.get(node.tag, {}).get(name):
        if versions.says_nothing(node.tag, name, node.attributes[name]):
            return
        problems.unsupported(node, f"attribute '{name}' is new in MuJoCo {since}, not supported yet")
    else:
        hint = versions.ATTRIBUTES.get(node.tag, {}).get(name) or near_match(name, legal, listed=8)
        problems.add(node, f"unknown attribute '{name}'", hint)


def _unknown_element(node: Node, parent: Element, problems: Problems) -> None:
    if since := versions.NEWER_ELEMENTS.get(parent.tag, {}).get(node.tag):
        problems.unsupported(node, f"is new in MuJoCo {since}, not supported yet")
        return
    hint = versions.ELEMENTS.get(parent.tag, {}).get(node.tag)
    hint = hint or near_match(node.tag, children_of(type(parent), parent.tag), listed=8)
    known = node.tag in SECTIONS or any(node.tag in children_of(cls, tag) for tag, cls in SECTIONS.items())
    message = f"is not allowed in <{parent.tag}>" if known else f"unknown element in <{parent.tag}>"
    problems.add(node, message, hint)


def _check_alternatives(element: Element, problems: Problems) -> None:
    for group in element.alternatives:
        names = [xml_name(name) for name in group if getattr(element, name) is not None]
        if len(names) > 1:
            problems.add(element, f"attributes {' and '.join(names)} cannot both be given")


def check(spec: Spec) -> None:
    """Checks a Spec that a program may have changed, as `read` checks files; expands macros, indexes names, in place.

    Args:
      spec: the model.

    Raises:
      MjcfError: the model is wrong; the message has everything that is.
      UnsupportedError: the model is right but needs what diffsim lacks.
    """
    problems = Problems()
    _recheck(spec, True, problems)
    problems.raise_if_any()


def _recheck(spec: Spec, complete: bool, problems: Problems) -> None:
    """`check` without raising; first the models that are attached."""
    for child in spec.models.values():
        _recheck(child, False, problems)
        spec.homes |= {id(child.compiler): child.resources, **child.homes}
    spec.defaults = Defaults(spec.root.each(Default), problems, changes.version_of(spec.mujoco))
    for section in spec.root.children:
        _check_section(section, isinstance(section, Default), problems)
    for name in ("compiler", "option", "size", "visual", "statistic"):
        setattr(spec, name, merge([getattr(spec, name)], type(getattr(spec, name))))
    _check(spec, complete, problems)


def _check_section(section: Element, in_default: bool, problems: Problems) -> None:
    """What reading a section would have found: missing, illegal and contradicting attributes, children out of place."""
    for element in section.walk():
        legal = element.legal(in_default)
        for name in element.given():
            if name not in legal and element.tag != "worldbody":
                problems.add(element, f"attribute '{xml_name(name)}' is not allowed here")
        for name, kind in legal.items():
            if kind.required and getattr(element, name) is None and not in_default:
                problems.add(element, f"attribute '{xml_name(name)}' is required")
        _check_alternatives(element, problems)
        if element.unsupported:
            problems.unsupported(element, element.unsupported)
        for child in element.children:
            child.parent = element
            if child.tag not in children_of(type(element), element.tag):
                _unknown_element(Node(child.tag, {}, child.file, child.line), element, problems)


def _check(spec: Spec, complete: bool, problems: Problems) -> None:
    """What only shows when the whole model is there."""
    for element in spec.root.walk():
        element.check(problems)
        for name in element.given() if spec.mujoco == changes.DEFAULT else ():
            if since := versions.BY_WORD.get((element.tag, xml_name(name))):
                message, hint = f"attribute '{xml_name(name)}' is new in MuJoCo {since}", f'load(..., mujoco="{since}")'
                problems.unsupported(element, message, hint)
    expand(spec, problems)
    spec.names = index_names(spec, problems)
    if complete and not any(problem.unsupported for problem in problems):  # what is not read may hold the names
        check_references(spec, problems)


# m/s, below which trees may fall asleep where a file does not say, since MuJoCo 3.11
SLEEP_TOLERANCE = 1e-3

SETTING_TAGS: dict[type[Element], str] = {cls: tag for tag, cls in SECTIONS.items()}


def assemble(root: Mujoco, resources: Resources, problems: Problems, mujoco: str = changes.DEFAULT) -> Spec:
    """The model as views of its elements: settings merged, one world body, default classes built."""
    # all world bodies become one, the last section
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


def index_names(spec: Spec, problems: Problems) -> dict[str, dict[str, Element]]:
    """Elements by kind and name; names that are used twice are noted."""
    names: dict[str, dict[str, Element]] = {}
    for element in spec.walk():
        for attribute, kind in element.attributes().items():
            if isinstance(kind, NameKind):
                name = getattr(element, attribute)
                known = names.setdefault(kind.space, {})
                if name in known:
                    first = known[name]
                    problems.add(element, f"the name is already used by {first.label} at {first.file}:{first.line}")
                elif name:
                    known[name] = element
                elif isinstance(element, FileAsset) and element.known_as:
                    known.setdefault(element.known_as, element)
    return names


def check_references(spec: Spec, problems: Problems) -> None:
    """Note every reference that leads nowhere."""
    for element in spec.walk():
        filled = element.resolved(spec.defaults.inherited(element), problems)
        for attribute, space, name in references(filled):
            known = spec.defaults.classes if space == "default" else spec.names.get(space, {})
            if name in known:
                continue
            what = "default class" if space == "default" else space
            inherited = not getattr(element, attribute, None)
            origin = f" (from default class '{spec.defaults.class_of(element)}')" if inherited else ""
            message = f"attribute '{xml_name(attribute)}'{origin}: there is no {what} '{name}'"
            hint = near_match(name, known)
            # the macro <attach> looks for models itself
            if not any(known) and space != "model":
                hint = f"the model has no {what} with a name"
            problems.add(element, message, hint)
