"""read: a Spec from MJCF or URDF. All errors of a file are reported together.

Passes: parse the XML; replace includes; convert every node to an element of its class; merge settings and build default
classes; check each element; expand macros; check names and references. Sections may have any order and may be repeated:
settings are merged (the last value counts), everything else is appended. Names are looked up at the end, so references
may point forward. Names are unique within their kind, and each reference must have a target. References are checked on
resolved elements, so that a material from a default class is looked up too.
Source: MuJoCo XML reference; mjXReader::Parse and mjXSchema::Check (3.8.1).
"""

from collections.abc import Iterable, Mapping
from enum import IntEnum
from pathlib import Path
from typing import Any

from diffsim.base import changes
from diffsim.base.errors import MissingFileError, MjcfError, Problem, Problems, near_match
from diffsim.mjcf import versions
from diffsim.mjcf.assemble import assemble, merge
from diffsim.mjcf.defaults import Defaults
from diffsim.mjcf.elements.asset import FileAsset, ModelAsset
from diffsim.mjcf.elements.sections import SECTIONS, Default, Mujoco
from diffsim.mjcf.kinds import BadValue, NameKind
from diffsim.mjcf.macros.expand import expand
from diffsim.mjcf.resources import MissingResource, ResourceError, Resources
from diffsim.mjcf.schema import AnyElement, Element, children_of, xml_name, xml_names
from diffsim.mjcf.schema import references as references
from diffsim.mjcf.source import Node, expand_includes, parse
from diffsim.mjcf.spec import Spec
from diffsim.mjcf.urdf import translate

# what messages call a model that has no file
TEXT_NAME = "<xml>"
# root elements of MJCF and of URDF
ROOTS = ("mujoco", "robot")
# most levels of nested elements that fit into Python's recursion limit
DEEPEST = 400
# most levels of models that attach models
DEEPEST_ATTACH = 32
# most elements of a file with its includes: reading this many takes about 2 s
MOST_ELEMENTS = 25_000


def read(
    source: str | bytes | Path,
    assets: Mapping[str, bytes] | None = None,
    allow_outside: bool | None = None,
    mujoco: str = changes.DEFAULT,
) -> Spec:
    """Reads a model, MJCF or URDF.

    Args:
      source: a path, or XML text (a string that begins with `<`, or bytes).
      assets: files in memory, by name; they take precedence over files on disk.
      allow_outside: whether files outside the model's folder may be read. By default a file may name any other file,
        and text opens no files. Pass False for a model from a stranger.
      mujoco: the version of MuJoCo whose semantics the model gets, as for `diffsim.load`.

    Returns:
      The Spec, checked.

    Raises:
      MjcfError: the model is wrong; the message lists all errors.
      MissingFileError: there is no such file; it is also a FileNotFoundError.
      UnsupportedError: the model is right but uses a feature that diffsim does not support.
    """
    root, resources = _open(source, assets, allow_outside)
    return _read(root, resources, {root.file: None}, True, changes.version_of(mujoco))


def _read(root: Node, resources: Resources, files: "dict[str, Spec | None]", complete: bool, mujoco: str) -> Spec:
    """The Spec of an XML tree.

    Args:
      root: the tree.
      resources: where further files are.
      files: the models read so far, by file; None for those that are being read.
      complete: False for a model that is only attached to others, whose references may have targets in them.
      mujoco: the version of MuJoCo whose semantics the model gets.
    """
    problems = Problems()
    if root.tag not in ROOTS:
        message = "the root element must be <mujoco> or, in a URDF, <robot>"
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
    """An empty model, which a program can fill.

    Args:
      model: its name.

    Returns:
      A Spec with an empty world.
    """
    spec = read("<mujoco/>")
    spec.root.model = model
    return spec


def _read_models(spec: Spec, files: "dict[str, Spec | None]", problems: Problems) -> None:
    """Reads the models that `spec` attaches, each file once."""
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
            problems.add(asset, f"there is already a model '{name}'", "give attribute 'name'")
        elif child is not None:
            spec.models[name] = child


def _open(
    source: str | bytes | Path, assets: Mapping[str, bytes] | None, allow_outside: bool | None
) -> tuple[Node, Resources]:
    """The XML tree, and where further files are."""
    if isinstance(source, bytes) or (isinstance(source, str) and source.lstrip("\ufeff \t\r\n").startswith("<")):
        return parse(source, TEXT_NAME), Resources(None, assets, allow_outside)
    if not str(source).strip():
        raise MjcfError([Problem(TEXT_NAME, 0, "", "the model is empty", "pass a path or XML text")])
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
    """The element of an XML node, with its children; errors are noted, and reading goes on."""
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
            problems.add(child, f"appears more than once in {element.label}")
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
                message = f"attribute '{name}': '{text}' is new in MuJoCo {since}, not supported yet"
                problems.unsupported(node, message, versions.INSTEAD.get(text, versions.INSTEAD.get(name, "")))
            else:
                problems.add(node, f"attribute '{name}': {bad.message}", bad.hint)
    if not in_default:
        for name in (name for name, field in field_names.items() if legal[field].required):
            # values that could not be read have been noted already
            if name not in node.attributes and (since := versions.NEWER_WITHOUT.get((node.tag, name))):
                problems.unsupported(node, f"leaving out '{name}' is new in MuJoCo {since}, not supported yet")
            elif name not in node.attributes or values.get(field_names[name], 0) is None:
                problems.add(node, f"attribute '{name}' is required")
    return values


