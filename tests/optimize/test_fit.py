"""System identification of an arm whose numbers are known."""

import dataclasses
import functools
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import diffsim
from diffsim import optimize
from diffsim.optimize.identify.least_squares import Blocks, Point
from diffsim.optimize.identify.problem import make_problem, windows_of
from tests.measure.by_c import readings

# two links in a vertical plane, encoders and torque
ARM = """<mujoco><option timestep=".01"/><worldbody><body name="upper">
<joint name="shoulder" axis="0 1 0" damping=".3"/><geom type="capsule" fromto="0 0 0 0 0 -.4" size=".03" mass="1"/>
<body name="fore" pos="0 0 -.4"><joint name="elbow" axis="0 1 0" damping=".2" armature=".01"/>
<geom type="box" size=".03 .05 .15" pos=".02 .01 -.15" mass=".6"/></body></body></worldbody>
<actuator><motor name="m1" joint="shoulder"/><motor name="m2" joint="elbow"/></actuator>
<sensor><jointpos name="q1" joint="shoulder"/><jointpos name="q2" joint="elbow"/></sensor></mujoco>"""

UNKNOWNS = [
    optimize.Unknown("dof_damping", ["shoulder", "elbow"], lower=0, upper=2),
    optimize.Unknown("dof_armature", "elbow", lower=0, upper=0.1),
    optimize.Unknown("body_mass", "fore", lower=0.1, upper=3, log=True),
]
TRUTH = np.asarray([0.3, 0.2, 0.01, 0.6])
NOISE = 1e-3


@functools.cache
def recorded(seed: int = 0, noise: float = NOISE) -> tuple[diffsim.Model, optimize.Recording]:
    """The arm with wrong numbers, and a motion of the right one with noise on its encoders."""
    model = diffsim.load(ARM)
    rng = np.random.default_rng(seed)
    time = 0.01 * np.arange(120)[:, None]
    ctrl = np.asarray([2.0, 1.0]) * np.sin(time * [7.0, 11.0] + [0.0, 1.0])
    seen = readings(ARM, ctrl)
    measured = seen + noise * rng.normal(size=seen.shape)
    measured[5, 0] = np.nan
    wrong = ARM.replace('damping=".3"', 'damping=".1"').replace('".2" armature=".01"', '".5" armature=".03"')
    return diffsim.load(wrong.replace('mass=".6"', 'mass="1"')), optimize.make_recording(model, ctrl, measured)


@functools.cache
def found() -> optimize.FitResult:
    model, recording = recorded()
    return optimize.fit(model, recording, UNKNOWNS, NOISE, optimize.Fit(window=60, held_out=1))


def test_the_numbers_of_an_arm_are_found() -> None:
    result = found()
    assert result.converged and not result.identified.null_directions
    error = np.abs(result.identified.values - TRUTH)
    assert np.all(error <= 0.03 * TRUTH + 3 * result.identified.std * np.where([0, 0, 0, 1], TRUTH, 1))
    assert np.all((result.identified.lower < result.identified.values) & ~result.identified.at_bound)
    np.testing.assert_allclose(result.model.body_mass[2], result.identified.values[3], rtol=1e-12)
    # the inertia of the same shape, and derived constants
    density = result.model.body_inertia[2] / result.identified.values[3]
    np.testing.assert_allclose(density, diffsim.load(ARM).body_inertia[2] / 0.6, rtol=1e-12)
    np.testing.assert_allclose(result.model.body_subtreemass[1], result.model.body_mass[1:].sum(), rtol=1e-12)
    # residuals are the noise, also where nothing was fitted but the initial state
    assert np.all(result.rms < 1.2 * NOISE) and np.all(result.held_out_rms < 1.5 * NOISE)
    assert np.all(result.start_rms > 5 * NOISE) and result.states.qpos.shape == (2, 2)


def test_the_report_names_what_counts() -> None:
    text = str(found())
    for words in ("converged after", "dof_damping[shoulder]", "body_mass[fore]", "95% interval", "q2"):
        assert words in text


SPRING = """<mujoco><option gravity="0 0 0"/><worldbody><body name="b"><joint name="j" type="slide" axis="0 0 1"
stiffness="40"/><geom name="g" size=".1" mass="1"/></body></worldbody><sensor><jointpos name="x" joint="j"/></sensor>
</mujoco>"""
RATIO = [
    optimize.Unknown(name, which, lower=0.1, upper=100, log=True)
    for name, which in (("body_mass", "b"), ("jnt_stiffness", "j"))
]


