"""Kinds of MJCF attributes that hold numbers: one integer or several, one real number or several.

Text is read as MuJoCo reads it: any blanks between numbers, no hexadecimal, no trailing letters. A value of a Python
program (a number, a sequence, an array) is turned into text and read in the same way, so both are checked alike.
Arrays of attributes cannot be written to: they are shared between elements.
Source: mjXUtil of xml_util.cc (3.8.1).
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from diffsim.mjcf.kinds import BadValue, Kind, shortened

Vector = npt.NDArray[np.float64]
IntVector = npt.NDArray[np.int64]

_REAL = re.compile(r"[+-]?(\d+(\.\d*)?([eE][+-]?\d+)?|\.\d+([eE][+-]?\d+)?|inf|infinity|nan)", re.IGNORECASE)
_INTEGER = re.compile(r"[+-]?\d{1,18}")


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

    def accept(self, value: Any) -> Any:
        return self.parse(value if isinstance(value, str) else _plain(value))


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
        return frozen([_integer(token, self.least, self.most) for token in tokens], np.int64)

    def accept(self, value: Any) -> Any:
        if _is_kept(value, np.int64):
            return value
        return self.parse(value if isinstance(value, str) else _plain(value))

    def text(self, value: Any) -> str:
        return " ".join(map(str, value.tolist()))

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
        return self._bounded(_real(tokens[0], infinite=False))

    def accept(self, value: Any) -> Any:
        if isinstance(value, float) and math.isfinite(value):
            return self._bounded(float(value))
        return self.parse(value if isinstance(value, str) else _plain(value))

    def text(self, value: Any) -> str:
        return number(value)

    def _bounded(self, value: float) -> float:
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
        return frozen(values, np.float64)

    def accept(self, value: Any) -> Any:
        if _is_kept(value, np.float64):
            return value
        return self.parse(value if isinstance(value, str) else _plain(value))

    def text(self, value: Any) -> str:
        return " ".join(map(number, value.tolist()))

    def over(self, inherited: Any, own: Any) -> Any:
        return _overlay(inherited, own) if self.length else super().over(inherited, own)


def number(value: float) -> str:
    """A number in the fewest digits from which the same float64 is read again."""
    return repr(float(value)).removesuffix(".0")


def _plain(value: Any) -> str:
    """Numbers of a Python program (one, a sequence, an array) as a file would have them."""
    try:
        array = np.asarray(value)
        if array.dtype.kind not in "biuf" or array.ndim > 2:
            raise ValueError
    except ValueError:
        raise BadValue(f"takes numbers, not {shortened(str(value))}") from None
    return " ".join(number(entry) for entry in array.ravel().tolist())


def _is_kept(value: Any, dtype: npt.DTypeLike) -> bool:
    """Whether this is an array that an element already holds: read, checked, and not to be written to."""
    return isinstance(value, np.ndarray) and value.dtype == dtype and value.ndim == 1 and not value.flags.writeable


def _integer(token: str, least: int | None, most: int | None) -> int:
    if not _INTEGER.fullmatch(token):
        raise BadValue(f"'{shortened(token)}' is not an integer")
    value = int(token)
    if least is not None and value < least:
        raise BadValue(f"must be at least {least}, not {value}")
    if value > (2**31 - 1 if most is None else most):
        raise BadValue(f"must be at most {2**31 - 1 if most is None else most}, not {value}")
    return value


def _real(token: str, infinite: bool) -> float:
    if not _REAL.fullmatch(token):
        raise BadValue(f"'{shortened(token)}' is not a number")
    value = float(token)
    if math.isnan(value) or (math.isinf(value) and not infinite):
        raise BadValue(f"'{shortened(token)}' is not a finite number")
    return value


def _count(tokens: Sequence[str], fewest: int, length: int | None, what: str) -> None:
    if len(tokens) >= fewest and (length is None or len(tokens) <= length):
        return
    wanted = str(length) if fewest == length else f"{fewest} to {length}"
    raise BadValue(f"takes {wanted} {what}{'' if wanted == '1' else 's'}, {len(tokens)} given")


def frozen(values: Any, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """The values as an array that cannot be written to, so that defaults can be shared."""
    array = np.array(values, dtype)
    array.flags.writeable = False
    return array


def _overlay(inherited: Any, own: Any) -> Any:
    """`own` over the first entries of `inherited`: a short vector leaves the rest as it was."""
    if own is None or inherited is None or len(own) >= len(inherited):
        return own if own is not None else inherited
    return frozen(np.concatenate([own, inherited[len(own) :]]), own.dtype)
