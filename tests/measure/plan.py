"""Plans through contact by the default call, judged by C MuJoCo that plays the controls: one line a run, then counts.

    make measure WHAT=plan                                   # eight tasks of mujodico, seed 0, and four of ours
    .venv/bin/python -m tests.measure.plan PushBox2d 0 1 2   # some task, some seeds

The eight planar tasks of MuJoDiCo 3.17.0 (PyPI `mujodico`: models, starts, goals and weights by seed) are what the
defaults of `optimize.plan` were chosen on; the four of ours were never looked at for that. A wheel is downloaded, and
read, not installed. The goal error is (x_T - goal)' Q (x_T - goal), as a share of that of the start; under noise it is
the median of 32 worlds of C MuJoCo with noise of 0.3% on controls and of 5% on each friction and mass.
"""

import enum
import importlib
import inspect
import pathlib
import subprocess
import sys
import time
import types
import zipfile
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

import diffsim
from diffsim import optimize

WHEELS = pathlib.Path("/tmp/diffsim_measure")
THEIRS = (
    "PushSphere1d",
    "PushSphere2d",
    "PushBox2d",
    "PushMultiSphere2d",
    "PushCircularKnob",
    "PushSquareKnob",
    "FingerCircularKnob",
    "FingersSphere2d",
)

PUSHER = """<joint name="x" type="slide" axis="1 0 0"/><joint name="y" type="slide" axis="0 1 0"/>
<geom type="sphere" size=".03" mass="1"/></body>"""
MOTORS = """<actuator><velocity joint="x" kv="30" ctrlrange="-.5 .5"/>
<velocity joint="y" kv="30" ctrlrange="-.5 .5"/></actuator>"""
HEAD = """<option timestep=".02" integrator="implicitfast" gravity="0 0 0"/>
<default><geom condim="3" friction=".5"/></default>"""
# a puck behind a wall; a T to a pose; a ball that two pads squeeze and lift; a leg that hops forward
OURS = {
    "PuckAroundWall": f"""<mujoco>{HEAD}<worldbody><geom type="box" size=".2 .02 .05"/><body pos="-.1 -.25 0">{PUSHER}
<body pos="0 -.12 0"><joint type="slide" axis="1 0 0" damping="8"/><joint type="slide" axis="0 1 0" damping="8"/>
<geom type="sphere" size=".05" mass=".5"/></body></worldbody>{MOTORS}</mujoco>""",
    "PushT": f"""<mujoco>{HEAD}<worldbody><body pos="-.2 -.2 0">{PUSHER}<body>
<joint type="slide" axis="1 0 0" damping="15"/><joint type="slide" axis="0 1 0" damping="15"/><joint damping=".2"/>
<geom type="box" size=".12 .03 .03" mass=".5"/><geom type="box" size=".03 .08 .03" pos="0 -.1 0" mass=".3"/></body>
</worldbody>{MOTORS}</mujoco>""",
    "SqueezeAndLift": """<mujoco><option timestep=".01" integrator="implicitfast"/><default><geom condim="3"/></default>
<worldbody><geom type="plane" size="1 1 .1"/><body pos="-.2 0 .08"><joint name="lx" type="slide" axis="1 0 0"/>
<joint name="lz" type="slide" axis="0 0 1"/><geom type="box" size=".02 .05 .05" mass=".5"/></body><body pos=".2 0 .08">
<joint name="rx" type="slide" axis="1 0 0"/><joint name="rz" type="slide" axis="0 0 1"/>
<geom type="box" size=".02 .05 .05" mass=".5"/></body><body pos="0 0 .08"><joint type="slide" axis="1 0 0"/>
<joint type="slide" axis="0 0 1"/><joint axis="0 1 0"/><geom type="sphere" size=".08" mass=".3"/></body></worldbody>
<actuator><position joint="lx" kp="200" kv="20" ctrlrange="0 .2"/>
<position joint="lz" kp="200" kv="20" ctrlrange="-.05 .3"/><position joint="rx" kp="200" kv="20" ctrlrange="-.2 0"/>
<position joint="rz" kp="200" kv="20" ctrlrange="-.05 .3"/></actuator></mujoco>""",
    "HopForward": """<mujoco><option timestep=".01" integrator="implicitfast"/>
<worldbody><geom type="plane" size="2 1 .1"/>
<body pos="0 0 .62"><joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 0 1"/>
<joint axis="0 1 0" damping="1"/>
<geom type="sphere" size=".1" mass="3"/><body><joint name="hip" axis="0 1 0" range="-60 60" damping="1"/>
<geom type="capsule" size=".03" fromto="0 0 0 0 0 -.3" mass=".5"/><body pos="0 0 -.3">
<joint name="knee" type="slide" axis="0 0 1" range="-.02 .2" damping="2" stiffness="400"/>
<geom type="capsule" size=".03" fromto="0 0 0 0 0 -.26" mass=".3"/></body></body></body></worldbody>
<actuator><position joint="hip" kp="60" kv="3" ctrlrange="-.8 .8"/>
<motor joint="knee" gear="150" ctrlrange="-1 1"/></actuator></mujoco>""",
}


