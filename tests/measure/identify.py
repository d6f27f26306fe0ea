"""Identification: synthetic problems of ten kinds, recorded by C MuJoCo.

    make measure WHAT=identify            # PROBLEMS of each kind, one line of counts each
    PROBLEMS=4 KINDS=arm,legs RESULTS=some.jsonl SECONDS_AT_MOST=300 python -m tests.measure.identify
    BY=c FIRST=60 PROBLEMS=50 python -m tests.measure.identify   # other seeds; simulated by C (by_c.py)

Of each problem the truth and the start are random, and `optimize.fit` is called as a user would, with the noise of the
sensors and nothing else. Each is a line of RESULTS: what is there is not run again, so that a run may end and go on;
each says which code it is of. A number counts as right if its interval, twice as wide, holds the truth, or if it is
said to be not identified; as solved if it is within 5% or three standard deviations. A result that is wrong and says
"explains the data" is unflagged. Where numbers are said to be not identified, and a fit that begins at the truth says
so too, the problem counts as hidden, not as unsolved. Truths whose motion breaks down in C are drawn again.
"""

import contextlib
import hashlib
import json
import os
import pathlib
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_compilation_cache_dir", os.environ.get("DIFFSIM_JAX_CACHE", ".jax_cache/measure"))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)

import mujoco  # noqa: E402
import numpy as np  # noqa: E402
import scipy.interpolate  # noqa: E402

import diffsim  # noqa: E402
from diffsim import optimize  # noqa: E402
from tests.measure.by_c import simulated_by_c  # noqa: E402

Unknown = optimize.Unknown
BY = os.environ.get("BY", "diffsim")
RESULTS = os.environ.get("RESULTS", f"out/identify_{BY}.jsonl")


class Kind(NamedTuple):
    """A kind of problem.

    Attributes:
      xml: with places `{name}` for numbers.
      true: (low, high) of each number.
      unknowns: of `optimize.fit`, in the order of `true`; numbers of sensors, which the model does not have, are last.
      noise: of the readings; rows: of the recording.
      ctrl: (rng, rows, timestep) -> (rows, nu).
      start: sets qpos and qvel, (rng, model, data).
      spoil: what happens to readings and is not in the model, (readings, truth, timestep) -> readings.
      wrong: XML of the truth, if the model is wrong on purpose.
    """

    xml: str
    true: dict[str, tuple[float, float]]
    unknowns: list[optimize.Unknown | optimize.UnknownPayload]
    noise: float
    rows: int
    ctrl: Callable[[np.random.Generator, int, float], np.ndarray] = lambda rng, rows, h: np.zeros((rows, 0))
    start: Callable[[np.random.Generator, mujoco.MjModel, mujoco.MjData], None] = lambda rng, model, data: None
    spoil: Callable[[np.ndarray, dict[str, float], float], np.ndarray] = lambda seen, truth, h: seen
    wrong: str = ""


def sines(size: list[float], slow: float = 1.0, fast: float = 3.0) -> Callable:
    """Controls that are sums of three sines of random frequency (Hz) and phase."""

    def ctrl(rng: np.random.Generator, rows: int, h: float) -> np.ndarray:
        t = h * np.arange(rows)[:, None, None]
        rate, phase = rng.uniform(slow, fast, (3, len(size))), rng.uniform(0, 6.28, (3, len(size)))
        return np.asarray(size) * np.sin(2 * np.pi * rate * t + phase).sum(axis=1) / 1.7

    return ctrl


ARM = """<mujoco><option timestep=".01"/><worldbody><body name="upper">
<joint name="shoulder" axis="0 1 0" damping="{d1}"{more}/>
<geom type="capsule" fromto="0 0 0 0 0 -.4" size=".03" mass="1"/>
<body name="fore" pos="0 0 -.4"><joint name="elbow" axis="0 1 0" damping="{d2}" armature="{arm}"/>
<geom type="capsule" fromto="0 0 0 0 0 -.3" size=".03" mass="{mass}"/></body></body></worldbody>
<actuator><motor name="m1" joint="shoulder"/><motor name="m2" joint="elbow"/></actuator>
<sensor><jointpos name="q1" joint="shoulder"/><jointpos name="q2" joint="elbow"/></sensor>
<contact><exclude body1="upper" body2="fore"/></contact></mujoco>"""
ARM_TRUE = {"d1": (0.1, 0.6), "d2": (0.05, 0.4), "arm": (0.005, 0.03), "mass": (0.3, 1.2)}
ARM_UNKNOWNS = [
    Unknown("dof_damping", "shoulder", lower=0, upper=2),
    Unknown("dof_damping", "elbow", lower=0, upper=2),
    Unknown("dof_armature", "elbow", lower=0, upper=0.1),
    Unknown("body_mass", "fore", lower=0.1, upper=3, log=True),
]

