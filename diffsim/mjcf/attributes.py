"""How element classes declare their attributes: one call per field, which makes a dataclass field with its kind.

    class Site(Oriented):
        group: int = Integer(0)
        size: Vector = Reals(3, (0.005, 0.005, 0.005), fewest=1)

The first argument is MJCF's default (None where it has none); `required`, `defaultable`, `unsupported` and the bounds
of a kind follow by name. At the end stand attributes that several elements share: orientations, parameters of soft
constraints. Source: the table at the top of MuJoCo 3.8.1's xml_native_reader.cc, and the XML reference ("Frame
orientations", "Solver parameters").
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeVar

import numpy as np

from diffsim.mjcf.kinds import (
    FileKind,
    IntegerKind,
    IntegersKind,
    KeywordKind,
    KeywordsKind,
    Kind,
    NameKind,
    RealKind,
    RealsKind,
    ReferenceKind,
    TextKind,
    frozen,
)
from diffsim.mjcf.kinds import IntVector as IntVector
from diffsim.mjcf.kinds import Tristate as Tristate
from diffsim.mjcf.kinds import Vector as Vector
from diffsim.mjcf.schema import Element


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


ORIENTATIONS = ("quat", "axisangle", "xyaxes", "zaxis", "euler")

SOLREF = (0.02, 1.0)
SOLIMP = (0.9, 0.95, 0.001, 0.5, 2.0)
GRAY = (0.5, 0.5, 0.5, 1.0)


E = TypeVar("E", bound=Enum)


def keywords(members: Iterable[E], **spelled: str) -> dict[str, E]:
    """The words for an enum, or some members of one: their names in lower case, or as `spelled`."""
    return {spelled.get(member.name, member.name.lower()): member for member in members}


def Solref(default: tuple[float, float] = SOLREF) -> Any:
    """Time constant and damping ratio, or minus stiffness and minus damping, of a soft constraint."""
    return Reals(2, default, fewest=1)


def Solimp() -> Any:
    """Impedance: smallest, largest, width, midpoint, power."""
    return Reals(5, SOLIMP, fewest=1)


def Polynomial() -> Any:
    """Linear, quadratic and cubic coefficient of a spring or damper."""
    return Reals(3, (0.0, 0.0, 0.0), fewest=1)


@dataclass(eq=False)
class Oriented(Element):
    """An element with a frame: `quat`, or one of its alternatives, which wins (angles as the compiler settings say)."""

    alternatives = (ORIENTATIONS,)
    supersede = (ORIENTATIONS[1:],)

    quat: Vector = Reals(4, (1.0, 0.0, 0.0, 0.0), nonzero=True)
    axisangle: Vector | None = Reals(4)
    xyaxes: Vector | None = Reals(6)
    zaxis: Vector | None = Reals(3)
    euler: Vector | None = Reals(3)