class Case(NamedTuple):
    """A task: model text and mjModel, steps, start and goal (nq + nv), diagonals of weights."""

    xml: str
    model: Any
    steps: int
    start: np.ndarray
    goal: np.ndarray
    running: np.ndarray
    final: np.ndarray
    effort: np.ndarray

    def error(self, x: np.ndarray) -> float:
        """(x - goal)' Q (x - goal)."""
        return float((x - self.goal) ** 2 @ self.running)


def theirs(name: str, seed: int) -> Case:
    """A task of mujodico."""
    if not (WHEELS / "mujodico").exists():
        fetch = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--dest", str(WHEELS), "mujodico==3.17.0"]
        subprocess.run(fetch, check=True)
        zipfile.ZipFile(next(WHEELS.glob("mujodico-*.whl"))).extractall(WHEELS)
    if "mujodico" not in sys.modules:
        # its tasks import viewers and an enum of its simulator, which they need for pictures and options alone
        for stub in ("mjviser", "viser", "plotly", "plotly.graph_objects", "plotly.subplots", "mujodico.mjx"):
            sys.modules[stub] = types.ModuleType(stub)
        sys.modules["viser"].ViserServer = sys.modules["plotly.graph_objects"].Figure = object  # type: ignore[attr-defined]
        for child in ("graph_objects", "subplots"):
            setattr(sys.modules["plotly"], child, sys.modules[f"plotly.{child}"])
        sys.modules["mujodico.mjx"].ContactApproxType = enum.Enum("ContactApproxType", "HUNT_CROSSLEY")  # type: ignore[attr-defined]
        package = sys.modules["mujodico"] = types.ModuleType("mujodico")
        package.__path__ = [str(WHEELS / "mujodico")]
    maker = getattr(importlib.import_module("mujodico.examples.tasks"), name)
    task = maker(seed) if "seed" in inspect.signature(maker.__init__).parameters else maker()
    weights = (np.diag(weight) for weight in (task.Q, task.Qf, task.R))
    return Case(sys.modules[maker.__module__]._XML, task.model, task.horizon, task.x_0, task.x_goal, *weights)


def ours(name: str, seed: int) -> Case:
    """A task of ours."""
    model, rng = mujoco.MjModel.from_xml_string(OURS[name]), np.random.default_rng(seed)
    start, goal = np.zeros((2, model.nq + model.nv))
    running, effort, steps = np.zeros(model.nq + model.nv), np.full(model.nu, 0.01), 150
    if name == "PuckAroundWall":
        goal[2:4], running[2:4] = (rng.uniform(-0.1, 0.1), 0.27), 1.0
    elif name == "PushT":
        start[2:5] = rng.uniform([0.0, 0.0, -1.5], [0.2, 0.2, 1.5])
        running[2:5] = 5.0, 5.0, 0.1
    elif name == "SqueezeAndLift":
        goal[4:6], running[4:6] = (rng.uniform(-0.05, 0.05), 0.2), 1.0
    else:
        goal[0], running[:3] = rng.uniform(0.5, 0.7), (1.0, 0.0, 0.5)
    return Case(OURS[name], model, steps, start, goal, running, steps * running, effort)


