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
from tests.solver.test_derivatives import along, directions, richardson

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
        problem = (field_of("M", mjmodel, data), smooth, np.zeros_like(smooth), fed.constraints, fed.contacts.sort_key)
        found.append(Case(model, data, fed, problem))
    return found


solve_jit = jax.jit(solve)


def assert_as_the_oracle(group: list[Case], atol: float) -> None:
    for case in group:
        solution = solve_jit(case.model, *case.problem)
        assert_close("qacc", solution.qacc, case.data.qacc, atol, rtol=atol)
        assert_close("qfrc_constraint", solution.qfrc_constraint, case.data.qfrc_constraint, atol, rtol=atol)


@pytest.mark.parametrize(("path", "cone"), CASES)
def test_few_sweeps_match(path: str, cone: Cone) -> None:
    assert_as_the_oracle(cases(path, cone, 3, 0.0), 1e-7)


@pytest.mark.parametrize("flags", [0, int(DisableBit.ISLAND)])
def test_each_island_stops_for_itself(flags: int) -> None:
    group = cases("contact_dims", Cone.ELLIPTIC, 50, 1e-6, flags)
    assert_as_the_oracle(group, 1e-7)
    sweeps = [int(solve_jit(case.model, *case.problem).solver_niter) for case in group]
    assert all(count < 50 for count in sweeps)


def acceleration(model: Model, problem: tuple) -> jax.Array:
    solution = solve(model, *problem)
    return jnp.concatenate([solution.qacc, solution.qfrc_constraint])


value = jax.jit(acceleration)
forward = jax.jit(lambda model, problem, way: jax.jvp(lambda p: acceleration(model, p), (problem,), (way,))[1])
backward = jax.jit(lambda model, problem, weight: jax.vjp(lambda p: acceleration(model, p), problem)[1](weight)[0])


@pytest.mark.parametrize(("path", "cone"), CASES[:3])
def test_derivatives_are_those_of_the_fixed_point(path: str, cone: Cone) -> None:
    checked = set()
    for index, case in enumerate(cases(path, cone, *FIXED_POINT)[::2]):
        problem = case.problem[:4]
        weight = np.random.default_rng(9).normal(size=2 * case.model.nv)
        cotangent = jax.tree.leaves(backward(case.model, problem, weight))
        for name, way in directions(problem, index):
            expected = richardson(lambda t: value(case.model, along(problem, way, t)), 1e-3)  # noqa: B023
            tangent = np.asarray(forward(case.model, problem, way))
            scale = max(1.0, np.max(np.abs(expected)))
            assert_close(f"d qacc / d {name}", tangent / scale, expected / scale, 1e-6)
            reverse = sum(np.vdot(a, b) for a, b in zip(cotangent, jax.tree.leaves(way), strict=True))
            assert reverse == pytest.approx(np.vdot(weight, tangent), rel=1e-9, abs=1e-9 * scale), name
            if np.any(expected):
                checked.add(name)
    assert {"qM", "qfrc_smooth", "J", "D", "aref"} <= checked


@pytest.mark.parametrize("cone", list(Cone))
@pytest.mark.parametrize("change", ["no contact", "no slip", "no friction", "nothing moves"])
def test_derivatives_are_finite_where_rows_degenerate(cone: Cone, change: str) -> None:
    case = cases("contact_dims", cone, *FIXED_POINT)[0]
    qM, smooth, start, rows = case.problem[:4]
    groups = []
    for group in rows.groups:
        aref = np.array(group.aref)
        aref[1:] = 0
        fields = {
            "no contact": {"D": np.zeros_like(group.D)},
            "no slip": {"aref": aref},
            "no friction": {"friction": np.zeros_like(group.friction), "mu": np.zeros_like(group.mu)},
            "nothing moves": {"aref": np.zeros_like(aref)},
        }
        groups.append(group if group.slot is None else group.replace(**fields[change]))
    smooth = np.zeros_like(smooth) if change in ("no slip", "nothing moves") else smooth
    problem = (qM, smooth, start, rows.replace(groups=tuple(groups)))
    cotangent = backward(case.model, problem, np.ones(2 * case.model.nv))
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(cotangent))
