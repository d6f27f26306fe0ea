"""Plans through contact by the default call, judged by C MuJoCo that plays the controls: one line a run, then counts.

    make measure WHAT=plan                                     # eight tasks of mujodico, seeds 0 to 9, four CPU minutes
    .venv/bin/python -m tests.measure.plan PushBox2d 0 1 2     # some task, some seeds
    .venv/bin/python -m tests.measure.plan held minutes=5      # the ten tasks of ours, as far as five CPU minutes go
    .venv/bin/python -m tests.measure.plan report              # what is known so far, a line a task
    .venv/bin/python -m tests.measure.plan compile PushBox2d   # seconds of iLQR, of a plan, and without its thread
    .venv/bin/python -m tests.measure.plan rival PYTHON 0 1 2  # in turn with MuJoDiCo, by methods of rival.py

A run is a line of JSON in /tmp/diffsim_measure/plan.jsonl, with its controls beside it; runs of the same text of the
planner are not repeated, so that a long table is made of many short calls. The eight planar tasks of MuJoDiCo 3.17.0
(PyPI `mujodico`: models, starts, goals and weights by seed) are what the defaults of `optimize.plan` were chosen on;
of the ten of ours PuckAroundWall was looked at for that. A wheel is downloaded, and read, not installed. The goal error
is (x_T - goal)' Q (x_T - goal), as a share of that of the start; under noise it is the median of 32 worlds of C MuJoCo
with noise of 0.3% on controls and of 5% on each friction and mass, "held" the same where the plan's gains answer to
what C MuJoCo does. "As advised" is what comes of doing what the plan's advice says: by its gains where it says that the
motion holds with its feedback alone, else by its controls alone. The seed is the key of the search as well, so that
tasks whose start is fixed are ten searches.
"""

import enum
import functools
import hashlib
import importlib
import inspect
import json
import multiprocessing
import pathlib
import subprocess
import sys
import threading
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
from tests.measure.plan_models import OURS
from tests.measure.rival import METHODS as RIVALS

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
    """A task of ours: starts differ by seed, goals do not, since they are a part of the program."""
    xml, steps, start, scatter, goal, running = OURS[name]
    model, rng = mujoco.MjModel.from_xml_string(xml), np.random.default_rng(seed)
    begin, end, weights = np.zeros((3, model.nq + model.nv))
    begin[: model.nq] = np.asarray(start) + np.asarray(scatter) * rng.uniform(-1, 1, model.nq)
    end[: model.nq], weights[: model.nq] = goal, running
    return Case(xml, model, steps, begin, end, weights, steps * weights, np.full(model.nu, 0.01))


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


def played(
    case: Case, ctrl: Any, noise: np.random.Generator | None = None, held: optimize.Solution | None = None
) -> float:
    """The goal error in C MuJoCo, as a share of that of the start; `held`: by the feedback of this plan."""
    model, ctrl = case.model, np.asarray(ctrl, float)
    if held is not None:
        gains, planned = np.asarray(held.gains), np.concatenate([held.states.qpos, held.states.qvel], axis=1)
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
    lower, upper = model.actuator_ctrlrange.T
    for t, row in enumerate(ctrl):
        data.ctrl[:] = row
        if held is not None:
            # all joints of these tasks are slides and hinges, whose differences are plain
            answer = gains[t] @ (np.concatenate([data.qpos, data.qvel]) - planned[t])
            data.ctrl[:] = np.clip(row + answer, lower, upper)
        mujoco.mj_step(model, data)
    return case.error(np.concatenate([data.qpos, data.qvel])) / case.error(case.start)


