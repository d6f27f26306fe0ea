"""What all examples use: the folder of models, results that a test can read, and the folder for pictures."""

import argparse
import pathlib
import time
from typing import Any

import jax
import numpy as np

import diffsim
from diffsim import optimize, viz

MODELS = pathlib.Path(__file__).parent / "models"


def arguments(description: str | None, **defaults: int | str | pathlib.Path) -> argparse.Namespace:
    """Parses the command line: `--out FOLDER` for pictures, and one option for each default (integer, text or file)."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("out"), help="folder for pictures")
    for name, value in defaults.items():
        parser.add_argument(f"--{name}", type=type(value), default=value)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    # the next run reads what this one compiles
    diffsim.use_cache()
    return options


def result(**values: Any) -> None:
    """Prints `RESULT key=value` lines."""
    for key, value in values.items():
        print(f"RESULT {key}={value:.6g}" if isinstance(value, float) else f"RESULT {key}={value}")


def timed(function: Any, *args: Any) -> tuple[Any, float]:
    """Calls a function; returns its finished result and the seconds that it took."""
    start = time.perf_counter()
    value = jax.block_until_ready(function(*args))
    return value, time.perf_counter() - start


def planned(task: optimize.Task, state: diffsim.State, options: Any, name: str, camera: viz.View) -> None:
    """Plans a motion through contact in at most `--seconds`, prints its costs, and makes a film."""
    begin = time.process_time()
    optimize.plan(task, state, options.steps, seconds=0, ctrl=np.zeros((options.steps, task.model.nu)))
    compiled = time.process_time() - begin
    begin = time.process_time()
    found = optimize.plan(task, state, options.steps, seconds=options.seconds, show=print)
    seconds = time.process_time() - begin
    print(found.advice)
    viz.video(task.model, found.states, options.out / f"{name}.gif", camera, fps=20, size=(320, 180))
    noisy = np.asarray(found.noisy)
    result(compilation=compiled, cpu_seconds=seconds)
    result(cost=float(found.cost), rest=float(found.idle), noisy=float(noisy.mean()))
    result(held=float(found.held.mean()), left=float(found.goal[1] / np.maximum(found.goal[0], 1e-9)))
