"""Every constraint row against the oracle's efc arrays, row by row, from the oracle's own poses and contacts."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracle import assert_close, contact_forces_of, inputs_of, mujoco, record_of, state_of

from diffsim.base.enums import ConstraintType, DisableBit
from diffsim.constraint import constraint_wrenches, contact_forces, make_constraints
from diffsim.constraint.families import FAMILIES
from diffsim.solver.objective import row_forces
from diffsim.types.constraints import Law
from diffsim.types.data import ComFrame, Kinematics, Solution, Tendons, Velocities
from tests.constraint.cases import CASES, PYRAMIDAL, cases, strict_pair
from tests.constraint.feed import lined_up, oracle_jacobian, sources_of
from tests.uncompiled import uncompiled


@pytest.mark.parametrize(("path", "cone"), CASES)
def test_rows_match(path, cone):
    rows_seen = 0
    for case in cases(path, cone):
        ours = lined_up(case.model, case.fed, case.data)
        rows_seen += len(ours)
        nv, data = case.model.nv, case.data
        jacobian = np.array([row.J for row in ours]).reshape(-1, nv)
        assert_close("efc_J", jacobian, oracle_jacobian(nv, data), 1e-12)
        for name in ("pos", "margin", "aref", "D", "frictionloss"):
            column = np.array([getattr(row, name) for row in ours])
            assert_close(f"efc_{name}", column, getattr(data, f"efc_{name}"), 1e-11, rtol=1e-11)
    assert rows_seen > 0


@pytest.mark.parametrize(("path", "cone"), CASES)
def test_no_other_row_is_active(path, cone):
    for case in cases(path, cone):
        count = 0
        for rows in case.fed.constraints.groups:
            if rows.frictionloss.size:
                count += int(np.count_nonzero(rows.frictionloss))
            else:
                edges = 2 * (rows.dim - 1) if rows.D.shape[0] < rows.dim else 1
                count += edges * int(np.count_nonzero(rows.D))
        assert count == case.data.nefc


def _at_the_oracle(case) -> Solution:
    zero = np.zeros(())
    fields = {f.name: zero for f in dataclasses.fields(Solution)}
    force = np.array(case.data.qfrc_constraint)
    rows, qacc = case.fed.constraints, np.array(case.data.qacc)
    row_force = uncompiled(lambda rows, qacc: rows.concatenate(row_forces(rows, qacc)))(rows, qacc)
    return Solution(**{**fields, "qacc": qacc, "qfrc_constraint": force, "row_force": row_force})


forces_of, wrenches = uncompiled(contact_forces), uncompiled(constraint_wrenches)


@pytest.mark.parametrize(("path", "cone"), [CASES[0], CASES[1], CASES[2], CASES[7]])
def test_contact_forces_and_wrenches(path, cone):
    for case in cases(path, cone):
        solution = _at_the_oracle(case)
        forces = forces_of(case.model, case.fed.contacts, case.fed.constraints, solution)
        expected = contact_forces_of(case.mjmodel, case.data)
        for index, slot in case.fed.slots.items():
            assert_close("contact force", forces[slot], expected[index], 1e-8, rtol=1e-8)
        com = record_of(ComFrame, case.mjmodel, case.data)
        poses = record_of(Kinematics, case.mjmodel, case.data)
        ours = wrenches(case.model, case.fed.contacts, case.fed.constraints, solution, poses, com)
        assert_close("cfrc_ext", ours, oracle_wrenches(case), 1e-8, rtol=1e-8)


def oracle_wrenches(case) -> np.ndarray:
    """cfrc_ext without applied forces."""
    applied = np.array(case.data.xfrc_applied)
    case.data.xfrc_applied[:] = 0
    mujoco.mj_rnePostConstraint(case.mjmodel, case.data)
    case.data.xfrc_applied[:] = applied
    return np.array(case.data.cfrc_ext)


def test_the_table_has_every_family():
    """Each type of row that MuJoCo lists, each law; all of them in the models here."""
    assert {family.kind for family in FAMILIES.values()} == set(ConstraintType)
    assert {family.law for family in FAMILIES.values()} == set(Law)
    seen = {rows.family for path, cone in CASES[:3] for rows in cases(path, cone)[0].fed.constraints.groups}
    # test_views.py has contacts without friction, tests/flex flexes
    assert seen == set(FAMILIES) - {"frictionless_contact", "flex_edge", "flex_vertex", "flex_strain"}


FLAGS = {
    DisableBit.CONSTRAINT: set(),
    DisableBit.EQUALITY: {
        "dof_friction",
        "tendon_friction",
        "limit_lower",
        "limit_upper",
        "limit_ball",
        "tendon_lower",
    },
    DisableBit.FRICTIONLOSS: {"limit_lower", "limit_upper", "limit_ball", "tendon_lower", "connect", "weld"},
    DisableBit.LIMIT: {
        "dof_friction",
        "tendon_friction",
        "connect",
        "weld",
        "joint_equality",
        "tendon_equality",
    },
}


@pytest.mark.parametrize("flag", FLAGS)
def test_flags_remove_rows(flag):
    model, _ = strict_pair("constraint_rows", PYRAMIDAL)
    case = cases("constraint_rows", PYRAMIDAL)[0]
    changed = model.replace(opt=dataclasses.replace(model.opt, disableflags=int(flag)))
    rows = jax.eval_shape(lambda: remake(changed, case))
    present = {group.family for group in rows.groups if group.count}
    assert present >= FLAGS[flag]
    off = {
        DisableBit.EQUALITY: "weld",
        DisableBit.FRICTIONLOSS: "dof_friction",
        DisableBit.LIMIT: "limit_lower",
    }
    assert off.get(flag) not in present
    assert flag != DisableBit.CONSTRAINT or not present


def remake(model, case):
    """Our rows of a case, for another model."""
    kinds = (Kinematics, ComFrame, Tendons, Velocities)
    records = [jax.tree.map(jnp.asarray, record_of(cls, case.mjmodel, case.data)) for cls in kinds]
    return make_constraints(sources_of(model, state_of(case.data), inputs_of(case.data), records, case.fed.contacts))
