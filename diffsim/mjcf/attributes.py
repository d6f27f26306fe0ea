"""Declarations of attributes: each call makes a dataclass field that carries the kind of the attribute.

    class Site(Oriented):
        group: int = Integer(0)
        size: Vector = Reals(3, (0.005, 0.005, 0.005), fewest=1)

The first argument is MJCF's default (None if it has none). `required`, `defaultable`, `unsupported` and the bounds of
the kind are keyword arguments. Attributes that several elements share come last: orientations, and parameters of soft
constraints. Source: the table at the top of MuJoCo 3.8.1's xml_native_reader.cc, and the XML reference ("Frame
orientations", "Solver parameters").
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeVar

import numpy as np

from diffsim.mjcf.kinds import FileKind, KeywordKind, KeywordsKind, Kind, NameKind, ReferenceKind, TextKind
from diffsim.mjcf.kinds import Tristate as Tristate
from diffsim.mjcf.number_kinds import IntegerKind, IntegersKind, RealKind, RealsKind, frozen
from diffsim.mjcf.number_kinds import IntVector as IntVector
from diffsim.mjcf.number_kinds import Vector as Vector
from diffsim.mjcf.schema import Element


def _attribute(kind: Kind) -> Any:
    """A dataclass field for an attribute of this kind; None means that the element does not have it."""
    return field(default=None, metadata={"kind": kind})


def Real(default: float | None = None, **options: Any) -> Any:
    """An attribute that is one number."""
    return _attribute(RealKind(default=None if default is None else float(default), **options))


def Reals(length: int | None, default: Any = None, fewest: int | None = None, **options: Any) -> Any:
    """An attribute with `length` numbers, or with `fewest` to `length`; any number of them if `length` is None."""
    least = (length or 0) if fewest is None else fewest
    value = None if default is None else frozen(default, np.float64)
    return _attribute(RealsKind(length=length, fewest=least, default=value, **options))


def Integer(default: int | None = None, **options: Any) -> Any:
    """An attribute that is one integer."""
    return _attribute(IntegerKind(default=default, **options))


def Integers(length: int | None, default: Any = None, fewest: int | None = None, **options: Any) -> Any:
    """An attribute with `fewest` to `length` integers; any number of them if `length` is None."""
    least = (length or 0) if fewest is None else fewest
    value = None if default is None else frozen(default, np.int64)
    return _attribute(IntegersKind(length=length, fewest=least, default=value, **options))


def Flag(default: bool | None = None, words: tuple[str, str] = ("false", "true"), **options: Any) -> Any:
    """An attribute that is false or true, or one of two other words; the value is a bool."""
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
    """The default class of an element."""
    return _attribute(ReferenceKind(space="default", defaultable=False, **options))


def Reference(space: str = "", by: str = "", **options: Any) -> Any:
    """The name of an element of kind `space`, or of the kind that attribute `by` names."""
    return _attribute(ReferenceKind(space=space, by=by, **options))


def Text(default: str | None = None, **options: Any) -> Any:
    """An attribute that is any text."""
    return _attribute(TextKind(default=default, **options))


def File(folder: str = "", **options: Any) -> Any:
    """An attribute that names a file in the folder of the compiler setting `folder`."""
    return _attribute(FileKind(folder=folder, defaultable=False, **options))


# attributes that can give an orientation; the ones after `quat` override an inherited orientation
ORIENTATIONS = ("quat", "axisangle", "xyaxes", "zaxis", "euler")

# MuJoCo's default time constant (s) and damping ratio of soft constraints
SOLREF = (0.02, 1.0)
# MuJoCo's default impedance: smallest, largest, width (m or rad), midpoint, power
SOLIMP = (0.9, 0.95, 0.001, 0.5, 2.0)
# MuJoCo's default colour, RGBA
GRAY = (0.5, 0.5, 0.5, 1.0)


E = TypeVar("E", bound=Enum)


def keywords(members: Iterable[E], **spelled: str) -> dict[str, E]:
    """The word for each of some members of an enum: its name in lower case, or as given in `spelled`."""
    return {spelled.get(member.name, member.name.lower()): member for member in members}


def Solref(default: tuple[float, float] = SOLREF) -> Any:
    """solref of a soft constraint: time constant and damping ratio, or minus stiffness and minus damping."""
    return Reals(2, default, fewest=1)


def Solimp() -> Any:
    """solimp, the impedance of a soft constraint: smallest, largest, width, midpoint, power."""
    return Reals(5, SOLIMP, fewest=1)


def Polynomial() -> Any:
    """The linear, quadratic and cubic coefficient of a spring or damper."""
    return Reals(3, (0.0, 0.0, 0.0), fewest=1)


@dataclass(eq=False)
class Oriented(Element):
    """An element with an orientation: `quat` or an alternative, which takes precedence."""

    alternatives = (ORIENTATIONS,)
    supersede = (ORIENTATIONS[1:],)

    quat: Vector = Reals(4, (1.0, 0.0, 0.0, 0.0), nonzero=True)
    axisangle: Vector | None = Reals(4)
    xyaxes: Vector | None = Reals(6)
    zaxis: Vector | None = Reals(3)
    euler: Vector | None = Reals(3)