LEG = """<mujoco><option timestep=".005"/><worldbody><body name="thigh" pos="0 0 1"><joint name="hip" axis="0 1 0"
 damping="{d}" frictionloss="{f}" armature="{arm}"/><geom type="capsule" fromto="0 0 0 0 0 -.2" size=".03" mass="1"/>
<body name="calf" pos="0 0 -.2"><joint name="knee" axis="0 1 0" damping="{d}" frictionloss="{f}" armature="{arm}"/>
<geom type="capsule" fromto="0 0 0 0 0 -.2" size=".02" mass=".3"/></body></body></worldbody>
<actuator><position name="hip" joint="hip" kp="{kp}" kv="0.5"/><position name="knee" joint="knee" kp="{kp}" kv="0.5"/>
</actuator><sensor><jointpos name="hip" joint="hip"/><jointpos name="knee" joint="knee"/></sensor>
<contact><exclude body1="thigh" body2="calf"/></contact></mujoco>"""

DRIVE = """<mujoco><option timestep=".002"/><worldbody><body name="wheel"><joint name="axle" axis="0 1 0"/>
<geom type="cylinder" size=".05 .02" mass=".5"/></body></worldbody><actuator><dcmotor name="m" joint="axle"
 motorconst=".05" resistance="1" lugre="{s0} {s1} {fc} {fs} .05"/></actuator><sensor><jointpos name="q" joint="axle"/>
<jointvel name="v" joint="axle"/></sensor></mujoco>"""

CUBE = """<mujoco><option timestep=".005"/><worldbody><site name="w"/><geom name="floor" type="plane" size="5 5 .1"
 friction="{mu}"/><body name="cube" pos="0 0 .0999"><freejoint/><geom name="cube" type="box" size=".1 .1 .1"
 mass="{mass}" friction="{mu}"/><site name="c"/></body></worldbody>{actuator}
<sensor><framepos objtype="body" objname="cube"/>{quat}</sensor></mujoco>"""
PUSH = '<actuator><motor site="c" refsite="w" gear="1 0 0 0 0 0"/></actuator>'
QUAT = '<framequat objtype="body" objname="cube"/>'

BALL = """<mujoco><option timestep=".002"/><worldbody><geom name="floor" type="plane" size="5 5 .1"/>
<body name="ball" pos="0 0 .3"><joint name="z" type="slide" axis="0 0 1"/><geom name="ball" size=".05" mass=".2"
 solref="{time} {ratio}" priority="1"/></body></worldbody><sensor><jointpos name="z" joint="z"/></sensor></mujoco>"""

FINGER = """<mujoco><option timestep=".004"/><worldbody><body name="palm">
<joint name="lift" type="slide" axis="0 0 1" damping="2"/><geom size=".05" mass="1"/></body></worldbody>
<actuator><position name="lift" joint="lift" kp="300" kv="20"/></actuator>
<sensor><jointpos name="z" joint="lift"/></sensor></mujoco>"""

TENDON = """<mujoco><option timestep=".005"/><worldbody>
<body name="a"><joint name="a" type="slide" axis="1 0 0" damping=".5"/><geom size=".05" mass="1"/></body>
<body name="b" pos=".5 0 0"><joint name="b" type="slide" axis="1 0 0" damping=".5"/><geom size=".05" mass="1.5"/></body>
</worldbody><tendon><fixed name="t" stiffness="{k}" damping="{c}">
<joint joint="a" coef="1"/><joint joint="b" coef="-{r}"/></fixed></tendon>
<actuator><motor name="m" joint="a"/></actuator>
<sensor><jointpos name="a" joint="a"/><jointpos name="b" joint="b"/></sensor>
<contact><exclude body1="a" body2="b"/></contact></mujoco>"""