def problem(case: Case, model: diffsim.Model) -> tuple[optimize.Task, diffsim.State]:
    """The same for diffsim."""
    on = np.flatnonzero(case.running)
    goal = jnp.asarray(case.goal[on], model.qpos0.dtype)
    weights = [jnp.asarray(np.sqrt(w), model.qpos0.dtype) for w in (case.running[on], case.final[on], case.effort)]

    def off(state: diffsim.State) -> jax.Array:
        return jnp.concatenate([state.qpos, state.qvel])[on] - goal

    def running(state: diffsim.State, data: diffsim.Data, ctrl: jax.Array) -> jax.Array:
        return jnp.concatenate([weights[0] * off(state), weights[2] * ctrl])

    task = optimize.make_task(model, running, lambda state, data: weights[1] * off(state))
    start = [jnp.asarray(part, model.qpos0.dtype) for part in np.split(case.start, [model.nq])]
    return task, diffsim.make_state(model).replace(qpos=start[0], qvel=start[1])


def played(case: Case, ctrl: np.ndarray, noise: np.random.Generator | None = None) -> float:
    """The goal error in C MuJoCo, as a share of that of the start."""
    model = case.model
    if noise is not None:
        model = mujoco.MjModel.from_xml_string(case.xml)
        model.geom_friction *= noise.uniform(0.95, 1.05, (model.ngeom, 1))
        factor = noise.uniform(0.95, 1.05, model.nbody)
        model.body_mass *= factor
        model.body_inertia *= factor[:, None]
        mujoco.mj_setConst(model, mujoco.MjData(model))
        ctrl = ctrl + 0.003 * 0.5 * np.ptp(model.actuator_ctrlrange, axis=1) * noise.normal(size=ctrl.shape)
    data = mujoco.MjData(model)
    data.qpos[:], data.qvel[:] = np.split(case.start, [model.nq])
    for row in ctrl:
        data.ctrl[:] = row
        mujoco.mj_step(model, data)
    return case.error(np.concatenate([data.qpos, data.qvel])) / case.error(case.start)


def main() -> None:
    """Runs the tasks named, for the seeds named; all, for seed 0, if none are."""
    names = [word for word in sys.argv[1:] if not word.isdigit()] or [*THEIRS, *OURS]
    seeds = [int(word) for word in sys.argv[1:] if word.isdigit()] or [0]
    shares, seconds = [], []
    print(f"{'task':<20}{'seed':>4}{'error in C':>12}{'in noise':>10}{'cost':>10}{'rest':>9}{'steps':>9}{'CPU s':>8}")
    for name in names:
        goal = None
        for seed in seeds:
            case = theirs(name, seed) if name in THEIRS else ours(name, seed)
            if goal is None or np.any(goal != case.goal):
                # goals are part of the program; the first run compiles it
                goal, (task, state), began = case.goal, problem(case, diffsim.load(case.xml)), time.process_time()
                optimize.plan(task, state, case.steps, seconds=0, ctrl=jnp.zeros((case.steps, task.model.nu)))
                print(
                    f"{name:<20}{'compilation and polish of rest':>44}{time.process_time() - began:>36.1f}", flush=True
                )
            state = problem(case, task.model)[1]
            began = time.process_time()
            found = optimize.plan(task, state, case.steps, show=lambda line: print("   ", line, flush=True))
            spent = time.process_time() - began
            ctrl = np.asarray(found.ctrl, float)
            share, rng = played(case, ctrl), np.random.default_rng(seed)
            noisy = float(np.median([played(case, ctrl, rng) for _ in range(32)]))
            shares.append((share, noisy))
            seconds.append(spent)
            line = f"{name:<20}{seed:>4}{share:>12.2%}{noisy:>10.2%}{float(found.cost):>10.3g}{float(found.idle):>9.3g}"
            print(f"{line}{int(found.steps) / 1e6:>8.1f}M{spent:>8.1f}   {found.advice}", flush=True)
    good = sum(share <= 0.01 for share, _ in shares)
    calm = sum(noisy <= 0.05 for _, noisy in shares)
    counts = f"{good} of {len(shares)} end within 1% of the start's error in C MuJoCo, {calm} within 5% under noise"
    print(f"plan: {counts}; median {np.median(seconds):.1f} CPU s a plan")


if __name__ == "__main__":
    main()
