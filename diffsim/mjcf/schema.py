"""The base class of MJCF elements, and which elements may contain which.

An MJCF attribute is a typed field of an element class. Its kind (kinds.py), such as a number, a keyword or a reference,
defines how its text is read and checked, its default, and how it combines with the value of a default class. The
reader, default classes, messages and the writer use these declarations, so that each fact about an attribute is written
once.

A field is None if the file does not give it; `Spec.resolve(element)` returns a copy with all fields filled. Field names
are MJCF's (`class` is `class_`, `file` is `file_`). Values that a Python program assigns are checked at once, like
values in a file: `geom.type = "box"; geom.size = [1, 2, 3]; geom.mass = None`.
Source: the table at the top of MuJoCo 3.8.1's xml_native_reader.cc, and the XML reference.
"""

import dataclasses
import functools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self, TypeVar

from diffsim.base.enums import ObjType
from diffsim.base.errors import MjcfError, Problem, Problems, near_match
from diffsim.mjcf.kinds import BadValue, Kind, NameKind, ReferenceKind

# -------------------------------------------------------------------------------------------------------- elements

# largest number of characters of an attribute's text that `repr` shows
LONGEST = 60


@dataclass(eq=False)
class Element:
    """One MJCF element. Its attributes are fields of its class, and its sub-elements are in `children`, in file order.

    Class variables apply to all elements of a class:
      default_key: the name under which default classes store the element; "" if they do not.
      omits: inherited fields that are not attributes in XML (shortcuts have fewer than the general actuator).
      default_omits: attributes that are not allowed inside `<default>`.
      alternatives: groups of attributes of which an element may have at most one.
      supersede: groups of attributes; if an element has one of them, inherited values of the others do not apply.
      unsupported: why diffsim does not support the element; "" if it does.
    """

    default_key: ClassVar[str] = ""
    omits: ClassVar[frozenset[str]] = frozenset()
    default_omits: ClassVar[frozenset[str]] = frozenset()
    alternatives: ClassVar[tuple[tuple[str, ...], ...]] = ()
    supersede: ClassVar[tuple[tuple[str, ...], ...]] = ()
    unsupported: ClassVar[str] = ""

    tag: str = field(default="", kw_only=True)
    # the tag in the user's file, if the file is not MJCF (a URDF)
    said: str = field(default="", kw_only=True, repr=False)
    file: str = field(default="", kw_only=True)
    line: int = field(default=0, kw_only=True)
    parent: "Element | None" = field(default=None, kw_only=True, repr=False)
    settings: "Element | None" = field(default=None, kw_only=True, repr=False)
    children: "list[Element]" = field(default_factory=list, kw_only=True, repr=False)

    @classmethod
    def of(cls, values: Mapping[str, Any], **place: Any) -> Self:
        """An element with values that need no checks, because they come from the parser or from another element."""
        element = object.__new__(cls)
        element.__dict__.update(cls._blank(), children=[], **place, **values)
        return element

    @classmethod
    @functools.cache
    def _blank(cls) -> dict[str, Any]:
        """The fields of an element without attributes."""
        return {field.name: field.default for field in dataclasses.fields(cls) if field.name != "children"}

    def __init_subclass__(cls) -> None:
        # otherwise each dataclass would generate its own `__repr__`, which also shows attributes that are not set
        cls.__repr__ = Element.__repr__

    def __repr__(self) -> str:
        kinds = self.attributes()
        texts = {xml_name(name): kinds[name].text(value) for name, value in self.given().items()}
        shown = [f'{name}="{text if len(text) <= LONGEST else text[:LONGEST] + "..."}"' for name, text in texts.items()]
        return "<" + " ".join([self.tag or type(self).__name__.lower(), *shown]) + ("/>" if not self.children else ">")

    def __setattr__(self, name: str, value: Any) -> None:
        kind = self.attributes().get(name)
        if kind is not None and value is not None:
            try:
                value = kind.accept(value)
            except BadValue as bad:
                raise self._refused(f"attribute '{xml_name(name)}': {bad.message}", bad.hint) from None
        elif kind is None and name not in _NOT_ATTRIBUTES:
            hint = near_match(name, self.attributes())
            raise AttributeError(f"<{self.tag}> has no attribute '{name}'" + (f"; {hint}" if hint else ""), name=name)
        object.__setattr__(self, name, value)

    def add(self, tag: str, **attributes: Any) -> Any:
        """Appends a new sub-element: `spec.worldbody.add("geom", type="box", size=[1, 1, 1])`.

        Args:
          tag: the tag of an element that MJCF allows here.
          attributes: its attributes: text as in a file, numbers, enums, or elements for attributes that refer to
            elements.

        Returns:
          The new element.

        Raises:
          MjcfError: the element is not allowed here, or a value is wrong.
          AttributeError: an attribute is unknown.
        """
        rule = children_of(type(self), self.tag).get(tag)
        if rule is None:
            hint = near_match(tag, children_of(type(self), self.tag), listed=8)
            raise self._refused(f"<{tag}> is not allowed here", hint)
        if rule.once and any(child.tag == tag for child in self.children):
            raise self._refused(f"<{tag}> is allowed here only once", "change the existing one")
        part = rule.cls(tag=tag, file=self.file, parent=self)
        for name, value in attributes.items():
            setattr(part, f"{name}_" if f"{name}_" in part.attributes() else name, value)
        self.children.append(part)
        return part

    def _refused(self, message: str, hint: str = "") -> MjcfError:
        """An error with the file and line of this element."""
        return MjcfError([Problem(self.file, self.line, self.label, message, hint)])

    @property
    def label(self) -> str:
        """The element in a message: `<joint name="knee">`, or `<joint>` if it has no name."""
        name = getattr(self, "name", None)
        tag = self.said or self.tag
        return f'<{tag} name="{name}">' if name else f"<{tag}>"

    @classmethod
    @functools.cache
    def attributes(cls) -> dict[str, Kind]:
        """The kinds of all attributes of the class, by field name."""
        return {field.name: field.metadata["kind"] for field in dataclasses.fields(cls) if "kind" in field.metadata}

    @classmethod
    @functools.cache
    def legal(cls, in_default: bool = False) -> dict[str, Kind]:
        """The kinds of the attributes that are allowed in XML, or inside `<default>` (`in_default`), by field name."""
        refused = cls.omits | (cls.default_omits if in_default else frozenset())
        kinds = cls.attributes().items()
        return {name: kind for name, kind in kinds if name not in refused and (kind.defaultable or not in_default)}

    def given(self) -> dict[str, Any]:
        """The values of the attributes that are given, by field name."""
        return {name: value for name in self.attributes() if (value := getattr(self, name)) is not None}

    def each(self, kind: "type[AnyElement]") -> "list[AnyElement]":
        """The direct children of class `kind`, in file order."""
        return [child for child in self.children if isinstance(child, kind)]

    def tagged(self, tag: str) -> "list[Element]":
        """The direct children with a tag, in file order."""
        return [child for child in self.children if child.tag == tag]

    def first(self, kind: "type[AnyElement]") -> "AnyElement | None":
        """The first direct child of class `kind`, None if there is none."""
        return next((child for child in self.children if isinstance(child, kind)), None)

    def walk(self) -> Iterator["Element"]:
        """Yields the element and all elements below it, in file order."""
        waiting: list[Element] = [self]
        while waiting:
            element = waiting.pop()
            yield element
            waiting.extend(reversed(element.children))

    def give_way(self, parts: "list[Element]") -> None:
        """Replaces the element in its parent by the elements `parts`."""
        if self.parent is not None:
            siblings = self.parent.children
            place = next(index for index, sibling in enumerate(siblings) if sibling is self)
            siblings[place : place + 1] = parts
            for part in parts:
                part.parent = self.parent

    def replace(self, **values: Any) -> Self:
        """A copy with other values, at the same file and line, that shares the children."""
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__dict__, **values)
        return copy

    def over(self, inherited: "Element") -> Self:
        """A copy in which attributes that are not given have the values of `inherited` or else MJCF's defaults."""
        own = self.__dict__
        values: dict[str, Any] = {}
        for name, kind in self.attributes().items():
            value = own[name]
            before = inherited.__dict__.get(name, kind.default)
            values[name] = before if value is None else kind.over(before, value)
        for group in self.supersede:
            chosen = [name for name in group if own[name] is not None]
            values.update({name: None for name in group if chosen and name not in chosen})
        return self.replace(**values, children=self.children or inherited.children)

    def filled(self) -> Self:
        """A copy in which attributes that are not given have MJCF's defaults, without default classes."""
        return self.over(Element())

    def resolved(self, inherited: "Element", problems: Problems) -> "Element":
        """The element with all attributes filled, given the element of its default class; see `Spec.resolve`."""
        return self.over(inherited)

    def check(self, problems: Problems) -> None:
        """Adds the errors of this element to `problems`, except errors in single attributes."""


