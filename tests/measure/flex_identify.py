"""What soft bodies are made of, from recordings of C MuJoCo: `make measure WHAT=flex_identify`, one line a problem.

A cube falls on its edge, a cloth on a ball: Young's modulus, Poisson's ratio and damping are random, and so is the
guess. Of the true body MuJoCo records where some vertices are, with noise; `optimize.fit` is called as a user would who
knows where the body starts. A problem is solved where all three are within 1% and inside their intervals, after 10
Jacobians at most. Contacts begin softly (solimp): at the default their force jumps, and a contact that begins a step
later moves the whole motion by more than the noise. HARD=1 takes the default: the misfit then jumps between guess and
truth at every contact that begins or ends, and searches stop on the way.

The throw: a cube of 2 x 2 x 2 cells hits the floor and flies on; which Young's modulus and Poisson's ratio let it end
at a target? By Gauss-Newton steps on where its middle ends, over logarithms.

PROBLEMS=3 of each kind, KINDS=cube,cloth,throw; what is done is kept in out/flex_identify.jsonl.
"""

import os
import pathlib
import time
from typing import Any

import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402
import mujoco  # noqa: E402
import numpy as np  # noqa: E402

import diffsim  # noqa: E402
from diffsim import optimize  # noqa: E402
from tests.measure.resumed import resumed  # noqa: E402

Unknown = optimize.Unknown
NOISE = 2e-4
HEAD = '<mujoco><option timestep=".001" integrator="implicitfast"/><worldbody>'
SEEN = '<framepos objtype="body" objname="f_{}"/>'
CUBE = (
    HEAD + '<geom type="plane" size="3 3 .1"/><body name="b" pos="0 0 {height}">'
    '<flexcomp name="f" euler="20 35 0" type="grid" dim="3" count="3 3 3" spacing=".05 .05 .05" mass=".5" '
    'radius=".005">'
    '<elasticity young="{young}" poisson="{poisson}" damping="{damping}"/>'
    '<contact selfcollide="none" internal="false" solref=".01" solimp="0 .95 .01"/></flexcomp></body></worldbody>'
    "<sensor>" + "".join(SEEN.format(i) for i in (0, 2, 6, 8, 13, 18, 20, 24, 26)) + "</sensor></mujoco>"
)
CLOTH = (
    HEAD + '<geom size=".08" pos=".01 .02 .1"/><body name="b" pos="0 0 .2">'
    '<flexcomp name="f" euler="8 5 0" type="grid" dim="2" count="6 6 1" spacing=".05 .05 .05" mass=".1" radius=".005">'
    '<elasticity young="{young}" poisson="{poisson}" damping="{damping}" thickness=".004" elastic2d="both"/>'
    '<contact selfcollide="none" internal="false" solref=".01" solimp="0 .95 .01"/></flexcomp></body></worldbody>'
    "<sensor>" + "".join(SEEN.format(i) for i in range(0, 36, 3)) + "</sensor></mujoco>"
)
if os.environ.get("HARD", "0") == "1":
    CUBE, CLOTH = (text.replace(' solimp="0 .95 .01"', "") for text in (CUBE, CLOTH))
# MJCF, ranges of the three numbers in which both are stable, rows. They are turned by `flexcomp`: where the parent body
# is turned, MuJoCo's elastic forces on vertices are not, and shake a soft body until it bursts
KINDS: dict[str, tuple[str, dict[str, tuple[float, float]], int]] = {
    "cube": (CUBE, {"young": (5e3, 2e4), "poisson": (0.1, 0.4), "damping": (0.001, 0.003)}, 300),
    "cloth": (CLOTH, {"young": (3e4, 1e5), "poisson": (0.1, 0.4), "damping": (0.001, 0.004)}, 300),
}
FIXED = {"height": 0.12}


def identified(kind: str, seed: int) -> dict[str, Any]:
    """A fit of one problem."""
    text, ranges, rows = KINDS[kind]
    rng = np.random.default_rng(seed)
    truth, guess = ({name: float(rng.uniform(*ends)) for name, ends in ranges.items()} for _ in range(2))
    mjmodel = mujoco.MjModel.from_xml_string(text.format(**FIXED, **truth))
    data, seen, touches = mujoco.MjData(mjmodel), [], 0
    qpos, qvel = np.zeros((rows, mjmodel.nq)), np.zeros((rows, mjmodel.nv))
    for _ in range(rows):
        mujoco.mj_step(mjmodel, data)
        seen.append(data.sensordata.copy())
        touches = max(touches, data.ncon)
    if any(warning.number for warning in data.warning):
        raise RuntimeError(f"{kind} {seed}: MuJoCo's recording is unstable")
    model = diffsim.load(text.format(**FIXED, **guess))
    readings = np.array(seen) + NOISE * rng.normal(size=(rows, mjmodel.nsensordata))
    recording = optimize.make_recording(model, np.zeros((rows, 0)), readings, qpos, qvel)
    unknowns = [
        Unknown("flex_young", lower=1e2, upper=1e7, log=True),
        Unknown("flex_poisson", lower=0.01, upper=0.48),
        Unknown("flex_damping", lower=1e-5, upper=1, log=True),
    ]
    begin = time.process_time()
    settings = optimize.Fit(window=rows, known_start=True, mode="forward", starts=1)
    result = optimize.fit(model, recording, unknowns, NOISE, settings)
    shown, true = result.identified, np.array(list(truth.values()))
    return {
        "truth": true.tolist(),
        "guess": list(guess.values()),
        "errors": (np.abs(shown.values - true) / true).tolist(),
        "std": (shown.std / np.array([1, true[1], 1])).tolist(),
        "inside": bool(np.all((shown.lower <= true) & (true <= shown.upper))),
        "Jacobians": int(result.iterations),
        "explained": bool(result.explained),
        "contacts": touches,
        "seconds": time.process_time() - begin,
    }


