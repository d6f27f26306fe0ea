"""What others could not identify, and we once could not: right by the default call, from recordings of C MuJoCo."""

import mujoco
import numpy as np
import pytest

import diffsim
from diffsim import optimize
from tests.measure.by_c import readings, simulated_by_c

Unknown = optimize.Unknown


def solved(
    xml: str, truth: dict[str, float], guess: dict[str, float], ctrl: np.ndarray, unknowns: list[Unknown], noise: float
) -> np.ndarray:
    """Values that `fit` finds from a guess and believes."""
    seen = readings(xml.format(**truth), ctrl)
    start = diffsim.load(xml.format(**guess))
    seen = seen + noise * np.random.default_rng(1).normal(size=seen.shape)
    result = optimize.fit(start, optimize.make_recording(start, ctrl, seen), unknowns, noise)
    assert result.explained, str(result)
    true = np.asarray(list(truth.values()))
    assert np.all(np.abs(result.identified.values - true) <= 1.5 * (result.identified.upper - result.identified.values))
    return result.identified.values


def sines(rows: int, timestep: float, size: float) -> np.ndarray:
    """(rows, 1)."""
    t = timestep * np.arange(rows)
    return size * (np.sin(9 * t) + np.sin(23 * t + 1))[:, None]


WHEEL = """<mujoco><option timestep=".01"/><worldbody><body><joint name="axle" axis="0 1 0" damping="{damping}"
frictionloss="{loss}" armature="{armature}"/><geom type="capsule" fromto="0 0 0 0 0 -.3" size=".03" mass="1"/></body>
</worldbody><actuator><motor joint="axle"/></actuator><sensor><jointpos joint="axle"/></sensor></mujoco>"""


def test_friction_damping_and_armature_from_their_bounds_of_1e_8() -> None:
    """mujoco issue 3284; also issue 1344, where friction could not leave zero."""
    truth = {"damping": 0.12, "loss": 0.2, "armature": 0.02}
    unknowns = [Unknown(f"dof_{name}", lower=1e-8, upper=5) for name in ("damping", "frictionloss", "armature")]
    values = solved(WHEEL, truth, dict.fromkeys(truth, 1e-8), sines(200, 0.01, 1.0), unknowns, 1e-3)
    np.testing.assert_allclose(values, list(truth.values()), rtol=0.05)


DRIVE = """<mujoco><option timestep=".002"/><worldbody><body name="wheel"><joint name="axle" axis="0 1 0"/>
<geom type="cylinder" size=".05 .02" mass=".5"/></body></worldbody><actuator><dcmotor name="m" joint="axle"
motorconst=".05" resistance="1" lugre="{s0} {s1} {fc} {fs} .05"/></actuator><sensor><jointpos joint="axle"/>
<jointvel joint="axle"/></sensor></mujoco>"""


def test_lugre_friction() -> None:
    """mujoco issue 3286, without bounds."""
    truth = {"s0": 30.0, "s1": 0.1, "fc": 0.04, "fs": 0.09}
    guess = {"s0": 12.0, "s1": 0.2, "fc": 0.03, "fs": 0.06}
    unknowns = [Unknown(f"dcmotor.lugre.{name}", "m") for name in ("sigma0", "sigma1", "coulomb", "static")]
    values = solved(DRIVE, truth, guess, sines(300, 0.002, 1.5), unknowns, 1e-4)
    np.testing.assert_allclose(values, list(truth.values()), rtol=0.05)


BALL = """<mujoco><option timestep=".002"/><worldbody><geom type="plane" size="5 5 .1"/><body name="ball" pos="0 0 .3">
<joint name="z" type="slide" axis="0 0 1"/><geom name="ball" size=".05" mass=".2" solref=".03 {ratio}" priority="1"/>
</body></worldbody><sensor><jointvel joint="z"/></sensor></mujoco>"""


def test_the_damping_of_a_contact_from_the_speed_after_a_collision() -> None:
    """mujoco issue 2841: nothing but the velocity is seen."""
    unknowns = [Unknown("geom_solref", "ball", 1, lower=0.02, upper=2)]
    values = solved(BALL, {"ratio": 0.4}, {"ratio": 1.0}, np.zeros((200, 0)), unknowns, 2e-3)
    assert values[0] == pytest.approx(0.4, rel=0.02)


