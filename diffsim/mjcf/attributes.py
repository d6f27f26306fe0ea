"""How element classes declare their attributes: one call per field, which makes a dataclass field with its kind.

    class Site(Oriented):
        group: int = Integer(0)
        size: Vector = Reals(3, (0.005, 0.005, 0.005), fewest=1)

The first argument is MJCF's default (None where it has none); `required`, `defaultable`, `unsupported` and the bounds
of a kind follow by name. Source: the table at the top of MuJoCo 3.8.1's xml_native_reader.cc, and the XML reference.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from diffsim.mjcf.kinds import FileKind, KeywordKind, KeywordsKind, Kind, NameKind, ReferenceKind, TextKind
from diffsim.mjcf.kinds import Tristate as Tristate
from diffsim.mjcf.numbers import IntegerKind, IntegersKind, RealKind, RealsKind, frozen
from diffsim.mjcf.numbers import IntVector as IntVector
from diffsim.mjcf.numbers import Vector as Vector


def _attribute(kind: Kind) -> Any:
    return field(default=None, metadata={"kind": kind})


def Real(default: float | None = None, **options: Any) -> Any:
    """An attribute that is one number."""
    return _attribute(RealKind(default=None if default is None else float(default), **options))


def Reals(length: int | None, default: Any = None, fewest: int | None = None, **options: Any) -> Any:
    """An attribute of exactly `length` numbers, of `fewest` to `length`, or (length None) of any number."""
    least = (length or 0) if fewest is None else fewest
    value = None if default is None else frozen(default, np.float64)
    return _attribute(RealsKind(length=length, fewest=least, default=value, **options))


def Integer(default: int | None = None, **options: Any) -> Any:
    """An attribute that is one integer."""
    return _attribute(IntegerKind(default=default, **options))


def Integers(length: int | None, default: Any = None, fewest: int | None = None, **options: Any) -> Any:
    """An attribute of `fewest` to `length` integers, any number if `length` is None."""
    least = (length or 0) if fewest is None else fewest
    value = None if default is None else frozen(default, np.int64)
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
