"""What real rigs need of a fit: unknowns of all sorts, recordings as people have them, experiments, posteriors."""

import pathlib
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.interpolate
from wide import only_wide

import diffsim
from diffsim import optimize
from diffsim.optimize.coordinates.log_cholesky import INERTIAL
from diffsim.optimize.identify.places import with_numbers
from tests.measure.by_c import readings, simulated_by_c

# a wheel on a slope: one joint, cheap to compile
WHEEL = """<mujoco><option timestep=".01"/><worldbody><body name="wheel">
<joint name="axle" axis="0 1 0" damping="{damping}" frictionloss="{loss}"/>
<geom type="capsule" fromto="0 0 0 0 0 -.3" size=".03" mass="1" contype="0"/></body></worldbody>
<actuator><position name="p" joint="axle" kp="{kp}" kv=".3"/></actuator>
<sensor><jointpos name="q" joint="axle"/><jointvel name="v" joint="axle"/></sensor></mujoco>"""
ROWS, H = 150, 0.01


def driven(**numbers: float) -> tuple[diffsim.Model, np.ndarray, np.ndarray]:
    """The true wheel, commands, and what its sensors show without noise."""
    xml, t = WHEEL.format(**({"damping": 0.1, "loss": 0.0, "kp": 20.0} | numbers)), H * np.arange(ROWS)
    ctrl = (0.6 * np.sin(5 * t) + 0.4 * np.sin(11 * t + 1))[:, None]
    return diffsim.load(xml), ctrl, readings(xml, ctrl)


def noisy(seen: np.ndarray, size: float = 1e-3) -> np.ndarray:
    return seen + size * np.random.default_rng(0).normal(size=seen.shape)


@only_wide
def test_friction_from_zero_a_gain_and_a_delay() -> None:
    """mujoco issue 1344: an unknown that begins at a friction of 0; a controller's gain; a sensor that is late."""
    _, ctrl, seen = driven(loss=0.15, kp=26.0)
    t = H * np.arange(ROWS)
    late = np.stack([scipy.interpolate.CubicSpline(t, seen[:, 0])(t - 0.0137), seen[:, 1]], axis=1)
    guess = driven()[0]
    unknowns = [
        optimize.Unknown("dof_frictionloss", "axle"),
        optimize.Unknown("position.kp", "p", lower=1, upper=100),
        optimize.Unknown("sensor.delay", "q"),
    ]
    recording = optimize.make_recording(guess, ctrl, noisy(late))
    result = optimize.fit(guess, recording, unknowns, 1e-3)
    assert result.explained, str(result)
    np.testing.assert_allclose(result.identified.values, [0.15, 26.0, 0.0137], rtol=0.05)
    assert result.model.dof_frictionloss[0] == pytest.approx(result.identified.values[0])
    # without friction and delay it says what is missing
    blind = optimize.fit(guess, recording, unknowns[1:2], 1e-3, optimize.Fit(starts=1, window=ROWS))
    assert {suspect.label for suspect in blind.suspects()[:2]} == {"sensor.delay[q]", "dof_frictionloss[axle]"}
    assert not blind.explained and "delay" in " ".join(blind.evidence.causes) and "NOT" in str(blind).splitlines()[0]


def test_results_are_saved_reported_and_drawn_from(tmp_path: pathlib.Path) -> None:
    _, ctrl, seen = driven(damping=0.2)
    guess = driven()[0]
    recording = optimize.make_recording(guess, ctrl, noisy(seen))
    result = optimize.fit(guess, recording, [optimize.Unknown("dof_damping", "axle")], 1e-3)
    assert result.explained
    result.save(tmp_path / "fit.json")
    result.report(tmp_path / "fit.html")
    assert '"explained": true' in (tmp_path / "fit.json").read_text()
    page = (tmp_path / "fit.html").read_text()
    assert page.count("<svg") == 4 and "The model explains the data" in page and "dof_damping[axle]" in page
    std = result.identified.std[0]
    for method in ("laplace", "metropolis"):
        drawn = result.draw(400, method=method)
        assert np.std(drawn) == pytest.approx(std, rel=0.35) and np.mean(drawn) == pytest.approx(0.2, abs=4 * std)
    models, axes = diffsim.randomize(guess, jax.random.key(0), result, 64)
    assert models.dof_damping.shape == (64, 1) and axes.dof_damping == 0 and axes.body_mass is None
    assert float(jnp.std(models.dof_damping)) == pytest.approx(std, rel=0.4)


