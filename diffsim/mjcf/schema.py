"""The vocabulary in which the MJCF elements are declared: kinds of attributes, elements, and who may contain whom.

An MJCF attribute is one typed field of one element class. Its kind (a number, a vector, a keyword, a reference ...) says
how the text is read and checked, what its value is when the file says nothing, and how a value is laid over one that is
inherited from a default class. The reader, the default classes, the error messages and the writer all work from these
declarations, so a fact about an attribute is written once.

A field holds None where the file says nothing; `Spec.resolve(element)` gives a copy in which every field is filled. Field
names are MJCF's (`class` is `class_`). Source: the table at the top of MuJoCo 3.8.1's xml_native_reader.cc and the XML
reference.
"""

import dataclasses
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
import numpy.typing as npt

from diffsim.errors import Problems, near_match

Vector = npt.NDArray[np.float64]
IntVector = npt.NDArray[np.int64]

_REAL = re.compile(r"[+-]?(\d+\.?\d*([eE][+-]?\d+)?|\.\d+([eE][+-]?\d+)?|inf|infinity|nan)", re.IGNORECASE)
_INTEGER = re.compile(r"[+-]?\d{1,18}")


class Tristate(IntEnum):
    """Values of the attributes that take true, false or auto."""

    FALSE = 0
    TRUE = 1
    AUTO = 2


class BadValue(ValueError):
    """Text that is no value of its attribute's kind; carries the message and a hint for the user."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


# ---------------------------------------------------------------------------------------------- kinds of attributes


@dataclass(frozen=True, kw_only=True)
class Kind:
    """What every attribute declares.

    default: the value when neither the file nor a default class says anything.
    required: the file must give it.
    defaultable: may stand in a `<default>` class.
    unsupported: why diffsim cannot honour it; empty when it can.
    """

    default: Any = None
    required: bool = False
    defaultable: bool = True
    unsupported: str = ""

    def parse(self, text: str) -> Any:
        """The value that `text` stands for, None if the text counts as absent. Raises BadValue."""
        raise NotImplementedError

    def over(self, inherited: Any, own: Any) -> Any:
        """The value when `own` is written on an element that inherits `inherited`."""
        return own if own is not None else inherited


@dataclass(frozen=True, kw_only=True)
class TextKind(Kind):
    """Any text; `length` fixes the number of characters, `letters` those that may appear."""

    length: int | None = None
    letters: str = ""

    def parse(self, text: str) -> str:
        if self.length is not None and len(text) != self.length:
            raise BadValue(f"must have {self.length} characters, not {len(text)}")
        wrong = [letter for letter in text if self.letters and letter not in self.letters]
        if wrong:
            raise BadValue(f"'{wrong[0]}' is not one of '{self.letters}'")
        return text


@dataclass(frozen=True, kw_only=True)
class NameKind(TextKind):
    """The element's own name, unique among the elements of `space`."""

    space: str
    defaultable: bool = False

    def parse(self, text: str) -> str | None:
        return text or None


@dataclass(frozen=True, kw_only=True)
class ReferenceKind(TextKind):
    """The name of another element: one of `space`, or of the kind that the attribute `by` of this element names."""

    space: str = ""
    by: str = ""

    def parse(self, text: str) -> str | None:
        return text or None


@dataclass(frozen=True, kw_only=True)
class FileKind(TextKind):
    """A file's name, looked for below the folder that the compiler setting `folder` names."""

    folder: str = ""

    def parse(self, text: str) -> str | None:
        return text or None


@dataclass(frozen=True, kw_only=True)
class KeywordKind(Kind):
    """One of a fixed set of words; the value is what the word stands for."""

    words: Mapping[str, Any]

    def parse(self, text: str) -> Any:
        if text not in self.words:
            shown = near_match(text, self.words) or "expected one of: " + ", ".join(self.words)
            raise BadValue(f"unknown keyword '{text}'", shown)
        return self.words[text]


@dataclass(frozen=True, kw_only=True)
class KeywordsKind(KeywordKind):
    """Several different words separated by blanks; `ordered`: in the order in which `words` lists them."""

    ordered: bool = False

    def parse(self, text: str) -> tuple[Any, ...] | None:
        found = text.split()
        values = tuple(super(KeywordsKind, self).parse(word) for word in found)
        if len(set(found)) < len(found):
            raise BadValue("a keyword is repeated")
        if self.ordered and list(found) != [word for word in self.words if word in found]:
            raise BadValue("keywords are out of order", "the order is: " + ", ".join(self.words))
        return values or None