def planner() -> str:
    """Which text of the planner runs."""
    files = sorted((pathlib.Path(diffsim.__file__).parent / "optimize/trajectory").glob("*.py"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:8]


def run(name: str, seed: int, task: optimize.Task | None) -> tuple[dict[str, Any], optimize.Task]:
    """One plan, and how it fares in C; the task, which is made once."""
    case = theirs(name, seed) if name in THEIRS else ours(name, seed)
    line: dict[str, Any] = {"planner": planner(), "task": name, "seed": seed}
    if task is None:
        task, state = problem(case, diffsim.load(case.xml))
        began = time.process_time()
        optimize.plan(task, state, case.steps, seconds=0, ctrl=jnp.zeros((case.steps, task.model.nu)))
        line["compile"] = round(time.process_time() - began, 1)
    state = problem(case, task.model)[1]
    began = time.process_time()
    found = optimize.plan(task, state, case.steps, key=seed, show=lambda text: print("   ", text, flush=True))
    np.save(WHEELS / f"plan_{line['planner']}_{name}_{seed}.npy", np.asarray(found.ctrl))
    line |= {
        "cpu": round(time.process_time() - began, 1),
        "share": played(case, found.ctrl),
        "share held": played(case, found.ctrl, held=found),
        "noisy": float(np.median([played(case, found.ctrl, np.random.default_rng([seed, i])) for i in range(32)])),
        "held": float(
            np.median([played(case, found.ctrl, np.random.default_rng([seed, i]), found) for i in range(32)])
        ),
        "cost": float(found.cost),
        "noisy cost": float(jnp.mean(found.noisy)),
        "rest": float(found.idle),
        "steps": int(found.steps),
        "advice": found.advice,
    }
    return line, task


def compilation(name: str) -> None:
    """CPU and wall seconds of what is compiled: by iLQR, and by a plan, with its thread beside the search and without.

    Each in a process of its own, for JAX keeps what was traced.
    """
    for kind in ("ilqr", "plan", "plan without its thread"):
        child = multiprocessing.get_context("spawn").Process(target=_compile, args=(name, kind))
        child.start()
        child.join()


def _compile(name: str, kind: str) -> None:
    case = theirs(name, 0) if name in THEIRS else ours(name, 0)
    task, state = problem(case, diffsim.load(case.xml))
    ctrl = jnp.zeros((case.steps, task.model.nu))
    if kind.startswith("plan without"):
        threading.Thread.start, threading.Thread.join = threading.Thread.run, lambda *_: None
    call = optimize.ilqr if kind == "ilqr" else functools.partial(optimize.plan, steps=case.steps, seconds=0)
    spent = []
    for _ in range(2):
        began = time.process_time(), time.perf_counter()
        jax.block_until_ready(call(task, state, ctrl=ctrl).ctrl)
        spent.append(np.array([time.process_time(), time.perf_counter()]) - began)
    cpu, wall = spent[0] - spent[1]
    print(f"{name}: {kind} compiles in {cpu:.1f} CPU s, {wall:.1f} s by the clock", flush=True)


def report(lines: list[dict[str, Any]]) -> None:
    """A line a task, and the counts."""

    def column(lines: list[dict[str, Any]], key: str, instead: str) -> tuple[np.ndarray, np.ndarray]:
        by_gains = ["holds with its feedback" in line["advice"] for line in lines]
        advised = [
            line.get(instead, line[key]) if held else line[key] for line, held in zip(lines, by_gains, strict=True)
        ]
        return np.array([line[key] for line in lines]), np.array(advised)

    for name in dict.fromkeys(line["task"] for line in lines):
        of_task = [line for line in lines if line["task"] == name]
        (share, advised), (noisy, calm) = column(of_task, "share", "share held"), column(of_task, "noisy", "held")
        cpu, held = (np.array([line[key] for line in of_task]) for key in ("cpu", "held"))
        text = f"{name:<20}{sum(share <= 0.01):>3} of {len(share):>2} within 1% (as advised {sum(advised <= 0.01)}): "
        text += f"median {np.median(share):.2%}, worst {max(share):.2%}; in noise {np.median(noisy):.2%}, held "
        text += f"{np.median(held):.2%}, as advised {np.median(calm):.2%}; CPU s {np.median(cpu):.1f}, {max(cpu):.1f}"
        print(text + f" at most; compilation {max(line.get('compile', 0) for line in of_task):.0f}")
    (share, advised), (noisy, calm) = column(lines, "share", "share held"), column(lines, "noisy", "held")
    counts = f"{sum(share <= 0.01)} of {len(share)} (as advised {sum(advised <= 0.01)})"
    noise = f"in noise the median is {np.median(noisy):.2%} (as advised {np.median(calm):.2%})"
    cpu = f"median {np.median([line['cpu'] for line in lines]):.1f} CPU s a plan"
    print(f"plan: {counts} end within 1% of the start's error in C MuJoCo, {noise}; {cpu}")


def beside(python: str, name: str, seeds: list[int], chosen: list[str]) -> None:
    """What the rival makes of a task, in its own world and in C MuJoCo: a line a solve of another start.

    Args:
      chosen: its methods, none for all; `seconds=30` limits each solve.
    """
    book, starts = WHEELS / "rival.jsonl", {theirs(name, seed).start.tobytes(): seed for seed in reversed(seeds)}
    known = [json.loads(line) for line in book.read_text().splitlines()] if book.exists() else []
    done = {(line["method"], line["seed"]) for line in known if line["task"] == name}
    for method in [word for word in chosen if word in RIVALS] or RIVALS:
        left = [seed for seed in sorted(starts.values()) if (method, seed) not in done]
        if not left:
            continue
        limit = [word for word in chosen if word.startswith("seconds=")]
        call = [python, "-m", "tests.measure.rival", name, method, *limit, *map(str, left)]
        # one core as for all here; the time limit is the solver's
        with subprocess.Popen(call, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as child:
            for text in child.stdout or ():
                if not text.startswith("{"):
                    continue
                line = json.loads(text)
                line["c"] = played(theirs(name, line["seed"]), line["ctrl"]) if "ctrl" in line else None
                with book.open("a") as file:
                    file.write(json.dumps(line) + "\n")
                print({key: value for key, value in line.items() if key != "ctrl"}, flush=True)


def main() -> None:
    """Runs what is named and not yet known; prints what is known of it."""
    words = sys.argv[1:]
    seeds = [int(word) for word in words if word.isdigit()] or list(range(10))
    minutes = next((float(word[8:]) for word in words if word.startswith("minutes=")), 4.0)
    names = [word for word in words if word in THEIRS or word in OURS] or list(OURS if "held" in words else THEIRS)
    if "compile" in words:
        for name in names:
            compilation(name)
        return
    book = WHEELS / "plan.jsonl"
    WHEELS.mkdir(exist_ok=True)
    known = [json.loads(line) for line in book.read_text().splitlines()] if book.exists() else []
    known = [line for line in known if line["planner"] == planner() and line["task"] in names]
    done, began = {(line["task"], line["seed"]) for line in known}, time.process_time()
    for name in names if "report" not in words else []:
        task = None
        if "rival" in words:
            beside(words[words.index("rival") + 1], name, seeds, words)
        for seed in seeds:
            if (name, seed) in done or time.process_time() - began > 60 * minutes:
                continue
            line, task = run(name, seed, task)
            known.append(line)
            with book.open("a") as file:
                file.write(json.dumps(line) + "\n")
            print(
                f"{name} {seed}: {line['share']:.2%} in C, {line['noisy']:.2%} in noise, {line['held']:.2%} held, "
                f"{line['cpu']} CPU s",
                flush=True,
            )
    report(known)


if __name__ == "__main__":
    main()
