"""Length ranges: many actuators run as one batch, few one after another, with the same result."""

import numpy as np
import pytest
from compiler.features import FEATURES

import diffsim
from diffsim.compiler import derive


def test_a_batch_finds_what_one_after_another_does(monkeypatch: pytest.MonkeyPatch) -> None:
    ways = []
    for most in (0, 10**9):
        monkeypatch.setattr(derive, "MOST_IN_TURN", most)
        ways.append(diffsim.load(FEATURES["lengthrange"]).actuator_lengthrange)
    assert np.ptp(ways[0]) > 0
    np.testing.assert_allclose(*ways, rtol=1e-9)
