"""Kinds of attributes with numbers: reals, integers and arrays of them.

Numbers are read as in MuJoCo: separated by any whitespace, no hexadecimal, no trailing letters. Numbers from a Python
program (a number, a sequence, an array) are converted to text and read in the same way, so that both are checked alike.
Array values are read-only because elements share them.
Source: mjXUtil of xml_util.cc (3.8.1).
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from diffsim.mjcf.kinds import BadValue, Kind, shortened

# values of array attributes
Vector = npt.NDArray[np.float64]
IntVector = npt.NDArray[np.int64]
# numbers as MuJoCo reads them
_REAL = re.compile(r"[+-]?(\d+(\.\d*)?([eE][+-]?\d+)?|\.\d+([eE][+-]?\d+)?|inf|infinity|nan)", re.IGNORECASE)
# 18 digits fit into int64
_INTEGER = re.compile(r"[+-]?\d{1,18}")


@dataclass(frozen=True, kw_only=True)
class NumberKind(Kind):
    """One or several numbers; a Python program can also give them as numbers."""

    def accept(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.parse(value)
        try:
            array = np.asarray(value)
            if array.dtype.kind not in "biuf" or array.ndim > 2:
                raise ValueError
        except ValueError:
            raise BadValue(f"takes numbers, not {shortened(str(value))}") from None
        # as text, so that they are checked like the numbers of a file
        return self.parse(" ".join(number(entry) for entry in array.ravel().tolist()))


@dataclass(frozen=True, kw_only=True)
class ArrayKind(NumberKind):
    """`fewest` to `length` numbers (any number of them if `length` is None), as a read-only array.

    If fewer than `length` are given, the others keep their inherited values.
    """

    dtype: ClassVar[type[np.generic]]
    length: int | None
    fewest: int = 0

    def accept(self, value: Any) -> Any:
        # a read-only array comes from another element and has been checked
        fits = isinstance(value, np.ndarray) and value.dtype == self.dtype and value.ndim == 1
        return value if fits and not value.flags.writeable else super().accept(value)

    def over(self, inherited: Any, value: Any) -> Any:
        if not self.length or value is None or inherited is None or len(value) >= len(inherited):
            return super().over(inherited, value)
        return frozen(np.concatenate([value, inherited[len(value) :]]), value.dtype)


@dataclass(frozen=True, kw_only=True)
class IntegerKind(NumberKind):
    """One integer, from `least` to `most` if these are given."""

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
class IntegersKind(ArrayKind):
    """Integers, each from `least` to `most`."""

    dtype = np.int64
    least: int | None = None
    most: int | None = None

    def parse(self, text: str) -> IntVector | None:
        tokens = text.split()
        if not tokens:
            return None
        _count(tokens, self.fewest, self.length, "integer")
        return frozen([_integer(token, self.least, self.most) for token in tokens], np.int64)

    def text(self, value: Any) -> str:
        return " ".join(map(str, value.tolist()))


@dataclass(frozen=True, kw_only=True)
class RealKind(NumberKind):
    """One finite number, greater than `above`, and from `least` to `most`, if these are given."""

    above: float | None = None
    least: float | None = None
    most: float | None = None

    def parse(self, text: str) -> float | None:
        tokens = text.split()
        if not tokens:
            return None
        if len(tokens) > 1:
            raise BadValue(f"takes 1 number, {len(tokens)} given")
        return self._bounded(_real(tokens[0], infinite=False))

    def accept(self, value: Any) -> Any:
        if isinstance(value, float) and math.isfinite(value):
            return self._bounded(float(value))
        return super().accept(value)

    def text(self, value: Any) -> str:
        return number(value)

    def _bounded(self, value: float) -> float:
        """The value; raises BadValue if it is out of bounds."""
        if self.above is not None and value <= self.above:
            raise BadValue(f"must be greater than {self.above:g}, not {value:g}")
        if self.least is not None and value < self.least:
            raise BadValue(f"must be at least {self.least:g}, not {value:g}")
        if self.most is not None and value > self.most:
            raise BadValue(f"must be at most {self.most:g}, not {value:g}")
        return value


@dataclass(frozen=True, kw_only=True)
class RealsKind(ArrayKind):
    """Real numbers.

    Attributes:
      infinite: whether infinities are allowed.
      nonzero: whether at least one number must not be zero.
      repeat: whether a single number gives all of them.
    """

    dtype = np.float64
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
        return frozen(values, np.float64)

    def text(self, value: Any) -> str:
        return " ".join(map(number, value.tolist()))


def number(value: float) -> str:
    """A number with the fewest digits from which the same float64 is read."""
    return repr(float(value)).removesuffix(".0")


def _integer(token: str, least: int | None, most: int | None) -> int:
    """A word as an integer within bounds; without `most`, the bound is the largest int32. Raises BadValue."""
    if not _INTEGER.fullmatch(token):
        raise BadValue(f"'{shortened(token)}' is not an integer")
    value = int(token)
    largest = 2**31 - 1 if most is None else most
    if least is not None and value < least:
        raise BadValue(f"must be at least {least}, not {value}")
    if value > largest:
        raise BadValue(f"must be at most {largest}, not {value}")
    return value


def _real(token: str, infinite: bool) -> float:
    """A word as a number, which may be infinite if `infinite`. Raises BadValue."""
    if not _REAL.fullmatch(token):
        raise BadValue(f"'{shortened(token)}' is not a number")
    value = float(token)
    if math.isnan(value) or (math.isinf(value) and not infinite):
        raise BadValue(f"'{shortened(token)}' is not a finite number")
    return value


def _count(tokens: Sequence[str], fewest: int, length: int | None, what: str) -> None:
    """Raises BadValue unless there are `fewest` to `length` words."""
    if len(tokens) >= fewest and (length is None or len(tokens) <= length):
        return
    allowed = str(length) if fewest == length else f"{fewest} to {length}"
    raise BadValue(f"takes {allowed} {what}{'' if allowed == '1' else 's'}, {len(tokens)} given")


def frozen(values: Any, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """The values as a read-only array, so that elements can share defaults."""
    array = np.array(values, dtype)
    array.flags.writeable = False
    return array
