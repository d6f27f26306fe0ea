"""Effects that a model lacks are named: an arm of two joints, recorded and simulated by C MuJoCo."""

import functools
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.optimize

import diffsim
from diffsim import optimize
from diffsim.optimize.identify.fit import _extension
from diffsim.optimize.identify.least_squares import projected
from diffsim.optimize.identify.missing import Effect
from diffsim.optimize.identify.problem import make_problem, windows_of
from diffsim.optimize.identify.residuals import Change
from diffsim.optimize.identify.unknowns import Unknowns
from diffsim.simulate.randomize import leaf
from tests.measure.by_c import Simulator, readings, simulated_by_c

ROWS, STEP, NOISE = 200, 0.01, 3e-4
ARM = """<mujoco><option timestep=".01"/><worldbody><body name="upper"><joint name="a" axis="0 1 0" damping="{d1}"
armature=".02" {first}/><inertial pos="0 0 -.15" mass="1" diaginertia=".008 .008 .001"/><body name="fore" pos="0 0 -.3">
<joint name="b" axis="0 1 0" damping="{d2}" armature=".02"/><inertial pos="0 0 -.1" mass=".5" diaginertia=
".003 .003 .001"/>{load}</body></body></worldbody><actuator><position name="a" joint="a" kp="20" kv="1" {limit}/>
<position name="b" joint="b" kp="15" kv=".5"/></actuator><sensor><jointpos name="qa" joint="a"/>
<jointpos name="qb" joint="b"/></sensor></mujoco>"""
PLAIN = {"first": "", "load": "", "limit": ""}
LOAD = '<body pos="0 0 -.2"><inertial pos="0 0 0" mass=".2" diaginertia="1e-6 1e-6 1e-6"/></body>'
TRUTH, GUESS = {"d1": 0.2, "d2": 0.1}, {"d1": 0.15, "d2": 0.15}
UNKNOWNS = [optimize.Unknown("dof_damping", lower=0, upper=3)]


def commands() -> np.ndarray:
    """(ROWS, 2)."""
    t = STEP * np.arange(ROWS)[:, None]
    return np.sin(2 * np.pi * np.asarray([0.7, 1.1]) * t + [0.0, 1.0]) + 0.4 * np.sin(2 * np.pi * 1.9 * t)


def lagging(seen: np.ndarray) -> np.ndarray:
    """The second reading behind gear play of 0.02 rad."""
    follower, behind = seen[0, 1], seen.copy()
    for t, reading in enumerate(seen[:, 1]):
        follower = behind[t, 1] = np.clip(follower, reading - 0.01, reading + 0.01)
    return behind


def late(seen: np.ndarray) -> np.ndarray:
    """Readings that are late by 8 ms."""
    t = STEP * np.arange(ROWS)
    return np.stack([np.interp(t - 0.008, t, column) for column in seen.T], axis=1)


def model_of(numbers: dict[str, float]) -> str:
    """The MJCF of the arm without an effect."""
    return ARM.format(**numbers, **PLAIN)


@functools.cache
def start() -> diffsim.Model:
    """The model with wrong numbers."""
    return diffsim.load(model_of(GUESS))


def without_effects(theta: np.ndarray) -> str:
    """The MJCF of theta."""
    return model_of({"d1": float(theta[0]), "d2": float(theta[1])})


def fitted(
    seen: np.ndarray, build: Callable[[np.ndarray], str] = without_effects, **options: Any
) -> optimize.FitResult:
    """The fit of readings with noise, simulated by C."""
    recording = optimize.make_recording(
        start(), commands(), seen + NOISE * np.random.default_rng(0).normal(size=(ROWS, 2))
    )
    with simulated_by_c(build):
        return optimize.fit(start(), recording, UNKNOWNS, NOISE, optimize.Fit(starts=1, window=ROWS), **options)


@pytest.mark.parametrize(
    ("real", "spoil", "name", "where"),
    [
        ({"first": 'frictionloss=".05"'}, None, "Coulomb friction", "a"),
        ({"load": LOAD}, None, "payload", "fore"),
        ({"limit": 'forcelimited="true" forcerange="-10 10"'}, None, "force limit", "a"),
        ({}, late, "delay", "commands"),
        ({}, lagging, "gear play", "qb"),
        ({}, lambda seen: seen + np.asarray([0.0, 0.03]), "offset of a sensor", "qb"),
    ],
)
def test_a_missing_effect_is_named(real, spoil, name: str, where: str) -> None:
    seen = readings(ARM.format(**TRUTH, **(PLAIN | real)), commands())
    result = fitted(seen if spoil is None else spoil(seen))
    assert not result.explained and result.missing[0].name == name, str(result)
    assert result.missing[0].where[0] == where and result.missing[0].share > 0.5
    assert f"The model may lack: {name} ({where}" in str(result)