PALM = """<mujoco><option timestep=".004"/><worldbody><body name="palm">
<joint name="lift" type="slide" axis="0 0 1" damping="2"/><geom size=".05" mass="{mass}"/></body></worldbody>
<actuator><position joint="lift" kp="300" kv="20"/></actuator><sensor><jointpos joint="lift"/></sensor></mujoco>"""


def test_a_load_is_told_in_kilograms() -> None:
    """Its mass is seen, its place along a slide is not; simulated by C."""
    ctrl = 0.05 * np.sin(0.05 * np.arange(100))[:, None]
    seen, guess = readings(PALM.format(mass=1.6), ctrl), diffsim.load(PALM.format(mass=1))
    recording = optimize.make_recording(guess, ctrl, noisy(seen, 2e-4))
    with simulated_by_c(lambda theta: PALM.format(mass=1 + float(theta[0]))):
        result = optimize.fit(guess, recording, [optimize.UnknownPayload("palm", upper=5)], 2e-4)
    told = result._replace(model=result.problem.unknowns.model_of(jnp.asarray(result.theta))).inertias()[0]
    mass, std = re.match(r"palm: mass ([\d.]+) \+- ([\d.]+) kg; center", told).groups()  # type: ignore[union-attr]
    assert float(mass) == pytest.approx(1.6, abs=3 * float(std)) and float(std) < 0.05
    assert told.endswith("kg m^2; not all of these are identified")


def test_an_experiment_shows_more_than_chance() -> None:
    model = diffsim.load(WHEEL.format(damping=0.1, loss=0.0, kp=20.0))
    unknowns = [optimize.Unknown("dof_damping", "axle"), optimize.Unknown("position.kp", "p", lower=1, upper=100)]
    plan = optimize.excite(model, unknowns, 60, noise=1e-3, limits=(-1.0, 1.0), knots=8, iterations=8)
    assert plan.ctrl.shape == (60, 1) and np.all(np.abs(plan.ctrl) <= 1 + 1e-9)
    assert np.prod(plan.std) < 0.5 * np.prod(plan.before) and not plan.hidden
    assert plan.labels == ["dof_damping[axle]", "position.kp[p]"] and "without it" in str(plan)


def test_rows_at_any_times(tmp_path: pathlib.Path) -> None:
    """Twice as slow as the steps, uneven, with names of another tool; and what is wrong with a table, by its row."""
    model = diffsim.load(WHEEL.format(damping=0.1, loss=0.0, kp=20.0))
    time = [0.0, 0.021, 0.04, 0.0588, 0.08]
    lines = ["Time,cmd,Q"] + [f"{t},{k},{10 * t}" for k, t in enumerate(time)]
    path = tmp_path / "log.csv"
    path.write_text("\n".join(lines))
    read = optimize.read_csv(model, path, columns={"cmd": "p"})
    assert read.ctrl.shape == (9, 1) and np.isnan(np.asarray(read.sensordata[:, 1])).all()
    np.testing.assert_allclose(np.flatnonzero(np.isfinite(np.asarray(read.sensordata[:, 0]))), [0, 2, 4, 6, 8])
    np.testing.assert_allclose(read.offset[jnp.asarray([2, 6])], [0.001, -0.0012], atol=1e-9)
    np.testing.assert_allclose(read.ctrl[:, 0], [0, 0, 0, 1, 2, 2, 3, 3, 4])
    smooth = optimize.read_csv(model, path, columns={"cmd": "p"}, interpolate=True)
    assert float(smooth.ctrl[1, 0]) == pytest.approx(0.01 / 0.021)
    wrong = {
        "Time,cmd,Q\n0,1,2\n0.01,x,2": r"log.csv:3: 'x' in column 'cmd' is not a number",
        "Time,cmd,Q\n0,1,2\n0.01,1": r"log.csv:3: 2 cells under 3 names",
        "Time,cmd,Q\n0,1,2\n\n0,1,2": r"log.csv:4: time 0 s is not after 0 s",
        "Time,cmd,Q\n0,1,2\n0.5,1,2": r"log.csv:3: 0.5 s after the row before; cut the file there",
    }
    for text, words in wrong.items():
        path.write_text(text)
        with pytest.raises(ValueError, match=words):
            optimize.read_csv(model, path, columns={"cmd": "p"})


