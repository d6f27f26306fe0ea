"""Options and parameters off the beaten path, through the whole of `forward`, row by row against the oracle."""

import copy
from typing import Any

import jax
import numpy as np
import pytest
from oracle import assert_close, inputs_of, load_oracle, mujoco, state_of, visited_states

import diffsim
from diffsim import support
from diffsim.base.enums import Cone, DisableBit, EnableBit, EqType
from diffsim.compiler.convert import from_mujoco
from tests.constraint.feed import oracle_jacobian
from tests.uncompiled import uncompiled

NAMES = ("efc_pos", "efc_margin", "efc_frictionloss", "efc_D", "efc_vel", "efc_aref")


@uncompiled
def rows_and_acceleration(model: Any, state: Any, inputs: Any) -> tuple[Any, jax.Array]:
    data = diffsim.forward(model, state, inputs)
    return support.efc(model, data), data.qacc


def overridden(mjmodel: Any) -> None:
    mjmodel.opt.enableflags |= int(EnableBit.OVERRIDE)
    mjmodel.opt.o_margin = 0.03
    mjmodel.opt.o_solref[:] = 0.03, 0.7
    mjmodel.opt.o_solimp[:] = 0.7, 0.97, 0.004, 0.4, 3
    mjmodel.opt.o_friction[:] = 0.7, 0.5, 0.02, 0.003, 0.002


def overridden_directly(mjmodel: Any) -> None:
    overridden(mjmodel)
    mjmodel.opt.o_solref[:] = -900, -40


def mixed_signs(mjmodel: Any) -> None:
    for name in ("geom_solref", "jnt_solref", "eq_solref", "dof_solref", "tendon_solref_lim", "tendon_solref_fri"):
        getattr(mjmodel, name)[::2] = 0.05, -3.0
        getattr(mjmodel, name)[1::2] = -80.0, 0.4
    mjmodel.pair_solref[:] = -80.0, 0.4


def direct_friction(mjmodel: Any) -> None:
    mjmodel.pair_solreffriction[:] = -70, -9


def mixed_friction(mjmodel: Any) -> None:
    mjmodel.pair_solreffriction[:] = 0.2, -9


def stiff(mjmodel: Any) -> None:
    mjmodel.geom_solref[:] = 0.001, 1
    mjmodel.jnt_solref[:] = 0.001, 1
    mjmodel.eq_solref[:] = 0.001, 1


def stiff_and_unsafe(mjmodel: Any) -> None:
    stiff(mjmodel)
    mjmodel.opt.disableflags |= int(DisableBit.REFSAFE)


def torques(mjmodel: Any) -> None:
    welds = mjmodel.eq_type == int(EqType.WELD)
    mjmodel.eq_data[welds, 10] = np.linspace(0.05, 4, int(welds.sum()))


def switched(mjmodel: Any) -> None:
    mjmodel.eq_active0[:] = 1 - mjmodel.eq_active0


CONTACTS = [overridden, overridden_directly, mixed_signs, direct_friction, mixed_friction, stiff, stiff_and_unsafe]
CASES = [("contact_dims", cone, change) for cone in Cone for change in CONTACTS]
CASES += [("constraint_rows", Cone.PYRAMIDAL, c) for c in (mixed_signs, stiff, stiff_and_unsafe, torques, switched)]


@pytest.mark.parametrize(("path", "cone", "change"), CASES)
def test_rows_and_acceleration_match(path: str, cone: Cone, change: Any) -> None:
    mjmodel = copy.copy(load_oracle(path))
    mjmodel.opt.cone, mjmodel.opt.solver = int(cone), int(mujoco.mjtSolver.mjSOL_NEWTON)
    mjmodel.opt.tolerance, mjmodel.opt.iterations, mjmodel.opt.ls_iterations = 1e-14, 1000, 100
    visited = visited_states(mjmodel, 2, every=50)
    change(mjmodel)
    model, seen = from_mujoco(mjmodel), 0
    for data in visited:
        if change is switched:
            data.eq_active[:] = mjmodel.eq_active0
        mujoco.mj_forward(mjmodel, data)
        rows, qacc = rows_and_acceleration(model, state_of(data), inputs_of(data))
        count = data.nefc
        assert rows.nefc == count
        seen += count
        np.testing.assert_array_equal(rows.efc_type[:count], data.efc_type)
        assert_close("efc_J", rows.efc_J[:count], oracle_jacobian(model.nv, data), 1e-10)
        for name in NAMES:
            assert_close(name, getattr(rows, name)[:count], getattr(data, name), 1e-10, rtol=1e-9)
        assert_close("efc_force", rows.efc_force[:count], data.efc_force, 1e-7, rtol=1e-7)
        assert_close("qacc", qacc, data.qacc, 1e-7, rtol=1e-7)
    assert seen > 0
