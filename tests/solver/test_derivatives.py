"""The implicit derivative against central differences, forward against reverse, and through vmap, scan, checkpoint."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracle import assert_close, inputs_of, record_of, state_of

from diffsim.base.enums import Solver
from diffsim.constraint import make_constraints
from diffsim.solver import solve
from diffsim.types.data import ComFrame, Kinematics, Tendons, Velocities
from tests.constraint.cases import ELLIPTIC, HUMANOID, PYRAMIDAL, cases
from tests.constraint.feed import sources_of
from tests.derivatives import richardson
from tests.uncompiled import uncompiled
from tests.wide import wide

DIFFERENTIATED = [
    ("constraint_rows", PYRAMIDAL),
    ("contact_dims", PYRAMIDAL),
    ("contact_dims", ELLIPTIC),
    (HUMANOID, PYRAMIDAL),
    *wide([("many_trees", ELLIPTIC)]),
]
SMALL = "dm_control/suite/hopper.xml"
LEAVES = ("D", "aref", "frictionloss", "friction", "mu")


def acceleration(model, problem):
    """Both outputs as one vector."""
    solution = solve(model, *problem)
    return jnp.concatenate([solution.qacc, solution.qfrc_constraint])


def tangent_of(model, problem, way):
    return jax.jvp(lambda p: acceleration(model, p), (problem,), (way,))[1]


def cotangent_of(model, problem, weight):
    return jax.vjp(lambda p: acceleration(model, p), problem)[1](weight)[0]


class Batched(NamedTuple):
    """Accelerations, tangents and cotangents of a batch of problems."""

    value: Any
    forward: Any
    backward: Any


def batched(compiled):
    value = jax.vmap(acceleration, (None, 0))
    return Batched(compiled(value), *(compiled(jax.vmap(f, (None, 0, 0))) for f in (tangent_of, cotangent_of)))


# numpy runs a batch in the time of one
value, forward, backward = by_numpy = batched(uncompiled)


def stacked(items):
    """Pytrees of the same structure as one with another axis in front."""
    return jax.tree.map(lambda *leaves: np.stack(leaves), *items)


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


def states_and_ways(problems):
    """Each problem with each of its directions: names, and one batch of problems and directions."""
    found = [(name, each, way) for index, each in enumerate(problems) for name, way in directions(each, index)]
    names, given, ways = zip(*found, strict=True)
    return names, stacked(given), stacked(ways)


def assert_equal_differences(model, names, problems, ways, step=1e-5, run=by_numpy):
    """Tangents are differences; returns the tangents, and the names of inputs that matter."""
    expected = richardson(lambda t: run.value(model, along(problems, ways, t)), 1.0, step)
    tangents = np.asarray(run.forward(model, problems, ways))
    for name, tangent, difference in zip(names, tangents, expected, strict=True):
        scale = max(1.0, np.max(np.abs(difference)))
        assert_close(f"d qacc / d {name}", tangent / scale, difference / scale, 1e-6)
    return tangents, {name for name, difference in zip(names, expected, strict=True) if np.any(difference)}


def assert_transposed(model, problems, batch, tangents, run=by_numpy):
    """Reverse mode is the transpose: `batch` has each of the problems with the same number of directions."""
    names, _, ways = batch
    weights = np.random.default_rng(9).normal(size=(len(problems), 2 * model.nv))
    cotangents = jax.tree.map(np.asarray, run.backward(model, stacked(problems), weights))
    for k, (name, tangent) in enumerate(zip(names, tangents, strict=True)):
        state = k * len(problems) // len(names)
        leaves = zip(jax.tree.leaves(cotangents), jax.tree.leaves(ways), strict=True)
        reverse = sum(np.vdot(a[state], b[k]) for a, b in leaves)
        expected = np.vdot(weights[state], tangent)
        assert abs(reverse - expected) <= 1e-9 * max(1.0, abs(expected)), name


@pytest.mark.parametrize(("path", "cone"), DIFFERENTIATED)
def test_against_differences(path, cone):
    group = cases(path, cone)[: 1 if path == "many_trees" else 4]
    model, problems = group[0].model, [case.problem for case in group]
    batch = states_and_ways(problems)
    tangents, checked = assert_equal_differences(model, *batch)
    assert {"qM", "qfrc_smooth", "J", "D", "aref"} <= checked
    assert_transposed(model, problems, batch, tangents)


def inputs_and_rows(case):
    """The numbers that the rows come from, as one pytree, and the function from them to the accelerations."""
    records = [record_of(cls, case.mjmodel, case.data) for cls in (Kinematics, ComFrame, Tendons, Velocities)]
    numbers = (case.model, state_of(case.data), tuple(records), case.fed.contacts)
    qM, smooth, start, _ = case.problem

    def run(numbers):
        model, state, records, contacts = numbers
        rows = make_constraints(sources_of(model, state, inputs_of(case.data), records, contacts))
        return acceleration(case.model, (qM, smooth, start, rows))

    return numbers, run


PARAMETERS = {
    "constraint_rows": """jnt_range jnt_solref jnt_solimp jnt_margin dof_frictionloss dof_solref dof_invweight0
        tendon_range tendon_frictionloss tendon_invweight0 tendon_solref_lim eq_data eq_solref eq_solimp
        body_invweight0 qpos0""",
    "contact_dims": "body_invweight0",
}


# through pyramids: tests/gradients/test_step.py
@pytest.mark.parametrize(("path", "cone"), DIFFERENTIATED[:3:2])
def test_through_the_rows(path, cone):
    """aref depends on state, impedance and parameters: all of it arrives in qacc."""
    case = cases(path, cone)[1]
    numbers, run = inputs_and_rows(case)
    rng = np.random.default_rng(3)
    zero = jax.tree.map(np.zeros_like, numbers)
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
    leaves, structure = jax.tree.flatten(jax.tree.map(np.asarray, numbers))
    places = [k for k, leaf in enumerate(leaves) if leaf.dtype == float]
    values = [leaves[k] for k in places]
    batch = [np.stack(parts) for parts in zip(*(floats_at(way, places) for way in ways.values()), strict=True)]

    def at(values):
        merged = dict(enumerate(leaves)) | dict(zip(places, values, strict=True))
        return run(jax.tree.unflatten(structure, merged.values()))

    value_of = uncompiled(jax.vmap(at))
    tangent_of = uncompiled(jax.vmap(lambda way: jax.jvp(at, (values,), (way,))[1]))
    expected = richardson(lambda t: value_of([a + t * b for a, b in zip(values, batch, strict=True)]), 1.0, 1e-5)
    for name, tangent, difference in zip(ways, tangent_of(batch), expected, strict=True):
        scale = max(1.0, np.max(np.abs(difference)))
        assert_close(f"d qacc / d {name}", tangent / scale, difference / scale, 1e-6)


def floats_at(tree, places):
    """The leaves at these places."""
    leaves = jax.tree.leaves(tree)
    return [np.asarray(leaves[k]) for k in places]


def test_composes_with_transformations():
    """vmap, scan and checkpoint of reverse mode agree with the plain gradient."""
    group = cases(SMALL, ELLIPTIC)[2:]
    model = group[0].model
    problems = stacked([case.problem for case in group])

    def loss(smooth, problem):
        return jnp.sum(jnp.sin(acceleration(model, (problem[0], smooth, *problem[2:]))))

    plain = uncompiled(jax.grad(loss))
    expected = np.stack([plain(c.problem[1], c.problem) for c in group])
    mapped = uncompiled(jax.vmap(jax.grad(loss)))(problems[1], problems)
    assert_close("vmap", mapped, expected, 1e-9, rtol=1e-9)

    def scanned(smooth):
        body = jax.checkpoint(lambda total, xs: (total + loss(*xs), None))
        return jax.lax.scan(body, jnp.zeros(()), (smooth, problems))[0]

    assert_close("scan", jax.jit(jax.grad(scanned))(problems[1]), expected, 1e-9, rtol=1e-9)


def second_of(model, problem, way, other):
    return jax.jvp(lambda p: tangent_of(model, p, way), (problem,), (other,))[1]


def bent_of(model, problem, way, weight):
    return jax.jvp(jax.grad(lambda p: weight @ acceleration(model, p)), (problem,), (way,))[1]


second, bent = (uncompiled(jax.vmap(f, (None, 0, 0, 0))) for f in (second_of, bent_of))
PAIRS = [("aref", "aref"), ("J", "aref"), ("qM", "J"), ("D", "qfrc_smooth"), ("friction", "D")]


@pytest.mark.parametrize(("path", "cone"), [*DIFFERENTIATED[:3:2], *wide(DIFFERENTIATED[1:2])])
def test_second_derivatives(path, cone):
    """The tangent is differentiable in its turn, forward over forward and forward over reverse."""
    case = cases(path, cone)[2]
    every, model = dict(directions(case.problem, 5)), case.model
    ways, others = (stacked([every[pair[k]] for pair in PAIRS]) for k in (0, 1))
    problems = stacked([case.problem] * len(PAIRS))
    expected = richardson(lambda t: forward(model, along(problems, others, t), ways), 1.0, 1e-5)
    found = second(model, problems, ways, others)
    weights = np.tile(np.random.default_rng(6).normal(size=2 * model.nv), (len(PAIRS), 1))
    reverse = bent(model, problems, ways, weights)
    for k, pair in enumerate(PAIRS):
        scale = max(1.0, np.max(np.abs(expected[k])))
        assert_close(" ".join(pair), found[k] / scale, expected[k] / scale, 1e-6)
        leaves = zip(jax.tree.leaves(reverse), jax.tree.leaves(others), strict=True)
        inner = sum(np.vdot(a[k], b[k]) for a, b in leaves)
        assert abs(inner - weights[k] @ found[k]) <= 1e-8 * max(1.0, abs(inner), scale)
    assert sum(np.any(np.abs(bend) > 1e-3) for bend in expected) >= 2


def test_memory_of_reverse_mode_does_not_grow_with_iterations():
    def temporary(iterations):
        case = cases(SMALL, ELLIPTIC)[0]
        model = case.model.replace(opt=case.model.opt.replace(iterations=iterations))
        loss = jax.grad(lambda problem: jnp.sum(acceleration(model, problem)))
        return jax.jit(loss).lower(case.problem).compile().memory_analysis().temp_size_in_bytes

    assert temporary(9) == temporary(100) > 0


def test_unrolled_gradient_agrees_at_convergence():
    case = cases(SMALL, ELLIPTIC)[2]
    opt = dataclasses.replace(case.model.opt, solver_gradient="unroll", iterations=12, ls_iterations=30)
    problem, way = stacked([case.problem]), stacked([dict(directions(case.problem, 0))["aref"]])
    unrolled = forward(case.model.replace(opt=opt), problem, way)
    implicit = forward(case.model, problem, way)
    assert_close("tangent", unrolled, implicit, 1e-6, rtol=1e-6)


# one and eight iterations: tests/gradient_bars
@pytest.mark.parametrize(("iterations", "cone"), [(4, PYRAMIDAL), (2, ELLIPTIC)])
def test_unrolled_iterations_equal_differences(iterations, cone):
    """The step length is differentiated, and so is the warm start; converged or not."""
    group = cases("contact_dims", cone)[:3]
    model = group[0].model
    model = model.replace(opt=model.opt.replace(solver_gradient="unroll", iterations=iterations))
    found = []
    for index, case in enumerate(group):
        qM, smooth, start, rows = case.problem
        noise = np.random.default_rng(index).normal(size=start.shape)
        problem = (qM, smooth, start + noise, rows)
        zero = jax.tree.map(np.zeros_like, problem)
        ways = [*directions(problem, index), ("start", (zero[0], zero[1], noise, zero[3]))]
        found += [(name, problem, way) for name, way in ways]
    names, problems, ways = zip(*found, strict=True)
    assert_equal_differences(model, names, stacked(problems), stacked(ways))


DEGENERATE = {
    "nothing active": {"D": 0.0},
    "no slip": {"aref": None},
    "no friction": {"friction": 0.0, "mu": 0.0},
    "tip": {"aref": 0.0},
}


def degenerate(problem, kind):
    """A problem whose contacts have no distinct direction, or no force."""
    qM, smooth, start, rows = problem
    groups = []
    for group in rows.groups:
        aref = np.array(group.aref)
        aref[1:] = 0
        changes = DEGENERATE[kind]
        wanted = {k: aref if v is None else np.full_like(np.asarray(getattr(group, k)), v) for k, v in changes.items()}
        groups.append(group if group.slot is None else group.replace(**wanted))
    smooth = np.zeros_like(smooth) if "aref" in DEGENERATE[kind] else smooth
    return qM, smooth, start, rows.replace(groups=tuple(groups))


def assert_finite_where_rows_degenerate(case, problem):
    problems = stacked([degenerate(problem, kind) for kind in DEGENERATE])
    cotangents = backward(case.model, problems, np.ones((len(DEGENERATE), 2 * case.model.nv)))
    for k, kind in enumerate(DEGENERATE):
        assert all(np.all(np.isfinite(leaf[k])) for leaf in jax.tree.leaves(cotangents)), kind


@pytest.mark.parametrize("cone", [PYRAMIDAL, ELLIPTIC])
def test_gradient_is_finite_where_rows_degenerate(cone):
    case = cases("contact_dims", cone)[0]
    assert_finite_where_rows_degenerate(case, case.problem)


# the other cone, more families: tests/gradient_matrix.py
@pytest.mark.parametrize(("cone", "solver"), [(PYRAMIDAL, Solver.PGS), (ELLIPTIC, Solver.CG)])
def test_every_solver_has_the_same_derivative(cone, solver):
    case = cases("contact_dims", cone)[0]
    model, every = case.model, dict(directions(case.problem, 0))
    names = ("qM", "J", "aref")
    problems, ways = stacked([case.problem] * len(names)), stacked([every[name] for name in names])
    opt = dataclasses.replace(model.opt, solver=solver, iterations=3000, tolerance=jnp.asarray(0.0))
    # thousands of iterations: compiled
    tangents = batched(jax.jit).forward(model.replace(opt=opt), problems, ways)
    for name, tangent, expected in zip(names, tangents, forward(model, problems, ways), strict=True):
        scale = max(1.0, np.max(np.abs(expected)))
        assert_close(name, np.asarray(tangent) / scale, expected / scale, 1e-6)
