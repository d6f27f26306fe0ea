"""Kinds of MJCF attributes: how each is read from text, checked, defaulted, written, and laid over an inherited value.

One small class per kind; numbers.py has those that hold numbers;
attributes.py gives all of them the names with which element classes declare their fields. `parse` turns
text into a value (None where MuJoCo takes an empty text as absent) and raises BadValue; `accept` does so with a value
of a Python program, and `text` turns it into text again; `over` says what an element's own value leaves of an inherited
one: a short vector overwrites only the first numbers.
Source: mjXUtil of xml_util.cc (3.8.1).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from diffsim.base.errors import near_match


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

    def accept(self, value: Any) -> Any:
        """The value that a Python program means: text is parsed, numbers are checked like written ones. BadValue."""
        return self.parse(value if isinstance(value, str) else str(value))

    def text(self, value: Any) -> str:
        """The text that `parse` turns into `value`; numbers in as many digits as they need."""
        return str(value)

    def over(self, inherited: Any, own: Any) -> Any:
        """The value when `own` is written on an element that inherits `inherited`."""
        return own if own is not None else inherited


@dataclass(frozen=True, kw_only=True)
class TextKind(Kind):
    """Any text; `length` fixes the number of characters, `letters` those that may appear."""

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
    """The element's own name, unique among the elements of `space`."""

    space: str
    defaultable: bool = False

    def parse(self, text: str) -> Any:
        return text or None


@dataclass(frozen=True, kw_only=True)
class ReferenceKind(TextKind):
    """The name of another element: one of `space`, or of the kind that the attribute `by` of this element names."""

    space: str = ""
    by: str = ""

    def accept(self, value: Any) -> Any:
        """A name, or an element that has one."""
        named = getattr(value, "known_as", None) or getattr(value, "name", None) or getattr(value, "class_", None)
        if not isinstance(value, str) and not named:
            raise BadValue(f"takes a name or an element that has one, not {shortened(str(value))}")
        return super().accept(value if isinstance(value, str) else named)

    def parse(self, text: str) -> Any:
        return text or None


@dataclass(frozen=True, kw_only=True)
class FileKind(TextKind):
    """A file's name, looked for below the folder that the compiler setting `folder` names."""

    folder: str = ""

    def parse(self, text: str) -> Any:
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

    def accept(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.parse(value)
        return self.parse(self.text(value))

    def text(self, value: Any) -> str:
        return next((word for word, meant in self.words.items() if meant == value), str(value))


@dataclass(frozen=True, kw_only=True)
class KeywordsKind(KeywordKind):
    """Several different words separated by blanks; `ordered`: in the order in which `words` lists them."""

    ordered: bool = False

    def parse(self, text: str) -> Any:
        found = text.split()
        values = tuple(super(KeywordsKind, self).parse(word) for word in found)
        if len(set(found)) < len(found):
            raise BadValue("a keyword is repeated")
        if self.ordered and list(found) != [word for word in self.words if word in found]:
            raise BadValue("keywords are out of order", "the order is: " + ", ".join(self.words))
        return values or None

    def accept(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.parse(value)
        single = super().text
        return self.parse(" ".join(each if isinstance(each, str) else single(each) for each in value))

    def text(self, value: Any) -> str:
        single = super().text
        return " ".join(single(each) for each in value)


def shortened(token: str) -> str:
    """Text of a stranger as a message shows it: 40 characters at most."""
    return token if len(token) <= 40 else token[:37] + "..."
