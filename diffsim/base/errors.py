"""Exceptions and warnings. An error about a model lists all its problems, each with file, line, element and remedy.

Each pass over a model (reading, resolving, compiling) collects what it finds in a `Problems` and raises once at its
end, so that users can fix a file in one go. Each problem prints as one line:

    humanoid.xml:41 <joint name="knee">: unknown attribute 'dampin'; did you mean 'damping'?
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice
from typing import Protocol

# number of problems after which a pass stops, because nobody reads more
MOST_FINDINGS = 100

# number of known words with which a misspelt one is compared, because each comparison takes about 20 us
MOST_COMPARED = 500
# characters of the longest word that is compared, because the time grows with the square of the length
LONGEST_COMPARED = 60


class Place(Protocol):
    """A place in the user's files: file, line, and a label such as `<joint name="knee">`; MJCF elements are places."""

    @property
    def file(self) -> str: ...

    @property
    def line(self) -> int: ...

    @property
    def label(self) -> str: ...


@dataclass(frozen=True)
class Problem:
    """One problem: where (`file`, `line`, `element`), what (`message`) and how to fix it (`hint`)."""

    file: str
    line: int
    element: str
    message: str
    hint: str = ""
    unsupported: bool = False

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.line else self.file
        place = " ".join(part for part in (where, self.element) if part)
        text = f"{self.message}; {self.hint}" if self.hint else self.message
        return f"{place}: {text}" if place else text


class DiffsimError(Exception):
    """Base class of the errors that diffsim raises."""


class MjcfError(DiffsimError, ValueError):
    """The model is invalid; `problems` lists everything that the pass found."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems: tuple[Problem, ...] = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))

    def __reduce__(self) -> tuple[type["MjcfError"], tuple[tuple[Problem, ...]]]:
        return type(self), (self.problems,)


class MissingFileError(MjcfError, FileNotFoundError):
    """The file to be loaded does not exist, and no model that comes with diffsim has this name."""


class UnsupportedError(MjcfError, NotImplementedError):
    """The model is valid but uses a feature that diffsim does not support."""

    @classmethod
    def of(cls, place: str, reason: str, hint: str = "") -> "UnsupportedError":
        """The error for a compiled model, which has no files and lines; `place` names what needs the feature."""
        return cls([Problem("", 0, place, reason, hint, unsupported=True)])


class ArgumentError(DiffsimError, ValueError, TypeError):
    """An argument has a wrong type or value; the message says what was given and what is expected."""


def expect(value: object, name: str, what: str, *attributes: str) -> None:
    """Raises ArgumentError if `value` lacks one of the attributes by which the expected type is recognized.

    Args:
      value: the argument.
      name: its name, for the message.
      what: the expected type in words, for the message.
      attributes: names that the expected type has.
    """
    if not all(hasattr(value, attribute) for attribute in attributes):
        raise ArgumentError(f"{name} is a {type(value).__name__}, expected {what}")


class CapacityWarning(UserWarning):
    """The model's own settings leave room for fewer contacts than the default would."""


class PrecisionWarning(UserWarning):
    """Results have fewer digits than the user probably expects, or than the model needs."""


class Problems:
    """The problems that one pass has found; `bool` is True if there are any.

    When there are more than MOST_FINDINGS, `add` and `unsupported` raise.
    """

    def __init__(self) -> None:
        self._found: dict[Problem, None] = {}
        self._noted = 0

    def add(self, place: Place | None, message: str, hint: str = "") -> None:
        """Adds the problem that the model is invalid at `place` (an element, or None for the whole model)."""
        self._note(place, message, hint, unsupported=False)

    def unsupported(self, place: Place | None, message: str, hint: str = "") -> None:
        """Adds the problem that `place` uses a feature of MJCF that diffsim does not support."""
        self._note(place, message, hint, unsupported=True)

    def take(self, error: MjcfError) -> None:
        """Adds all problems of an error, which a pass over another file raised."""
        self._found.update(dict.fromkeys(error.problems))

    def _note(self, place: Place | None, message: str, hint: str, unsupported: bool) -> None:
        """Adds a problem, and raises if there are too many."""
        file, line, label = (place.file, place.line, place.label) if place is not None else ("", 0, "")
        self._found[Problem(file, line, label, message, hint, unsupported)] = None
        self._noted += 1
        if self._noted > MOST_FINDINGS:
            rest = f"there are more problems; only the first {MOST_FINDINGS} are listed"
            self._found[Problem(file, line, "", rest, "", unsupported)] = None
            self.raise_if_any()

    def raise_if_any(self) -> None:
        """Raises UnsupportedError if all problems are unsupported features, MjcfError if there are any others."""
        if self._found:
            only_unsupported = all(problem.unsupported for problem in self._found)
            raise (UnsupportedError if only_unsupported else MjcfError)(self._in_file_order())

    def _in_file_order(self) -> list[Problem]:
        """Problems sorted by line; files in the order in which their first problem was noted."""
        files = list(dict.fromkeys(problem.file for problem in self._found))
        return sorted(self._found, key=lambda problem: (files.index(problem.file), problem.line))

    def __bool__(self) -> bool:
        return bool(self._found)

    def __iter__(self) -> Iterator[Problem]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


def near_match(word: str, known: Iterable[str], listed: int = 0) -> str:
    """The hint for a word that is not among `known`: the most similar one, or all if there are at most `listed`."""
    words = sorted({other for other in islice(known, MOST_COMPARED) if len(other) <= LONGEST_COMPARED})
    near = get_close_matches(word, words, n=1, cutoff=0.6) if len(word) <= LONGEST_COMPARED else []
    if near:
        return f"did you mean '{near[0]}'?"
    if 0 < len(words) <= listed:
        return "expected one of: " + ", ".join(words)
    return ""


# most names that a message about a missing one lists
LISTED = 20


def absent(kind: str, name: str, known: Iterable[str], listed: int = LISTED) -> tuple[str, str]:
    """Message and hint for a name that no object has.

    Args:
      kind: the type of object, such as "joint".
      name: the name that was asked for.
      known: the names of all objects of this kind; "" for objects without one.
      listed: the hint lists all names if there are at most this many.
    """
    names = [other for other in known if other]
    hint = near_match(name, names, listed) if names else f"the model has no {kind} with a name"
    return f"no {kind} is called '{name}'", hint