@dataclass(frozen=True, kw_only=True)
class IntegerKind(Kind):
    """One integer, from `least` to `most` where these are given."""

    least: int | None = None
    most: int | None = None

    def parse(self, text: str) -> int | None:
        tokens = text.split()
        if not tokens:
            return None
        if len(tokens) > 1:
            raise BadValue(f"takes 1 integer, {len(tokens)} given")
        return _integer(tokens[0], self.least, self.most)


@dataclass(frozen=True, kw_only=True)
class IntegersKind(Kind):
    """From `fewest` to `length` integers (any number if `length` is None), each from `least` to `most`."""

    length: int | None
    fewest: int = 0
    least: int | None = None
    most: int | None = None

    def parse(self, text: str) -> IntVector | None:
        tokens = text.split()
        if not tokens:
            return None
        _count(tokens, self.fewest, self.length, "integer")
        return _frozen([_integer(token, self.least, self.most) for token in tokens], np.int64)

    def over(self, inherited: Any, own: Any) -> Any:
        return _overlay(inherited, own) if self.length else super().over(inherited, own)


@dataclass(frozen=True, kw_only=True)
class RealKind(Kind):
    """One finite number, bounded as `above` (excluded), `least` and `most` say."""

    above: float | None = None
    least: float | None = None
    most: float | None = None

    def parse(self, text: str) -> float | None:
        tokens = text.split()
        if not tokens:
            return None
        if len(tokens) > 1:
            raise BadValue(f"takes 1 number, {len(tokens)} given")
        value = _real(tokens[0], infinite=False)
        if self.above is not None and value <= self.above:
            raise BadValue(f"must be greater than {self.above:g}, not {value:g}")
        if self.least is not None and value < self.least:
            raise BadValue(f"must be at least {self.least:g}, not {value:g}")
        if self.most is not None and value > self.most:
            raise BadValue(f"must be at most {self.most:g}, not {value:g}")
        return value


@dataclass(frozen=True, kw_only=True)
class RealsKind(Kind):
    """From `fewest` to `length` numbers (any number if `length` is None).

    repeat: a single number stands for all of them. infinite: infinities are allowed. nonzero: not all may be zero.
    Where fewer than `length` are given, the others keep the value that is inherited.
    """

    length: int | None
    fewest: int = 0
    infinite: bool = False
    nonzero: bool = False
    repeat: bool = False

    def parse(self, text: str) -> Vector | None:
        tokens = text.split()
        if not tokens:
            return None
        _count(tokens, self.fewest, self.length, "number")
        values = [_real(token, self.infinite) for token in tokens]
        if self.nonzero and not any(values):
            raise BadValue("all numbers are zero")
        if self.repeat and self.length and len(values) == 1:
            values = values * self.length
        return _frozen(values, np.float64)

    def over(self, inherited: Any, own: Any) -> Any:
        return _overlay(inherited, own) if self.length else super().over(inherited, own)


def _integer(token: str, least: int | None, most: int | None) -> int:
    if not _INTEGER.fullmatch(token):
        raise BadValue(f"'{_shown(token)}' is not an integer")
    value = int(token)
    if least is not None and value < least:
        raise BadValue(f"must be at least {least}, not {value}")
    if value > (2**31 - 1 if most is None else most):
        raise BadValue(f"must be at most {2**31 - 1 if most is None else most}, not {value}")
    return value


def _real(token: str, infinite: bool) -> float:
    if not _REAL.fullmatch(token):
        raise BadValue(f"'{_shown(token)}' is not a number")
    value = float(token)
    if math.isnan(value) or (math.isinf(value) and not infinite):
        raise BadValue(f"'{_shown(token)}' is not a finite number")
    return value


def _count(tokens: Sequence[str], fewest: int, length: int | None, what: str) -> None:
    if len(tokens) >= fewest and (length is None or len(tokens) <= length):
        return
    if length is None:
        wanted = f"at least {fewest}"
    else:
        wanted = str(length) if fewest == length else f"{fewest} to {length}"
    raise BadValue(f"takes {wanted} {what}{'' if wanted == '1' else 's'}, {len(tokens)} given")


def _shown(token: str) -> str:
    return token if len(token) <= 40 else token[:37] + "..."