def test_nothing_is_missing_from_a_model_that_explains_the_data() -> None:
    result = fitted(readings(model_of(TRUTH), commands()))
    assert result.explained and not result.missing and not result.hints()
    assert result.carry_over is not None and result.carry_over.carries


def test_the_likeliest_effect_is_added_on_request() -> None:
    """Friction, which the fit then finds."""

    def build(theta: np.ndarray) -> str:
        loss = f'frictionloss="{theta[2]}"' if theta.size > 2 else ""
        return ARM.format(d1=theta[0], d2=theta[1], **(PLAIN | {"first": loss}))

    seen = readings(ARM.format(**TRUTH, **(PLAIN | {"first": 'frictionloss=".05"'})), commands())
    result = fitted(seen, build, extend=True)
    assert result.explained and "Added, since the model lacked it: Coulomb friction (a" in str(result)
    assert result.identified.labels[2] == "dof_frictionloss[a]"
    np.testing.assert_allclose(result.identified.values, [0.2, 0.1, 0.05], rtol=0.1)


def test_what_a_slow_recording_cannot_show_is_said_before_the_fit() -> None:
    """The armature, next to commands of 0.5 Hz and readings with much noise; faster commands show it."""
    slow = 0.5 * np.sin(2 * np.pi * 0.1 * 5 * STEP * np.arange(ROWS))[:, None] * [1.0, 0.7]
    recording = optimize.make_recording(start(), slow, readings(model_of(TRUTH), slow))
    unknowns = [optimize.Unknown("dof_armature", "a", lower=0, upper=0.1), *UNKNOWNS]

    def build(theta: np.ndarray) -> str:
        numbers = {"d1": theta[1], "d2": theta[2]}
        return model_of(numbers).replace('armature=".02"', f'armature="{theta[0]}"', 1)

    with simulated_by_c(build):
        told = optimize.information(start(), recording, unknowns, 0.1)
        clear = optimize.information(start(), recording, unknowns, 1e-6)
    assert len(told.hidden) == 1 and told.hidden[0].startswith("dof_armature[a] - 0.5"), str(told)
    assert "which does not show dof_armature[a]" in str(told) and "2 times as fast would" in str(told)
    assert 0.3 < told.frequencies[0] <= told.frequencies[1] < 2.5
    assert not clear.hidden and "shows all unknowns" in str(clear)


def test_errors_that_no_effect_makes_get_no_hint() -> None:
    """Every 23rd reading is off."""
    seen = readings(model_of(TRUTH), commands())
    seen[::23] += 0.02
    result = fitted(seen)
    assert not result.explained and "None of the effects that were tried" in str(result)


def test_a_push_is_that_of_c_mujoco() -> None:
    """Readings, and the forces of the actuators, under forces on the joints; and of another gravity."""
    recording = optimize.make_recording(start(), commands()[:50], np.zeros((50, 2)))
    unknowns = optimize.Unknowns(start(), UNKNOWNS)
    problem = make_problem(unknowns, windows_of([recording], 25)[0], np.ones(2), known_start=True)
    point = problem.point(unknowns.start)
    forces = 0.3 * np.random.default_rng(0).normal(size=(2, 25, 2))
    change = Change(forces, lambda model: {"opt.gravity": leaf(model, "opt.gravity") + 1.0})
    ours = problem.pushed(point, change)
    c = Simulator(lambda theta: model_of(GUESS))
    theirs = c.pushed(None, start(), problem.inside, problem._guess(point), change)
    np.testing.assert_allclose(ours.readings, theirs.readings, atol=1e-10)
    np.testing.assert_allclose(ours.actuators, theirs.actuators, atol=1e-8)


def test_friction_that_noise_hides_is_found_by_what_moved() -> None:
    """Its residuals pass all tests of noise. Damping stands for it, and is off by far more than its interval says."""
    result = fitted(readings(ARM.format(**TRUTH, **(PLAIN | {"first": 'frictionloss=".006"'})), commands()))
    assert not result.explained and result.converged and "The residuals look like noise, but friction" in str(result)
    assert result.missing[0].name == "Coulomb friction" and result.missing[0].where == ["a"]
    assert result.missing[0].values[0] == pytest.approx(0.006, rel=0.5)
    assert result.missing[0].share < 1 and "hidden in residuals that look like noise" in str(result)
    identified = result.identified
    without = np.sqrt(np.diag(np.linalg.inv(np.einsum("wki,wkj->ij", *[projected(result.blocks)] * 2))))
    assert abs(identified.values[0] - TRUTH["d1"]) > 5 * without[0]
    assert np.all((identified.lower < [0.2, 0.1]) & (identified.upper > [0.2, 0.1]))


