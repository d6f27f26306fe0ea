"""The solution against the oracle, both run to convergence; the optimum does not depend on how it was found."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracle import assert_close

from diffsim.base.enums import DisableBit, Solver
from diffsim.base.errors import UnsupportedError
from diffsim.compiler.host.interpret import interpret
from diffsim.math.linalg import blocks_of, columns_of, diagonal_of
from diffsim.solver import primal, solve
from diffsim.solver.hessian import factor_hessian, solve_hessian
from diffsim.solver.objective import Objective, cost, gradient, hessian, residuals
from diffsim.solver.solve import SOLVERS
from tests.constraint.cases import CASES, ELLIPTIC, HUMANOID, PYRAMIDAL, cases, strict_pair
from tests.solver.test_derivatives import stacked
from tests.uncompiled import uncompiled

solve_jit = jax.jit(solve)
# of a batch of problems, by numpy
solve_all = uncompiled(jax.vmap(solve, (None, 0, 0, 0, 0)))

DUAL = [
    ("constraint_rows", PYRAMIDAL),
    ("contact_dims", PYRAMIDAL),
    ("contact_dims", ELLIPTIC),
    (HUMANOID, ELLIPTIC),
]


def with_options(model, **options):
    return model.replace(opt=dataclasses.replace(model.opt, **options))


@pytest.mark.parametrize(("path", "cone"), CASES)
def test_solution_matches(path, cone):
    group = cases(path, cone)
    solution = solve_all(group[0].model, *stacked([case.problem for case in group]))
    for name in ("qacc", "qfrc_constraint"):
        expected = np.stack([getattr(case.data, name) for case in group])
        assert_close(name, getattr(solution, name), expected, 1e-7, rtol=1e-7)
    assert not np.any(solution.solver_stalled)
    assert np.all(solution.solver_niter < 20)


def test_every_solver_is_a_row():
    assert set(SOLVERS) == set(Solver)


@pytest.mark.parametrize(("path", "cone"), DUAL)
def test_projected_gauss_seidel_finds_the_same_optimum(path, cone):
    # sweeps converge linearly, and slowly where equalities are chained; a gain is never below -1
    model, _ = strict_pair(path, cone, Solver.PGS)
    model = with_options(model, iterations=15000 if path == "constraint_rows" else 3000, tolerance=jnp.asarray(-1.0))
    for case in cases(path, cone)[::2]:
        solution = solve_jit(model, *case.problem)
        assert_close("qacc", solution.qacc, case.data.qacc, 1e-7, rtol=1e-7)
        assert_close("qfrc_constraint", solution.qfrc_constraint, case.data.qfrc_constraint, 1e-7, rtol=1e-7)


def test_projected_gauss_seidel_stops_by_its_improvement():
    model, _ = strict_pair("contact_dims", ELLIPTIC, Solver.PGS)
    case = cases("contact_dims", ELLIPTIC)[0]
    rough = solve_jit(with_options(model, tolerance=jnp.asarray(1e-3)), *case.problem)
    fine = solve_jit(with_options(model, tolerance=jnp.asarray(1e-12)), *case.problem)
    assert not rough.solver_stalled
    assert 0 < rough.solver_niter < fine.solver_niter
    # whatever was found, the acceleration is that of the reported force
    qM, smooth, _, _ = case.problem
    assert_close("force", qM.mul_vec(rough.qacc) - smooth, np.asarray(rough.qfrc_constraint), 1e-10)
    with pytest.raises(UnsupportedError, match="unroll"):
        jax.eval_shape(solve, with_options(model, solver_gradient="unroll"), *case.problem)


@pytest.mark.parametrize(
    ("path", "cone"), [("contact_dims", PYRAMIDAL), ("contact_dims", ELLIPTIC), ("constraint_rows", PYRAMIDAL)]
)
def test_conjugate_gradient_finds_the_same_optimum(path, cone):
    model, _ = strict_pair(path, cone, Solver.CG)
    # a small improvement is no sign of the optimum, and a small step is none, in float32 neither
    model = with_options(model, tolerance=jnp.asarray(0.0), iterations=3000)
    for case in cases(path, cone):
        solution = solve_jit(model, *case.problem)
        assert not solution.solver_stalled
        assert_close("qacc", solution.qacc, case.data.qacc, 1e-7, rtol=1e-7)
    if cone == ELLIPTIC:
        single = solve_jit(*jax.tree.map(lambda a: jnp.asarray(a, jnp.float32), (model, *case.problem)))
        away = np.linalg.norm(single.qfrc_constraint - case.data.qfrc_constraint)
        assert away <= 5e-4 * np.linalg.norm(case.data.qfrc_constraint)


@pytest.mark.parametrize(("solver", "iterations"), [(Solver.CG, 100), (Solver.NEWTON, 1)])
def test_few_iterations_and_conjugate_gradients_start_from_the_better_of_two(solver, iterations):
    """A bad warm start costs nothing, and a good one helps."""
    model, _ = strict_pair("contact_dims", PYRAMIDAL, solver)
    model = with_options(model, iterations=iterations)
    qM, smooth, start, rows = cases("contact_dims", PYRAMIDAL)[0].problem
    cold = with_options(model, disableflags=int(DisableBit.WARMSTART))
    reference = solve_jit(cold, qM, smooth, start, rows)
    far = solve_jit(model, qM, smooth, start + 1e6, rows)
    assert far.solver_niter == reference.solver_niter
    # the same path in two programs, which round differently
    assert_close("qacc", far.qacc, np.asarray(reference.qacc), 1e-12, rtol=1e-12)
    again = solve_jit(model, qM, smooth, reference.qacc, rows)
    if solver == Solver.CG:
        assert again.solver_niter < reference.solver_niter
    else:
        costs = [
            cost(Objective(qM, smooth, rows), end.qacc, qM.mul_vec(end.qacc), rows.J @ end.qacc)
            for end in (again, reference)
        ]
        assert costs[0] < costs[1]


@pytest.mark.parametrize("solver", [Solver.NEWTON, Solver.CG])
@pytest.mark.parametrize("path", ["contact_dims", HUMANOID])
def test_contacts_that_do_not_act_can_be_left_out(path, solver, monkeypatch):
    """Of all slots a half, a fourth, or fewer than there are contacts that act: then all are searched."""
    group = cases(path, ELLIPTIC)
    problems = [case.problem for case in group]
    model = with_options(group[0].model, solver=solver, iterations=200)
    whole = solve_all(model, *stacked(problems))
    slots = [rows.count for rows in problems[0][3].contacts]
    acting = np.array([[np.sum(np.any(rows.D != 0, axis=0)) for rows in p[3].contacts] for p in problems])
    few = [number for number, most in enumerate(acting.max(axis=1)) if most <= max(slots) // 2]
    assert few and max(slots) > 3
    monkeypatch.setattr(primal, "MANY", 2)
    for share, chosen in ((2, few), (2, range(len(group))), (max(slots), range(len(group)))):
        monkeypatch.setattr(primal, "SHARE", share)
        solution = solve_all(model, *stacked([problems[number] for number in chosen]))
        for name in ("qacc", "qfrc_constraint", "row_force", "solver_niter"):
            assert_close(name, getattr(solution, name), getattr(whole, name)[np.array(chosen)], 1e-9, rtol=1e-9)


def test_start_does_not_change_the_optimum():
    case = cases(HUMANOID, PYRAMIDAL)[3]
    qM, smooth, start, rows = case.problem
    reference = solve_jit(case.model, qM, smooth, start, rows)
    far = solve_jit(case.model, qM, smooth, start + 1e3 * np.random.default_rng(0).normal(size=start.shape), rows)
    assert_close("qacc", far.qacc, np.asarray(reference.qacc), 1e-8, rtol=1e-8)
    cold = with_options(case.model, disableflags=int(DisableBit.WARMSTART))
    assert_close("qacc", solve_jit(cold, *case.problem).qacc, np.asarray(reference.qacc), 1e-8, rtol=1e-8)


def test_one_iteration_descends():
    # MJX's setting: a fixed small budget must still give a usable step
    case = cases(HUMANOID, PYRAMIDAL)[3]
    model = with_options(case.model, iterations=1, ls_iterations=4)
    solution = solve_jit(model, *case.problem)
    qM, smooth, start, rows = case.problem
    before = np.linalg.norm(gradient(Objective(qM, smooth, rows), jnp.asarray(start)))
    assert np.linalg.norm(gradient(Objective(qM, smooth, rows), solution.qacc)) < before
    assert solution.solver_niter == 1


@pytest.mark.parametrize("path", [HUMANOID, "contact_dims"])
def test_float32_does_not_stall(path):
    """Rounding ends the search before the tolerance of 1e-8 does."""
    for case in cases(path, PYRAMIDAL):
        model = with_options(case.model, iterations=100, ls_iterations=50, tolerance=jnp.asarray(1e-8))
        single = jax.tree.map(lambda a: jnp.asarray(a, jnp.float32), (model, *case.problem))
        solution = solve_jit(*single)
        assert solution.qacc.dtype == jnp.float32
        assert not solution.solver_stalled
        assert solution.solver_niter <= 12
        scale = np.max(np.abs(case.data.qacc))
        assert_close("qacc", np.asarray(solution.qacc) / scale, case.data.qacc / scale, 1e-4)


def test_batch_equals_loop():
    group = cases(HUMANOID, PYRAMIDAL)
    model = group[0].model
    batch = jax.jit(jax.vmap(solve, in_axes=(None, 0, 0, 0, 0)))(model, *stacked([case.problem for case in group]))
    for index, case in enumerate(group):
        alone = solve_jit(model, *case.problem)
        assert_close("qacc", batch.qacc[index], np.asarray(alone.qacc), 1e-9, rtol=1e-9)
        assert batch.solver_niter[index] == alone.solver_niter


def test_many_trees_are_solved_by_tree():
    """One dense factor gives the same solution as the factors of the trees."""
    case = cases("many_trees", ELLIPTIC)[2]
    qM, smooth, start, rows = case.problem
    whole = blocks_of(np.zeros(case.model.nv, int))
    assert whole.single
    assert not qM.blocks.single
    x = interpret(lambda rows: residuals(rows, start, rows.J @ start), rows)
    in_one_block = dataclasses.replace(rows, jacobian=columns_of(whole, rows.J))
    in_one = Objective(diagonal_of(whole, qM.dense), smooth, in_one_block)
    dense = interpret(lambda objective: hessian(objective, x).dense, in_one)
    objective = Objective(qM, smooth, rows)
    by_tree = interpret(lambda o: solve_hessian(factor_hessian(o, x), o, x, smooth), objective)
    assert_close("H^-1 b", by_tree, np.linalg.solve(dense, smooth), 1e-9, rtol=1e-9)