def _unknown_attribute(node: Node, name: str, cls: type[Element], legal: Iterable[str], problems: Problems) -> None:
    """Notes why an attribute is not allowed: it is not for default classes, is too new, was removed, or is unknown."""
    if name in {xml_name(field_name) for field_name in cls.legal()}:
        problems.add(node, f"attribute '{name}' is not allowed in a default class")
    elif since := versions.NEWER_ATTRIBUTES.get(node.tag, {}).get(name):
        if versions.says_nothing(node.tag, name, node.attributes[name]):
            return
        message = f"attribute '{name}' is new in MuJoCo {since}, not supported yet"
        problems.unsupported(node, message, versions.INSTEAD.get(name, ""))
    else:
        hint = versions.ATTRIBUTES.get(node.tag, {}).get(name) or near_match(name, legal, listed=8)
        problems.add(node, f"unknown attribute '{name}'", hint)


def _unknown_element(node: Node, parent: Element, problems: Problems) -> None:
    """Notes why an element is not allowed: it is too new, was removed, is misplaced, or is unknown."""
    if since := versions.NEWER_ELEMENTS.get(parent.tag, {}).get(node.tag):
        message = f"is new in MuJoCo {since}, not supported yet"
        problems.unsupported(node, message, versions.INSTEAD.get(node.tag, ""))
        return
    hint = versions.ELEMENTS.get(parent.tag, {}).get(node.tag)
    hint = hint or near_match(node.tag, children_of(type(parent), parent.tag), listed=8)
    known = node.tag in SECTIONS or any(node.tag in children_of(cls, tag) for tag, cls in SECTIONS.items())
    message = f"is not allowed in <{parent.tag}>" if known else f"unknown element in <{parent.tag}>"
    problems.add(node, message, hint)


def _check_alternatives(element: Element, problems: Problems) -> None:
    """Notes attributes that cannot be given together."""
    for group in element.alternatives:
        names = [xml_name(name) for name in group if getattr(element, name) is not None]
        if len(names) > 1:
            problems.add(element, f"attributes {' and '.join(map(repr, names))} cannot both be given")


def check(spec: Spec) -> None:
    """Checks a Spec that a program has changed, as `read` does; expands its macros and indexes its names, in place.

    Args:
      spec: the model.

    Raises:
      MjcfError: the model is wrong; the message lists all errors.
      UnsupportedError: the model is right but uses a feature that diffsim does not support.
    """
    problems = Problems()
    _recheck(spec, True, problems)
    problems.raise_if_any()


def _recheck(spec: Spec, complete: bool, problems: Problems) -> None:
    """`check` without raising; models that are attached come first."""
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
    """Notes the errors that reading would note: missing, illegal and contradicting attributes, misplaced children."""
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
    """Checks that need the whole model."""
    for element in spec.root.walk():
        element.check(problems)
        for name in element.given():
            word, since = f"attribute '{xml_name(name)}'", versions.BY_WORD.get((element.tag, xml_name(name)))
            value = getattr(element, name)
            if isinstance(value, IntEnum):
                key = element.tag, name, value.name.lower()
                since = versions.BY_VALUE.get(key, since)
                word = f"{word}: '{key[2]}'" if key in versions.BY_VALUE else word
                gone, instead = versions.REMOVED.get(key, ("", ""))
                if gone and changes.VERSIONS.index(spec.mujoco) >= changes.VERSIONS.index(gone):
                    problems.add(element, f"{word}: MuJoCo {gone} removed '{key[2]}'", instead)
            if since and changes.VERSIONS.index(spec.mujoco) < changes.VERSIONS.index(since):
                problems.unsupported(element, f"{word} is new in MuJoCo {since}", f'load(..., mujoco="{since}")')
    expand(spec, problems)
    spec.names = index_names(spec, problems)
    # an unsupported element may contain names that others refer to
    if complete and not any(problem.unsupported for problem in problems):
        check_references(spec, problems)


def index_names(spec: Spec, problems: Problems) -> dict[str, dict[str, Element]]:
    """Elements by kind and name; notes names that are used twice."""
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
    """Notes every reference without a target."""
    for element in spec.walk():
        filled = spec.defaults.resolved(element, problems)
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