def late(seen: np.ndarray, truth: dict[str, float], h: float) -> np.ndarray:
    """Readings (rows, 2), the first late by `delay`, the second off by `bias`."""
    t = h * np.arange(len(seen))
    smooth = scipy.interpolate.CubicSpline(t, seen[:, 0])
    return np.stack([smooth(t - truth["delay"]), seen[:, 1] + truth["bias"]], axis=1)


def swing(rng: np.random.Generator, model: mujoco.MjModel, data: mujoco.MjData) -> None:
    """A random start of joints that turn."""
    data.qpos[:], data.qvel[:] = rng.uniform(-0.5, 0.5, model.nq), rng.uniform(-1, 1, model.nv)


def toss(rng: np.random.Generator, model: mujoco.MjModel, data: mujoco.MjData) -> None:
    """A cube thrown on the floor."""
    data.qpos[2], data.qvel[:2], data.qvel[2] = rng.uniform(0.2, 0.3), rng.uniform(0.3, 1, 2), rng.uniform(-1, 0)
    data.qpos[3:7] = rng.normal(size=4)
    data.qpos[3:7] /= np.linalg.norm(data.qpos[3:7])
    data.qvel[3:] = rng.uniform(-3, 3, 3)


def push(rng: np.random.Generator, rows: int, h: float) -> np.ndarray:
    """A push after some rest."""
    ctrl = np.zeros((rows, 1))
    ctrl[10 : 10 + int(0.2 / h)] = rng.uniform(15, 25)
    return ctrl


KINDS = {
    "arm": Kind(ARM, ARM_TRUE, ARM_UNKNOWNS, 1e-3, 120, sines([2.0, 1.0]), swing),
    "legs": Kind(
        LEG,
        {"d": (0.02, 0.2), "f": (0.05, 0.4), "arm": (0.005, 0.03), "kp": (10, 40)},
        [
            Unknown("dof_damping", lower=0, upper=2, equal=True),
            Unknown("dof_frictionloss", lower=0, upper=2, equal=True),
            Unknown("dof_armature", lower=0, upper=0.1, equal=True),
            Unknown("position.kp", lower=1, upper=100, equal=True),
        ],
        5e-4,
        200,
        sines([0.6, 0.6]),
    ),
    "drive": Kind(
        DRIVE,
        {"s0": (10, 60), "s1": (0.05, 0.3), "fc": (0.02, 0.06), "fs": (0.07, 0.12)},
        [
            Unknown("dcmotor.lugre.sigma0", "m", lower=1, upper=200, log=True),
            Unknown("dcmotor.lugre.sigma1", "m", lower=0.005, upper=2, log=True),
            Unknown("dcmotor.lugre.coulomb", "m", lower=0.005, upper=0.2, log=True),
            Unknown("dcmotor.lugre.static", "m", lower=0.02, upper=0.3, log=True),
        ],
        1e-4,
        300,
        sines([4.0], 1.0, 4.0),
    ),
    "pushed": Kind(
        CUBE.replace("{actuator}", PUSH).replace("{quat}", ""),
        {"mass": (0.5, 3), "mu": (0.3, 0.5)},
        [
            Unknown("body_mass", "cube", lower=0.2, upper=5),
            Unknown("geom_friction", column=0, lower=0.05, upper=2, equal=True),
        ],
        1e-3,
        120,
        push,
    ),
    "bounced": Kind(
        BALL,
        {"time": (0.01, 0.05), "ratio": (0.2, 0.8)},
        [
            Unknown("geom_solref", "ball", 0, lower=0.004, upper=0.2, log=True),
            Unknown("geom_solref", "ball", 1, lower=0.02, upper=2, log=True),
        ],
        5e-4,
        500,
    ),
    "tossed": Kind(
        CUBE.replace("{actuator}", "").replace("{quat}", QUAT),
        {"mu": (0.1, 0.6)},
        [Unknown("geom_friction", column=0, lower=0.02, upper=2, equal=True)],
        1e-3,
        120,
        start=toss,
    ),
    "gripper": Kind(
        FINGER,
        {"mass": (0.1, 1.5)},
        [optimize.UnknownPayload("palm", upper=5, reach=1e-6)],
        2e-4,
        150,
        sines([0.05], 0.5, 2),
    ),
    "tendon": Kind(
        TENDON,
        {"k": (50, 300), "c": (0.5, 4)},
        [
            Unknown("tendon_stiffness", "t", lower=1, upper=1000, log=True),
            Unknown("tendon_damping", "t", lower=0, upper=20),
        ],
        5e-4,
        200,
        sines([10.0], 0.5, 2),
    ),
    "delays": Kind(
        ARM,
        {"d1": (0.1, 0.6), "d2": (0.05, 0.4), "delay": (0.003, 0.02), "bias": (-0.05, 0.05)},
        [
            Unknown("dof_damping", "shoulder", lower=0, upper=2),
            Unknown("dof_damping", "elbow", lower=0, upper=2),
            Unknown("sensor.delay", "q1"),
            Unknown("sensor.bias", "q2", lower=-1, upper=1),
        ],
        1e-3,
        120,
        sines([2.0, 1.0], 0.5, 2),
        swing,
        late,
    ),
    "wrong": Kind(ARM, ARM_TRUE, ARM_UNKNOWNS, 1e-3, 120, sines([2.0, 1.0]), swing, wrong='frictionloss="{loss}"'),
}
FIXED = {"arm": 0.0125, "mass": 0.6, "more": "", "r": 0.7}
# a simulation that breaks down: readings beyond this (m, rad, a second), and what C warns of
HUGE = 1e3
BREAKDOWNS = (mujoco.mjtWarning.mjWARN_BADQPOS, mujoco.mjtWarning.mjWARN_BADQVEL, mujoco.mjtWarning.mjWARN_BADQACC)


