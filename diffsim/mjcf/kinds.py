"""Kinds of MJCF attributes: how each is read from text, checked, written, and combined with an inherited value.

Each kind is a small class; attributes.py has the functions with which element classes declare attributes of each kind.
`parse` converts text to a value (None if MuJoCo treats an empty text as absent) and raises BadValue. `accept` does the
same for a value from a Python program. `text` converts a value back to text. `over` combines the value on an element
with the inherited one: a short vector overwrites only the first numbers.

Here are the kinds of texts, names and keywords; number_kinds.py has the kinds of numbers.
Source: mjXUtil of xml_util.cc (3.8.1).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from diffsim.base.errors import near_match


class Tristate(IntEnum):
    """Values of attributes that are true, false or auto."""

    FALSE = 0
    TRUE = 1
    AUTO = 2


class BadValue(ValueError):
    """Text that is not a legal value of an attribute; has the message and a hint for the user."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


# ---------------------------------------------------------------------------------------------- kinds of attributes


@dataclass(frozen=True, kw_only=True)
class Kind:
    """The kind of an attribute: how it is declared, read and written.

    Attributes:
      default: the value if neither the element nor its default class gives one.
      required: whether the file must give it.
      defaultable: whether it is allowed in a default class.
      unsupported: why diffsim does not support it; empty if it does.
    """

    default: Any = None
    required: bool = False
    defaultable: bool = True
    unsupported: str = ""

    def parse(self, text: str) -> Any:
        """The value of `text`, or None if the text counts as absent. Raises BadValue."""
        raise NotImplementedError

    def accept(self, value: Any) -> Any:
        """The value for an object that a Python program assigns, checked as text would be. Raises BadValue."""
        return self.parse(value if isinstance(value, str) else str(value))

    def text(self, value: Any) -> str:
        """The text from which `parse` reads `value`; numbers have enough digits to be read back exactly."""
        return str(value)

    def over(self, inherited: Any, value: Any) -> Any:
        """The resulting value of an element that gives `value` and inherits `inherited`."""
        return value if value is not None else inherited


@dataclass(frozen=True, kw_only=True)
class TextKind(Kind):
    """Text; `length` is the required number of characters, and `letters` are the characters that are allowed."""

    length: int | None = None
    letters: str = ""

    def accept(self, value: Any) -> Any:
        if not isinstance(value, str):
            raise BadValue(f"takes text, not {type(value).__name__}")
        return self.parse(value)

    def parse(self, text: str) -> Any:
        if self.length is not None and len(text) != self.length:
            raise BadValue(f"must have {self.length} characters, not {len(text)}")
        wrong = [letter for letter in text if self.letters and letter not in self.letters]
        if wrong:
            raise BadValue(f"'{wrong[0]}' is not one of '{self.letters}'")
        return text


@dataclass(frozen=True, kw_only=True)
class NameKind(TextKind):
    """The name of the element, unique among the elements of kind `space`."""

    space: str
    defaultable: bool = False

    def parse(self, text: str) -> Any:
        return text or None


@dataclass(frozen=True, kw_only=True)
class ReferenceKind(TextKind):
    """The name of another element: of kind `space`, or of the kind that the element's attribute `by` names."""

    space: str = ""
    by: str = ""

    def accept(self, value: Any) -> Any:
        """A name, or an element with a name."""
        named = getattr(value, "known_as", None) or getattr(value, "name", None) or getattr(value, "class_", None)
        if not isinstance(value, str) and not named:
            raise BadValue(f"takes a name or an element with a name, not {shortened(str(value))}")
        return super().accept(value if isinstance(value, str) else named)

    def parse(self, text: str) -> Any:
        return text or None


@dataclass(frozen=True, kw_only=True)
class FileKind(TextKind):
    """The name of a file, which is looked for in the folder of the compiler setting `folder`."""

    folder: str = ""

    def parse(self, text: str) -> Any:
        return text or None


@dataclass(frozen=True, kw_only=True)
class KeywordKind(Kind):
    """One of a fixed set of words; the value is the word's meaning."""

    words: Mapping[str, Any]

    def parse(self, text: str) -> Any:
        if text not in self.words:
            shown = near_match(text, self.words) or "expected one of: " + ", ".join(self.words)
            raise BadValue(f"unknown keyword '{text}'", shown)
        return self.words[text]

    def accept(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.parse(value)
        return self.parse(self.text(value))

    def text(self, value: Any) -> str:
        return next((word for word, meant in self.words.items() if meant == value), str(value))


@dataclass(frozen=True, kw_only=True)
class KeywordsKind(KeywordKind):
    """Several different words, separated by blanks; if `ordered`, in the order of `words`."""

    ordered: bool = False

    def parse(self, text: str) -> Any:
        words = text.split()
        values = tuple(super(KeywordsKind, self).parse(word) for word in words)
        if len(set(words)) < len(words):
            raise BadValue("a keyword is repeated")
        if self.ordered and words != [word for word in self.words if word in words]:
            raise BadValue("keywords are out of order", "the order is: " + ", ".join(self.words))
        return values or None

    def accept(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.parse(value)
        single = super().text
        return self.parse(" ".join(word if isinstance(word, str) else single(word) for word in value))

    def text(self, value: Any) -> str:
        single = super().text
        return " ".join(map(single, value))


def shortened(token: str) -> str:
    """Text of the user for a message: at most 40 characters."""
    return token if len(token) <= 40 else token[:37] + "..."
