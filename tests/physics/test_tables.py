"""Tables of kinds are complete: every enum value has a row or a reason why not."""

import pytest

from diffsim.actuator import laws, transmission
from diffsim.enums import BiasType, DynType, GainType, Integrator, JointType, TrnType
from diffsim.physics import joint
from diffsim.simulate import integrators

TABLES = [
    (JointType, {}, joint.JOINTS),
    (Integrator, {}, integrators.INTEGRATORS),
    (TrnType, transmission.UNSUPPORTED, transmission.TRANSMISSIONS),
    (DynType, {}, laws.DYNAMICS),
    (GainType, {}, laws.GAINS),
    (BiasType, {}, laws.BIASES),
]


@pytest.mark.parametrize(("enum", "unsupported", "rows"), TABLES, ids=[row[0].__name__ for row in TABLES])
def test_every_kind_has_a_row_or_a_reason(enum: type, unsupported: dict, rows: dict) -> None:
    assert {*rows, *unsupported} == set(enum)
    assert not set(unsupported) & set(rows)


def test_joint_widths_agree() -> None:
    for kind in joint.JOINTS.values():
        assert len(kind.sees) == len(kind.angular) == kind.nv
        assert [dof for start, stop in kind.blocks for dof in range(start, stop)] == list(range(kind.nv))
