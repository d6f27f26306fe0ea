"""Models of the constraint and solver tests, both sides set to run to convergence, with a few states each."""

import copy
import functools
from typing import Any, NamedTuple

import numpy as np
from oracle import field_of, load_oracle, visited_states

from diffsim.base.enums import Cone, Solver
from diffsim.compiler.convert import from_mujoco
from diffsim.types import Model
from tests.constraint.feed import Fed, rows_of

PYRAMIDAL, ELLIPTIC = Cone.PYRAMIDAL, Cone.ELLIPTIC
HUMANOID = "mujoco/mjx/test_data/humanoid/humanoid.xml"

# (model, cone): every family, every contact dimension under both cones, and models that nobody here wrote
CASES = [
    ("constraint_rows", PYRAMIDAL),
    ("contact_dims", PYRAMIDAL),
    ("contact_dims", ELLIPTIC),
    (HUMANOID, PYRAMIDAL),
    (HUMANOID, ELLIPTIC),
    ("dm_control/suite/hopper.xml", PYRAMIDAL),
    ("dm_control/suite/cheetah.xml", PYRAMIDAL),
    ("gymnasium/envs/mujoco/assets/ant.xml", PYRAMIDAL),
    ("mujoco/mjx/test_data/quadratic_frictionloss.xml", ELLIPTIC),
    ("many_trees", PYRAMIDAL),
    ("many_trees", ELLIPTIC),
]


class Case(NamedTuple):
    """One state: the oracle's model and data, our model and rows."""

    model: Model
    mjmodel: Any
    data: Any
    fed: Fed

    @property
    def problem(self) -> tuple:
        """What `solve` takes after the model: M, qfrc_smooth, qacc_warmstart, constraints."""
        smooth = np.array(self.data.qfrc_smooth)
        return field_of("M", self.mjmodel, self.data), smooth, np.zeros_like(smooth), self.fed.constraints


@functools.cache
def strict_pair(path: str, cone: Cone, solver: Solver = Solver.NEWTON, noslip: int = 0) -> tuple[Model, Any]:
    """(ours, oracle) with tolerances at rounding."""
    mjmodel = copy.deepcopy(load_oracle(path))
    mjmodel.opt.cone, mjmodel.opt.solver = int(cone), int(solver)
    mjmodel.opt.tolerance, mjmodel.opt.iterations, mjmodel.opt.ls_iterations = 1e-14, 1000, 100
    mjmodel.opt.noslip_iterations, mjmodel.opt.noslip_tolerance = noslip, 0.0
    return from_mujoco(mjmodel), mjmodel


@functools.cache
def cases(path: str, cone: Cone, count: int = 4, noslip: int = 0) -> list[Case]:
    """States along a simulation, and our rows there."""
    model, mjmodel = strict_pair(path, cone, noslip=noslip)
    states = visited_states(mjmodel, count, every=50)
    return [Case(model, mjmodel, data, rows_of(model, mjmodel, data)) for data in states]