def throw(seed: int) -> dict[str, Any]:
    """The materials that let a cube end where one with others ended."""
    rng, text = np.random.default_rng(seed), CUBE.replace('spacing=".05 .05 .05"', 'spacing=".1 .1 .1"')
    made = {"height": 0.3, "young": 1.5e4, "poisson": 0.25, "damping": 0.0005}
    model, steps = diffsim.load(text.format(**made)), 400
    state = diffsim.make_state(model)
    state = state.replace(qvel=jnp.tile(jnp.array([2.0, 0.5, -1.0]), model.nv // 3))
    low, high = jnp.log(jnp.array([2e3, 0.02])), jnp.log(jnp.array([3e4, 0.4]))

    def end(material: jax.Array) -> jax.Array:
        young, poisson = jnp.exp(material)
        leaves = {"flex_young": young * jnp.ones(1), "flex_poisson": poisson * jnp.ones(1)}
        changed = diffsim.set_const(model.replace(**leaves))
        final = jax.lax.fori_loop(0, steps, lambda _, s: diffsim.step(changed, s), state)
        return jnp.mean(diffsim.forward(changed, final).flexvert_xpos, axis=0)

    look = diffsim.jit(lambda x: (end(x), jax.jacfwd(end)(x)))
    begin = time.process_time()
    target = look(jnp.log(jnp.array([rng.uniform(4e3, 2.5e4), rng.uniform(0.05, 0.35)])))[0]
    material, damp, taken = jnp.log(jnp.array([made["young"], made["poisson"]])), 1e-4, 1
    at, slope = look(material)
    first = float(jnp.linalg.norm(at - target))
    while jnp.linalg.norm(at - target) > 1e-3 and taken < 40:
        gram = slope.T @ slope
        step = jnp.linalg.solve(gram + damp * jnp.diag(jnp.diag(gram)), slope.T @ (target - at))
        trial = jnp.clip(material + jnp.clip(step, -1, 1), low, high)
        (there, tried), taken = look(trial), taken + 1
        better = bool(jnp.linalg.norm(there - target) < jnp.linalg.norm(at - target))
        damp = damp / 10 if better else max(10 * damp, 1e-3)
        if better:
            material, at, slope = trial, there, tried
    missed = float(jnp.linalg.norm(at - target))
    return {"first": first, "missed": missed, "Jacobians": taken, "seconds": time.process_time() - begin}


def measure(name: str) -> dict[str, Any]:
    """A problem, "kind seed"."""
    kind, seed = name.split()
    return throw(int(seed)) if kind == "throw" else identified(kind, int(seed))


def main() -> None:
    """Prints a line for each problem, and counts."""
    kinds, count = os.environ.get("KINDS", "cube,cloth,throw").split(","), int(os.environ.get("PROBLEMS", "3"))
    names = [f"{kind} {seed}" for kind in kinds for seed in range(count)]
    log = pathlib.Path(os.environ.get("RESULTS", "out/flex_identify.jsonl"))
    solved = 0
    lines = resumed(log, names, measure, float(os.environ.get("SECONDS_MOST", "inf")))
    for line in lines:
        if "missed" in line:
            good = line["missed"] < 1e-3
            said = f"missed by {line['missed']:.1e} m of {line['first']:.2f}"
        else:
            good = line["inside"] and max(line["errors"]) < 0.01 and line["Jacobians"] <= 10
            errors = ", ".join(f"{e:.2%} (std {s:.2%})" for e, s in zip(line["errors"], line["std"], strict=True))
            said = f"young, poisson, damping off by {errors}; inside {line['inside']}; explained {line['explained']}"
        solved += good
        print(f"{line['path']}: {said}; {line['Jacobians']} Jacobians, {line['seconds']:.0f} CPU s")
    print(f"flex_identify: {solved} of {len(lines)} solved")


if __name__ == "__main__":
    main()
