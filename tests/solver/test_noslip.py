"""noslip against the oracle: after few sweeps and at the fixed point; its derivative against differences."""

import copy
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracle import assert_close, field_of, load_oracle, mujoco, visited_states

from diffsim.compiler.convert import from_mujoco
from diffsim.enums import Cone, DisableBit
from diffsim.solver import solve
from diffsim.types import Model
from tests.constraint.feed import Fed, rows_of
from tests.solver.test_derivatives import directions, richardson

DOG, FLY = "dm_control/suite/dog.xml", "dm_control/locomotion/walkers/assets/fruitfly_v2/fruitfly.xml"
CASES = [
    ("constraint_rows", Cone.PYRAMIDAL),
    ("contact_dims", Cone.PYRAMIDAL),
    ("contact_dims", Cone.ELLIPTIC),
    ("dm_control/suite/finger.xml", Cone.PYRAMIDAL),
    ("mujoco/mjx/test_data/humanoid/humanoid.xml", Cone.PYRAMIDAL),
    ("mujoco/mjx/test_data/humanoid/humanoid.xml", Cone.ELLIPTIC),
    ("mujoco/mjx/test_data/quadratic_frictionloss.xml", Cone.ELLIPTIC),
]


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
        problem = (field_of("qM", mjmodel, data), smooth, np.zeros_like(smooth), fed.constraints, fed.contacts.rank)
        found.append(Case(model, data, fed, problem))
    return found


solve_jit = jax.jit(solve)


def assert_as_the_oracle(group: list[Case], atol: float) -> None:
    for case in group:
        solution = solve_jit(case.model, *case.problem)
        assert_close("qacc", solution.qacc, case.data.qacc, atol, rtol=atol)
        assert_close("qfrc_constraint", solution.qfrc_constraint, case.data.qfrc_constraint, atol, rtol=atol)


@pytest.mark.parametrize(("path", "cone"), CASES)
@pytest.mark.parametrize("sweeps", [1, 3])
def test_few_sweeps_match(path: str, cone: Cone, sweeps: int) -> None:
    assert_as_the_oracle(cases(path, cone, sweeps, 0.0), 1e-7)
