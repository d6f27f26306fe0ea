"""Hostile input, seeded: what strangers may hand over, by kind, and the judge of what becomes of it.

A kind makes a case of a seed: a call without arguments. It may return, or raise what its kind allows; anything else,
more CPU seconds than LONGEST or more memory than LARGEST is a finding.
"""

from collections.abc import Callable
from typing import NamedTuple

from diffsim.base.errors import DiffsimError, MjcfError
from hostile import archives, arguments, encodings, files, structures, texts
from hostile.judge import Case, Counts, judge

REFUSALS = (MjcfError,)
# of a call from Python also what Python's own containers and files raise, if it says something
MISTAKES = (DiffsimError, TypeError, ValueError, KeyError, IndexError, OSError, NotImplementedError)


class Kind(NamedTuple):
    """A kind of hostile input: its cases, how many a sweep takes, and what they may raise."""

    case: Callable[[int], Case]
    number: int
    allowed: tuple[type[Exception], ...] = REFUSALS


KINDS = {
    "damaged": Kind(texts.reading(texts.damaged), 2000),
    "illegal": Kind(texts.reading(texts.illegal), 3000),
    "extreme": Kind(texts.reading(texts.extreme), 1000),
    "damaged, loaded": Kind(texts.loading(texts.damaged), 200),
    "illegal, loaded": Kind(texts.loading(texts.illegal), 200),
    "extreme, loaded": Kind(texts.loading(texts.extreme), 200),
    "structure": Kind(structures.case, 1500),
    "encoding": Kind(encodings.case, 1500),
    "asset": Kind(files.case, 1000),
    "archive": Kind(archives.case, 1500),
    "argument": Kind(arguments.case, 1500, MISTAKES),
}


def judge_kind(name: str, seeds: range) -> Counts:
    """What becomes of the cases of some seeds."""
    kind = KINDS[name]
    return judge(kind.case, seeds, kind.allowed)
