"""The whole of `forward` beside the oracle: our compiler and stages, states with contacts, both solvers converged."""

import numpy as np
import oracle
import pytest

import diffsim
from tests.uncompiled import uncompiled

FIELDS = {
    "xpos": 1e-10,
    "xquat": 1e-10,
    "xipos": 1e-10,
    "geom_xpos": 1e-10,
    "geom_xmat": 1e-10,
    "site_xpos": 1e-10,
    "subtree_com": 1e-10,
    "cinert": 1e-10,
    "cdof": 1e-10,
    "ten_length": 1e-10,
    "qM": 1e-10,
    "actuator_length": 1e-10,
    "actuator_moment": 1e-10,
    "cvel": 1e-10,
    "qfrc_passive": 1e-10,
    "qfrc_bias": 1e-10,
    "act_dot": 1e-10,
    "actuator_force": 1e-10,
    "qfrc_actuator": 1e-10,
    "qfrc_smooth": 1e-10,
    "qacc": 1e-7,
    "qfrc_constraint": 1e-7,
    "sensordata": 1e-6,
}
STATES = 5

# one of each kind; `make measure WHAT=parity` compares acceleration and next state of every model of the packages
MODELS = [
    "dm_control/suite/acrobot.xml",
    "dm_control/suite/fish.xml",
    "dm_control/suite/humanoid.xml",
    "dm_control/suite/manipulator.xml",
    "dm_control/suite/point_mass.xml",
    "dm_control/suite/swimmer.xml",
    "gymnasium/envs/mujoco/assets/ant.xml",
    "gymnasium/envs/mujoco/assets/walker2d_v5.xml",
    "mujoco/mjx/test_data/humanoid/humanoid.xml",
    "mujoco/mjx/test_data/quadratic_frictionloss.xml",
    "mujoco/mjx/test_data/tendon/fixed.xml",
]


@pytest.mark.parametrize("path", MODELS)
def test_forward_equals_the_oracle(path: str) -> None:
    model, mjmodel = oracle.converged(path)
    forward = uncompiled(diffsim.forward)
    for data in oracle.visited_states(mjmodel, STATES):
        ours = forward(model, oracle.state_of(data), oracle.inputs_of(data))
        assert int(ours.ncon_dropped) == 0
        for name, tolerance in FIELDS.items():
            theirs = oracle.field_of(name, mjmodel, data)
            scale = max(1.0, float(np.max(np.abs(theirs), initial=0)))
            oracle.assert_close(name, getattr(ours, name), theirs, tolerance * scale)
        oracle.assert_same_contacts(ours.contact, data, 1e-9)
