"""The promises of speed on a CPU, beside MJX and C MuJoCo: a line for each, with the bar that it is held to.

python -m tests.measure.speed [humanoid tolerance ...] [--without mjx] [--cores 2]

Random controls, contacts on, float32, one program on all cores, or with `--cores` each core a device
(`parallel.use_cores`), for MJX too. Each row is a process of its own, so that none finds the caches of another, and
its lines are the report of `diffsim bench`. Without names all rows are run, 10 minutes on two quiet cores; ratios of
compile times count the seconds of all cores, as other processes take some of them away.
"""

import argparse
import json
import subprocess
import sys
import time
from typing import Any, NamedTuple

DATA = "mujoco/mjx/test_data/"
HUMANOID = DATA + "humanoid/humanoid.xml"


class Row(NamedTuple):
    """A model and its settings, the least ratio of its speed and C's on all cores, and steps of its gradient."""

    model: str
    times_c: float
    batch: int = 512
    iterations: int | None = None
    ls_iterations: int | None = None
    gradient_steps: int = 0


ROWS = {
    "humanoid": Row(HUMANOID, 1.8, gradient_steps=20),
    "tolerance": Row(HUMANOID, 0.9, iterations=100, ls_iterations=50),
    "scene_right": Row(DATA + "shadow_hand/scene_right.xml", 1.3),
    "hand": Row(DATA + "shadow_hand/right_hand.xml", 0.8),
    "convex": Row(DATA + "convex.xml", 0.5),
    "10 humanoids": Row(DATA + "humanoid/10_humanoids.xml", 0.8, batch=128),
}
TIMES_MJX, GRADIENT, MJX_COMPILE, GRADIENT_COMPILE, ARM = 5.0, 2.5, 1 / 6, 1.6, 30.0
# links of the arm whose plan is compiled, and vertices of the mesh of each
LINKS, VERTICES = 7, 40


def arm() -> str:
    """MJCF of an arm of seven hinges with a hull as each link, and a box that it may touch."""
    import numpy as np

    points = np.random.default_rng(0).normal(size=(VERTICES, 3))
    points *= [0.05, 0.05, 0.1] / np.linalg.norm(points, axis=1, keepdims=True)
    vertices = " ".join(f"{value:.4f}" for value in points.reshape(-1))
    links = motors = ""
    for number in reversed(range(LINKS)):
        axis = ("0 0 1", "0 1 0")[number % 2]
        links = (
            f'<body pos="0 0 0.2"><joint name="j{number}" axis="{axis}" damping="1" range="-150 150"/>'
            f'<geom type="mesh" mesh="link" pos="0 0 0.1"/>{links}</body>'
        )
        motors += f'<motor joint="j{number}" gear="20" ctrlrange="-1 1"/>'
    return (
        f'<mujoco><asset><mesh name="link" vertex="{vertices}"/></asset><worldbody><geom type="plane" size="2 2 .1"/>'
        f'<geom type="box" size=".1 .1 .3" pos=".5 0 .3"/>{links}</worldbody><actuator>{motors}</actuator></mujoco>'
    )


def plan_of_the_arm() -> dict[str, float]:
    """Seconds that the first call of iLQR takes, and those of all cores, with one iteration."""
    import jax.numpy as jnp

    import diffsim
    from diffsim import optimize

    model = diffsim.load(arm())
    target = jnp.full(model.nq, 0.3)
    task = optimize.make_task(
        model,
        running=lambda state, data, ctrl: 0.05 * ctrl,
        final=lambda state, data: 10 * jnp.concatenate([state.qpos - target, 0.3 * state.qvel]),
    )
    start, cpu = time.perf_counter(), time.process_time()
    plan = optimize.ilqr(task, diffsim.make_state(model), jnp.zeros((30, model.nu)), optimize.Ilqr(iterations=1))
    plan.cost.block_until_ready()
    return {"s": time.perf_counter() - start, "s of all cores": time.process_time() - cpu}


def figures(name: str, against: list[str], cores: int | None) -> dict[str, float]:
    """What a row of the table measures."""
    if name == "arm":
        return plan_of_the_arm()
    if cores is not None:
        from diffsim import parallel

        parallel.use_cores(cores)
    from diffsim.bench.engines import Workload
    from diffsim.bench.report import Schedule, report
    from diffsim.cli.models import find_model

    row = ROWS[name]
    schedule = Schedule([row.batch], gradient_steps=row.gradient_steps, stages=False)
    workload = Workload(find_model(row.model), row.iterations, row.ls_iterations)
    return report(workload, schedule, against, lambda line: print(line, file=sys.stderr, flush=True))


def bars(name: str, found: dict[str, float]) -> list[str]:
    """The lines of a row: what was measured, and whether it keeps its bar."""

    def line(what: str, value: float, bar: float, at_least: bool = True) -> str:
        kept = "kept" if (value >= bar if at_least else value <= bar) else "MISSED"
        return f"{name:>12} {what:<44} {value:6.2f} ({'at least' if at_least else 'at most'} {bar:.2f}: {kept})"

    if name == "arm":
        return [line(f"iLQR, first call, s ({found['s of all cores']:.0f} s of all cores)", found["s"], ARM, False)]
    row, lines = ROWS[name], []
    ours = f"diffsim {row.batch} "
    threads = max((int(key.split()[1]) for key in found if key.startswith("c ")), default=0)
    if threads:
        lines.append(
            line("x C on all cores", found[ours + "steps/s"] / found[f"c {threads} threads steps/s"], row.times_c)
        )
    if f"over mjx {row.batch} steps/s" in found:
        lines.append(line("x MJX", found[f"over mjx {row.batch} steps/s"], TIMES_MJX))
    if row.gradient_steps:
        step, gradient = (found[f"{ours}compile {what}, s of all cores"] for what in ("step", "gradient"))
        lines.append(line("gradient of 20 steps, x its forward", found[ours + "gradient/forward"], GRADIENT, False))
        lines.append(line("its compilation, x the step's", gradient / step, GRADIENT_COMPILE, False))
        if mjx := found.get(f"mjx {row.batch} compile step, s of all cores"):
            lines.append(line("step's compilation, x MJX's", step / mjx, MJX_COMPILE, False))
    return lines


def main() -> None:
    """Runs the rows, each in a process, and prints all lines at the end."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", choices=[*ROWS, "arm", []], default=[])
    parser.add_argument("--without", nargs="*", choices=["mjx", "c"], default=[])
    parser.add_argument("--one", choices=[*ROWS, "arm"], help=argparse.SUPPRESS)
    parser.add_argument("--cores", type=int, help="each of so many cores a device (default: one device)")
    options = parser.parse_args()
    against = [name for name in ("mjx", "c") if name not in options.without]
    if options.one:
        print(json.dumps(figures(options.one, against, options.cores)))
        return
    lines = []
    for name in options.rows or [*ROWS, "arm"]:
        command = [sys.executable, "-m", "tests.measure.speed", "--without", *options.without, "--one", name]
        command += [] if options.cores is None else ["--cores", str(options.cores)]
        run: Any = subprocess.run(command, stdout=subprocess.PIPE, text=True)
        found = json.loads(run.stdout.splitlines()[-1]) if run.returncode == 0 else None
        lines += bars(name, found) if found else [f"{name:>12} FAILED"]
    print("\n".join(lines))


if __name__ == "__main__":
    main()
