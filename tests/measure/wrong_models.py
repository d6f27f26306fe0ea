"""Fits of wrong models: recordings by C MuJoCo of arms with an effect that the fitted model lacks, or without one.

    make measure WHAT=wrong_models        # SEED=0 PROBLEMS=40, one line each, and counts
    RESULTS=out/wrong.jsonl SECONDS=600 python -m tests.measure.wrong_models

Each problem is an arm of one to three joints with motors or servos, drawn at random: lengths, masses, true numbers,
numbers of the model (off by about 30%), slow controls for the recording, and controls twice as fast that nobody fits.
Every second one has an effect of `EFFECTS`. `optimize.fit` simulates by C (by_c.py). Counted: the motions that are
twice as fast predicted worse than by the model's own numbers; the effect that is named first; 95% intervals that hold
the truth where the fit says that the model explains the data, and false ones.
"""

import os
import pathlib
import sys
import time
from typing import Any, NamedTuple

import jax

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_compilation_cache_dir", os.environ.get("DIFFSIM_JAX_CACHE", ".jax_cache/measure"))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)

import mujoco  # noqa: E402
import numpy as np  # noqa: E402

import diffsim  # noqa: E402
from diffsim import optimize  # noqa: E402
from tests.measure.by_c import simulated_by_c  # noqa: E402
from tests.measure.resumed import resumed  # noqa: E402

STEP, ROWS, NOISE = 0.01, 500, 3e-4
# a prediction is worse than that of the model's own numbers if its error is larger by this factor, plus the noise
WORSE = 1.02
# it is better if its error is smaller by this factor; a fit that keeps the model's own numbers is not better
BETTER = 0.95
# what is missing, and the names by which it counts as named
EFFECTS = {
    "friction": ("Coulomb friction", "stiction (Stribeck)"),
    "damping": ("viscous damping",),
    "stiction": ("stiction (Stribeck)",),
    "play": ("gear play",),
    "delay": ("delay",),
    "limit": ("force limit",),
    "gain": ("gain of a sensor",),
    "offset": ("offset of a sensor",),
    "tilt": ("tilted gravity",),
    "drift": ("drift of the damping",),
    "payload": ("payload",),
    "compliance": ("compliance",),
}


class Arm(NamedTuple):
    """An arm: XML of its numbers, by name; which joint the effect is on, and how strong it is."""

    joints: int
    servo: bool
    lengths: np.ndarray
    masses: np.ndarray
    effect: str
    which: int
    size: float

    def xml(self, numbers: dict[str, np.ndarray], real: bool) -> str:
        """The MJCF; the real one has the effects that MuJoCo's models have."""
        inside = ""
        for i in reversed(range(self.joints)):
            length = self.lengths[i]
            mass = self.masses[i]
            across = mass * length**2 / 12
            turned = "0 1 0" if i != 1 else "1 0 0" if self.joints == 3 else "0 1 0"
            here = real and i == self.which
            friction = self.size * 0.25 if here and self.effect == "friction" else 0.0
            damping = numbers["damping"][i] if self.effect != "damping" or i != self.which else self.size * 0.1 * real
            load = (
                f'<body pos="0 0 {-length}"><inertial pos="0 0 0" mass="{0.4 * self.size * mass}" '
                'diaginertia="1e-6 1e-6 1e-6"/></body>'
                if real and self.effect == "payload" and i == self.joints - 1
                else ""
            )
            inside = (
                f'<body name="link{i}" pos="0 0 {-self.lengths[i - 1] if i else 0}">'
                f'<joint name="j{i}" axis="{turned}" damping="{damping:.17g}" armature="{numbers["armature"][i]:.17g}" '
                f'frictionloss="{friction:.17g}"/><inertial pos="0 0 {-length / 2}" mass="{mass}" '
                f'diaginertia="{across} {across} {across / 15}"/>{load}{inside}</body>'
            )
        tilt = 0.4 * self.size if real and self.effect == "tilt" else 0.0
        drives = ""
        for i in range(self.joints):
            limit = f' forcelimited="true" forcerange="{-self.size} {self.size}"' if real and self.limited(i) else ""
            drives += (
                f'<position joint="j{i}" kp="{numbers["kp"][i]:.17g}" kv="1"{limit}/>'
                if self.servo
                else f'<motor joint="j{i}"{limit}/>'
            )
        sensors = "".join(f'<jointpos name="q{i}" joint="j{i}"/>' for i in range(self.joints))
        return (
            f'<mujoco><option timestep="{STEP}" gravity="{tilt} {tilt / 2} -9.81" integrator="implicitfast"/>'
            f"<worldbody>{inside}</worldbody><actuator>{drives}</actuator><sensor>{sensors}</sensor></mujoco>"
        )

    def limited(self, i: int) -> bool:
        """Whether the force of an actuator is limited."""
        return self.effect == "limit" and i == self.which


