"""Tables of kinds are complete: every enum value has a row or a reason why not."""

import pathlib

import pytest

import diffsim
from diffsim.actuator import laws, transmission
from diffsim.base.enums import BiasType, DynType, GainType, Integrator, JointType, TrnType
from diffsim.base.joints import KINDS, dof_widths, is_ball, is_free, is_scalar, qpos_widths
from diffsim.kinematics.joints import MOTIONS
from diffsim.simulate.integrate import integrators

TABLES = [
    (JointType, {}, KINDS),
    (JointType, {}, MOTIONS),
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
    for joint_type, kind in KINDS.items():
        assert (is_scalar(joint_type), is_free(joint_type)) == (kind.scalar, kind.free)
        assert is_ball(joint_type) == (kind.quaternion == 0)
        assert (qpos_widths(joint_type), dof_widths(joint_type)) == (kind.nq, kind.nv)
        assert len(kind.carried_by) == len(kind.angular) == kind.nv
        assert [dof for start, stop in kind.blocks for dof in range(start, stop)] == list(range(kind.nv))


# who may name a joint type: all others ask diffsim/base/joints.py
NAMES_JOINT_TYPES = {
    "base/enums.py": "defines the numbers",
    "base/joints.py": "the facts, one row per type",
    "kinematics/joints.py": "the functions, one row per type",
    "mjcf/elements/body.py": "the words of MJCF for them",
    "mjcf/macros/cable.py": "the balls that it writes",
    "mjcf/macros/flexcomp.py": "the slides that it writes",
    "mjx/__init__.py": "a name of MJX",
    "mjx/types.py": "a name of MJX",
}


def test_joint_types_are_named_in_few_files() -> None:
    root = pathlib.Path(diffsim.__file__).parent
    files = {str(path.relative_to(root)) for path in root.rglob("*.py") if "JointType" in path.read_text()}
    assert files == set(NAMES_JOINT_TYPES)
