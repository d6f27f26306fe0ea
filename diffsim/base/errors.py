"""What diffsim raises: every problem of a pass at once, each with its file, line, element and remedy.

A pass over a model (reading, resolving, compiling) collects its findings in a `Problems` and raises once at its end, so
that a user mends a file in one round. A finding prints as one line:

    humanoid.xml:41 <joint name="knee">: unknown attribute 'dampin'; did you mean 'damping'?
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice
from typing import Protocol

# a pass that finds more than this stops there
MOST_FINDINGS = 100

# for a hint a word is compared with at most so many others, each of at most so many letters: it takes time
MOST_COMPARED = 500
LONGEST_COMPARED = 60


class Place(Protocol):
    """Where something stands in the user's files; every MJCF element is one."""

    @property
    def file(self) -> str: ...

    @property
    def line(self) -> int: ...

    @property
    def label(self) -> str: ...


@dataclass(frozen=True)
class Problem:
    """One finding: where (`file`, `line`, `element`), what (`message`) and how to mend it (`hint`)."""

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
    """Base of every error that diffsim raises on purpose."""


class MjcfError(DiffsimError, ValueError):
    """A model that is wrong; `problems` lists every finding of the pass that failed."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems: tuple[Problem, ...] = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))

    def __reduce__(self) -> tuple[type["MjcfError"], tuple[tuple[Problem, ...]]]:
        return type(self), (self.problems,)


class MissingFileError(MjcfError, FileNotFoundError):
    """There is no file, and no model that comes with diffsim, of the name that is to be loaded."""


class UnsupportedError(MjcfError, NotImplementedError):
    """A legal model that uses a feature which diffsim does not have."""

    @classmethod
    def of(cls, place: str, reason: str, hint: str = "") -> "UnsupportedError":
        """What shows in a compiled model, which knows no files and lines; `place` is what asks for the feature."""
        return cls([Problem("", 0, place, reason, hint, unsupported=True)])


class ArgumentError(DiffsimError, ValueError, TypeError):
    """An argument of a wrong kind; the message says what it is and what is expected."""


def expect(value: object, name: str, what: str, *attributes: str) -> None:
    """Raises ArgumentError if an argument lacks an attribute of what is expected."""
    if not all(hasattr(value, attribute) for attribute in attributes):
        raise ArgumentError(f"{name} is a {type(value).__name__}, expected {what}")


class CapacityWarning(UserWarning):
    """A model asks for fewer contacts than it can have."""


class Problems:
    """Collects the findings of one pass. Truthy when there is any. Past MOST_FINDINGS `add` raises what there is."""

    def __init__(self) -> None:
        self._found: dict[Problem, None] = {}
        self._noted = 0

    def add(self, place: Place | None, message: str, hint: str = "") -> None:
        """Note that the model is wrong at `place` (an element; None for a fact about the whole model)."""
        self._note(place, message, hint, unsupported=False)

    def unsupported(self, place: Place | None, message: str, hint: str = "") -> None:
        """Note that `place` uses something that MJCF has and diffsim has not."""
        self._note(place, message, hint, unsupported=True)

    def take(self, error: MjcfError) -> None:
        """Note all problems of a pass over another file."""
        self._found.update(dict.fromkeys(error.problems))

    def _note(self, place: Place | None, message: str, hint: str, unsupported: bool) -> None:
        file, line, label = (place.file, place.line, place.label) if place is not None else ("", 0, "")
        self._found[Problem(file, line, label, message, hint, unsupported)] = None
        self._noted += 1
        if self._noted > MOST_FINDINGS:
            rest = f"there is more: only the first {MOST_FINDINGS} findings are listed"
            self._found[Problem(file, line, "", rest, "", unsupported)] = None
            self.raise_if_any()

    def raise_if_any(self) -> None:
        """Raise UnsupportedError if nothing is wrong but something is unsupported, MjcfError if anything is wrong."""
        if self._found:
            only_unsupported = all(problem.unsupported for problem in self._found)
            raise (UnsupportedError if only_unsupported else MjcfError)(self._in_file_order())

    def _in_file_order(self) -> list[Problem]:
        """Findings line by line, files in the order in which they turned up."""
        files = list(dict.fromkeys(problem.file for problem in self._found))
        return sorted(self._found, key=lambda problem: (files.index(problem.file), problem.line))

    def __bool__(self) -> bool:
        return bool(self._found)

    def __iter__(self) -> Iterator[Problem]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


def near_match(word: str, known: Iterable[str], listed: int = 0) -> str:
    """A hint for a word that is not among `known`: the nearest one, else all of them if there are at most `listed`."""
    words = sorted({other for other in islice(known, MOST_COMPARED) if len(other) <= LONGEST_COMPARED})
    near = get_close_matches(word, words, n=1, cutoff=0.6) if len(word) <= LONGEST_COMPARED else []
    if near:
        return f"did you mean '{near[0]}'?"
    if 0 < len(words) <= listed:
        return "expected one of: " + ", ".join(words)
    return ""