def controls(rng: np.random.Generator, arm: Arm) -> list[np.ndarray]:
    """Slow controls (ROWS, nu), and the same twice as fast."""
    rate, phase = rng.uniform(0.3, 0.8, (3, 1, arm.joints)), rng.uniform(0, 6.28, (3, 1, arm.joints))
    size = 0.5 if arm.servo else 0.35 * 9.81 * arm.masses * arm.lengths
    t = STEP * np.arange(ROWS)[:, None]
    return [size * np.sin(2 * np.pi * speed * rate * t + phase).sum(axis=0) for speed in (1, 2)]


def recorded(arm: Arm, xml: str, ctrl: np.ndarray) -> np.ndarray:
    """Readings (ROWS, joints) of the real arm, which begins at rest where it hangs."""
    model = mujoco.MjModel.from_xml_string(xml)
    data = mujoco.MjData(model)
    k, late = arm.which, 0.02 * arm.size
    t = STEP * np.arange(ROWS)
    if arm.effect == "delay":
        ctrl = np.stack([np.interp(t - late, t, column) for column in ctrl.T], axis=1)
    seen, torque = [], []
    follower = 0.0
    for row, now in zip(ctrl, t, strict=True):
        data.ctrl[:] = row
        v = data.qvel[k]
        if arm.effect == "stiction":
            data.qfrc_applied[k] = -arm.size * np.tanh(v / 0.02) * (0.1 + 0.25 * np.exp(-((v / 0.15) ** 2)))
        if arm.effect == "drift":
            data.qfrc_applied[k] = -arm.size * 0.3 * v * now / t[-1]
        mujoco.mj_step(model, data)
        reading = data.sensordata.copy()
        if arm.effect == "play":
            follower = np.clip(follower, reading[k] - 0.012 * arm.size, reading[k] + 0.012 * arm.size)
            reading[k] = follower
        seen.append(reading)
        torque.append(data.qfrc_actuator.copy())
    seen = np.asarray(seen)
    if arm.effect == "gain":
        seen[:, k] *= 1 + 0.05 * arm.size
    if arm.effect == "offset":
        seen[:, k] += 0.03 * arm.size
    if arm.effect == "compliance":
        seen[:, k] += 0.02 * arm.size * np.asarray(torque)[:, k]
    return seen


