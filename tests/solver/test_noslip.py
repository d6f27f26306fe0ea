"""noslip against the oracle: after few sweeps and at the fixed point; its derivative against differences."""

import copy
import functools
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from oracle import assert_close, field_of, load_oracle, mujoco, visited_states

from diffsim.base.enums import Cone, DisableBit
from diffsim.compiler.convert import from_mujoco
from diffsim.solver import solve
from diffsim.types import Model
from tests.constraint.feed import Fed, rows_of
from tests.solver.test_derivatives import (
    assert_equal_differences,
    assert_finite_where_rows_degenerate,
    assert_transposed,
    stacked,
    states_and_ways,
)
from tests.uncompiled import uncompiled
from tests.wide import wide

CASES = [
    ("constraint_rows", Cone.PYRAMIDAL),
    ("contact_dims", Cone.PYRAMIDAL),
    ("contact_dims", Cone.ELLIPTIC),
    ("dm_control/suite/finger.xml", Cone.PYRAMIDAL),
    ("mujoco/mjx/test_data/humanoid/humanoid.xml", Cone.PYRAMIDAL),
    ("mujoco/mjx/test_data/humanoid/humanoid.xml", Cone.ELLIPTIC),
    ("mujoco/mjx/test_data/quadratic_frictionloss.xml", Cone.ELLIPTIC),
    # asks for noslip itself, and keeps only its nearest contacts
    ("dm_control/suite/dog.xml", Cone.PYRAMIDAL),
]
# all sweeps in all islands: a variation of qM ties islands together
FIXED_POINT = (100, -1.0, int(DisableBit.ISLAND))


class Case(NamedTuple):
    model: Model
    data: Any
    fed: Fed
    problem: tuple


@functools.cache
def cases(path: str, cone: Cone, sweeps: int, tolerance: float, flags: int = 0) -> list[Case]:
    """States along a simulation; the main solver converges, noslip has `sweeps` sweeps at most."""
    mjmodel = copy.deepcopy(load_oracle(path))
    mjmodel.opt.cone, mjmodel.opt.solver = int(cone), int(mujoco.mjtSolver.mjSOL_NEWTON)
    mjmodel.opt.tolerance, mjmodel.opt.iterations, mjmodel.opt.ls_iterations = 1e-14, 1000, 100
    mjmodel.opt.noslip_iterations, mjmodel.opt.noslip_tolerance = sweeps, tolerance
    mjmodel.opt.disableflags |= flags
    model, found = from_mujoco(mjmodel), []
    for data in visited_states(mjmodel, 4, every=50):
        fed = rows_of(model, mjmodel, data)
        smooth = np.array(data.qfrc_smooth)
        problem = (
            field_of("M", mjmodel, data),
            smooth,
            np.zeros_like(smooth),
            fed.constraints,
            fed.contacts.sort_key,
        )
        found.append(Case(model, data, fed, problem))
    return found


# of a batch of problems, by numpy
solve_all = uncompiled(jax.vmap(solve, (None, 0, 0, 0, 0, 0)))


def assert_as_the_oracle(group: list[Case], atol: float) -> Any:
    solution = solve_all(group[0].model, *stacked([case.problem for case in group]))
    for name in ("qacc", "qfrc_constraint"):
        expected = np.stack([getattr(case.data, name) for case in group])
        assert_close(name, getattr(solution, name), expected, atol, rtol=atol)
    return solution


@pytest.mark.parametrize(("path", "cone"), CASES)
def test_few_sweeps_match(path: str, cone: Cone) -> None:
    assert_as_the_oracle(cases(path, cone, 3, 0.0), 1e-7)


@pytest.mark.parametrize("flags", [0, int(DisableBit.ISLAND)])
def test_each_island_stops_for_itself(flags: int) -> None:
    group = cases("contact_dims", Cone.ELLIPTIC, 50, 1e-6, flags)
    assert np.all(assert_as_the_oracle(group, 1e-7).solver_niter < 50)


# pyramids, more families: tests/gradient_matrix.py
@pytest.mark.parametrize(("path", "cone"), [CASES[2], *wide(CASES[:2])])
def test_derivatives_are_those_of_the_fixed_point(path: str, cone: Cone) -> None:
    group = cases(path, cone, *FIXED_POINT)[::2]
    model, problems = group[0].model, [case.problem[:4] for case in group]
    batch = states_and_ways(problems)
    tangents, checked = assert_equal_differences(model, *batch, step=1e-3)
    assert {"qM", "qfrc_smooth", "J", "D", "aref"} <= checked
    assert_transposed(model, problems, batch, tangents)


@pytest.mark.parametrize("cone", list(Cone))
def test_derivatives_are_finite_where_rows_degenerate(cone: Cone) -> None:
    case = cases("contact_dims", cone, 3, 0.0)[0]
    assert_finite_where_rows_degenerate(case, case.problem[:4])