FLOATING = """<mujoco><option gravity="0 0 -10"/><worldbody><body name="b" pos="1 2 3"><freejoint/>
<site name="s" pos=".1 0 0" quat="0 1 0 0"/><geom pos="0 .2 0" size=".1" mass="{mass}"/>
<geom type="box" size=".1 .2 .3" mass="2"/></body></worldbody>
<sensor><framepos objtype="site" objname="s"/><framequat objtype="site" objname="s"/></sensor></mujoco>"""


def test_where_a_free_body_was_is_seen_by_its_site() -> None:
    model = diffsim.load(FLOATING.format(mass=1))
    qpos = np.asarray([0.3, -1, 2, 0.5, 0.5, -0.5, 0.5])
    # the body's frame is a third of a turn about (1, 1, -1), the site's half a turn about the body's x
    turned = np.asarray([[0, -1, 0], [0, 0, -1], [1, 0, 0.0]])
    seen = np.concatenate([qpos[:3] + turned @ [0.1, 0, 0], [-0.5, 0.5, 0.5, 0.5]])
    recording = optimize.make_recording(model, np.zeros((3, 0)), np.tile(seen, (3, 1)))
    np.testing.assert_allclose(recording.qpos, np.tile(qpos, (3, 1)), atol=1e-12)


def test_loads_tilts_and_numbers_in_common_are_written_where_they_belong() -> None:
    model = diffsim.load(FLOATING.format(mass=1))
    # a point mass at the small ball's place: as if the ball, which is a point but for its own inertia, weighed more
    unknown = optimize.Unknowns(model, [optimize.UnknownPayload("b", upper=2), optimize.Unknown("gravity.tilt")])
    assert unknown.labels[0] == "payload[b].mass" and unknown.labels[-1] == "gravity.tilt[1]"
    theta = jnp.asarray([0.5, 0.0, 0.2, 0.0, 0.3, -0.4])
    place = jax.jit(lambda theta: with_numbers(model, unknown.places, theta).opt.gravity)
    leaves = {name: getattr(model, name) for name in INERTIAL}
    inertia = jax.jit(lambda theta: unknown.places[0].write(leaves, theta[:4]))
    loaded, heavier = inertia(theta), diffsim.load(FLOATING.format(mass=1.5))
    own = 0.4 * 0.5 * 0.1**2
    np.testing.assert_allclose(loaded["body_mass"][1], heavier.body_mass[1], rtol=1e-12)
    np.testing.assert_allclose(loaded["body_ipos"][1], heavier.body_ipos[1], atol=1e-12)
    np.testing.assert_allclose(np.sort(loaded["body_inertia"][1]), np.sort(heavier.body_inertia[1] - own), rtol=1e-9)
    gravity = np.asarray(place(theta))
    assert np.linalg.norm(gravity) == pytest.approx(10) and np.hypot(*gravity[:2]) / -gravity[2] == pytest.approx(0.5)
    slope = jax.jit(jax.jacfwd(lambda theta: inertia(theta)["body_inertia"][1]))(theta)[:, 0]
    steps = [inertia(theta.at[0].add(sign * 1e-5))["body_inertia"][1] for sign in (1, -1)]
    np.testing.assert_allclose(slope, (steps[0] - steps[1]) / 2e-5, atol=1e-7)
    wheel = diffsim.load(WHEEL.format(damping=0.1, loss=0.0, kp=20.0))
    tied = optimize.Unknowns(wheel, [optimize.Unknown("position.kp", "p"), optimize.Unknown("position.kv", equal=True)])
    changed = jax.jit(tied.model_of)(jnp.asarray([7.0, 0.5]))
    assert changed.actuator_gainprm[0, 0] == 7 and tuple(changed.actuator_biasprm[0, 1:3]) == (-7, -0.5)
    assert tied.labels == ["position.kp[p]", "position.kv"] and list(tied.start) == [20.0, 0.3]
