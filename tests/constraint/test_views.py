"""The rows as MuJoCo lists them, field by field, in its order."""

import copy
from typing import Any

import jax
import numpy as np
import pytest
from oracle import assert_close, mujoco

from diffsim.constraint.views import efc_rows
from diffsim.enums import Cone, ConstraintType, DisableBit
from diffsim.solver import solve
from tests.constraint.cases import CASES, Case, cases
from tests.constraint.feed import oracle_jacobian

EXACT = ("efc_type", "efc_state")
CLOSE = ("efc_pos", "efc_margin", "efc_frictionloss", "efc_D", "efc_vel", "efc_aref")


@jax.jit
def rows_at_solution(model, contacts, problem):
    return efc_rows(model, contacts, problem[3], solve(model, *problem))


def without_islands(case: Case) -> Any:
    """The oracle's data of a case, solved in one piece: island by island it does not update efc_state."""
    mjmodel, data = copy.copy(case.mjmodel), copy.copy(case.data)
    mjmodel.opt.disableflags |= int(DisableBit.ISLAND)
    mujoco.mj_forward(mjmodel, data)
    return data


@pytest.mark.parametrize(("path", "cone"), [*CASES[:5], CASES[8]])
def test_rows_are_listed_as_in_the_oracle(path: str, cone: Cone) -> None:
    seen = 0
    for case in cases(path, cone):
        rows, data = rows_at_solution(case.model, case.fed.contacts, case.problem), without_islands(case)
        count = data.nefc
        assert rows.nefc == count
        seen += count
        for name in EXACT:
            np.testing.assert_array_equal(getattr(rows, name)[:count], getattr(data, name), name)
        ids = np.array(data.efc_id)
        touching = data.efc_type >= ConstraintType.CONTACT_FRICTIONLESS
        ids[touching] = [case.fed.slots[i] for i in ids[touching]]
        np.testing.assert_array_equal(rows.efc_id[:count], ids)
        assert_close("efc_J", rows.efc_J[:count], oracle_jacobian(case.model.nv, data), 1e-11)
        for name in CLOSE:
            assert_close(name, getattr(rows, name)[:count], getattr(data, name), 1e-11, rtol=1e-11)
        assert_close("efc_force", rows.efc_force[:count], data.efc_force, 1e-7, rtol=1e-7)
        assert np.all(rows.efc_type[count:] == -1) and not np.any(rows.efc_J[count:])
    assert seen > 0