def drawn(seed: int) -> tuple[Arm, dict[str, np.ndarray], dict[str, np.ndarray], np.random.Generator]:
    """An arm, its true numbers, and those of the model."""
    rng = np.random.default_rng([65, seed])
    joints = int(rng.integers(1, 4))
    effect = list(EFFECTS)[(seed // 2) % len(EFFECTS)] if seed % 2 else "none"
    arm = Arm(
        joints=joints,
        servo=bool(rng.integers(2)),
        lengths=rng.uniform(0.2, 0.4, joints),
        masses=rng.uniform(0.5, 1.5, joints),
        effect=effect,
        which=int(rng.integers(joints)),
        size=float(rng.uniform(0.7, 1.5)),
    )
    truth = {
        "damping": rng.uniform(0.05, 0.3, joints),
        "armature": rng.uniform(0.01, 0.05, joints),
        "kp": rng.uniform(15, 40, joints),
    }
    model = {name: values * np.exp(0.3 * rng.normal(size=joints)) for name, values in truth.items()}
    return arm, truth, model, rng


def rms_of(xml: str, ctrl: np.ndarray, seen: np.ndarray) -> float:
    """Root mean square error of a prediction from rest."""
    model = mujoco.MjModel.from_xml_string(xml)
    data = mujoco.MjData(model)
    errors = []
    for row, reading in zip(ctrl, seen, strict=True):
        data.ctrl[:] = row
        mujoco.mj_step(model, data)
        errors.append(data.sensordata - reading)
    return float(np.sqrt(np.mean(np.square(errors))))


def judged(name: str) -> dict[str, Any]:
    """A fit of one problem, and what holds."""
    seed = int(name)
    arm, truth, guess, rng = drawn(seed)
    slow, fast = controls(rng, arm)
    real = arm.xml(truth, True)
    if arm.effect == "limit":
        # a limit at two thirds of the largest force without one
        free = arm._replace(effect="none")
        model = mujoco.MjModel.from_xml_string(free.xml(truth, True))
        data, largest = mujoco.MjData(model), 0.0
        for row in slow:
            data.ctrl[:] = row
            mujoco.mj_step(model, data)
            largest = max(largest, abs(data.actuator_force[arm.which]))
        arm = arm._replace(size=0.65 * largest)
        real = arm.xml(truth, True)
    seen = recorded(arm, real, slow) + NOISE * rng.normal(size=(ROWS, arm.joints))
    wanted = recorded(arm, real, fast)
    start = diffsim.load(arm.xml(guess, False))
    rows = [i for i in range(arm.joints) if arm.effect != "damping" or i != arm.which]
    unknowns = [optimize.Unknown("dof_armature", lower=0, upper=0.5)]
    if rows:
        unknowns.insert(0, optimize.Unknown("dof_damping", [f"j{i}" for i in rows], lower=0, upper=3))
    unknowns += [optimize.Unknown("position.kp", lower=1, upper=200)] * arm.servo

    def numbers(theta: np.ndarray) -> dict[str, np.ndarray]:
        values = {name: np.array(part) for name, part in guess.items()}
        ends = np.cumsum([len(rows), arm.joints])
        values["damping"][rows], values["armature"], rest = np.split(np.asarray(theta, float), ends)
        if arm.servo:
            values["kp"] = rest
        return values

    begin = time.process_time()
    with simulated_by_c(lambda theta: arm.xml(numbers(theta), False)):
        result = optimize.fit(start, optimize.make_recording(start, slow, seen), unknowns, NOISE)
    spent = time.process_time() - begin
    found = result.identified
    kept = found.start if result.first_guess_is_better else found.values
    nominal, fitted = rms_of(arm.xml(guess, False), fast, wanted), rms_of(arm.xml(numbers(kept), False), fast, wanted)
    true = np.concatenate([truth["damping"][rows], truth["armature"], *([truth["kp"]] if arm.servo else [])])
    shut = np.isfinite(found.upper - found.lower)
    inside = (found.lower <= true) & (true <= found.upper)
    effects = getattr(result, "missing", [])
    return {
        "effect": arm.effect,
        "explained": bool(result.explained),
        "fast": [fitted, nominal],
        "worse": bool(fitted > WORSE * nominal + NOISE),
        "better": bool(fitted < BETTER * nominal),
        "kept": bool(result.first_guess_is_better),
        "named": [f"{effect.name} {effect.share:.2f} {effect.criterion:.0f}" for effect in effects[:4]],
        "right": bool(effects) and effects[0].name in EFFECTS.get(arm.effect, ()),
        "intervals": int(np.sum(shut)) if result.explained else 0,
        "covered": int(np.sum(shut & inside)) if result.explained else 0,
        "deviations": ((np.asarray(found.values) - true) / found.std).tolist(),
        "labels": found.labels,
        "seconds": spent,
        "carry": str(result.carry_over),
    }


def main() -> None:
    """One line a problem, and counts."""
    first, count = int(os.environ.get("SEED", "0")), int(os.environ.get("PROBLEMS", "40"))
    log = pathlib.Path(os.environ.get("RESULTS", "out/wrong_models.jsonl"))
    mujoco.set_mju_user_warning(lambda words: None)
    names = [str(seed) for seed in range(first, first + count)]
    lines = resumed(log, names, judged, float(os.environ.get("SECONDS", "inf")))
    for line in lines:
        fitted, nominal = line["fast"]
        print(
            f"{line['path']} {line['effect']}: explained {line['explained']}, fast {1e3 * fitted:.2f} of "
            f"{1e3 * nominal:.2f} mrad{' WORSE' if line['worse'] else ''}; {'; '.join(line['named'])}; "
            f"{line['seconds']:.0f} s"
        )

    def better(lines: list[dict[str, Any]]) -> int:
        """How many predict better than the model's own numbers."""
        return sum(line["better"] for line in lines)

    wrong = [line for line in lines if line["effect"] != "none"]
    right = [line for line in lines if line["effect"] == "none"]
    shut, covered = (sum(line[name] for line in right) for name in ("intervals", "covered"))
    print(
        f"seeds {first} to {first + len(lines) - 1}: fast motions predicted worse than by the model's own numbers "
        f"{sum(line['worse'] for line in lines)} of {len(lines)} (bar 0), better {better(wrong)} of {len(wrong)} with "
        f"wrong models and {better(right)} of {len(right)} with right ones (bar 90%; "
        f"{sum(line['kept'] for line in lines)} kept the model's own numbers, which is not better); wrong models named "
        f"first "
        f"{sum(line['right'] for line in wrong)} of {len(wrong)} (bar 70%), unflagged "
        f"{sum(line['explained'] for line in wrong)}; right models: intervals that hold the truth {covered} of {shut} "
        f"(bar 93%), explained {sum(line['explained'] for line in right)} of {len(right)}"
    )


if __name__ == "__main__":
    sys.exit(main())