class Problem(NamedTuple):
    """A model with wrong numbers, a recording of one with the right ones, and these."""

    model: diffsim.Model
    recording: optimize.Recording
    truth: np.ndarray
    recorded: mujoco.MjModel


def recorded(xml: str, kind: Kind, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, mujoco.MjModel]:
    """Controls and clean readings of C MuJoCo; no rows of a motion that breaks down."""
    model = mujoco.MjModel.from_xml_string(xml)
    data = mujoco.MjData(model)
    kind.start(rng, model, data)
    ctrl, seen = kind.ctrl(rng, kind.rows, model.opt.timestep), []
    for row in ctrl:
        data.ctrl[:] = row
        # sensors are those of the state before the step
        mujoco.mj_step(model, data)
        seen.append(data.sensordata.copy())
    broken = sum(data.warning[int(kind)].number for kind in BREAKDOWNS) or np.max(np.abs(seen)) > HUGE
    return ctrl, np.asarray(seen)[: 0 if broken else None], model


def written(kind: Kind, numbers: dict[str, float], more: str = "") -> str:
    """The XML of a model with these numbers."""
    xml = kind.xml.format(**{**FIXED, **numbers, "more": more})
    return xml.replace('mass="1"/>', f'mass="{1 + numbers["mass"]!r}"/>') if "palm" in xml else xml


def problem(name: str, seed: int, from_truth: bool = False) -> Problem:
    """A random one of a kind, whose search begins at a guess or at the truth; no two kinds share their noise."""
    kind, rng, seen = KINDS[name], np.random.default_rng([seed, list(KINDS).index(name)]), np.zeros(0)
    while not seen.size:
        truth = {name: float(rng.uniform(*ends)) for name, ends in kind.true.items()}
        guess = {name: float(rng.uniform(*ends)) for name, ends in kind.true.items()}
        more = kind.wrong.format(loss=rng.uniform(0.3, 0.8))
        ctrl, seen, model = recorded(written(kind, truth, more), kind, rng)
    guess = truth if from_truth else guess
    seen = kind.spoil(seen, truth, model.opt.timestep)
    seen = seen + kind.noise * rng.normal(size=seen.shape)
    start = diffsim.load(kind.xml.format(**{**FIXED, **guess, "more": ""}))
    recording = optimize.make_recording(start, ctrl, seen)
    return Problem(start, recording, np.asarray(list(truth.values())), model)


def fitted(kind: Kind, task: Problem) -> optimize.FitResult:
    """What `optimize.fit` says of a problem."""
    logs = [getattr(unknown, "log", False) for unknown in kind.unknowns]

    def build(theta: np.ndarray) -> str:
        # a payload is a mass and where it is
        values = (float(np.exp(value) if log else value) for value, log in zip(theta, logs, strict=False))
        return written(kind, dict(zip(kind.true, values, strict=False)))

    with simulated_by_c(build) if BY == "c" else contextlib.nullcontext():
        return optimize.fit(task.model, task.recording, kind.unknowns, kind.noise)


