"""Gradients through whole steps of one real model; more models and integrators: tests/gradient_steps.py."""

import pytest
from gradient_steps import CASES, Case, check

from diffsim.base.enums import Cone, Integrator

CASE: Case = ("dm_control/suite/hopper.xml", Integrator.EULER, Cone.PYRAMIDAL)


@pytest.mark.parametrize("count", [1, 10])
def test_step_gradients(count: int) -> None:
    assert CASE in CASES
    assert check(CASE, count) == ""
