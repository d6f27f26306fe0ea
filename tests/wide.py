"""Cases for which the suite has no time: `make wide` runs the suite with them, by DIFFSIM_WIDE=1."""

import os
from collections.abc import Iterable
from typing import TypeVar

import pytest

Case = TypeVar("Case")
WIDE = bool(os.environ.get("DIFFSIM_WIDE"))


def wide(cases: Iterable[Case]) -> list[Case]:
    """The cases, none in the suite."""
    return list(cases) if WIDE else []


only_wide = pytest.mark.skipif(not WIDE, reason="too slow for `make test`; `make wide` runs it")
