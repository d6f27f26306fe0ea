"""The implicit derivative against central differences, forward against reverse, and through vmap, scan, checkpoint."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracle import assert_close, inputs_of, record_of, state_of

from diffsim.constraint import Sources, make_constraints
from diffsim.enums import Solver
from diffsim.solver import solve
from diffsim.types.data import ComFrame, Kinematics, Tendons, Velocities
from tests.constraint.cases import ELLIPTIC, HUMANOID, PYRAMIDAL, cases

DIFFERENTIATED = [
    ("constraint_rows", PYRAMIDAL),
    ("contact_dims", PYRAMIDAL),
    ("contact_dims", ELLIPTIC),
    (HUMANOID, PYRAMIDAL),
    ("many_trees", ELLIPTIC),
]
SMALL = "dm_control/suite/hopper.xml"
LEAVES = ("D", "aref", "frictionloss", "friction", "mu")


def acceleration(model, problem):
    """Both outputs as one vector."""
    solution = solve(model, *problem)
    return jnp.concatenate([solution.qacc, solution.qfrc_constraint])


value = jax.jit(acceleration)
forward = jax.jit(lambda model, problem, way: jax.jvp(lambda p: acceleration(model, p), (problem,), (way,))[1])
backward = jax.jit(lambda model, problem, weight: jax.vjp(lambda p: acceleration(model, p), problem)[1](weight)[0])


def richardson(f, step):
    """Central difference of f at 0, fourth order."""
    wide = (np.asarray(f(2 * step)) - np.asarray(f(-2 * step))) / (4 * step)
    return (4 * (np.asarray(f(step)) - np.asarray(f(-step))) / (2 * step) - wide) / 3


def symmetric_noise(rng, blocks):
    """Symmetric changes of 1% of matrices (count, n, n)."""
    root = np.sqrt(np.diagonal(blocks, axis1=1, axis2=2))
    noise = rng.normal(size=blocks.shape) * root[:, :, None] * root[:, None, :]
    return 0.01 * (noise + np.swapaxes(noise, 1, 2))


def directions(problem, seed):
    """One random direction per input: qM (symmetric), qfrc_smooth, J, and each leaf of the rows, all rows at once."""
    rng = np.random.default_rng(seed)
    qM, smooth, _, rows = problem
    zero = jax.tree.map(np.zeros_like, problem)

    def scaled(leaf):
        leaf = np.asarray(leaf)
        return np.abs(leaf) * rng.normal(size=leaf.shape)

    yield "qM", (jax.tree.map(lambda part: symmetric_noise(rng, part), qM), *zero[1:])
    yield "qfrc_smooth", (zero[0], 10 * rng.normal(size=smooth.shape), *zero[2:])
    yield "J", (*zero[:3], zero[3].replace(jacobian=jax.tree.map(scaled, rows.jacobian)))
    for name in LEAVES:
        pairs = zip(zero[3].groups, rows.groups, strict=True)
        groups = tuple(none.replace(**{name: scaled(getattr(own, name))}) for none, own in pairs)
        yield name, (*zero[:3], zero[3].replace(groups=groups))


def along(problem, way, t):
    return jax.tree.map(lambda a, b: np.asarray(a) + t * b, problem, way)


@pytest.mark.parametrize(("path", "cone"), DIFFERENTIATED)
def test_against_differences(path, cone):
    checked = set()
    for index, case in enumerate(cases(path, cone)):
        for name, way in directions(case.problem, index):
            expected = richardson(lambda t: value(case.model, along(case.problem, way, t)), 1e-5)  # noqa: B023
            tangent = np.asarray(forward(case.model, case.problem, way))
            scale = max(1.0, np.max(np.abs(expected)))
            assert_close(f"d qacc / d {name}", tangent / scale, expected / scale, 1e-6)
            if np.any(expected):
                checked.add(name)
    assert {"qM", "qfrc_smooth", "J", "D", "aref"} <= checked


@pytest.mark.parametrize(("path", "cone"), DIFFERENTIATED)
def test_reverse_is_the_transpose(path, cone):
    for index, case in enumerate(cases(path, cone)):
        weight = np.random.default_rng(9).normal(size=2 * case.model.nv)
        cotangent = backward(case.model, case.problem, weight)
        for name, way in directions(case.problem, index):
            reverse = sum(np.vdot(a, b) for a, b in zip(jax.tree.leaves(cotangent), jax.tree.leaves(way), strict=True))
            expected = np.vdot(weight, forward(case.model, case.problem, way))
            assert abs(reverse - expected) <= 1e-9 * max(1.0, abs(expected)), name


def inputs_and_rows(case):
    """The numbers that the rows come from, as one pytree, and the function from them to the accelerations."""
    records = [record_of(cls, case.mjmodel, case.data) for cls in (Kinematics, ComFrame, Tendons, Velocities)]
    numbers = (case.model, state_of(case.data), tuple(records), case.fed.contacts)
    qM, smooth, start, _ = case.problem

    def run(numbers):
        model, state, records, contacts = numbers
        rows = make_constraints(Sources(model, state, inputs_of(case.data), *records, contacts))
        return acceleration(case.model, (qM, smooth, start, rows))

    return numbers, run


PARAMETERS = {
    "constraint_rows": """jnt_range jnt_solref jnt_solimp jnt_margin dof_frictionloss dof_solref dof_invweight0
        tendon_range tendon_frictionloss tendon_invweight0 tendon_solref_lim eq_data eq_solref eq_solimp
        body_invweight0 qpos0""",
    "contact_dims": "body_invweight0",
}


@pytest.mark.parametrize(("path", "cone"), DIFFERENTIATED[:3])
def test_through_the_rows(path, cone):
    """aref depends on state, impedance and parameters: all of it arrives in qacc."""
    case = cases(path, cone)[1]
    numbers, run = inputs_and_rows(case)
    rng = np.random.default_rng(3)
    zero = jax.tree.map(
        lambda a: np.zeros_like(a) if a.dtype == float else np.zeros(a.shape, jax.dtypes.float0), numbers
    )
    model, state, _, contacts = numbers
    ways = {"qvel": (zero[0], zero[1].replace(qvel=rng.normal(size=state.qvel.shape)), *zero[2:])}
    for name in PARAMETERS[path].split():
        leaf = np.asarray(getattr(model, name))
        way = 0.1 * np.abs(leaf) * rng.normal(size=leaf.shape)
        ways[name] = (dataclasses.replace(zero[0], **{name: way}), *zero[1:])
    for name in ("impratio", "timestep"):
        opt = dataclasses.replace(zero[0].opt, **{name: np.ones(())})
        ways[name] = (dataclasses.replace(zero[0], opt=opt), *zero[1:])
    for name in ("dist", "pos", "friction", "solref", "solimp", "solreffriction", "includemargin"):
        leaf = np.where(contacts.geom[:, 0] >= 0, 1.0, 0.0)
        leaf = leaf.reshape(-1, *[1] * (getattr(contacts, name).ndim - 1)) * np.abs(getattr(contacts, name))
        way = 0.01 * leaf * rng.normal(size=leaf.shape)
        ways[name] = (*zero[:3], dataclasses.replace(zero[3], **{name: way}))
    tangent_of = jax.jit(lambda way: jax.jvp(run, (numbers,), (way,))[1])
    value_of = jax.jit(run)
    for name, way in ways.items():
        expected = richardson(lambda t: value_of(shifted(numbers, way, t)), 1e-5)  # noqa: B023
        scale = max(1.0, np.max(np.abs(expected)))
        assert_close(f"d qacc / d {name}", np.asarray(tangent_of(way)) / scale, expected / scale, 1e-6)


def no_change(leaf):
    return np.zeros_like(leaf) if leaf.dtype == float else np.zeros(leaf.shape, jax.dtypes.float0)


def shifted(numbers, way, t):
    return jax.tree.map(lambda a, b: a if b.dtype == jax.dtypes.float0 else np.asarray(a) + t * b, numbers, way)


def test_composes_with_transformations():
    """vmap, scan and checkpoint of reverse mode agree with the plain gradient."""
    group = cases(SMALL, ELLIPTIC)[2:]
    model = group[0].model
    problems = jax.tree.map(
        lambda *leaves: jnp.stack([jnp.asarray(leaf) for leaf in leaves]), *[c.problem for c in group]
    )

    def loss(smooth, problem):
        return jnp.sum(jnp.sin(acceleration(model, (problem[0], smooth, *problem[2:]))))

    plain = jax.jit(jax.grad(loss))
    expected = np.stack([plain(jnp.asarray(c.problem[1]), jax.tree.map(jnp.asarray, c.problem)) for c in group])
    mapped = jax.jit(jax.vmap(jax.grad(loss)))(problems[1], problems)
    assert_close("vmap", mapped, expected, 1e-9, rtol=1e-9)

    def scanned(smooth):
        body = jax.checkpoint(lambda total, xs: (total + loss(*xs), None))
        return jax.lax.scan(body, jnp.zeros(()), (smooth, problems))[0]

    assert_close("scan", jax.jit(jax.grad(scanned))(problems[1]), expected, 1e-9, rtol=1e-9)


@pytest.mark.parametrize(("path", "cone"), DIFFERENTIATED[:3])
def test_second_derivatives(path, cone):
    """The tangent is differentiable in its turn, forward over forward and forward over reverse."""
    case = cases(path, cone)[2]
    every = dict(directions(case.problem, 5))
    weight = np.random.default_rng(6).normal(size=2 * case.model.nv)

    @jax.jit
    def slopes(problem, way):
        slope = jax.jvp(lambda p: acceleration(case.model, p), (problem,), (way,))[1]
        return slope, jax.jvp(jax.grad(lambda p: weight @ acceleration(case.model, p)), (problem,), (way,))[1]

    @jax.jit
    def second(problem, way, other):
        return jax.jvp(lambda p: slopes(p, way)[0], (problem,), (other,))[1]

    bends = 0
    for first, then in [("aref", "aref"), ("J", "aref"), ("qM", "J"), ("D", "qfrc_smooth"), ("friction", "D")]:
        way, other = every[first], every[then]
        expected = richardson(lambda t: slopes(along(case.problem, other, t), way)[0], 1e-5)  # noqa: B023
        scale = max(1.0, np.max(np.abs(expected)))
        found = np.asarray(second(case.problem, way, other))
        assert_close(f"{first} {then}", found / scale, expected / scale, 1e-6)
        reverse = slopes(case.problem, way)[1]
        inner = sum(np.vdot(a, b) for a, b in zip(jax.tree.leaves(reverse), jax.tree.leaves(other), strict=True))
        assert abs(inner - weight @ found) <= 1e-8 * max(1.0, abs(inner), scale)
        bends += bool(np.any(np.abs(expected) > 1e-3))
    assert bends >= 2


def test_memory_of_reverse_mode_does_not_grow_with_iterations():
    def temporary(iterations):
        case = cases(SMALL, ELLIPTIC)[0]
        model = case.model.replace(opt=case.model.opt.replace(iterations=iterations))
        loss = jax.grad(lambda problem: jnp.sum(acceleration(model, problem)))
        return jax.jit(loss).lower(case.problem).compile().memory_analysis().temp_size_in_bytes

    assert temporary(3) == temporary(100) > 0


def test_unrolled_gradient_agrees_at_convergence():
    case = cases(SMALL, ELLIPTIC)[2]
    opt = dataclasses.replace(case.model.opt, solver_gradient="unroll", iterations=12, ls_iterations=30)
    way = dict(directions(case.problem, 0))["aref"]
    unrolled = forward(case.model.replace(opt=opt), case.problem, way)
    implicit = forward(case.model, case.problem, way)
    assert_close("tangent", unrolled, np.asarray(implicit), 1e-6, rtol=1e-6)


@pytest.mark.parametrize(("iterations", "cone"), [(1, PYRAMIDAL), (4, PYRAMIDAL), (2, ELLIPTIC), (8, ELLIPTIC)])
def test_unrolled_iterations_equal_differences(iterations, cone):
    """The step length is differentiated, and so is the warm start; converged or not."""
    for index, case in enumerate(cases("contact_dims", cone)[:3]):
        qM, smooth, start, rows = case.problem
        model = case.model.replace(opt=case.model.opt.replace(solver_gradient="unroll", iterations=iterations))
        noise = np.random.default_rng(index).normal(size=start.shape)
        problem = (qM, smooth, start + noise, rows)
        zero = jax.tree.map(np.zeros_like, problem)
        for name, way in [*directions(problem, index), ("start", (zero[0], zero[1], noise, zero[3]))]:
            expected = richardson(lambda t: value(model, along(problem, way, t)), 1e-5)  # noqa: B023
            tangent = np.asarray(forward(model, problem, way))
            scale = max(1.0, np.max(np.abs(expected)))
            assert_close(f"d qacc / d {name}", tangent / scale, expected / scale, 1e-6)


@pytest.mark.parametrize("cone", [PYRAMIDAL, ELLIPTIC])
@pytest.mark.parametrize("kind", ["nothing active", "no slip", "no friction", "tip"])
def test_gradient_is_finite_where_rows_degenerate(cone, kind):
    case = cases("contact_dims", cone)[0]
    qM, smooth, start, rows = case.problem
    changes = {
        "nothing active": {"D": 0.0},
        "no slip": {"aref": None},
        "no friction": {"friction": 0.0, "mu": 0.0},
        "tip": {"aref": 0.0},
    }[kind]
    groups = []
    for group in rows.groups:
        aref = np.array(group.aref)
        aref[1:] = 0
        wanted = {k: aref if v is None else np.full_like(np.asarray(getattr(group, k)), v) for k, v in changes.items()}
        groups.append(group if group.slot is None else group.replace(**wanted))
    changed = rows.replace(groups=tuple(groups))
    if kind in ("no slip", "tip"):
        smooth = np.zeros_like(smooth)
    cotangent = backward(case.model, (qM, smooth, start, changed), np.ones(2 * case.model.nv))
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(cotangent))


@pytest.mark.parametrize("cone", [PYRAMIDAL, ELLIPTIC])
def test_every_solver_has_the_same_derivative(cone):
    for index, case in enumerate(cases("contact_dims", cone)[:2]):
        for name, way in directions(case.problem, index):
            expected = np.asarray(forward(case.model, case.problem, way))
            for solver in (Solver.CG, Solver.PGS):
                opt = dataclasses.replace(case.model.opt, solver=solver, iterations=3000, tolerance=jnp.asarray(0.0))
                tangent = forward(case.model.replace(opt=opt), case.problem, way)
                scale = max(1.0, np.max(np.abs(expected)))
                assert_close(f"{solver.name} {name}", np.asarray(tangent) / scale, expected / scale, 1e-6)