FREE = '<freejoint/><geom type="box" size=".1 .1 .1" mass="{mass}" friction=".4"/>'
PLANAR = """<joint name="x" type="slide" axis="1 0 0"/><joint name="z" type="slide" axis="0 0 1"/>
<joint axis="0 1 0"/><geom type="box" size=".1 .1 .1" mass="{mass}" friction=".4"/>"""
CUBE = """<mujoco><option timestep=".005"/><worldbody><site name="w"/><geom type="plane" size="5 5 .1" friction=".4"/>
<body name="cube" pos="0 0 .0999">joints<site name="c"/></body></worldbody><actuator><motor site="c" refsite="w"
gear="1 0 0 0 0 0"/></actuator><sensor>sensors</sensor></mujoco>"""


@pytest.mark.parametrize(
    ("joints", "sensors"),
    [
        pytest.param(PLANAR, '<jointpos joint="x"/><jointpos joint="z"/>', id="planar"),
        pytest.param(FREE, '<framepos objtype="body" objname="cube"/>', id="free"),
    ],
)
def test_the_mass_of_a_cube_that_is_pushed(joints: str, sensors: str) -> None:
    """Its pose begins within noise of the floor that carries it; simulated by C, since the search is in question."""
    ctrl = np.zeros((60, 1))
    ctrl[10:30] = 12
    xml = CUBE.replace("joints", joints).replace("sensors", sensors)
    unknown = Unknown("body_mass", "cube", lower=0.2, upper=5)
    with simulated_by_c(lambda theta: xml.format(mass=float(theta[0]))):
        values = solved(xml, {"mass": 1.7}, {"mass": 1.0}, ctrl, [unknown], 1e-3)
    assert values[0] == pytest.approx(1.7, rel=0.02)


TOSSED = """<mujoco><option timestep=".005"/><worldbody><geom type="plane" size="5 5 .1" friction=".01"/>
<body name="cube"><freejoint/><geom name="cube" type="box" size=".1 .1 .1" mass="{mass}" friction="{mu}"
solref=".039 .572"/></body></worldbody><sensor><framepos objtype="body"
objname="cube"/><framequat objtype="body" objname="cube"/></sensor></mujoco>"""


def test_the_friction_of_a_cube_that_slides_and_tumbles() -> None:
    """Two tosses, simulated by C. The search sees more and more of them; a mass that nothing shows stays as it was."""
    rng = np.random.default_rng(1)
    model = mujoco.MjModel.from_xml_string(TOSSED.format(mu=0.405, mass=1))
    recordings = []
    start = diffsim.load(TOSSED.format(mu=0.3, mass=1))
    for _ in range(2):
        data = mujoco.MjData(model)
        data.qpos[2] = rng.uniform(0.2, 0.3)
        data.qvel[:3] = [*rng.uniform(0.5, 1.5, 2), rng.uniform(-1, 0)]
        data.qpos[3:] = rng.normal(size=4)
        data.qpos[3:] /= np.linalg.norm(data.qpos[3:])
        data.qvel[3:] = rng.uniform(-6, 6, 3)
        seen = []
        for _ in range(80):
            mujoco.mj_step(model, data)
            seen.append(data.sensordata + 1e-3 * rng.normal(size=7))
        recordings.append(optimize.make_recording(start, np.zeros((80, 0)), np.asarray(seen)))
    unknowns = [
        Unknown("geom_friction", "cube", 0, lower=0.02, upper=2),
        Unknown("body_mass", "cube", lower=0.2, upper=5),
    ]
    with simulated_by_c(lambda theta: TOSSED.format(mu=float(theta[0]), mass=float(theta[1]))):
        result = optimize.fit(start, recordings, unknowns, 1e-3)
    assert result.explained and result.iterations < 100
    assert result.identified.values[0] == pytest.approx(0.405, rel=0.02)
    assert result.identified.values[1] == pytest.approx(1, rel=1e-3) and np.isinf(result.identified.std[1])