def swing(rows: int) -> tuple[diffsim.Model, optimize.Recording]:
    """A mass on a spring, recorded, and the model with another mass."""
    spring, ctrl = diffsim.load(SPRING), np.zeros((rows, 0))
    recording = optimize.make_recording(spring, ctrl, readings(SPRING, ctrl, qpos=0.1))
    return spring.replace(body_mass=jnp.asarray([0.0, 1.3])), recording


def dense(blocks: Blocks) -> np.ndarray:
    """(k, n + windows * width), zero between a window and another's initial state."""
    count, rows, width = blocks.by_x.shape
    own = np.zeros((count, rows, count, width))
    own[np.arange(count), :, np.arange(count)] = blocks.by_x
    return np.concatenate([blocks.by_theta.reshape(count * rows, -1), own.reshape(count * rows, -1)], axis=1)


def test_all_modes_have_one_jacobian() -> None:
    """Chained windows: readings, first states, and by how much windows fail to meet."""
    model, recording = swing(20)
    found = []
    windows, follows = windows_of([recording], 10)
    point = Point(optimize.Unknowns(model, RATIO).start, 0.01 * np.arange(4.0).reshape(2, 2))
    for mode in ("steps", "forward", "reverse"):
        space = optimize.Unknowns(model, RATIO)
        problem = make_problem(space, windows, np.full(1, 1e-3), 1.0, mode=mode, follows=follows)
        problem = dataclasses.replace(problem, tightness=np.full(2, 1e-3))
        blocks = problem.blocks(point)
        found.append(dense(blocks))
        assert blocks.by_next is not None and not blocks.by_next[1].any()
        found[-1][: blocks.by_x.shape[1], 4:] += blocks.by_next[0]

    def residuals(x: np.ndarray) -> np.ndarray:
        return problem.residuals(Point(x[:2], x[2:].reshape(2, 2))).reshape(-1)

    x = np.concatenate([point.theta, point.x.reshape(-1)])
    columns = [(residuals(x + e) - residuals(x - e)) / 2e-6 for e in 1e-6 * np.eye(6)]
    np.testing.assert_allclose(found[0], np.stack(columns, axis=1), atol=1e-6 * np.abs(found[0]).max())
    for other in found[1:]:
        np.testing.assert_allclose(found[0], other, atol=1e-12 * np.abs(found[0]).max())
    # windows do not see each other's first state, but where they meet
    rows = problem.blocks(point).by_x.shape[1]
    assert found[0].shape == (2 * rows, 6) and not found[0][:10, 4:].any() and not found[0][rows:, 2:4].any()


TURNING = """<mujoco><option timestep=".01" integrator="implicit"/><worldbody><body><freejoint/><site name="s"/>
<geom type="box" size=".1 .2 .3" mass="1"/><body name="rod" pos=".2 0 0"><joint name="j" damping=".1"/>
<geom type="capsule" fromto="0 0 0 .3 .1 0" size=".03" mass=".3"/></body></body></worldbody>
<actuator><general joint="j" dyntype="filter" dynprm=".05" gainprm="2" biastype="affine" biasprm="0 -1 -.1"/></actuator>
<sensor><framequat objtype="site" objname="s"/><accelerometer site="s"/></sensor></mujoco>"""


def test_steps_of_free_bodies_and_activations_are_chained() -> None:
    """Quaternions in state and readings, activations, readings of accelerations, and what was not measured."""
    model, rng = diffsim.load(TURNING), np.random.default_rng(0)
    measured = rng.normal(size=(8, 7))
    measured[2, 5] = np.nan
    qpos, qvel = np.tile([0.1, 0.2, 0.3, 0.5, -0.5, 0.5, 0.5, 0.4], (8, 1)), rng.normal(size=(8, 7))
    recording = optimize.make_recording(model, rng.normal(size=(8, 1)), measured, qpos, qvel, np.ones((8, 1)))
    unknowns = optimize.Unknowns(model, [optimize.Unknown("body_mass", "rod"), optimize.Unknown("dof_damping", "j")])
    problem = make_problem(unknowns, windows_of([recording], 4)[0], np.ones(7))
    theta, x = unknowns.start, 0.1 * rng.normal(size=(2, 15))
    blocks = problem.blocks(Point(theta, x))
    for _ in range(6):
        way, turn = rng.normal(size=2), rng.normal(size=(2, 15))
        sides = [problem.residuals(Point(theta + h * way, x + h * turn)) for h in (1e-5, -1e-5, 1e-4, -1e-4)]
        # of two steps, without their second order
        slope = (100 * (sides[0] - sides[1]) / 2e-5 - (sides[2] - sides[3]) / 2e-4) / 99
        expected = blocks.by_theta @ way + np.einsum("wkx,wx->wk", blocks.by_x, turn)
        np.testing.assert_allclose(slope, expected, atol=1e-7 * np.abs(expected).max())
    # numbers, and of both windows turns and spins; nothing shows where the body is, nor what was not measured
    found = dense(Blocks(blocks.by_theta[:, :28], blocks.by_x[:, :28]))
    assert np.count_nonzero(np.abs(found).max(axis=0) > 1e-9) >= 2 + 2 * 6 and not found[2 * 7 + 5].any()


