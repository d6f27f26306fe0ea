# ruff: noqa: E402
"""`python tests/gpu/device.py [--only PATTERN] [--trace FOLDER]`: programs of `make gpu-plan` on the GPU that is there.

Steps per second of rollouts and gradients, ours beside MJX, in one process: all are compiled first, in threads, and
then timed in turn. `--trace` writes a profile of each of ours, compiled without CUDA graphs, whose kernels a profiler
would not see.
"""

import argparse
import contextlib
import pathlib
import re
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple
from unittest import mock

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))

import jax
import numpy as np

from diffsim.bench.engines import ENGINES, Workload, best_seconds
from diffsim.xla.warp.loop import Translated

STEPS, WARM_UP = 20, 5
FOLDERS = [HERE / "models", *(HERE.parents[1] / name / "models" for name in ("examples", "diffsim/envs"))]
HUMANOID, HAND, TEN = "humanoid/humanoid.xml", "shadow_hand/right_hand.xml", "humanoid/10_humanoids.xml"
BARKOUR, CONVEX = "barkour_v0/assets/barkour_v0_mjx.xml", "convex.xml"


class Row(NamedTuple):
    """A program: engine, model file, what of the engine, batch, solver settings, and whether loops are kernels."""

    engine: str
    path: str
    mode: str
    batch: int
    limits: tuple[int, ...] = ()
    loops: bool = True

    @property
    def name(self) -> str:
        """As it is printed and chosen."""
        return f"{self.engine} {pathlib.Path(self.path).stem} {self.mode} {self.batch}" + "".join(
            f" {limit}" for limit in (*self.limits, *([] if self.loops else ["loops of XLA"]))
        )


TO_TOLERANCE = (100, 50)
ROWS = [
    Row(engine, *row)
    for row in (
        (HUMANOID, "rollout", 8192),
        (HUMANOID, "gradient", 8192),
        (HUMANOID, "rollout", 8192, TO_TOLERANCE),
        (HAND, "rollout", 8192),
        ("quadruped.xml", "rollout", 8192),
        (TEN, "rollout", 1024),
        (HUMANOID, "rollout", 1024),
        (HUMANOID, "rollout", 32768),
        (CONVEX, "rollout", 8192),
        ("cloth.xml", "rollout", 32),
        ("soft_gripper.xml", "rollout", 1024),
    )
    for engine in ("diffsim", "mjx")
    if not (engine == "mjx" and row[0] in ("cloth.xml", "soft_gripper.xml"))
]


ROWS += [
    Row("diffsim", HUMANOID, "rollout", 8192, TO_TOLERANCE, loops=False),
    Row("diffsim", "quadruped.xml", "rollout", 8192, loops=False),
]


class Lowered(NamedTuple):
    """A program that is being compiled, what it starts from, and when compiling began."""

    row: Row
    compiling: Future
    start: Any
    ctrl: np.ndarray
    tracing: float


def find_model(path: str) -> str:
    """The file among ours, or among MJX's."""
    import mujoco.mjx

    folders = [*FOLDERS, pathlib.Path(mujoco.mjx.__file__).parent / "test_data"]
    return str(next(folder / path for folder in folders if (folder / path).exists()))


def lower(row: Row, threads: ThreadPoolExecutor, options: dict[str, Any] | None = None) -> Lowered:
    """Traces a program here and compiles it in a thread."""
    begun = time.perf_counter()
    workload = Workload(find_model(row.path), *row.limits)
    engine: Any = ENGINES[row.engine](workload)
    start, ctrl = engine.start(row.batch), workload.controls(STEPS, row.batch, engine.model)
    none = mock.patch.object(Translated, "of", return_value=None)
    with contextlib.nullcontext() if row.loops else none:
        lowered = jax.jit(getattr(engine, row.mode)).lower(start, ctrl)
    options = engine.options if options is None else options

    def work() -> tuple[Any, float]:
        start = time.perf_counter()
        return lowered.compile(compiler_options=options), time.perf_counter() - start

    return Lowered(row, threads.submit(work), start, ctrl, time.perf_counter() - begun)


def measure(lowered: Lowered) -> str:
    """Runs a program and says how fast it is."""
    row = lowered.row
    call, seconds = lowered.compiling.result()
    states = lowered.start
    for _ in range(WARM_UP if row.mode == "rollout" else 1):
        result = call(states, lowered.ctrl)
        states = result if row.mode == "rollout" else states
    finite = bool(np.all(np.isfinite(np.asarray(result.qpos if row.mode == "rollout" else result))))
    ctrl = jax.device_put(lowered.ctrl)
    took = best_seconds(call, states, ctrl, lasting=1.0)
    memory = call.memory_analysis().temp_size_in_bytes / 2**20
    return (
        f"{row.name:44s} {row.batch * STEPS / took / 1e6:8.3f} M steps/s {1e6 * took / STEPS:9.1f} us a step, traced "
        f"{lowered.tracing:.1f} s, compiled {seconds:.1f} s, {memory:,.0f} MiB{'' if finite else ', NOT FINITE'}"
    )


def trace(lowered: Lowered, folder: pathlib.Path) -> None:
    """Writes the profile of one run, and the program's text."""
    call, _ = lowered.compiling.result()
    states, ctrl = lowered.start, jax.device_put(lowered.ctrl)
    for _ in range(WARM_UP if lowered.row.mode == "rollout" else 1):
        result = jax.block_until_ready(call(states, ctrl))
        states = result if lowered.row.mode == "rollout" else states
    where = folder / lowered.row.name.replace(" ", "_")
    with jax.profiler.trace(str(where)):
        jax.block_until_ready(call(states, ctrl))
    (where / "program.hlo").write_text(call.as_text())
    # beside it, for the profiler makes five folders
    for profile in where.glob("plugins/profile/*/*.trace.json.gz"):
        profile.rename(where / "trace.json.gz")


def main() -> None:
    """Compiles, then measures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="rows whose name has this regular expression")
    parser.add_argument("--trace", type=pathlib.Path, help="a folder for profiles of our programs that --traced names")
    parser.add_argument("--traced", default="8192", help="rows of ours whose profiles are written")
    options = parser.parse_args()
    device = jax.devices()[0]
    print(f"jax {jax.__version__}, {device.device_kind}", flush=True)
    with ThreadPoolExecutor(12) as threads:
        rows = [row for row in ROWS if re.search(options.only, row.name)]
        lowered, traced = [], []
        for row in rows:
            try:
                lowered.append(lower(row, threads))
                if options.trace and row.engine == "diffsim" and re.search(options.traced, row.name):
                    traced.append(lower(row, threads, {"xla_gpu_enable_command_buffer": ""}))
            except Exception as problem:
                print(f"{row.name:44s} FAILED in tracing: {type(problem).__name__}: {str(problem)[:300]}", flush=True)
        print("all traced", flush=True)
        for each, work in [*((x, None) for x in lowered), *((x, options.trace) for x in traced)]:
            try:
                if work is None:
                    print(measure(each), flush=True)
                else:
                    print(f"without CUDA graphs: {measure(each)}", flush=True)
                    trace(each, work)
            except Exception as problem:
                print(f"{each.row.name:44s} FAILED: {type(problem).__name__}: {str(problem)[:300]}", flush=True)


if __name__ == "__main__":
    main()