AnyElement = TypeVar("AnyElement", bound=Element)

# the fields of an element that are not attributes: its tag, its place, its children
_NOT_ATTRIBUTES = frozenset(field.name for field in dataclasses.fields(Element))


@functools.cache
def xml_names(cls: type[Element], in_default: bool) -> dict[str, str]:
    """The field names of the attributes that are allowed in an element, by XML name."""
    return {xml_name(name): name for name in cls.legal(in_default)}


def xml_name(field_name: str) -> str:
    """The XML name of a field, such as `class` for `class_`."""
    return field_name.rstrip("_")


# ------------------------------------------------------------------------------------------- who may contain whom


@dataclass(frozen=True)
class Child:
    """An allowed sub-element: its class, and whether it may appear only once."""

    cls: type[Element]
    once: bool = False


# allowed sub-elements by the class of the element, and by its tag if elements of one class may contain different ones
_children: dict[tuple[type[Element], str], dict[str, Child]] = {}


def allow(
    parent: type[Element], tags: Mapping[str, type[Element]], once: Iterable[str] = (), section: str = ""
) -> None:
    """Declares the sub-elements that are allowed in elements of a class.

    Args:
      parent: the class.
      tags: the classes of its sub-elements, by tag.
      once: which of them may appear only once.
      section: the tag of the elements of the class to which this applies; "" for all.
    """
    only_once = frozenset(once)
    table = _children.setdefault((parent, section), {})
    table.update({tag: Child(cls, tag in only_once) for tag, cls in tags.items()})