def test_fits_share_their_programs(caplog: pytest.LogCaptureFixture) -> None:
    """With another first guess, and of recordings of another length."""
    for mass, rows in ((1.1, 40), (1.2, 60)):
        model, recording = swing(rows)
        start = model.replace(body_mass=jnp.asarray([0.0, mass]))
        caplog.clear()
        with jax.log_compiles():
            result = optimize.fit(start, recording, RATIO[:1], settings=optimize.Fit(window=rows // 2))
        assert result.identified.values[0] == pytest.approx(1, rel=1e-6)
    # programs that JAX makes of single operations do not count
    compiled = [record.getMessage() for record in caplog.records if "Compiling jit(_" in record.getMessage()]
    assert not [words for words in compiled if "_simulated" in words or "_linearized" in words], compiled


def test_first_states_may_be_known() -> None:
    model, recording = swing(40)
    still = optimize.make_recording(model, recording.ctrl, recording.sensordata, qvel=jnp.zeros((40, 1)))
    result = optimize.fit(model, still, RATIO[:1], 1e-6, optimize.Fit(known_start=True))
    assert result.explained and result.identified.values[0] == pytest.approx(1, rel=1e-6)
    assert result.point.x.shape == (1, 0) and float(result.states.qpos[0, 0]) == pytest.approx(0.1)


def test_what_the_data_do_not_show_is_named() -> None:
    """Only the ratio of mass and stiffness counts."""
    result = optimize.fit(*swing(100), RATIO)
    assert result.identified.null_directions == ["body_mass[b] + jnt_stiffness[j]"]
    assert np.all(np.isinf(result.identified.std)) and "not identified" in str(result)
    mass, stiffness = result.identified.values
    assert stiffness / mass == pytest.approx(40, rel=1e-6)
    # and what does not count stays as it was
    assert stiffness * mass == pytest.approx(1.3 * 40, rel=1e-4)


def test_a_fit_that_predicts_worse_than_the_first_guess_is_not_used() -> None:
    """What was fitted is the motion of another arm; what was held out is a motion of the arm of the first guess."""
    model, recording = diffsim.load(ARM), recorded()[1]
    other = ARM.replace('damping=".3"', 'damping=".9"')
    spoilt = readings(other, recording.ctrl[:60]) + NOISE * np.random.default_rng(1).normal(size=(60, 2))
    first = optimize.make_recording(model, recording.ctrl[:60], spoilt)
    second = optimize.make_recording(model, recording.ctrl[:60], recording.sensordata[:60])
    result = optimize.fit(model, [first, second], UNKNOWNS, NOISE, optimize.Fit(window=60, held_out=1))
    assert result.first_guess_is_better and not result.explained and result.identified.values[0] > 0.6
    assert np.all(result.held_out_start_rms < 1.5 * NOISE) and np.any(result.held_out_rms > 3 * NOISE)
    np.testing.assert_allclose(result.model.dof_damping, model.dof_damping, rtol=1e-12)
    assert str(result).startswith("Do NOT use the values found") and "keeps the first guess" in str(result)
    # the other way round: a fit that predicts well is used, and says so
    assert not found().first_guess_is_better and str(found()).startswith("The model explains the data")


def test_all_of_an_inertia() -> None:
    model = diffsim.load(ARM)
    unknown = optimize.Unknowns(model, [optimize.UnknownInertia("fore")])
    assert unknown.labels[0] == "inertia[fore].alpha" and unknown.start.size == 10
    back = unknown.model_of(jnp.asarray(unknown.start))
    np.testing.assert_allclose(back.body_inertia, model.body_inertia, rtol=1e-9)
    lighter = unknown.model_of(jnp.asarray(unknown.start).at[0].add(-0.5 * np.log(2)))
    np.testing.assert_allclose(lighter.body_mass[2], 0.5 * model.body_mass[2], rtol=1e-12)
    np.testing.assert_allclose(lighter.body_inertia[2], 0.5 * model.body_inertia[2], rtol=1e-9)


def test_recordings_from_tables(tmp_path: pathlib.Path) -> None:
    model, recording = recorded()
    path = tmp_path / "motion.csv"
    lines = ["time,m2,q1,q2"]
    for i in range(30):
        q = recording.sensordata[i]
        lines.append(f"{0.01 * i},{float(recording.ctrl[i, 1])!r},{float(q[0])!r},{float(q[1])!r}")
    path.write_text("\n".join(lines))
    read = optimize.read_csv(model, path)
    np.testing.assert_array_equal(read.sensordata, recording.sensordata[:30])
    np.testing.assert_array_equal(read.ctrl[:, 1], recording.ctrl[:30, 1])
    assert not np.any(read.ctrl[:, 0]) and np.all(np.isfinite(read.qpos))
    np.testing.assert_allclose(read.qvel[10], (recording.qpos[13] - recording.qpos[7]) / 0.06, atol=1e-12)
    path.write_text("m3,q1\n1,2\n1,2")
    with pytest.raises(ValueError, match="column 'm3' is not an actuator or sensor"):
        optimize.read_csv(model, path)


def test_wrong_questions_are_refused() -> None:
    model, recording = recorded()
    cases = [
        ([], "no unknowns"),
        ([optimize.Unknown("dof_dampin")], "no leaf 'dof_dampin'"),
        ([optimize.Unknown("dof_damping"), optimize.Unknown("dof_damping", "elbow")], "unknown twice"),
        ([optimize.Unknown("dof_damping", lower=0.3)], "not within its bounds"),
        ([optimize.Unknown("dof_armature", log=True)], "log needs positive"),
        ([optimize.Unknown("opt.gravity", "elbow")], "no named objects"),
    ]
    for unknowns, words in cases:
        with pytest.raises(ValueError, match=words):
            optimize.fit(model, recording, unknowns)
    for noise, words in (
        (0.0, "positive"),
        ([-1.0], "positive"),
        (np.nan, "positive"),
        (np.ones(77), "expected one number"),
    ):
        with pytest.raises(ValueError, match=words):
            optimize.fit(model, recording, UNKNOWNS, noise)
    with pytest.raises(KeyError, match="elbow"):
        optimize.fit(model, recording, [optimize.Unknown("dof_damping", "elbo")])
    with pytest.raises(ValueError, match="windows have 500 rows"):
        optimize.fit(model, recording, UNKNOWNS, settings=optimize.Fit(window=500))
    with pytest.raises(ValueError, match="none is left"):
        optimize.fit(model, recording, UNKNOWNS, settings=optimize.Fit(window=60, held_out=2))


def test_a_search_ends_when_it_is_told_to(monkeypatch: pytest.MonkeyPatch) -> None:
    model, recording = recorded()
    lines: list[str] = []
    settings = optimize.Fit(window=60, held_out=1)
    # no time: derivatives at the first guess, and no more
    short = optimize.fit(model, recording, UNKNOWNS, NOISE, settings, seconds=0, show=lines.append)
    assert not short.converged and not short.explained and "stopped before its end" in short.message
    assert short.iterations <= 2 and "fit: residuals are" in lines[0] and "stopped" in lines[-1]
    np.testing.assert_allclose(short.theta, short.problem.unknowns.start)
    # a budget is the search's: what is asked of its result later has all the time
    whole, said = optimize.fit(model, recording, UNKNOWNS, NOISE, settings, seconds=1e5, show=lines.append), len(lines)
    monkeypatch.setattr("time.monotonic", lambda: 1e12)
    assert whole.converged and np.isfinite(whole.problem.blocks(whole.problem.point(whole.theta)).by_theta).all()
    assert len(lines) == said
    monkeypatch.undo()

    def interrupt(line: str) -> None:
        lines.append(line)
        if "from another start" in line:
            raise KeyboardInterrupt

    # what one search found, of a model that lacks the mass: nothing explains the data, so that others would follow
    lacking = optimize.fit(model, recording, UNKNOWNS[:1], NOISE, settings, show=interrupt)
    assert "another start" in lines[-2] and not lacking.converged and lacking.evidence.sentence
    assert np.all(lacking.rms < lacking.start_rms)
