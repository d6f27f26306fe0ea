"""Plans of robots in 3-D, judged by C MuJoCo that plays the controls: a line a run, then counts.

    make measure WHAT=plan_robots                                      # two problems of each kind, by seed 0
    .venv/bin/python -m tests.measure.plan_robots seed=7               # other draws
    .venv/bin/python -m tests.measure.plan_robots gantry_stack fixed   # some kinds; only the fixed or the drawn ones
    .venv/bin/python -m tests.measure.plan_robots ur5e=PATH seconds=200

Of each kind one problem is fixed, and one is drawn by the seed that is printed. Each runs in a process of its own, so
that compilation counts. `ur5e=PATH` adds the arm of MuJoCo Menagerie (PATH has universal_robots_ur5e). The goal error
is the distance of the body from its goal at the end, as a share of that at the start: a problem is solved below 10%.
Under noise it is the share of 32 worlds of C MuJoCo, with noise of 0.3% of what the controls span and of 5% on friction
and masses, that end below 10%. Times are wall seconds and CPU seconds since the process began.
"""

import json
import multiprocessing
import pathlib
import resource
import sys
import time
from multiprocessing.connection import Connection
from typing import Any

import jax.numpy as jnp
import mujoco
import numpy as np

import diffsim
from diffsim import optimize
from diffsim.optimize import costs
from tests.measure.robot_models import KINDS, Problem, menagerie_push

# m that cost 1/2, and m/s
METRES = 0.01
SLOW = 0.1
SOLVED = 0.1
WORLDS = 32


def played(problem: Problem, ctrl: np.ndarray, noise: np.random.Generator | None = None) -> float:
    """The goal error at the end of a motion in C MuJoCo, as a share of that of the start."""
    model = mujoco.MjModel.from_xml_string(problem.xml)
    if noise is not None:
        model.geom_friction *= noise.uniform(0.95, 1.05, (model.ngeom, 1))
        factor = noise.uniform(0.95, 1.05, model.nbody)
        model.body_mass *= factor
        model.body_inertia *= factor[:, None]
        mujoco.mj_setConst(model, mujoco.MjData(model))
        ctrl = ctrl + 0.003 * 0.5 * np.ptp(ctrl, axis=0) * noise.normal(size=ctrl.shape)
    data = mujoco.MjData(model)
    mujoco.mj_resetDataKeyframe(model, data, 0)
    mujoco.mj_forward(model, data)
    start = np.linalg.norm(data.body(problem.body).xpos - problem.goal)
    for row in ctrl:
        data.ctrl[:] = row
        mujoco.mj_step(model, data)
    mujoco.mj_forward(model, data)
    return float(np.linalg.norm(data.body(problem.body).xpos - problem.goal) / start)


def task_of(problem: Problem) -> tuple[optimize.Task, diffsim.State]:
    """The task as a user would write it, and the state where it begins."""
    model = diffsim.load(problem.xml)
    body = model.body(problem.body)
    dofs = jnp.asarray(np.flatnonzero(model.topology.dof_bodyid == body.id))

    def final(state: diffsim.State, data: diffsim.Data) -> Any:
        place = costs.pose(data, body, pos=jnp.asarray(problem.goal), metres=METRES)
        return costs.join(place, state.qvel[dofs] / SLOW)

    task = optimize.make_task(model, lambda state, data, ctrl: costs.slow(state, 10.0), final)
    return task, diffsim.make_state(model).replace(qpos=model.key_qpos[0])


def solve(problem: Problem, key: int, seconds: float, out: Connection) -> None:
    """Plans one problem, and sends a line about it."""
    began = time.perf_counter()
    marks: list[tuple[float, float]] = []

    def show(text: str) -> None:
        print("   ", text, flush=True)
        if "cost" in text:
            marks.append((time.perf_counter() - began, time.process_time()))

    task, state = task_of(problem)
    found = optimize.plan(task, state, problem.steps, key=key, seconds=seconds, show=show)
    ctrl = np.asarray(found.ctrl, float)
    noisy = [played(problem, ctrl, np.random.default_rng([key, i])) for i in range(WORLDS)]
    (first, first_cpu), *_ = marks or [(np.inf, np.inf)]
    out.send(
        {
            "share": played(problem, ctrl),
            "noisy": float(np.mean(np.array(noisy) < SOLVED)),
            "first": round(first, 1),
            "first cpu": round(first_cpu, 1),
            "wall": round(time.perf_counter() - began, 1),
            "cpu": round(time.process_time(), 1),
            "MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
            "advice": found.advice,
        }
    )


def main() -> None:
    """A line for each problem, then counts."""
    words = {word.partition("=")[0]: word.partition("=")[2] for word in sys.argv[1:]}
    seed, seconds = int(words.get("seed", 0)), float(words.get("seconds", 300))
    problems = {}
    for kind in [word for word in words if word in KINDS] or list(KINDS):
        if "drawn" not in words:
            problems[f"{kind}, fixed"] = KINDS[kind](None)
        if "fixed" not in words:
            problems[f"{kind}, seed {seed}"] = KINDS[kind](np.random.default_rng([seed, list(KINDS).index(kind)]))
    if "ur5e" in words:
        problems["Menagerie's UR5e"] = menagerie_push(pathlib.Path(words["ur5e"]))
    lines = []
    spawn = multiprocessing.get_context("spawn")
    for name, problem in problems.items():
        here, there = spawn.Pipe(duplex=False)
        child = spawn.Process(target=solve, args=(problem, seed, seconds, there))
        child.start()
        there.close()
        try:
            line = here.recv()
        except EOFError:
            line = {"share": np.inf, "noisy": 0.0, "first": np.inf, "cpu": np.inf, "MB": 0, "advice": "it crashed"}
        child.join()
        lines.append(line)
        print(name, json.dumps(line), flush=True)
    share, first, cpu, memory = (np.array([line[key] for line in lines]) for key in ("share", "first", "cpu", "MB"))
    # told is true if most worlds with noise do as it says
    held = np.array(["It holds: " in line["advice"] for line in lines])
    noisy = np.array([line["noisy"] for line in lines])
    print(
        f"plan_robots: {sum(share < SOLVED)} of {len(share)} solved in C MuJoCo; first motion after "
        f"{np.median(first):.0f} s ({max(first):.0f} at most); {np.median(cpu):.0f} CPU s ({max(cpu):.0f} at most); "
        f"{max(memory)} MB at most; "
        f"of {sum(held)} that hold, {sum(noisy[held] >= 0.9)} do so in 90% of the worlds of C"
    )


if __name__ == "__main__":
    main()