def children_of(parent: type[Element], tag: str = "") -> Mapping[str, Child]:
    """The sub-elements that are allowed in elements of class `parent` with the given tag, by their tags."""
    return _children.get((parent, tag)) or _children.get((parent, ""), {})


# the kind of the names of object types that share their names with another type
_SPACE_OF = {ObjType.XBODY: "body"}


def append_child(cls: type[Any], tag: str, source: Element, parent: Element, **values: Any) -> Any:
    """Appends a new element to `parent`, with the file and line of `source`; the values are not checked."""
    element = cls.of(values, tag=tag, file=source.file, line=source.line, parent=parent, settings=source.settings)
    parent.children.append(element)
    return element


def references(element: Element) -> list[tuple[str, str, str]]:
    """The references of an element: (field, kind of the target, name of the target)."""
    result = []
    for attribute, kind in element.attributes().items():
        if isinstance(kind, ReferenceKind):
            value = getattr(element, attribute)
            space = kind.space
            if kind.by:
                # another attribute gives the type of the target
                objtype = getattr(element, kind.by)
                space = "" if objtype is None else _SPACE_OF.get(objtype) or str(objtype.name).lower()
            if value and space:
                result.append((attribute, space, value))
    return result


def own_names(element: Element) -> set[tuple[str, str]]:
    """The names by which other elements can refer to an element, as (kind, name).

    An asset without a name is known by the name of its file.
    """
    names = set()
    for attribute, kind in element.attributes().items():
        if isinstance(kind, NameKind) and (name := getattr(element, attribute) or getattr(element, "known_as", None)):
            names.add((kind.space, name))
    if element.tag == "default":
        names.add(("default", getattr(element, "class_", None) or "main"))
    return names