def test_residuals_smaller_than_the_noise_hide_nothing() -> None:
    """Friction leaves its shape in readings without noise, far below the noise that the user gives."""
    seen = readings(ARM.format(**TRUTH, **(PLAIN | {"first": 'frictionloss=".006"'})), commands())
    with simulated_by_c(without_effects):
        recording = optimize.make_recording(start(), commands(), seen)
        result = optimize.fit(start(), recording, UNKNOWNS, 100 * NOISE, optimize.Fit(starts=1, window=ROWS))
    assert not any(effect.hidden for effect in result.missing), str(result)


def test_without_a_prior_a_fit_is_plain_least_squares() -> None:
    """The minimum that scipy finds for the readings of C MuJoCo; with the prior, what the data hide moves less."""
    # both joints hardly move, so that the damping of the second is hard to see
    ctrl = commands()[:60] * [0.2, 0.003]
    seen = readings(model_of(TRUTH), ctrl) + 10 * NOISE * np.random.default_rng(2).normal(size=(60, 2))
    recording = optimize.make_recording(start(), ctrl, seen, qpos=np.zeros((60, 2)), qvel=np.zeros((60, 2)))
    settings = optimize.Fit(known_start=True, window=60)
    with simulated_by_c(without_effects):
        plain, held = (
            optimize.fit(start(), recording, UNKNOWNS, 10 * NOISE, settings, prior=prior) for prior in (False, True)
        )
    exact = scipy.optimize.least_squares(
        lambda theta: (readings(without_effects(theta), ctrl) - seen).reshape(-1) / (10 * NOISE),
        [GUESS["d1"], GUESS["d2"]], bounds=([0, 0], [3, 3]), x_scale=[0.1, 0.1], xtol=1e-12, ftol=1e-12,
    )  # fmt: skip
    assert np.all(np.abs(plain.theta - exact.x) < 0.02 * plain.identified.std)
    assert plain.carry_over is None and not plain.notes and plain.identified.by_prior is None
    # the same data with the prior: nearer to the model, with a smaller standard deviation, and draws know it
    assert abs(held.theta[1] - GUESS["d2"]) < 0.7 * abs(plain.theta[1] - GUESS["d2"])
    assert held.identified.std[1] < 0.9 * plain.identified.std[1]
    drawn = [held.draw(500, method=method).std(axis=0) for method in ("laplace", "metropolis")]
    np.testing.assert_allclose(drawn[1], drawn[0], rtol=0.3)


def test_what_is_unknown_already_is_not_added() -> None:
    """By the entries that are written, not by the labels: all damping by one factor, and the damping of one joint."""
    model = start()
    known = Unknowns(
        model, [optimize.Unknown("dof_damping", shared=True), optimize.Unknown("sensor.delay", shared=True)]
    )
    effect = Effect(name="viscous damping", share=1.0, where=["b"], values=[0.1], unit="", criterion=-100.0)
    late = effect._replace(name="delay", where=["qb"], values=[0.01])
    for each, labels in ((effect, ["dof_damping[b]"]), (late, ["sensor.delay[qb]"])):
        added = each.unknowns(model)
        assert Unknowns(model, added).labels == labels and not _extension(known, [], [each])
        assert _extension(Unknowns(model, [optimize.Unknown("dof_armature")]), [], [each]) == added
    assert _extension(known, [], [effect._replace(name="payload", where=["fore"])])
    loaded = Unknowns(model, [optimize.UnknownInertia("fore")])
    assert not _extension(loaded, [], [effect._replace(name="payload", where=["fore"])])
    # a spring that pulls away from zero has room below zero; the model has no load, and the search begins with one
    spring = Unknowns(model, effect._replace(name="spring", values=[-0.4]).unknowns(model))
    assert spring.lower[0] < -1 and spring.upper[0] > 1
    load = Unknowns(model, [optimize.UnknownPayload("fore")])
    assert load.start[0] == 0 < load.first[0] and load.width[0] == pytest.approx(0.5, rel=1e-3)
    np.testing.assert_allclose(load.model_of(load.start).body_inertia, model.body_inertia)


def test_objects_without_a_name_are_found_by_their_number() -> None:
    """Their effects name the numbers; the unknowns that add the effects are about these objects."""
    bare = re.sub(r' name="(a|b|qa|qb|upper|fore)"', "", ARM.format(**TRUTH, **PLAIN)).replace('joint="a"', 'joint="0"')
    bare = re.sub("<actuator>.*</sensor>", "", bare, flags=re.DOTALL)
    model = diffsim.load(bare)
    for name, where, label in (("Coulomb friction", "1", "dof_frictionloss[1]"), ("payload", "2", "payload[2]")):
        added = Effect(name=name, share=1.0, where=[where], values=[0.1], unit="", criterion=0.0).unknowns(model)
        assert Unknowns(model, added).labels[0].startswith(label.split("[")[0]), label
        assert f"[{where}" in Unknowns(model, added).labels[0]
