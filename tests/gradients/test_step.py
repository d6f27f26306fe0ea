"""A few cases of gradients through whole steps (tests/gradient_steps.py): both cones, real models."""

import pytest
from gradient_steps import CASES, Case, check

from diffsim.enums import Cone, Integrator

FEW: list[Case] = [
    ("dm_control/suite/hopper.xml", Integrator.RK4, Cone.ELLIPTIC),
    ("gymnasium/envs/mujoco/assets/ant.xml", Integrator.EULER, Cone.ELLIPTIC),
    ("mujoco/mjx/test_data/humanoid/humanoid.xml", Integrator.EULER, Cone.PYRAMIDAL),
]


@pytest.mark.parametrize("case", FEW, ids=lambda case: f"{case[0]}-{case[1].name}-{case[2].name}")
def test_step_gradients(case: Case) -> None:
    assert case in CASES
    assert check(case, 1) == ""
    assert check(case, 10) == ""