def _frozen(values: Any, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    array = np.array(values, dtype)
    array.flags.writeable = False
    return array


def _overlay(inherited: Any, own: Any) -> Any:
    """`own` over the first entries of `inherited`: a short vector leaves the rest as it was."""
    if own is None or inherited is None or len(own) >= len(inherited):
        return own if own is not None else inherited
    return _frozen(np.concatenate([own, inherited[len(own) :]]), own.dtype)


# ------------------------------------------------------------------------------------- how an element class says it


def _attribute(kind: Kind) -> Any:
    return field(default=None, metadata={"kind": kind})


def Real(default: float | None = None, **options: Any) -> Any:
    """An attribute that is one number."""
    return _attribute(RealKind(default=None if default is None else float(default), **options))


def Reals(length: int | None, default: Any = None, fewest: int | None = None, **options: Any) -> Any:
    """An attribute of exactly `length` numbers, of `fewest` to `length`, or (length None) of any number."""
    least = (length or 0) if fewest is None else fewest
    value = None if default is None else _frozen(default, np.float64)
    return _attribute(RealsKind(length=length, fewest=least, default=value, **options))


def Integer(default: int | None = None, **options: Any) -> Any:
    """An attribute that is one integer."""
    return _attribute(IntegerKind(default=default, **options))


def Integers(length: int | None, default: Any = None, fewest: int | None = None, **options: Any) -> Any:
    """An attribute of `fewest` to `length` integers, any number if `length` is None."""
    least = (length or 0) if fewest is None else fewest
    value = None if default is None else _frozen(default, np.int64)
    return _attribute(IntegersKind(length=length, fewest=least, default=value, **options))


def Flag(default: bool | None = None, words: tuple[str, str] = ("false", "true"), **options: Any) -> Any:
    """An attribute that is false or true (or the two words given); the value is a bool."""
    return _attribute(KeywordKind(words={words[0]: False, words[1]: True}, default=default, **options))


def AutoFlag(default: Tristate | None = Tristate.AUTO, **options: Any) -> Any:
    """An attribute that is false, true or auto; the value is a Tristate."""
    words = {"false": Tristate.FALSE, "true": Tristate.TRUE, "auto": Tristate.AUTO}
    return _attribute(KeywordKind(words=words, default=default, **options))


def Keyword(words: Mapping[str, Any], default: str | None = None, **options: Any) -> Any:
    """An attribute that is one of `words`; `default` is a word."""
    return _attribute(KeywordKind(words=words, default=None if default is None else words[default], **options))


def Keywords(words: Mapping[str, Any], default: Sequence[str] = (), ordered: bool = False, **options: Any) -> Any:
    """An attribute that is several of `words`; the value is a tuple."""
    value = tuple(words[word] for word in default) or None
    return _attribute(KeywordsKind(words=words, ordered=ordered, default=value, **options))


def Name(space: str, **options: Any) -> Any:
    """The element's own name."""
    return _attribute(NameKind(space=space, **options))


def Class(**options: Any) -> Any:
    """The default class from which the element takes what it does not say."""
    return _attribute(ReferenceKind(space="default", defaultable=False, **options))


def Reference(space: str = "", by: str = "", **options: Any) -> Any:
    """The name of an element of `space`, or of the kind that the attribute `by` names."""
    return _attribute(ReferenceKind(space=space, by=by, **options))


def Text(default: str | None = None, **options: Any) -> Any:
    """An attribute that is any text."""
    return _attribute(TextKind(default=default, **options))


def File(folder: str = "", **options: Any) -> Any:
    """An attribute that names a file below the folder of the compiler setting `folder`."""
    return _attribute(FileKind(folder=folder, defaultable=False, **options))


# -------------------------------------------------------------------------------------------------------- elements


@dataclass(eq=False)
class Element:
    """One MJCF element: its attributes are the fields of its class, its sub-elements stand in `children` in file order.

    Class variables say what holds for all elements of the class:
    default_key: the name under which default classes keep it; empty if they do not.
    omits: attributes of the class that its XML does not take (a shortcut lacks some of what it inherits).
    default_omits: attributes that its XML takes, but not inside `<default>`.
    alternatives: groups of attributes of which one element may give at most one.
    supersede: groups of attributes of which the element's own one makes it forget inherited others.
    unsupported: why diffsim cannot honour such an element; empty when it can.
    """

    default_key: ClassVar[str] = ""
    omits: ClassVar[frozenset[str]] = frozenset()
    default_omits: ClassVar[frozenset[str]] = frozenset()
    alternatives: ClassVar[tuple[tuple[str, ...], ...]] = ()
    supersede: ClassVar[tuple[tuple[str, ...], ...]] = ()
    unsupported: ClassVar[str] = ""

    tag: str = field(default="", kw_only=True)
    file: str = field(default="", kw_only=True)
    line: int = field(default=0, kw_only=True)
    parent: "Element | None" = field(default=None, kw_only=True, repr=False)
    children: "list[Element]" = field(default_factory=list, kw_only=True, repr=False)

    @property
    def label(self) -> str:
        """How a message shows the element: `<joint name="knee">`, or `<joint>` where it has no name."""
        name = getattr(self, "name", None)
        return f'<{self.tag} name="{name}">' if name else f"<{self.tag}>"

    @classmethod
    def attributes(cls) -> dict[str, Kind]:
        """Every attribute of the class by the name of its field."""
        return _attributes(cls)

    @classmethod
    def legal(cls, in_default: bool = False) -> dict[str, Kind]:
        """The attributes that the element's XML may have, by field name; `in_default`: inside `<default>`."""
        refused = cls.omits | (cls.default_omits if in_default else frozenset())
        kinds = cls.attributes().items()
        return {name: kind for name, kind in kinds if name not in refused and (kind.defaultable or not in_default)}

    def given(self) -> dict[str, Any]:
        """The attributes that are set, by field name."""
        return {name: value for name in self.attributes() if (value := getattr(self, name)) is not None}

    def each(self, kind: "type[AnyElement]") -> "list[AnyElement]":
        """The direct children of class `kind`, in file order."""
        return [child for child in self.children if isinstance(child, kind)]

    def first(self, kind: "type[AnyElement]") -> "AnyElement | None":
        """The first direct child of class `kind`, None if there is none."""
        return next((child for child in self.children if isinstance(child, kind)), None)

    def walk(self) -> "Iterator[Element]":
        """The element and everything below it, in file order."""
        yield self
        for child in self.children:
            yield from child.walk()

    def replace(self, **values: Any) -> Self:
        """A copy with other values; it stands at the same place and shares its children."""
        return dataclasses.replace(self, **values)

    def over(self, inherited: "Element") -> Self:
        """A copy laid over `inherited`: what it does not say itself, it takes from there, else from MJCF's defaults."""
        values: dict[str, Any] = {}
        for name, kind in self.attributes().items():
            values[name] = kind.over(getattr(inherited, name, kind.default), getattr(self, name))
        for group in self.supersede:
            own = [name for name in group if getattr(self, name) is not None]
            values.update({name: None for name in group if own and name not in own})
        return self.replace(**values, children=self.children or inherited.children)

    def filled(self) -> Self:
        """A copy in which what is not set has MJCF's own default value; default classes are not looked at."""
        return self.over(Element())

    def resolved(self, inherited: "Element", problems: Problems) -> "Element":
        """The element with everything filled, given what its default class says; see `Spec.resolve`."""
        return self.over(inherited)

    def check(self, problems: Problems) -> None:
        """Note what is wrong with this element by itself, beyond what its attributes' kinds say."""


AnyElement = TypeVar("AnyElement", bound=Element)

_cache: dict[type[Element], dict[str, Kind]] = {}


def _attributes(cls: type[Element]) -> dict[str, Kind]:
    if cls not in _cache:
        fields = dataclasses.fields(cls)
        _cache[cls] = {each.name: each.metadata["kind"] for each in fields if "kind" in each.metadata}
    return _cache[cls]


def xml_name(field_name: str) -> str:
    """The XML name of a field: `class_` is `class`."""
    return field_name.rstrip("_")


# ------------------------------------------------------------------------------------------- who may contain whom


@dataclass(frozen=True)
class Child:
    """A legal sub-element: its class, and whether it may stand only once."""

    cls: type[Element]
    once: bool = False


_children: dict[type[Element], dict[str, Child]] = {}


def allow(parent: type[Element], tags: Mapping[str, type[Element]], once: Iterable[str] = ()) -> None:
    """Declare sub-elements of `parent`: their classes by tag, and which of them may stand only once."""
    only_once = frozenset(once)
    table = _children.setdefault(parent, {})
    table.update({tag: Child(cls, tag in only_once) for tag, cls in tags.items()})


def children_of(parent: type[Element]) -> Mapping[str, Child]:
    """The legal sub-elements of a class by tag."""
    return _children.get(parent, {})