def judged(name: str, seed: int) -> dict[str, Any]:
    """A fit of one problem: what was said of it and what holds."""
    kind, begin = KINDS[name], time.process_time()
    task = problem(name, seed)
    result = fitted(kind, task)
    spent, shown, truth = time.process_time() - begin, result.identified, task.truth
    values, low, high = (part[: truth.size] for part in (shown.values, shown.lower, shown.upper))
    shut = np.isfinite(low) & np.isfinite(high)
    middle, half = (0.5 * np.where(shut, high + sign * low, 0) for sign in (1, -1))
    close = (np.abs(values - truth) < 0.05 * np.abs(truth)) | (np.abs(values - truth) < 1.5 * half)
    off = shut & (~close if kind.wrong else np.abs(truth - middle) > 2 * half)
    hidden = False
    if result.explained and not shut.all() and not kind.wrong:
        hidden = not np.isfinite(fitted(kind, problem(name, seed, from_truth=True)).identified.std[: truth.size]).all()
    return {
        "seed": seed,
        "explained": bool(result.explained),
        "solved": bool(result.explained and np.all(close)),
        "hidden": bool(hidden),
        "intervals": int(np.sum(shut)) if result.explained else 0,
        "covered": int(np.sum(shut & (low <= truth) & (truth <= high))) if result.explained else 0,
        "wrong": bool(off.any() or not (result.explained or close.all())),
        "unflagged": bool(off.any() and result.explained),
        "seconds": round(spent, 2),
        "truth": truth.tolist(),
        "values": values.tolist(),
        "half": half.tolist(),
        "verdict": result.evidence.sentence,
        "ended": f"{result.message}, {result.iterations} Jacobians",
    }


def code() -> str:
    """What tells fits apart: a digest of the files that make them."""
    files = sorted(pathlib.Path(optimize.__file__).parent.glob("identify/*.py"))
    return hashlib.sha1(b"".join(path.read_bytes() for path in files)).hexdigest()[:8]


def counted(rows: list[dict[str, Any]]) -> str:
    """Counts of some problems."""
    total = {name: sum(row[name] for row in rows) for name in ("explained", "solved", "covered", "intervals")}
    total |= {name: sum(row[name] for row in rows) for name in ("wrong", "unflagged", "seconds")}
    total["hidden"] = sum(row.get("hidden", False) for row in rows)
    share = total["covered"] / max(total["intervals"], 1)
    return (
        f"{len(rows)} problems, {total['explained']} explained, {total['solved']} solved, {total['hidden']} hidden; "
        f"intervals that hold the truth {total['covered']} of {total['intervals']} ({share:.1%}); "
        f"wrong {total['wrong']}, unflagged {total['unflagged']}; {total['seconds']:.0f} s"
    )


def main() -> None:
    """Fits what is not yet in the file of results, as long as there is time; one line for each kind, and one of all."""
    wanted, seconds = int(os.environ.get("PROBLEMS", "20")), float(os.environ.get("SECONDS_AT_MOST", "inf"))
    first = int(os.environ.get("FIRST", "0"))
    # of motions that break down, which their cost tells
    mujoco.set_mju_user_warning(lambda words: None)
    chosen, path, now = os.environ.get("KINDS", ",".join(KINDS)).split(","), pathlib.Path(RESULTS), code()
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    rows = [row for row in rows if row["kind"] in chosen and first <= row["seed"] < first + wanted]
    for name in chosen:
        there = {row["seed"] for row in rows if row["kind"] == name}
        for seed in sorted(set(range(first, first + wanted)) - there):
            if time.process_time() > seconds:
                break
            rows.append({"kind": name, "code": now, **judged(name, seed)})
            with path.open("a") as file:
                file.write(json.dumps(rows[-1]) + "\n")
    for name in chosen:
        print(f"{name}: {counted([row for row in rows if row['kind'] == name])}")
    right = [row for row in rows if not KINDS[row["kind"]].wrong and (row["solved"] or not row.get("hidden"))]
    solved = sum(row["solved"] for row in right) / max(len(right), 1)
    print(f"all: {counted(rows)}; with a right model {solved:.1%} solved (bars: 93% a kind, 2% unflagged, 95% solved)")
    print(f"{len(rows)} of {wanted * len(chosen)} problems, {sum(row['code'] != now for row in rows)} by other code")


if __name__ == "__main__":
    sys.exit(main())
